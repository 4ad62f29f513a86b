from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.measure.pacing import BLOCK, Arrivals, Stripe
from tsbench.units import NS_PER_S

KINDS: tuple[Literal["constant", "poisson"], ...] = ("constant", "poisson")
KIND = st.sampled_from(KINDS)


def all_of(stripe: Stripe, most: int = 10**9) -> list[int]:
    found: list[int] = []
    while len(found) < most and (due_ns := stripe.take()) is not None:
        found.append(due_ns)
    return found


@examples(30)
@given(KIND, st.floats(0.5, 50_000), st.integers(0, 2**32))
def test_due_times_are_a_pure_function_of_the_number(kind: str, rate: float, seed: int) -> None:
    arrivals = Arrivals(rate, kind, seed)  # type: ignore[arg-type]
    one_by_one = all_of(Stripe(arrivals), 2 * BLOCK + 5)
    for number in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 4):
        assert arrivals.due_ns(number) == one_by_one[number]
    in_blocks = np.concatenate([arrivals.block_ns(block) for block in range(3)])
    assert in_blocks[: len(one_by_one)].tolist() == one_by_one
    assert all_of(Stripe(Arrivals(rate, kind, seed)), 50) == one_by_one[:50]  # type: ignore[arg-type]


@examples(30)
@given(KIND, st.floats(0.5, 1e6), st.integers(0, 2**32))
def test_due_times_increase(kind: str, rate: float, seed: int) -> None:
    times = all_of(Stripe(Arrivals(rate, kind, seed)), 3_000)  # type: ignore[arg-type]
    assert times[0] >= 0
    assert all(one <= other for one, other in pairwise(times))


@examples(40)
@given(KIND, st.integers(1, 300), st.integers(1, 3_000), st.integers(0, 99))
def test_the_stripes_of_any_number_of_processes_are_disjoint_and_complete(
    kind: str, processes: int, rate: int, seed: int
) -> None:
    arrivals = Arrivals(rate, kind, seed, 2 * NS_PER_S)  # type: ignore[arg-type]
    whole = all_of(Stripe(arrivals))
    stripes = [all_of(Stripe(arrivals, index=i, of=processes)) for i in range(processes)]
    for index, stripe in enumerate(stripes):
        assert stripe == whole[index::processes]
    assert sum(map(len, stripes)) == len(whole)


def test_constant_arrivals_are_evenly_spaced_and_start_at_once() -> None:
    times = all_of(Stripe(Arrivals(1_000.0, "constant", 1)), 5_000)
    assert times == [i * 1_000_000 for i in range(5_000)]
    thirds = all_of(Stripe(Arrivals(3.0, "constant", 1)), 3 * 3_600 + 1)
    assert thirds[-1] == 3_600 * NS_PER_S, "rounding must not add up over an hour"
    assert {other - one for one, other in pairwise(thirds)} == {333_333_333, 333_333_334}


@pytest.mark.parametrize("seed", range(5))
def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process(seed: int) -> None:
    times = np.array(all_of(Stripe(Arrivals(2_000.0, "poisson", seed, 20 * NS_PER_S))))
    assert abs(len(times) - 40_000) < 5 * np.sqrt(40_000)
    gaps = np.diff(times) / (NS_PER_S / 2_000.0)
    assert gaps.mean() == pytest.approx(1, abs=5 / np.sqrt(len(gaps)))
    assert gaps.std() == pytest.approx(1, abs=0.05)
    per_tenth = np.bincount(times // (NS_PER_S // 10), minlength=200)
    assert per_tenth.var() / per_tenth.mean() == pytest.approx(1, abs=0.5)


def test_different_seeds_are_different_schedules() -> None:
    schedules = {tuple(all_of(Stripe(Arrivals(100.0, "poisson", seed)), 20)) for seed in range(20)}
    assert len(schedules) == 20


@examples(40)
@given(KIND, st.integers(1, 2_000), st.integers(1, 3 * NS_PER_S), st.integers(0, 99))
def test_the_duration_cuts_exactly(kind: str, rate: int, duration_ns: int, seed: int) -> None:
    endless = Stripe(Arrivals(rate, kind, seed))  # type: ignore[arg-type]
    wanted = []
    while (due_ns := endless.take()) is not None and due_ns < duration_ns:
        wanted.append(due_ns)
    assert all_of(Stripe(Arrivals(rate, kind, seed, duration_ns))) == wanted  # type: ignore[arg-type]


def test_a_constant_schedule_of_a_duration_has_rate_times_duration_arrivals() -> None:
    assert len(all_of(Stripe(Arrivals(250.0, "constant", 1, 4 * NS_PER_S)))) == 1_000


def test_nonsense_is_refused() -> None:
    for rate in (0.0, -1.0):
        with pytest.raises(ValueError, match="above 0"):
            Arrivals(rate, "constant", 1)
    for index, of in ((-1, 2), (2, 2), (0, 0)):
        with pytest.raises(ValueError, match="process"):
            Stripe(Arrivals(1.0, "constant", 1), index=index, of=of)


@pytest.mark.parametrize("kind", ["constant", "poisson"])
def test_a_rate_that_changes_makes_as_many_arrivals_as_it_says_between_its_changes(kind: str) -> None:
    changes = ((2 * NS_PER_S, 4_000.0), (3 * NS_PER_S, 500.0))
    arrivals = Arrivals(1_000.0, kind, 3, 7 * NS_PER_S, changes)  # type: ignore[arg-type]
    times = np.array(all_of(Stripe(arrivals)))
    seconds = np.bincount(times // NS_PER_S, minlength=7)
    assert (np.diff(times) >= 0).all()
    for wanted, seen in zip([1_000, 1_000, 4_000, 500, 500, 500, 500], seconds, strict=True):
        assert abs(int(seen) - wanted) <= (1 if kind == "constant" else 5 * wanted**0.5)
    before = all_of(Stripe(Arrivals(1_000.0, kind, 3, 2 * NS_PER_S)))  # type: ignore[arg-type]
    assert times[: len(before)].tolist() == before
    assert [arrivals.due_ns(number) for number in (0, 1_024, 5_000)] == times[[0, 1_024, 5_000]].tolist()


def test_a_change_at_the_start_is_the_rate_itself() -> None:
    changed = Arrivals(1.0, "poisson", 5, NS_PER_S, ((0, 300.0),))
    assert all_of(Stripe(changed)) == pytest.approx(all_of(Stripe(Arrivals(300.0, "poisson", 5, NS_PER_S))), abs=2)
    with pytest.raises(ValueError, match="above 0"):
        Arrivals(1.0, "constant", 1, None, ((5, 0.0),))
