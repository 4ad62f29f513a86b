"""Aggregates per bucket of time, added up from slabs of points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.check.comparison import ROUNDING
from tsbench.check.packed import Packed
from tsbench.check.questions import MomentTracker, Tracker, WindowTracker, compare_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Difference
    from tsbench.check.points import Slab
    from tsbench.check.questions import Checked, Names, Question
    from tsbench.model import Aggregate, Aggregated, LatestBuckets, Measurement

FloatColumn: TypeAlias = "NDArray[np.float64]"
REDUCE: dict[str, np.ufunc] = {
    "max": np.maximum, "min": np.minimum, "sum": np.add, "mean": np.add, "count": np.add
}  # fmt: skip
_EXACT = ("max", "min")
"""Aggregates that are values themselves."""


class _Columns:
    """Fields of a measurement as they are aggregated, and the largest magnitude of each that was added up so far."""

    def __init__(self, measurement: Measurement, fields: Sequence[str], aggregates: Iterable[Aggregate]) -> None:
        self.names = tuple(fields)
        self._integers = {field.name for field in measurement.fields if not field.has_floats}
        self._largest = dict.fromkeys(self.names, 0.0) if {*aggregates} & {"sum", "mean"} else {}

    def nothing(self, aggregate: Aggregate, shape: int) -> list[NDArray[Any]]:
        """Return the aggregate of no values for every field, `shape` times."""
        if aggregate not in _EXACT:
            return [np.zeros(shape) for _ in self.names]
        floats, integers = (-np.inf, -(2**63)) if aggregate == "max" else (np.inf, 2**63 - 1)
        return [np.full(shape, integers if name in self._integers else floats) for name in self.names]

    def note(self, slab: Slab, rows: slice | NDArray[Any]) -> None:
        """Take the magnitudes of rows that are added up into account."""
        for name in self._largest:
            values = slab.fields[name][rows]
            if len(values):
                self._largest[name] = max(self._largest[name], float(values.max()), -float(values.min()))

    @staticmethod
    def of(slab: Slab, name: str, aggregate: Aggregate) -> NDArray[Any]:
        """Return a field: as floats where it is added up."""
        values = slab.fields[name]
        return values if aggregate in _EXACT else values.astype(np.float64, copy=False)

    def answer(
        self,
        query: Aggregated | LatestBuckets,
        aggregate: Aggregate,
        time_ns: NDArray[np.int64],
        series: NDArray[np.int64],
        values: Sequence[NDArray[Any]],
        counts: FloatColumn,
    ) -> Packed:
        """Return the rows of an answer, from what was added up of the query's fields and the number of points."""
        if aggregate in _EXACT:
            return Packed.of(time_ns, series, values)
        if aggregate == "count":
            return Packed.of(time_ns, series, [counts] * len(query.fields))
        largest = np.array([self._largest[name] for name in query.fields])
        means = aggregate == "mean"
        packed = Packed.of(time_ns, series, [added / counts for added in values] if means else values)
        packed.within = (counts if means else counts**2)[:, None] * (ROUNDING * largest)
        return packed


def rows_of(slab: Slab, scale: int, low: int, high: int, chosen: NDArray[np.bool_] | None) -> slice | NDArray[Any]:
    """Return the rows from `low` to `high` of the chosen series (a mask of shape (scale,); None: all)."""
    if chosen is None:
        return slice(low, high)
    if slab.whole:
        columns = np.flatnonzero(chosen[slab.series[:scale]])
        return (np.arange(low, high, scale)[:, None] + columns).ravel()
    return low + np.flatnonzero(chosen[slab.series[low:high]])


class BucketTracker(WindowTracker):
    """One aggregate of some fields by bucket, over all series of one query together."""

    def __init__(self, question: Question[Aggregated], names: Names) -> None:
        self._query = query = question.query
        self._bucket_ns, (self._aggregate,) = query.bucket_ns or 1, query.aggregates
        super().__init__(question, names, query.window.start_ns, query.window.end_ns)
        self._chosen = names.chosen(query)
        self._first = query.window.start_ns // self._bucket_ns
        buckets = (query.window.end_ns - 1) // self._bucket_ns - self._first + 1
        self._columns = _Columns(query.measurement, query.fields, [self._aggregate])
        self._values = self._columns.nothing(self._aggregate, buckets)
        self._counts = np.zeros(buckets)

    def add(self, slab: Slab, known: Slab) -> None:  # unknown writes are after the load
        query = self._query
        low, high = known.rows_until(query.window.start_ns), known.rows_until(query.window.end_ns)
        if low == high:
            return
        rows = rows_of(known, self._names.scale, low, high, self._chosen)
        buckets = known.time_ns[rows] // self._bucket_ns - self._first
        if not len(buckets):
            return
        starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])
        where = buckets[starts]
        self._counts[where] += np.diff(starts, append=len(buckets))
        if self._aggregate == "count":
            return
        reduce = REDUCE[self._aggregate]
        self._columns.note(known, rows)
        for name, values in zip(query.fields, self._values, strict=True):
            points = self._columns.of(known, name, self._aggregate)[rows]
            values[where] = reduce(values[where], reduce.reduceat(points, starts))

    def _difference_found(self) -> Difference | None:
        query = self._query
        some = np.flatnonzero(self._counts)
        times, series = (some + self._first) * self._bucket_ns, np.zeros(len(some), dtype=np.int64)
        values = [of_field[some] for of_field in self._values]
        expected = self._columns.answer(query, self._aggregate, times, series, values, self._counts[some])
        return compare_answer(self._question, expected, self._names)


@dataclass(slots=True, eq=False)
class _Segment:
    """Aggregates of the points of every series in a range of time: a number of points, and per aggregate the fields.

    `counts` and every field's array are of shape (series,).
    """

    counts: FloatColumn
    values: dict[Aggregate, list[NDArray[Any]]]


class GroupTracker(Tracker):
    """One aggregate of some fields per bucket and series, for queries with the same measurement and buckets.

    Time is cut where a bucket or a window begins or ends. What lies between two cuts is added up once for all queries,
    which put the segments of their windows together.
    """

    def __init__(self, questions: Sequence[Question[Aggregated]], names: Names) -> None:
        self._names, self._scale = names, names.scale
        self._open = sorted(questions, key=lambda question: question.query.window.end_ns, reverse=True)
        queries = [question.query for question in questions]
        self._bucket_ns = queries[0].bucket_ns or 1
        fields = [name for name in queries[0].measurement.field_names if any(name in query.fields for query in queries)]
        self._aggregates = sorted({*chain.from_iterable(query.aggregates for query in queries)} - {"count"})
        self._columns = _Columns(queries[0].measurement, fields, self._aggregates)
        self._starts = np.sort([query.window.start_ns for query in queries])
        self._ends = np.sort([query.window.end_ns for query in queries])
        self.begin_ns, self.end_ns = int(self._starts[0]), int(self._ends[-1])
        self._edges = np.unique(np.concatenate([self._starts, self._ends]))
        self._segments: dict[int, _Segment] = {}

    def add(self, slab: Slab, known: Slab) -> None:  # unknown writes are after the load
        if not len(known):
            return
        starts = self._cuts(int(known.time_ns[0]), int(known.time_ns[-1]))
        rows = np.append(np.searchsorted(known.time_ns, starts), len(known))
        wanted = np.searchsorted(self._starts, starts, "right") > np.searchsorted(self._ends, starts, "right")
        for start_ns, low, high, is_wanted in zip(
            starts.tolist(), rows[:-1].tolist(), rows[1:].tolist(), wanted.tolist(), strict=True
        ):
            if is_wanted and low < high:
                self._add(start_ns, known, low, high)

    def _cuts(self, first_ns: int, last_ns: int) -> NDArray[np.int64]:
        """Return the beginnings of the segments from the one with `first_ns` to the one with `last_ns`."""
        bucket_ns = self._bucket_ns
        buckets = np.arange(first_ns // bucket_ns, last_ns // bucket_ns + 1) * bucket_ns
        low, high = np.searchsorted(self._edges, [buckets[0], last_ns + 1])
        cuts = np.union1d(buckets, self._edges[low:high])
        return cuts[np.searchsorted(cuts, first_ns, "right") - 1 :]

    def _add(self, start_ns: int, slab: Slab, low: int, high: int) -> None:
        segment = self._segments.get(start_ns)
        if segment is None:
            empty = {name: self._columns.nothing(name, self._scale) for name in self._aggregates}
            segment = self._segments[start_ns] = _Segment(np.zeros(self._scale), empty)
        series = slab.series[low : low + self._scale] if slab.whole else slab.series[low:high]
        if slab.whole:
            segment.counts += (high - low) // self._scale
        else:
            segment.counts += np.bincount(series, minlength=self._scale)
        self._columns.note(slab, slice(low, high))
        for aggregate, of_fields in segment.values.items():
            reduce = REDUCE[aggregate]
            for name, values in zip(self._columns.names, of_fields, strict=True):
                points = self._columns.of(slab, name, aggregate)[low:high]
                if slab.whole:
                    values[series] = reduce(values[series], reduce.reduce(points.reshape(-1, self._scale), axis=0))
                elif reduce is np.add:
                    np.add(values, np.bincount(series, weights=points, minlength=self._scale), out=values)
                else:
                    reduce.at(values, series, points)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        ended = False
        while self._open and self._open[-1].query.window.end_ns <= until_ns:
            question = self._open.pop()
            ended = True
            yield question, compare_answer(question, self._answer(question), self._names)
        if ended:
            first_ns = min((question.query.window.start_ns for question in self._open), default=until_ns)
            self._segments = {at: segment for at, segment in self._segments.items() if at >= first_ns}

    def _answer(self, question: Question[Aggregated]) -> Packed:
        query = question.query
        (aggregate,) = query.aggregates
        parts: dict[int, list[_Segment]] = {}
        for start_ns, segment in self._segments.items():
            if query.window.start_ns <= start_ns < query.window.end_ns:
                parts.setdefault(start_ns // self._bucket_ns * self._bucket_ns, []).append(segment)
        which = [self._columns.names.index(name) for name in query.fields]
        chosen = self._names.chosen(query)
        times, series, sizes = [], [], []
        values: list[list[NDArray[Any]]] = [[] for _ in which]
        for bucket_ns, segments in parts.items():
            counts = np.sum([segment.counts for segment in segments], axis=0)
            some = np.flatnonzero(counts if chosen is None else counts * chosen)
            times.append(np.full(len(some), bucket_ns))
            series.append(some)
            sizes.append(counts[some])
            if aggregate != "count":
                for of_field, place in zip(values, which, strict=True):
                    parts_of = [segment.values[aggregate][place] for segment in segments]
                    of_field.append(REDUCE[aggregate].reduce(parts_of)[some])
        if not times:
            return Packed.empty(len(which))
        together = [np.concatenate(of_field) for of_field in values if of_field]
        return self._columns.answer(
            query, aggregate, np.concatenate(times), np.concatenate(series), together, np.concatenate(sizes)
        )


class NewestBucketTracker(MomentTracker):
    """Aggregates of the newest buckets before several moments, for `LatestBuckets` queries alike but for the moment."""

    def __init__(self, questions: Sequence[Question[LatestBuckets]], names: Names) -> None:
        super().__init__(questions, names)
        self._query = query = questions[0].query
        self._columns = _Columns(query.measurement, query.fields, [query.aggregate])
        self._newest: list[tuple[int, float, list[Any]]] = []
        """Start, number of points and aggregates of the newest buckets, the oldest first."""

    def _take(self, slab: Slab, low: int, high: int) -> None:
        query = self._query
        buckets = slab.time_ns[low:high] // query.bucket_ns
        if not len(buckets):
            return
        starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])[-query.limit :]
        first = low + int(starts[0])
        starts = starts - starts[0]
        counts = np.diff(starts, append=high - first)
        reduce = REDUCE[query.aggregate]
        self._columns.note(slab, slice(first, high))
        values = [
            reduce.reduceat(self._columns.of(slab, name, query.aggregate)[first:high], starts) for name in query.fields
        ]
        for place, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
            aggregates = [of_field[place] for of_field in values]
            bucket = int(slab.time_ns[first + start]) // query.bucket_ns
            if self._newest and self._newest[-1][0] == bucket:
                _, before, added = self._newest[-1]
                self._newest[-1] = bucket, before + count, [*map(reduce, added, aggregates)]
            else:
                self._newest.append((bucket, count, aggregates))
        del self._newest[: -query.limit]

    def _expected(self, query: LatestBuckets) -> Packed:
        newest = self._newest[-query.limit :]
        times = np.array([bucket * query.bucket_ns for bucket, _, _ in newest], dtype=np.int64)
        counts = np.array([count for _, count, _ in newest], dtype=np.float64)
        values = [np.array([added[place] for _, _, added in newest]) for place in range(len(query.fields))]
        return self._columns.answer(query, query.aggregate, times, np.zeros(len(times), dtype=np.int64), values, counts)
