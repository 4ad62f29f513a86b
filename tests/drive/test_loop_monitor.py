"""Every second has the CPU that was used in it, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import gevent
import gevent.socket
import pytest
from gevent.queue import Queue

from tsbench.drive import loop_monitor
from tsbench.drive.loop_monitor import LoopMonitor
from tsbench.measure.merge import observation

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
START_S = 1_700_000_000


class Clocks:
    """Clocks that the test sets, in place of the module `time` and of the time that processes share."""

    def __init__(self) -> None:
        self.wall_ns = self.cpu_ns = 0

    def perf_counter_ns(self) -> int:
        return self.wall_ns

    def thread_time_ns(self) -> int:
        return self.cpu_ns

    def now_ns(self) -> int:
        return START_S * 1_000 * MS + self.wall_ns


def test_work_before_the_window_is_not_the_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "process").mkdir()
    clocks, asleep, ticks = Clocks(), Queue[None](), Queue[None]()

    def sleep(_seconds: float) -> None:
        asleep.put(None)
        ticks.get()

    monkeypatch.setattr(loop_monitor, "time", clocks)
    sleeping = SimpleNamespace(get_hub=gevent.get_hub, spawn=gevent.spawn, sleep=sleep)
    monkeypatch.setattr(loop_monitor, "gevent", sleeping)
    probe = LoopMonitor(tmp_path, "load-0", clocks)  # type: ignore[arg-type]
    for tick in range(420):  # 2.1 s
        asleep.get()
        clocks.wall_ns += 5 * MS
        clocks.cpu_ns += 4 * MS if tick < 190 else MS // 10  # busy until 0.95 s
        if tick == 395:
            probe.flush()  # in the middle of a second, as a process's flusher does
        ticks.put(None)
    asleep.get()
    probe.close()

    shares = [
        observation(tmp_path, "load-0", start_s=second, end_s=second + 1).evidence.hub_cpu_share
        for second in (START_S, START_S + 1)
    ]
    assert shares == pytest.approx([0.761, 0.02], rel=0.01)
