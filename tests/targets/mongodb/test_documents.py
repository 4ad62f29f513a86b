"""Documents read as columns, whichever fields their points lack, are those that are decoded one by one."""

from __future__ import annotations

import bson
import numpy as np
import pytest

from tsbench.encode import bson_columns
from tsbench.model import Batch, ByColumn, Field, Kind, Measurement, Stored
from tsbench.targets.mongodb.documents import Documents
from tsbench.testing import data
from tsbench.testing.data import START_NS, S


def measurement(gaps: int) -> Measurement:
    """Return one whose first fields some points lack."""
    kinds = (Kind.FLOAT, Kind.INT, Kind.BOOL)
    fields = [Field(f"f{i}", kinds[i % 3], nullable=i < gaps) for i in range(8)]
    return Measurement("m", ("host", "region"), tuple(fields))


def documents(m: Measurement, points: int) -> list[bytes]:
    draw = np.random.default_rng(7)
    columns = {}
    for field in m.fields:
        column = draw.integers(0, 2 if field.labels else 2**40, points)
        columns[field.name] = np.where(draw.random(points) < 0.4, np.nan, column) if field.nullable else column
    batch = Batch(
        m, 0, 0, START_NS + np.arange(points) * S, draw.integers(0, 5, points).astype(np.int32),
        data.shared_tags(), columns,
    )  # fmt: skip
    return [bson.encode({"_id": bson.ObjectId(), **bson.decode(one)}) for one in bson_columns.points(batch)]


@pytest.mark.parametrize(("gaps", "by_column"), [(0, True), (1, True), (5, True), (8, False)])
def test_points_of_few_forms_are_read_as_columns(gaps: int, by_column: bool) -> None:
    m = measurement(gaps)
    raw = documents(m, 2_000)
    reader = Documents(Stored(m))
    rows = reader.rows(raw)
    assert isinstance(rows, ByColumn) is by_column  # eight fields that may be lacking make 256 forms
    assert sorted(rows, key=repr) == sorted(reader._one_by_one(raw), key=repr)
