"""The random processes that generate the values of fields.

Every process is vectorised over fields and series and advances tick by tick. Its numbers come from the raw words of one
bit generator, whose stream numpy promises never to change (it makes no such promise for `Generator`'s methods), and a
tick always consumes the same number of words. So the values depend on the seed only: not on how many ticks are computed
per call, and not on numpy's version.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from tsbench.workload.random_numbers import Floats, Numbers


# --- distributions ----------------------------------------------------------------------------------------------------


class Draw(Protocol):
    """A probability distribution."""

    def sample(self, bits: Numbers, rows: int, columns: int) -> Floats:
        """Return independent values of shape (rows, columns); every row consumes the same number of words."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same value for all rows and columns."""

    value: float

    def sample(self, bits: Numbers, rows: int, columns: int) -> Floats:
        return np.full((rows, columns), self.value)


@dataclass(frozen=True, slots=True)
class Uniform:
    """The uniform distribution in [low, high)."""

    low: float
    high: float

    def sample(self, bits: Numbers, rows: int, columns: int) -> Floats:
        values = bits.uniform(rows, columns)
        values *= self.high - self.low
        values += self.low
        return values


@dataclass(frozen=True, slots=True)
class Normal:
    """The normal distribution."""

    mean: float
    sd: float

    def sample(self, bits: Numbers, rows: int, columns: int) -> Floats:
        values = bits.normal(rows, columns)
        if self.sd != 1.0:
            values *= self.sd
        if self.mean != 0.0:
            values += self.mean
        return values


@dataclass(frozen=True, slots=True)
class Pareto:
    """The Pareto distribution: at least `scale`, density proportional to x**-(shape + 1), values cut at `most`."""

    shape: float
    scale: float
    most: float = math.inf

    def sample(self, bits: Numbers, rows: int, columns: int) -> Floats:
        values: Floats = self.scale * (1.0 - bits.uniform(rows, columns)) ** (-1.0 / self.shape)
        return np.minimum(values, self.most, out=values)


# --- processes --------------------------------------------------------------------------------------------------------


class Process(Protocol):
    """A rule by which several quantities change from tick to tick, each independent of the others."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities: fields, or hidden quantities from which fields are derived."""

    def begin(self, bits: Numbers, series: int) -> Floats:
        """Return the state before the first tick, of shape (len(names) * series,)."""
        ...

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        """Return the values of the next ticks, of shape (ticks, len(names) * series), and advance `state` in place.

        The values of tick 0 are those of the initial state.
        """
        ...


@dataclass(frozen=True, slots=True)
class Walk:
    """A random walk: one random step per tick.

    `edge` says what happens at `low` and `high`: `none` (no limits), `clamp` (the value stays at the limit until a step
    leads back) or `reflect` (it bounces off). With `monotone` the steps lose their signs, which makes a counter.
    """

    names: tuple[str, ...]
    step: Draw
    start: Draw
    low: float = -math.inf
    high: float = math.inf
    edge: Literal["none", "clamp", "reflect"] = "none"
    monotone: bool = False

    def begin(self, bits: Numbers, series: int) -> Floats:
        state = self.start.sample(bits, len(self.names), series).ravel()
        # Single precision suffices for gauges of a few thousand at most, and state is most of a large world's memory.
        return state.astype(np.float32) if self.edge != "none" and 10 <= self.high <= 2**16 else state

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        walk = self.step.sample(bits, ticks, len(state)).astype(state.dtype, copy=False)
        if self.monotone:
            np.abs(walk, out=walk)
        if first_tick == 0:
            walk[0] = 0.0
        # Row by row: twice as fast as cumsum(axis=0), and the sums are the same however the ticks are cut into calls.
        previous = state
        if self.edge == "clamp":
            low, high = state.dtype.type(self.low), state.dtype.type(self.high)
            for row in walk:
                np.add(row, previous, out=row)
                np.maximum(row, low, out=row)
                np.minimum(row, high, out=row)
                previous = row
        elif len(state) > 1:
            for row in walk:
                np.add(row, previous, out=row)
                previous = row
        else:
            walk[0] += state
            np.cumsum(walk, axis=0, out=walk)
        state[:] = walk[-1]
        return _fold(walk, self.low, self.high) if self.edge == "reflect" else walk


def _fold(walk: Floats, low: float, high: float) -> Floats:
    """Reflect an unlimited walk at `low` and `high`, in place."""
    span = high - low
    walk -= low
    walk *= 0.5 / span
    walk -= np.floor(walk)
    walk -= 0.5
    np.abs(walk, out=walk)
    walk *= -2.0 * span
    walk += high
    return walk


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new independent value at every tick."""

    names: tuple[str, ...]
    draw: Draw

    def begin(self, bits: Numbers, series: int) -> Floats:
        return np.empty(len(self.names) * series)

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        return self.draw.sample(bits, ticks, len(state))


@dataclass(frozen=True, slots=True)
class Steady:
    """One value per series that never changes."""

    names: tuple[str, ...]
    draw: Draw

    def begin(self, bits: Numbers, series: int) -> Floats:
        return self.draw.sample(bits, len(self.names), series).ravel()

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        return np.broadcast_to(state, (ticks, len(state)))


@dataclass(frozen=True, slots=True)
class Lazy:
    """A rarely changing value: a new one, uniform in [low, high), with probability `chance` per tick."""

    names: tuple[str, ...]
    low: float
    high: float
    chance: float

    def begin(self, bits: Numbers, series: int) -> Floats:
        return Uniform(self.low, self.high).sample(bits, len(self.names), series).ravel()

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        # One number has two uses: below `chance` the value changes, and the number scaled up is the new value.
        drawn = bits.uniform(ticks, len(state))
        changed = drawn < self.chance
        if first_tick == 0:
            changed[0] = False
        values = np.vstack([state, self.low + drawn * ((self.high - self.low) / self.chance)])
        since = np.where(changed, np.arange(1, ticks + 1)[:, None], 0)
        np.maximum.accumulate(since, axis=0, out=since)
        held: Floats = np.take_along_axis(values, since, axis=0)
        state[:] = held[-1]
        return held


@dataclass(frozen=True, slots=True)
class TickCount:
    """The number of ticks since the world began."""

    names: tuple[str, ...]

    def begin(self, bits: Numbers, series: int) -> Floats:
        return np.zeros(len(self.names) * series)

    def run(self, bits: Numbers, state: Floats, first_tick: int, ticks: int) -> Floats:
        elapsed = np.arange(first_tick, first_tick + ticks, dtype=np.float64)
        return np.broadcast_to(elapsed[:, None], (ticks, len(state)))
