"""A simulated open loop: ops that are due on a schedule, and a server whose capacity varies; the truth is known.

The server is a queue in steps of 50 ms: each step takes up what is due and completes at most its capacity, so that
ops which a stall or a slow start left behind are caught up afterwards, as fast as the capacity allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS = 20
"""Steps per second."""
SHAPES = ("calm", "start-up", "drifting", "noisy", "periodic", "low rate")
"""What a run without a stall is like."""


@dataclass(frozen=True)
class Grid:
    """The parameters of the cases: all combinations of the tuples; rate, noise and places in a range are drawn.

    `capacities` are multiples of the rate. `depths` are the shares of the rate that a stalled server still completes.
    """

    seed: int
    durations_s: Sequence[int]
    positions: Sequence[float]
    lengths_s: Sequence[int]
    depths: Sequence[float]
    capacities: Sequence[float]
    rates: tuple[float, float]
    most_noise: float
    controls: int = 160
    """Runs of each shape without a stall."""


GRID = Grid(
    seed=1,
    durations_s=(30, 60, 120, 300),
    positions=(0.05, 0.15, 0.3, 0.45, 0.8),
    lengths_s=(1, 2, 5, 10),
    depths=(0, 0.3),
    capacities=(1.15, 1.5, 4),
    rates=(20, 20_000),
    most_noise=0.15,
)
HELD_OUT = Grid(
    seed=77,
    durations_s=(40, 75, 240, 420),
    positions=(0.03, 0.2, 0.35, 0.5, 0.7),
    lengths_s=(1, 2, 6, 9),
    depths=(0.05, 0.3),
    capacities=(1.1, 1.8, 6),
    rates=(25, 50_000),
    most_noise=0.18,
)
"""It was looked at when nothing was changed any more."""


@dataclass(frozen=True)
class Case:
    """A run: ops that were due and that ended, by second, and its stall (start and length, s), if any."""

    text: str
    due: np.ndarray
    done: np.ndarray
    stall: tuple[float, float] | None


def run(
    rng: np.random.Generator, rate: float, capacity: np.ndarray, noise: float, latency_s: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ops due and done by second.

    `capacity` is in multiples of the rate, shape (seconds * STEPS,). `latency_s` is the mean time (exponential) that an
    op takes without needing any capacity.
    """
    seconds = len(capacity) // STEPS
    if rng.random() < 0.5:
        due = rng.poisson(rate / STEPS, len(capacity))
    else:
        due = np.diff(np.floor(np.arange(len(capacity) + 1) * rate / STEPS)).astype(int)
    varied = capacity * np.exp(noise * rng.standard_normal(seconds)).repeat(STEPS) * rate / STEPS
    excess = np.cumsum(due - varied)
    left = excess - np.minimum.accumulate(np.minimum(excess, 0.0))  # Lindley's recursion: no capacity is put by
    done = np.diff(np.floor(np.cumsum(due) - left + 1e-6), prepend=0.0)
    if latency_s:
        ended_at = np.arange(len(done)).repeat(done.astype(int))
        ended_at += (STEPS * rng.exponential(latency_s, len(ended_at))).astype(int)
        done = np.bincount(ended_at, minlength=len(done))[: len(done)]
    return due.reshape(seconds, STEPS).sum(axis=1).astype(float), done.reshape(seconds, STEPS).sum(axis=1)


def start_up(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Return the shares of the capacity over a start-up: a step, a ramp, or an exponential approach from below half."""
    low, time = rng.uniform(0.05, 0.6), np.linspace(0, 1, steps, endpoint=False)
    return (np.full(steps, low), low + (1 - low) * time, 1 - (1 - low) * np.exp(-4 * time))[rng.integers(3)]


def _common(grid: Grid, rng: np.random.Generator) -> tuple[float, float]:
    return float(np.exp(rng.uniform(*np.log(grid.rates)))), rng.uniform(0, grid.most_noise)


def stalling(grid: Grid) -> Iterator[Case]:
    """Yield runs with one stall each, half of them with a start-up before it.

    A stall of 1 s is a whole second of the clock; longer ones begin at any moment.
    """
    rng = np.random.default_rng(grid.seed)
    axes = (grid.durations_s, grid.positions, grid.lengths_s, grid.depths, grid.capacities, (False, True))
    for seconds, position, length_s, depth, factor, starts in product(*axes):
        rate, noise = _common(grid, rng)
        capacity = np.full(seconds * STEPS, float(factor))
        begins = int(rng.uniform(0.05, 0.15) * seconds) * STEPS if starts else 0
        capacity[:begins] *= start_up(rng, begins) / factor
        room = seconds * STEPS - begins - (length_s + 4) * STEPS
        at = begins + 3 * STEPS + int(position * room) + (int(rng.integers(STEPS)) if length_s > 1 else 0)
        at = at if length_s > 1 else at // STEPS * STEPS
        capacity[at : at + length_s * STEPS] = depth
        stall = f"{'start-up, ' * starts}{depth:.0%} from {at / STEPS} s for {length_s} s"
        text = f"{seconds} s at {rate:.0f}/s x {factor}, {stall}"
        yield Case(text, *run(rng, rate, capacity, noise), (at / STEPS, length_s))


def without_stall(grid: Grid) -> Iterator[Case]:
    """Yield runs without a stall, of each of SHAPES."""
    rng = np.random.default_rng(grid.seed + 1)
    for shape, number in product(SHAPES, range(grid.controls)):
        seconds, factor = int(rng.choice(grid.durations_s)), float(rng.choice(grid.capacities))
        rate, noise = _common(grid, rng)
        time = np.linspace(0, 1, seconds * STEPS)
        capacity, latency_s = np.full(seconds * STEPS, factor), 0.0
        if shape == "start-up":
            begins = max(3, int(rng.uniform(0.05, 0.4) * seconds)) * STEPS
            capacity[:begins] *= start_up(rng, begins) / factor
        elif shape == "drifting":
            capacity *= 1 + (rng.uniform(0.2, 0.95) / factor - 1) * time
        elif shape == "noisy":
            noise = 0.22
        elif shape == "periodic":
            least, period = rng.uniform(0.6, 0.9), rng.uniform(3, seconds / 3)
            wave = np.sin(2 * np.pi * time * seconds / period) if number % 2 else 1 - 2 * (time * seconds / period % 1)
            capacity = least + (factor - least) * (1 + wave) / 2
        elif shape == "low rate":
            rate, latency_s = rng.uniform(5, 60), rng.uniform(0, 1)
        text = f"{shape}, {seconds} s at {rate:.0f}/s x {factor}"
        yield Case(text, *run(rng, rate, capacity, noise, latency_s), None)
