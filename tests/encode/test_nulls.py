"""Points that lack a field, in every wire format but line protocol, whose own test has them too."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import bson
import numpy as np
import pyarrow.parquet
import pytest

from tests.encode.test_pgcopy import parsed
from tsbench.encode import bson_columns, csv, line_protocol, mysql_text, parquet, pgcopy, pgparams, sql
from tsbench.model import Batch, Field, Kind, Measurement
from tsbench.testing import data
from tsbench.testing.data import START_NS

NAN = float("nan")
M = Measurement("m", ("host", "region"), (Field("a", nullable=True), Field("b", nullable=True), Field("c")))
BATCH = Batch(
    M, 0, 0, np.full(3, START_NS), np.array([0, 1, 2], dtype=np.int32), data.shared_tags(),
    {"a": np.array([1.5, NAN, 2.25]), "b": np.array([NAN, 0.5, 7.0]), "c": np.array([1.0, 2.0, 3.125])},
)  # fmt: skip
WHOLE = [(1.5, None, 1.0), (None, 0.5, 2.0), (2.25, 7.0, 3.125)]


def test_sql_parameters_are_none() -> None:
    assert [row[2:] for row in sql.rows(sql.columns(BATCH, [0, 0, 0], extra_json=False))] == WHOLE
    ((rows, nbytes),) = sql.writes(sql.columns(BATCH, [0, 0, 0], extra_json=False), 3)
    assert (len(rows), nbytes) == (3, 8 * 5 * 3)


def test_binary_parameters_and_arrays_are_null() -> None:
    def plain(value: bytes | None) -> float | None:
        return None if value is None else float(struct.unpack(">d", value)[0])

    assert [tuple(map(plain, row[2:])) for row in pgparams.rows(BATCH)] == WHOLE
    a = pgparams.arrays(BATCH)[2]
    assert a is not None
    assert a[20:] == struct.pack(">idiid", 8, 1.5, -1, 8, 2.25)


@pytest.mark.parametrize("points", [1, 2, 3])
def test_rows_of_copy_have_nulls_of_no_bytes_and_are_cut_where_they_end(points: int) -> None:
    found = []
    for stream, count in pgcopy.encode_each(BATCH, points, extra_json=False):
        assert stream.startswith(pgcopy.HEADER)
        at = len(pgcopy.HEADER)
        for _ in range(count):
            assert struct.unpack_from(">hiqii", stream, at)[0] == 5
            at += 22
            values: list[float | None] = []
            for _ in M.fields:
                (length,) = struct.unpack_from(">i", stream, at)
                values.append(None if length < 0 else struct.unpack_from(">d", stream, at + 4)[0])
                at += 4 + max(0, length)
            found.append(tuple(values))
        assert stream[at:] == pgcopy.TRAILER
    assert found == WHOLE


def test_texts_have_nothing_or_the_word_of_the_format() -> None:
    ends = [line.split(b",")[-3:] for line in bytes(csv.encode(BATCH)).splitlines()]
    assert [[float(value) if value else None for value in line] for line in ends] == [[*row] for row in WHOLE]
    words = [row.rstrip(b")").split(b",")[2:] for row in mysql_text.value_rows(BATCH)]
    assert [[None if word == b"NULL" else float(word) for word in row] for row in words] == [[*row] for row in WHOLE]
    lines = [line.split(b"\t")[2:] for line in bytes(mysql_text.lines(BATCH).data).splitlines()]
    assert [[None if word == rb"\N" else float(word) for word in row] for row in lines] == [[*row] for row in WHOLE]


def test_documents_do_not_have_the_field() -> None:
    on, state = Field("on", Kind.BOOL, nullable=True), Field("state", Kind.TEXT, nullable=True, texts=("idle", "it's"))
    batch = replace(
        BATCH,
        measurement=replace(M, fields=(*M.fields, on, state)),
        fields={**BATCH.fields, "on": np.array([NAN, 1.0, 0.0]), "state": np.array([1.0, NAN, NAN])},
    )
    documents = bson.decode_all(bytes(bson_columns.points(batch).data))
    assert [{name: one[name] for name in one if name not in {"time", "tags"}} for one in documents] == [
        {"a": 1.5, "c": 1.0, "state": "it's"}, {"b": 0.5, "c": 2.0, "on": True},
        {"a": 2.25, "b": 7.0, "c": 3.125, "on": False},
    ]  # fmt: skip


def test_a_field_that_may_not_lack_and_a_point_without_fields_are_refused() -> None:
    other = Batch(M, 0, 0, BATCH.time_ns, BATCH.series, BATCH.tags, {**BATCH.fields, "c": np.array([1.0, NAN, 2.0])})
    for encode in (csv.encode, line_protocol.encode, mysql_text.values):
        with pytest.raises(ValueError, match="not finite"):
            encode(other)
    none = Measurement("m", M.tags, M.fields[:2])
    empty = {"a": np.full(3, NAN), "b": np.full(3, NAN)}
    with pytest.raises(ValueError, match="without any field"):
        line_protocol.encode(Batch(none, 0, 0, BATCH.time_ns, BATCH.series, BATCH.tags, empty))


def test_integers_stay_integers_in_every_format() -> None:
    n = Field("n", Kind.INT, nullable=True)
    m = Measurement("m", M.tags, (Field("a", nullable=True), n, replace(n, name="o")))
    largest = float(2**53)
    columns = {
        "a": np.array([1.0, 2.0, NAN]),
        "n": np.array([-largest, NAN, 0.0]),
        "o": np.array([NAN, 100.0, largest]),
    }
    batch = Batch(m, 0, 0, BATCH.time_ns, BATCH.series, BATCH.tags, columns)
    rows = [(1.0, -(2**53), None), (2.0, None, 100), (None, 0, 2**53)]
    assert repr([row[2:] for row in sql.rows(sql.columns(batch, [0, 0, 0], extra_json=False))]) == repr(rows)
    fields = [line.split(b" ")[1] for line in line_protocol.encode_singles(batch)]
    assert fields == [b"a=1.0,n=-9007199254740992i", b"a=2.0,o=100i", b"n=0i,o=9007199254740992i"]
    wanted = [[None if value is None else struct.pack(">q", value) for value in row[1:]] for row in rows]
    assert [[*row[3:]] for row in pgparams.rows(batch)] == wanted
    assert (pgparams.arrays(batch)[3] or b"")[20:] == struct.pack(">iqiiq", 8, -(2**53), -1, 8, 0)
    assert [[*row[3:]] for row in parsed(bytes(pgcopy.encode(batch, extra_json=False)))] == wanted
    assert [line.split(b",")[-3:] for line in bytes(csv.encode(batch)).splitlines()] == [
        [b"1.0", b"-9007199254740992", b""], [b"2.0", b"", b"100"], [b"", b"0", b"9007199254740992"],
    ]  # fmt: skip
    assert [row.rstrip(b")").split(b",")[-2:] for row in mysql_text.value_rows(batch)] == [
        [b"-9007199254740992", b"NULL"], [b"NULL", b"100"], [b"0", b"9007199254740992"],
    ]  # fmt: skip
    documents = bson.decode_all(bytes(bson_columns.points(batch).data))
    assert repr([tuple(one.get(name) for name in m.field_names) for one in documents]) == repr(rows)
    made = pyarrow.parquet.read_table(io.BytesIO(b"".join(parquet.chunks(m, [batch]))))
    assert made.schema.field("n").type == pyarrow.int64()
    assert repr([tuple(row[name] for name in m.field_names) for row in made.to_pylist()]) == repr(rows)
