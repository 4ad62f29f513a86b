"""The times of one op of a session: from its send to the arrival of its answer, by the session's own stamps."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, TypeVar, TypeVarTuple

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
    """Result or exception of a call, and its times in ns of the caller's clock: `time.perf_counter_ns` and its origin.

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


def timed(function: Callable[[*A], T], args: tuple[*A], origin_ns: int = 0) -> Timed[T]:
    """Call a function in the current thread and time it, by a clock with this origin."""
    value, error = None, None
    began_ns = perf_counter_ns()
    try:
        value = function(*args)
    except Exception as raised:  # noqa: BLE001 - returned to the caller
        error = raised
    return Timed(value, error, began_ns + origin_ns, perf_counter_ns() + origin_ns)


class Direct:
    """Calls in the current thread or greenlet."""

    @staticmethod
    def call(arrival: Arrival | None, function: Callable[[*A], T], args: tuple[*A], origin_ns: int = 0) -> Timed[T]:
        """Call the function and time it from the send to the arrival of its answer; `arrival` is the session's."""
        if arrival is None:
            return timed(function, args, origin_ns)
        value = error = None
        called_ns = arrival.begin()
        try:  # as in `timed`, which would be one call more for every op
            value = function(*args)
        except Exception as raised:  # noqa: BLE001 - returned to the caller
            error = raised
        read_ns = perf_counter_ns()
        ended_ns = arrival.end(read_ns)
        began_ns = arrival.began_ns or called_ns
        result = Timed(value, error, began_ns + origin_ns, ended_ns + origin_ns, arrival.source, read_ns - ended_ns)
        if began_ns + HELD_UP_NS < arrival.sent_ns < ended_ns:
            result.held_up_ns = arrival.sent_ns - began_ns
        return result
