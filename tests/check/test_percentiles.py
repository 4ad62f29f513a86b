from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.check.percentiles import Percentiles

VALUES = st.lists(
    st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 1e-300, 12.5]),
        st.floats(-1e6, 1e6, allow_subnormal=False),
        st.integers(-9, 9).map(float),
    ),
    min_size=1,
    max_size=60,
)


def is_right(values: list[float], percent: int, claimed: float, pieces: int) -> bool:
    """Whether a claim is right by values that come in pieces, in a cell beside one of others."""
    percentiles = Percentiles(np.array([np.nan, claimed]), percent / 100)
    for piece in np.array_split(np.array(values), pieces):
        percentiles.add(piece, np.ones(len(piece), dtype=np.int64))
        percentiles.add(piece + 1, np.zeros(len(piece), dtype=np.int64))
    return percentiles.judged(1, len(values)).is_right


@given(VALUES, st.integers(1, 99), st.integers(1, 4))
def test_a_claim_is_right_if_it_is_what_is_computed_of_all_values(values, percent, pieces) -> None:
    in_order, rank = sorted(values), (len(values) - 1) * percent / 100
    low, high = in_order[math.floor(rank)], in_order[math.ceil(rank)]
    size, rest = max(abs(low), abs(high)), rank % 1
    for right in (float(np.quantile(values, percent / 100)), low * (1 - rest) + high * rest, low + (high - low) * rest):
        assert is_right(values, percent, right, pieces)
    right = low + (high - low) * rest
    methods = ("lower", "higher", "nearest", "midpoint", "weibull", "hazen", "median_unbiased")
    others = [float(np.quantile(values, percent / 100, method=one)) for one in methods]  # type: ignore[call-overload]
    others += [right + size * 1e-9, right - size * 1e-9, max(values) + 1, min(values) - 1]
    for other in others:
        if abs(other - right) > max(map(abs, values)) * 1e-12:  # to which a rank is exact
            assert not is_right(values, percent, other, pieces), (other, right)


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        (5.0, "a lower value (5 of 5 are below)"),
        (0.0, "a higher value (0 of 5 are below)"),
        (2.5, "3.0"),
        (np.nan, "a value"),
    ],
)
def test_what_is_wrong_says_where_the_right_value_is(claimed: float, said: str) -> None:
    percentiles = Percentiles(np.array([claimed]), 0.5)
    percentiles.add(np.array([1.0, 2.0, 3.0, 4.0, 4.5]), np.zeros(5, dtype=np.int64))
    judged = percentiles.judged(0, 5)
    assert not judged.is_right
    assert said in repr(judged)
