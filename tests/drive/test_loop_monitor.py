"""Every second has the CPU that was used in it, and no other."""

import time

import gevent
import pytest

from tsbench.drive.cluster.clocks import Timebase
from tsbench.drive.loop_monitor import LoopMonitor
from tsbench.measure.merge import evidence


def test_work_before_the_window_is_not_the_windows(tmp_path):
    (tmp_path / "process").mkdir()
    probe = LoopMonitor(tmp_path, "load-0", Timebase())
    gevent.sleep(1.0 - time.time() % 1.0)
    busy_s = int(time.time())
    used = time.thread_time()
    while time.time() < busy_s + 0.95:
        gevent.sleep(0)
    used = time.thread_time() - used
    gevent.sleep(busy_s + 1.97 - time.time())
    probe.flush()  # in the middle of a second, as a process's flusher does
    gevent.sleep(busy_s + 2.1 - time.time())
    probe.close()

    shares = [
        evidence(tmp_path, "load-0", start_s=second, end_s=second + 1, service_p50_ns=0)[0].hub_cpu_share
        for second in (busy_s, busy_s + 1)
    ]
    assert shares[0] == pytest.approx(used, rel=0.3)
    assert shares[1] < 0.3 * used
