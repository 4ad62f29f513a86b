"""Texts and booleans in every wire format, beside numbers that points may lack."""

from __future__ import annotations

import csv as csv_module
import io
import re
import struct
from dataclasses import replace
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.encode.test_pgcopy import parsed
from tests.examples import examples
from tsbench.encode import bson_columns, csv, line_protocol, mysql_text, pgcopy, pgparams, sql
from tsbench.model import Batch, Field, Kind, Measurement
from tsbench.testing import data
from tsbench.testing.data import START_NS

TEXTS = st.text(alphabet=st.sampled_from([*", =\\\"'#;%$\t\u00e9\u2603\U0001f600Aa0"]), min_size=1, max_size=30)
_LINE_VALUES = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^,"]+)(?:,|$)')


@st.composite
def labelled(draw: st.DrawFn) -> Batch:
    texts = tuple(draw(st.lists(TEXTS, min_size=1, max_size=5, unique=True)))
    fields = draw(
        st.permutations([
            Field("state", Kind.TEXT, texts=texts), Field("open", Kind.BOOL), Field("n", Kind.INT),
            Field("gap", nullable=draw(st.booleans())), Field("note", Kind.TEXT, texts=("null", "x,gap=null")),
        ])
    )  # fmt: skip
    rows, rng = draw(st.integers(1, 40)), np.random.default_rng(draw(st.integers(0, 99)))
    values = {
        one.name: rng.integers(0, len(one.labels) or 10**6, rows)
        if one.kind is not Kind.FLOAT
        else np.where(rng.random(rows) < (0.4 if one.nullable else 0), np.nan, np.round(rng.uniform(-9, 9, rows), 2))
        for one in fields
    }
    shared = data.shared_tags()
    of, own = rng.integers(0, 5, rows).astype(np.int32), draw(st.sampled_from([(), ("path",)]))
    m = Measurement("m", ("host", "region"), tuple(fields), own)
    times = START_NS + rng.integers(0, 10**6, rows) * 1_000_000
    return Batch(m, 0, 0, times, of, data.tags_of(m, shared), values)


def expected(batch: Batch) -> list[list[Any]]:
    def value(field: Field, row: int) -> Any:
        number = batch.fields[field.name][row].item()
        return field.labels[number] if field.labels else None if number != number else number  # noqa: PLR0124 - NaN

    return [[value(field, row) for field in batch.measurement.fields] for row in range(len(batch))]


def read(field: Field, text: str) -> Any:
    """Return what a text of line protocol or CSV means."""
    if field.kind is Kind.TEXT:
        return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
    if field.kind is Kind.BOOL:
        return {"t": True, "true": True, "f": False, "false": False}[text]
    return None if not text else int(text.rstrip("i")) if field.kind is Kind.INT else float(text)


@examples(100)
@given(labelled())
def test_every_format_has_the_texts_and_booleans_that_numbers_stand_for(batch: Batch) -> None:
    fields, wanted = batch.measurement.fields, expected(batch)
    names = [field.name for field in fields]
    first = 1 + len(batch.tags)
    rows = [*csv_module.reader(io.StringIO(bytes(csv.encode(batch)).decode(), newline=""))]
    assert [[*map(read_csv, fields, row[first:])] for row in rows] == wanted
    lines = [dict(_LINE_VALUES.findall(line.split(" ", 1)[1].rsplit(" ", 1)[0]))
             for line in bytes(line_protocol.encode(batch)).decode().split("\n")[:-1]]  # fmt: skip
    assert [[read(field, line.get(field.name, "")) for field in fields] for line in lines] == wanted
    whole = replace(batch, fields={**batch.fields, "gap": np.nan_to_num(batch.fields["gap"])})
    documents = bson.decode_all(bytes(bson_columns.points(whole).data))
    assert [[document[name] for name in names] for document in documents] == expected(whole)
    assert [list(row[2 : 2 + len(fields)]) for row in sql.rows(sql.columns(batch, rows, extra_json=True))] == wanted


def read_csv(field: Field, text: str) -> Any:
    return text if field.kind is Kind.TEXT else read(field, text)


def binary(field: Field, value: bytes | None) -> Any:
    """Return what PostgreSQL makes of a value."""
    if value is None:
        return None
    if field.kind is Kind.TEXT:
        return value.decode()
    if field.kind is Kind.BOOL:
        return value == b"\x01"
    return struct.unpack(">q" if field.kind is Kind.INT else ">d", value)[0]


@examples(100)
@given(labelled(), st.integers(1, 50))
def test_binary_rows_have_them_too_and_are_cut_where_they_end(batch: Batch, points: int) -> None:
    fields, wanted = batch.measurement.fields, expected(batch)
    own = bool(batch.measurement.own_tags)
    streams = [*pgcopy.encode_each(batch, points, extra_json=own)]
    rows = [row for stream, _ in streams for row in parsed(bytes(stream))]
    assert [[*map(binary, fields, row[2 : 2 + len(fields)])] for row in rows] == wanted
    assert sum(count for _, count in streams) == len(batch)
    assert {len(row) for row in rows} == {2 + len(fields) + own}
    assert [[*map(binary, fields, row[2 : 2 + len(fields)])] for row in pgparams.rows(batch)] == wanted


@examples(100)
@given(labelled())
def test_mysql_reads_quotes_and_escapes_as_they_were_meant(batch: Batch) -> None:
    fields, wanted = batch.measurement.fields, expected(batch)

    def meant(field: Field, text: str, *, quoted: bool) -> Any:
        if text in {"NULL", r"\N"} and field.name == "gap":
            return None
        if field.kind is Kind.TEXT:
            plain = re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n"}.get(m[1], m[1]), text)
            return text[1:-1].replace("''", "'") if quoted else plain
        return bool(int(text)) if field.kind is Kind.BOOL else float(text)

    lines = [line.split("\t") for line in bytes(mysql_text.lines(batch).data).decode().split("\n")[:-1]]
    found = [[meant(f, text, quoted=False) for f, text in zip(fields, line[2:], strict=False)] for line in lines]
    assert found == wanted
    values = re.compile(r"'(?:[^']|'')*'|[^,']+")
    rows = [values.findall(row.decode()[1:-1])[2:] for row in mysql_text.value_rows(batch)]
    found = [[meant(f, text, quoted=True) for f, text in zip(fields, row, strict=False)] for row in rows]
    assert found == wanted


def test_a_text_that_ends_a_line_is_refused() -> None:
    m = Measurement("m", (), (Field("a", Kind.TEXT, texts=("x\ny",)),))
    with pytest.raises(ValueError, match="use no line break"):
        line_protocol.encode(Batch(m, 0, 0, np.array([1]), np.zeros(1, np.int32), {}, {"a": np.array([0])}))
