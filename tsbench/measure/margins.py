"""How sure the figures of one run are: its ops in stretches of time, their margins, and tests of gates.

These margins are "within this run": another start of the server can settle at another level, which only repeats show.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tsbench import units
from tsbench.measure.hist import Histogram, SparseHistogram, counter_of, lowest_of
from tsbench.measure.statistics import ALPHA, Bounds, binomial_at_least, binomial_at_most, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from tsbench.results.figures import Tail
    from tsbench.results.summary import GateState

MOST_BATCHES = 64
"""Most stretches of a window, so that memory does not grow with its length."""
LEAST_BATCHES = 8
"""Fewest stretches that show how much the ops of one depend on each other."""
SURE = 0.99
"""Confidence from which on a gate holds or is broken."""
_OTHER: dict[bool, GateState] = {True: "fail", False: "pass"}
_WIDER = 1.2
"""Factor on the reach of a percentile's margin. The few stretches of a run show a wandering level too narrowly: in
simulations of 60 s the margins had the p99 of a run ten times as long in 84 to 90 of 100 without it."""
_LEAN = 0.5
"""How much further up the margin of a percentile above the median reaches, as a share at p100; half as much less far
down. High percentiles are made by the extremes of a wandering level, of which a run more often lacks one than has one
too many: in the same simulations nearly all runs that the margins missed were slower."""
_LONGER = (2, 3, 5, 10, 20, 50, 100)


def dependence(sums: ArrayLike, sizes: ArrayLike) -> float:
    """Return by which factor the dependence of ops in time widens the variance of a mean; 1 if they are independent.

    Parameters
    ----------
    sums, sizes
        Of each batch of ops, in the order of time: how many had a property (were slow, say), and how many there were.

    Notes
    -----
    The variance of the batches' sums around the mean share is divided by that of independent ops, for batches of one,
    two, four ... as long as there are eight of them. The largest factor counts: a stall that is longer than a batch
    makes the batches themselves dependent.
    """
    count, size = (np.asarray(part, dtype=np.float64) for part in (sums, sizes))
    share = count.sum() / max(1.0, size.sum())
    if not 0 < share < 1:
        return 1.0
    worst, last = 1.0, _memory(count - share * size)
    while count.size >= LEAST_BATCHES:
        excess = count - share * size
        factor = (excess**2).sum() * count.size / (count.size - 1) / (share * (1 - share) * size.sum())
        worst = max(worst, float(factor) * last)
        last = 1.0
        count, size = (_joined(part) for part in (count, size))
    return worst


def _memory(values: NDArray[np.float64]) -> float:
    """Return by which factor a level that lasts from one value to the next widens the variance of their mean.

    The factor is that of an autoregressive process with the values' correlation to the next one, which short series
    underestimate by (1 + 4 r) / n (Kendall); where they depend on each other noticeably, one standard error is added,
    since the factor grows the faster the larger the correlation is.
    """
    centred = values - values.mean()
    square = float((centred**2).sum())
    if not square:
        return 1.0
    r = float((centred[:-1] * centred[1:]).sum()) / square
    r += (1 + 4 * r) / values.size
    if r > 2 / math.sqrt(values.size):
        r += math.sqrt(max(0.0, 1 - r * r) / values.size)
    r = min(0.95, max(0.0, r))
    return (1 + r) / (1 - r)


def _joined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of neighbours; a last one without a neighbour is left out."""
    even = values.size // 2 * 2
    joined: NDArray[np.float64] = values[:even].reshape(-1, 2).sum(axis=1)
    return joined


def mean_interval(values: ArrayLike) -> Bounds | None:
    """Return the mean of values in the order of time, such as a rate per second; None with fewer than eight.

    Batch means: the variance of the mean is that of the means of batches of one, two, four ... values, as long as there
    are eight of them; the widest interval counts, since values that depend on each other make short batches look alike.
    """
    means = np.asarray(values, dtype=np.float64)
    if means.size < LEAST_BATCHES:
        return None
    mean, memory = float(means.mean()), _memory(means)
    widest = float(means.std(ddof=1)) * math.sqrt(memory / means.size)
    widest *= t_quantile(ALPHA / 2, max(2, round(means.size / memory) - 1))
    while means.size >= LEAST_BATCHES:
        deviation = float(means.std(ddof=1)) / math.sqrt(means.size)
        widest = max(widest, deviation * t_quantile(ALPHA / 2, means.size - 1))
        means = _joined(means) / 2
    return Bounds(mean, mean - widest, mean + widest)


def share_interval(share: float, ops: float) -> tuple[float, float]:
    """Return the least and the highest share of all ops, if `share` of `ops` independent ones was seen.

    Wilson's interval, with t instead of the normal distribution: the number of independent ops was itself estimated.
    """
    z = _WIDER * t_quantile(ALPHA / 2, 2 * LEAST_BATCHES - 1)
    centre = (share + z * z / (2 * ops)) / (1 + z * z / ops)
    half = z * math.sqrt(share * (1 - share) / ops + z * z / (4 * ops * ops)) / (1 + z * z / ops)
    return centre - half, centre + half


@dataclass(slots=True)
class Batches:
    """Histograms and counts of one op in equal stretches of whole seconds, of a window of `window_s` seconds.

    A window of 0 s keeps nothing, and the seconds after the last whole stretch are left out.
    """

    window_s: int = 0
    _times: dict[str, list[tuple[int, SparseHistogram]]] = field(default_factory=dict)
    _open: dict[str, tuple[int, Histogram]] = field(default_factory=dict)
    _done: Counter[int] = field(default_factory=Counter)
    _points: Counter[int] = field(default_factory=Counter)

    @property
    def length_s(self) -> int:
        """Length of each stretch of the measured window, in seconds."""
        return max(1, -(-self.window_s // MOST_BATCHES))

    @property
    def number(self) -> int:
        """Number of stretches."""
        return self.window_s // self.length_s

    def see(self, kind: str, second: int, histogram: SparseHistogram) -> None:
        """Add the times of one second, counted from the window's start; seconds come in their order."""
        batch = second // self.length_s
        if batch >= self.number:
            return
        if self.length_s == 1:
            self._times.setdefault(kind, []).append((batch, histogram))
            return
        of, whole = self._open.get(kind, (batch, Histogram()))
        if of != batch:  # one histogram of full length is kept per kind, and none per second
            self._times.setdefault(kind, []).append((of, SparseHistogram.of(whole)))
            whole = Histogram()
        histogram.add_to(whole)
        self._open[kind] = (batch, whole)

    def count(self, second: int, done: int, points: int) -> None:
        """Add the ops that ended in a second and their acknowledged points."""
        if self.window_s:
            self._done[second // self.length_s] += done
            self._points[second // self.length_s] += points

    def add(self, other: Batches) -> None:
        """Add another op's stretches of the same window."""
        self.window_s = self.window_s or other.window_s
        for kind in {*other._times, *other._open}:
            self._times.setdefault(kind, []).extend(other.parts(kind))
        self._done.update(other._done)
        self._points.update(other._points)

    def parts(self, kind: str) -> Iterator[tuple[int, SparseHistogram]]:
        """Yield stretches with histograms of a kind of time; a stretch may come several times."""
        yield from self._times.get(kind, ())
        if kind in self._open:
            batch, whole = self._open[kind]
            yield batch, SparseHistogram.of(whole)

    def _flat(self, kind: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return stretch, place in `Histogram.counts` and count of every used counter."""
        parts = list(self.parts(kind))
        if not parts:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, nothing
        batches = np.repeat([batch for batch, _ in parts], [part.index.size for _, part in parts]).astype(np.int64)
        columns = [[getattr(part, name) for _, part in parts] for name in ("index", "count")]
        return batches, np.concatenate(columns[0]), np.concatenate(columns[1])

    def dependence(self, kind: str, limit_ns: float) -> float | None:
        """Return by which factor ops at or beyond a time depend on each other; None if the window is too short."""
        if self.number < LEAST_BATCHES:
            return None
        batches, index, count = self._flat(kind)
        slow = count * (index >= counter_of(np.array([int(limit_ns)]))[0])
        return dependence(
            np.bincount(batches, slow, minlength=self.number), np.bincount(batches, count, minlength=self.number)
        )

    def _percentiles(self, kind: str, percents: list[float]) -> NDArray[np.int64]:
        """Return the percentiles in ns of each stretch with ops, in the order of time."""
        parts: dict[int, list[SparseHistogram]] = {}
        for batch, part in self.parts(kind):
            parts.setdefault(batch, []).append(part)
        return np.array([SparseHistogram.sum(parts[batch]).percentiles_ns(percents) for batch in sorted(parts)])

    def margins(self, kind: str, whole: Histogram, percents: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """Return the margins of 95 % within this run: of percentiles and the mean in ns, of `ops/s` and `points/s`.

        A percentile's margin is the wider one of two: that of its rank among as many ops as are independent of each
        other, which a single long stall widens, and that of the stretches' own percentiles (as logarithms), which a
        level that wanders widens. Percentiles with fewer than four ops beyond them have none, and nothing has one if
        the window is too short. No time is shorter than the shortest one, or longer than the window and the longest
        one, and no rate is negative, however little the stretches agree.
        """
        ops = len(whole)
        if self.number < LEAST_BATCHES or not ops:
            return {}
        intervals: dict[str, tuple[float, float]] = {}
        batches, index, count = self._flat(kind)
        sizes = np.bincount(batches, count, minlength=self.number)
        wanted = {name: percent for name, percent in percents.items() if percent < 100}
        of_each = self._percentiles(kind, [*wanted.values()])
        for place, (name, percent) in enumerate(wanted.items()):
            at = whole.percentile_ns(percent)
            slow = np.bincount(batches, count * (index >= counter_of(np.array([at]))[0]), minlength=self.number)
            independent = ops / dependence(slow, sizes)
            ends = whole.percentiles_ns([100 * share for share in share_interval(percent / 100, independent)])
            spread = mean_interval(np.log(np.maximum(1, of_each[:, place])))
            if (1 - percent / 100) * ops < 4 or spread is None:
                continue
            reach, lean = _WIDER * (spread.most - spread.estimate), _LEAN * max(0.0, percent / 50 - 1)
            least, most = at * math.exp(-reach * (1 - lean / 2)), at * math.exp(reach * (1 + lean))
            intervals[name] = (min(ends[0], least), max(ends[1], most))
        rates = {"ops/s": self._done, "points/s": self._points}
        means = {name: np.array([of[n] for n in range(self.number)]) / self.length_s for name, of in rates.items()}
        if sizes.sum():
            sums_ns = np.bincount(batches, count * lowest_of(index), minlength=self.number)
            # around the mean of all: what each stretch adds to the sum beyond its share
            beyond = (sums_ns - sums_ns.sum() / sizes.sum() * sizes) / sizes.mean()
            means["mean"] = float(whole.mean_ns) + beyond
        for name, values in means.items():
            if values.any() and (interval := mean_interval(values)) is not None:
                intervals[name] = (interval.least, interval.most)
        times = whole.percentile_ns(0), max(whole.percentile_ns(100), self.window_s * units.NS_PER_S)
        possible = dict.fromkeys(intervals, times) | dict.fromkeys(rates, (0, math.inf))
        return {
            name: (max(possible[name][0], least), min(possible[name][1], most))
            for name, (least, most) in intervals.items()
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a gate on a percentile holds, how sure that is, and the ops that say so, in words."""

    state: GateState
    confidence: float | None
    text: str


def judge(tail: Tail, percent: float, limit_ns: float, *, below: bool) -> Judgement:
    """Return whether a percentile lies below a limit (or above it), by the number of ops beyond the limit.

    It lies below if few enough ops are beyond that there would hardly be as few (in one of a hundred runs) if it did
    not: the binomial test, on as many ops as are independent of each other. Between both ends it is undecided. Where
    the client's lateness decides, it is not judged.
    """
    each = max(1.0, tail.dependence or 1.0)

    def sure(slow: int, times: float = 1.0) -> tuple[float, float]:
        share, slow_ops, ops = 1 - percent / 100, times * slow / each, times * tail.ops / each
        return 1 - binomial_at_most(slow_ops, ops, share), 1 - binomial_at_least(slow_ops, ops, share)

    def state(slow: int, times: float = 1.0) -> GateState:
        is_below, is_above = sure(slow, times)
        return ("pass" if below else "fail") if is_below >= SURE else _OTHER[below] if is_above >= SURE else "undecided"

    ends = {state(tail.slow_least), state(tail.slow_most)}
    verdict = ends.pop() if len(ends) == 1 else "not judged" if "undecided" not in ends else "undecided"
    slow = units.format_count(tail.slow_most)
    if tail.slow_least != tail.slow_most:
        slow = f"{units.format_count(tail.slow_least)} to {slow}"
    beyond = f"{slow} of {units.format_count(tail.ops)} ops were not below {units.format_duration(limit_ns)}"
    if each >= 1.5:
        beyond += f", which tell as much as {units.format_count(round(tail.ops / each))} independent ones"
    if verdict == "undecided":
        longer = next((times for times in _LONGER if state(tail.slow_most, times) != "undecided"), None)
        more = f"; a run {longer} times as long might decide" if longer else ": too close to the limit to decide"
        return Judgement(verdict, None, f"{beyond}{more}")
    if verdict == "not judged":
        return Judgement(verdict, None, beyond)
    confidence = sure(tail.slow_most)[0] if (verdict == "pass") is below else sure(tail.slow_least)[1]
    word = "holds" if verdict == "pass" else "is broken"
    share = f"{math.floor(1000 * min(confidence, 0.999)) / 10:g} %"
    return Judgement(verdict, confidence, f"{beyond}; {word} with {share} confidence")


def above(histogram: Histogram, limit_ns: float) -> int:
    """Return how many of the counts are not below a time, to 3 digits."""
    return int(histogram.counts[int(counter_of(np.array([int(limit_ns)]))[0]) :].sum())
