"""Steadiness of a rate over a run: when it settled, whether it drifts, how much it varies, and its stalls.

A mean over the measured window says little about a database that slows down as its data grows, or that stops while it
merges files. The tests are standard ones, of batches of seconds, since neighbouring seconds depend on each other:

- The start-up ends where the marginal standard error rule puts it (MSER; White, Simulation 69:6, 1997): at the first
  moment from which on the mean of the rest is known (nearly) best. It sees medians of thirtieths of the run, with
  stalls filled in, since these are no start-up. If what comes before differs from the rest by 5 % at most, there was no
  start-up; if the end is in the second half, the rate did not settle.
- The rest drifts if the Mann-Kendall test finds a trend at the 1 % level; its size is Theil and Sen's slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from numpy.typing import NDArray

    from tsbench.measure.stall_counters import CounterRise

LEAST_S = 20
"""Minimum number of seconds for a statement."""
TOLERATED_DRIFT = 0.1
"""Change over the settled part, as a share of its median, up to which a rate that drifts counts as settled."""
START_UP = 0.05
"""Least difference between the means of a start-up and of the rest, as a share of the latter."""
STALLED = 0.5
"""A second is stalled if its rate is below this share of the median."""
LEAST_PER_S = 20.0
"""Minimum median rate for finding stalls: of fewer ops a second, half may be missing by chance."""
MOST_STALLS = 20

_START_UP_BATCHES = 30
_NEARLY = 1.5
"""The first batch counts whose standard error, squared, is at most this times the least: the minimum is flat."""
_DRIFT_BATCHES = 100
"""Number of batches at most for the test of a trend, which compares each with each."""
_Z_AT_1_PERCENT = 2.5758


@dataclass(frozen=True, slots=True)
class Stall:
    """Consecutive stalled seconds from `start_s` on; the slowest had the share `lowest` of the usual rate.

    `counters` are the server's counters that were high meanwhile (see `stall_counters`).
    """

    start_s: int
    length_s: int
    lowest: float
    counters: tuple[CounterRise, ...] = ()


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How a rate went on. Seconds count from the start of the measured window; those of the warm-up are negative.

    `settled_s` is the end of the start-up, None if the rate never settled. What follows is of the seconds from then on
    (of all if it never settled): `median_per_s`; `variation`, the coefficient of variation of the seconds; `drift`, the
    change from the first to the last second as a share of the median, 0 if it may be chance; `stalls`, at most
    MOST_STALLS, those with most missing first, of `stall_count` with `stalled_s` seconds.
    """

    settled_s: int | None
    median_per_s: float
    variation: float
    drift: float
    stalls: tuple[Stall, ...]
    stall_count: int
    stalled_s: int


def steadiness(per_s: NDArray[np.float64], first_s: int) -> Steadiness | None:
    """Return how a rate went on; None if it has fewer than LEAST_S seconds, or is mostly 0.

    Parameters
    ----------
    per_s
        The rate of every second, shape (seconds,), from the run's first whole second on.
    first_s
        The first of these seconds, negative in the warm-up.
    """
    if len(per_s) < LEAST_S:
        return None
    start = _start_up(per_s)
    settled = per_s if start is None else per_s[start:]
    median = float(np.median(settled))
    if not median:
        return None
    change = drift(settled) / median
    has_settled = start is not None and abs(change) <= TOLERATED_DRIFT
    offset = first_s + (start or 0)
    found = _stalls(settled, median) if median >= LEAST_PER_S else []
    stalls = [Stall(offset + begin, end - begin, float(settled[begin:end].min()) / median) for begin, end in found]
    stalls.sort(key=lambda stall: stall.length_s * (1 - stall.lowest), reverse=True)
    return Steadiness(
        settled_s=offset if has_settled else None,
        median_per_s=median,
        variation=float(settled.std() / settled.mean()),
        drift=change,
        stalls=tuple(stalls[:MOST_STALLS]),
        stall_count=len(stalls),
        stalled_s=sum(stall.length_s for stall in stalls),
    )


def steadiness_by_kind(per_second: pl.DataFrame, kinds: Mapping[str, str], *, end_s: int) -> dict[str, Steadiness]:
    """Return how the rates of points written and of queries went on, by kind, where the run is long enough.

    Parameters
    ----------
    per_second
        The rows of ops.parquet.
    kinds
        `write` or `query` by op.
    end_s
        The end of the measured window.
    """
    seconds = per_second["second"].to_numpy()
    first_s = min(0, int(seconds.min(initial=0)) + 1)  # a warm-up's first second is hardly ever whole
    inside = (seconds >= first_s) & (seconds < end_s)
    found = {}
    for kind in sorted({*kinds.values()}):
        rows = inside & per_second["op"].is_in([op for op, of in kinds.items() if of == kind]).to_numpy()
        per_s = np.zeros(max(0, end_s - first_s))
        counts = per_second["points" if kind == "write" else "done"].to_numpy()
        np.add.at(per_s, seconds[rows] - first_s, counts[rows])
        steady = steadiness(per_s, first_s)
        if steady is not None:
            found[kind] = steady
    return found


def _start_up(per_s: NDArray[np.float64]) -> int | None:
    """Return the number of seconds before the rate settled; None if it did not in the first half."""
    slow, size = _slow_beginning(per_s), max(1, len(per_s) // _START_UP_BATCHES)
    filled = without_stalls(per_s, most_s=len(per_s) // 10, after_s=slow)
    medians = np.median(_batches(filled, size), axis=1)
    left = np.arange(len(medians), 0, -1)
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (medians, medians**2))
    errors = np.maximum(squares - sums**2 / left, 0.0) / left**2
    candidates = errors[: -(len(medians) // 10) or None]  # of the last few alone, it is small by chance
    best = int((candidates <= _NEARLY * candidates.min()).argmax())
    rest = float(medians[best:].mean())
    if not best or abs(float(medians[:best].mean()) - rest) <= START_UP * rest:
        return slow
    return max(slow, best * size) if best <= len(medians) // 2 else None


def _slow_beginning(per_s: NDArray[np.float64]) -> int:
    """Return the end of a stretch of stalled seconds that is longer than all before it, which is no stall; 0 if none.

    A start-up of half a minute is less than a batch of an hour's run, whose median does not show it.
    """
    usual = float(np.median(per_s))
    stretches = _stalls(per_s, usual) if usual >= LEAST_PER_S else []
    return next((end for begin, end in reversed(stretches) if begin < end - begin and end <= len(per_s) // 2), 0)


def without_stalls(per_s: NDArray[np.float64], *, most_s: int, after_s: int = 0) -> NDArray[np.float64]:
    """Return the rate with the median in place of stalls of at most `most_s` seconds, from `after_s` on."""
    usual, filled = float(np.median(per_s)), per_s.copy()
    for begin, end in _stalls(per_s, usual):
        if begin and begin >= after_s and end - begin <= most_s:
            filled[begin:end] = usual
    return filled


def drift(per_s: NDArray[np.float64]) -> float:
    """Return the change from the first to the last second by Theil and Sen's slope; 0 if it may be chance."""
    means = _batches(per_s, -(-len(per_s) // _DRIFT_BATCHES)).mean(axis=1)
    first, second = np.triu_indices(len(means), 1)
    rises = means[second] - means[first]
    count = len(means)
    score = float(np.sign(rises).sum())
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if abs(score) - 1 <= _Z_AT_1_PERCENT * deviation:
        return 0.0
    return float(np.median(rises / (second - first))) * (count - 1)


def _batches(per_s: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the seconds in rows of `size`, without an incomplete last one."""
    return per_s[: len(per_s) // size * size].reshape(-1, size)


def _stalls(per_s: NDArray[np.float64], usual: float) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the stretches of stalled seconds."""
    stalled = np.concatenate([[False], per_s < STALLED * usual, [False]])
    edges = np.flatnonzero(np.diff(stalled)).tolist()
    return [edge for number, edge in enumerate(pairwise(edges)) if not number % 2]
