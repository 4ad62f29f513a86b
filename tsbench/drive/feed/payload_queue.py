"""A queue of encoded writes from this process's streams, which an encoder process fills (see `encoder`)."""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import gevent
from gevent.event import Event
from gevent.lock import RLock
from gevent.monkey import get_original
from gevent.os import make_nonblocking, nb_read

from tsbench.drive.feed.encoder import FAILED, READY, Burst, EncoderJob, Frame, Inbox, WantedWrites, framed
from tsbench.errors import Broken, UserMistake
from tsbench.servers.children import PIPE_BYTES, Child, program
from tsbench.targets.base import Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.model import WriteMode

READY_POINTS = 8_192
"""Points that are kept encoded of each kind of write, as far as READY_BYTES allows."""
READY_WRITES = 16
"""Writes that are kept encoded of each kind at least, as far as READY_BYTES allows."""
READY_BYTES = 32 * 2**20
"""Encoded bytes that a process keeps, over all kinds; of each kind it always requests one burst."""
BURST_WRITES = 64
"""Writes that are unpacked at a time: that keeps the event loop busy for about 20 us, if they are small."""
READY_S = 600.0
"""Time limit for the encoder to start and to fill the queue, or for a user that waits for it, in seconds.

Before its first write it computes all that the bulk load has stored."""
END_S = 10.0
"""Time limit for an encoder that was killed, or that has closed its pipe, to end, in seconds."""


@dataclass(slots=True, eq=False)  # not frozen, as `Payload`
class Write:
    """One encoded write and its position."""

    payload: Payload
    stream: int
    block: int
    offset: int


class _Kind:
    """Encoded writes of one kind: those being taken, the burst after them, and bursts that are not unpacked yet."""

    __slots__ = (
        *("arrived", "burst_bytes", "bursts", "count", "ended", "following"),
        *("mode", "pending", "points", "size", "wanted", "writes"),
    )

    def __init__(self, points: int, mode: WriteMode) -> None:
        self.points, self.mode = points, mode
        self.wanted = max(READY_WRITES, READY_POINTS // points)
        self.size = min(BURST_WRITES, self.wanted // 8)
        self.writes: Iterator[Write] = iter(())
        self.following: Iterator[Write] | None = None
        self.bursts: deque[Frame] = deque()
        self.count = self.pending = self.burst_bytes = 0
        """Writes that are ready, bursts that were requested and have not come, and the size of the largest one."""
        self.ended = False
        self.arrived = Event()

    def unpack(self) -> Iterator[Write] | None:
        """Return the writes of the next burst. Each is made when it is taken: making all of them takes longer."""
        if self.following is not None:
            writes, self.following = self.following, None
            return writes
        if not self.bursts:
            return None
        burst: Burst = self.bursts.popleft().message
        columns = burst.measurements, burst.texts, burst.data, burst.counts, burst.sizes
        return map(Write, map(Payload, repeat(self.mode), *columns), burst.streams, burst.blocks, burst.offsets)

    def missing(self, most_bytes: int) -> int:
        """Return the number of bursts to request: none while seven eighths of the wanted writes are ready or requested.

        More at a time would save little, and keep a core busy for longer that the load process may need.
        """
        expected = self.count + self.pending * self.size
        if self.ended or expected > self.wanted - self.wanted // 8:
            return 0
        bursts = len(self.bursts) + self.pending
        room = most_bytes // self.burst_bytes - bursts if self.burst_bytes else 0
        return max(0 if bursts else 1, min(room, (self.wanted - expected) // self.size))


class PayloadQueue:
    """Writes of any kind (number of points and mode), encoded by a process of its own before they are taken.

    `encode_ns` is the time that the encoder took for what has arrived; it is in no op's latency. Memory is bounded by
    READY_BYTES, or one burst of each kind if those are larger.

    Parameters
    ----------
    job
        The writes; None of a process that has none.
    failed
        Callback, with the reason, if nothing more can be encoded.
    """

    def __init__(self, job: EncoderJob | None, failed: Callable[[str], None]) -> None:
        self.encode_ns = 0
        self._job, self._failed = job, failed
        self._kinds: dict[tuple[int, WriteMode], _Kind] = {}
        self._requested: deque[_Kind] = deque()
        """The kinds of the bursts that have not come, in their order."""
        self._loop = gevent.get_hub().loop
        self._inbox = Inbox()
        self._encoder: Child | None = None
        self._reader: gevent.Greenlet | None = None
        self._beginning = RLock()
        self._is_ready = self._is_closed = False

    # --- taking writes ------------------------------------------------------------------------------------------------

    def take(self, points: int, mode: WriteMode) -> Write | None:
        """Return the next write of `points` points if one is ready, else None.

        Raises
        ------
        UserMistake
            If a block cannot be divided into writes of this size without a remainder.
        """
        kind = self._kinds.get((points, mode)) or self._add_kind(points, mode)
        write = next(kind.writes, None)
        if write is None:
            writes = kind.unpack()
            if writes is None:
                self._request(kind)
                return None
            kind.writes, write = writes, next(writes)
            self._loop.run_callback(self._look_ahead, kind)  # after this write was sent
        kind.count -= 1
        return write

    def _look_ahead(self, kind: _Kind) -> None:
        """Unpack a burst before it is needed, and request more of them."""
        kind.following = kind.unpack()
        self._request(kind)

    def wait_for(self, points: int, mode: WriteMode) -> Write | None:
        """Wait until a write of this kind is ready and return it (fewer points at the very end); None at the end."""
        give_up = time.monotonic() + READY_S
        kind = self._kinds[points, mode]
        while not kind.ended or kind.pending:
            kind.arrived.clear()
            write = self.take(points, mode)
            if write is not None:
                return write
            if not kind.arrived.wait(timeout=give_up - time.monotonic()):
                self._end(f"the encoder made no write of {points} points within {READY_S:g} s")
        return self.take(points, mode)

    def has_made(self, points: int, mode: WriteMode) -> bool:
        """Return True if writes of this kind have been encoded before."""
        kind = self._kinds.get((points, mode))
        return kind is not None and kind.burst_bytes > 0

    @property
    def exhausted(self) -> bool:
        """True if all points were handed out, in writes of any kind, or nothing more can be encoded."""
        return all(kind.ended and not kind.count and not kind.pending for kind in self._kinds.values())

    def _add_kind(self, points: int, mode: WriteMode) -> _Kind:
        if self._job is None:
            raise UserMistake("there are no points to write: the run only asks the queries of a file")
        if self._job.block_points % points:
            text = f"writes of {points} points do not fit blocks of {self._job.block_points}"
            raise UserMistake(f"{text}; set block_points of the user class to a multiple of {points}")
        self.begin()
        kind = self._kinds.get((points, mode))  # added by another user while the encoder was started
        if kind is None:
            kind = self._kinds[points, mode] = _Kind(points, mode)
            kind.ended = self._is_closed
        return kind

    def _request(self, kind: _Kind) -> None:
        bursts = kind.missing(READY_BYTES // len(self._kinds))
        if bursts:
            kind.pending += bursts
            self._requested.extend(repeat(kind, bursts))
            self._send(WantedWrites(kind.points, kind.mode.value, kind.size, bursts))

    # --- the encoder --------------------------------------------------------------------------------------------------

    def prepare(self, kinds: Sequence[tuple[int, WriteMode]]) -> None:
        """Start the encoder, and block this process until enough writes of these kinds are ready.

        Without it, the encoder is started by `begin` or when the first write is taken: a process that only asks needs
        none.

        Raises
        ------
        Broken
            If the encoder fails or takes too long.
        """
        encoder = self._start()
        for points, mode in kinds:
            self._request(self._add_kind(points, mode))
        try:
            self._await(encoder)
        except Broken:
            self.close()
            raise
        self._listen(encoder)

    def _start(self) -> Child:
        encoder = self._encoder = Child(program("tsbench.drive.feed.encoder"), talk=True)
        self._send(self._job)
        return encoder

    def _listen(self, encoder: Child) -> None:
        self._loop.update_now()  # or timers that are set next would end too early by the time that this process waited
        make_nonblocking(encoder.incoming)
        self._reader = gevent.spawn(self._read, encoder)

    def begin(self) -> None:
        """Start the encoder of writes whose sizes nobody announced, unless it has been started.

        It takes half a second and more, so that it should not wait for the first write.
        """
        with self._beginning:
            if self._encoder is None and not self._is_closed:
                try:
                    self._listen(self._start())
                except OSError as error:
                    self._end(f"the encoder cannot be started: {error.strerror}")

    def _await(self, encoder: Child) -> None:
        give_up = time.monotonic() + READY_S
        select = get_original("select", "select")
        while not self._is_ready or any(kind.pending for kind in self._kinds.values()):
            readable, _, _ = select([encoder.incoming], [], [], max(0.0, give_up - time.monotonic()))
            if not readable:
                raise Broken(f"the encoder was not ready within {READY_S:g} s")
            self._receive(os.read(encoder.incoming, PIPE_BYTES), _raise)

    def _read(self, encoder: Child) -> None:
        while not self._is_closed:
            self._receive(nb_read(encoder.incoming, PIPE_BYTES), self._end)

    def _receive(self, piece: bytes, fail: Callable[[str], None]) -> None:
        if not piece:
            how = self._encoder.ended(within_s=END_S) if self._encoder is not None else ""
            fail("the encoder has ended" + (f" ({how})" if how else ""))
        for frame in self._inbox.add(piece):
            if frame.writes == READY:
                self._is_ready = True
            elif frame.writes == FAILED:
                fail(f"writes cannot be encoded: {frame.message}")
            else:
                self._add(frame)

    def _add(self, frame: Frame) -> None:
        kind = self._requested.popleft()
        kind.pending -= 1
        self.encode_ns += frame.encode_ns
        if frame.writes:
            kind.bursts.append(frame)
            kind.burst_bytes = max(kind.burst_bytes, len(frame.content))
            kind.count += frame.writes
            self._request(kind)
        else:
            kind.ended = True
        kind.arrived.set()

    def _send(self, message: EncoderJob | WantedWrites | None) -> None:
        if self._encoder is not None:
            with suppress(BrokenPipeError):  # it has ended: whoever reads finds its last message
                os.write(self._encoder.outgoing, framed(message))

    def _end(self, reason: str) -> None:
        """Stop handing out writes, and report the reason."""
        if not self._is_closed:
            self._stop()
            self._failed(reason)

    def _stop(self) -> None:
        self._is_closed = True
        for kind in self._kinds.values():
            kind.ended, kind.pending, kind.count = True, 0, 0
            kind.bursts.clear()
            kind.writes, kind.following = iter(()), None
            kind.arrived.set()

    def close(self) -> None:
        """End the encoder; writes that were not taken are lost."""
        self._stop()
        if self._reader is not None:
            self._reader.kill()
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            encoder.kill(within_s=END_S)
            encoder.close()


def _raise(reason: str) -> None:
    raise Broken(reason)
