"""Statistics of runs against scipy's, and against simulations of which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from tsbench.measure.margins import dependence, mean_interval, share_interval
from tsbench.measure.statistics import (
    Bounds,
    Test,
    benjamini_hochberg,
    beta_share,
    binomial_at_least,
    binomial_at_most,
    differences,
    effect_found,
    least_runs,
    median_interval,
    paired_test,
    rank_test,
    runs_needed,
    t_above,
    t_quantile,
)


@given(st.integers(1, 100_000), st.floats(0, 1), st.floats(0.0001, 0.9999))
def test_binomial_tails_are_those_of_scipy(ops, part, share):
    found = int(part * ops)
    assert binomial_at_most(found, ops, share) == pytest.approx(stats.binom.cdf(found, ops, share), rel=1e-6, abs=1e-12)
    expected = stats.binom.sf(found - 1, ops, share)
    assert binomial_at_least(found, ops, share) == pytest.approx(expected, rel=1e-6, abs=1e-12)


# Where x is subnormal scipy is wrong: betainc(1/64, 2, 5e-324) is x**a * (1 + a), 9.017e-6, and not 8.974e-6.
@given(st.floats(0.01, 5_000), st.floats(0.01, 5_000), st.floats(0, 1, allow_subnormal=False))
def test_the_beta_distribution_is_that_of_scipy_also_for_numbers_that_are_not_whole(a, b, x):
    assert beta_share(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 7, 30, 1_000])
@pytest.mark.parametrize("tail", [0.4, 0.05, 0.025, 0.001])
def test_students_t_is_that_of_scipy(freedom, tail):
    assert t_quantile(tail, freedom) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-8)
    assert t_above(-1.5, freedom) == pytest.approx(stats.t.sf(-1.5, freedom))


def test_a_large_number_of_ops_is_no_obstacle():
    assert binomial_at_most(999_000, 100_000_000, 0.01) == pytest.approx(
        stats.binom.cdf(999_000, 100_000_000, 0.01), rel=1e-5
    )


@pytest.mark.parametrize("pairs", [2, 5, 6, 8, 12])
def test_the_sign_flip_test_is_scipys_permutation_test(pairs):
    rng = np.random.default_rng(pairs)
    base, new = rng.lognormal(0, 0.1, pairs), rng.lognormal(0.05, 0.1, pairs)
    logs = np.log(new / base)
    expected = stats.permutation_test((logs,), np.mean, permutation_type="samples", n_resamples=math.inf).pvalue
    found = paired_test(base, new)
    assert found.p == pytest.approx(min(1, expected))
    assert found.ratio.estimate == pytest.approx(math.exp(logs.mean()))


@pytest.mark.parametrize("pairs", [6, 8, 11])
def test_the_interval_of_pairs_has_what_the_test_does_not_refute(pairs):
    rng = np.random.default_rng(pairs)
    base, new = rng.lognormal(0, 0.1, pairs), rng.lognormal(0.05, 0.1, pairs)
    found = paired_test(base, new).ratio
    width = found.most - found.least
    for ratio, inside in (
        (found.least + 1e-6 * width, True),
        (found.most - 1e-6 * width, True),
        (found.least - 1e-6 * width, False),
        (found.most + 1e-6 * width, False),
    ):
        assert (paired_test(base * ratio, new).p > 0.05) is inside


@pytest.mark.parametrize("sides", [(4, 4), (5, 8), (12, 9), (60, 60)])
def test_the_rank_test_is_scipys(sides):
    rng = np.random.default_rng(sum(sides))
    base, new = rng.lognormal(0, 0.1, sides[0]), rng.lognormal(0.04, 0.1, sides[1])
    found = rank_test(base, new)
    method = "exact" if sides[0] < 50 else "asymptotic"
    assert found.p == pytest.approx(stats.mannwhitneyu(base, new, method=method).pvalue, rel=1e-3)
    for ratio, inside in ((found.ratio.least * 1.0001, True), (found.ratio.most * 1.0001, False)):
        assert (rank_test(base * ratio, new).p > 0.05) is inside


def test_ties_are_no_difference():
    assert rank_test([3.0] * 6, [3.0] * 6).p == 1
    assert paired_test([3.0] * 8, [3.0] * 8).p == 1
    assert rank_test([1, 1, 1, 2], [1, 1, 2, 2]).p > 0.05


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_benjamini_and_hochberg_are_scipys(ps):
    assert benjamini_hochberg(ps) == pytest.approx(stats.false_discovery_control(ps), abs=1e-12)


def test_the_least_numbers_of_runs_are_those_at_which_the_tests_can_say_anything():
    assert [least_runs(figures) for figures in (1, 2, 6, 7)] == [6, 7, 8, 9]
    assert [least_runs(figures, paired=False) for figures in (1, 6)] == [4, 5]
    alike, apart = np.linspace(1, 1.01, 5), np.linspace(2, 2.01, 5)
    assert paired_test(alike, apart).p > 0.05 > paired_test([*alike, 1], [*apart, 2]).p
    assert rank_test(alike[:3], apart[:3]).p > 0.05 > rank_test(alike[:4], apart[:4]).p


def test_a_median_has_an_interval_from_six_runs_on():
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([5, 1, 3, 2, 6, 4]) == Bounds(3.5, 1, 6)
    assert median_interval([5, 1, 3, 2, 6, 4, 7, 8, 9]) == Bounds(5, 2, 8)


def test_the_median_interval_is_that_of_scipys_quantile_test():
    values = np.random.default_rng(1).normal(size=25)
    found, theirs = median_interval(values), stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert found is not None
    assert (found.least, found.most) == pytest.approx((theirs.low, theirs.high))


def test_words_need_runs_and_depend_on_the_direction():
    slower = paired_test(np.ones(8), np.linspace(1.1, 1.2, 8))
    few = paired_test(np.ones(5), np.linspace(1.1, 1.2, 5))
    same = paired_test(np.ones(8), np.exp([0.1, -0.1] * 4))
    less = {"p99": False, "points/s": True}
    assert differences({"p99": slower, "points/s": slower}, less) == {"p99": "worse", "points/s": "better"}
    assert differences({"p99": few}, less) == {"p99": "too few runs"}
    assert differences({"p99": same}, less) == {"p99": "no difference found"}


def test_a_difference_of_one_figure_among_many_needs_a_smaller_probability():
    close = Test(Bounds(1.1, 1.01, 1.2), 0.04, 0.05, paired=True, runs=(9, 9))
    none = Test(Bounds(1.0, 0.9, 1.1), 0.8, 0.05, paired=True, runs=(9, 9))
    assert differences({"a": close}, {"a": True}) == {"a": "better"}
    together = differences({"a": close, "b": none, "c": none}, dict.fromkeys("abc", True))
    assert together["a"] == "no difference found"


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
@pytest.mark.parametrize("figures", [1, 6])
def test_the_recommended_number_of_runs_finds_the_effect_nine_times_of_ten(paired, noise, figures):
    rng = np.random.default_rng(7)
    runs = runs_needed(noise * math.sqrt(2) if paired else noise, 0.05, figures, paired=paired)
    assert runs is not None
    test = paired_test if paired else rank_test
    found = sum(
        test(rng.lognormal(0, noise, runs), rng.lognormal(math.log(1.05), noise, runs)).p <= 0.05 / figures
        for _ in range(200)
    )
    assert 0.84 <= found / 200 <= 1  # three standard errors below 0.9
    fewer = runs - 1
    smallest = effect_found(noise * math.sqrt(2) if paired else noise, (runs, runs), figures, paired=paired)
    assert smallest is not None
    assert smallest <= 0.05
    if fewer >= least_runs(figures, paired=paired):
        above = effect_found(noise * math.sqrt(2) if paired else noise, (fewer, fewer), figures, paired=paired)
        assert above is None or above > 0.05 or runs == least_runs(figures, paired=paired)


def test_too_few_runs_and_too_much_noise_have_no_answer():
    assert effect_found(0.05, (5, 5), paired=True) is None
    assert runs_needed(2.0, 0.01) is None
    known, guessed = runs_needed(0.05, 0.05), runs_needed(0.05, 0.05, seen=4)
    assert known is not None
    assert guessed is not None
    assert guessed > known


def test_independent_ops_have_no_dependence_and_stalls_have_one():
    rng = np.random.default_rng(3)
    sizes = np.full(64, 500)
    assert dependence(rng.binomial(500, 0.01, 64), sizes) < 2.5
    stalled = np.zeros(64)
    stalled[[10, 11, 40]] = 100
    assert dependence(stalled, sizes) > 50
    assert dependence(np.zeros(64), sizes) == 1


def test_a_mean_of_dependent_seconds_has_a_wider_interval():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=300)
    slow = np.zeros(300)
    for at in range(1, 300):
        slow[at] = 0.9 * slow[at - 1] + noise[at]
    independent, dependent = mean_interval(noise), mean_interval(slow * noise.std() / slow.std())
    assert independent is not None
    assert dependent is not None
    assert dependent.most - dependent.least > 2 * (independent.most - independent.least)
    assert mean_interval([1.0] * 7) is None


@pytest.mark.parametrize("ops", [200, 5_000])
def test_the_interval_of_a_share_covers_the_share(ops):
    rng = np.random.default_rng(ops)
    covered = 0
    for found in rng.binomial(ops, 0.99, 1_000):
        least, most = share_interval(found / ops, ops)
        covered += least <= 0.99 <= most
    assert covered >= 940
