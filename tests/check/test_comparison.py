from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.check.comparison import Computed, NotAnAnswer, Row, canonical, compare, compare_rows
from tsbench.model import (
    Field,
    Measurement,
    Raw,
    Rows,
    Window,
)

if TYPE_CHECKING:
    import random

CPU = Measurement("cpu", ("host",), (Field("busy"), Field("load")))
WINDOW = Window(0, 10)
RAW = Raw(CPU, ("busy",), WINDOW)
NS = 1_451_606_400_123_456_000
MOMENT = datetime(2016, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)


def one(value: Any, column: str = "busy") -> Any:
    """Return a value's canonical form."""
    ((found,),) = canonical(Rows((column,), [(value,)]))
    return found


# --- one form ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "time",
    [
        NS,
        np.int64(NS),
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30))),
        np.datetime64(NS, "ns"),
        np.datetime64(NS // 1_000, "us"),
    ],
    ids=repr,
)
def test_a_time_is_nanoseconds_whatever_the_driver_gives(time: Any) -> None:
    found = one(time, "time")
    assert (found, type(found)) == (NS, int)


def test_times_before_1970_and_beyond_the_exactness_of_floats_stay_exact() -> None:
    assert one(datetime(1969, 12, 31, 23, 59, 59, 999_999), "time") == -1_000  # noqa: DTZ001
    assert one(NS + 1, "time") - one(NS, "time") == 1
    assert one(datetime(2262, 4, 11, 23, 47, 16, 854_775, tzinfo=UTC), "time") == 2**63 - 1 - 807


@pytest.mark.parametrize("value", [5, 5.0, Decimal("5.000"), np.int32(5), np.float64(5), np.float32(5)], ids=repr)
def test_a_number_is_a_float_whatever_the_driver_gives(value: Any) -> None:
    assert (one(value), type(one(value))) == (5.0, float)


def test_text_and_none_stay_what_they_are() -> None:
    assert one("host_1") == "host_1"
    assert type(one(np.str_("host_1"))) is str
    assert one(None) is None
    assert one(None, "time") is None


@pytest.mark.parametrize("value", [b"5", [5], {"a": 5}, True, MOMENT, object()], ids=lambda value: type(value).__name__)
def test_a_value_that_no_answer_can_have_is_refused(value: Any) -> None:
    with pytest.raises(NotAnAnswer, match="an answer holds a"):
        one(value)


def test_true_is_no_time() -> None:
    with pytest.raises(NotAnAnswer):
        one(True, "time")


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)),
        st.one_of(st.none(), st.sampled_from("abc")),
        st.one_of(st.none(), st.text("xy", max_size=1), st.floats(-3, 3)),
    ),
    max_size=12,
)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_is_not_part_of_an_answer(rows: list[Row], draw: random.Random) -> None:
    shuffled = list(rows)
    draw.shuffle(shuffled)
    assert compare(Rows(RAW.columns, rows), Rows(RAW.columns, shuffled)) is None


@given(ROWS, st.data())
def test_how_often_a_row_comes_is_part_of_an_answer(rows: list[Row], data: st.DataObject) -> None:
    if not rows:
        return
    index = data.draw(st.integers(0, len(rows) - 1))
    sound = Rows(RAW.columns, rows)
    for other in ([*rows, rows[index]], rows[:index] + rows[index + 1 :]):
        difference = compare(sound, Rows(RAW.columns, other))
        assert difference is not None
        assert "\n" not in difference.text


# --- differences ------------------------------------------------------------------------------------------------------


def differ(want: list[Row], got: list[Row]) -> str | None:
    difference = compare(Rows(RAW.columns, want), Rows(RAW.columns, got))
    return None if difference is None else difference.text


TWO = "1970-01-01T00:00:00.000000002Z"


def test_the_first_difference_is_named_with_its_row_and_column() -> None:
    assert differ([(1, "a", 1.0), (2, "a", 2.0)], [(1, "a", 1.0), (2, "a", 3.0)]) == (
        f"row 2 of 2, busy: 3.0 instead of 2.0 (row ({TWO}, 'a', 3.0), expected ({TWO}, 'a', 2.0))"
    )
    assert f"first missing: ({TWO}, 'a', 2.0)" in str(differ([(1, "a", 1.0), (2, "a", 2.0)], [(1, "a", 1.0)]))
    assert f"first unexpected: ({TWO}, 'a', 2.0)" in str(differ([(1, "a", 1.0)], [(1, "a", 1.0), (2, "a", 2.0)]))
    rounded = "0.4982 instead of 0.49823321554770317, rounded to 4 decimals (row"
    assert rounded in str(differ([(1, "a", 0.49823321554770317)], [(1, "a", 0.4982)]))
    assert "rounded" not in str(differ([(1, "a", 0.49823321554770317)], [(1, "a", 0.4983)]))
    assert "2 columns instead of 3" in str(differ([(1, "a", 1.0)], [(1, "a")]))


def test_other_columns_are_a_difference() -> None:
    found = compare(Rows(("time", "host", "busy"), []), Rows(("time", "busy"), []))
    assert found is not None
    assert found.text == "columns time, busy instead of time, host, busy"


def test_values_of_another_type_are_a_difference() -> None:
    for value in (None, "1.0", "a"):
        assert differ([(1, "a", 1.0)], [(1, "a", value)]), value
    assert differ([(1, "a", None)], [(1, "a", 0.0)])
    assert differ([(1, "a", 1.0)], [(1, None, 1.0)])
    assert differ([(1, "a", 1.0)], [(1, 5, 1.0)])
    assert differ([(1, "a", 1.0)], [(1.0, "a", 1.0)]), "a time as a float has lost nanoseconds"


def test_not_a_number_equals_itself_and_nothing_else() -> None:
    nan = math.nan
    assert differ([(1, "a", nan)], [(1, "a", float("nan"))]) is None
    for value in (0.0, math.inf, None):
        assert differ([(1, "a", nan)], [(1, "a", value)])
        assert differ([(1, "a", value)], [(1, "a", nan)])
    assert differ([(1, "a", math.inf)], [(1, "a", math.inf)]) is None
    assert differ([(1, "a", math.inf)], [(1, "a", -math.inf)])


# --- exactness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e-300, 33.3, -1e12, 2.0**53])
def test_values_are_compared_to_the_last_bit(value: float) -> None:
    for other in (math.nextafter(value, math.inf), math.nextafter(value, -math.inf)):
        assert differ([(1, "a", value)], [(1, "a", other)])
    assert differ([(1, "a", 0.0)], [(1, "a", 5e-324)])


LARGE = st.integers(-(2**63), 2**63 - 1)


@given(LARGE, LARGE.flatmap(lambda n: st.sampled_from([n, n + 1, n - 1])))
def test_integers_are_compared_as_integers_also_above_2_to_the_53(one: int, other: int) -> None:
    for a, b in ((one, other), (one, one + 1), (one, one - 1), (one, one)):
        assert (differ([(1, "a", a)], [(1, "a", b)]) is None) == (a == b)
        assert (differ([(1, "a", a)], [(1, "a", Decimal(b))]) is None) == (a == b)
        if a == float(a):
            assert (differ([(1, "a", a)], [(1, "a", float(b))]) is None) == (a == float(b))


@pytest.mark.parametrize("value", [0.0, 33.3, -1e12])
def test_a_computed_value_may_differ_by_its_bound_and_no_more(value: float) -> None:
    want: list[Row] = [(1, "a", Computed.of(value, 0.25))]
    assert differ(want, [(1, "a", value + 0.25)]) is None
    assert differ(want, [(1, "a", value - 0.25)]) is None
    for other in (value + 0.251, value - 0.251, math.nan, math.inf, None):
        assert differ(want, [(1, "a", other)]), other


def test_comparing_rows_stops_at_the_first_difference() -> None:
    wrong: list[Row] = [(i, "a", -1.0) for i in range(1_000)]
    right: list[Row] = [(i, "a", 1.0) for i in range(1_000)]
    difference = compare_rows(right, wrong, RAW.columns)
    assert difference is not None
    assert difference.text.startswith("row 1 of 1000, busy")
