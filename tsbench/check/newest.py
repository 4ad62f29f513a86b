"""Answers with the newest row of every series, given while points may have been written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.buckets import chosen_series
from tsbench.check.comparison import EXACT, Difference
from tsbench.check.packed import Packed
from tsbench.check.points import EVER_NS
from tsbench.check.rows import Newest, packed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.buckets import Checked
    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Names, Question
    from tsbench.model import Latest

MOMENTS_VALUES = 2**23
"""Series times moments for which the newest acknowledged times are kept (64 MB); of more, moments are left out."""
CLOCK_NS = 10_000_000
"""Time by which clocks of two load processes may differ: their offsets are measured over the network."""

_UNSEEN, _NEVER, _LATER, _SEEN = range(4)
"""What was found of a row: nothing yet; another row at its place; a row that was sent too late; the row itself."""


@dataclass(slots=True, eq=False)
class _Given:
    """An answer, the places of its rows in the tracker's table, and the moment from which its bound is taken."""

    question: Question[Latest]
    difference: Difference | None
    odd: list[Row]
    first: int
    last: int
    chosen: NDArray[np.bool_] | None


class MovingTracker:
    """Newest rows that may be any that were sent, for `Latest` queries of one measurement and the same fields.

    Of each series a row may be no older than the newest one that was acknowledged before the question was sent, and
    must have been sent before the answer ended. Without the times of questions and writes the bounds are wider: no
    older than the bulk load's newest row, and sent at any time. Answers after the run (`quiet`) have all acknowledged
    rows as bounds, and may have those of unknown writes.
    """

    def __init__(
        self, questions: Sequence[Question[Latest]], names: Names, all_names: Names, scale: int, *, loaded_ns: int
    ) -> None:
        self._names, self._scale, self._loaded_ns = names, scale, loaded_ns
        self._fields = questions[0].query.fields
        self._given: list[_Given] = []
        tables = []
        reached = 0
        for question in questions:
            one, packed = self._read(question, reached, chosen_series(question.query, all_names, scale))
            self._given.append(one)
            tables.append(packed)
            reached = one.last
        self._table = Packed(
            np.concatenate([table.time_ns for table in tables]),
            np.concatenate([table.series for table in tables]),
            np.concatenate([table.values for table in tables]),
        )
        self._ended_ns = np.repeat(
            [one.question.ended_ns + CLOCK_NS if one.question.ended_ns else EVER_NS for one in self._given],
            [len(table) for table in tables],
        )
        self._order = np.argsort(self._table.time_ns, kind="stable")
        self._sorted_ns = self._table.time_ns[self._order]
        self._found = np.full(len(self._table), _UNSEEN, dtype=np.int8)
        self._compared = 0
        self._loaded, self._all = Newest([], scale), Newest([], scale)
        sent_ns = np.unique([one.question.sent_ns for one in self._given if one.question.sent_ns])
        step = -(-len(sent_ns) * scale // MOMENTS_VALUES) or 1
        self._moments = sent_ns[::step].astype(np.int64)
        self._acknowledged = np.full((len(self._moments) + 1, scale), -(2**63), dtype=np.int64)

    @property
    def begin_ns(self) -> int:
        return -(2**63)

    @property
    def end_ns(self) -> int:
        return EVER_NS

    def _read(self, question: Question[Latest], first: int, chosen: NDArray[np.bool_] | None) -> tuple[_Given, Packed]:
        answer = question.answer()
        difference = answer if isinstance(answer, Difference) else None
        packed = Packed.empty(len(self._fields)) if isinstance(answer, Difference) else answer
        return _Given(question, difference, packed.odd, first, first + len(packed), chosen), packed

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
            self._found[some] = _NEVER
            return
        stored = packed_rows(slab, rows, self._fields, keyed=self._names.keys is not None)
        base = stored.time_ns[0]
        places = (stored.time_ns - base) * self._scale + stored.series
        at = np.searchsorted(places, (wanted.time_ns - base) * self._scale + wanted.series)
        at = np.minimum(at, len(places) - 1)
        there = (stored.time_ns[at] == wanted.time_ns) & (stored.series[at] == wanted.series)
        right = there & stored.take(at).equal(wanted, EXACT).all(axis=1)
        sent = np.zeros(len(some), dtype=np.int64) if slab.sent_ns is None else slab.sent_ns[rows[at]]
        self._found[some] = np.where(right, np.where(sent < self._ended_ns[some], _SEEN, _LATER), _NEVER)

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if until_ns < EVER_NS:
            return
        np.maximum.accumulate(self._acknowledged, axis=0, out=self._acknowledged)
        for one in self._given:
            yield one.question, one.difference or self._judge(one)

    def _bounds(self, one: _Given, chosen: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the oldest time that the row of each series may have, the least number where it may be missing."""
        question = one.question
        bounds = self._all.time_ns if question.quiet else self._loaded.time_ns
        if question.sent_ns and not question.quiet:
            moment = np.searchsorted(self._moments, question.sent_ns, side="right")
            bounds = np.maximum(bounds, self._acknowledged[moment - 1] if moment else bounds)
        return bounds if chosen is None else np.where(chosen, bounds, -(2**63))

    def _judge(self, one: _Given) -> Difference | None:
        rows = self._table.take(slice(one.first, one.last))
        found = self._found[one.first : one.last]
        newest = np.full(self._scale, -(2**63), dtype=np.int64)
        newest[rows.series] = rows.time_ns
        if len(np.unique(rows.series)) != len(rows):
            return Difference(
                f"{len(rows)} rows for {len(np.unique(rows.series))} series: more than one newest row of a series",
                "several newest rows",
            )
        if one.odd:
            return Difference(f"a row that was never sent: {one.odd[0]!r}", "row never sent")
        if one.question.part is not None:
            least = int((self._bounds(one, one.chosen) > -(2**63)).sum())
            if one.question.part.count < least:
                return Difference(f"{one.question.part.count} rows instead of {least}", "missing row")
        bounds = self._bounds(one, self._in_part(one))
        there = newest > -(2**63)
        keys = self._names.keys
        for series in np.flatnonzero(bounds > newest)[:1].tolist():
            name = "" if keys is None else keys[series]
            if not there[series]:
                return Difference(f"no row for series {name}", "missing row")
            text = f"a stale row for series {name}: {newest[series]}, but {bounds[series]} was already stored"
            return Difference(text, "stale row")
        chosen = np.ones(len(rows), dtype=np.bool_) if one.chosen is None else one.chosen[rows.series]
        for kind, wrong in (
            ("row never sent", (found == _NEVER) | (found == _UNSEEN)),
            ("row sent later", found == _LATER),
            ("unexpected row", ~chosen),
        ):
            if wrong.any():
                example = rows.take(np.flatnonzero(wrong)[:1]).rows(keys)[0]
                words = {
                    "row never sent": "a row that was never sent",
                    "row sent later": "a row that was sent after the answer",
                    "unexpected row": "a row of a series that was not asked for",
                }
                return Difference(f"{words[kind]}: {example!r}", kind)
        return None
