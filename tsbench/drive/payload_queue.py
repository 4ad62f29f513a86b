"""A queue of encoded writes from this process's streams, with each write's position in its stream.

A stream is cut into blocks of `block_points` rows, numbered from the end of the bulk load; a write is some rows of one
block. (stream, block, offset, points) therefore identifies a write's points for good: the ledger keeps these numbers,
and the audit regenerates the points from them.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.model import WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tsbench.model import Batch
    from tsbench.targets.base import Payload, Schema
    from tsbench.workload.world import World


@dataclass(slots=True, eq=False)  # not frozen, as `Payload`
class Write:
    """One encoded write and its position."""

    payload: Payload
    stream: int
    block: int
    offset: int


class _Ready:
    """Encoded writes of one kind, block by block."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._blocks: deque[Iterator[Write]] = deque()

    def add(self, writes: Iterator[Write], count: int) -> None:
        self._blocks.append(writes)
        self.count += count

    def take(self) -> Write:
        while True:
            write = next(self._blocks[0], None)
            if write is not None:
                self.count -= 1
                return write
            self._blocks.popleft()


class PayloadQueue:
    """A queue of writes of any size, taken in turn from the process's streams.

    Payloads are made a block at a time; that time is added up in `encode_ns` and is in no op's latency.
    """

    def __init__(
        self,
        world: World,
        schema: Schema,
        streams: Sequence[int],
        *,
        block_points: int,
        first_tick: int,
        last_tick: int | None = None,
    ) -> None:
        self.encode_ns = 0
        self._schema = schema
        self._block_points = block_points
        self._blocks: deque[tuple[int, Iterator[tuple[int, Batch]]]] = deque(
            (stream, enumerate(world.batches(stream, points=block_points, first_tick=first_tick, last_tick=last_tick)))
            for stream in streams
        )
        self._ready: dict[tuple[int, WriteMode], _Ready] = defaultdict(_Ready)

    def take(self, points: int, mode: WriteMode) -> Write | None:
        """Return the next write of `points` points (fewer at the very end of a bounded stream); None at the end.

        Raises
        ------
        UserMistake
            If a block cannot be divided into writes of this size without a remainder.
        """
        ready = self._ready[points, mode]
        if not ready.count:
            if self._block_points % points:
                text = f"writes of {points} points do not fit blocks of {self._block_points}"
                raise UserMistake(f"{text}; set block_points of the user class to a multiple of {points}")
            self._refill(ready, points, mode)
        return ready.take() if ready.count else None

    @property
    def exhausted(self) -> bool:
        """True if all points were handed out, in writes of any size."""
        return not self._blocks and not any(ready.count for ready in self._ready.values())

    def prepare(self, points: int, mode: WriteMode, count: int) -> None:
        """Encode ahead until `count` writes of this kind are ready (or the streams end)."""
        ready = self._ready[points, mode]
        while ready.count < count and self._refill(ready, points, mode):
            pass

    def _refill(self, ready: _Ready, points: int, mode: WriteMode) -> bool:
        started = time.perf_counter_ns()
        try:
            while self._blocks:
                stream, blocks = self._blocks[0]
                number, batch = next(blocks, (-1, None))
                if batch is None:
                    self._blocks.popleft()
                    continue
                self._blocks.rotate(-1)
                writes, count = self._cut(stream, number, batch, points, mode)
                ready.add(writes, count)
                return True
            return False
        finally:
            self.encode_ns += time.perf_counter_ns() - started

    def _cut(self, stream: int, block: int, batch: Batch, points: int, mode: WriteMode) -> tuple[Iterator[Write], int]:
        if mode is WriteMode.SINGLE:
            singles = enumerate(self._schema.encode_singles(batch))
            return (Write(payload, stream, block, offset) for offset, payload in singles), len(batch)
        found = [
            Write(self._schema.encode(batch.rows(offset, offset + points), mode), stream, block, offset)
            for offset in range(0, len(batch), points)
        ]
        return iter(found), len(found)
