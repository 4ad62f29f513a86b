"""The answer says what a careful engineer would say of the same figures, never more, and in any order of the runs."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.measure.statistics import Interval
from tsbench.report.answer import answer
from tsbench.report.sides import Side, Sides

SETS = [
    (path.stem, one)
    for path in sorted((Path(__file__).parent / "answers").glob("*.toml"))
    for one in tomllib.loads(path.read_text(encoding="utf-8"))["set"]
]
NAMES = [f"{stem}: {one['about']}" for stem, one in SETS]


def interval(value: Any) -> Interval:
    return Interval(**value) if isinstance(value, dict) else Interval(value, value, value)


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
def test_any_figures_have_an_answer_of_at_most_five_sentences_in_any_order(found: Sides, chance: random.Random):
    said = answer(found)
    assert 1 <= len(said) <= 5
    assert all(sentence.endswith(".") and "  " not in sentence and "()" not in sentence for sentence in said)
    shuffled = chance.sample(found.sides, len(found.sides))
    assert answer(Sides(found.loop, found.axis, tuple(shuffled))) == said
