"""The encoder process of a load process: it generates points and encodes writes, outside the load process's event loop.

A thread would share the interpreter's lock with the event loop: while one encoded blocks of 10,000 points for SQLite,
the loop woke up 5 ms late (median), and a busy loop would in turn hold up the encoder.

Both processes exchange frames, through the standard input and output of the encoder:

    load process   Job        the first frame
    encoder        READY      all is imported
    load process   Wanted     encode the next writes of one kind
    encoder        Burst      the writes, as many bursts as were wanted; or FAILED with the reason

Everything is encoded in the order of the requests, by one process. So a stream is cut in one way only: into blocks of
`block_points` rows, numbered from the end of the bulk load; a write is some rows of one block. (stream, block, offset,
points) therefore identifies a write's points for good: the ledger keeps these numbers, and the audit regenerates the
points from them.
"""

from __future__ import annotations

import copyreg
import gc
import io
import os
import pickle
import struct
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tsbench.errors import one_line
from tsbench.model import WriteMode
from tsbench.servers.children import PIPE_BYTES, standard_pipes
from tsbench.targets import registry
from tsbench.workload.world import World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tsbench.model import Batch
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Payload, Schema

BURST_BYTES = 256 * 1024
"""Size at which a burst ends; it has one write at least."""
STREAMS_AT_ONCE = 8
"""Most streams of which blocks are begun, each encoded as a whole; others begin when one of these has ended."""
SENT_BYTES = 32 * 1024
"""Size of several bursts at which they are sent; a pipe holds twice as much, or more."""


class EncoderJob(NamedTuple):
    """What a load process writes after the bulk load: blocks of its own `streams`, from number `first_block` on.

    It has no more of the run's specification, whose classes take half a second to import.
    """

    target: str
    schema: str
    world: WorldSpec
    streams: tuple[int, ...]
    block_points: int
    first_tick: int
    last_tick: int | None = None
    first_block: int = 0
    by_time: bool = False

    @classmethod
    def of(cls, spec: RunSpec, world: World, schema: str, streams: Sequence[int]) -> EncoderJob:
        """Return that of some streams of a run's world."""
        first, last = spec.write_ticks(world)
        size, begin, by_time = spec.block_points, spec.first_block, spec.drive.arrivals == "recorded"
        return cls(spec.target.name, schema, world.spec, tuple(streams), size, first, last, begin, by_time)


class WantedWrites(NamedTuple):
    """A request for the next writes of one kind: `bursts` bursts of at most `most` writes."""

    points: int
    mode: str
    most: int
    bursts: int


class Burst(NamedTuple):
    """The next encoded writes of one kind, by columns: the place of each, and its payload.

    Without any write, the streams have ended.
    """

    streams: Sequence[int] = ()
    blocks: Sequence[int] = ()
    offsets: Sequence[int] = ()
    measurements: Sequence[str] = ()
    texts: Sequence[str] = ()
    data: Sequence[Any] = ()
    counts: Sequence[int] = ()
    sizes: Sequence[int] = ()


# --- frames -----------------------------------------------------------------------------------------------------------

READY, FAILED = -1, -2
"""Instead of a number of writes: the encoder has started; nothing more is encoded, and the content is the reason."""
_HEAD = struct.Struct("<qqq")


class Frame(NamedTuple):
    """One message: the pickled content, the number of writes in it, and how long encoding them took."""

    content: bytes
    writes: int = 0
    encode_ns: int = 0

    @property
    def message(self) -> Any:
        """The content; unpickling 64 small writes takes about 10 us."""
        return pickle.loads(self.content)  # noqa: S301 - from our own child or parent


def framed(message: Any, writes: int = 0, encode_ns: int = 0) -> bytes:
    """Return a message as bytes for the pipe."""
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(message)
    content = out.getbuffer()
    return b"".join((_HEAD.pack(len(content), writes, encode_ns), content))


class _Pickler(pickle.Pickler):
    """A pickler that also takes memoryviews, which some encoders return, as bytes."""

    dispatch_table: ClassVar[dict[type, Any]] = {  # type: ignore[misc]
        **copyreg.dispatch_table,
        memoryview: lambda view: (bytes, (bytes(view),)),
    }


class Inbox:
    """Joins the pieces that are read from a pipe to frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def add(self, piece: bytes) -> list[Frame]:
        """Add a piece and return the frames that are complete now."""
        self._received += piece
        frames, start = [], 0
        while len(self._received) - start >= _HEAD.size:
            length, writes, encode_ns = _HEAD.unpack_from(self._received, start)
            end = start + _HEAD.size + length
            if len(self._received) < end:
                break
            with memoryview(self._received) as received:
                frames.append(Frame(bytes(received[start + _HEAD.size : end]), writes, encode_ns))
            start = end
        del self._received[:start]
        return frames


# --- encoding ---------------------------------------------------------------------------------------------------------


class _Block:
    """The writes of one block that have not been sent, and the position of the first of them."""

    def __init__(self, stream: int, number: int, batch: Batch, points: int, payloads: Iterator[Payload]) -> None:
        self.stream, self.number = stream, number
        self._measurement, self._times_ns = batch.measurement.name, batch.time_ns
        self._points, self._payloads = points, payloads
        self._offset = 0

    @property
    def next_ns(self) -> int:
        """Time of the next write's first point."""
        return int(self._times_ns[self._offset])

    @property
    def has_begun(self) -> bool:
        return self._offset > 0

    @property
    def has_ended(self) -> bool:
        return self._offset >= len(self._times_ns)

    def take(self, most: int, burst: list[tuple[Any, ...]], left_bytes: int) -> int:
        """Append at most `most` writes to a burst with room for `left_bytes`, and return the room that it has then."""
        for payload in islice(self._payloads, most):
            place = self.stream, self.number, self._offset, self._measurement
            burst.append((*place, payload.text, payload.data, payload.points, payload.nbytes))
            self._offset += self._points
            left_bytes -= payload.nbytes
            if left_bytes <= 0:
                break
        return left_bytes


class WriteStreams:
    """The writes of a load process's streams, which take turns; every block becomes writes of one kind.

    Each burst is of another stream than the one before: with a stream's whole block in one go, a run of some thousand
    points wrote those of an eighth of all series. `by_time`, each write is of the stream whose next point is the
    earliest, as a recording that is replayed has them.
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
        first_block: int = 0,
        by_time: bool = False,
    ) -> None:
        self._schema, self._by_time = schema, by_time
        self._streams: deque[tuple[int, Iterator[tuple[int, Batch]]]] = deque(
            (stream, enumerate(world.batches(stream, points=block_points, first_tick=first_tick, last_tick=last_tick)))
            for stream in streams
        )
        for _, blocks in self._streams:  # those that runs before wrote, four million rows a second
            deque(islice(blocks, first_block), maxlen=0)
        self._begun: dict[tuple[int, WriteMode], deque[_Block]] = {}

    @classmethod
    def of(cls, job: EncoderJob) -> WriteStreams:
        """Return the writes of a job."""
        return cls(
            World(job.world),
            registry.get(job.target).schemas[job.schema],
            job.streams,
            block_points=job.block_points,
            first_tick=job.first_tick,
            last_tick=job.last_tick,
            first_block=job.first_block,
            by_time=job.by_time,
        )

    def next(self, points: int, mode: WriteMode, most: int) -> Burst:
        """Return the next writes of a kind, at most `most`; none if the streams have ended."""
        begun = self._begun.setdefault((points, mode), deque())
        burst: list[tuple[Any, ...]] = []
        left_bytes = BURST_BYTES
        while len(burst) < most and left_bytes > 0 and (self._by_time or not burst):
            block = self._next_turn(points, mode, begun)
            if block is None:
                break
            left_bytes = block.take(1 if self._by_time else most, burst, left_bytes)
            if not block.has_ended:
                begun.append(block)
        return Burst(*zip(*burst, strict=True))

    def _next_turn(self, points: int, mode: WriteMode, begun: deque[_Block]) -> _Block | None:
        """Return the block that writes next, which is taken out of those begun; None if the streams have ended."""
        if not self._by_time:
            if len(begun) < STREAMS_AT_ONCE:
                begun.extendleft(self._next_block(points, mode, {block.stream for block in begun}))
            return begun.popleft() if begun else None
        # Blocks come in the order of their first times: of each stream the first one that has written nothing is here.
        while len(ahead := {block.stream for block in begun if not block.has_begun}) < len(self._streams):
            begun.extend(self._next_block(points, mode, ahead))
        block = min(begun, key=attrgetter("next_ns"), default=None)
        if block is not None:
            begun.remove(block)
        return block

    def _next_block(self, points: int, mode: WriteMode, taken: set[int]) -> Iterator[_Block]:
        """Yield the next block of the first stream that is not `taken`, if any stream has one."""
        for _ in range(len(self._streams)):
            stream, blocks = self._streams[0]
            self._streams.rotate(-1)
            if stream in taken:
                continue
            number, batch = next(blocks, (-1, None))
            if batch is not None:
                yield _Block(stream, number, batch, points, self._schema.encode_each(batch, points, mode))
                return
            self._streams.pop()  # the one that has ended, which is the last one now


# --- the process ------------------------------------------------------------------------------------------------------


def serve(incoming: int, outgoing: int) -> None:
    """Encode what the load process requests, until it closes its end or something fails."""
    inbox, streams = Inbox(), None
    while piece := os.read(incoming, PIPE_BYTES):
        for frame in inbox.add(piece):
            try:
                if streams is None:
                    streams = _begin(frame.message)
                    _send(outgoing, framed(None, READY))
                else:
                    _answer(streams, frame.message, outgoing)
            except Exception as error:  # noqa: BLE001 - an encoder's error ends the run, with its text as the reason
                _send(outgoing, framed(f"{type(error).__name__}: {one_line(error)}", FAILED))
                return


def _begin(job: EncoderJob) -> WriteStreams:
    streams = WriteStreams.of(job)
    gc.collect()
    gc.freeze()
    return streams


def _answer(streams: WriteStreams, wanted: WantedWrites, outgoing: int) -> None:
    """Send bursts, several in one message, since each message takes the load process 15 us."""
    ready: list[bytes] = []
    for left in reversed(range(wanted.bursts)):
        started_ns = time.perf_counter_ns()
        burst = streams.next(wanted.points, WriteMode(wanted.mode), wanted.most)
        ready.append(framed(burst, len(burst.data), time.perf_counter_ns() - started_ns))
        if not left or sum(map(len, ready)) >= SENT_BYTES:
            _send(outgoing, b"".join(ready))
            ready.clear()


def _send(outgoing: int, content: bytes) -> None:
    with memoryview(content) as whole:
        sent = 0
        while sent < len(whole):
            sent += os.write(outgoing, whole[sent:])


def _yield_to_others() -> None:
    """Take no core from a process that runs: the queue lasts longer than the encoder must then wait.

    On two cores the client and a database each fill one, and sent 5 % more requests a second with that.
    """
    with suppress(AttributeError, OSError):  # only Linux has it, and a container may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Serve the load process that started this one; its end is this one's, too."""
    _yield_to_others()
    with suppress(BrokenPipeError):
        serve(*standard_pipes())
