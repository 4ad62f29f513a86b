"""Calls of a session from Locust users: on the event loop, or in a pool of threads that is as large as needed.

A driver that does not yield to gevent (sqlite3, DuckDB) stops every user of the process while one of them waits: 20
users doing 5 ms queries reached 183/s directly and 3,638/s through a pool. A session that yields may meet something
that blocks all the same, such as a large answer: `in_thread` does that.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple, cast

from gevent.threadpool import ThreadPool

from tsbench.measure.op_times import Direct, Timed, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.net.stamps import Arrival

T = TypeVar("T")
A = TypeVarTuple("A")


class Caller(Protocol):
    """Makes timed calls; exceptions are returned, not raised, so that failed calls have a time too."""

    def call(self, arrival: Arrival | None, function: Callable[[*A], T], args: tuple[*A]) -> Timed[T]:
        """Call a function of a session with `args` and time it; `arrival` is the session's."""
        ...


class Threads:
    """Calls functions in threads while the event loop runs; the pool has as many threads as calls run at one time."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self._calls = 0

    def call(self, arrival: Arrival | None, function: Callable[[*A], T], args: tuple[*A]) -> Timed[T]:  # noqa: ARG002
        """Call and time a function in a thread; `wait_ns` is the time until a thread started it."""
        asked_ns = perf_counter_ns()
        self._calls += 1
        self._pool.maxsize = max(self._pool.maxsize, self._calls)
        try:
            result: Timed[T] = self._pool.spawn(timed, function, args).get()
        finally:
            self._calls -= 1
        result.wait_ns = result.began_ns - asked_ns
        result.lain_ns = perf_counter_ns() - result.ended_ns
        return result


_threads = Threads()


def in_thread(function: Callable[[*A], T], *args: *A) -> T:
    """Call a function in a thread while the event loop runs, and return what it returns or raise its exception."""
    result = _threads.call(None, function, args)
    if result.error is not None:
        raise result.error
    return cast("T", result.value)


def caller_for(*, cooperative: bool) -> Caller:
    """Return the way to call a target's sessions."""
    return Direct() if cooperative else _threads
