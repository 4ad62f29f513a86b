"""The bulk load: store the initial data as fast as the database takes it."""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake
from tsbench.model import merge_batches
from tsbench.results.figures import Load
from tsbench.run.time_limits import Limits
from tsbench.scenario.parts import DEFAULTS
from tsbench.targets.base import Unsupported
from tsbench.targets.session import caused_line

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
    """Result of a bulk load. `encode_s` and `client_cpu_s` are sums over the workers, within `duration_s`."""

    points: int = 0
    values: int = 0
    bytes: int = 0
    duration_s: float = 0.0
    encode_s: float = 0.0
    client_cpu_s: float = 0.0

    def figures(self, *, workers: int, batch: int, mode: WriteMode) -> Load:
        """Return the load as a summary has it."""
        rate = self.points / self.duration_s if self.duration_s else 0.0
        return Load(**asdict(self), points_per_s=rate, workers=workers, batch=batch, mode=str(mode))


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """An encoded batch."""

    payload: Payload
    values: int
    encode_s: float


class _Load:
    """The common state of the workers: a failure of one stops the others."""

    def __init__(
        self,
        schema: Schema,
        mode: WriteMode,
        progress: Callable[[int], None],
        encoders: ThreadPoolExecutor,
        workers: int,
    ) -> None:
        self.schema, self.mode, self.progress, self.encoders = schema, mode, progress, encoders
        self.total = Loaded()
        self.failure: Exception | None = None
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._working = workers
        self.ended = threading.Event()
        """Set when the last worker has ended."""

    def work(self, session: Session, batches: Iterator[Batch]) -> None:
        """Send batches until none remains or a worker has failed, then close the session.

        Closing it from another thread in the middle of a batch would crash the process (libpq).
        """
        try:
            ready = self.encoders.submit(self._next, batches)
            while burst := ready.result():
                ready = self.encoders.submit(self._next, batches)  # while the server works on these
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
        self.encoders.shutdown()
        give_up = time.monotonic() + PATIENCE_S
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, give_up - time.monotonic()))

    def _next(self, batches: Iterator[Batch]) -> list[_Encoded]:
        burst: list[_Encoded] = []
        while sum(encoded.payload.points for encoded in burst) < BURST_POINTS and not self.stopping.is_set():
            batch = next(batches, None)
            if batch is None:
                break
            started = time.perf_counter()
            payload = self.schema.encode(batch, self.mode)
            burst.append(_Encoded(payload, batch.values, time.perf_counter() - started))
        return burst

    def _send(self, session: Session, encoded: _Encoded) -> None:
        payload = encoded.payload
        acknowledged = session.write(payload)
        if acknowledged != payload.points:
            self.stop(Broken(f"{payload.points} points were sent and {acknowledged} acknowledged"))
            return
        with self._lock:
            self.total.points += acknowledged
            self.total.values += encoded.values
            self.total.bytes += payload.nbytes
            self.total.encode_s += encoded.encode_s
        self.progress(acknowledged)

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
) -> Loaded:
    """Store the points of ticks 0 <= tick < last_tick with `workers` threads, each with its own session and streams.

    A worker mixes its streams so that batches arrive in the order of time, as from a real fleet, and makes its next
    batches while the server processes the previous ones.

    Raises
    ------
    Broken
        If a session cannot be opened or a write fails: one line with the cause.
    """
    workers = min(workers, world.spec.streams)
    load = _Load(schema, mode, progress, ThreadPoolExecutor(min(workers, ENCODERS), "encoder"), workers)
    shares = [range(w, world.spec.streams, workers) for w in range(workers)]
    mixed = [mixed_batches(world, streams, points=batch, first_tick=0, last_tick=last_tick) for streams in shares]
    sessions = _connected(target, schema, Limits(timeout, endpoint), workers)
    threads = [threading.Thread(target=load.work, args=pair, daemon=True) for pair in zip(sessions, mixed, strict=True)]
    with _garbage_frozen():
        started, cpu = time.perf_counter(), time.process_time()
        try:
            for thread in threads:
                thread.start()
            # No join: without a time limit it would delay Ctrl-C, and Python up to 3.12 takes a thread whose join
            # was interrupted for one that has ended.
            while not load.ended.wait(0.2):
                pass
        finally:
            load.end(threads)
        load.total.duration_s = time.perf_counter() - started
        load.total.client_cpu_s = time.process_time() - cpu
    if load.failure is not None:
        kind = UserMistake if isinstance(load.failure, Unsupported) else Broken  # data that the database cannot hold
        raise kind(f"the bulk load failed: {caused_line(load.failure)}") from load.failure
    return load.total


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
    if not world.spec.disorder:
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
