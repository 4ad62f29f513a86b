"""Keeps what happened in one load process: histograms and counters per op and second, and the ledger of writes.

Ops are appended to flat buffers and folded with numpy once a second, so that recording costs about a microsecond an op.
Every flush goes to disk: a process that is killed loses what it did in its last second, never the run.
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
    from collections.abc import Mapping
    from pathlib import Path


_BUFFERED = ("stream", "block", "offset", "points", "outcome")
"""What is kept of each write until the next flush; the rest follows from it, but for writes refused in part."""


class Observer(Protocol):
    """Sees what goes to the files as it goes there, so that it can be shown while the run lasts."""

    def saw(self, tag: str, second: int, histogram: Histogram) -> None:
        """A histogram of a second; the tag is the one in the log."""
        ...

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Counters of an op in a second, to be added up."""
        ...


class _Op:
    """Buffers of one op since the last flush."""

    __slots__ = ("causes", "numbers")

    def __init__(self) -> None:
        self.numbers = array("q")
        """Five of each op: due, end and service time in ns, points, outcome."""
        self.causes: Counter[tuple[int, str]] = Counter()


class Recorder:
    """What one process did. Times are epoch nanoseconds; `process` names its files in the run directory.

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
        """Points acknowledged and refused, by the place in the ledger's buffer of the write."""
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
    ) -> None:
        """Record an op that has ended. `points` are the acknowledged ones."""
        buffers = self._ops[name]
        buffers.numbers.extend((due_ns, end_ns, service_ns, points, outcome))
        if outcome is not Outcome.OK:
            buffers.causes[end_ns // NS_PER_S, cause] += 1
        self.total += 1

    def wrote(
        self,
        stream: int,
        block: int,
        offset: int,
        points: int,
        outcome: Outcome,
        error: Exception | None = None,
    ) -> None:
        """Enter a write into the ledger; `error` is what it ended with, which may be a `PartialWrite`."""
        if error is not None and isinstance(error, PartialWrite):
            self._wrote_in_part((stream, block, offset), points, error)
        else:
            self._ledger.extend((stream, block, offset, points, outcome))

    def _wrote_in_part(self, place: tuple[int, int, int], points: int, error: PartialWrite) -> None:
        """Enter one record, or where the refused rows are known, one per run of rows that ended the same way."""
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
        """Fold the buffers and append them to the files."""
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
        due_ns, end_ns, service_ns, points, outcome = numbers.reshape(-1, 5).T
        due_s, end_s = due_ns // NS_PER_S, end_ns // NS_PER_S
        for second in np.unique(due_s).tolist():
            chosen = due_s == second
            for kind, values in (("response", (end_ns - due_ns)[chosen]), ("service", service_ns[chosen])):
                tag, histogram = f"{name}|{kind}", Histogram(values)
                write_interval(self._log, Interval(tag, second, 1.0, histogram))
                if self.observer is not None:
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
