"""Calls of a session from Locust users: on the event loop, or in a thread pool as large as needed.

A driver that does not yield to gevent (sqlite3, mysqlclient) stops every user of the process while one of them waits:
20 users doing 5 ms queries reached 183/s directly and 3,638/s through a pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, TypeVarTuple

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

    def add_user(self) -> None:
        """Make room for one more user."""
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


class Direct:
    """Calls drivers that yield while they wait."""

    call = staticmethod(timed)

    def add_user(self) -> None:
        """Do nothing: greenlets are cheap."""


class Pooled:
    """Calls drivers that block, in one thread per user, so that ops rarely wait for a thread."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self._users = 0

    def add_user(self) -> None:
        """Grow the pool to the number of users."""
        self._users += 1
        self._pool.maxsize = max(1, self._users)

    def call(self, function: Callable[[*A], T], *args: *A) -> Timed[T]:
        """Call the function in a thread while the event loop runs. The wait ends when the thread starts it."""
        asked_ns = perf_counter_ns()
        result: Timed[T] = self._pool.spawn(timed, function, *args).get()
        result.wait_ns = result.began_ns - asked_ns
        result.began_ns, result.ended_ns = asked_ns, perf_counter_ns()
        return result


def caller_for(*, cooperative: bool) -> Caller:
    """Return the way to call a target's sessions."""
    return Direct() if cooperative else Pooled()
