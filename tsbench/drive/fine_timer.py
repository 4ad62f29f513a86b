"""A timer that wakes greenlets within some tens of microseconds of the moment that they asked for.

gevent's own timers end up to a millisecond late, since libev passes the kernel its polling time in whole milliseconds.
The response time of an op counts from when it was due: half a millisecond of it would be the load generator's delay.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import sys
from contextlib import suppress
from itertools import count
from time import perf_counter_ns
from typing import Any

import gevent
from gevent import get_hub, getcurrent

from tsbench.units import NS_PER_S

_IS_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _IS_LINUX else None
_CLOCK_MONOTONIC = 1
"""The clock of `time.perf_counter_ns` on Linux."""
_ABSOLUTE = 1
_SIZE = 8
"""What a timerfd has to read: how often it ended, as an unsigned integer."""


class _Setting(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class FineTimer:
    """Lets the greenlets of one thread sleep by the kernel's timer for file descriptors (timerfd).

    Where there is none (other systems than Linux), they sleep by gevent's timers.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Any]] = []
        """A heap of (moment, number, greenlet)."""
        self._gone: set[int] = set()
        """Numbers of greenlets that were killed meanwhile."""
        self._numbers = count()
        self._setting = _Setting()
        self._set_to: int | None = None
        self._fd = -1
        if _libc is not None:
            self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        self._hub = get_hub()
        self._watcher: Any = None
        if self._fd >= 0:
            self._watcher = self._hub.loop.io(self._fd, 1)
            self._watcher.start(self._ended)

    def sleep_until_ns(self, moment_ns: int) -> None:
        """Sleep until a moment of `time.perf_counter_ns`; return at once if it has passed."""
        left_ns = moment_ns - perf_counter_ns()
        if left_ns <= 0:
            return
        if self._watcher is None:
            gevent.sleep(left_ns / NS_PER_S)
            return
        number = next(self._numbers)
        heapq.heappush(self._waiting, (moment_ns, number, getcurrent()))
        self._set()
        try:
            self._hub.switch()
        except BaseException:  # killed, or a timeout: nobody is to be woken
            self._gone.add(number)
            raise

    def _set(self) -> None:
        """Set the kernel's timer to the earliest moment."""
        moment_ns = self._waiting[0][0]
        if self._set_to == moment_ns or _libc is None:
            return
        self._set_to = moment_ns
        self._setting.at_s, self._setting.at_ns = divmod(moment_ns, NS_PER_S)
        _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._setting), None)

    def _ended(self) -> None:
        self._set_to = None
        with suppress(BlockingIOError):  # it was set to a later moment after it had ended
            os.read(self._fd, _SIZE)
        now_ns = perf_counter_ns()
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, number, greenlet = heapq.heappop(self._waiting)
            if number in self._gone:
                self._gone.remove(number)
            else:
                greenlet.switch()
        if self._waiting:
            self._set()

    def close(self) -> None:
        """Release the kernel's timer and wake who still sleeps."""
        if self._watcher is None:
            return
        self._watcher.stop()
        self._watcher.close()
        self._watcher = None
        os.close(self._fd)
        for _, number, greenlet in self._waiting:
            if number not in self._gone:
                self._hub.loop.run_callback(greenlet.switch)
        self._waiting.clear()
