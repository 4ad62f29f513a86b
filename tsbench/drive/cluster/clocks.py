"""One time axis for all load processes: each measures how far its clock is from the leader's, and corrects it.

Histograms and counters are kept per second of the leader's clock, so that the seconds of several hosts add up even
where nobody keeps their clocks. Durations come from differences on one host and are not touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Ping:
    """One exchange, ns of the epoch: sent and received by the leader's clock, answered by the worker's."""

    sent_ns: int
    answered_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """How long it took."""
        return self.received_ns - self.sent_ns

    @property
    def offset_ns(self) -> int:
        """How far the worker's clock is ahead, if both ways took equally long; wrong by half the round trip at most."""
        return self.answered_ns - (self.sent_ns + self.received_ns) // 2


def offset_ns(pings: list[Ping]) -> int:
    """The offset by the quickest exchange, which is the one that waited least in queues (as NTP chooses); 0 of none."""
    return min(pings, key=lambda ping: ping.round_trip_ns).offset_ns if pings else 0


class Timebase:
    """The leader's clock as seen from here."""

    def __init__(self, offset_ns: int = 0, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.offset_ns = offset_ns
        self._clock_ns = clock_ns

    def now_ns(self) -> int:
        """Epoch nanoseconds by the leader's clock."""
        return self._clock_ns() - self.offset_ns
