"""Percentiles of an answer, judged by counting: to keep all values of its window would take memory without bound.

If a value is the percentile, so many values lie below it, and its neighbours among them lead to it by interpolation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.comparison import ROUNDING, Judged

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEAR = 4 * ROUNDING
"""By how much of itself a value that is interpolated between two equal ones may differ from them."""


class Percentiles:
    """What lies below, at and above the values that an answer `claimed` for a percentile, one a cell (NaN: none).

    `share` is that of the values below, as of `model.share_of`.
    """

    def __init__(self, claimed: NDArray[np.float64], share: float) -> None:
        self._claimed, self._share = claimed, share
        self._less, self._same = (np.zeros(len(claimed), dtype=np.int64) for _ in range(2))
        self._below, self._above = (np.full(len(claimed), end) for end in (-np.inf, np.inf))

    def add(self, values: NDArray[Any], cells: NDArray[np.int64]) -> None:
        """Count values of cells."""
        size, claimed = len(self._claimed), self._claimed[cells]
        is_same = np.abs(values - claimed) <= _NEAR * np.abs(claimed)
        is_less, is_more = (values < claimed) & ~is_same, (values > claimed) & ~is_same
        self._same += np.bincount(cells[is_same], minlength=size)
        self._less += np.bincount(cells[is_less], minlength=size)
        # Most are further away than the neighbours so far, and `at` takes longer than all the rest.
        is_closer = is_less & (values > self._below[cells])
        np.maximum.at(self._below, cells[is_closer], values[is_closer])
        is_closer = is_more & (values < self._above[cells])
        np.minimum.at(self._above, cells[is_closer], values[is_closer])

    def judged(self, cell: int, count: int) -> Judged:
        """Return the judgement on what was claimed for a cell that has `count` values."""
        claimed, less = float(self._claimed[cell]), int(self._less[cell])
        if np.isnan(claimed):
            return Judged.of(0.0, is_right=False, said="a value")
        until, below, above = less + int(self._same[cell]), float(self._below[cell]), float(self._above[cell])
        rank, unsure = (count - 1) * self._share, 2 * ROUNDING * count
        is_whole = abs(rank - round(rank)) <= unsure
        first, rest = (round(rank), 0.0) if is_whole else (int(rank), rank % 1)
        ends = []
        for place in (first, first + (rest > 0)):  # of all values in order
            if place < less - 1 or place > until:
                said = "a lower value" if place < less else "a higher value"
                return Judged.of(claimed, is_right=False, said=f"{said} ({less:,} of {count:,} are below)")
            ends.append(below if place < less else claimed if place < until else above)
        right = ends[0] + (ends[1] - ends[0]) * rest
        width = ends[1] - ends[0] if rest else above - below
        within = _NEAR * max(map(abs, ends)) + (unsure * width if np.isfinite(width) else 0.0)
        return Judged.of(claimed, is_right=abs(claimed - right) <= within, said=repr(right))
