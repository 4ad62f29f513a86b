"""Aggregates per bucket of time, added up from slabs of points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tsbench.check.packed import Packed
from tsbench.check.points import NEVER_NS
from tsbench.check.questions import compare_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.points import Slab
    from tsbench.check.questions import Found, Names, Question
    from tsbench.model import Bucketed, Grouped, LatestBuckets, Query

Floats: TypeAlias = "NDArray[np.float64]"
Checked: TypeAlias = "tuple[Question[Query], Found]"

REDUCE: dict[str, np.ufunc] = {
    "max": np.maximum, "min": np.minimum, "sum": np.add, "mean": np.add, "count": np.add
}  # fmt: skip
NOTHING = {"max": -np.inf, "min": np.inf, "sum": 0.0, "mean": 0.0, "count": 0.0}
"""The aggregate of no values."""


class Tracker(Protocol):
    """Collects the gold answers to some questions from one slab after the other."""

    @property
    def begin_ns(self) -> int:
        """Time of the first points that it needs."""

    @property
    def end_ns(self) -> int:
        """Time after the last points that it needs."""

    def add(self, slab: Slab, known: Slab) -> None:
        """Take in a slab; `known` are its points that are stored for certain."""
        ...

    def checked(self, until_ns: int) -> Iterator[Checked]:
        """Yield the questions that no point from `until_ns` on concerns, each with the difference that was found."""
        ...


def column(slab: Slab, name: str) -> Floats:
    """Return a field as floats."""
    return slab.fields[name].astype(np.float64, copy=False)


def rows_of(slab: Slab, scale: int, low: int, high: int, chosen: NDArray[np.bool_] | None) -> slice | NDArray[Any]:
    """Return the rows from `low` to `high` of the chosen series (a mask of shape (scale,); None: all)."""
    if chosen is None:
        return slice(low, high)
    if slab.whole:
        columns = np.flatnonzero(chosen[slab.series[:scale]])
        return (np.arange(low, high, scale)[:, None] + columns).ravel()
    return low + np.flatnonzero(chosen[slab.series[low:high]])


def chosen_series(query: Query, names: Names, scale: int) -> NDArray[np.bool_] | None:
    """Return a mask of the series that a query chooses; None: all."""
    keys = getattr(query, "keys", None)
    if keys is None or names.series_of is None:
        return None
    mask = np.zeros(scale, dtype=np.bool_)
    mask[[names.series_of[key] for key in keys if key in names.series_of]] = True
    return mask


def _result(aggregate: str, values: Floats, counts: Floats) -> Floats:
    """Return the aggregates of shape (buckets, fields), from what was added up and the number of points in each."""
    if aggregate == "count":
        return np.repeat(counts[:, None], values.shape[1], axis=1)
    return values / counts[:, None] if aggregate == "mean" else values


class BucketTracker:
    """Aggregates of one `Bucketed` query, over all its series together."""

    def __init__(self, question: Question[Bucketed], names: Names, all_names: Names, scale: int) -> None:
        query = question.query
        self._question, self._query, self._names, self._scale = question, query, names, scale
        self.begin_ns, self.end_ns = query.window.start_ns, query.window.end_ns
        self._chosen = chosen_series(query, all_names, scale)
        self._first = query.window.start_ns // query.bucket_ns
        buckets = (query.window.end_ns - 1) // query.bucket_ns - self._first + 1
        self._values = np.full((len(query.fields), buckets), NOTHING[query.aggregate])
        self._counts = np.zeros(buckets)

    def add(self, slab: Slab, known: Slab) -> None:  # noqa: ARG002 - unknown writes are after the load
        query = self._query
        low, high = known.rows_until(query.window.start_ns), known.rows_until(query.window.end_ns)
        if low == high:
            return
        rows = rows_of(known, self._scale, low, high, self._chosen)
        buckets = known.time_ns[rows] // query.bucket_ns - self._first
        if not len(buckets):
            return
        starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])
        where = buckets[starts]
        self._counts[where] += np.diff(starts, append=len(buckets))
        if query.aggregate == "count":
            return
        reduce = REDUCE[query.aggregate]
        for name, values in zip(query.fields, self._values, strict=True):
            values[where] = reduce(values[where], reduce.reduceat(column(known, name)[rows], starts))

    def checked(self, until_ns: int) -> Iterator[Checked]:
        query = self._query
        if query.window.end_ns > until_ns:
            return
        some = np.flatnonzero(self._counts)
        counts = self._counts[some]
        values = _result(query.aggregate, self._values[:, some].T, counts)
        expected = Packed((some + self._first) * query.bucket_ns, np.zeros(len(some), dtype=np.int64), values)
        yield self._question, compare_answer(self._question, expected, self._names)


@dataclass(slots=True, eq=False)
class _Segment:
    """Aggregates of the points of every series in a range of time: a number of points, and per aggregate the fields.

    `counts` is of shape (series,), each of `values` of shape (fields, series).
    """

    counts: Floats
    values: dict[str, Floats]


class GroupTracker:
    """Aggregates per series for `Grouped` queries with the same measurement and buckets.

    Time is cut where a bucket or a window begins or ends. What lies between two cuts is added up once for all queries,
    which put the segments of their windows together.
    """

    def __init__(self, questions: Sequence[Question[Grouped]], names: Names, all_names: Names, scale: int) -> None:
        self._names, self._all_names, self._scale = names, all_names, scale
        self._open = sorted(questions, key=lambda question: question.query.window.end_ns, reverse=True)
        queries = [question.query for question in questions]
        self._bucket_ns = queries[0].bucket_ns
        self._fields = [
            name for name in queries[0].measurement.field_names if any(name in query.fields for query in queries)
        ]
        self._aggregates = sorted({query.aggregate for query in queries} - {"count"})
        self._starts = np.sort([query.window.start_ns for query in queries])
        self._ends = np.sort([query.window.end_ns for query in queries])
        self.begin_ns, self.end_ns = int(self._starts[0]), int(self._ends[-1])
        self._edges = np.unique(np.concatenate([self._starts, self._ends]))
        self._segments: dict[int, _Segment] = {}

    def add(self, slab: Slab, known: Slab) -> None:  # noqa: ARG002 - unknown writes are after the load
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
            shape = len(self._fields), self._scale
            empty: dict[str, Floats] = {name: np.full(shape, NOTHING[name]) for name in self._aggregates}
            segment = self._segments[start_ns] = _Segment(np.zeros(self._scale), empty)
        series = slab.series[low : low + self._scale] if slab.whole else slab.series[low:high]
        if slab.whole:
            segment.counts += (high - low) // self._scale
        else:
            segment.counts += np.bincount(series, minlength=self._scale)
        for aggregate, of_fields in segment.values.items():
            reduce = REDUCE[aggregate]
            for name, values in zip(self._fields, of_fields, strict=True):
                found = column(slab, name)[low:high]
                if slab.whole:
                    values[series] = reduce(values[series], reduce.reduce(found.reshape(-1, self._scale), axis=0))
                elif reduce is np.add:
                    np.add(values, np.bincount(series, weights=found, minlength=self._scale), out=values)
                else:
                    reduce.at(values, series, found)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        ended = False
        while self._open and self._open[-1].query.window.end_ns <= until_ns:
            question = self._open.pop()
            ended = True
            yield question, compare_answer(question, self._answer(question), self._names)
        if ended:
            first_ns = min((question.query.window.start_ns for question in self._open), default=until_ns)
            self._segments = {at: segment for at, segment in self._segments.items() if at >= first_ns}

    def _answer(self, question: Question[Grouped]) -> Packed:
        query = question.query
        parts: dict[int, list[_Segment]] = {}
        for start_ns, segment in self._segments.items():
            if query.window.start_ns <= start_ns < query.window.end_ns:
                parts.setdefault(start_ns // self._bucket_ns * self._bucket_ns, []).append(segment)
        which = [self._fields.index(name) for name in query.fields]
        chosen = chosen_series(query, self._all_names, self._scale)
        times, series, values = [], [], []
        for bucket_ns, segments in parts.items():
            counts = np.sum([segment.counts for segment in segments], axis=0)
            some = np.flatnonzero(counts if chosen is None else counts * chosen)
            added = np.zeros((len(which), self._scale))
            if query.aggregate != "count":
                added = REDUCE[query.aggregate].reduce([segment.values[query.aggregate][which] for segment in segments])
            times.append(np.full(len(some), bucket_ns))
            series.append(some)
            values.append(_result(query.aggregate, added[:, some].T, counts[some]))
        if not times:
            return Packed.empty(len(which))
        return Packed(np.concatenate(times), np.concatenate(series), np.concatenate(values))


class NewestBucketTracker:
    """Aggregates of the newest buckets before several moments, for `LatestBuckets` queries alike but for the moment."""

    def __init__(self, questions: Sequence[Question[LatestBuckets]], names: Names) -> None:
        self._names = names
        self._open = sorted(questions, key=lambda question: question.query.before_ns, reverse=True)
        self._query = self._open[0].query
        self.begin_ns, self.end_ns = NEVER_NS, self._query.before_ns
        self._newest: list[tuple[int, float, Floats]] = []
        """Start, number of points and aggregates of the newest buckets, the oldest first."""
        self._done: list[Checked] = []

    def add(self, slab: Slab, known: Slab) -> None:  # noqa: ARG002 - unknown writes are after the load
        low = 0
        while self._open and len(known) and self._open[-1].query.before_ns <= int(known.time_ns[-1]):
            low = self._take(known, low, known.rows_until(self._open[-1].query.before_ns))
            self._answer()
        if self._open:
            self._take(known, low, len(known))

    def _take(self, slab: Slab, low: int, high: int) -> int:
        query = self._query
        buckets = slab.time_ns[low:high] // query.bucket_ns
        if not len(buckets):
            return high
        starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])[-query.limit :]
        first = low + int(starts[0])
        starts = starts - starts[0]
        counts = np.diff(starts, append=high - first)
        reduce = REDUCE[query.aggregate]
        values = np.stack([reduce.reduceat(column(slab, name)[first:high], starts) for name in query.fields], axis=1)
        for start, count, found in zip(starts.tolist(), counts.tolist(), values, strict=True):
            bucket = int(slab.time_ns[first + start]) // query.bucket_ns
            if self._newest and self._newest[-1][0] == bucket:
                _, before, added = self._newest[-1]
                self._newest[-1] = bucket, before + count, reduce(added, found)
            else:
                self._newest.append((bucket, count, found))
        del self._newest[: -query.limit]
        return high

    def _answer(self) -> None:
        question, query = self._open.pop(), self._query
        fields = len(query.fields)
        newest = self._newest[-query.limit :]
        times = np.array([bucket * query.bucket_ns for bucket, _, _ in newest], dtype=np.int64)
        counts = np.array([count for _, count, _ in newest], dtype=np.float64)
        added = np.array([values for _, _, values in newest]).reshape(-1, fields)
        expected = Packed(times, np.zeros(len(times), dtype=np.int64), _result(query.aggregate, added, counts))
        self._done.append((question, compare_answer(question, expected, self._names)))

    def checked(self, until_ns: int) -> Iterator[Checked]:
        while self._open and self._open[-1].query.before_ns <= until_ns:
            self._answer()
        done, self._done = self._done, []
        yield from done
