from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.encode import pgcopy, sql
from tsbench.model import Kind
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, START_NS, WIDE, S

if TYPE_CHECKING:
    from tsbench.model import Measurement

_2000 = datetime(2000, 1, 1, tzinfo=UTC)


def parsed(stream: bytes) -> list[list[bytes | None]]:
    """The fields of a COPY stream, by the book: no numpy, no fixed width."""
    assert stream.startswith(pgcopy.HEADER)
    position, found = len(pgcopy.HEADER), []
    while (count := struct.unpack_from("!h", stream, position)[0]) != -1:
        position += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from("!i", stream, position)
            position += 4
            row.append(None if length == -1 else stream[position : position + length])
            position += max(0, length)
        found.append(row)
    assert stream[position:] == pgcopy.TRAILER
    return found


@pytest.mark.parametrize("measurement", [CPU, DISK, LAG, WIDE], ids=lambda m: m.name)
@pytest.mark.parametrize("extra_json", [True, False], ids=["json", "no json"])
@examples(20)
@given(points=st.integers(0, 50), seed=st.integers(0, 99))
def test_the_stream_has_the_batchs_values(measurement: Measurement, extra_json: bool, points: int, seed: int) -> None:
    shared = data.shared_tags()
    draw = np.random.default_rng(seed)
    batch = data.batch(
        measurement, shared, time_ns=(START_NS + draw.integers(0, 10**9, points) * 1_000).tolist(),
        series=draw.integers(0, 5 if measurement.tags else 1, points).tolist(), seed=seed,
    )  # fmt: skip
    rows = parsed(bytes(pgcopy.encode(batch, extra_json=extra_json)))
    assert len(rows) == points
    for i, row in enumerate(rows):
        rest: list[Any] = list(row)
        moment = _2000 + timedelta(microseconds=struct.unpack("!q", rest.pop(0))[0])
        assert moment == sql.ceil_datetime(int(batch.time_ns[i]))
        if measurement.tags:
            assert struct.unpack("!i", rest.pop(0)) == (batch.series[i],)
        for field in measurement.fields:
            form = "!q" if field.kind is Kind.INT else "!d"
            assert struct.unpack(form, rest.pop(0)) == (batch.fields[field.name][i],)
        if extra_json:
            own = rest.pop(0)
            if measurement.own_tags:
                assert own[0] == 1
                assert json.loads(own[1:]) == {t: batch.tags[t][batch.series[i]] for t in measurement.own_tags}
            else:
                assert own is None
        assert not rest


def test_a_time_between_two_microseconds_is_refused() -> None:
    with pytest.raises(sql.Inexact):
        pgcopy.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1]), extra_json=True)


def test_encoding_again_does_not_change_what_was_encoded() -> None:
    one, two = (data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i], seed=i) for i in (0, 1_000))
    first = pgcopy.encode(one, extra_json=True)
    kept = bytes(bytearray(first))
    pgcopy.encode(two, extra_json=True)
    assert first == kept == pgcopy.encode(one, extra_json=True)


def test_own_tags_of_two_worlds_are_not_mixed_up() -> None:
    few, many = data.shared_tags(2), data.shared_tags(4)
    for shared in (few, many, few):
        batch = data.batch(DISK, shared, time_ns=[START_NS], series=[1])
        assert len(sql.own_tags_json(batch)) == len(shared["host"])


@pytest.mark.postgres
def test_postgresql_reads_the_stream_as_it_was_meant(postgres_endpoint: str) -> None:
    times = [START_NS - 20 * 365 * 86_400 * S, START_NS, START_NS + 123_456_000]
    batch = data.batch(DISK, data.shared_tags(), time_ns=times, series=[0, 3, 4])
    with psycopg.connect(postgres_endpoint) as connection:
        connection.execute("CREATE TABLE t (time timestamptz, tags_id int, free int8, own jsonb)")
        with connection.cursor().copy("COPY t FROM STDIN (FORMAT binary)") as copy:
            copy.write(pgcopy.encode(batch, extra_json=True))
        found = connection.execute("SELECT * FROM t ORDER BY time").fetchall()
    for i, (time, series, free, own) in enumerate(found):
        assert (time, series, free) == (sql.ceil_datetime(times[i]), batch.series[i], batch.fields["free"][i])
        assert own == {tag: batch.tags[tag][series] for tag in ("path", "fs")}
