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

    Where there is none (other systems than Linux), they sleep by gevent's timers. Moments are of a clock with this
    origin: `time.perf_counter_ns` and `origin_ns`.
    """

    def __init__(self, origin_ns: int = 0) -> None:
        self._origin_ns = origin_ns
        self._waiting: list[tuple[int, int, Any]] = []
        """A heap of (moment, number, greenlet)."""
        self._gone: set[int] = set()
        """Numbers of greenlets that were killed meanwhile."""
        self._numbers = count()
        self._setting = _Setting()
        self._given = ctypes.byref(self._setting)
        self._is_waking = False
        self._fd = -1
        if _libc is not None:
            self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        self._hub = get_hub()
        self._watcher: Any = None
        if self._fd >= 0:
            self._watcher = self._hub.loop.io(self._fd, 1)
            self._watcher.start(self._ended)

    def sleep_until_ns(self, moment_ns: int) -> bool:
        """Sleep until a moment of the clock; return False at once if it has passed, True afterwards."""
        moment_ns -= self._origin_ns
        left_ns = moment_ns - perf_counter_ns()
        if left_ns <= 0:
            return False
        if self._watcher is None:
            gevent.sleep(left_ns / NS_PER_S)
            return True
        number = next(self._numbers)
        heapq.heappush(self._waiting, (moment_ns, number, getcurrent()))
        if self._waiting[0][1] == number and not self._is_waking:
            self._set()
        try:
            self._hub.switch()
        except BaseException:  # killed, or a timeout: nobody is to be woken
            self._gone.add(number)
            raise
        return True

    def _set(self) -> None:
        """Set the kernel's timer to the earliest moment; it forgets that it had ended."""
        if _libc is not None:
            self._setting.at_s, self._setting.at_ns = divmod(self._waiting[0][0], NS_PER_S)
            _libc.timerfd_settime(self._fd, _ABSOLUTE, self._given, None)

    def _ended(self) -> None:
        """Resume those whose moments have come, also meanwhile: setting the timer costs more than a look."""
        waiting, self._is_waking = self._waiting, True
        try:
            for _ in range(len(waiting)):  # at most: a user whose ops take no time is due again at once
                if not waiting or waiting[0][0] > perf_counter_ns():
                    break
                _, number, greenlet = heapq.heappop(waiting)
                if number in self._gone:
                    self._gone.remove(number)
                else:
                    greenlet.switch()
        finally:
            self._is_waking = False
        if waiting:
            self._set()
        elif self._watcher is not None:
            with suppress(BlockingIOError):  # it was set to a later moment after it had ended
                os.read(self._fd, _SIZE)

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
