"""The gold answers: computed from the generator's own points, which are kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.comparison import Difference, NotAnAnswer, between, canonical, compare
from tsbench.check.stored_rows import compare_stored
from tsbench.model import Count, Latest, Outcome, Query, Raw, Rows, Window
from tsbench.workload.answer_key import AnswerKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.sample import Part
    from tsbench.check.stored_rows import Located
    from tsbench.model import Batch, Stored
    from tsbench.workload.world import World

GOLD_BATCH = 65_536
"""Points generated at a time; the points do not depend on this number."""


def written(
    world: World, ledger: NDArray[np.void], *, block_points: int, first_tick: int, last_tick: int | None = None
) -> Iterator[Batch]:
    """Regenerate the points of the writes in a ledger, stream by stream and block by block.

    Ticks and block size must be those of the load's feed: disordered points change places across the end of a stream.
    """
    for stream in np.unique(ledger["stream"]).tolist():
        own = ledger[ledger["stream"] == stream]
        own = own[np.argsort(own["block"], kind="stable")]
        last = int(own["block"][-1])
        edges = np.searchsorted(own["block"], np.arange(last + 2))
        blocks = world.batches(stream, points=block_points, first_tick=first_tick, last_tick=last_tick)
        for number, batch in enumerate(blocks):
            if number > last:
                break
            chosen = np.zeros(len(batch), dtype=np.bool_)
            for write in own[edges[number] : edges[number + 1]]:
                chosen[write["offset"] : write["offset"] + write["points"]] = True
            if chosen.any():
                yield batch.where(chosen)


class Gold:
    """All points that a run stored: the bulk load, the acknowledged writes, and separately the unknown writes.

    Of a write that was refused in part without saying which points, only the number of stored points is known.
    `keeps_duplicates` says whether the schema keeps two points of a series at the same time.
    """

    def __init__(self, world: World, *, loaded_ticks: int, keeps_duplicates: bool) -> None:

        self.world = world
        self.loaded = Window(world.time_ns(0), world.time_ns(loaded_ticks))
        self._loaded_ticks = loaded_ticks
        self._replaces = not keeps_duplicates
        self._known = AnswerKey(keeps_duplicates)
        self._maybe = AnswerKey()
        for store in (self._known, self._maybe):
            for measurement in world.measurements:
                store.create(measurement, world.tags())
        self.unknown_points = 0
        self._in_part = 0
        self.writes = False
        self.until_ns = self.loaded.end_ns
        self._newest: dict[tuple[Latest, bool], tuple[list[Row], frozenset[Row]]] = {}

    def load(self) -> None:
        """Add the points of the bulk load."""
        for stream in range(self.world.spec.streams):
            for batch in self.world.batches(stream, points=GOLD_BATCH, last_tick=self._loaded_ticks):
                self._known.add(batch)

    def add(self, ledger: NDArray[np.void], *, block_points: int, last_tick: int | None = None) -> None:
        """Add the points of later writes, by a feed with such blocks that ended before `last_tick` (None: never)."""
        self.writes = bool(len(ledger))
        self._newest.clear()
        stores = {Outcome.OK: self._known, Outcome.UNKNOWN: self._maybe, Outcome.PARTIAL: self._maybe}
        self._in_part += int(ledger["acknowledged"][ledger["outcome"] == Outcome.PARTIAL].sum(dtype=np.int64))
        for outcome in Outcome:
            store = stores.get(outcome)
            chosen = ledger[ledger["outcome"] == outcome]
            place = {"block_points": block_points, "first_tick": self._loaded_ticks}
            for batch in written(self.world, chosen, **place, last_tick=last_tick):
                if store is not None:
                    store.add(batch)
                # also where a failed write would be, so that it is found there if it was stored after all
                self.until_ns = max(self.until_ns, int(batch.time_ns.max()) + 1)
                self.unknown_points += len(batch) if store is self._maybe else 0

    def answer(self, query: Query) -> Rows:
        """Return the right answer to a query, if no write is unknown."""
        return self._known.answer(query)

    def count(self) -> int:
        """Return the number of points that are stored for certain."""
        known = sum(int(self.answer(Count(m)).records[0][0]) for m in self.world.measurements)
        return known + self._in_part - self.unsure_points

    @property
    def unsure_points(self) -> int:
        """Number of acknowledged points that may have replaced stored ones.

        Where a point may replace another, a point of a write that was refused in part may replace one that is there.
        """
        return self._in_part if self._replaces and self.world.spec.disorder.duplicate else 0

    def check(self, query: Query, rows: Rows, *, quiet: bool, part: Part | None = None) -> Difference | None:
        """Compare a database's answer with gold; with `part`, the rows are only that part of the answer.

        `quiet` means that nothing was being written at the time.
        """
        try:
            moving = self.writes and (not quiet or self.unknown_points > 0)
            if moving and isinstance(query, Latest) and query.before_ns is None:
                return self._check_newest(query, rows, quiet=quiet, part=part)
            if part is not None:
                return part.compare(query, canonical(self.answer(query)), canonical(rows))
            return compare(self.answer(query), rows, query)
        except NotAnAnswer as error:
            return Difference(str(error))

    def _check_newest(self, query: Latest, rows: Rows, *, quiet: bool, part: Part | None) -> Difference | None:
        """Check newest rows: each may be any row that was sent after the newest one before the query."""
        if tuple(rows.columns) != query.columns:
            return Difference(f"columns {', '.join(rows.columns)} instead of {', '.join(query.columns)}")
        if (query, quiet) not in self._newest:  # thousands of answers belong to the same query
            settled = query if quiet else Latest(query.measurement, query.fields, self.loaded.end_ns, query.keys)
            earliest = canonical(self.answer(settled))
            since = min((row[0] for row in earliest), default=self.loaded.start_ns)
            self._newest[query, quiet] = earliest, frozenset(self._rows_since(query, since))
        earliest, possible = self._newest[query, quiet]
        if part is not None:
            if part.count < len(earliest):
                return Difference(f"{part.count} rows instead of {len(earliest)}")
            earliest = part.chosen(query, earliest)
        return between(earliest, possible, canonical(rows), keyed=query.measurement.key is not None)

    def _rows_since(self, query: Latest, since_ns: int) -> list[Row]:
        raw = Raw(query.measurement, query.fields, Window(since_ns, 2**62), query.keys)
        return canonical(self._known.answer(raw)) + canonical(self._maybe_answer(raw))

    def _maybe_answer(self, raw: Raw) -> Rows:
        return self._maybe.answer(raw) if self.unknown_points else Rows(raw.columns, [])

    def differences(self, query: Stored, rows: Rows) -> list[Located]:
        """Return the differences between stored rows and the points that were written; unknown ones may be stored."""
        maybe = self._maybe.answer(query) if self.unknown_points else Rows(query.columns, [])
        return compare_stored(query, self.answer(query), maybe, rows)
