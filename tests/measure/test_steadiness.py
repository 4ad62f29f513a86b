"""Each case is made by hand, so that the truth is known: a start-up, a drift, stalls, or none of them."""

import numpy as np
import polars as pl
import pytest

from tests.measure.simulated_open_loop import GRID, HELD_OUT, Grid, stalling, without_stall
from tsbench.measure.steadiness import LEAST_S, MOST_STALLS, steadiness, steadiness_by_kind, time_drifts
from tsbench.results.figures import Stall, Steadiness

RATE = 10_000.0


def judged(per_s: np.ndarray, first_s: int = 0, *, due: np.ndarray | None = None) -> Steadiness:
    found = steadiness(per_s, first_s, due)
    assert found is not None
    return found


def noise(seconds: int, seed: int = 1, share: float = 0.05) -> np.ndarray:
    return RATE * (1 + share * np.random.default_rng(seed).standard_normal(seconds))


@pytest.mark.parametrize("seconds", [LEAST_S, 60, 600, 3_600])
def test_a_flat_rate_has_settled_at_once_and_has_neither_drift_nor_stalls(seconds):
    outcomes = [judged(noise(seconds, seed), -2) for seed in range(200)]
    at_once = [o.settled_s is not None and o.settled_s <= -2 + seconds // 4 for o in outcomes]
    assert sum(at_once) >= 180
    assert sum(o.drift != 0 for o in outcomes) <= 8  # 2 are expected at the 1 % level
    assert all(not o.stalls for o in outcomes)
    assert outcomes[0].variation == pytest.approx(0.05, rel=0.4)
    assert outcomes[0].median_per_s == pytest.approx(RATE, rel=0.05)


@pytest.mark.parametrize(("seconds", "start_up"), [(60, 10), (600, 60), (3_600, 900)])
def test_the_end_of_a_start_up_is_found(seconds, start_up):
    rate = noise(seconds)
    rate[:start_up] *= np.linspace(0.3, 0.9, start_up)
    found = judged(rate)
    assert found.settled_s == pytest.approx(start_up, rel=0.25)
    assert found.median_per_s == pytest.approx(RATE, rel=0.02)


@pytest.mark.parametrize("change", [-0.4, 0.4])
def test_a_rate_that_drifts_never_settles(change):
    found = judged(noise(600) * np.linspace(1, 1 + change, 600))
    assert found.settled_s is None
    assert np.sign(found.drift) == np.sign(change)
    assert abs(found.drift) >= 0.15


def test_a_small_drift_is_said_of_a_rate_that_settled():
    found = judged(noise(3_600, share=0.02) * np.linspace(1, 0.95, 3_600))
    assert found.settled_s is not None
    assert -0.06 < found.drift < -0.02


def test_stalls_have_start_length_and_depth_and_the_deepest_is_first():
    rate = noise(300)
    rate[100:104] = 0.1 * RATE
    rate[200] = 0.4 * RATE
    found = judged(rate, -5)
    first, second = found.stalls
    assert (first.start_s, first.length_s) == (95, 4)
    assert first.lowest == pytest.approx(0.1, rel=0.05)
    assert (second.start_s, second.length_s) == (195, 1)
    assert (found.stall_count, found.stalled_s) == (2, 5)
    assert found.settled_s is not None


@pytest.mark.parametrize(("fast", "slow", "seconds"), [(0, 30, 3_600), (3, 20, 3_600), (0, 3, 60)])
def test_a_slow_beginning_is_a_start_up_and_no_stall(fast, slow, seconds):
    rate = noise(seconds)
    rate[fast : fast + slow] *= 0.2  # less than half a batch of an hour's run
    rate[seconds // 2 : seconds // 2 + 2] = 0.0
    found = judged(rate, -2)
    assert found.settled_s == pytest.approx(fast + slow - 2, abs=2)
    assert [(stall.start_s, stall.length_s) for stall in found.stalls] == [(seconds // 2 - 2, 2)]


def test_a_rate_that_stalls_to_nothing_every_minute_is_kept_short():
    rate = noise(7_200)
    rate[30::60] = 0.0
    found = judged(rate)
    assert len(found.stalls) == MOST_STALLS
    assert found.stall_count == found.stalled_s == pytest.approx(120, abs=2)
    assert found.stalls[0] == Stall(found.stalls[0].start_s, 1, 0.0)


@pytest.mark.parametrize("rate", [noise(LEAST_S - 1), np.zeros(100)], ids=["too short", "nothing"])
def test_of_too_little_nothing_is_said(rate):
    assert steadiness(rate, 0) is None


def test_ops_that_come_by_chance_do_not_stall():
    rate = np.random.default_rng(1).poisson(3, 300).astype(float)
    assert not judged(rate).stalls


def test_a_day_of_seconds_is_judged_too():
    found = judged(noise(86_400))
    assert found.settled_s is not None


def test_seconds_without_a_row_are_stalled_and_the_warm_up_counts_as_a_start_up():
    rows = [
        {"second": second, "op": op, "points": points // 4 if second < -3 else points, "count": 100, "done": 100}
        for second in range(-10, 60)
        for op, points in {"write-1": 100, "write-10": 1_000, "lastpoint": 0}.items()
        if second not in {30, 31}
    ]
    kinds = {"write-1": "write", "write-10": "write", "lastpoint": "query"}
    found = steadiness_by_kind(pl.DataFrame(rows), kinds, end_s=58)
    assert (found["write"].settled_s, found["query"].settled_s) == (-3, -9)
    assert (found["write"].median_per_s, found["query"].median_per_s) == (1_100, 100)
    assert found["write"].stalls == found["query"].stalls == (Stall(30, 2, 0.0),)
    assert steadiness_by_kind(pl.DataFrame(rows)[:0], {"write-1": "write"}, end_s=58) == {}


@pytest.mark.slow
@pytest.mark.parametrize("grid", [GRID, HELD_OUT], ids=["grid", "held out"])
def test_stalls_of_an_open_loop_are_found_wherever_they_are_and_nothing_else_is_one(grid: Grid):
    missed, other, false = [], [], []
    for case in stalling(grid):
        assert case.stall is not None
        begin, length = case.stall
        found = judged(case.done, due=case.due).stalls
        near = [s for s in found if abs(s.start_s - begin) <= 1 and abs(s.start_s + s.length_s - begin - length) <= 1]
        missed += [] if near else [(case.text, found)]
        other += [case.text] if len(found) > len(near) else []
    for case in without_stall(grid):
        found = judged(case.done, due=case.due).stalls
        false += [(case.text, found)] if found else []
    assert len(missed) <= 10, missed
    assert len(other) <= 10, other
    assert len(false) <= 10, false


@pytest.mark.parametrize("knows_due", [True, False])
def test_a_stall_with_its_catch_up_is_no_start_up(knows_due: bool):
    rate = noise(60, share=0.02)
    due = np.full(60, RATE)
    rate[10:13], rate[13:19] = 0.0, 1.5 * RATE
    found = judged(rate, due=due if knows_due else None)
    assert (found.settled_s, found.drift) == (0, 0.0)
    assert [(stall.start_s, stall.length_s) for stall in found.stalls] == [(10, 3)]


def test_a_fall_over_minutes_is_no_stall_and_an_outage_to_the_end_is_one():
    assert not judged(noise(600) * np.linspace(1, 0.1, 600)).stalls
    rate = noise(300)
    rate[200:] = 0.0
    assert [(stall.start_s, stall.length_s) for stall in judged(rate).stalls] == [(200, 100)]
    few = judged(np.repeat([10.0, 0.0], 30))  # too few ops for a stall
    assert (few.settled_s, few.median_per_s) == (None, 5.0)


@pytest.mark.parametrize("unsent", [None, dict.fromkeys(range(53, 60), 40)], ids=["closed", "open"])
def test_seconds_in_which_little_is_due_stall_in_a_closed_loop_only_and_arrivals_that_never_ended_were_due(unsent):
    due = {30: 10, 31: 10} | dict.fromkeys(range(53, 60), 0)
    rows = [
        {"second": second, "op": "write-1", "points": 10 * ended, "count": ended, "done": ended}
        for second in range(-2, 60)
        for ended in [due.get(second, 40)]
    ]
    found = steadiness_by_kind(pl.DataFrame(rows), {"write-1": "write"}, end_s=60, unsent=unsent)["write"]
    assert sorted(stall.start_s for stall in found.stalls) == ([30, 53] if unsent is None else [53])


def seconds_of(**medians_ms: list[float]) -> pl.DataFrame:
    """Rows of ops.parquet with the median service time of each op, from the second before the window on."""
    rows = [
        {"second": second, "op": op, "service_p50_ns": round(ms * 1e6)}
        for op, found in medians_ms.items()
        for second, ms in enumerate(found, -1)
    ]
    return pl.DataFrame(rows)


SLOWER = [9.0, 9.3, 9.8, 11.7, 16.9, 65.2, 60.1, 82.4, 90.3, 108.0, 96.1]
"""A query of eight hours in PostgreSQL, by second: one session after the other took a plan for any values."""


def test_times_that_change_within_the_window_are_found_though_the_rate_is_that_of_the_users():
    level = [9.0, 9.3, 8.8, 9.7, 9.1, 9.2, 8.6, 9.9, 9.0, 9.4, 9.1]
    found = time_drifts(seconds_of(slower=SLOWER, faster=SLOWER[::-1], level=level), end_s=10)
    assert {*found} == {"slower", "faster"}
    assert 8 < found["slower"] < 20
    assert 1 / 20 < found["faster"] < 1 / 8


@pytest.mark.parametrize(
    ("about", "medians_ms", "end_s"),
    [
        ("too few seconds", SLOWER[:8], 10),
        ("the change comes after the window", SLOWER, 4),
        ("a small change", np.linspace(9, 12, 11).tolist(), 10),
        ("one slow second", [9.0] * 5 + [900.0] + [9.0] * 5, 10),
        ("slow in the warm-up only", [900.0] + [9.0] * 10, 10),
        ("no time", [0.0] * 11, 10),
    ],
)
def test_other_times_do_not_drift(about, medians_ms, end_s):
    assert time_drifts(seconds_of(op=medians_ms), end_s=end_s) == {}, about


@pytest.mark.parametrize("seconds", [10, 60, 900])
def test_times_that_vary_by_chance_drift_in_one_of_a_hundred_at_most(seconds):
    draw = np.random.default_rng(seconds)
    noisy = {f"op-{number}": (9 * draw.lognormal(0, 0.5, seconds + 1)).tolist() for number in range(300)}
    assert len(time_drifts(seconds_of(**noisy), end_s=seconds)) <= 8  # 3 are expected
