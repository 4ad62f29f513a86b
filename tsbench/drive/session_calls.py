"""Calls of a session from Locust users: on the event loop, or in a pool of threads that is as large as needed.

A driver that does not yield to gevent (sqlite3, DuckDB) stops every user of the process while one of them waits: 20
users doing 5 ms queries reached 183/s directly and 3,638/s through a pool. A session that yields waits by a
`GreenletWaiter`, and may meet something that blocks all the same, such as a large answer: `in_thread` does that.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from gevent import get_hub, getcurrent
from gevent.threadpool import ThreadPool

from tsbench.measure.op_times import Direct, Timed, timed
from tsbench.net.tcp import left

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.net.stamps import Arrival

T = TypeVar("T")
A = TypeVarTuple("A")


class Threads:
    """Calls functions in threads while the event loop runs; the pool has as many threads as calls run at one time.

    As with `Direct`, exceptions are returned, not raised, so that failed calls have a time too.
    """

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self._calls = 0

    def call(
        self,
        arrival: Arrival | None,
        function: Callable[[*A], T],
        args: tuple[*A],
        origin_ns: int = 0,
    ) -> Timed[T]:
        """Call and time a function in a thread; `wait_ns` is the time until a thread started it."""
        asked_ns = perf_counter_ns() + origin_ns
        self._calls += 1
        self._pool.maxsize = max(self._pool.maxsize, self._calls)
        try:
            result: Timed[T] = self._pool.spawn(timed, function, args, origin_ns).get()
        finally:
            self._calls -= 1
        result.wait_ns = result.began_ns - asked_ns
        result.lain_ns = perf_counter_ns() + origin_ns - result.ended_ns
        return result


_threads = Threads()


def in_thread(function: Callable[[*A], T], *args: *A) -> T:
    """Call a function in a thread while the event loop runs, and return what it returns or raise its exception."""
    result = _threads.call(None, function, args)
    if result.error is not None:
        raise result.error
    return cast("T", result.value)


def caller_for(*, cooperative: bool) -> Direct | Threads:
    """Return the way to call a target's sessions."""
    return Direct() if cooperative else _threads


class GreenletWaiter:
    """Waits for a connection while other greenlets run, at less cost than by gevent's own sockets.

    Those try every read before they wait, and set a timer for every wait. Here a timer is only set if none is running;
    when it ends, it checks whether the deadline has passed, and if not, it runs on to the current deadline. Nor does
    the loop start to watch for data at each wait: it goes on until some come that nobody waits for, which saves 2 us of
    an op.
    """

    __slots__ = ("_deadline", "_either", "_greenlet", "_hub", "_is_reading", "_read", "_timer", "_timer_ends", "_write")

    def __init__(self, fd: int) -> None:
        self._hub = get_hub()
        loop = self._hub.loop
        self._read, self._write, self._either = loop.io(fd, 1), loop.io(fd, 2), loop.io(fd, 3)
        self._timer: Any = None
        self._timer_ends = self._deadline = float("inf")
        self._greenlet: Any = None
        self._is_reading = False

    in_thread = staticmethod(in_thread)

    def readable(self, deadline: float) -> None:
        if deadline < self._timer_ends:
            self._start_timer(deadline)
        self._deadline, self._greenlet = deadline, getcurrent()
        if not self._is_reading:
            self._read.start(self._has_data)
            self._is_reading = True
        try:
            self._hub.switch()
        finally:
            self._greenlet = None

    def _has_data(self) -> None:
        if self._greenlet is not None:
            self._greenlet.switch()
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        self._read.stop()
        self._is_reading = False

    def writable(self, deadline: float) -> None:
        self._wait(self._write, deadline)

    def readable_or_writable(self, deadline: float) -> None:
        self._wait(self._either, deadline)

    def _wait(self, watcher: Any, deadline: float) -> None:
        self._stop_reading()
        if deadline < self._timer_ends:
            self._start_timer(deadline)
        self._deadline, self._greenlet = deadline, getcurrent()
        watcher.start(self._greenlet.switch)
        try:
            self._hub.switch()
        finally:
            watcher.stop()
            self._greenlet = None

    def _start_timer(self, deadline: float) -> None:
        self._stop_timer()
        self._timer = self._hub.loop.timer(left(deadline), ref=False)
        self._timer.start(self._timer_ended, update=True)
        self._timer_ends = deadline

    def _timer_ended(self) -> None:
        self._stop_timer()
        waiting = self._greenlet
        if waiting is None:
            return
        try:
            self._start_timer(self._deadline)
        except TimeoutError as error:
            waiting.throw(error)

    def _stop_timer(self) -> None:
        timer, self._timer, self._timer_ends = self._timer, None, float("inf")
        if timer is not None:
            timer.stop()
            timer.close()

    def close(self) -> None:
        self._stop_timer()
        for watcher in (self._read, self._write, self._either):
            watcher.stop()
            watcher.close()
