"""Find the percentile up to which the latencies of a run are the database's, not the load generator's.

Two kinds of delay are the client's. Of the first, each op's own is known: its process woke up late for it, it waited
for a thread, or its answer lay unread. It is taken away op by op; `undelayed` is the histogram without it. The second
kind is that the operating system gives the process no CPU when it has something to do. No op can measure that, but a
timer that ends late can; ops meet such delays independently of how long the database takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.hist import Histogram, counter_of, lowest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

CHANGE = 0.10
"""A percentile is believed if taking the client's delay away would lower it by at most this share."""
RESOLUTION_NS = 200_000
"""Smaller differences prove nothing: how long the work on an answer takes is known to about 0.1 ms only."""
EXPLAINED = 0.5
"""Largest share of the ops above a percentile that chance delays of the process may account for."""
TIMER_NS = 1_000_000
"""Timers end up to a millisecond late by themselves: libev rounds the time that it polls up to milliseconds."""


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
    wanted = sorted(percents)
    if not len(measured):
        return wanted[-1]
    held = 0.0
    chance = _ChanceDelays(undelayed, timer_lag)
    for percent in wanted:
        undelayed_ns = undelayed.percentile_ns(percent)
        measured_ns = measured.percentile_ns(percent)
        left_ns = max(CHANGE * measured_ns, RESOLUTION_NS) - (measured_ns - undelayed_ns)
        if left_ns < 0 or not chance.are_harmless(undelayed_ns, percent, left_ns / max(1, undelayed_ns)):
            break
        held = percent
    return held


def own_percentiles_ns(undelayed: Histogram, timer_lag: Histogram, percents: Mapping[str, float]) -> dict[str, float]:
    """Return lower bounds in ns of the database's own percentiles, by name: whatever the client delayed, not less."""
    chance = _ChanceDelays(undelayed, timer_lag)
    return {
        name: chance.lower_bound_ns(undelayed.percentile_ns(percent), percent) for name, percent in percents.items()
    }


class _ChanceDelays:
    """Delays that ops meet by chance, whatever the database does, and the times in which they are already contained."""

    def __init__(self, times: Histogram, timer_lag: Histogram) -> None:
        self._total = len(times)
        self._longer = np.append(np.cumsum(times.counts[::-1])[::-1], 0)
        used = np.flatnonzero(timer_lag.counts)
        delays_ns = lowest_of(used) - TIMER_NS
        shares = timer_lag.counts[used] / max(1, len(timer_lag))
        self._delays_ns, self._shares = delays_ns[delays_ns > 0], shares[delays_ns > 0]

    def _share_beyond(self, times_ns: NDArray[Any]) -> NDArray[np.float64]:
        """Return the share of ops that took longer than these times (within 3 digits)."""
        return self._longer[counter_of(times_ns.astype(np.int64)) + 1] / max(1, self._total)

    def are_harmless(self, time_ns: float, percent: float, change: float) -> bool:
        """Return whether they raised a percentile, which is at `time_ns`, by a share of at most `change`.

        Delays of the same kind on top of what was measured would raise it about as much again, unless it already lies
        among the ops that are so slow only because of them; those must be few.
        """
        if not self._delays_ns.size:
            return True
        beyond = max(1 - percent / 100, 1 / self._total)
        raised_ns = time_ns * (1 + change)
        undisturbed = (1 - self._shares.sum()) * self._share_beyond(np.array([raised_ns]))[0]
        twice = undisturbed + float((self._shares * self._share_beyond(raised_ns - self._delays_ns)).sum())
        lowered_ns = time_ns * (1 - change)
        there = self._share_beyond(np.array([lowered_ns]))[0]
        explained = float((self._shares * (self._share_beyond(lowered_ns - self._delays_ns) - there)).sum())
        return bool(twice <= beyond and explained <= EXPLAINED * beyond)

    def lower_bound_ns(self, time_ns: float, percent: float) -> float:
        """Return a time, at most `time_ns`, that the percentile without chance delays does not fall below.

        Of the ops that took longer, as many are left out as would have by chance if all that were measured had met a
        delay once more. Bounds are tried in steps of a tenth.
        """
        beyond = 1 - percent / 100
        for share in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.01):
            bound_ns = share * time_ns
            there = self._share_beyond(np.array([bound_ns * (1 - 1e-3)]))[0]
            suspected = float((self._shares * self._share_beyond(bound_ns - self._delays_ns)).sum())
            if there - suspected >= beyond * (1 - float(self._shares.sum())):
                return bound_ns
        return 0.0
