"""Calls of a session from Locust users: on the event loop, or in a pool of threads that is as large as needed.

A driver that does not yield to gevent (sqlite3, DuckDB) stops every user of the process while one of them waits: 20
users doing 5 ms queries reached 183/s directly and 3,638/s through a pool. A session that yields may meet something
that blocks all the same, such as a large answer: `in_thread` does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, TypeVarTuple, cast

from gevent.threadpool import ThreadPool

from tsbench.net.stamps import READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.net.stamps import Arrival

T = TypeVar("T")
A = TypeVarTuple("A")

HELD_UP_NS = 200_000
"""A send that takes longer was interrupted by something else; handing 64 kB to the kernel takes 30 us."""


@dataclass(slots=True)  # not frozen: one is made for every op, and a frozen one takes three times as long to make
class Timed(Generic[T]):
    """Result or exception of a call, and its times in ns of `time.perf_counter_ns`.

    `began_ns` is right before something was sent, or else when the call began, and `ended_ns` when the answer arrived,
    or else when it was read; `source` says which (`net.stamps`). The call waited `wait_ns` for a thread.
    """

    value: T | None
    error: Exception | None
    began_ns: int
    ended_ns: int
    source: int = READ
    lain_ns: int = 0
    """Time from the end until the caller had the result."""
    held_up_ns: int = 0
    """For how long the process was interrupted while it sent, which the database may not have noticed."""
    wait_ns: int = 0
    response_ns: int = 0
    """Time from when the op was due until it ended; set when it is recorded."""

    def end_by(self, deadline_ns: int) -> None:
        """Let a call that went on until its deadline have ended then: nothing arrived, or not all of the answer."""
        known_ns = self.ended_ns + self.lain_ns
        if known_ns > deadline_ns:
            self.ended_ns, self.lain_ns, self.source = deadline_ns, known_ns - deadline_ns, READ


class Caller(Protocol):
    """Makes timed calls; exceptions are returned, not raised, so that failed calls have a time too."""

    def call(self, arrival: Arrival | None, function: Callable[[*A], T], args: tuple[*A]) -> Timed[T]:
        """Call a function of a session with `args` and time it; `arrival` is the session's."""
        ...


def timed(function: Callable[[*A], T], args: tuple[*A]) -> Timed[T]:
    """Call a function in the current thread and time it."""
    value, error = None, None
    began_ns = perf_counter_ns()
    try:
        value = function(*args)
    except Exception as raised:  # noqa: BLE001 - returned to the caller
        error = raised
    return Timed(value, error, began_ns, perf_counter_ns())


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


class Direct:
    """Calls drivers that yield while they wait."""

    @staticmethod
    def call(arrival: Arrival | None, function: Callable[[*A], T], args: tuple[*A]) -> Timed[T]:
        """Call the function in this greenlet, and time it from the send to the arrival of its answer."""
        if arrival is None:
            return timed(function, args)
        value = error = None
        called_ns = arrival.begin()
        try:  # as in `timed`, which would be one call more for every op
            value = function(*args)
        except Exception as raised:  # noqa: BLE001 - returned to the caller
            error = raised
        read_ns = perf_counter_ns()
        ended_ns = arrival.end(read_ns)
        began_ns = arrival.began_ns or called_ns
        result = Timed(value, error, began_ns, ended_ns, arrival.source, read_ns - ended_ns)
        if began_ns + HELD_UP_NS < arrival.sent_ns < ended_ns:
            result.held_up_ns = arrival.sent_ns - began_ns
        return result


def caller_for(*, cooperative: bool) -> Caller:
    """Return the way to call a target's sessions."""
    return Direct() if cooperative else _threads
