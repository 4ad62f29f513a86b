"""Recording of one load process: histograms and counters per op and second, and the ledger of writes.

Ops are appended to flat buffers and aggregated with numpy once a second, so that recording costs about a microsecond
per op. Every flush goes to disk: a process that is killed loses its last second, never the run.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict, deque
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tsbench.measure.hist import Interval, SparseHistogram, write_interval, write_log_head
from tsbench.model import Outcome, PartialWrite
from tsbench.net.stamps import READ, STAMPED, STEPPED
from tsbench.results.ledger import LEDGER_RECORD
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


TIMES = ("response", "service")
"""The times of an op. A tag in a log is `<op>|<time>`, or `<op>|response-undelayed`: had it been sent in time."""
LATENESS = "lateness"
"""How late ops were sent, of those that were noticeably late: `<op>|lateness`."""
FIRST_BYTES, CONVERTED = "first-bytes", "converted"
"""From an op's send until a large answer began to arrive, and until its values were Python's: `<op>|<time>`."""
UNSENT = "|unsent"
"""Tag of arrivals whose ops had not ended when the run did: how long they had waited."""
_NUMBERS = 7
_pack_op = struct.Struct(f"={_NUMBERS}q").pack  # into bytes: half the time of extending an array
_pack_write = LEDGER_RECORD.pack
_OK = Outcome.OK  # a member of an enum takes 0.1 us to look up


NOTICEABLE_NS = 10_000
"""Shorter delays by this process are not subtracted: most ops have some, and no figure shows a difference."""


def nothing() -> None:
    """Do nothing: the pause of a flush that nobody waits for."""


class Observer(Protocol):
    """A receiver of everything that is written to the files, for displays while the run lasts."""

    def saw(self, tag: str, second: int, histogram: SparseHistogram) -> None:
        """Receive the histogram of one second; the tag is the one in the log."""
        ...

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Receive an op's counters of one second, to be added to earlier ones."""
        ...


class _Op:
    """Buffers of one op since the last flush."""

    __slots__ = ("causes", "numbers")

    def __init__(self) -> None:
        self.numbers = bytearray()
        """Seven of 8 bytes per op: due, end and service time, points, outcome, own delay, source of the end."""
        self.causes: Counter[tuple[int, str]] = Counter()


class Recorder:
    """Records the ops and writes of one process. Times are epoch nanoseconds; `process` names its files.

    The files are in the directories `latency` and `process` of the run directory.

    Raises
    ------
    OSError
        From `flush`, if the disk is full.
    """

    def __init__(self, directory: Path, process: str, *, start_ns: int) -> None:
        self.total = 0
        """How many ops have been recorded, up to the last flush."""
        self.ended_ns = 0
        """End of the last of them, epoch ns."""
        self.observer: Observer | None = None
        self._ops: dict[str, _Op] = defaultdict(_Op)
        self._unwritten: deque[Callable[[], None]] = deque()
        self._ledger = bytearray()
        self._log = (directory / "latency" / f"{process}.hlog").open("w", encoding="utf-8")
        self._counters = (directory / "process" / f"{process}.ops.jsonl").open("w", encoding="utf-8")
        self._writes = (directory / "process" / f"{process}.ledger").open("wb")
        write_log_head(self._log, start_s=start_ns / NS_PER_S)

    def op(
        self,
        name: str,
        due_ns: int,
        end_ns: int,
        service_ns: int,
        points: int = 0,
        outcome: Outcome = _OK,
        cause: str = "",
        delayed_ns: int = 0,
        source: int = STAMPED,
    ) -> None:
        """Record an op that has ended; `points` is the number of acknowledged points.

        `delayed_ns` is how late this process sent it, `source` how its end is known (`net.stamps`).
        """
        buffers = self._ops[name]
        buffers.numbers += _pack_op(due_ns, end_ns, service_ns, points, outcome, delayed_ns, source)
        if outcome is not _OK:
            buffers.causes[end_ns // NS_PER_S, cause] += 1

    def large_answer(self, name: str, due_ns: int, first_ns: int | None, converted_ns: int) -> None:
        """Record how long after its send an op's large answer began to arrive (None: not known) and was Python's."""
        for tag, taken_ns in ((FIRST_BYTES, first_ns), (CONVERTED, converted_ns)):
            if taken_ns is not None:
                self._log_times(f"{name}|{tag}", due_ns // NS_PER_S, np.array([taken_ns]))

    def unsent(self, due_ns: Iterable[int], ended_ns: int) -> None:
        """Record how long arrivals whose ops have not ended have waited until `ended_ns`: at least that."""
        due = np.fromiter(due_ns, dtype=np.int64)
        for second in np.unique(due // NS_PER_S).tolist():
            histogram = SparseHistogram.recorded(ended_ns - due[due // NS_PER_S == second])
            write_interval(self._log, Interval(UNSENT, second, 1.0, histogram))

    def wrote(
        self,
        stream: int,
        block: int,
        offset: int,
        points: int,
        outcome: Outcome,
        error: Exception | None = None,
        sent_ns: int = 0,
        ended_ns: int = 0,
    ) -> None:
        """Append a write to the ledger; `error` is the exception that ended it, if any, perhaps a `PartialWrite`.

        `sent_ns` and `ended_ns` are the times (0: unknown) between which its points became visible.
        """
        if outcome is _OK:
            self._ledger += _pack_write(stream, block, offset, points, points, 0, 0, sent_ns, ended_ns)
            return
        if isinstance(error, PartialWrite):
            self._wrote_in_part((stream, block, offset), points, error, (sent_ns, ended_ns))
            return
        acknowledged, refused = 0, points if outcome is Outcome.FAILED else 0
        self._ledger += _pack_write(stream, block, offset, points, acknowledged, refused, outcome, sent_ns, ended_ns)

    def _wrote_in_part(
        self, place: tuple[int, int, int], points: int, error: PartialWrite, times_ns: tuple[int, int]
    ) -> None:
        """Append one record; if the refused rows are known, one per sequence of rows with the same outcome."""
        stream, block, offset = place
        if not error.refused_rows:
            fate = points, error.acknowledged, error.refused, Outcome.PARTIAL
            self._ledger += _pack_write(*place, *fate, *times_ns)
            return
        refused = np.isin(np.arange(points), error.refused_rows)
        edges = [0, *(np.flatnonzero(np.diff(refused)) + 1).tolist(), points]
        for start, stop in pairwise(edges):
            outcome = Outcome.FAILED if refused[start] else Outcome.OK
            self.wrote(stream, block, offset + start, stop - start, outcome, None, *times_ns)

    def flush(self, pause: Callable[[], object] = nothing) -> None:
        """Aggregate the buffers and append the result to the files.

        `pause` is called after each part of the work, so that others may run: one op's histograms of a second take up
        to half a millisecond. If it raises, the next flush writes the rest.
        """
        ops, self._ops = self._ops, defaultdict(_Op)
        for name, buffers in ops.items():
            self._unwritten.extend(self._parts(name, buffers))
        self._writes.write(self._ledger)
        self._ledger = bytearray()
        while self._unwritten:
            self._unwritten.popleft()()
            pause()
        for file in (self._log, self._counters, self._writes):
            file.flush()

    def _parts(self, name: str, buffers: _Op) -> Iterator[Callable[[], None]]:
        """Yield the parts of the work on an op's buffers."""
        numbers = np.frombuffer(buffers.numbers, dtype=np.int64)
        columns = np.ascontiguousarray(numbers.reshape(-1, _NUMBERS).T)
        self.total += columns.shape[1]
        due_ns, end_ns, service_ns, points, outcome, delayed_ns, source = columns
        self.ended_ns = max(self.ended_ns, int(end_ns.max()))
        response_ns = end_ns - due_ns
        due_s, end_s = due_ns // NS_PER_S, end_ns // NS_PER_S
        for second, chosen in _by_second(due_s):
            yield partial(self._log_responses, name, second, response_ns[chosen], delayed_ns[chosen])
            yield partial(self._log_times, f"{name}|service", second, service_ns[chosen])
            yield partial(self._count, name, second, count=len(due_s[chosen]))
        for second, chosen in _by_second(end_s):
            yield partial(
                self._count,
                name,
                second,
                done=len(end_s[chosen]),
                failed=int((outcome[chosen] == Outcome.FAILED).sum()),
                unknown=int((outcome[chosen] == Outcome.UNKNOWN).sum()),
                partial=int((outcome[chosen] == Outcome.PARTIAL).sum()),
                points=int(points[chosen].sum()),
                read=int((source[chosen] == READ).sum()),
                stepped=int((source[chosen] == STEPPED).sum()),
                causes={cause: n for (at, cause), n in buffers.causes.items() if at == second},
            )

    def _log_responses(self, name: str, second: int, times_ns: NDArray[np.int64], delays_ns: NDArray[np.int64]) -> None:
        without = f"{name}|response-undelayed"
        if delays_ns.max() < NOTICEABLE_NS:
            self._log_times(f"{name}|response", second, times_ns, also=[without])
            return
        self._log_times(f"{name}|response", second, times_ns)
        is_late = delays_ns >= NOTICEABLE_NS
        undelayed = times_ns - np.where(is_late, delays_ns, 0)
        write_interval(self._log, Interval(without, second, 1.0, SparseHistogram.recorded(undelayed)))
        self._log_times(f"{name}|{LATENESS}", second, delays_ns[is_late])

    def _log_times(self, tag: str, second: int, times_ns: NDArray[np.int64], also: Sequence[str] = ()) -> None:
        interval = Interval(tag, second, 1.0, SparseHistogram.recorded(times_ns))
        write_interval(self._log, interval, also=also)
        if self.observer is not None:
            self.observer.saw(tag, second, interval.histogram)

    def _count(self, name: str, second: int, **counts: Any) -> None:
        if self.observer is not None:
            self.observer.counted(name, second, counts)
        self._counters.write(json.dumps({"op": name, "second": second, **counts}) + "\n")

    def close(self) -> None:
        """Flush and close the files."""
        self.flush()
        for file in (self._log, self._counters, self._writes):
            file.close()


def _by_second(seconds: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.bool_] | slice]]:
    """Yield each second that occurs, and the choice of its places; almost always all are of one or two seconds."""
    first, last = int(seconds.min()), int(seconds.max())
    if first == last:
        yield first, slice(None)
        return
    for second in np.unique(seconds).tolist():
        yield second, seconds == second
