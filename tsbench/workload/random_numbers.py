"""Reproducible random numbers: independent streams of numbers from one seed."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


Floats: TypeAlias = "NDArray[np.floating[Any]]"


_LEVELS = 1 << 16


@cache
def _normal_levels() -> Floats:
    """Return the standard normal quantiles at the middles of 65,536 equal parts, of shape (65536,)."""
    # Four values from one 64-bit word and a look-up: about half the time of numpy's ziggurat. The price
    # is the tails beyond 4.3 standard deviations, which steps of a walk do not need.
    upper = [NormalDist().inv_cdf((i + 0.5) / _LEVELS) for i in range(_LEVELS // 2, _LEVELS)]
    half = np.array(upper)
    return np.concatenate([-half[::-1], half])


class Numbers(Protocol):
    """A source of random numbers in tables; every row consumes the same number of 64-bit words."""

    def uniform(self, rows: int, columns: int) -> Floats:
        """Return uniform numbers in [0, 1), of shape (rows, columns)."""
        ...

    def normal(self, rows: int, columns: int) -> Floats:
        """Return standard normal numbers, of shape (rows, columns)."""
        ...


class Bits:
    """A stream of random numbers from the raw words of SFC64.

    Parameters
    ----------
    entropy
        The seed of the stream.
    """

    __slots__ = ("_generator",)

    def __init__(self, entropy: np.random.SeedSequence) -> None:
        self._generator = np.random.SFC64(entropy)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` 64-bit words."""
        return np.atleast_1d(self._generator.random_raw(count))

    def uniform(self, rows: int, columns: int) -> Floats:
        """Return uniform numbers in [0, 1), of shape (rows, columns); each consumes one word."""
        words = self.words(rows * columns).reshape(rows, columns)
        values: Floats = (words >> np.uint64(11)) * np.float64(2.0**-53)
        return values

    def normal(self, rows: int, columns: int) -> Floats:
        """Return standard normal numbers, of shape (rows, columns); a row consumes ceil(columns / 4) words."""
        quads = -(-columns // 4)
        words = self.words(rows * quads).reshape(rows, quads)
        levels = words.astype("<u8", copy=False).view("<u2")[:, :columns]
        return _normal_levels().take(levels)


def by_weight(uniforms: Floats, weights: Sequence[float]) -> NDArray[np.intp]:
    """Return for each uniform number in [0, 1) an index of the weights, drawn in proportion to them."""
    ends = np.cumsum(weights)
    which = np.searchsorted(ends / ends[-1], uniforms, side="right")
    return np.minimum(which, len(ends) - 1)  # a sum of shares may be a little below 1


class Together:
    """Random numbers for several streams at once: each gets the same numbers as if it were alone.

    Parameters
    ----------
    bits
        The streams.
    shares
        Relative number of a table's columns that each stream fills.
    """

    __slots__ = ("_bits", "_shares")

    def __init__(self, bits: Sequence[Bits], shares: Sequence[int]) -> None:
        self._bits, self._shares = bits, shares

    def uniform(self, rows: int, columns: int) -> Floats:
        """Return uniform numbers in [0, 1), of shape (rows, columns)."""
        return np.hstack([bits.uniform(rows, share) for bits, share in self._divided(columns)])

    def normal(self, rows: int, columns: int) -> Floats:
        """Return standard normal numbers, of shape (rows, columns)."""
        return np.hstack([bits.normal(rows, share) for bits, share in self._divided(columns)])

    def _divided(self, columns: int) -> Iterator[tuple[Bits, int]]:
        whole = sum(self._shares)
        return ((bits, columns * share // whole) for bits, share in zip(self._bits, self._shares, strict=True))
