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
    waiter.readable_or_writable(time.monotonic() + 9)  # there is room
    try:
        while True:
            here.send(bytes(1 << 20))
    except BlockingIOError:
        pass
    began = time.monotonic()
    try:
        waiter.readable_or_writable(began + 0.2)
    except TimeoutError:
        assert 0.19 < time.monotonic() - began < 5
    else:
        raise AssertionError("there was neither data nor room")
    peer.send(b"x")
    waiter.readable_or_writable(time.monotonic() + 9)  # there is data
    here.recv(1)
    peer.recv(1 << 23)
    waiter.readable_or_writable(time.monotonic() + 9)  # there is room again
    waiter.close()
"""


@pytest.mark.parametrize("waiter", ["tsbench.net.tcp.Polling", "tsbench.drive.greenlet_waiter.GreenletWaiter"])
def test_a_waiter_for_either_ends_when_there_is_data_or_room_or_at_the_deadline(waiter: str) -> None:
    module, _, name = waiter.rpartition(".")
    program = f"import socket, time\nfrom {module} import {name}\n{WAITS}\ncheck({name})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_deadline_that_has_passed_ends_the_wait_although_there_is_data() -> None:
    here, peer = socket.socketpair()
    peer.send(b"x")
    with pytest.raises(TimeoutError):
        Polling(here.fileno()).readable(time.monotonic() - 1)
    here.close()
    peer.close()
