"""Rows for MySQL, compared with texts that are made value by value."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given

from tests.encode.test_line_protocol import batches
from tests.examples import examples
from tsbench.encode import mysql_text

if TYPE_CHECKING:
    from tsbench.model import Batch


def numeric(batch: Batch) -> Batch:
    """The same rows with times of whole microseconds, and without own tags, which are JSON."""
    time_ns = np.minimum(batch.time_ns, 2**61) // 1_000 * 1_000
    return replace(batch, time_ns=time_ns, measurement=replace(batch.measurement, own_tags=()))


def expected(batch: Batch, i: int) -> list[Any]:
    time = str(np.datetime64(int(batch.time_ns[i]) // 1_000, "us"))
    series = [int(batch.series[i])] if batch.measurement.tags else []
    return [time, *series, *(batch.fields[name][i].item() for name in batch.measurement.field_names)]


def same(text: str, value: Any) -> bool:
    if isinstance(value, float):  # == does not tell -0.0 from 0.0
        return struct.pack("d", float(text)) == struct.pack("d", value)
    return text == str(value)


@examples(100)
@given(batches())
def test_every_form_has_all_values(batch):
    batch = numeric(batch)
    rows = [line.split("\t") for line in bytes(mysql_text.lines(batch).data).decode().split("\n")[:-1]]
    one_by_one = [row.decode() for row in mysql_text.value_rows(batch)]
    assert len(rows) == len(one_by_one) == len(batch)
    for i, row in enumerate(rows):
        wanted = expected(batch, i)
        assert [same(text, value) for text, value in zip(row, wanted, strict=True)] == [True] * len(wanted)
        assert one_by_one[i] == f"('{row[0]}',{','.join(row[1:])})"
    assert list(mysql_text.values(batch)) == [b"," + row.encode() for row in one_by_one]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 20])
def test_a_float_that_is_not_finite_is_refused_wherever_it_is(bad, row):
    from tsbench.encode.number_text import NumberColumn, number_parts

    values = np.full(30, 0.123)
    values[row] = bad
    with pytest.raises(ValueError, match="not finite"):
        number_parts([NumberColumn(b",", np.full(30, 0.456), b""), NumberColumn(b",", values, b"")])
