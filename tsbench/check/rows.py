"""Rows of answers looked up among the points, one slab after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.buckets import chosen_series, rows_of
from tsbench.check.comparison import Difference, compare_rows, in_order
from tsbench.check.packed import Packed, numbers
from tsbench.check.points import EVER_NS, NEVER_NS
from tsbench.check.questions import compare_answer
from tsbench.check.stored_rows import compare_canonical
from tsbench.model import Above, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.buckets import Checked
    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Names, Question
    from tsbench.model import Field, Latest, Raw, Stored


class RowTracker:
    """The rows of one `Raw` or `Above` query.

    Only the part of the answer that lies in a slab's time is compared with the slab, so that nothing is kept but the
    answer itself, from its window's beginning on.
    """

    def __init__(self, question: Question[Raw | Above], names: Names, all_names: Names, scale: int) -> None:
        query = question.query
        self._question, self._query, self._names, self._scale = question, query, names, scale
        self.begin_ns, self.end_ns = query.window.start_ns, query.window.end_ns
        self._chosen = chosen_series(query, all_names, scale)
        self._answer: Packed | None = None
        self._compared = 0
        self._expected_rows = self._found_rows = 0
        self._difference: Difference | None = None

    def add(self, slab: Slab, known: Slab) -> None:
        answer = self._answer
        if answer is None:
            answer = self._answer = self._read()
        expected = self._within(known)
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

    def _within(self, slab: Slab) -> Packed:
        """Return the slab's rows that the query asks for."""
        query = self._query
        low, high = slab.rows_until(query.window.start_ns), slab.rows_until(query.window.end_ns)
        rows = np.arange(len(slab))[rows_of(slab, self._scale, low, high, self._chosen)]
        if isinstance(query, Above):
            rows = rows[slab.fields[query.field][rows] > query.threshold]
        return packed_rows(slab, rows, query.fields, keyed=self._names.keys is not None).sorted()

    def _compare(self, expected: Packed, actual: Packed) -> None:
        found = len(actual) + len(actual.odd)
        self._expected_rows += len(expected)
        self._found_rows += found
        part = self._question.part
        if self._difference is not None or (part is None and expected.agrees(actual)):
            return
        keys = self._names.keys
        want, got = expected.rows(keys), in_order([*actual.rows(keys), *actual.odd])
        if part is not None:
            want = part.chosen(self._query, want)
        self._difference = compare_rows(want, got, self._query.columns)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if self._query.window.end_ns > until_ns:
            return
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
        yield self._question, difference


class StoredTracker:
    """The points that are stored in the time of one `Stored` query, with all their tags: as many as that has rows."""

    def __init__(self, question: Question[Stored]) -> None:
        query = question.query
        self._question, self._query = question, query
        self.begin_ns = -EVER_NS if query.start_ns is None else query.start_ns
        self.end_ns = EVER_NS if query.end_ns is None else query.end_ns
        self._known: list[Row] = []
        self._maybe: list[Row] = []

    def add(self, slab: Slab, known: Slab) -> None:
        for rows, part in ((self._known, known), (self._maybe, slab.maybe())):
            if part is not None:
                rows.extend(self._rows(part))

    def _rows(self, slab: Slab) -> Iterator[Row]:
        some = slice(slab.rows_until(self.begin_ns), slab.rows_until(self.end_ns))
        measurement, series = slab.measurement, slab.series[some].tolist()
        columns = [slab.time_ns[some].tolist()]
        for tag in (*measurement.tags, *measurement.own_tags):
            texts = slab.tags[tag].tolist()
            columns.append([texts[one] for one in series])
        columns += [numbers(slab.fields[name][some]) for name in measurement.field_names]
        return zip(*columns, [None] * len(series), strict=True)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if self.end_ns > until_ns:
            return
        found = in_order(list(self._question.rows().records))
        yield self._question, compare_canonical(self._query, in_order(self._known), in_order(self._maybe), found)


class NewestTracker:
    """The newest row of every series, for `Latest` queries of one measurement that have only one right answer."""

    def __init__(self, questions: Sequence[Question[Latest]], names: Names, all_names: Names, scale: int) -> None:
        self._names, self._all_names, self._scale = names, all_names, scale
        self._open = sorted(questions, key=_before_ns, reverse=True)
        self.begin_ns, self.end_ns = NEVER_NS, _before_ns(self._open[0])
        self._newest = Newest(self._open[0].query.measurement.fields, scale)
        self._done: list[Checked] = []

    def add(self, slab: Slab, known: Slab) -> None:  # noqa: ARG002 - these answers have no rows of unknown writes
        low = 0
        while self._open and len(known) and _before_ns(self._open[-1]) <= int(known.time_ns[-1]):
            high = known.rows_until(_before_ns(self._open[-1]))
            self._newest.add(known, low, high)
            low = high
            self._answer()
        if self._open:
            self._newest.add(known, low, len(known))

    def _answer(self) -> None:
        question = self._open.pop()
        query = question.query
        expected = self._newest.rows(query.fields, chosen_series(query, self._all_names, self._scale))
        self._done.append((question, compare_answer(question, expected, self._names)))

    def checked(self, until_ns: int) -> Iterator[Checked]:
        while self._open and _before_ns(self._open[-1]) <= until_ns:
            self._answer()
        done, self._done = self._done, []
        yield from done


def _before_ns(question: Question[Latest]) -> int:
    return EVER_NS if question.query.before_ns is None else question.query.before_ns


class Newest:
    """The newest point of every series so far: its time and its fields."""

    def __init__(self, fields: Sequence[Field], scale: int) -> None:
        self._scale = scale
        self.time_ns = np.full(scale, NEVER_NS, dtype=np.int64)
        self._values = {
            field.name: np.zeros(scale, np.int64 if field.kind is Kind.INT else np.float64) for field in fields
        }

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


def packed_rows(slab: Slab, rows: NDArray[np.intp], fields: Sequence[str], *, keyed: bool) -> Packed:
    """Return rows of a slab as those of an answer."""
    series = slab.series[rows].astype(np.int64) if keyed else np.zeros(len(rows), dtype=np.int64)
    return Packed.of(slab.time_ns[rows], series, [slab.fields[name][rows] for name in fields])


def _is_before(row: Row, time_ns: int) -> bool:
    return bool(row) and type(row[0]) is int and row[0] < time_ns
