"""One clock: ns since 1970 that never jump, in this process or in the leader of several.

The wall clock is read once, when this module is imported, and a monotonic clock from then on. A step of the wall clock
during a run (NTP's first correction, an administrator) changes no latency, no rate and no second of the run.

Histograms and counters are kept per second of the leader's clock, so that the seconds of several hosts can be added
even if their clocks are not synchronised. Durations are differences on one host and are not changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_ORIGIN_NS = time.time_ns() - time.perf_counter_ns()
"""What to add to `time.perf_counter_ns` for ns since 1970, in this process."""


def epoch_ns() -> int:
    """Return ns since 1970: the wall clock's time when this module was imported, plus the time elapsed since."""
    return _ORIGIN_NS + time.perf_counter_ns()


class Timebase:
    """The leader's clock, computed from this host's clock, which is ahead by `offset_ns`."""

    def __init__(self, offset_ns: int = 0) -> None:
        self.offset_ns = offset_ns
        self.origin_ns = _ORIGIN_NS - offset_ns
        """What to add to `time.perf_counter_ns` for the leader's epoch ns: for who reads that clock itself."""

    def now_ns(self) -> int:
        """Return epoch nanoseconds of the leader's clock."""
        return time.perf_counter_ns() + self.origin_ns


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
