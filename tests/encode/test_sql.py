from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tsbench.encode import sql
from tsbench.testing import data
from tsbench.testing.data import DISK, LAG, START_NS, S


def test_rows_hold_plain_python_values_in_the_columns_order() -> None:
    batch = data.batch(DISK, data.shared_tags(), time_ns=[START_NS, START_NS + S], series=[2, 0])
    columns = sql.columns(batch, batch.time_ns.tolist(), extra_json=True)
    free = batch.fields["free"].tolist()
    texts = [
        '{"path":"path \'2\' \\u00e9","fs":"fs \'2\' \\u00e9"}',
        '{"path":"path \'0\' \\u00e9","fs":"fs \'0\' \\u00e9"}',
    ]
    assert sql.rows(columns) == [(START_NS, 2, free[0], texts[0]), (START_NS + S, 0, free[1], texts[1])]
    assert [type(v) for v in sql.rows(columns)[0]] == [int, int, int, str]
    assert sum(nbytes for _, nbytes in sql.writes(columns, 1)) == 2 * 3 * 8 + sum(map(len, texts))
    assert [nbytes for _, nbytes in sql.writes(columns, 99)] == [2 * 3 * 8 + sum(map(len, texts))]


def test_a_measurement_without_tags_has_neither_series_nor_own_tags() -> None:
    batch = data.batch(LAG, {}, time_ns=[START_NS])
    assert [len(row) for row in sql.rows(sql.columns(batch, [0], extra_json=False))] == [3]
    assert sql.columns(batch, [0], extra_json=True)[-1] == [None]


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 60))
def test_chunks_stay_under_the_limit_and_lose_nothing(height: int, width: int, limit: int) -> None:
    rows = [tuple(range(i, i + width)) for i in range(height)]
    pieces = list(sql.chunks(rows, limit))
    assert [row for piece in pieces for row in piece] == rows
    assert all(len(piece) * width <= limit or len(piece) == 1 for piece in pieces)


def test_a_values_list_numbers_its_placeholders() -> None:
    assert sql.values(2, 3, lambda n: f"${n}") == "($1, $2), ($3, $4), ($5, $6)"


@given(st.integers(-(10**18), 4 * 10**18), st.integers(-(10**15), 4 * 10**15))
def test_rounding_a_bound_upwards_keeps_comparisons_with_microseconds(bound_ns: int, point_us: int) -> None:
    point = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=point_us)
    assert (point >= sql.ceil_datetime(bound_ns)) == (point_us * 1_000 >= bound_ns)
    assert (point < sql.ceil_datetime(bound_ns)) == (point_us * 1_000 < bound_ns)


def test_a_tag_table_has_a_row_per_series() -> None:
    assert sql.tag_rows(data.shared_tags(2)) == [(0, "host_0", "r0"), (1, "host_1", "r1")]
    assert sql.tag_rows({}) == []
