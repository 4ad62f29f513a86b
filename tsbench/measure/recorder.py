"""Recording of one load process: histograms and counters per op and second, and the ledger of writes.

Ops are appended to flat buffers and aggregated with numpy once a second, so that recording costs about a microsecond
per op. Every flush goes to disk: a process that is killed loses its last second, never the run.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tsbench.measure.hist import Histogram, Interval, write_interval, write_log_head
from tsbench.model import Outcome, PartialWrite
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


TIMES = ("response", "service")
"""The times of an op. A tag in a log is `<op>|<time>`, or `<op>|<time>-undelayed` without this process's own delay."""
UNSENT = "|unsent"
"""Tag of arrivals whose ops had not ended when the run did: how long they had waited."""
_NUMBERS = 7
_BUFFERED = ("stream", "block", "offset", "points", "outcome")
"""Columns of the ledger that are kept of each write until the next flush; the others follow from them."""


class Observer(Protocol):
    """A receiver of everything that is written to the files, for displays while the run lasts."""

    def saw(self, tag: str, second: int, histogram: Histogram) -> None:
        """Receive the histogram of one second; the tag is the one in the log."""
        ...

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Receive an op's counters of one second, to be added to earlier ones."""
        ...


class _Op:
    """Buffers of one op since the last flush."""

    __slots__ = ("causes", "numbers")

    def __init__(self) -> None:
        self.numbers = array("q")
        """Seven per op: due, end and service time in ns, points, outcome, own delay of response and service in ns."""
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
        self.observer: Observer | None = None
        self._ops: dict[str, _Op] = defaultdict(_Op)
        self._ledger = array("q")
        self._in_part: dict[int, tuple[int, int]] = {}
        """Points acknowledged and refused of partial writes, by the write's index in the ledger's buffer."""
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
        outcome: Outcome = Outcome.OK,
        cause: str = "",
        delayed_ns: int = 0,
        unread_ns: int = 0,
    ) -> None:
        """Record an op that has ended; `points` is the number of acknowledged points.

        `delayed_ns` is the part of the response time that this process is known to have added, `unread_ns` the same
        part of the service time.
        """
        buffers = self._ops[name]
        buffers.numbers.extend((due_ns, end_ns, service_ns, points, outcome, delayed_ns, unread_ns))
        if outcome is not Outcome.OK:
            buffers.causes[end_ns // NS_PER_S, cause] += 1
        self.total += 1

    def unsent(self, due_ns: Iterable[int], ended_ns: int) -> None:
        """Record how long arrivals had waited at `ended_ns` whose ops had not ended; they would have taken longer."""
        due = np.fromiter(due_ns, dtype=np.int64)
        for second in np.unique(due // NS_PER_S).tolist():
            histogram = Histogram(ended_ns - due[due // NS_PER_S == second])
            write_interval(self._log, Interval(UNSENT, second, 1.0, histogram))

    def wrote(
        self,
        stream: int,
        block: int,
        offset: int,
        points: int,
        outcome: Outcome,
        error: Exception | None = None,
    ) -> None:
        """Append a write to the ledger; `error` is the exception that ended it, if any, perhaps a `PartialWrite`."""
        if error is not None and isinstance(error, PartialWrite):
            self._wrote_in_part((stream, block, offset), points, error)
        else:
            self._ledger.extend((stream, block, offset, points, outcome))

    def _wrote_in_part(self, place: tuple[int, int, int], points: int, error: PartialWrite) -> None:
        """Append one record; if the refused rows are known, one per sequence of rows with the same outcome."""
        stream, block, offset = place
        if not error.refused_rows:
            self._in_part[len(self._ledger) // len(_BUFFERED)] = error.acknowledged, error.refused
            self._ledger.extend((*place, points, Outcome.PARTIAL))
            return
        refused = np.isin(np.arange(points), error.refused_rows)
        edges = [0, *(np.flatnonzero(np.diff(refused)) + 1).tolist(), points]
        for start, stop in pairwise(edges):
            outcome = Outcome.FAILED if refused[start] else Outcome.OK
            self.wrote(stream, block, offset + start, stop - start, outcome)

    def flush(self) -> None:
        """Aggregate the buffers and append the result to the files."""
        ops, self._ops = self._ops, defaultdict(_Op)
        for name, buffers in ops.items():
            self._flush_op(name, buffers)
        self._flush_ledger()
        for file in (self._log, self._counters, self._writes):
            file.flush()

    def _flush_ledger(self) -> None:
        if not self._ledger:
            return
        rows = np.frombuffer(self._ledger, dtype=np.int64).reshape(-1, len(_BUFFERED))
        packed = np.empty(len(rows), dtype=LEDGER_DTYPE)
        for column, key in enumerate(_BUFFERED):
            packed[key] = rows[:, column]
        for key, outcome in (("acknowledged", Outcome.OK), ("refused", Outcome.FAILED)):
            packed[key] = np.where(packed["outcome"] == outcome, packed["points"], 0)
        for row, counts in self._in_part.items():
            packed["acknowledged"][row], packed["refused"][row] = counts
        self._writes.write(packed.tobytes())
        del rows  # an array cannot be emptied while a view of it lives
        self._ledger, self._in_part = array("q"), {}

    def _flush_op(self, name: str, buffers: _Op) -> None:
        numbers = np.frombuffer(buffers.numbers, dtype=np.int64)
        due_ns, end_ns, service_ns, points, outcome, delayed_ns, unread_ns = numbers.reshape(-1, _NUMBERS).T
        response_ns = end_ns - due_ns
        times = {
            "response": response_ns,
            "service": service_ns,
            "response-undelayed": response_ns - delayed_ns,
            "service-undelayed": service_ns - unread_ns,
        }
        due_s, end_s = due_ns // NS_PER_S, end_ns // NS_PER_S
        for second in np.unique(due_s).tolist():
            chosen = due_s == second
            for kind, values in times.items():
                tag, histogram = f"{name}|{kind}", Histogram(values[chosen])
                write_interval(self._log, Interval(tag, second, 1.0, histogram))
                if self.observer is not None and kind in TIMES:
                    self.observer.saw(tag, second, histogram)
            self._count(name, second, count=int(chosen.sum()))
        for second in np.unique(end_s).tolist():
            chosen = end_s == second
            self._count(
                name,
                second,
                done=int(chosen.sum()),
                failed=int((outcome[chosen] == Outcome.FAILED).sum()),
                unknown=int((outcome[chosen] == Outcome.UNKNOWN).sum()),
                partial=int((outcome[chosen] == Outcome.PARTIAL).sum()),
                points=int(points[chosen].sum()),
                causes={cause: n for (at, cause), n in buffers.causes.items() if at == second},
            )

    def _count(self, name: str, second: int, **counts: Any) -> None:
        if self.observer is not None:
            self.observer.counted(name, second, counts)
        self._counters.write(json.dumps({"op": name, "second": second, **counts}) + "\n")

    def close(self) -> None:
        """Flush and close the files."""
        self.flush()
        for file in (self._log, self._counters, self._writes):
            file.close()
