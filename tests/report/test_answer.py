"""The answer says what a careful engineer would say of the same figures, never more, and in any order of the runs."""

from __future__ import annotations

import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.measure.statistics import Bounds
from tsbench.report.answer import answer
from tsbench.report.sides import Side, Sides

SETS = [
    (path.stem, one)
    for path in sorted((Path(__file__).parent / "answers").glob("*.toml"))
    for one in tomllib.loads(path.read_text(encoding="utf-8"))["set"]
]
NAMES = [f"{stem}: {one['about']}" for stem, one in SETS]


def interval(value: Any) -> Bounds:
    return Bounds(**value) if isinstance(value, dict) else Bounds(value, value, value)


def side_of(cell: dict[str, Any]) -> Side:
    cell = dict(cell)
    told = {key: cell.pop(key) for key in ("name", "at", "reason", "limited_by", "failed", "gated") if key in cell}
    validity = cell.pop("validity", "valid")
    stands = cell.pop("stands", validity == "valid")
    kinds, disturbed = frozenset(cell.pop("kinds", ())), tuple(cell.pop("disturbed", ()))
    figures = {key: tuple(map(interval, value if isinstance(value, list) else [value])) for key, value in cell.items()}
    rounds = tuple(range(1, 1 + max(map(len, figures.values()), default=1)))
    also: dict[str, Any] = {"rounds": rounds, "kinds": kinds, "disturbed": disturbed}
    return Side(**told, figures=figures, validity=validity, stands=stands, **also)


def sides_in(one: dict[str, Any]) -> Sides:
    return Sides(one.get("loop", "closed"), one.get("axis", ""), tuple(map(side_of, one["cells"])))


@pytest.mark.parametrize("one", [one for _, one in SETS], ids=NAMES)
def test_the_answer_is_what_an_engineer_would_say(one: dict[str, Any]):
    assert list(answer(sides_in(one))) == one["says"]


@pytest.mark.parametrize("one", [one for _, one in SETS], ids=NAMES)
def test_the_answer_does_not_depend_on_the_order_of_the_runs(one: dict[str, Any]):
    found = sides_in(one)
    for seed in range(5):
        shuffled = random.Random(seed).sample(found.sides, len(found.sides))
        assert answer(Sides(found.loop, found.axis, tuple(shuffled))) == answer(found)


def words(line: str) -> int:
    return len(line.partition(": ")[2].split())


@pytest.mark.parametrize("count", [1, 2, 4, 5, 12, 40])
def test_a_line_has_at_most_thirty_words_however_many_the_sides(count: int):
    cells = [{"name": f"side-{n:02}", "write_p99_ns": 1e6 * 1.2**n, "bytes_per_point": 10 + n} for n in range(count)]
    said = answer(Sides("open", "", tuple(map(side_of, cells))))
    assert max(map(words, said)) <= 30
    (writes,) = [line for line in said if line.startswith("Writes: ")]
    assert ("side-00" in writes, "others" in writes) == (True, count > 4)


def test_of_many_sides_the_best_three_are_named_and_the_others_counted():
    cells = [{"name": f"s{n:02}", "write_p99_ns": value} for n, value in enumerate((4e6, 8e6, 12e6, *[20e6] * 8, 72e6))]
    said = answer(Sides("open", "", tuple(map(side_of, cells))))
    assert said[0] == (
        "Writes: s00 is fastest (p99 4.00 ms); s01 takes 2.0 times as long (8.00 ms), s02 3.0 times (12.0 ms), "
        "9 others, 5.0 to 18 times."
    )
    alike = [{"name": f"s{n:02}", "write_p99_ns": 4e6} for n in range(12)]
    assert answer(Sides("open", "", tuple(map(side_of, alike))))[0] == (
        "Writes: no difference found between s00, s01, s02 and 9 others (p99 4.00 ms)."
    )
    near = [{"name": f"s{n:02}", "write_p99_ns": value} for n, value in enumerate((4e6, *[5e6] * 3, 20e6, 24e6))]
    assert answer(Sides("open", "", tuple(map(side_of, near))))[0] == (
        "Writes: s00, s01, s02 and 1 other are fastest (p99 4.00 to 5.00 ms); 2 others take 4.0 to 4.8 times as long."
    )


def test_of_several_ranges_the_least_and_the_most_are_shown():
    ranges = {"a": (12.5e6, 12.5e6), "b": (12.2e6, 14.7e6), "c": (0.9e6, 15e6)}
    cells = [
        {"name": name, "write_p99_ns": {"estimate": (least + most) / 2, "least": least, "most": most}}
        for name, (least, most) in ranges.items()
    ]
    said = answer(Sides("open", "", tuple(map(side_of, cells))))
    assert said[0] == "Writes: no difference found between c, a and b (p99 900 us to 15.0 ms)."


KEYS = ("write_points_per_s", "write_p99_ns", "query_p99_ns", "bytes_per_point", "write_variation")
FIGURES = st.dictionaries(
    st.sampled_from(KEYS), st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=9), max_size=len(KEYS)
)


@st.composite
def any_side(draw: st.DrawFn, at: float | None) -> Side:
    figures = draw(FIGURES)
    runs = min(map(len, figures.values()), default=1)
    validity, stands = draw(
        st.sampled_from([("valid", True), ("inconclusive", True), ("inconclusive", False), ("invalid", False)])
    )
    return Side(
        draw(st.sampled_from(["a", "b", "c", "a-long-name-of-a-layout", "d"])),
        at,
        {key: tuple(map(interval, values[:runs])) for key, values in figures.items()},
        validity,
        draw(st.sampled_from(["", "3 answers are wrong"])),
        stands,
        draw(st.sampled_from(["database", "load generator", "think time", "nothing", "unknown"])),
        draw(st.sampled_from([{}, {"write:p99<50ms": "61.0 ms"}])),
        draw(st.sampled_from([(), ("write:p99<50ms",)])),
        draw(st.booleans()),
        rounds=tuple(range(1, 1 + runs)),
    )


@st.composite
def any_sides(draw: st.DrawFn) -> Sides:
    axis = draw(st.sampled_from(["", "drive.rate", "load.batch"]))
    loads = st.sampled_from([100.0, 200.0, 400.0]) if axis else st.none()
    found = draw(st.lists(loads.flatmap(any_side), min_size=1, max_size=8, unique_by=lambda s: (s.name, s.at)))
    return Sides(draw(st.sampled_from(["open", "closed"])), axis, tuple(found))


@pytest.mark.slow
@given(any_sides(), st.randoms())
def test_any_figures_have_an_answer_in_short_lines_whatever_the_order_of_the_runs(found: Sides, chance: random.Random):
    said = answer(found)
    assert said
    assert all(line.endswith(".") and "  " not in line and "()" not in line for line in said)
    assert all(re.fullmatch(r"[A-Z]\w+: .+", line, re.ASCII) for line in said)
    assert max(map(words, said)) <= 30
    shuffled = chance.sample(found.sides, len(found.sides))
    assert answer(Sides(found.loop, found.axis, tuple(shuffled))) == said
