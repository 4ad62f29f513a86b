"""Estimates how long an answer lay unread because the event loop was busy with something else.

A loop alternates between polling (waiting for the operating system) and running callbacks. An answer that arrives while
it polls is read at once. One that arrives while callbacks run is read after them, and the database is not to blame.
"""

from __future__ import annotations

WAITED_NS = 20_000
"""A poll that took longer than this has waited: one that finds something ready returns within a few microseconds."""

_STEP = 0.02


class LoopClock:
    """The times of the event loop's last polls; all times are ns of one clock, which never goes back."""

    __slots__ = ("_earlier_poll_ns", "_entered_ns", "_waited", "poll_ns")

    def __init__(self, now_ns: int) -> None:
        self._entered_ns = self._earlier_poll_ns = self.poll_ns = now_ns
        """`poll_ns` is when the last poll returned: an op that began later waited for nothing."""
        self._waited = True

    def entering_poll(self, now_ns: int) -> None:
        """Record that the loop is about to poll."""
        self._entered_ns = now_ns

    def left_poll(self, now_ns: int) -> None:
        """Record that the poll has returned, before the callbacks that it found ready run."""
        self._earlier_poll_ns, self.poll_ns = self.poll_ns, now_ns
        self._waited = now_ns - self._entered_ns > WAITED_NS

    def since_poll_ns(self, now_ns: int) -> int:
        """Return the time that callbacks have been running since the last poll."""
        return now_ns - self.poll_ns

    def unread_ns(self, sent_ns: int, now_ns: int, own_ns: int = 0) -> int:
        """Return how long an answer lay unread; its receiver waited from `sent_ns` and was done with it at `now_ns`.

        If the last poll waited, the answer's arrival ended that poll. If the poll found the answer ready, the answer
        arrived at an unknown moment after the previous poll (and after `sent_ns`): the middle of that time is assumed.
        The receiver's own work on the answer, `own_ns`, does not count.
        """
        if sent_ns >= self.poll_ns:  # nothing was waited for
            return 0
        earliest_ns = self.poll_ns if self._waited else max(self._earlier_poll_ns, sent_ns)
        return max(0, now_ns - own_ns - (earliest_ns + self.poll_ns) // 2)


class RunningQuantile:
    """A quantile of all values so far, estimated without keeping them; each value moves it by 2 % at most."""

    __slots__ = ("_quantile", "value")

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self.value = 0.0

    def add(self, value: float) -> float:
        """Take in a value and return the estimate; the first value is the first estimate."""
        if not self.value:
            self.value = value
        else:
            self.value *= 1 + _STEP * (self._quantile - (value < self.value))
        return self.value
