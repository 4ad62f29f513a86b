"""Every second has the CPU that was used in it, and no other."""

import socket
import threading
import time

import gevent
import gevent.socket
import pytest

from tsbench.drive.cluster.clocks import Timebase
from tsbench.drive.loop_monitor import LoopMonitor
from tsbench.measure.merge import observation


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
        observation(tmp_path, "load-0", start_s=second, end_s=second + 1, service_p50_ns=0).evidence.hub_cpu_share
        for second in (busy_s, busy_s + 1)
    ]
    assert shares[0] == pytest.approx(used, rel=0.3)
    assert shares[1] < 0.3 * used


def test_a_late_answer_is_the_event_loops_if_it_lay_unread(tmp_path):
    (tmp_path / "process").mkdir()
    probe = LoopMonitor(tmp_path, "load-0", Timebase())
    theirs, ours = socket.socketpair()
    found = {}

    def user(name: str) -> None:
        sent_ns = time.perf_counter_ns()
        gevent.socket.wait_read(ours.fileno())
        ours.recv(1)
        found[name] = probe.unread_ns("q", sent_ns, time.perf_counter_ns())

    def answer_after(delay_s: float) -> None:
        threading.Timer(delay_s, theirs.send, [b"x"]).start()

    answer_after(0.1)
    user("slow server")
    slow_loop = []
    for _ in range(5):
        answer_after(0.01)
        burner = gevent.spawn_later(0.005, time.sleep, 0.1)  # the loop stands still from 5 ms to 105 ms
        user("slow loop")
        slow_loop.append(found["slow loop"])
        burner.join()
    probe.close()
    ms = 1_000_000
    assert found["slow server"] < 10 * ms
    # The middle of what the loop cannot know: 47 to 95 ms. A poll that the system interrupts looks as if it had waited,
    # and on a busy machine most of the five are.
    assert any(40 * ms < unread_ns < 110 * ms for unread_ns in slow_loop), slow_loop
