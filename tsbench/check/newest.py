"""Answers with the newest row of every series, given while points may have been written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.comparison import Difference, IncompleteRow
from tsbench.check.packed import Packed, join_packed, pack
from tsbench.check.points import EVER_NS, NEVER_NS
from tsbench.check.questions import Tracker
from tsbench.check.rows import Newest, packed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Checked, Names, Question
    from tsbench.model import Latest

MOMENTS_VALUES = 2**23
"""Series times moments for which the newest acknowledged times are kept (64 MB); of more, moments are left out."""
CLOCK_NS = 10_000_000
"""Time by which clocks of two load processes may differ: their offsets are measured over the network."""

_NOT_YET_SEEN, _NEVER_SENT, _SENT_LATER, _MATCHES = range(4)
"""States of an answer's row while the points that were sent are compared with it."""
WORDS = {
    "row never sent": "a row that was never sent",
    "row sent later": "a row that was sent after the answer",
    "unexpected row": "a row of a series that was not asked for",
}


@dataclass(slots=True, eq=False)
class _Given:
    """An answer, the places of its rows in the tracker's table, and its rows that cannot be in the table."""

    question: Question[Latest]
    difference: Difference | None
    odd: list[Row]
    first: int
    last: int
    chosen: NDArray[np.bool_] | None


class MovingTracker(Tracker):
    """Checks newest rows that depend on the moment, for `Latest` queries of one measurement and the same fields.

    Of each series a row may be no older than the newest one that was acknowledged before the question was sent, and
    must have been sent before the answer ended. Without the times of questions and writes, or where acknowledged writes
    need not be seen at once, the bounds are wider: no older than the bulk load's newest row, and sent at any time.
    Answers after the run (`quiet`) have all acknowledged rows as bounds, and may have those of unknown writes.

    A row that lacks some fields, whose others are right, may be torn: read while it was being written.
    """

    begin_ns, end_ns = NEVER_NS, EVER_NS

    def __init__(
        self, questions: Sequence[Question[Latest]], names: Names, *, loaded_ns: int, shows_at_once: bool = True
    ) -> None:
        self._shows_at_once = shows_at_once
        scale = names.scale
        self._names, self._scale, self._loaded_ns = names, scale, loaded_ns
        self._fields = questions[0].query.fields
        self._nullable = questions[0].query.measurement.nullable
        self._given: list[_Given] = []
        tables, lacks = [], []
        reached = 0
        for question in questions:
            one, packed, its_lacks = self._read(question, reached, names.chosen(question.query))
            self._given.append(one)
            tables.append(packed)
            lacks.append(its_lacks)
            reached = one.last
        self._table = join_packed(tables)
        self._lacks = np.concatenate(lacks)
        self._ended_ns = np.repeat(
            [one.question.ended_ns + CLOCK_NS if one.question.ended_ns else EVER_NS for one in self._given],
            [len(table) for table in tables],
        )
        self._order = np.argsort(self._table.time_ns, kind="stable")
        self._sorted_ns = self._table.time_ns[self._order]
        self._right: dict[int, tuple[float | None, ...]] = {}
        """Of rows of the table that lack fields, by their place, the whole row that was sent."""
        self._found = np.full(len(self._table), _NOT_YET_SEEN, dtype=np.int8)
        self._compared = 0
        self._loaded, self._all = Newest([], scale), Newest([], scale)
        sent_ns = np.unique([one.question.sent_ns for one in self._given if one.question.sent_ns])
        step = -(-len(sent_ns) * scale // MOMENTS_VALUES) or 1
        self._moments = sent_ns[::step].astype(np.int64)
        self._acknowledged = np.full((len(self._moments) + 1, scale), NEVER_NS, dtype=np.int64)

    def _read(
        self, question: Question[Latest], first: int, chosen: NDArray[np.bool_] | None
    ) -> tuple[_Given, Packed, NDArray[np.bool_]]:
        """Return an answer, its rows for the table, and a mask of the values that they lack."""
        answer = question.answer()
        difference = answer if isinstance(answer, Difference) else None
        packed = Packed.empty(len(self._fields)) if isinstance(answer, Difference) else answer
        start = 2 if self._names.keyed else 1
        incomplete = [row for row in packed.odd if self._is_incomplete(row[start:])]
        odd = [row for row in packed.odd if not self._is_incomplete(row[start:])]
        filled = [
            (*row[:start], *(math.nan if value is None else value for value in row[start:])) for row in incomplete
        ]
        more = pack(filled, self._names.keys, len(self._fields))
        lacks = np.concatenate([np.zeros(packed.values.shape, dtype=np.bool_), np.isnan(more.values)])
        both = join_packed([packed, more])
        return _Given(question, difference, [*odd, *more.odd], first, first + len(both), chosen), both, lacks

    def _is_incomplete(self, values: Row) -> bool:
        return len(values) == len(self._fields) and 0 < values.count(None) < len(values)

    def _in_part(self, one: _Given) -> NDArray[np.bool_] | None:
        """Return a mask of the series whose rows were kept; None: all that the query chooses."""
        part = one.question.part
        if part is None:
            return one.chosen
        keys = [""] if self._names.keys is None else self._names.keys
        kept = {record[1] for record in part.chosen(one.question.query, [(0, key) for key in keys])}
        mask = np.array([key in kept for key in keys])
        return mask if one.chosen is None else mask & one.chosen

    def add(self, slab: Slab, known: Slab) -> None:
        before = known.rows_until(self._loaded_ns)
        self._loaded.add(known, 0, before)
        self._all.add(known, 0, len(known))
        self._note_acknowledged(slab)
        last = int(np.searchsorted(self._sorted_ns, slab.end_ns))
        some = self._order[self._compared : last]
        self._compared = last
        if len(some):
            self._look_up(some, slab)

    def _note_acknowledged(self, slab: Slab) -> None:
        if slab.ended_ns is None or slab.unsure is None or not len(self._moments):
            return
        rows = np.flatnonzero(~slab.unsure & (slab.ended_ns > 0))
        first = np.searchsorted(self._moments, slab.ended_ns[rows] + CLOCK_NS, side="right")
        np.maximum.at(self._acknowledged, (first, slab.series[rows]), slab.time_ns[rows])

    def _look_up(self, some: NDArray[np.intp], slab: Slab) -> None:
        """Mark some rows of the table as found or not found in a slab."""
        wanted = self._table.take(some)
        # Only the ticks that are asked for: most slabs lie before the measured load.
        low, high = slab.rows_until(int(wanted.time_ns[0])), slab.rows_until(int(wanted.time_ns[-1]) + 1)
        rows = np.arange(low, high)
        sent_ns = np.zeros(len(rows), dtype=np.int64) if slab.sent_ns is None else slab.sent_ns[low:high]
        rows = rows[np.lexsort((sent_ns, slab.series[low:high], slab.time_ns[low:high]))]
        if not len(rows):
            self._found[some] = _NEVER_SENT
            return
        stored = packed_rows(slab, rows, self._fields, keyed=self._names.keyed)
        base = stored.time_ns[0]
        places = (stored.time_ns - base) * self._scale + stored.series
        at = np.searchsorted(places, (wanted.time_ns - base) * self._scale + wanted.series)
        at = np.minimum(at, len(places) - 1)
        there = (stored.time_ns[at] == wanted.time_ns) & (stored.series[at] == wanted.series)
        if self._nullable:
            self._lacks[some] |= there[:, None] & np.isnan(wanted.values) & ~np.isnan(stored.take(at).values)
        lacks = self._lacks[some]
        right = there & (stored.take(at).equal(wanted) | lacks).all(axis=1)
        for i in np.flatnonzero(right & lacks.any(axis=1)).tolist():
            (row,) = stored.take(at[i : i + 1]).rows(None)
            self._right[int(some[i])] = tuple(None if value != value else value for value in row[1:])  # noqa: PLR0124
        sent = np.zeros(len(some), dtype=np.int64) if slab.sent_ns is None else slab.sent_ns[rows[at]]
        self._found[some] = np.where(right, np.where(sent < self._ended_ns[some], _MATCHES, _SENT_LATER), _NEVER_SENT)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if until_ns < EVER_NS:
            return
        np.maximum.accumulate(self._acknowledged, axis=0, out=self._acknowledged)
        for one in self._given:
            yield one.question, one.difference or self._judge(one)

    def _bounds(self, one: _Given, chosen: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the oldest time that the row of each series may have; NEVER_NS if it may be missing."""
        question = one.question
        bounds = self._all.time_ns if question.quiet else self._loaded.time_ns
        if question.sent_ns and not question.quiet and self._shows_at_once:
            moment = np.searchsorted(self._moments, question.sent_ns, side="right")
            bounds = np.maximum(bounds, self._acknowledged[moment - 1] if moment else bounds)
        return bounds if chosen is None else np.where(chosen, bounds, NEVER_NS)

    def _judge(self, one: _Given) -> Difference | None:
        """Return the first difference of each kind in an answer, as one; None if it is right."""
        candidates = [*self._of_series(one), *self._of_rows(one)]
        return replace(candidates[0], also=tuple(candidates[1:])) if candidates else None

    def _of_series(self, one: _Given) -> Iterator[Difference]:
        """Yield the differences between the rows that an answer has and those that it must have."""
        rows, keys, part = self._table.take(slice(one.first, one.last)), self._names.keys, one.question.part
        values = np.zeros((self._scale, len(self._fields)), dtype=np.int32)
        np.add.at(values, rows.series, ~self._lacks[one.first : one.last])
        if (values > 1).any():  # two rows that share no field are one that is torn
            text = f"{len(rows)} rows for {len(np.unique(rows.series))} series: more than one newest row of a series"
            yield Difference(text, "several newest rows")
        if part is not None:
            least = int((self._bounds(one, one.chosen) > NEVER_NS).sum())
            if part.count < least:
                yield Difference(f"{part.count} rows instead of {least}", "missing row")
        newest = np.full(self._scale, EVER_NS, dtype=np.int64)
        np.minimum.at(newest, rows.series, rows.time_ns)  # of a torn row the older part, which may be stale
        newest[newest == EVER_NS] = NEVER_NS
        if one.odd:  # of which the series is not known
            return
        bounds = self._bounds(one, self._in_part(one))
        for kind, wrong in (
            ("missing row", (bounds > newest) & (newest == NEVER_NS)),
            ("stale row", (bounds > newest) & (newest > NEVER_NS)),
        ):
            for at in np.flatnonzero(wrong)[:1].tolist():
                name = "" if keys is None else keys[at]
                stale = f"a stale row for series {name}: {newest[at]}, but {bounds[at]} was already stored"
                yield Difference(stale if kind == "stale row" else f"no row for series {name}", kind)

    def _of_rows(self, one: _Given) -> Iterator[Difference]:
        """Yield the differences between the rows of an answer and those that were sent."""
        places = np.arange(one.first, one.last)
        rows, series = self._found[places], self._table.series[places]
        chosen = np.ones(len(places), dtype=np.bool_) if one.chosen is None else one.chosen[series]
        never = (rows == _NEVER_SENT) | (rows == _NOT_YET_SEEN)
        for kind, wrong in (
            ("row never sent", never),
            ("row sent later", rows == _SENT_LATER),
            ("unexpected row", ~chosen),
        ):
            examples: list[Row] = one.odd[:1] if kind == "row never sent" else []
            examples = examples or [self._as_given(int(place)) for place in places[wrong][:1]]
            for row in examples:
                yield Difference(f"{WORDS[kind]}: {row!r}", kind)
        torn = [self._torn(one, int(place)) for place in places[(rows == _MATCHES) & self._lacks[places].any(axis=1)]]
        if torn:
            yield Difference(torn[0].text, "torn row", torn=tuple(torn))

    def _as_given(self, place: int) -> Row:
        """Return a row of the table as it was given."""
        (row,) = self._table.take(slice(place, place + 1)).rows(self._names.keys)
        lacks = [False] * (len(row) - len(self._fields)) + self._lacks[place].tolist()
        return tuple(None if is_missing else value for value, is_missing in zip(row, lacks, strict=True))

    def _torn(self, one: _Given, place: int) -> IncompleteRow:
        query, given = one.question.query, self._as_given(place)
        key = None if self._names.keys is None else self._names.keys[int(self._table.series[place])]
        return IncompleteRow(query.measurement, query.fields, key, int(given[0]), given, self._right[place])
