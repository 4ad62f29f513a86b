"""Aggregates by any tags, of several kinds, under conditions on fields, or of points that lack some: gold answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.buckets import REDUCE
from tsbench.check.comparison import ROUNDING, Computed, Difference, OneOf, canonical_number, compare_rows, in_order
from tsbench.check.first_rows import first_rows
from tsbench.check.percentiles import Percentiles
from tsbench.check.questions import WindowTracker
from tsbench.model import REDUCTIONS, share_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Names, Question
    from tsbench.model import Aggregate, Aggregated

_ADDED = ("sum", "count")
"""Aggregates that are 0 of no values, which some databases leave out."""


def is_computed_alone(query: Aggregated) -> bool:
    """Return whether a query has a tracker of its own: it is more than an aggregate by time, and by key perhaps."""
    m = query.measurement
    plain = len(query.aggregates) == 1 and query.bucket_ns is not None and query.by in {(), (m.key,)}
    plain = plain and query.aggregates <= {*REDUCTIONS}
    return bool(query.where or query.top or m.nullable or not plain)


class AggregateTracker(WindowTracker):
    """The aggregates of one query by bucket and group of series."""

    def __init__(self, question: Question[Aggregated], names: Names) -> None:
        self._query = query = question.query
        super().__init__(question, names, query.window.start_ns, query.window.end_ns)
        self._chosen = names.chosen(query)
        self._groups, self._group_of = names.groups(query.by)
        self._bucket_ns = query.bucket_ns or query.window.length_ns
        self._origin_ns = query.window.start_ns
        if query.bucket_ns is not None:
            self._origin_ns = self._origin_ns // query.bucket_ns * query.bucket_ns
        self._there = np.zeros(0, dtype=np.bool_)
        self._counts: dict[str, NDArray[np.float64]] = {}
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._largest: dict[str, float] = {}
        self._extremes: dict[tuple[Aggregate, str], NDArray[Any] | None] = {
            value: None for value in query.values if value[0] in {"max", "min"}
        }
        self._ends: dict[tuple[Aggregate, str], dict[int, tuple[int, set[float]]]] = {
            value: {} for value in query.values if value[0] in {"first", "last"}
        }
        """Of cells that have one: the time of the first or last point, and the values of all points then."""
        self._percentiles: dict[tuple[Aggregate, str], Percentiles] = {}

    def _begin(self) -> None:
        """Make the cells of all buckets and groups; before, questions whose windows come later would take memory."""
        query = self._query
        cells = ((query.window.end_ns - 1 - self._origin_ns) // self._bucket_ns + 1) * len(self._groups)
        self._there = np.zeros(cells, dtype=np.bool_)
        self._counts = {name: np.zeros(cells) for name in query.fields}
        self._sums = {name: np.zeros(cells) for how, name in query.values if how in {"sum", "mean"}}
        self._largest = dict.fromkeys(self._sums, 0.0)
        shares = {value: share for value in query.values if (share := share_of(value[0])) is not None}
        if shares:
            claimed = self._claimed(cells, shares)
            self._percentiles = {value: Percentiles(claimed[value], share) for value, share in shares.items()}

    def _claimed(
        self, cells: int, wanted: Iterable[tuple[Aggregate, str]]
    ) -> dict[tuple[Aggregate, str], NDArray[np.float64]]:
        """Return some values of the answer, one for each cell, NaN where it has none."""
        query, answer = self._query, self._question.answer()
        claimed = {value: np.full(cells, np.nan) for value in wanted}
        groups = {group: number for number, group in enumerate(self._groups)}
        first = len(query.columns) - len(query.values)
        places = {value: first + query.values.index(value) for value in claimed}
        rows = [] if isinstance(answer, Difference) else [*answer.rows(self._names.keys), *answer.odd]
        for row in comparable(query, rows):
            group = groups.get(row[first - len(query.by) : first]) if len(row) == len(query.columns) else None
            bucket = 0 if query.bucket_ns is None or group is None else (row[0] - self._origin_ns) // self._bucket_ns
            cell = -1 if group is None else bucket * len(self._groups) + group
            if not 0 <= cell < cells:
                continue
            for value, place in places.items():
                claimed[value][cell] = row[place] if isinstance(row[place], float | int) else np.nan
        return claimed

    def add(self, slab: Slab, known: Slab) -> None:  # unknown writes are after the load
        if not len(self._there):
            self._begin()
        query = self._query
        rows = np.arange(known.rows_until(self.begin_ns), known.rows_until(self.end_ns))
        if self._chosen is not None:
            rows = rows[self._chosen[known.series[rows]]]
        for one in query.where:
            rows = rows[one.holds(known.fields[one.field][rows])]
        cells = (known.time_ns[rows] - self._origin_ns) // self._bucket_ns * len(self._groups)
        cells += self._group_of[known.series[rows]]
        self._there[cells] = True
        for name in query.fields:
            values = known.fields[name][rows]
            has = ~np.isnan(values)
            self._add(name, values[has], cells[has])
            for how, of in self._ends:
                if of == name:
                    self._add_end(how, name, values[has], cells[has], known.time_ns[rows][has])

    def _add_end(
        self, how: Aggregate, name: str, values: NDArray[Any], cells: NDArray[np.int64], times_ns: NDArray[np.int64]
    ) -> None:
        sign = 1 if how == "last" else -1
        order = np.lexsort((-sign * times_ns, cells))  # of each cell the end comes first
        starts = order[np.flatnonzero(np.diff(cells[order], prepend=-1))]
        end_of = np.zeros(len(self._there), dtype=np.int64)
        end_of[cells[starts]] = times_ns[starts]
        there, ends = times_ns == end_of[cells], self._ends[how, name]
        for cell, time_ns, value in zip(
            cells[there].tolist(), times_ns[there].tolist(), values[there].tolist(), strict=True
        ):
            before_ns, others = ends.get(cell, (time_ns, set()))
            if sign * (time_ns - before_ns) >= 0:
                ends[cell] = time_ns, {value, *(others if time_ns == before_ns else ())}

    def _add(self, name: str, values: NDArray[Any], cells: NDArray[np.int64]) -> None:
        if not len(values):
            return
        size = len(self._there)
        for (_, of), percentiles in self._percentiles.items():
            if of == name:
                percentiles.add(values, cells)
        self._counts[name] += np.bincount(cells, minlength=size)
        if name in self._sums:
            floats = values.astype(np.float64, copy=False)
            self._sums[name] += np.bincount(cells, weights=floats, minlength=size)
            self._largest[name] = max(self._largest[name], float(np.abs(floats).max()))
        wanted = [value for value in self._extremes if value[1] == name]
        if not wanted:
            return
        order = np.lexsort((values, cells))
        cells, values = cells[order], values[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(cells)) + 1])
        ends = np.append(starts[1:], len(cells)) - 1
        for value in wanted:
            is_max = value[0] == "max"
            before = self._extremes[value]
            if before is None:
                worst: Any = (np.iinfo if values.dtype.kind == "i" else np.finfo)(values.dtype)
                before = np.full(size, worst.min if is_max else worst.max, dtype=values.dtype)
                self._extremes[value] = before
            at = ends if is_max else starts
            reduce = REDUCE[value[0]]
            before[cells[at]] = reduce(before[cells[at]], values[at])

    def _difference_found(self) -> Difference | None:
        answer = self._question.answer()
        if isinstance(answer, Difference):
            return answer
        query, part = self._question.query, self._question.part
        actual = comparable(query, [*answer.rows(self._names.keys), *answer.odd])
        expected = comparable(query, self._expected())
        if query.top is not None:
            expected = first_rows(query, query.top, expected, actual, part)
        if part is not None:  # of how many rows have values the answer's own number says nothing
            part = replace(part, count=len(expected)) if query.measurement.nullable else part
            return part.compare(query, [expected], actual)
        return compare_rows(expected, actual, query.columns)

    def _expected(self) -> Iterator[Row]:
        """Yield the rows of the gold answer."""
        query = self._query
        for cell in np.flatnonzero(self._there).tolist():
            bucket, group = divmod(cell, len(self._groups))
            time = [] if query.bucket_ns is None else [self._origin_ns + bucket * self._bucket_ns]
            yield (*time, *self._groups[group], *(self._value(*value, cell) for value in query.values))

    def _value(self, how: Aggregate, name: str, cell: int) -> Any:
        count = float(self._counts[name][cell])
        if how == "count":
            return count
        if not count:
            return None
        if (percentiles := self._percentiles.get((how, name))) is not None:
            return percentiles.judged(cell, int(count))
        if how in {"first", "last"}:
            return OneOf.of(self._ends[how, name][cell][1])
        if how in {"max", "min"}:
            column = self._extremes[how, name]
            assert column is not None  # noqa: S101 - there is a value
            return canonical_number(column[cell].item())
        within = ROUNDING * self._largest[name]
        total = float(self._sums[name][cell])
        return Computed.of(total / count, count * within) if how == "mean" else Computed.of(total, count**2 * within)


def comparable(query: Aggregated, rows: Iterable[Row]) -> list[Row]:
    """Return rows in one form of what databases say in several, sorted; rows without any value are left out.

    A tag that a series lacks is "", as it is where it cannot be stored, and what was added up of nothing is 0,
    where points may lack a field.
    """
    first, others = len(query.columns) - len(query.values), []
    added = [first + i for i, (how, _) in enumerate(query.values) if how in _ADDED]
    for row in rows:
        if len(row) != len(query.columns):
            others.append(row)
            continue
        values = [None if value != value else value for value in row]  # noqa: PLR0124 - as `pack` has what is missing
        void = all(value is None or (value == 0 and first + i in added) for i, value in enumerate(values[first:]))
        if void and query.top is None:  # whose fields all points have: a sum of 0 is a place among the first rows
            continue
        for i in added if query.measurement.nullable else ():
            values[i] = 0.0 if values[i] is None else values[i]
        tags = slice(first - len(query.by), first)
        values[tags] = ["" if value is None else value for value in values[tags]]
        others.append(tuple(values))
    return in_order(others)
