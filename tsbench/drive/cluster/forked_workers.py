"""Workers that Locust forks (`--processes`) end with the master that forked them, however it ends.

Locust asks its workers to quit at an ordinary end. After any other end (its port was taken, it was killed) they would
run on for minutes, looking for a master that is gone.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import gevent
import psutil

from tsbench.servers.children import bind_to_parent

CHILDREN_S = 30.0
"""Time limit for forked workers without work to end, in seconds."""


class _Binding:
    """State of the forking process for its forks."""

    def __init__(self) -> None:
        os.register_at_fork(before=self._prepare, after_in_child=self._bind)

    def _prepare(self) -> None:
        self._bind_to_parent = bind_to_parent(signal.SIGKILL)

    def _bind(self) -> None:
        self._bind_to_parent()


def end_with_master() -> None:
    """Make all processes that are forked from now on end with the process that forks them."""
    _Binding()


def await_end() -> None:
    """Wait until the workers that this process forked have ended; without a master they would wait for one."""
    give_up = time.monotonic() + CHILDREN_S
    while time.monotonic() < give_up:
        with suppress(psutil.NoSuchProcess):  # it ended in between
            if all(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process().children()):
                return
        gevent.sleep(0.05)
