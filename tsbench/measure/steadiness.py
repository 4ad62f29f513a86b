"""Steadiness of a rate over a run: when it settled, whether it drifts, how much it varies, and its stalls.

A mean over the measured window says little about a database that slows down as its data grows, or that stops while it
merges files. The tests are standard ones, of batches of seconds, since neighbouring seconds depend on each other:

- The start-up ends where the marginal standard error rule puts it (MSER; White, Simulation 69:6, 1997): at the first
  moment from which on the mean of the rest is known (nearly) best. It sees medians of thirtieths of the run, with
  stalls filled in and without what was caught up after them, since these are no start-up. If what comes before differs
  from the rest by 5 % at most, there was no start-up; if the end is in the second half, the rate did not settle.
- A stall is a sudden fall below half of the usual rate. A start-up is no fall, and a drift is not sudden: what counts
  is also the rate of the last seconds before that were not stalled. In an open loop no more can be done in a second
  than was due until then, so that seconds with few arrivals are no stalls.
- The rest drifts if the Mann-Kendall test finds a trend at the 1 % level; its size is Theil and Sen's slope.

Users who think between two ops have the same rate whether a query takes 9 ms or 90. So the times of each op are looked
at, too: they drift if the medians of its seconds do, by the same test, and by a factor that is worth saying.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tsbench.results.figures import Stall, Steadiness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl
    from numpy.typing import NDArray

LEAST_S = 20
"""Minimum number of seconds for a statement."""
TOLERATED_DRIFT = 0.1
"""Change over the settled part, as a share of its median, up to which a rate that drifts counts as settled."""
START_UP = 0.05
"""Least difference between the means of a start-up and of the rest, as a share of the latter."""
STALLED = 0.5
"""A second is stalled if its rate is below this share of the median."""
LEAST_PER_S = 20.0
"""Minimum median rate for finding stalls, in ops."""
CHANCE = 4.0
"""Least number of ops missing in a stall, in standard deviations of a number that comes by chance: of 30 ops a second,
a second lacks half three times an hour."""
RECOVERED = 0.75
"""Least share of the usual rate that ends a stall: in a partial one, chance lifts a second above STALLED."""
MOST_STALLS = 20
BEFORE_S = 5
"""Number of seconds before a stall whose median it must fall below, too."""
FAST_S = 4
"""Least number of seconds before a stall that is longer than them; after fewer, it belongs to the start-up. In an open
loop half of them will do: that all was done that was due shows that the server had started."""

LEAST_TIMED_S = 8
"""Minimum number of seconds with ops of a name for a statement about their times."""
DRIFTED = 1.5
"""Least factor between the times at the beginning and at the end of a window that is named."""

_START_UP_BATCHES = 30
_NEARLY = 1.5
"""The first batch counts whose standard error, squared, is at most this times the least: the minimum is flat."""
_DRIFT_BATCHES = 100
"""Number of batches at most for the test of a trend, which compares each with each."""
_Z_AT_1_PERCENT = 2.5758


def steadiness(
    per_s: NDArray[np.float64], first_s: int, due_per_s: NDArray[np.float64] | None = None, *, of_op: float = 1.0
) -> Steadiness | None:
    """Return how a rate went on; None if it has fewer than LEAST_S seconds, or is mostly 0.

    Parameters
    ----------
    per_s
        The rate of every second, shape (seconds,), from the run's first whole second on.
    first_s
        The first of these seconds, negative in the warm-up.
    due_per_s
        In an open loop, what was due in every second, in the unit of the rate.
    of_op
        What an op contributes to the rate.
    """
    usual = float(np.median(per_s)) if len(per_s) >= LEAST_S else 0.0
    if not usual:
        return None
    possible, by_chance = (np.full(len(per_s), usual), usual) if due_per_s is None else _possible(per_s, due_per_s)
    stretches = _joined(per_s, possible) if usual >= LEAST_PER_S * of_op else []
    slow = _slow_beginning(stretches, len(per_s), FAST_S if due_per_s is None else FAST_S // 2)
    least = CHANCE * math.sqrt(of_op * by_chance)
    candidates = [
        (begin, end)
        for begin, end in _sudden(per_s, stretches)
        if begin >= slow and (possible - per_s)[begin:end].sum() >= least * math.sqrt(end - begin)
    ]
    start = _start_up(_without_catch_up(per_s, candidates, due_per_s), slow)
    if start is not None and not np.median(per_s[start:]):
        start = None  # it settled at nothing
    settled = per_s if start is None else per_s[start:]
    median = float(np.median(settled))
    change = drift(settled) / median
    has_settled = start is not None and abs(change) <= TOLERATED_DRIFT
    stalls = [Stall(first_s + begin, end - begin, float(per_s[begin:end].min()) / median) for begin, end in candidates]
    stalls.sort(key=lambda stall: stall.lost_s, reverse=True)
    return Steadiness(
        settled_s=first_s + (start or 0) if has_settled else None,
        median_per_s=median,
        variation=float(settled.std() / settled.mean()),
        drift=change,
        stalls=tuple(stalls[:MOST_STALLS]),
        stall_count=len(stalls),
        stalled_s=sum(stall.length_s for stall in stalls),
    )


def steadiness_by_kind(
    per_second: pl.DataFrame, kinds: Mapping[str, str], *, end_s: int, unsent: Mapping[int, int] | None = None
) -> dict[str, Steadiness]:
    """Return how the rates of points written and of queries went on, by kind, where the run is long enough.

    Parameters
    ----------
    per_second
        The rows of ops.parquet.
    kinds
        `write` or `query` by op.
    end_s
        The end of the measured window.
    unsent
        In an open loop, the number of arrivals whose ops never ended, by the second in which they were due.
    """
    seconds = per_second["second"].to_numpy()
    first_s = min(0, int(seconds.min(initial=0)) + 1)  # a warm-up's first second is hardly ever whole
    inside = (seconds >= first_s) & (seconds < end_s)
    by_kind = {}
    everything = max(1, int(per_second["count"].to_numpy()[inside].sum()))
    missing = np.zeros(max(0, end_s - first_s))
    for second, arrivals in (unsent or {}).items():
        if first_s <= second < end_s:
            missing[second - first_s] = arrivals / everything
    for kind in sorted({*kinds.values()}):
        per_s, due, ops = np.zeros(len(missing)), np.zeros(len(missing)), 0.0
        for op in (op for op, of in kinds.items() if of == kind):
            rows = inside & (per_second["op"] == op).to_numpy()
            rate, count, done = (
                np.bincount(seconds[rows] - first_s, per_second[name].to_numpy()[rows], len(missing))
                for name in ("points" if kind == "write" else "done", "count", "done")
            )
            per_s += rate
            due += (count + missing * count.sum()) * rate.sum() / max(1.0, done.sum())
            ops += done.sum()
        steady = steadiness(per_s, first_s, None if unsent is None else due, of_op=per_s.sum() / max(1.0, ops))
        if steady is not None:
            by_kind[kind] = steady
    return by_kind


def time_drifts(per_second: pl.DataFrame | None, *, end_s: int) -> dict[str, float]:
    """Return by op how many times as long it took at the end of the measured window as at its beginning.

    Only where the change is no chance and at least a factor of DRIFTED, up or down. `per_second` has the rows of
    ops.parquet, whose medians of service times count, None without any; `end_s` is the end of the window.
    """
    if per_second is None:
        return {}
    seconds, ops = per_second["second"].to_numpy(), per_second["op"].to_numpy()
    medians = per_second["service_p50_ns"].to_numpy()
    inside = (seconds >= 0) & (seconds < end_s) & (medians > 0)
    drifts = {}
    for op in sorted({*ops[inside].tolist()}):
        rows = inside & (ops == op)
        in_order = medians[rows][np.argsort(seconds[rows])]
        factor = math.exp(drift(np.log(in_order))) if len(in_order) >= LEAST_TIMED_S else 1.0
        if max(factor, 1 / factor) >= DRIFTED:
            drifts[op] = factor
    return drifts


def _start_up(filled: NDArray[np.float64], slow: int) -> int | None:
    """Return the number of seconds, at least `slow`, before the rate settled; None if it did not in the first half."""
    size = max(1, len(filled) // _START_UP_BATCHES)
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


def _possible(per_s: NDArray[np.float64], due: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return what an open loop could do in every second, and how much its seconds differ by chance.

    Possible is the usual rate, or what was due in the second and left from before, if that is less. Chance decides on
    which side of a second's beginning and end the ops are that are on their way then.
    """
    left = np.maximum(0.0, np.cumsum(due - per_s))
    usual = min(float(np.median(per_s)), float(np.median(due)))
    return np.minimum(usual, due + np.concatenate([[0.0], left[:-1]])), min(usual, 2 * float(np.median(left)))


def _joined(per_s: NDArray[np.float64], possible: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the stretches of stalled seconds, joined if the rate did not recover between them."""
    joined: list[tuple[int, int]] = []
    for begin, end in _below(per_s, STALLED * possible):
        last = joined.pop() if joined and (per_s < RECOVERED * possible)[joined[-1][1] : begin].all() else (begin, end)
        joined.append((last[0], end))
    return joined


def _slow_beginning(stretches: Sequence[tuple[int, int]], seconds: int, fast_s: int) -> int:
    """Return the end of a start-up whose seconds are stalled; 0 without one.

    That is a stretch with fewer seconds before it than `fast_s` or its own length. One of half a minute is less than a
    batch of an hour's run, whose median does not show it.
    """
    early = [end for begin, end in stretches if begin < min(fast_s, end - begin) and end <= seconds // 2]
    return max(early, default=0)


def _sudden(per_s: NDArray[np.float64], stretches: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of stalled seconds whose rate is below half that of the last other seconds before."""
    others = np.ones(len(per_s), bool)
    for begin, end in stretches:
        others[begin:end] = False
    for begin, end in stretches:
        before = per_s[:begin][others[:begin]][-BEFORE_S:]
        if len(before) and per_s[begin:end].mean() < STALLED * np.median(before):
            yield begin, end


def _without_catch_up(
    per_s: NDArray[np.float64], stalls: Sequence[tuple[int, int]], due_per_s: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the rate with the median in place of stalls, and at most what was due until their backlog was done.

    If it is not known what was due, it was the median, provided that the backlog was done.
    """
    usual, filled = float(np.median(per_s)), per_s.copy()
    due = np.full(len(per_s), usual) if due_per_s is None else due_per_s
    for begin, end in stalls:
        behind = np.cumsum((due - per_s)[begin:])[end - begin :]
        done = np.flatnonzero(behind <= 0)
        until = end + int(done[0]) + 1 if len(done) else end if due_per_s is None else len(per_s)
        filled[end:until] = np.minimum(filled, due)[end:until]
        filled[begin:end] = usual
    return filled


def without_stalls(per_s: NDArray[np.float64], *, most_s: int) -> NDArray[np.float64]:
    """Return the rate with the median in place of stalls of at most `most_s` seconds."""
    usual, filled = float(np.median(per_s)), per_s.copy()
    for begin, end in _below(per_s, STALLED * usual):
        if begin and end - begin <= most_s:
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


def _below(per_s: NDArray[np.float64], limit: NDArray[np.float64] | float) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the stretches of seconds below a limit."""
    stalled = np.concatenate([[False], per_s < limit, [False]])
    edges = np.flatnonzero(np.diff(stalled)).tolist()
    return [edge for number, edge in enumerate(pairwise(edges)) if not number % 2]
