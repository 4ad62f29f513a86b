"""The answer says what a careful engineer would say of the same figures, never more, and in any order of the runs."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

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
    figures = {key: tuple(map(interval, value if isinstance(value, list) else [value])) for key, value in cell.items()}
    rounds = tuple(map(str, range(max(map(len, figures.values()), default=1))))
    return Side(**told, figures=figures, validity=validity, stands=stands, rounds=rounds)


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
