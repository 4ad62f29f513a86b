"""Finds the percentile up to which the latencies of a run are the database's, not the load generator's.

The load generator delays ops in two ways. The first delay is known for each op: its process woke up late for it, it
waited for a thread, or its answer lay unread. It is subtracted op by op; `undelayed` is the histogram of the remaining
times. The second delay occurs when the operating system does not run the process although it has work to do. It cannot
be measured per op, but timers that end late show it; it hits ops independently of how long the database takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.hist import Histogram, counter_of, lowest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

CHANGE = 0.10
"""Largest share of a believable percentile's value that the load generator's delays may account for."""
RESOLUTION_NS = 200_000
"""Smaller differences prove nothing: the time that the work on an answer takes is known to about 0.1 ms only."""
EXPLAINED = 0.5
"""Largest share of the ops above a percentile that chance delays of the process may account for."""
TIMER_NS = 1_000_000
"""Lateness that is normal for a timer: libev rounds its polling time up to whole milliseconds."""


def believable_percentile(
    measured: Histogram, undelayed: Histogram, timer_lag: Histogram, percents: Iterable[float]
) -> float:
    """Return the highest of `percents` that is believable together with all lower ones; 0 if the lowest is not.

    Without any measured time, that is the highest of all.

    Parameters
    ----------
    measured
        The reported times, ns.
    undelayed
        The times of the same ops, each without its known delay, ns.
    timer_lag
        How late timers of the same processes ended, ns, without the time in which the event loop was busy.
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
    """Delays that hit ops by chance, whatever the database does, and the measured times, which contain such delays."""

    def __init__(self, times: Histogram, timer_lag: Histogram) -> None:
        self._total = len(times)
        self._longer = np.append(np.cumsum(times.counts[::-1])[::-1], 0)
        used = np.flatnonzero(timer_lag.counts)
        delays_ns = lowest_of(used) - TIMER_NS
        shares = timer_lag.counts[used] / max(1, len(timer_lag))
        self._delays_ns, self._shares = delays_ns[delays_ns > 0], shares[delays_ns > 0]

    def _share_beyond(self, times_ns: NDArray[Any]) -> NDArray[np.float64]:
        """Return, for each of these times, the share of ops that took longer (compared to 3 digits)."""
        return self._longer[counter_of(times_ns.astype(np.int64)) + 1] / max(1, self._total)

    def are_harmless(self, time_ns: float, percent: float, change: float) -> bool:
        """Return True if the delays raised the percentile `percent`, now at `time_ns`, by at most the share `change`.

        Adding the same delays to the measured times once more would raise it about as much again. That does not hold
        for a percentile among ops that are so slow only because of the delays; so those ops must be few (EXPLAINED).
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
