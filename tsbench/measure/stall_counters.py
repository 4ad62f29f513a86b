"""Counters of the server that rose during a stall of the rate: what it was doing then.

A counter is high if its highest value in the stall lies FAR or more robust standard deviations above the median of the
run's other seconds (median and MAD, the median absolute deviation; for one that hardly ever moves, 1 % of its range),
and above all but a twentieth of these seconds: a gauge that is 1 every now and then and else 0 has no deviation.
Only rises count: a counter that falls in a stall follows from the ops that are missing, and a rate that rises behind
one in an open loop, no more than the ops that are caught up, from these. That both came at the same time
is all this says; which of them is the reason is for the reader to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.results.figures import CounterRise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from numpy.typing import NDArray

    from tsbench.results.panels import Panel

FAR = 6.0
"""Least distance in robust standard deviations; the highest of some seconds of some counters reaches 4 by chance."""
MOST_COUNTERS = 3
"""Maximum number of counters per stall, those that rose most."""
MARGIN_S = 1.0
"""Time around a stall that belongs to it: seconds of counters and of ops do not begin at the same moment, and a server
that is busy answers the question for its counters late."""

_LEAST_OTHERS = 10
"""Minimum number of seconds outside the stalls for calling anything usual."""
_USUAL_PERCENT = 95
_SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution by its MAD."""
_RANGE_SHARE = 0.01
"""Least standard deviation as a share of a counter's range, for counters that hardly ever move."""


def counters_in_stalls(
    counters: pl.DataFrame,
    panels: Iterable[Panel],
    stalls: Sequence[tuple[int, int]],
    caught_up: Sequence[float] | None = None,
) -> list[tuple[CounterRise, ...]]:
    """Return for each stall the counters that rose in it, those that rose most first.

    Parameters
    ----------
    counters
        The rows of counters.parquet.
    panels
        The database's panels; only the counters of those that may explain a stall are looked at.
    stalls
        The first and the last second of each stall of one rate.
    caught_up
        The highest rate of ops in and shortly after each stall, as a multiple of the usual one; None means 1 for all.
    """
    rises_all: list[list[CounterRise]] = [[] for _ in stalls]
    factors = [1.0 for _ in stalls] if caught_up is None else [max(1.0, factor) for factor in caught_up]
    for panel in panels:
        if not panel.explains_stalls:
            continue
        for name, label in panel.counters.items():
            rows = counters.filter(counters["name"] == name).drop_nulls().sort("second")
            begin, end, values = _intervals(rows["second"].to_numpy(), rows["value"].to_numpy(), panel.kind)
            inside = [_overlaps(begin, end, first_s, last_s) for first_s, last_s in stalls]
            outside = values[~np.logical_or.reduce([np.zeros(len(values), bool), *inside])]
            if len(outside) < _LEAST_OTHERS:
                continue
            usual, spread = float(np.median(outside)), _spread(outside, values)
            reached = float(np.percentile(outside, _USUAL_PERCENT, method="higher"))
            for number, chosen in enumerate(inside):
                highest = float(values[chosen].max(initial=-np.inf))
                least = usual * (factors[number] if panel.kind == "rate" else 1.0) + FAR * spread
                if spread and highest > reached and highest >= least:
                    deviations = (highest - usual) / spread
                    rise = CounterRise(name, panel.title, label, panel.unit, panel.kind, usual, highest, deviations)
                    rises_all[number].append(rise)
    return [tuple(sorted(rises, key=lambda rise: -rise.deviations)[:MOST_COUNTERS]) for rises in rises_all]


def _spread(outside: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return the robust standard deviation of the seconds outside; 0 if the counter never moved."""
    deviation = float(np.median(np.abs(outside - np.median(outside))))
    return max(_SIGMA_OF_MAD * deviation, _RANGE_SHARE * float(np.ptp(values)))


def _overlaps(begin: NDArray[np.float64], end: NDArray[np.float64], first_s: int, last_s: int) -> NDArray[np.bool_]:
    """Return the intervals that a stall, with its margins, shares some time with."""
    overlaps: NDArray[np.bool_] = (begin < last_s + 1 + MARGIN_S) & (end > first_s - MARGIN_S)
    return overlaps


def _intervals(
    seconds: NDArray[np.float64], values: NDArray[np.float64], kind: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return beginnings, ends and values of a counter's intervals, totals as their growth per second.

    A row holds the value at the end of the second that begins at its `second`. A total that fell, because the server
    was restarted, has no growth.
    """
    if kind == "gauge":
        return seconds, seconds + 1.0, values
    lengths, grown = np.diff(seconds), np.diff(values)
    usable = (lengths > 0) & (grown >= 0)
    per_s = grown[usable] / lengths[usable]
    return seconds[:-1][usable] + 1.0, seconds[1:][usable] + 1.0, per_s
