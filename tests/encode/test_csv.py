"""CSV, read back by the standard library."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from tests.encode.test_line_protocol import batches
from tests.examples import examples
from tests.workload.test_world import CASES
from tsbench.encode import csv as encoder
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World

if TYPE_CHECKING:
    from tsbench.model import Batch


def check(batch: Batch) -> None:
    data = encoder.header(batch.measurement) + encoder.encode(batch)
    names, *records = csv.reader(io.StringIO(data.decode(), newline=""))
    measurement = batch.measurement
    assert names == ["time", *measurement.tags, *measurement.own_tags, *measurement.field_names]
    assert len(records) == len(batch)
    for i, record in enumerate(records):
        series = int(batch.series[i])
        tags = [batch.tags[name][series] for name in (*measurement.tags, *measurement.own_tags)]
        fields = [batch.fields[name][i].item() for name in measurement.field_names]
        texts = record[1 + len(tags) :]
        assert record[: 1 + len(tags)] == [str(batch.time_ns[i]), *tags]
        assert [type(value)(text) for value, text in zip(fields, texts, strict=True)] == fields


@examples(100)
@given(batches())
def test_rows_read_back_as_the_points_that_were_written(batch):
    check(batch)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_rows_of_every_use_case_read_back(name):
    world = World(built_in_spec(name, 1 if name == "replication" else 3, 1, 10**18, 10**10))
    for batch in world.batches(0, points=120, last_tick=40):
        check(batch)
