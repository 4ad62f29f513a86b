"""Each rate is made by hand, so that it is known when it settles; it is judged second by second, as during a run."""

from __future__ import annotations

import numpy as np
import pytest

from tsbench.measure.settling import LEAST_S, MOST_RANGE, Settling, settling

SECONDS, SEEDS = 300, 10
TIME = np.arange(SECONDS)


def noise(seed: int, share: float = 0.05) -> np.ndarray:
    return 1_000 * (1 + share * np.random.default_rng(seed).standard_normal(SECONDS))


def settled_after(per_s: np.ndarray, measured_s: int = 60) -> int | None:
    """Return the second after which a warm-up would end; None if it would go on to the last."""

    judged = ((seconds, settling(per_s[:seconds], measured_s)) for seconds in range(1, len(per_s) + 1))
    return next((seconds for seconds, found in judged if found is not None and found.settled), None)


def ends(shape: np.ndarray, share: float = 0.05, measured_s: int = 60) -> list[int | None]:
    return [settled_after(noise(seed, share) * shape, measured_s) for seed in range(SEEDS)]


SHAPES = {
    "flat": (np.ones(SECONDS), LEAST_S, 40),
    "rises for 30 s": (np.minimum(1, 0.3 + 0.7 * TIME / 30), 35, 75),
    "falls to a half, by 63 % in 20 s": (1 + np.exp(-TIME / 20), 45, 110),
    "falls to a half, by 63 % in 60 s": (1 + np.exp(-TIME / 60), 60, 300),
    "step after 20 s": (np.where(TIME < 20, 1, 0.5), 40, 60),
    "saw-tooth of 3 s": (0.5 + TIME % 3 / 3, LEAST_S, 70),
    "saw-tooth of 10 s": (0.5 + TIME % 10 / 10, 45, 130),
    "saw-tooth of 40 s": (0.5 + TIME % 40 / 40, 130, 300),
    "stalls for 2 s each minute": (np.where(TIME % 60 < 2, 0.05, 1), LEAST_S, 45),
}
"""Shape of a rate, and between which seconds most of its warm-ups must end."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_rate_settles_when_it_is_level_and_not_before(name: str):
    shape, first, last = SHAPES[name]
    found = ends(shape)
    assert sum(end is not None and first <= end <= last for end in found) >= SEEDS - 1, found


@pytest.mark.parametrize(
    ("shape", "share", "measured_s"),
    [
        (np.linspace(1, 0.1, SECONDS), 0.02, 60),
        (np.linspace(1, 0.7, SECONDS), 0.005, 600),
        (1.15 ** (TIME / 30), 0.02, 60),
    ],
    ids=["falls by 18 % a minute", "drifts by 6 % a minute, ten minutes measured", "grows"],
)
def test_a_rate_that_never_is_level_never_settles(shape: np.ndarray, share: float, measured_s: int):
    found = ends(shape, share, measured_s)
    assert sum(end is None for end in found) >= SEEDS - 1, found


def test_a_slow_drift_is_tolerated_where_it_cannot_change_the_measured_window_much():
    drifting = noise(1, 0.005)[:100] * np.linspace(1, 0.9, 100)
    short, long = settling(drifting, 30), settling(drifting, 600)
    assert short is not None
    assert long is not None
    assert (short.settled, long.settled) == (True, False)
    assert (short.range, short.rise) == (long.range, long.rise)
    assert long.drift == pytest.approx(-0.6 * 1.05, rel=0.15)  # 10 % in 100 s, of a mean that is lower already


def test_the_figures_are_those_of_the_last_half_and_too_few_seconds_are_not_judged():
    rate = np.where(TIME[:200] < 100, 1_000.0, 100.0)
    rate[180:] = 150.0
    found = settling(rate, 10)
    assert found is not None
    assert (found.settled, found.tested_s, found.ops_per_s) == (False, 100, 110.0)
    assert found.range == pytest.approx(50 / 110)
    assert found.range > MOST_RANGE
    assert found.rise == pytest.approx(4 * (0.2 * 50 / 110))
    assert settling(rate[: LEAST_S - 1], 10) is None


@pytest.mark.parametrize("per_s", [np.zeros(60), np.r_[np.full(59, 1_000.0), 100.0]], ids=["nothing", "stalls now"])
def test_a_rate_of_nothing_and_one_that_stalls_just_now_have_not_settled(per_s: np.ndarray):
    found = settling(per_s, 10)
    assert isinstance(found, Settling)
    assert not found.settled
