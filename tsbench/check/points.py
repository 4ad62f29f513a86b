"""The points that a run sent, regenerated in the order of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import Outcome
from tsbench.workload.series import merge_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Measurement
    from tsbench.workload.world import World

SLAB_ROWS = 32_768
"""Approximate number of rows of a slab: as many as the world computes at a time; a slab has at least one tick."""
EVER_NS = 2**63 - 1
"""A time after every point."""
NEVER_NS = -(2**63)
"""A time before every point; also the time of a row that does not exist."""
SURE = {Outcome.OK: True, Outcome.UNKNOWN: False, Outcome.PARTIAL: False}
"""Outcomes of writes whose points are stored for certain (True) or perhaps (False)."""


@dataclass(slots=True, eq=False)
class Slab:
    """All points of a measurement from the end of its previous slab to `end_ns` (excluded), sorted by time.

    `whole` means that every series has one point at every tick, in the same order at each. `sure` is False for points
    that may or may not be stored, and for copies that a schema does not keep; None means that all are sure.
    `sent_ns` and `ended_ns` are the times at which their writes were sent and ended, 0 for the bulk load.
    """

    measurement: Measurement
    end_ns: int
    time_ns: NDArray[np.int64]
    series: NDArray[np.int32]
    tags: Mapping[str, Codes]
    fields: dict[str, NDArray[Any]]
    whole: bool = False
    sure: NDArray[np.bool_] | None = None
    unsure: NDArray[np.bool_] | None = None
    sent_ns: NDArray[np.int64] | None = None
    ended_ns: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.time_ns)

    def rows_until(self, time_ns: int) -> int:
        """Return the number of rows before a time."""
        return int(np.searchsorted(self.time_ns, time_ns))

    def known(self) -> Slab:
        """Return the slab of the rows that are stored for certain."""
        return self if self.sure is None else self._where(self.sure)

    def maybe(self) -> Slab | None:
        """Return the slab of the rows that may or may not be stored; None if it would be empty."""
        return None if self.unsure is None or not self.unsure.any() else self._where(self.unsure)

    def expired(self, before_ns: int) -> Slab:
        """Return the slab with all rows before a time among those that may or may not be stored."""
        rows = self.rows_until(before_ns)
        if not rows:
            return self
        sure = np.ones(len(self), dtype=np.bool_) if self.sure is None else self.sure.copy()
        unsure = np.zeros(len(self), dtype=np.bool_) if self.unsure is None else self.unsure.copy()
        unsure[:rows] |= sure[:rows]
        sure[:rows] = False
        return replace(self, sure=sure, unsure=unsure)

    def _where(self, mask: NDArray[np.bool_]) -> Slab:
        fields = {name: column[mask] for name, column in self.fields.items()}
        return Slab(self.measurement, self.end_ns, self.time_ns[mask], self.series[mask], self.tags, fields)


@dataclass(frozen=True, slots=True)
class Feed:
    """What a run sends: the bulk load's ticks, then blocks of `block_points` rows of each stream up to `last_tick`.

    Ticks and block size must be those of the run: disordered points change places across the end of a stream. Without a
    `last_tick` the blocks have no end.
    """

    world: World
    loaded_ticks: int
    block_points: int
    last_tick: int | None = None

    def written(self, ledger: NDArray[np.void]) -> Iterator[Batch]:
        """Yield the points of the writes in a ledger, stream by stream and block by block."""
        for stream in np.unique(ledger["stream"]).tolist():
            for batch, _, rows in self.blocks(stream, ledger):
                chosen = np.zeros(len(batch), dtype=np.bool_)
                chosen[rows] = True
                if len(rows):
                    yield batch.where(chosen)

    def blocks(
        self, stream: int, ledger: NDArray[np.void]
    ) -> Iterator[tuple[Batch, NDArray[np.intp], NDArray[np.int64]]]:
        """Yield the blocks of a stream, up to the last one that the ledger names, and which of their rows were written.

        The two arrays have an item per row that was written: its entry's number in the ledger, its row in the block.
        """
        own = np.flatnonzero(ledger["stream"] == stream)
        own = own[np.argsort(ledger["block"][own], kind="stable")]
        if not len(own):
            return
        last = int(ledger["block"][own[-1]])
        edges = np.searchsorted(ledger["block"][own], np.arange(last + 2))
        first, last_tick = self.loaded_ticks, self.last_tick
        batches = self.world.batches(stream, points=self.block_points, first_tick=first, last_tick=last_tick)
        for number, batch in enumerate(batches):
            if number > last:
                return
            entries = own[edges[number] : edges[number + 1]]
            starts, points = (ledger[key][entries].astype(np.int64) for key in ("offset", "points"))
            points = np.clip(len(batch) - starts, 0, points)
            yield batch, np.repeat(entries, points), _ranges(starts, points)

    @property
    def turns(self) -> int:
        """Number of measurements whose blocks take turns; 1 if blocks come in the order of time."""
        return 1 if self.world.in_order_of_time else len(self.world.measurements)

    def own_rows(self, ledger: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the first row of each write among its stream's rows of one measurement (without disorder only)."""
        rows: NDArray[np.int64] = ledger["block"] // self.turns * self.block_points + ledger["offset"]
        return rows

    def series_in(self, streams: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of series of streams."""
        spec = self.world.spec
        return -(-(spec.scale - streams.astype(np.int64)) // spec.streams)

    def last_tick_of(self, ledger: NDArray[np.void]) -> int:
        """Return the tick after all writes of a ledger (without disorder only)."""
        if not len(ledger):
            return self.loaded_ticks
        rows = self.own_rows(ledger) + ledger["points"]
        tick = self.loaded_ticks + int((-(-rows // self.series_in(ledger["stream"]))).max())
        return tick if self.last_tick is None else min(tick, self.last_tick)


def slabs(feed: Feed, ledger: NDArray[np.void], *, keeps_duplicates: bool) -> Iterator[Slab]:
    """Yield the points of the bulk load and of the writes in a ledger; the measurements take turns.

    A world without disorder is generated once. One with disorder is generated once for the load and once more for the
    writes, each stream by itself, and its points wait as long as one of an earlier time may follow.
    """
    if feed.world.is_irregular:
        yield from _disordered(feed, ledger, keeps=keeps_duplicates)
    else:
        yield from _orderly(feed, ledger, keeps=keeps_duplicates)


def end_of_writes(feed: Feed, ledger: NDArray[np.void]) -> int:
    """Return a time after all points of a ledger's writes, however they ended, and of the load.

    In a world with disorder the written part is generated for it.
    """
    loaded_ns = feed.world.time_ns(feed.loaded_ticks)
    if not len(ledger):
        return loaded_ns
    if not feed.world.is_irregular:
        return max(loaded_ns, feed.world.time_ns(feed.last_tick_of(ledger) - 1) + 1)
    return max(loaded_ns, *(int(batch.time_ns.max()) + 1 for batch in feed.written(ledger)))


# --- without disorder -------------------------------------------------------------------------------------------------


def _orderly(feed: Feed, ledger: NDArray[np.void], *, keeps: bool) -> Iterator[Slab]:
    """Yield slabs of whole ticks; a row's place in the ledger follows from its tick and its stream."""
    world, spec = feed.world, feed.world.spec
    kept = ledger[np.isin(ledger["outcome"], list(SURE))]
    turns = feed.turns
    writes = [_Writes(feed, kept[kept["block"] % turns == turn]) for turn in range(turns)]
    end = max(feed.loaded_ticks, feed.last_tick_of(kept))
    ticks = max(1, SLAB_ROWS // spec.scale)
    reached = dict.fromkeys(world.measurements, 0)
    for batch in world.mixed(range(spec.streams), points=ticks * spec.scale, last_tick=end):
        first = reached[batch.measurement]
        last = reached[batch.measurement] = min(end, first + ticks)
        end_ns = world.time_ns(last)
        if last <= feed.loaded_ticks:
            columns = batch.time_ns, batch.series, batch.tags, dict(batch.fields)
            yield Slab(batch.measurement, end_ns, *columns, whole=world.churn is None)
        else:
            entries, rows = writes[world.measurements.index(batch.measurement)].within(first, last)
            loaded = max(0, feed.loaded_ticks - first) * spec.scale
            yield _assembled(batch, rows, entries, loaded, end_ns=end_ns, keeps=keeps)


@dataclass(frozen=True, slots=True, eq=False)
class _StreamWrites:
    """The writes of one measurement in one stream, each of the rows from `begin` to `end` (excluded), sorted.

    A stream of n series has n rows per tick. They are counted from the end of the load: row r is of the tick
    `loaded_ticks + r // n`, and of the series in column `first_column + r % n` of that tick's rows of all streams.
    `entries` are numbers of the ledger's entries.
    """

    first_column: int
    series: int
    entries: NDArray[np.intp]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    longest: int

    def between(self, low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the written rows from `low` to `high` (excluded), and for each the entry that wrote it."""
        # Of the writes that begin before `low`, only those less than the longest one before it can reach it.
        near = slice(int(np.searchsorted(self.begin, low - self.longest)), int(np.searchsorted(self.begin, high)))
        begin = np.maximum(self.begin[near], low)
        points = np.maximum(0, np.minimum(self.end[near], high) - begin)
        return np.repeat(self.entries[near], points), _ranges(begin, points)


class _Writes:
    """The writes of one measurement in all streams."""

    def __init__(self, feed: Feed, ledger: NDArray[np.void]) -> None:
        self._feed, self._ledger = feed, ledger
        starts = feed.own_rows(ledger)
        self._streams = []
        column = 0
        for stream in range(min(feed.world.spec.streams, feed.world.spec.scale)):
            series = int(feed.series_in(np.array(stream)))
            own = np.flatnonzero(ledger["stream"] == stream)
            own = own[np.argsort(starts[own], kind="stable")]
            begin, points = starts[own], ledger["points"][own].astype(np.int64)
            longest = int(points.max(initial=0))
            self._streams.append(_StreamWrites(column, series, own, begin, begin + points, longest))
            column += series

    def within(self, first: int, last: int) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Return the entries of the rows written in a range of ticks, and their rows in a batch of these ticks.

        The batch has `scale` rows per tick: that of tick t and column c is its row `(t - first) * scale + c`.
        """
        loaded, scale = self._feed.loaded_ticks, self._feed.world.spec.scale
        all_entries, all_rows = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.int64)]
        for stream in self._streams:
            entries, rows = stream.between(max(0, first - loaded) * stream.series, (last - loaded) * stream.series)
            ticks, columns = loaded + rows // stream.series, stream.first_column + rows % stream.series
            all_entries.append(entries)
            all_rows.append((ticks - first) * scale + columns)
        return self._ledger[np.concatenate(all_entries)], np.concatenate(all_rows)


def _assembled(
    batch: Batch, rows: NDArray[np.int64], entries: NDArray[np.void], loaded: int, *, end_ns: int, keeps: bool
) -> Slab:
    """Return the slab of a batch's first `loaded` rows and of the written ones among the others."""
    rows = np.concatenate([np.arange(loaded), rows])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    chosen = batch.where(rows)  # type: ignore[arg-type]  # an array of indices selects rows as a mask does
    return _slab(chosen, _fates(entries, loaded)[order], end_ns=end_ns, keeps=keeps)


_FATE = np.dtype([("sure", np.bool_), ("sent_ns", np.int64), ("ended_ns", np.int64)])


def _fates(entries: NDArray[np.void], loaded: int) -> NDArray[np.void]:
    """Return outcome and times of each row: of `loaded` rows of the bulk load, then of written ones."""
    fates = np.zeros(loaded + len(entries), dtype=_FATE)
    fates["sure"][:loaded] = True
    fates["sure"][loaded:] = entries["outcome"] == Outcome.OK
    for name in ("sent_ns", "ended_ns"):
        if len(entries):
            fates[name][loaded:] = entries[name]
    return fates


def _slab(batch: Batch, fates: NDArray[np.void], *, end_ns: int, keeps: bool) -> Slab:
    """Return the slab of rows that are sorted by time; of several that replace each other one is sure."""
    sure, unsure = fates["sure"].copy(), ~fates["sure"]
    if not keeps:
        known = np.flatnonzero(sure)
        order = known[np.lexsort((batch.series[known], batch.time_ns[known]))]
        again = (np.diff(batch.time_ns[order]) == 0) & (np.diff(batch.series[order]) == 0)
        sure[order[1:][again]] = False
    return Slab(
        batch.measurement, end_ns, batch.time_ns, batch.series, batch.tags, dict(batch.fields),
        sure=sure, unsure=unsure, sent_ns=fates["sent_ns"], ended_ns=fates["ended_ns"],
    )  # fmt: skip


def _ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the whole numbers of several ranges, one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    numbers: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


# --- with disorder ----------------------------------------------------------------------------------------------------


def _disordered(feed: Feed, ledger: NDArray[np.void], *, keeps: bool) -> Iterator[Slab]:
    """Yield slabs of the points that no stream can precede any more."""
    world = feed.world
    kept = ledger[np.isin(ledger["outcome"], list(SURE))]
    streams = [
        chain(_load_of(feed, stream), _writes_of(feed, stream, kept))
        for stream in range(min(world.spec.streams, world.spec.scale))
    ]
    waiting = {m: _Waiting(world, m.name, len(streams), keeps=keeps) for m in world.measurements}
    going = list(range(len(streams)))
    while going:
        # The stream that lies furthest behind, so that few points of the others wait for it.
        stream = min(going, key=lambda one: min(queue.reached[one] for queue in waiting.values()))
        for _ in world.measurements:
            ahead = next(streams[stream], None)
            if ahead is None:
                going.remove(stream)
                for one in waiting.values():
                    one.reached[stream] = EVER_NS
                break
            batch, fates, rows = ahead
            waiting[batch.measurement].add(stream, batch, fates, rows)
            if world.in_order_of_time:  # so do other measurements' batches, by their first points
                for one in waiting.values():
                    one.reach(stream, int(batch.time_ns[0]))
        for one in waiting.values():
            yield from one.settled()


def _load_of(feed: Feed, stream: int) -> Iterator[tuple[Batch, NDArray[np.void], NDArray[np.int64]]]:
    world = feed.world
    ticks = max(1, SLAB_ROWS // world.spec.scale)
    points = ticks * int(feed.series_in(np.array(stream)))
    none = np.zeros(0, dtype=[("outcome", np.int8)])
    for batch in world.batches(stream, points=points, last_tick=feed.loaded_ticks):
        yield batch, _fates(none, len(batch)), np.arange(len(batch))


def _writes_of(
    feed: Feed, stream: int, ledger: NDArray[np.void]
) -> Iterator[tuple[Batch, NDArray[np.void], NDArray[np.int64]]]:
    for batch, entries, rows in feed.blocks(stream, ledger):
        yield batch, _fates(ledger[entries], 0), rows


class _Waiting:
    """The points of a measurement that wait until no earlier one can follow in any stream."""

    def __init__(self, world: World, measurement: str, streams: int, *, keeps: bool) -> None:
        self._keeps = keeps
        # A point comes at most `late_by` ticks after its place, and one tick more for the place between two rows.
        late_by = max(1, world.spec.disorder.late_by) + 2 if world.recorded is None else 0
        self._late_ns = late_by * world.interval_ns(measurement)
        self.reached = [-EVER_NS] * streams
        """Time before which no more points of each stream can come."""
        self._parts: list[tuple[Batch, NDArray[np.void]]] = []
        self._rows = self._rest = 0

    def add(self, stream: int, batch: Batch, fates: NDArray[np.void], rows: NDArray[np.int64]) -> None:
        self.reach(stream, int(batch.time_ns.max(initial=-EVER_NS)))
        if len(rows):
            self._parts.append((batch.where(rows), fates))  # type: ignore[arg-type]  # indices, as above
            self._rows += len(rows)

    def reach(self, stream: int, time_ns: int) -> None:
        """Set the time of a point to which a stream has come."""
        self.reached[stream] = max(self.reached[stream], time_ns - self._late_ns)

    def settled(self) -> Iterator[Slab]:
        until_ns = min(self.reached)
        # Those that wait are sorted anew each time, so that there should be as many new ones.
        if not self._parts or (self._rows < max(SLAB_ROWS, 2 * self._rest) and until_ns < EVER_NS):
            return
        batch = merge_batches([batch for batch, _ in self._parts])
        fates = np.concatenate([fates for _, fates in self._parts])
        order = np.lexsort((batch.series, batch.time_ns))
        due = int(np.searchsorted(batch.time_ns[order], until_ns))
        if due:
            some = order[:due]
            yield _slab(batch.where(some), fates[some], end_ns=until_ns, keeps=self._keeps)  # type: ignore[arg-type]
        rest = order[due:]
        self._parts = [(batch.where(rest), fates[rest])] if len(rest) else []  # type: ignore[arg-type]
        self._rows = self._rest = len(rest)
