from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tsbench.check.comparison import canonical, forms_of
from tsbench.check.packed import SeriesNames, pack_stored
from tsbench.check.stored_rows import EXAMPLES, Differences, Flaw, compare_canonical
from tsbench.model import OTHERS, Rows, Stored
from tsbench.testing import data
from tsbench.testing.answer_key import AnswerKey
from tsbench.testing.data import CPU, DISK, LAG, START_NS, S

if TYPE_CHECKING:
    from tsbench.check.stored_rows import Located

QUERY = Stored(CPU)
COLUMNS = QUERY.columns
ROWS = [
    (START_NS + minute * 60 * S, f"host_{host}", f"r{host}", 1.5 * minute, -0.25, 7.0 + host, None)
    for minute in range(4)
    for host in range(3)
]
"""Four minutes of three hosts: time, host, region, busy, load, count, others."""
NONE: list[tuple[Any, ...]] = []
AT_5 = "2016-01-01T00:01:00Z"


def found(
    stored: list[tuple[Any, ...]],
    *,
    expected: list[tuple[Any, ...]] = ROWS,
    maybe: list[tuple[Any, ...]] = NONE,
) -> list[Located]:
    return compared(QUERY, expected, maybe, stored)


def compared(query: Stored, *records: list[tuple[Any, ...]]) -> list[Located]:
    """Compare the expected, the possible and the stored records of a query."""
    must, maybe, stored = (canonical(Rows(query.columns, one), odd_as_text=True) for one in records)
    return compare_canonical(query, must, maybe, stored)


VALUES = st.one_of(
    st.sampled_from([1.5, -0.0, 7, 2**53 + 1, 2**70, None, math.nan, math.inf, True, "7", Decimal(3), b"x"]),
    st.floats(),
)
MOMENT = datetime.fromtimestamp(START_NS / 1e9, UTC)
TIMES = st.sampled_from([START_NS, START_NS + S, MOMENT, MOMENT.replace(tzinfo=None), None, "now", 2**65, False])
SERIES = [("host_0", "r0"), ("host_1", "r1"), ("host_2", None)]
TAGS = st.sampled_from([*SERIES, ("host_1", "r0"), (None, None), (5, "r0")])
RECORDS = st.lists(st.tuples(TIMES, TAGS, VALUES, VALUES, VALUES, st.sampled_from([None, None, None, "more = 1"])))


@given(RECORDS)
@example([(START_NS, SERIES[0], 1.5, 2**53 + 1, 1.5, None)])
def test_stored_rows_as_columns_are_the_rows(drawn: list[Any]) -> None:
    """Whatever a database holds: the rows of known series and numbers as columns, all others as they are."""
    rows = Rows(COLUMNS, [(time, *tags, *rest) for time, tags, *rest in drawn])
    packed = pack_stored(QUERY, rows, SeriesNames(SERIES))
    plain = [(time, *key, *values) for time, key, *values in packed.rows(SERIES)]
    as_columns = [(*(None if value != value else value for value in row), None) for row in plain]  # noqa: PLR0124
    as_rows = canonical(rows, FORMS, odd_as_text=True)
    assert Counter(map(repr, [*as_columns, *packed.odd])) == Counter(map(repr, as_rows))
    assert not any(is_of_numbers(row) for row in packed.odd)


def is_of_numbers(row: tuple[Any, ...]) -> bool:
    """Return whether a row is one that columns hold."""
    time, host, region, *values, others = row
    known = type(time) is int and time < 2**63 and (host, region) in SERIES and others is None
    return known and all(value is None or (type(value) in {int, float} and value == value) for value in values)  # noqa: PLR0124


FORMS = forms_of(QUERY)


def changed(row: int, **values: Any) -> list[tuple[Any, ...]]:
    """Return the rows with other values in one of them."""
    named = {**dict(zip(COLUMNS, ROWS[row], strict=True)), **values}
    return [*ROWS[:row], tuple(named[name] for name in COLUMNS), *ROWS[row + 1 :]]


def kinds(differences: list[Located]) -> list[tuple[Flaw, str | None, str]]:
    return [(one.kind, one.series, one.time) for one in differences]


def test_the_same_rows_in_any_order_and_number_format_do_not_differ() -> None:
    assert found([*reversed(ROWS)]) == []
    assert found([(*row[:3], row[3], row[4], int(row[5]), None) for row in ROWS]) == []
    assert found([], expected=[]) == []


@pytest.mark.parametrize(
    ("values", "kind", "stored", "expected"),
    [
        ({"busy": 2.0}, Flaw.WRONG_VALUE, {"busy": 2.0}, {"busy": 1.5}),
        ({"busy": math.nan}, Flaw.WRONG_VALUE, None, {"busy": 1.5}),
        ({"busy": "1.5"}, Flaw.WRONG_VALUE, {"busy": "1.5"}, {"busy": 1.5}),
        ({"busy": 0.0, "load": 0.0}, Flaw.WRONG_VALUE, {"busy": 0.0, "load": 0.0}, {"busy": 1.5, "load": -0.25}),
        ({"busy": b"x"}, Flaw.WRONG_VALUE, {"busy": "bytes b'x'"}, {"busy": 1.5}),
        ({"load": None}, Flaw.PARTIAL, {"load": None}, {"load": -0.25}),
        ({"region": "r9"}, Flaw.OTHER_TAGS, {"region": "r9"}, {"region": "r2"}),
        ({"region": None}, Flaw.OTHER_TAGS, {"region": None}, {"region": "r2"}),
        ({OTHERS: '{"x": 1}'}, Flaw.EXTRA, {OTHERS: '{"x": 1}'}, {OTHERS: None}),
    ],
)
def test_one_changed_row_is_one_difference_at_its_place(
    values: dict[str, Any], kind: Flaw, stored: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    (one,) = found(changed(5, **values))
    assert (one.kind, one.measurement, one.series, one.time) == (kind, "cpu", "host_2", AT_5)
    assert one.expected == expected
    assert stored is None or one.stored == stored
    assert f"{kind}: cpu host_2 at {AT_5}: stored " in one.text


def test_a_row_that_differs_in_several_ways_is_counted_for_each() -> None:
    differences = found(changed(5, busy=9.0, load=None, region="x", **{OTHERS: '{"x": 1}'}))
    assert {one.kind for one in differences} == {Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.OTHER_TAGS, Flaw.EXTRA}


def test_one_missing_row_is_one_difference_and_not_all_rows_after_it() -> None:
    (one,) = found(ROWS[:5] + ROWS[6:])
    assert (one.kind, one.series, one.time, one.stored) == (Flaw.MISSING, "host_2", AT_5, {})
    assert one.expected == {"region": "r2", "busy": 1.5, "load": -0.25, "count": 9.0}


def test_a_row_that_is_there_twice_is_a_duplicate() -> None:
    assert kinds(found([*ROWS, ROWS[5], ROWS[5]])) == [(Flaw.DUPLICATE, "host_2", AT_5)] * 2


def test_a_row_that_was_moved_is_missing_at_one_place_and_unwritten_at_the_other() -> None:
    later = kinds(found(changed(5, time=ROWS[5][0] + 1)))
    assert later == [(Flaw.MISSING, "host_2", AT_5), (Flaw.UNWRITTEN, "host_2", "2016-01-01T00:01:00.000000001Z")]
    other = kinds(found(changed(5, host="host_x")))
    assert sorted(other) == [(Flaw.MISSING, "host_2", AT_5), (Flaw.UNWRITTEN, "host_x", AT_5)]


def test_a_second_point_at_the_place_of_a_written_one_is_told_by_what_is_different() -> None:
    row = ROWS[5]
    assert kinds(found([*ROWS, (*row[:2], "r9", *row[3:])])) == [(Flaw.OTHER_TAGS, "host_2", AT_5)]
    assert kinds(found([*ROWS, (*row[:-1], '{"zone": "z"}')])) == [(Flaw.EXTRA, "host_2", AT_5)]
    assert kinds(found([*ROWS, (*row[:4], None, *row[5:])])) == [(Flaw.PARTIAL, "host_2", AT_5)]
    assert kinds(found([*ROWS, (*row[:3], 8.0, *row[4:])])) == [(Flaw.WRONG_VALUE, "host_2", AT_5)]


def test_a_point_where_none_was_written_is_partial_if_it_lacks_a_field() -> None:
    whole, part = (0, "host_0", "r0", 1.0, 2.0, 3.0, None), (0, "host_0", "r0", 1.0, None, 3.0, None)
    assert kinds(found([*ROWS, whole])) == [(Flaw.UNWRITTEN, "host_0", "1970-01-01T00:00:00Z")]
    assert kinds(found([*ROWS, part])) == [(Flaw.PARTIAL, "host_0", "1970-01-01T00:00:00Z")]


@pytest.mark.parametrize("time", [None, "soon", 2**200, -(2**200), float("inf")])
def test_a_row_without_a_time_that_can_be_printed_is_found(time: Any) -> None:
    (one,) = found([*ROWS, (time, *ROWS[0][1:])])
    assert one.kind is Flaw.UNWRITTEN
    assert one.time


def test_rows_of_unknown_writes_may_be_stored_once() -> None:
    assert found(ROWS, expected=ROWS[:6], maybe=ROWS[6:]) == []
    assert found(ROWS[:8], expected=ROWS[:6], maybe=ROWS[6:]) == []
    assert kinds(found([*ROWS, ROWS[11]], expected=ROWS[:6], maybe=ROWS[6:])) == [
        (Flaw.UNWRITTEN, "host_2", "2016-01-01T00:03:00Z")
    ]


@pytest.mark.parametrize("measurement", [CPU, DISK, LAG], ids=lambda m: m.name)
def test_rows_of_every_form_of_measurement_are_paired(measurement: Any) -> None:
    key = AnswerKey()
    for batch in data.scattered(measurement, data.shared_tags(), 40, 3):
        key.add(batch)
    query = Stored(measurement)
    records = [*key.answer(query).records]
    assert compared(query, records, [], records) == []
    (one,) = compared(query, records, [], records[1:])
    assert (one.kind, one.measurement, one.series is None) == (Flaw.MISSING, measurement.name, not measurement.tags)


def test_all_differences_are_counted_and_the_first_of_each_kind_are_kept() -> None:
    differences = Differences()
    assert (differences.text, differences.summary()) == ("", {})
    differences.add(found([(*row[:3], row[3] + 1, *row[4:]) for row in ROWS[:-1]]))
    assert differences.counts == {Flaw.WRONG_VALUE: 11, Flaw.MISSING: 1}
    assert differences.text.startswith("11 x wrong value, 1 x missing row; first wrong value: cpu host_0 at 2016-01-01")
    summary = differences.summary()
    assert (summary["wrong value"]["count"], len(summary["wrong value"]["first"])) == (11, EXAMPLES)
    assert summary["wrong value"]["first"][0] == {
        "measurement": "cpu",
        "series": "host_0",
        "time": "2016-01-01T00:00:00Z",
        "stored": "busy=1.0",
        "expected": "busy=0.0",
    }
