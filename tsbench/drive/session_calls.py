"""Calls of a session from Locust users: on the event loop, or in a pool of threads that is as large as needed.

A driver that does not yield to gevent (sqlite3, DuckDB) stops every user of the process while one of them waits: 20
users doing 5 ms queries reached 183/s directly and 3,638/s through a pool. A session that yields may meet something
that blocks all the same, such as a large answer: `in_thread` does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, TypeVarTuple, cast

from gevent import getcurrent
from gevent.threadpool import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
A = TypeVarTuple("A")


@dataclass(slots=True)  # not frozen: one is made for every op, and a frozen one takes three times as long to make
class Timed(Generic[T]):
    """Result or exception of a call, and its times in ns of `time.perf_counter_ns`.

    The call was asked for at `began_ns`, and its result was there for whoever asked at `ended_ns`; the session itself
    took `service_ns`, and the call waited `wait_ns` for a thread.
    """

    value: T | None
    error: Exception | None
    began_ns: int
    service_ns: int
    ended_ns: int
    wait_ns: int = 0
    unread_ns: int = 0
    """How much of the service time the answer lay unread (`LoopClock`)."""
    response_ns: int = 0
    """Time from when the op was due until it ended; set when it is recorded."""


class Caller(Protocol):
    """Makes timed calls; exceptions are returned, not raised, so that failed calls have a time too."""

    def call(self, function: Callable[[*A], T], *args: *A) -> Timed[T]:
        """Call the function and time it."""
        ...


def timed(function: Callable[[*A], T], *args: *A) -> Timed[T]:
    """Call a function in the current thread and time it."""
    began_ns = perf_counter_ns()
    try:
        value = function(*args)
    except Exception as error:  # noqa: BLE001 - returned to the caller
        ended_ns = perf_counter_ns()
        return Timed(None, error, began_ns, ended_ns - began_ns, ended_ns)
    ended_ns = perf_counter_ns()
    return Timed(value, None, began_ns, ended_ns - began_ns, ended_ns)


class Threads:
    """Calls functions in threads while the event loop runs; the pool has as many threads as calls run at one time."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self._calls = 0

    def call(self, function: Callable[[*A], T], *args: *A) -> Timed[T]:
        """Call and time a function in a thread; `wait_ns` is the time until a thread started it."""
        asked_ns = perf_counter_ns()
        self._calls += 1
        self._pool.maxsize = max(self._pool.maxsize, self._calls)
        try:
            result: Timed[T] = self._pool.spawn(timed, function, *args).get()
        finally:
            self._calls -= 1
        result.wait_ns = result.began_ns - asked_ns
        result.began_ns, result.ended_ns = asked_ns, perf_counter_ns()
        return result


_threads = Threads()
_handed_over_ns: dict[object, int] = {}
"""By greenlet: time in ns that handing calls over to threads and back took, of the call of its session that runs."""


def in_thread(function: Callable[[*A], T], *args: *A) -> T:
    """Call a function in a thread while the event loop runs, and return what it returns or raise its exception.

    Called by a session in the middle of an op. The time that the thread's start and the way back took is the load
    generator's, not the database's (see `Direct`).
    """
    result = _threads.call(function, *args)
    lost_ns = result.ended_ns - result.began_ns - result.service_ns
    me = getcurrent()
    _handed_over_ns[me] = _handed_over_ns.get(me, 0) + lost_ns
    if result.error is not None:
        raise result.error
    return cast("T", result.value)


class Direct:
    """Calls drivers that yield while they wait."""

    @staticmethod
    def call(function: Callable[[*A], T], *args: *A) -> Timed[T]:
        """Call the function in this greenlet; time that `in_thread` lost is not the session's."""
        result = timed(function, *args)
        if _handed_over_ns:
            result.wait_ns = _handed_over_ns.pop(getcurrent(), 0)
            result.service_ns -= result.wait_ns
        return result


def caller_for(*, cooperative: bool) -> Caller:
    """Return the way to call a target's sessions."""
    return Direct() if cooperative else _threads
