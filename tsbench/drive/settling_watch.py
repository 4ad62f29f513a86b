"""Looks at the rate of all load processes during a warm-up, until it has settled or the warm-up's limit is reached.

Each load process reports the ops that succeeded in each second, once a second: a few numbers, from what its recorder
writes to its files anyway. The coordinator adds them up, and judges the seconds that all processes have reported.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.settling import settling
from tsbench.results.process import WarmUp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tsbench.measure.hist import SparseHistogram
    from tsbench.measure.settling import Settling


class SucceededOps:
    """Counts the ops of a process that succeeded, by second, until they are taken; the observer of its recorder."""

    def __init__(self) -> None:
        self._per_s: Counter[int] = Counter()

    def saw(self, tag: str, second: int, histogram: SparseHistogram) -> None:
        """Ignore a histogram."""

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Add an op's counters of one second."""
        self._per_s[second] += counts.get("done", 0) - counts.get("failed", 0) - counts.get("unknown", 0)

    def take(self) -> list[tuple[int, int]]:
        """Return pairs of a second and its count, and forget them."""
        taken, self._per_s = list(self._per_s.items()), Counter()
        return taken


class SettlingWatch:
    """The rate of all load processes together from the epoch second `first_s` on.

    `measured_s` is the length of the measured window that follows the warm-up.
    """

    def __init__(self, first_s: int, measured_s: int) -> None:
        self._first_s, self._measured_s = first_s, measured_s
        self._per_s: Counter[int] = Counter()
        self._through_s: dict[str, int] = {}
        self._judged = 0
        self.last: Settling | None = None
        """The last judgement; None while the warm-up has too few seconds."""

    def add(self, process: str, counts: Iterable[tuple[int, int]], through_s: int) -> None:
        """Add what a process counted; its counts up to the second `through_s` are whole."""
        for second, count in counts:
            self._per_s[second] += count
        self._through_s[process] = through_s

    def has_settled(self, processes: Collection[str]) -> bool:
        """Judge the seconds that all of these processes have reported; return True if the rate has settled."""
        through_s = min((self._through_s.get(name, 0) for name in processes), default=0)
        length = through_s + 1 - self._first_s
        if length <= self._judged:
            return False
        self._judged = length
        per_s = np.fromiter((self._per_s[self._first_s + place] for place in range(length)), dtype=np.float64)
        self.last = settling(per_s, self._measured_s)
        return self.last is not None and self.last.settled

    def ended(self, *, settled: bool, warmup_s: float, limit_s: float) -> WarmUp:
        """Return the figures by which the warm-up ended after `warmup_s` seconds."""
        figures = {**asdict(self.last), "settled": settled} if self.last is not None else {"settled": settled}
        return WarmUp(**figures, duration_s=warmup_s, limit_s=limit_s)
