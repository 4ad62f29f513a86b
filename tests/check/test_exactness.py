"""Gold answers and answers as columns are compared to the last bit, sums and means within their rounding's bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.check import questions
from tsbench.check.aggregates import AggregateTracker, is_computed_alone
from tsbench.check.buckets import BucketTracker, GroupTracker, NewestBucketTracker
from tsbench.check.comparison import ROUNDING, Difference
from tsbench.check.packed import Packed, SeriesNames, SpoolFile, pack, pack_stored
from tsbench.check.points import Slab
from tsbench.check.questions import Names, Question, packed_answer
from tsbench.check.rows import NewestTracker, RowTracker, StoredTracker
from tsbench.model import (
    Aggregate,
    Aggregated,
    Codes,
    Field,
    Kind,
    Latest,
    LatestBuckets,
    Measurement,
    Query,
    Raw,
    Rows,
    Stored,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

M = Measurement("m", ("host",), (Field("n", Kind.INT), Field("x")))
KEYS = ("a", "b")
NAMES = Names(SeriesNames(KEYS), 2, tags={"host": Codes(np.arange(2, dtype=np.int32), KEYS)})
ALONE = Names(SeriesNames(KEYS), 2, keyed=False)
WINDOW = Window(0, 100)
INTEGERS = (2**53 + 1, 2**60 + 256, -(2**62) - 1, 2**63 - 1)
"""Of two hosts in turn; floats hold the second only."""
FLOATS = (0.1, 0.2, 0.3, -0.4)


def slab(integers: Sequence[int], floats: Sequence[float]) -> Slab:
    """Return the points of two hosts at two times."""
    fields: dict[str, Any] = {"n": np.array(integers, np.int64), "x": np.array(floats)}
    time_ns, series = np.array([10, 10, 20, 20]), np.array([0, 1, 0, 1], np.int32)
    return Slab(M, 100, time_ns, series, {"host": _Texts(KEYS)}, fields)  # type: ignore[dict-item]


class _Texts(tuple[str, ...]):
    __slots__ = ()

    def tolist(self) -> list[str]:
        return [*self]


def verdict(query: Query, rows: list[tuple[Any, ...]], points: Slab) -> bool:
    """Return True if an answer is right."""
    names = NAMES if "host" in query.columns else ALONE
    of = Rows(query.columns, rows)
    if isinstance(query, Stored):
        names = replace(NAMES, every_key=SeriesNames([(key,) for key in KEYS]))
        answer: Any = pack_stored(query, of, names.every_key)
    else:
        answer = packed_answer(query, of, names)
    question: Question[Any] = Question("", query, lambda: answer)
    trackers: dict[type, Callable[[], Any]] = {
        Raw: lambda: RowTracker(question, names),
        Latest: lambda: NewestTracker([question], names),
        Aggregated: lambda: (
            AggregateTracker(question, names)
            if is_computed_alone(question.query)
            else GroupTracker([question], names)
            if query.columns[1] == "host"
            else BucketTracker(question, names)
        ),
        LatestBuckets: lambda: NewestBucketTracker([question], names),
        Stored: lambda: StoredTracker(question, names),
    }
    tracker = trackers[type(query)]()
    tracker.add(points, points)
    ((_, found),) = tracker.checked(2**63 - 1)
    return not found


A, B, C, D = INTEGERS
RIGHT: list[tuple[Query, list[tuple[Any, ...]]]] = [
    (Raw(M, ("n",), WINDOW), [(10, "a", A), (10, "b", B), (20, "a", C), (20, "b", D)]),
    (Latest(M, ("n",)), [(20, "a", C), (20, "b", D)]),
    (Aggregated.of(M, ("n",), "max", 100, WINDOW), [(0, D)]),
    (Aggregated.of(M, ("n",), "min", 100, WINDOW), [(0, C)]),
    (Aggregated.of(M, ("n",), "max", 100, WINDOW, None, M.tags[:1]), [(0, "a", A), (0, "b", D)]),
    (Aggregated.of(M, ("n",), "min", 100, WINDOW, None, M.tags[:1]), [(0, "a", C), (0, "b", B)]),
    (Aggregated(M, (("max", "n"), ("count", "x")), WINDOW, 100, M.tags[:1]), [(0, "a", A, 2), (0, "b", D, 2)]),
    (Aggregated(M, (("min", "n"), ("last", "n")), WINDOW, 100, M.tags[:1]), [(0, "a", C, C), (0, "b", B, D)]),
    (LatestBuckets(M, ("n",), "max", 100, 100, 5), [(0, D)]),
    (
        Stored(M),
        [(10, "a", A, 0.1, None), (10, "b", B, 0.2, None), (20, "a", C, 0.3, None), (20, "b", D, -0.4, None)],
    ),
]


@pytest.mark.parametrize(("query", "rows"), RIGHT, ids=lambda v: type(v).__name__ if not isinstance(v, list) else "")
def test_an_integer_beyond_floats_is_right_to_the_last_digit_and_wrong_by_one(
    query: Query, rows: list[tuple[Any, ...]]
) -> None:
    points = slab(INTEGERS, FLOATS)
    assert verdict(query, rows, points)
    at = next(i for i, column in enumerate(query.columns) if column in {"n", "max_n", "min_n"})
    for place, row in enumerate(rows):
        rounded = {float(row[at])} - {row[at]}
        for other in (row[at] + 1, row[at] - 1, *rounded):
            assert not verdict(query, [*rows[:place], (*row[:at], other, *row[at + 1 :]), *rows[place + 1 :]], points)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(-1, 1))
def test_columns_keep_all_digits_of_integers_also_in_a_file(integers: list[int], more: int) -> None:
    times = np.arange(len(integers))
    gold = Packed.of(times, np.zeros(len(times), np.int64), [np.array(integers, np.int64)])
    assert [row[1] for row in gold.rows(None)] == integers
    answered = [integers[0] + more, *integers[1:]]
    found = pack([(i, float(n) if float(n) == n else n) for i, n in enumerate(answered)], None, 1)
    file = SpoolFile()
    kept = file.keep(found)
    assert gold.agrees(kept()) == gold.agrees(found) == (more == 0)
    file.close()


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
@pytest.mark.parametrize("floats", [FLOATS, (1e8, 1e-8, -1e8, 3.0), (1.0, 2.0, 3.0, 4.0)], ids=str)
def test_sums_and_means_have_the_bound_of_their_rounding_and_no_more(
    aggregate: Aggregate, floats: tuple[float, ...]
) -> None:
    points, largest = slab((1, 2, 3, 4), floats), max(map(abs, floats))
    n = len(floats)
    exact = math.fsum(floats) / (n if aggregate == "mean" else 1)
    bound = ROUNDING * largest * (n if aggregate == "mean" else n * n)
    for query in (
        Aggregated.of(M, ("x",), aggregate, 100, WINDOW),
        LatestBuckets(M, ("x",), aggregate, 100, 100, 5),
    ):
        for value, is_right in ((exact, True), (exact + 3 * bound, False), (exact - 3 * bound, False)):
            assert verdict(query, [(0, value)], points) is is_right
        forwards, backwards = sum(floats), sum(reversed(floats))
        if aggregate == "sum":
            assert verdict(query, [(0, forwards)], points)
            assert verdict(query, [(0, backwards)], points)


def test_a_whole_float_that_came_as_the_digits_of_an_integer_is_that_float() -> None:
    """InfluxDB 1 writes floats below 1e21 so: the shortest digits, then zeros, which are not the float's own digits."""
    value = -math.pi * 1e17
    points = slab((1, 2, 3, 4), (value, 0.2, 0.3, 0.4))
    for digits, is_right in ((-314159265358979300, True), (-314159265358979400, False)):
        assert verdict(Raw(M, ("x",), WINDOW, ("a",)), [(10, "a", digits), (20, "a", 0.3)], points) is is_right


def test_an_answer_that_is_converted_in_pieces_is_the_same_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Raw(M, ("n", "x"), WINDOW)
    rows: list[tuple[Any, ...]] = [(10 * (i % 4), "ab"[i % 2], A if i % 5 == 0 else i, float(i % 3)) for i in range(23)]
    odd: list[list[tuple[Any, ...]]] = [[], [(None, "a", 1, 1.0)], [(10, "c", 1, 1.0), (10, "a", "x", None)]]
    for more in odd:
        whole = packed_answer(query, Rows(query.columns, rows + more), NAMES)
        monkeypatch.setattr(questions, "_PIECE_ROWS", 5)
        pieces = packed_answer(query, Rows(query.columns, rows + more), NAMES)
        monkeypatch.undo()
        assert isinstance(whole, Packed)
        assert isinstance(pieces, Packed)
        assert sorted(pieces.rows(KEYS)) == sorted(whole.rows(KEYS))
        assert np.all(np.diff(pieces.time_ns) >= 0)
        assert {*pieces.odd} == {*whole.odd} == {*more}
    for wrong in (Rows(("time",), []), Rows(query.columns, [*rows, (object(), "a", 1, 1.0)])):
        assert isinstance(packed_answer(query, wrong, NAMES), Difference)
    assert packed_answer(query, Rows(query.columns, []), NAMES) is not None
