"""One time axis for all load processes: each measures the offset of its clock from the leader's, and corrects it.

Histograms and counters are kept per second of the leader's clock, so that the seconds of several hosts can be added
even if their clocks are not synchronised. Durations are differences on one host and are not changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tsbench.measure.epoch import ORIGIN_NS


@dataclass(frozen=True, slots=True)
class Ping:
    """One exchange, in ns of the epoch: sent and received by the leader's clock, answered by the worker's."""

    sent_ns: int
    answered_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Duration of the exchange."""
        return self.received_ns - self.sent_ns

    @property
    def offset_ns(self) -> int:
        """Time by which the worker's clock is ahead; wrong by half the round trip at most."""
        return self.answered_ns - (self.sent_ns + self.received_ns) // 2


def offset_ns(pings: list[Ping]) -> int:
    """Return the offset of the quickest exchange, which waited least in queues (as NTP does); 0 without exchanges."""
    return min(pings, key=lambda ping: ping.round_trip_ns).offset_ns if pings else 0


class Timebase:
    """The leader's clock, computed from this host's."""

    def __init__(self, offset_ns: int = 0) -> None:
        self.offset_ns = offset_ns
        self.origin_ns = ORIGIN_NS - offset_ns
        """What to add to `time.perf_counter_ns` for the leader's epoch ns, where a call of `now_ns` costs too much."""

    def now_ns(self) -> int:
        """Return epoch nanoseconds of the leader's clock."""
        return time.perf_counter_ns() + self.origin_ns
