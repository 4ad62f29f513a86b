"""Statistics of runs: intervals, tests of two sides and how many runs they need; pure, on numpy alone.

Figures of runs are compared as logarithms: what is found is a ratio, NEW by BASE, and 2 is as far from 1 as 1/2 is.
Runs of the same round are paired, because a machine that grows slower over an hour is then as slow for both sides.
Intervals are of 95 %. A load worker has no scipy, and needs none for this; the tests compare with it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

Difference: TypeAlias = Literal["better", "worse", "no difference found", "too few runs"]
"""What a comparison says of a figure."""
ALPHA = 0.05
"""Share of comparisons of equal sides in which a difference may be found."""
POWER = 0.9
"""Share of comparisons in which an effect is found that counts as one which would have been found."""
MOST_RUNS = 200
"""Most runs of a side that the tool recommends: with more, the noise is the problem."""
_FLIPPED = 14  # pairs; all 2**14 signs are tried, of more pairs as many signs by chance
_EXACT = 2_500  # products of two numbers of runs up to which the rank test is exact
_ORDERS = 1_999  # of a history, by chance
_UNSURE = 0.8  # confidence that the noise is not above what a recommendation reckons with
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate and the ends of its interval of 95 %, in the estimate's own unit."""

    estimate: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Test:
    """Two sides compared in one figure: the ratio NEW by BASE, and how probable it or a larger one is by chance.

    `ratio` has no interval (its ends are 0 and infinity) where there are too few runs for one. `noise` is the standard
    deviation of a logarithm: of a pair's ratio if `paired`, else of a run. `runs` are the numbers of BASE and NEW.
    """

    __test__ = False  # pytest would look for tests in it

    ratio: Bounds
    p: float
    noise: float
    paired: bool
    runs: tuple[int, int]


# --- distributions ----------------------------------------------------------------------------------------------------


def beta_share(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function: the share of Beta(a, b) at or below `x`.

    By its continued fraction (Lentz's method), which also takes a and b that are no whole numbers.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1), tiny)
    product = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1 / _not_zero(1 + part * d, tiny)
            c = _not_zero(1 + part / c, tiny)
            product *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(log_front) * product / a


def _not_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def binomial_at_most(probability: float, ops: float, share: float) -> float:
    """Return the probability of at most `probability` of `ops` independent ops, each with probability `share`.

    An effective number of ops need not be whole.
    """
    if probability < 0:
        return 0.0
    return 1.0 if probability >= ops else beta_share(ops - probability, probability + 1, 1 - share)


def binomial_at_least(probability: float, ops: float, share: float) -> float:
    """Return the probability of at least `probability` of `ops` independent ops, each with probability `share`."""
    if probability <= 0:
        return 1.0
    return 0.0 if probability > ops else beta_share(probability, ops - probability + 1, share)


def t_above(t: float, freedom: float) -> float:
    """Return the probability that Student's t with `freedom` degrees exceeds `t`."""
    tail = beta_share(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=1024)
def t_quantile(tail: float, freedom: float) -> float:
    """Return the t that is exceeded with probability `tail`, at most one half."""
    most = 1.0
    while t_above(most, freedom) > tail and most < 1e12:
        most *= 2
    return _solved(lambda t: t_above(t, freedom) <= tail, 0.0, most)


def _solved(holds: Callable[[float], bool], least: float, most: float) -> float:
    """Return where a condition begins to hold that does not at `least` and does at `most`."""
    for _ in range(80):
        middle = (least + most) / 2
        least, most = (least, middle) if holds(middle) else (middle, most)
    return most


# --- one side ---------------------------------------------------------------------------------------------------------


def median_interval(values: ArrayLike) -> Bounds | None:
    """Return the median of runs with the interval of their order statistics; None with fewer than six runs.

    No distribution is assumed: the k-th smallest and the k-th largest value have the median between them unless fewer
    than k runs fell on one side of it.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    runs = ordered.size
    outside = sum(binomial_at_most(k, runs, 0.5) <= ALPHA / 2 for k in range(runs // 2))
    if not outside:
        return None
    return Bounds(float(np.median(ordered)), float(ordered[outside - 1]), float(ordered[-outside]))


# --- two sides --------------------------------------------------------------------------------------------------------


def paired_test(base: ArrayLike, new: ArrayLike) -> Test:
    """Compare positive figures pair by pair with the sign-flip test of the mean logarithm of their ratios.

    If the sides are equal, each logarithm is as probable with the other sign. The interval has every ratio that this
    test does not refute: the means of all subsets of the pairs, but for the lowest and the highest ones (Hartigan).
    All signs are tried for up to 14 pairs, and a fixed sample of signs for more.
    """
    logs = np.log(np.asarray(new, dtype=np.float64)) - np.log(np.asarray(base, dtype=np.float64))
    pairs = logs.size
    chosen = _subsets(pairs)
    sums = chosen @ logs
    total = logs.sum()
    # a sum with flipped signs is the whole less twice the flipped ones; sums that differ by rounding are equal
    p = float(np.mean(np.abs(total - 2 * sums) >= abs(total) - 1e-9 * max(1e-300, float(np.abs(logs).sum()))))
    sizes = chosen.sum(axis=1)
    means = np.sort(sums[sizes > 0] / sizes[sizes > 0])
    outside = int(ALPHA / 2 * len(chosen) + 1e-9)
    ends = (float(means[outside - 1]), float(means[-outside])) if outside else (-math.inf, math.inf)
    noise = float(logs.std(ddof=1)) if pairs > 1 else 0.0
    return Test(_ratio(float(logs.mean()), *ends), p, noise, paired=True, runs=(pairs, pairs))


@lru_cache(maxsize=4)
def _subsets(pairs: int) -> NDArray[np.float64]:
    """Return all subsets of the pairs, a row of zeros and ones each; of more pairs as many by chance, none and all."""
    if pairs <= _FLIPPED:
        return ((np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1).astype(np.float64)
    rest = np.random.default_rng(pairs).integers(0, 2, (2**_FLIPPED - 2, pairs))
    return np.concatenate([np.zeros((1, pairs)), np.ones((1, pairs)), rest])


def rank_test(base: ArrayLike, new: ArrayLike) -> Test:
    """Compare positive figures of unpaired runs with the rank test of Mann and Whitney.

    The ratio is the median of all ratios of a run of NEW by one of BASE, its interval that of Hodges and Lehmann. The
    test is exact for up to 50 runs a side; ties count for no difference.
    """
    first, second = (np.log(np.asarray(side, dtype=np.float64)) for side in (base, new))
    differences = np.sort((second[:, None] - first[None, :]).ravel())
    above = float((differences > 0).sum() + 0.5 * (differences == 0).sum())
    share = _rank_shares(first.size, second.size)
    lower = math.ceil(min(above, differences.size - above))
    p = min(1.0, 2 * float(share[min(lower, share.size - 1)]))
    outside = int(np.searchsorted(share, ALPHA / 2, side="right"))  # numbers of differences that are refuted
    ends = (differences[outside - 1], differences[-outside]) if outside else (-math.inf, math.inf)
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (first, second))
    noise = math.sqrt(squares / max(1, first.size + second.size - 2))
    ratio = _ratio(float(np.median(differences)), float(ends[0]), float(ends[1]))
    return Test(ratio, p, noise, paired=False, runs=(first.size, second.size))


def _ratio(estimate: float, least: float, most: float) -> Bounds:
    return Bounds(*(math.exp(min(end, 700.0)) if end < math.inf else math.inf for end in (estimate, least, most)))


@lru_cache(maxsize=64)
def _rank_shares(first: int, second: int) -> NDArray[np.float64]:
    """Return the probabilities that Mann and Whitney's U of equal sides is at most 0, 1, 2 ..."""
    pairs = first * second
    if pairs > _EXACT:
        deviation = math.sqrt(pairs * (first + second + 1) / 12)
        return np.array([_NORMAL.cdf((u + 0.5 - pairs / 2) / deviation) for u in range(pairs + 1)])
    # the generating function of U: the product of (1 - q**(second + i)) / (1 - q**i) for i = 1 .. first
    ways = np.zeros(pairs + 1)
    ways[0] = 1.0
    for i in range(1, first + 1):
        ways[second + i :] -= ways[: max(0, pairs + 1 - second - i)].copy()
        for rest in range(i):
            ways[rest::i] = np.cumsum(ways[rest::i])
    shares: NDArray[np.float64] = np.cumsum(ways) / math.comb(first + second, first)
    return shares


def benjamini_hochberg(ps: Iterable[float]) -> list[float]:
    """Return the probabilities as corrected for their number: a difference is found where one is at most ALPHA.

    Then of all differences that are found, at most that share is none (Benjamini and Hochberg).
    """
    values = np.array([*ps], dtype=np.float64)
    if not values.size:
        return []
    order = np.argsort(values)
    raised = values[order] * values.size / np.arange(1, values.size + 1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1.0, np.minimum.accumulate(raised[::-1])[::-1])
    return [float(value) for value in corrected]


def differences(tests: Mapping[str, Test], more_is_better: Mapping[str, bool]) -> dict[str, Difference]:
    """Return what the tests of several figures of the same runs say together."""
    enough = {name: can_find(test, len(tests)) for name, test in tests.items()}
    corrected = dict(zip(tests, benjamini_hochberg(test.p for test in tests.values()), strict=True))
    pairs: dict[str, Difference] = {}
    for name, test in tests.items():
        if corrected[name] <= ALPHA and test.ratio.estimate != 1:
            pairs[name] = "better" if (test.ratio.estimate > 1) is more_is_better[name] else "worse"
        else:
            pairs[name] = "no difference found" if enough[name] else "too few runs"
    return pairs


# --- a history --------------------------------------------------------------------------------------------------------


def change_points(values: ArrayLike, alpha: float = ALPHA) -> list[int]:
    """Return where the level of a history of positive figures changes: the places of the first figures of new levels.

    Circular binary segmentation (Olshen and others, 2004) of their logarithms: the stretch whose mean differs most from
    the others' is kept if at most the share `alpha` of random orders has one that differs as much; then its pieces are
    searched. So that share of histories without a change, at most, has one found. A change that the rank test of both
    its sides does not confirm, as that of a single figure, is dropped.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    random = np.random.default_rng(logs.size)
    places: set[int] = set()
    pieces = [(0, logs.size)]
    while pieces:
        first, last = pieces.pop()
        if last - first < least_history(alpha):
            continue
        piece = logs[first:last] - logs[first:last].mean()
        orders = random.permuted(np.tile(piece, (_ORDERS, 1)), axis=1)
        begin, end, most = (one[0] for one in _stretches(piece[None, :]))
        if (1 + (_stretches(orders)[2] >= most * (1 - 1e-9)).sum()) / (1 + _ORDERS) <= alpha:
            edges = [first, *(first + at for at in (begin, end) if 0 < at < len(piece)), last]
            places |= {*edges[1:-1]}
            pieces += itertools.pairwise(edges)
    while places:
        edges = [0, *sorted(places), logs.size]
        sides = [np.exp(logs[one:other]) for one, other in itertools.pairwise(edges)]
        p, weakest = max(
            (rank_test(*both).p, at) for both, at in zip(itertools.pairwise(sides), edges[1:], strict=False)
        )
        if p <= alpha:
            break
        places.remove(weakest)
    return sorted(map(int, places))


@lru_cache(maxsize=64)
def least_history(alpha: float) -> int:
    """Return the least number of figures in which a change can be found: each of its sides is half of them then."""
    return next(n for n in range(4, MOST_RUNS) if n / math.comb(n, n // 2) <= alpha)


def _stretches(rows: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return begin and end of the stretch of each row (of mean 0) that differs most from the rest, and by how much."""
    count, size = rows.shape
    sums = np.concatenate([np.zeros((count, 1)), np.cumsum(rows, axis=1)], axis=1)
    begin, end, most = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(count)
    for length in range(1, size):
        distance = np.abs(sums[:, length:] - sums[:, :-length])
        place = distance.argmax(axis=1)
        highest = distance[np.arange(count), place] / math.sqrt(length * (size - length))
        better = highest > most
        begin[better], end[better], most[better] = place[better], place[better] + length, highest[better]
    return begin, end, most


# --- how many runs ----------------------------------------------------------------------------------------------------


def least_p(runs: tuple[int, int], *, paired: bool) -> float:
    """Return the smallest probability that the test of these numbers of runs can reach."""
    if min(runs) < 1:
        return 1.0
    return 2.0 ** (1 - min(runs)) if paired else 2 / math.comb(sum(runs), runs[0])


def can_find(test: Test, figures: int = 1) -> bool:
    """Return True if the runs suffice to find a large difference in one of that number of figures."""
    return least_p(test.runs, paired=test.paired) <= ALPHA / figures


def least_runs(figures: int = 1, *, paired: bool = True) -> int:
    """Return the least number of runs of a side with which a difference in one of `figures` can be found.

    Of pairs that is 6 for one figure and 8 for up to six; unpaired 4 and 5.
    """
    return next(n for n in range(1, MOST_RUNS) if least_p((n, n), paired=paired) <= ALPHA / figures)


def effect_found(noise: float, runs: tuple[int, int], figures: int = 1, *, paired: bool) -> float | None:
    """Return the smallest difference that would have been found in nine of ten comparisons, such as 0.05 for 5 %.

    Return None if there are too few runs for any. `noise` is that of `Test`. The power is Student's t test's, at the
    level that the exact test can really reach, for a figure that differs alone among `figures`.
    """
    if least_p(runs, paired=paired) > ALPHA / figures:
        return None
    error, freedom = _error(noise, runs, paired=paired)
    return math.expm1(_steps(runs, figures, freedom, paired=paired) * error)


def runs_needed(noise: float, effect: float, figures: int = 1, *, paired: bool = True, seen: int = 0) -> int | None:
    """Return the number of runs of a side that find a relative `effect` in nine of ten comparisons.

    Return None if it is more than MOST_RUNS. `noise` is that of `Test`. If it was estimated from `seen` runs of a side,
    the recommendation reckons with the noise that it exceeds with a probability of one in five only.
    """
    if seen > 1:
        freedom = seen - 1 if paired else 2 * (seen - 1)
        noise *= math.sqrt(freedom / _chi_square(1 - _UNSURE, freedom))
    wanted = abs(math.log1p(effect))
    for n in range(least_runs(figures, paired=paired), MOST_RUNS + 1):
        error, freedom_then = _error(noise, (n, n), paired=paired)
        if _steps((n, n), figures, freedom_then, paired=paired) * error <= wanted:
            return n
    return None


def _error(noise: float, runs: tuple[int, int], *, paired: bool) -> tuple[float, int]:
    """Return the standard error of the mean log ratio, and its degrees of freedom."""
    if paired:
        return noise / math.sqrt(min(runs)), max(1, min(runs) - 1)
    # ranks find as much as means do with 3/pi of the runs
    return noise * math.sqrt(sum(1 / n for n in runs) * math.pi / 3), max(1, sum(runs) - 2)


def _steps(runs: tuple[int, int], figures: int, freedom: int, *, paired: bool) -> float:
    """Return how many standard errors an effect must have to be found in the share POWER of comparisons."""
    least = least_p(runs, paired=paired)
    level = max(1, math.floor(ALPHA / figures / least + 1e-9)) * least  # the exact test reaches only multiples
    critical = t_quantile(level / 2, freedom)
    # the noncentral t distribution, approximately: Abramowitz and Stegun 26.7.10
    spread = math.sqrt(1 + critical**2 / (2 * freedom))
    return critical * (1 - 1 / (4 * freedom)) + _NORMAL.inv_cdf(POWER) * spread


def _chi_square(share: float, freedom: int) -> float:
    """Return the value at or below which `share` of a chi-square distribution lies (Wilson and Hilferty)."""
    part = 2 / (9 * freedom)
    return freedom * max(0.05, 1 - part + _NORMAL.inv_cdf(share) * math.sqrt(part)) ** 3
