"""Rows of answers looked up among the points, one slab after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.buckets import rows_of
from tsbench.check.comparison import Difference, compare_answers, in_order
from tsbench.check.first_rows import first_rows
from tsbench.check.packed import Packed, join_packed
from tsbench.check.points import EVER_NS, NEVER_NS
from tsbench.check.questions import MomentTracker, WindowTracker
from tsbench.check.stored_rows import compare_canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Names, Question
    from tsbench.check.stored_rows import Located
    from tsbench.model import Field, Latest, Raw, Stored


class RowTracker(WindowTracker):
    """The rows of one `Raw` query.

    Only the part of the answer that lies in a slab's time is compared with the slab, so that nothing is kept but the
    answer itself, from its window's beginning on.
    """

    def __init__(self, question: Question[Raw], names: Names) -> None:
        self._query = query = question.query
        super().__init__(question, names, query.window.start_ns, query.window.end_ns)
        self._chosen = names.chosen(query)
        self._answer: Packed | None = None
        self._compared = 0
        self._expected_rows = self._found_rows = 0
        self._difference: Difference | None = None

    def add(self, slab: Slab, known: Slab) -> None:
        answer = self._answer
        if answer is None:
            answer = self._answer = self._read()
        expected = rows_within(self._query, known, self._names, self._chosen).sorted()
        last = int(np.searchsorted(answer.time_ns, slab.end_ns))
        part = answer.take(slice(self._compared, last))
        part.odd = [row for row in answer.odd if _is_before(row, slab.end_ns)]
        answer.odd = [row for row in answer.odd if not _is_before(row, slab.end_ns)]
        self._compared = last
        self._compare(expected, part)

    def _read(self) -> Packed:
        answer = self._question.answer()
        if isinstance(answer, Difference):
            self._difference = answer
            return Packed.empty(len(self._query.fields))
        return answer

    def _compare(self, expected: Packed, actual: Packed) -> None:
        row_count = len(actual) + len(actual.odd)
        self._expected_rows += len(expected)
        self._found_rows += row_count
        part = self._question.part
        if self._difference is not None or (part is None and expected.agrees(actual)):
            return
        keys = self._names.keys
        want, got = expected.rows(keys), in_order([*actual.rows(keys), *actual.odd])
        if part is not None:
            want = part.chosen(self._query, want)
        self._difference = compare_answers(self._query, want, got)

    def _difference_found(self) -> Difference | None:
        answer = self._read() if self._answer is None else self._answer
        rest = answer.take(slice(self._compared, None))
        rest.odd = answer.odd
        self._compare(answer.take(slice(0, 0)), rest)
        if self._question.part is not None:
            self._found_rows = self._question.part.count
        difference, more = self._difference, self._found_rows - self._expected_rows
        if difference is None and more:  # of an answer of which only a part was kept
            difference = Difference("; one of those not kept", "unexpected row" if more > 0 else "missing row")
        if difference is not None and difference.kind in {"missing row", "unexpected row"} and more:
            example = difference.text.partition("; ")[2]
            text = f"{self._found_rows} rows instead of {self._expected_rows}; {example}"
            difference = Difference(text, difference.kind)
        return difference


class FirstRowTracker(WindowTracker):
    """The newest rows of the window of one `Raw` query, or the oldest: of those at the last one's time any will do."""

    def __init__(self, question: Question[Raw], names: Names) -> None:
        self._query = query = question.query
        assert query.top is not None  # noqa: S101 - which is why it is this tracker's
        self._top = query.top
        super().__init__(question, names, query.window.start_ns, query.window.end_ns)
        self._chosen = names.chosen(query)
        self._rows = Packed.empty(len(query.fields))

    def add(self, slab: Slab, known: Slab) -> None:
        self._rows = self._first(join_packed([self._rows, rows_within(self._query, known, self._names, self._chosen)]))

    def _first(self, rows: Packed) -> Packed:
        """Return the first rows, and those at the time of the last one."""
        top = self._top
        if len(rows) <= top.limit:
            return rows
        order = np.sort(rows.time_ns)
        if top.lowest:
            return rows.take(rows.time_ns <= order[top.limit - 1])
        return rows.take(rows.time_ns >= order[-top.limit])

    def _difference_found(self) -> Difference | None:
        query, part, keys, answer = self._query, self._question.part, self._names.keys, self._question.answer()
        if isinstance(answer, Difference):
            return answer
        actual = in_order([*answer.rows(keys), *answer.odd])
        expected = first_rows(query, self._top, self._rows.rows(keys), actual, part)
        if part is not None:
            return part.compare(query, [expected], actual)
        return compare_answers(query, expected, actual)


class StoredTracker(WindowTracker):
    """The points that are stored in the time of one `Stored` query, with all their tags: as many as that has rows."""

    def __init__(self, question: Question[Stored], names: Names) -> None:
        self._query = query = question.query
        begin_ns = -EVER_NS if query.start_ns is None else query.start_ns
        super().__init__(question, names, begin_ns, EVER_NS if query.end_ns is None else query.end_ns)
        self._known: list[Packed] = []
        self._maybe: list[Packed] = []

    def add(self, slab: Slab, known: Slab) -> None:
        for pieces, part in ((self._known, known), (self._maybe, slab.maybe())):
            if part is not None:
                rows = np.arange(part.rows_until(self.begin_ns), part.rows_until(self.end_ns))
                pieces.append(packed_rows(part, rows, part.measurement.field_names, keyed=True))

    def _difference_found(self) -> list[Located]:
        answer = self._question.answer()
        assert isinstance(answer, Packed)  # noqa: S101 - of any rows there are columns
        empty = Packed.empty(len(self._query.measurement.fields))
        known, maybe = (join_packed([empty, *pieces]).sorted() for pieces in (self._known, self._maybe))
        if not len(maybe) and known.agrees(answer):
            return []
        must, may, stored = (self._rows(packed) for packed in (known, maybe, answer))
        return compare_canonical(self._query, must, may, in_order([*stored, *answer.odd]))

    def _rows(self, packed: Packed) -> list[Row]:
        """Return rows in canonical form: time, tags, fields, and nothing else."""
        return in_order(
            [
                (time_ns, *tags, *(None if value != value else value for value in values), None)  # noqa: PLR0124
                for time_ns, tags, *values in packed.rows(self._names.keys)
            ]
        )


class NewestTracker(MomentTracker):
    """The newest row of every series, for `Latest` queries of one measurement that have only one right answer."""

    def __init__(self, questions: Sequence[Question[Latest]], names: Names) -> None:
        super().__init__(questions, names)
        self._newest = Newest(questions[0].query.measurement.fields, names.scale)

    def _take(self, slab: Slab, low: int, high: int) -> None:
        self._newest.add(slab, low, high)

    def _expected(self, query: Latest) -> Packed:
        return self._newest.rows(query.fields, self._names.chosen(query))


class Newest:
    """The newest point of every series so far: its time and its fields."""

    def __init__(self, fields: Sequence[Field], scale: int) -> None:
        self._scale = scale
        self.time_ns = np.full(scale, NEVER_NS, dtype=np.int64)
        self._values = {field.name: np.zeros(scale, np.float64 if field.has_floats else np.int64) for field in fields}

    def add(self, slab: Slab, low: int, high: int) -> None:
        """Take in rows of a slab, which are newer than those before."""
        if low == high:
            return
        if slab.whole:
            low = high - self._scale
        series = slab.series[low:high]
        self.time_ns[series] = slab.time_ns[low:high]  # of several rows of a series, the last one counts
        for name, values in self._values.items():
            values[series] = slab.fields[name][low:high]

    def rows(self, fields: Sequence[str], chosen: NDArray[np.bool_] | None) -> Packed:
        """Return the newest rows of the chosen series (None: all) that have one."""
        there = self.time_ns > NEVER_NS
        some = np.flatnonzero(there if chosen is None else there & chosen)
        return Packed.of(self.time_ns[some], some, [self._values[name][some] for name in fields])


def rows_within(query: Raw, slab: Slab, names: Names, chosen: NDArray[np.bool_] | None) -> Packed:
    """Return a slab's rows that a query asks for, of the chosen series (None: all)."""
    low, high = slab.rows_until(query.window.start_ns), slab.rows_until(query.window.end_ns)
    rows = np.arange(len(slab))[rows_of(slab, names.scale, low, high, chosen)]
    for condition in query.where:
        rows = rows[condition.holds(slab.fields[condition.field][rows])]
    if query.may_be_void:
        rows = rows[~np.logical_and.reduce([np.isnan(slab.fields[name][rows]) for name in query.fields])]
    return packed_rows(slab, rows, query.fields, keyed=names.keyed)


def packed_rows(slab: Slab, rows: NDArray[np.intp], fields: Sequence[str], *, keyed: bool) -> Packed:
    """Return rows of a slab as those of an answer."""
    series = slab.series[rows].astype(np.int64) if keyed else np.zeros(len(rows), dtype=np.int64)
    return Packed.of(slab.time_ns[rows], series, [slab.fields[name][rows] for name in fields])


def _is_before(row: Row, time_ns: int) -> bool:
    return bool(row) and type(row[0]) is int and row[0] < time_ns
