"""The processes have the configured distributions."""

from __future__ import annotations

import numpy as np
import pytest

from tsbench.workload.processes import (
    Fixed,
    Fresh,
    Lazy,
    Normal,
    Pareto,
    Process,
    Steady,
    TickCount,
    Uniform,
    Walk,
)
from tsbench.workload.random_numbers import Bits, Floats


def bits(seed: int = 1) -> Bits:
    return Bits(np.random.SeedSequence(seed))


def run(process: Process, ticks: int = 4_000, series: int = 20, seed: int = 1) -> Floats:
    source = bits(seed)
    state = process.begin(source, series)
    return process.run(source, state, 0, ticks)


@pytest.mark.parametrize(
    ("draw", "mean", "sd"),
    [
        (Fixed(3.0), 3.0, 0.0),
        (Uniform(2.0, 4.0), 3.0, 2 / 12**0.5),
        (Normal(5.0, 2.0), 5.0, 2.0),
        (Pareto(5.0, 1.0), 1.25, (5 / (16 * 3)) ** 0.5),
    ],
)
def test_draws_have_their_mean_and_deviation(draw, mean, sd):
    values = draw.sample(bits(), 500, 401)
    assert values.shape == (500, 401)
    assert values.mean() == pytest.approx(mean, abs=0.02)
    assert values.std() == pytest.approx(sd, abs=0.03)


def test_the_normal_levels_have_the_tails_of_a_normal():
    values = bits().normal(1_000, 1_000)
    for limit, share in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
        assert np.mean(np.abs(values) > limit) == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize(
    "process",
    [
        Walk(("a", "b"), Normal(0.1, 1.0), Uniform(0.0, 9.0), 0.0, 10.0, "clamp"),
        Walk(("a",), Normal(0.1, 1.0), Uniform(0.0, 9.0), 0.0, 10.0, "reflect"),
        Walk(("a", "b"), Normal(5.0, 1.0), Fixed(0.0), monotone=True),
        Lazy(("a",), 0.0, 9.0, 0.2),
        Fresh(("a",), Pareto(2.0, 1.0)),
        Steady(("a", "b", "c"), Uniform(0.0, 9.0)),
        TickCount(("a",)),
    ],
)
@pytest.mark.parametrize("series", [1, 3])
def test_values_do_not_depend_on_how_ticks_are_cut(process, series):
    whole = run(process, 60, series)
    source = bits()
    state = process.begin(source, series)
    pieces, tick = [], 0
    for ticks in (1, 1, 7, 50, 1):
        pieces.append(process.run(source, state, tick, ticks).copy())
        tick += ticks
    assert np.array_equal(whole, np.vstack(pieces))


def test_a_walk_begins_where_it_says():
    assert run(Walk(("a",), Normal(5.0, 1.0), Fixed(7.0)))[0].tolist() == [7.0] * 20


def test_a_clamped_walk_with_drift_sticks_and_a_reflected_one_does_not():
    clamped = run(Walk(("a",), Normal(5.0, 1.0), Fixed(0.0), 0.0, 100.0, "clamp"))
    reflected = run(Walk(("a",), Normal(0.0, 5.0), Fixed(0.0), 0.0, 100.0, "reflect"))
    assert np.all(clamped[100:] == 100.0)
    assert reflected.min() >= 0
    assert reflected.max() <= 100
    assert np.mean(np.diff(reflected, axis=0) == 0) < 0.01


def test_a_reflected_walk_steps_like_a_free_one_away_from_its_limits():
    free = run(Walk(("a",), Normal(0.0, 1.0), Fixed(50.0)))
    reflected = run(Walk(("a",), Normal(0.0, 1.0), Fixed(50.0), 0.0, 100.0, "reflect"))
    inside = np.all((free > 0) & (free < 100), axis=0)
    assert inside.any()
    assert np.allclose(free[:, inside], reflected[:, inside], atol=1e-2)


def test_a_counter_never_falls():
    assert np.diff(run(Walk(("a",), Normal(1.0, 3.0), Fixed(0.0), monotone=True)), axis=0).min() >= 0


def test_a_lazy_value_changes_as_often_as_it_says():
    values = run(Lazy(("a",), 0.0, 50.0, 0.05))
    assert np.mean(np.diff(values, axis=0) != 0) == pytest.approx(0.05, abs=0.01)
    assert values.min() >= 0
    assert values.max() < 50
    assert values.mean() == pytest.approx(25, abs=2)
