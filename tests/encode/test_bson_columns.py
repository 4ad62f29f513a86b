from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bson
import numpy as np
import pytest
from bson.codec_options import CodecOptions
from hypothesis import given
from hypothesis import strategies as st

from tsbench.encode import bson_columns
from tsbench.encode.sql import Inexact
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, ODD, START_NS, WIDE

if TYPE_CHECKING:
    from tsbench.model import Batch, Measurement

MS = 1_000_000
AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)


def decoded(content: bytes) -> list[dict[str, Any]]:
    return [{**one} for one in bson.decode_all(content, AWARE)]


def expected(batch: Batch, row: int) -> dict[str, Any]:
    """The document of a point, made from Python's own values."""
    m, series = batch.measurement, int(batch.series[row])
    tags = {tag: batch.tags[tag][series] for tag in (*m.tags, *m.own_tags)}
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(batch.time_ns[row]) // MS)
    fields = {name: batch.fields[name][row].item() for name in m.field_names}
    return {**({"tags": tags} if m.tags else {}), "time": time, **fields}


@given(
    measurement=st.sampled_from([CPU, DISK, LAG, WIDE]),
    names=st.lists(st.sampled_from([*ODD, "a", "ü" * 40]), min_size=1, max_size=6, unique=True),
    rows=st.lists(st.tuples(st.integers(-(10**12), 9 * 10**12), st.integers(0, 5)), max_size=40),
    seed=st.integers(0, 99),
)
def test_pymongo_decodes_the_documents_to_the_points(
    measurement: Measurement, names: list[str], rows: list[tuple[int, int]], seed: int
) -> None:
    shared = data.shared_tags(names=tuple(names))
    series = [which % len(names) if measurement.tags else 0 for _, which in rows]
    batch = data.batch(measurement, shared, time_ns=[ms * MS for ms, _ in rows], series=series, seed=seed)
    found = bson_columns.points(batch)
    wanted = [expected(batch, row) for row in range(len(batch))]
    assert decoded(bytes(found.data)) == wanted
    assert [bson.decode(one, AWARE) for one in found] == wanted
    assert [list(one) for one in decoded(bytes(found.data))] == [list(one) for one in wanted]  # the order of the names


@pytest.mark.parametrize("measurement", [CPU, DISK, LAG])
def test_pymongo_decodes_single_values_to_the_points(measurement: Measurement) -> None:
    batch = data.batch(measurement, data.shared_tags(), time_ns=[START_NS, START_NS + MS, 0], series=[0, 0, 0])
    found = bson_columns.values(batch)
    wanted = [
        [
            {**({"tags": one["tags"]} if measurement.tags else {}), "measurement": measurement.name,
             "time": one["time"], "field": name, "value": one[name]}
            for name in measurement.field_names
        ]
        for one in (expected(batch, row) for row in range(3))
    ]  # fmt: skip
    points = [decoded(point) for point in found]  # a point's values are never apart
    numbers = [{value.pop("point") for value in point} for point in points]
    assert points == wanted
    assert [len(one) for one in numbers] == [1, 1, 1]
    assert len({number for one in numbers for number in one}) == 3


@given(rows=st.integers(1, 50), most=st.integers(1, 20), size=st.integers(1, 2_000))
def test_pieces_have_all_documents_in_order_and_none_is_too_large(rows: int, most: int, size: int) -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * MS for i in range(rows)])
    documents = bson_columns.points(batch)
    pieces = list(documents.cut_by_size(most, size))
    assert b"".join(bytes(piece.data) for piece in pieces) == bytes(documents.data)
    assert sum(map(len, pieces)) == rows
    assert all(len(piece) <= most and (len(piece.data) <= size or len(piece) == 1) for piece in pieces)
    assert all(len(bson.decode_all(bytes(piece.data))) == len(piece) for piece in pieces)
    assert [one for piece in pieces for one in piece] == list(documents)


def test_values_that_numbers_can_have_are_kept() -> None:
    batch = data.batch(LAG, {}, time_ns=[START_NS] * 4)
    batch.fields["seconds"][:] = [np.inf, -np.inf, 5e-324, -0.0]
    batch.fields["kb"][:] = [2**63 - 1, -(2**63), 0, -1]
    found = decoded(bytes(bson_columns.points(batch).data))
    assert [one["seconds"] for one in found] == [np.inf, -np.inf, 5e-324, 0.0]
    assert [one["kb"] for one in found] == [2**63 - 1, -(2**63), 0, -1]


def test_times_finer_than_a_millisecond_are_refused() -> None:
    with pytest.raises(Inexact, match="milliseconds"):
        bson_columns.points(data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1_000]))
