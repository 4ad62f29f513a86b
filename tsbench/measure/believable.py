"""Find the percentile up to which the latencies of a run are the database's, not the load generator's.

Two kinds of delay are the client's. Of the first, each op's own is known: its process woke up late for it, it waited for
a thread, or its answer lay unread. It is taken away op by op; `undelayed` is the histogram without it. The second is
that the operating system gives the process no CPU when it has something to do. No op can measure that, but a timer that
ends late can; ops meet such delays independently of how long the database takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.hist import Histogram, counter_of, lowest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

CHANGE = 0.10
"""A percentile is believed if taking the client's delay away would lower it by at most this share."""
TIMER_NS = 1_000_000
"""Timers end up to a millisecond late by themselves: libev rounds the time that it polls up to milliseconds."""
_SMALL = (0.0, 0.02, 0.04, 0.06, 0.08)
"""Shares of a percentile below which a delay is left to lower it, rather than being taken for its cause."""


def believable_percentile(
    measured: Histogram, undelayed: Histogram, timer_lag: Histogram, percents: Iterable[float]
) -> float:
    """Return the highest of `percents` up to which all can be believed; 0 if not even the lowest can.

    Parameters
    ----------
    measured
        The reported times, ns.
    undelayed
        The times of the same ops without the delay that is known of each.
    timer_lag
        By how much timers of the same processes ended late, ns, not counting the time in which the loop was busy.
    """
    held = 0.0
    waits = _Waits(undelayed, timer_lag)
    for percent in sorted(percents):
        if not waits.reach((1 - CHANGE) * measured.percentile_ns(percent), percent):
            break
        held = percent
    return held


class _Waits:
    """The times that were measured, as the sum of the database's and an independent delay of the process."""

    def __init__(self, undelayed: Histogram, timer_lag: Histogram) -> None:
        self._total = len(undelayed)
        self._at_least = np.append(np.cumsum(undelayed.counts[::-1])[::-1], 0)
        used = np.flatnonzero(timer_lag.counts)
        delays_ns = lowest_of(used) - TIMER_NS
        shares = timer_lag.counts[used] / max(1, len(timer_lag))
        self._delays_ns, self._shares = delays_ns[delays_ns > 0], shares[delays_ns > 0]

    def _count(self, times_ns: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many ops took at least these times."""
        return self._at_least[counter_of(times_ns.astype(np.int64))]

    def reach(self, time_ns: float, percent: float) -> bool:
        """Return whether a percentile of the database's own times is at least `time_ns`.

        Ops that took `time_ns` and a small delay or longer count, except as many as would have by chance because of a
        larger delay, had all met one on top of what was measured.
        """
        for small in _SMALL:
            small_ns = small * time_ns / (1 - CHANGE)
            large = self._delays_ns > small_ns
            shares = self._shares[large]
            beyond_ns = time_ns + small_ns
            suspected = float((shares * self._count(beyond_ns - self._delays_ns[large])).sum())
            needed = max(0.5, self._total * (1 - percent / 100) * (1 - float(shares.sum())))
            if float(self._count(np.array([beyond_ns]))[0]) - suspected >= needed:
                return True
        return False
