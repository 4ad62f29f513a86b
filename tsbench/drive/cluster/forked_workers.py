"""Workers that Locust forks (`--processes`) end with the master that forked them, however it ends.

Locust asks its workers to quit at an ordinary end. After any other end (its port was taken, it was killed) they would
run on for minutes, looking for a master that is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import gevent
import psutil

from tsbench.drive import locust_internals
from tsbench.servers.children import how_it_ended
from tsbench.servers.launch import bind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

logger = logging.getLogger("tsbench")

CHILDREN_S = 30.0
"""Time limit for forked workers without work to end, in seconds."""
_LOOK_S = 0.2
"""How often is looked whether a worker has ended before the test began."""


def end_with_master() -> None:
    """Make all processes that are forked from now on end with the process that forks them."""
    parents: list[int] = []  # the last one is that of the newest fork
    os.register_at_fork(
        before=lambda: parents.append(os.getpid()), after_in_child=lambda: bind(parents[-1], signal.SIGKILL)
    )


def expect_alive(has_begun: Callable[[], bool]) -> None:
    """End this master as soon as a worker that it forked has ended before the test began: Locust waits for all of them.

    Call it before this process starts other children.
    """
    forked = locust_internals.forked()
    if forked:
        gevent.spawn(_watch, forked, has_begun)


def _watch(forked: Collection[int], has_begun: Callable[[], bool]) -> None:
    while not has_begun():
        for pid in forked:
            code = locust_internals.exit_code_of(pid)
            if code is not None and not has_begun():
                logger.error("tsbench: a worker (process %d) ended before the test began: %s", pid, how_it_ended(code))
                gevent.get_hub().handle_system_error(SystemExit, SystemExit(1))
                return
        gevent.sleep(_LOOK_S)


def await_end() -> None:
    """Wait until the workers that this process forked have ended; without a master they would wait for one."""
    give_up = time.monotonic() + CHILDREN_S
    while time.monotonic() < give_up:
        with suppress(psutil.NoSuchProcess):  # it ended in between
            if all(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process().children()):
                return
        gevent.sleep(0.05)
