"""The bulk load: store the initial data as fast as the database takes it.

Its batches are encoded by threads, not by the process that encodes measured writes (`drive.feed`) and so keeps an event
loop free: here no latency is measured, and a pipe would double the CPU time. Lines take 0.9 to 1.0 us a row to encode
and 0.9 to 1.1 us to hand over, PostgreSQL's COPY 0.12 and 0.21 us. What encodes is one: the schema.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import psutil

from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError, Outcome
from tsbench.results.figures import Load
from tsbench.run.time_limits import Deadline, Limits
from tsbench.scenario.parts import DEFAULTS
from tsbench.scenario.spec import PacePart
from tsbench.targets.base import Unsupported
from tsbench.targets.session import caused_line
from tsbench.workload.series import merge_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.model import Batch, WriteMode
    from tsbench.scenario.parts import TimeoutPart
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target
    from tsbench.workload.world import World


BURST_POINTS = 40_000
"""Number of points of batches that are made in one go.

Made one by one, after the server has used the processor's caches in between, batches take half as long again.
"""

ENCODERS = max(1, (os.cpu_count() or 1) // 2)
"""Number of threads that make batches for all workers.

Each makes two million points a second, which few servers take; more of them would wait for each other and for the
processors that the server uses.
"""

PATIENCE_S = 10.0
"""Time limit for the batches in flight when a load is interrupted, in seconds."""


@dataclass(slots=True)
class Loaded:
    """Result of a bulk load. `encode_s` and `client_cpu_s` are sums over the workers, within `duration_s`.

    `cores_busy` is the mean number of this machine's cores that were at work, whoever's.
    """

    points: int = 0
    values: int = 0
    bytes: int = 0
    duration_s: float = 0.0
    encode_s: float = 0.0
    client_cpu_s: float = 0.0
    cores_busy: float = 0.0
    refused: int = 0
    """Points of the writes with which the load failed that are surely not stored."""
    unknown: int = 0
    """Points of those that may be stored."""

    def figures(self, *, workers: int, batch: int, mode: WriteMode) -> Load:
        """Return the load as a summary has it."""
        rate = self.points / self.duration_s if self.duration_s else 0.0
        known = {name: value for name, value in asdict(self).items() if name not in {"refused", "unknown"}}
        return Load(**known, points_per_s=rate, workers=workers, batch=batch, mode=str(mode))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Points that are sent in one request, whose payload `encode` makes.

    If the session refuses the piece, `explain` returns the part of it to send nevertheless (None: the load has failed),
    and the error with which the source ends there: pieces with higher numbers are not sent.
    """

    encode: Callable[[], Payload]
    points: int
    values: int
    explain: Callable[[Exception], tuple[Piece | None, Exception]] = lambda error: (None, error)
    number: int = 0


UNLIMITED = PacePart()


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """A piece with its payload."""

    payload: Payload
    piece: Piece
    encode_s: float


class _Load:
    """The common state of the workers: a failure of one stops the others.

    `brisk` workers make no more points ahead than are stored in half a second, for a load that may end at any moment.
    """

    def __init__(
        self, progress: Callable[[int], None], workers: int, pace: PacePart, total: Loaded, *, brisk: bool
    ) -> None:
        self._brisk = brisk
        self.progress, self.encoders, self._pace = progress, ThreadPoolExecutor(min(workers, ENCODERS), "encoder"), pace
        self.total = total
        self.failure: Exception | None = None
        self.source_failure: Exception | None = None
        """Why the source ended early; all pieces before that are stored nevertheless."""
        self._lock, self._started = threading.Lock(), time.monotonic()
        self._sent = 0
        self._last = float("inf")
        """Number of the last piece to send."""
        self.stopping = threading.Event()
        self._working = workers
        self.ended = threading.Event()
        """Set when the last worker has ended."""

    def work(self, session: Session, pieces: Iterator[Piece]) -> None:
        """Send pieces until none remains or a worker has failed, then close the session.

        Closing it from another thread in the middle of a batch would crash the process (libpq).
        """
        try:
            ready = self.encoders.submit(self._next, pieces)
            while burst := ready.result():
                ready = self.encoders.submit(self._next, pieces)  # while the server works on these
                for encoded in burst:
                    if self.stopping.is_set():
                        return
                    self._send(session, encoded)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            self.stop(error)
        finally:
            try:
                session.close()
            except Exception as error:  # noqa: BLE001 - as before; else nobody would learn that this worker has ended
                self.stop(error)
            with self._lock:
                self._working -= 1
            if not self._working:
                self.ended.set()

    def end(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for the workers, at most PATIENCE_S: after Ctrl-C, a batch to a dead server may hang."""
        self.stopping.set()
        self.encoders.shutdown(wait=False, cancel_futures=True)  # one may wait for a pipe that nobody writes to
        give_up = time.monotonic() + PATIENCE_S
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, give_up - time.monotonic()))

    def _next(self, pieces: Iterator[Piece]) -> list[_Encoded]:
        burst: list[_Encoded] = []
        while sum(encoded.piece.points for encoded in burst) < self._burst_points and not self.stopping.is_set():
            if self.source_failure is not None or self._left_s() <= 0:
                break
            try:
                piece = next(pieces, None)
            except Exception as error:  # noqa: BLE001 - raised again when all before it is stored
                self.source_failure = self.source_failure or error
                break
            if piece is None:
                break
            started = time.perf_counter()
            burst.append(_Encoded(piece.encode(), piece, time.perf_counter() - started))
        return burst

    @property
    def _burst_points(self) -> float:
        """Number of points to make in one go: those of half a second where that is less."""
        per_s = self._pace.per_s
        if self._brisk:
            per_s = self.total.points / max(1e-3, time.monotonic() - self._started)
        return BURST_POINTS if per_s is None else max(1.0, min(BURST_POINTS, per_s / 2))

    def _left_s(self) -> float:
        limit_s = self._pace.duration_s
        return float("inf") if limit_s is None else limit_s - (time.monotonic() - self._started)

    def _wait_for_turn(self, points: int) -> bool:
        """Wait until `points` more are due; return False if the time or the load is over before."""
        if self._pace.per_s is not None:
            with self._lock:
                due_s, self._sent = self._sent / self._pace.per_s, self._sent + points
            wait_s = due_s - (time.monotonic() - self._started)
            self.stopping.wait(max(0.0, min(wait_s, self._left_s())))
        return self._left_s() > 0 and not self.stopping.is_set()

    def _send(self, session: Session, encoded: _Encoded) -> None:
        payload = encoded.payload
        if encoded.piece.number > self._last or not self._wait_for_turn(payload.points):
            return
        try:
            acknowledged = session.write(payload)
        except Exception as error:
            before, piece = encoded.piece.explain(error)
            if before is None:
                self._count_failed(error, payload.points)
                raise piece from error
            self.source_failure, self._last = piece, encoded.piece.number
            if before.points:
                self._send(session, _Encoded(before.encode(), before, 0.0))
            return
        if acknowledged != payload.points:
            self.stop(Broken(f"{payload.points} points were sent and {acknowledged} acknowledged"))
            return
        with self._lock:
            self.total.points += acknowledged
            self.total.values += encoded.piece.values
            self.total.bytes += payload.nbytes
            self.total.encode_s += encoded.encode_s
        self.progress(acknowledged)

    def _count_failed(self, error: Exception, points: int) -> None:
        with self._lock:
            if isinstance(error, OpError) and error.outcome is Outcome.FAILED:
                self.total.refused += points
            else:
                self.total.unknown += points

    def stop(self, error: Exception) -> None:
        """Store the first failure and stop all workers."""
        self.failure = self.failure or error
        self.stopping.set()


def bulk_load(
    world: World,
    target: Target,
    schema: Schema,
    endpoint: str,
    *,
    last_tick: int,
    workers: int,
    batch: int,
    mode: WriteMode,
    progress: Callable[[int], None] = lambda _points: None,
    timeout: TimeoutPart = DEFAULTS,
    deadline: Deadline | None = None,
    pace: PacePart = UNLIMITED,
    total: Loaded | None = None,
) -> Loaded:
    """Store the points of ticks 0 <= tick < last_tick, or up to a deadline; each worker has streams of its own.

    A worker mixes its streams so that batches arrive in the order of time, as from a real fleet. Under a limit of
    points the workers share one mix of all streams, whose first points are stored. Otherwise as `store`.
    """
    streams, workers = world.spec.streams, min(workers, world.spec.streams)
    shares = [range(w, streams, workers) for w in range(workers)] if pace.limit is None else [range(streams)]
    mixed = [mixed_batches(world, share, points=batch, first_tick=0, last_tick=last_tick) for share in shares]
    ended = mixed if deadline is None else [deadline.until(batches) for batches in mixed]
    pieces: list[Iterator[Piece]] = [_pieces(batches, schema, mode, pace.limit) for batches in ended]
    if pace.limit is not None:
        pieces = [Shared(pieces[0])] * workers
    brisk, limits = deadline is not None, Limits(timeout, endpoint)
    return store(pieces, target, schema, limits, progress=progress, pace=pace, total=total, brisk=brisk)


def _pieces(batches: Iterator[Batch], schema: Schema, mode: WriteMode, limit: int | None) -> Iterator[Piece]:
    """Yield batches, up to `limit` points, as pieces that a schema encodes."""
    left = float("inf") if limit is None else limit
    for batch in batches:
        if not left:
            return
        taken = batch if len(batch) <= left else batch.rows(0, int(left))
        left -= len(taken)
        yield Piece(partial(schema.encode, taken, mode), len(taken), taken.values)


class Shared:
    """An iterator of pieces that several workers take from, each piece once and in their order."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces, self._lock = pieces, threading.Lock()

    def __iter__(self) -> Shared:
        return self

    def __next__(self) -> Piece:
        with self._lock:
            return next(self._pieces)


def store(
    sources: Sequence[Iterator[Piece]],
    target: Target,
    schema: Schema,
    limits: Limits,
    *,
    progress: Callable[[int], None] = lambda _points: None,
    pace: PacePart = UNLIMITED,
    total: Loaded | None = None,
    brisk: bool = False,
) -> Loaded:
    """Store all pieces with one worker per source; each is a thread with its own session.

    A worker makes its next pieces while the server processes the previous ones. What is stored is counted in `total`,
    also if the load fails. If a source fails, all pieces before its error are stored first.

    Raises
    ------
    Broken
        If a session cannot be opened or a write fails: one line with the cause; or as the source raises it.
    """
    load = _Load(progress, len(sources), pace, Loaded() if total is None else total, brisk=brisk)
    sessions = _connected(target, schema, limits, len(sources))
    pairs = zip(sessions, sources, strict=True)
    threads = [threading.Thread(target=load.work, args=pair, daemon=True) for pair in pairs]
    with _garbage_frozen():
        started, cpu, busy_s = time.perf_counter(), time.process_time(), _busy_s()
        try:
            for thread in threads:
                thread.start()
            # No join: without a time limit it would delay Ctrl-C, and Python up to 3.12 takes a thread whose join
            # was interrupted for one that has ended.
            while not load.ended.wait(0.2):
                progress(0)  # which says how long nothing has come
            if load.failure is None and target.parse(limits.endpoint).delivers_later:
                with closing(limits.connect(target, schema, "settle")) as session:
                    session.deliver(limits.seconds("settle"))
        finally:
            load.end(threads)
            load.total.duration_s = time.perf_counter() - started
            load.total.client_cpu_s = time.process_time() - cpu
            load.total.cores_busy = (_busy_s() - busy_s) / load.total.duration_s
    if load.failure is not None:
        kind = UserMistake if isinstance(load.failure, Unsupported) else Broken  # data that the database cannot hold
        raise kind(f"the bulk load failed: {caused_line(load.failure)}") from load.failure
    if load.source_failure is not None:
        raise load.source_failure
    return load.total


def _busy_s() -> float:
    """Return the seconds for which cores of this machine have been at work, all together."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


def _connected(target: Target, schema: Schema, limits: Limits, count: int) -> list[Session]:
    """Open `count` sessions; if one cannot be opened, close the others and raise the error."""
    sessions: list[Session] = []
    with ExitStack() as opened:
        for _ in range(count):
            try:
                sessions.append(limits.connect(target, schema, "load"))
            except UserMistake as error:  # whose first session was opened: the server has gone since
                raise Broken(f"the bulk load failed: {error}") from error
            opened.callback(sessions[-1].close)
        opened.pop_all()
    return sessions


@contextmanager
def _garbage_frozen() -> Iterator[None]:
    """Exclude existing objects from garbage collection: checking them repeatedly would slow a load by a twentieth."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def mixed_batches(
    world: World, streams: Sequence[int], *, points: int, first_tick: int, last_tick: int
) -> Iterator[Batch]:
    """Yield batches of about `points` rows that cover the same stretch of time in each of several streams."""
    if not world.is_irregular:
        yield from world.mixed(streams, points=points, first_tick=first_tick, last_tick=last_tick)
        return
    share = max(1, points // len(streams))
    sources = [world.batches(s, points=share, first_tick=first_tick, last_tick=last_tick) for s in streams]
    while sources:
        taken = [(source, next(source, None)) for source in sources]
        sources = [source for source, batch in taken if batch is not None]
        by_measurement: dict[str, list[Batch]] = {}
        for _, batch in taken:
            if batch is not None:
                by_measurement.setdefault(batch.measurement.name, []).append(batch)
        yield from (merge_batches(batches) for batches in by_measurement.values())
