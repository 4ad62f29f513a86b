from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from tsbench.net.tcp import Polling

WAITS = """
def check(new_waiter):
    here, peer = socket.socketpair()
    here.setblocking(False)
    waiter = new_waiter(here.fileno())
    waiter.readable_or_writable(time.monotonic() + 60)  # there is room
    try:
        while True:
            here.send(bytes(1 << 20))
    except BlockingIOError:
        pass
    began = time.monotonic()
    try:
        waiter.readable_or_writable(began + 0.2)
    except TimeoutError:
        assert 0.19 < time.monotonic() - began < 60
    else:
        raise AssertionError("there was neither data nor room")
    peer.send(b"x")
    waiter.readable_or_writable(time.monotonic() + 60)  # there is data
    here.recv(1)
    peer.recv(1 << 23)
    waiter.readable_or_writable(time.monotonic() + 60)  # there is room again
    waiter.close()
"""


@pytest.mark.parametrize("waiter", ["tsbench.net.tcp.Polling", "tsbench.drive.session_calls.GreenletWaiter"])
def test_a_waiter_for_either_ends_when_there_is_data_or_room_or_at_the_deadline(waiter: str) -> None:
    module, _, name = waiter.rpartition(".")
    program = f"import socket, time\nfrom {module} import {name}\n{WAITS}\ncheck({name})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr


def test_a_deadline_that_has_passed_ends_the_wait_although_there_is_data() -> None:
    here, peer = socket.socketpair()
    peer.send(b"x")
    with pytest.raises(TimeoutError):
        Polling(here.fileno()).readable(time.monotonic() - 1)
    here.close()
    peer.close()


def test_data_that_nobody_waits_for_cost_nothing_and_are_there_at_the_next_wait() -> None:
    program = """
import socket, time, gevent
from tsbench.drive.session_calls import GreenletWaiter
here, peer = socket.socketpair()
here.setblocking(False)
waiter = GreenletWaiter(here.fileno())
for _ in range(3):
    peer.send(b"asked")
    waiter.readable(time.monotonic() + 60)
    assert here.recv(99) == b"asked"
peer.send(b"unasked")
before = time.process_time()
gevent.sleep(0.5)
assert time.process_time() - before < 0.25, "the event loop ran round and round"
waiter.readable(time.monotonic() + 60)
assert here.recv(99) == b"unasked"
killed = gevent.spawn(waiter.readable, time.monotonic() + 60)
gevent.sleep(0.01)
killed.kill()
peer.send(b"later")
gevent.sleep(0.01)
waiter.writable(time.monotonic() + 60)
waiter.readable(time.monotonic() + 60)
assert here.recv(99) == b"later"
began = time.monotonic()
try:
    waiter.readable(began + 0.1)
except TimeoutError:
    assert 0.09 < time.monotonic() - began < 60
else:
    raise AssertionError("nothing was sent")
waiter.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
