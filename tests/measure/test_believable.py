"""Which percentiles can be believed, on clients whose delays are known because they were made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.measure.simulated_client import MS, US, Case, S, changes
from tsbench.measure.believable import believable_percentile
from tsbench.measure.hist import Histogram
from tsbench.measure.loop_clock import LoopClock, RunningQuantile

PERCENTS = (50.0, 90.0, 99.0, 99.9)
CALM = Case(seed=1, duration_ns=8 * S)
OPEN = replace(CALM, rate_per_s=400.0)


def believed(case: Case) -> tuple[float, dict[float, float]]:
    seen, raised = changes(case, PERCENTS)
    return believable_percentile(*seen.histograms(), PERCENTS), raised


@pytest.mark.parametrize(
    ("delays", "closed", "opened"),
    [
        ({}, 99.9, 99.9),
        ({"pause_ns": 500 * MS, "pause_every_ns": 2 * S}, 99.9, 99.9),  # the server's tail
        ({"service_ns": 50 * MS, "spread": 0.6}, 99.9, 99.9),
        ({"work_ns": 1 * MS, "users": 40, "think_ns": 5 * MS, "rate_per_s": 400.0}, 0.0, 0.0),  # the client's median
        ({"stall_ns": 100 * MS, "stall_every_ns": 900 * MS}, 99.0, 50.0),  # a loop that stands still 10 % of the time
        (
            {"stall_ns": 100 * MS, "stall_every_ns": 900 * MS, "service_ns": 2 * S, "users": 80, "spread": 0.05},
            99.9,
            99.9,
        ),
        ({"starved_share": 0.3, "starved_ns": 20 * MS}, 0.0, 0.0),  # no CPU for the process
        ({"starved_share": 0.02, "starved_ns": 20 * MS}, 50.0, 0.0),
    ],
)
def test_a_percentile_is_believed_unless_the_client_made_a_tenth_of_it(
    delays: dict[str, float], closed: float, opened: float
) -> None:
    closed_case = replace(CALM, **{**delays, "rate_per_s": 0.0})  # type: ignore[arg-type]
    rate_per_s = OPEN.rate_per_s * min(1.0, CALM.service_ns / closed_case.service_ns)
    for case, percentile in ((closed_case, closed), (replace(closed_case, rate_per_s=rate_per_s), opened)):
        held, raised = believed(case)
        assert held == percentile, raised
        assert all(raised[p] < 0.13 for p in PERCENTS if p <= held), raised
        assert all(raised[p] > 0.07 for p in PERCENTS[PERCENTS.index(held) + 1 if held else 0 :][:1]), raised


def test_nothing_measured_can_be_believed_and_does_no_harm() -> None:
    assert believable_percentile(Histogram(), Histogram(), Histogram(), PERCENTS) == 99.9


def test_a_single_delayed_op_costs_the_maximum_only() -> None:
    times = np.full(10_000, 2 * MS)
    seen = times.copy()
    seen[0] = 90 * MS
    assert believable_percentile(Histogram(seen), Histogram(times), Histogram(), (*PERCENTS, 100.0)) == 99.9


def test_timers_that_end_a_millisecond_late_are_no_sign_of_anything() -> None:
    times = Histogram(np.full(1_000, 100 * US))
    assert believable_percentile(times, times, Histogram(np.full(1_000, 990 * US)), PERCENTS) == 99.9


def test_an_answer_that_ended_a_poll_lay_unread_since_then() -> None:
    clock = LoopClock(0)
    clock.entering_poll(1 * MS)
    clock.left_poll(9 * MS)
    assert clock.unread_ns(1 * MS, 9 * MS) == 0
    assert clock.unread_ns(1 * MS, 12 * MS) == 3 * MS, "others were resumed before"
    assert clock.unread_ns(9 * MS, 12 * MS) == 0, "nothing was waited for"


def test_of_an_answer_that_came_while_the_loop_was_busy_the_middle_is_taken() -> None:
    clock = LoopClock(0)
    clock.entering_poll(1 * MS)
    clock.left_poll(2 * MS)
    clock.entering_poll(12 * MS)
    clock.left_poll(12 * MS + 3 * US)
    assert clock.unread_ns(1 * MS, 13 * MS) == 13 * MS - (2 * MS + 12 * MS + 3 * US) // 2
    assert clock.unread_ns(10 * MS, 13 * MS) == 13 * MS - (10 * MS + 12 * MS + 3 * US) // 2, "it was sent only then"


def test_the_work_on_an_answer_is_not_time_that_it_lay_unread() -> None:
    clock = LoopClock(0)
    clock.entering_poll(1 * MS)
    clock.left_poll(9 * MS)
    assert clock.since_poll_ns(12 * MS) == 3 * MS
    assert clock.unread_ns(1 * MS, 12 * MS, own_ns=2 * MS) == 1 * MS
    assert clock.unread_ns(1 * MS, 12 * MS, own_ns=4 * MS) == 0


def test_a_running_quantile_is_near_the_quantile_of_all_values() -> None:
    values = np.random.default_rng(3).lognormal(12, 0.8, 20_000)
    running = RunningQuantile(0.25)
    for value in values:
        running.add(value)
    assert running.value == pytest.approx(np.quantile(values, 0.25), rel=0.1)
