"""Whether a rate has settled, judged second by second while the load runs: the end of a warm-up that finds it itself.

The rule is that of the Solid State Storage Performance Test Specification (SNIA, version 2.0.2): five rounds in a row,
whose highest and lowest mean differ by at most 20 % of the mean of all, and whose line of least squares rises or falls
by at most 10 % of it. Two things are added, since a database is no disk:

- The rounds grow: they cover the last half of the warm-up so far. A rate that settles slowly must look flat for as
  long as it took, and one that goes up and down with compactions settles when several of them fit into a round.
- A trend that is none of chance (Mann-Kendall test, 1 %) must not change the rate by more than 10 % within the
  measured window, if it went on. It is the test that `steadiness` makes afterwards.

Stalls of up to a tenth of the rounds are filled in, as `steadiness` does: they are no start-up.

The rate is that of all ops that succeeded. In a closed loop users draw their ops from one mix, so that the kinds of op
keep their proportions, and their sum varies least by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.measure.steadiness import STALLED, TOLERATED_DRIFT, drift, without_stalls

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_S = 30
"""Minimum length of the five rounds in seconds: in 20, a fall of 30 % a minute is within the rule's 10 %."""
ROUNDS = 5
MOST_RANGE = 0.2
"""Maximum difference between the means of two rounds, as a share of the mean of all."""
MOST_RISE = 0.1
"""Maximum rise or fall of the line of least squares over all rounds, as a share of their mean."""


@dataclass(frozen=True, slots=True)
class Settling:
    """The figures of one judgement, over the last `tested_s` seconds.

    `ops_per_s` is their mean. As shares of it: `range`, the difference between the highest and the lowest round;
    `rise`, that of the line of least squares from the first to the last round; `drift`, the change within the measured
    window if the trend of the seconds went on, 0 if there may be none. All are 0 if no op succeeded.
    """

    settled: bool
    tested_s: int
    ops_per_s: float
    range: float
    rise: float
    drift: float


def settling(per_s: NDArray[np.float64], measured_s: int) -> Settling | None:
    """Judge whether a rate has settled; return None if it has fewer than LEAST_S seconds.

    Parameters
    ----------
    per_s
        The number of ops that succeeded in every second, from the first whole second of the warm-up on.
    measured_s
        Length of the measured window that is to follow.
    """
    if len(per_s) < LEAST_S:
        return None
    tested_s = max(LEAST_S, len(per_s) // 2) // ROUNDS * ROUNDS
    tested = without_stalls(per_s[-tested_s:], most_s=tested_s // 10)
    mean = float(tested.mean())
    if not mean:
        return Settling(False, tested_s, 0.0, 0.0, 0.0, 0.0)
    rounds = tested.reshape(ROUNDS, -1).mean(axis=1) / mean
    place = np.arange(ROUNDS) - (ROUNDS - 1) / 2
    rise = float((place * rounds).sum() / (place**2).sum()) * (ROUNDS - 1)
    difference = float(rounds.max() - rounds.min())
    change = drift(tested) / mean * max(1.0, measured_s / tested_s)
    stalls_now = per_s[-1] < STALLED * mean
    is_level = difference <= MOST_RANGE and abs(rise) <= MOST_RISE and abs(change) <= TOLERATED_DRIFT
    return Settling(is_level and not stalls_now, tested_s, float(per_s[-tested_s:].mean()), difference, rise, change)
