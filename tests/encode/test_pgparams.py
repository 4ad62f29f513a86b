from __future__ import annotations

import struct

import numpy as np
import pytest

from tsbench.encode import pgparams, sql
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, START_NS, S

YEAR_2000_S = 946_684_800


def test_a_point_is_its_values_in_binary_form_in_the_columns_order() -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1_000], series=[4, 2])
    for i, row in enumerate(map(_whole, pgparams.rows(batch))):
        time_us, series, *fields = (
            struct.unpack(form, value)[0] for form, value in zip((">q", ">i", ">d", ">d", ">q"), row, strict=True)
        )
        assert time_us * 1_000 + YEAR_2000_S * S == batch.time_ns[i]
        assert series == batch.series[i]
        assert fields == [float(batch.fields[name][i]) for name in CPU.field_names]


def test_own_tags_are_the_last_value_and_a_measurement_without_tags_has_no_series() -> None:
    disk = data.batch(DISK, data.shared_tags(), time_ns=[START_NS, START_NS], series=[3, 1])
    texts = sql.own_tags_json(disk)
    assert [row[-1] for row in pgparams.rows(disk)] == [b"\x01" + texts[i].encode() for i in (3, 1)]
    (row,) = pgparams.rows(data.batch(LAG, {}, time_ns=[START_NS]))
    assert [len(value) for value in _whole(row)] == [8, 8, 8]


def test_arrays_hold_the_same_values_as_rows() -> None:
    for measurement in (CPU, DISK, LAG):
        tags = data.shared_tags() if measurement.tags else {}
        batch = data.batch(measurement, tags, time_ns=[START_NS + i * S for i in range(9)])
        found = [_elements(array) for array in _whole(pgparams.arrays(batch))]
        assert list(zip(*found, strict=True)) == list(pgparams.rows(batch))


def _whole(row: pgparams.Parameters) -> list[bytes]:
    """Return the values, none of which is NULL."""
    return [value for value in row if value is not None]


def _elements(array: bytes) -> list[bytes]:
    """The elements of an array in binary form: dimensions, NULLs, type, length and first number come before them."""
    dimensions, nulls, _, length, first = struct.unpack_from(">iiIii", array)
    assert (dimensions, nulls, first) == (1, 0, 1)
    position, found = 20, []
    for _ in range(length):
        (size,) = struct.unpack_from(">i", array, position)
        found.append(array[position + 4 : position + 4 + size])
        position += 4 + size
    assert position == len(array)
    return found


def test_a_time_with_a_fraction_of_a_microsecond_is_refused_at_once() -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1])
    for encode in (pgparams.rows, pgparams.arrays):
        with pytest.raises(sql.Inexact):
            encode(batch)


def test_encoding_leaves_the_batch_as_it_is() -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS])
    before = batch.time_ns.copy()
    list(pgparams.rows(batch))
    pgparams.arrays(batch)
    assert np.array_equal(batch.time_ns, before)
