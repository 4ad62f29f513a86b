"""A monitor of the load process itself: the lateness of its event loop, and the CPU of that loop's thread."""

from __future__ import annotations

import json
import time
from array import array
from typing import TYPE_CHECKING

import gevent

from tsbench.measure.hist import Interval, SparseHistogram, write_interval, write_log_head
from tsbench.measure.recorder import nothing
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.drive.cluster.clocks import Timebase
    from tsbench.drive.webui.live_figures import Updates

PERIOD_S = 0.005
"""Period at which the event loop's lateness is sampled; 200 samples a second cost about 1 % of a core."""


class LoopMonitor:
    """Samples until it is killed; `flush` writes the samples, by epoch second.

    Only the event loop's thread counts as its CPU: threads of a pool in which an embedded database works are the
    database's time, not the load generator's.
    """

    def __init__(self, directory: Path, process: str, timebase: Timebase) -> None:
        self.observer: Updates | None = None
        """Receives everything that is written, too."""
        self._timebase = timebase
        self._log = (directory / "process" / f"{process}.self.hlog").open("w", encoding="utf-8")
        self._cpu = (directory / "process" / f"{process}.cpu.jsonl").open("w", encoding="utf-8")
        write_log_head(self._log, start_s=timebase.now_ns() / 1e9)
        self._lags: dict[int, array[int]] = {}
        self._waits: dict[int, array[int]] = {}
        self._mark = self._second(), time.thread_time_ns(), time.perf_counter_ns()
        self._used: list[tuple[int, int, int]] = []
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            asked_ns = time.perf_counter_ns()
            gevent.sleep(PERIOD_S)
            now_ns = time.perf_counter_ns()
            lag_ns = max(0, now_ns - asked_ns - int(PERIOD_S * 1e9))
            second = self._second()
            if second != self._mark[0]:
                self._end_second()
            self._lags.setdefault(second, array("q")).append(lag_ns)

    def _second(self) -> int:
        return self._timebase.now_ns() // NS_PER_S

    def _end_second(self) -> None:
        """Record the use of the second that has ended, so that a window of whole seconds has only its own.

        Work before the window (making payloads, collecting tables) keeps a core busy but is not part of the load.
        """
        second, cpu_ns, wall_ns = self._mark
        self._mark = self._second(), time.thread_time_ns(), time.perf_counter_ns()
        self._used.append((second, self._mark[1] - cpu_ns, self._mark[2] - wall_ns))

    def waited(self, wait_ns: int) -> None:
        """Record how long an op waited for a thread of the pool."""
        self._waits.setdefault(self._second(), array("q")).append(wait_ns)

    def flush(self, pause: Callable[[], object] = nothing) -> None:
        """Append the samples since the last flush. Call it from the event loop's thread, about once a second.

        `pause` is called after each part of the work; if it raises, the next flush writes the rest.
        """
        for tag, seen in (("lag", self._lags), ("wait", self._waits)):
            for second in sorted(seen):
                histogram = SparseHistogram.recorded(seen.pop(second))
                write_interval(self._log, Interval(tag, second, 1.0, histogram))
                if self.observer is not None:
                    self.observer.saw(tag, second, histogram)
                pause()
        for second, cpu_ns, wall_ns in self._used:
            self._cpu.write(json.dumps({"second": second, "cpu_ns": cpu_ns, "wall_ns": wall_ns}) + "\n")
            if self.observer is not None:
                self.observer.used(second, cpu_ns, wall_ns)
        self._used.clear()
        self._log.flush()
        self._cpu.flush()

    def close(self) -> None:
        """Stop sampling, flush, close the files."""
        self._greenlet.kill()
        self._end_second()
        self.flush()
        self._log.close()
        self._cpu.close()
