"""Stored points come by column where a driver or a format allows it; whatever is odd is told as row by row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import bson
import duckdb
import numpy as np
import pytest

from tsbench.encode import bson_columns
from tsbench.model import OTHERS, Batch, ByColumn, Field, Kind, Measurement, Stored
from tsbench.targets.duckdb.session import _column_of
from tsbench.targets.mongodb.documents import Documents
from tsbench.targets.sql_session import by_column, stored_rows
from tsbench.testing.data import START_NS, S, shared_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

CPU = Measurement("cpu", ("host", "rack"), (Field("busy"), Field("seen", Kind.INT)))
POINTS = Stored(CPU)
TIME_MS = 1_451_606_400_000


def document(number: int, **changed: Any) -> dict[str, Any]:
    tags = {"host": f"host_{number % 3}", "rack": "r" * (number % 3)}
    content = {"tags": tags, "time": bson.DatetimeMS(TIME_MS + number), "busy": number / 4, "seen": bson.Int64(number)}
    return {"_id": bson.ObjectId(), **content, **changed}


def test_documents_of_one_form_are_read_by_column_as_they_are_one_by_one() -> None:
    raw = [bson.encode(document(number)) for number in range(50)]
    found = Documents(POINTS).rows(raw)
    assert isinstance(found, ByColumn)
    assert [*found] == Documents(POINTS)._one_by_one(raw)


def points_with_gaps(m: Measurement, points: int) -> list[bytes]:
    draw = np.random.default_rng(7)
    columns = {}
    for field in m.fields:
        column = draw.integers(0, 2 if field.labels else 2**40, points)
        columns[field.name] = np.where(draw.random(points) < 0.4, np.nan, column) if field.nullable else column
    series = draw.integers(0, 5, points).astype(np.int32)
    batch = Batch(m, 0, 0, START_NS + np.arange(points) * S, series, shared_tags(), columns)
    return [bson.encode({"_id": bson.ObjectId(), **bson.decode(one)}) for one in bson_columns.points(batch)]


@pytest.mark.parametrize(("gaps", "by_column"), [(0, True), (1, True), (5, True), (8, False)])
def test_documents_of_few_forms_are_read_by_column(gaps: int, by_column: bool) -> None:
    kinds = (Kind.FLOAT, Kind.INT, Kind.BOOL)
    m = Measurement("m", ("host", "region"), tuple(Field(f"f{i}", kinds[i % 3], nullable=i < gaps) for i in range(8)))
    raw = points_with_gaps(m, 2_000)
    reader = Documents(Stored(m))
    rows = reader.rows(raw)
    assert isinstance(rows, ByColumn) is by_column  # eight fields that may be lacking make 256 forms
    assert sorted(rows, key=repr) == sorted(reader._one_by_one(raw), key=repr)


ODD = {
    "another type": document(7, busy=bson.Int64(1)),
    "a field more": document(7, more=1.0),
    "a field less": {name: value for name, value in document(7).items() if name != "seen"},
    "another order": dict(reversed(document(7).items())),
    "a field of another name of the same length": {
        ("bus_" if name == "busy" else name): value for name, value in document(7).items()
    },
    "a tag more": document(7, tags={"host": "host_1", "rack": "r", "more": "x"}),
    "a tag that is a number": document(7, tags={"host": "host_1", "rack": 1.0}),
    "no tags": document(7, tags=None),
    "a text of the size of a number": document(7, busy="abc"),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("place", [0, 3, 9])
def test_an_odd_document_among_others_is_told(what: str, place: int) -> None:
    raw = [bson.encode(document(number)) for number in range(10)]
    raw[place] = bson.encode(ODD[what])
    found, (odd,) = [*Documents(POINTS).rows(raw)], Documents(POINTS)._one_by_one([raw[place]])
    assert sorted(found, key=repr) == sorted(Documents(POINTS)._one_by_one(raw), key=repr)
    assert odd in found
    assert odd not in Documents(POINTS)._one_by_one([bson.encode(document(7))])


def test_a_name_that_comes_twice_is_told() -> None:
    twice = bson.encode({"busy": 1.0})[4:-1]
    one = bson.encode(document(1))
    raw = [(len(one) + len(twice)).to_bytes(4, "little") + one[4:-1] + twice + b"\0"] * 3
    assert "twice" in next(iter(Documents(POINTS).rows(raw)))[-1]


COLUMNS = ("time", "host", "rack", "busy", "seen", OTHERS)
TAGS = (1, "host_1", "r1"), (2, "host_2", "r2")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (TAGS, [(10, "host_2", "r2", 0.5, 1, None), (11, "host_1", "r1", 0.75, 2, None)]),
        (TAGS[:1], [(10, None, None, 0.5, 1, None), (11, "host_1", "r1", 0.75, 2, None)]),
        (
            (*TAGS, (2, "host_9", "r9")),
            [
                (10, "host_2", "r2", 0.5, 1, None),
                (10, "host_9", "r9", 0.5, 1, None),
                (11, "host_1", "r1", 0.75, 2, None),
            ],
        ),
        ((), [(10, None, None, 0.5, 1, None), (11, None, None, 0.75, 2, None)]),
        (
            ((None, "host_2", "r2"), ("2", "host_2", "r2"), TAGS[0]),
            [(10, None, None, 0.5, 1, None), (11, "host_1", "r1", 0.75, 2, None)],
        ),
    ],
    ids=["as written", "a series less", "a number twice", "no series", "no numbers"],
)
def test_rows_are_joined_to_tags_as_by_a_left_join(tags: Sequence[tuple[Any, ...]], expected: list[Any]) -> None:
    answer = by_column(["time", "tags_id", "busy", "seen"], [(10, 2, 0.5, 1), (11, 1, 0.75, 2)])
    found = stored_rows(COLUMNS, *answer, by_column(["id", "host", "rack"], tags))
    assert [*found.records] == expected


def test_a_row_without_the_number_of_a_series_has_no_tags() -> None:
    answer = by_column(["time", "tags_id", "busy", "seen"], [(10, None, 0.5, 1), (11, "1", 0.75, 2)])
    found = stored_rows(COLUMNS, *answer, by_column(["id", "host", "rack"], [(None, "host_2", "r2"), TAGS[0]]))
    assert [*found.records] == [(10, None, None, 0.5, 1, None), (11, None, None, 0.75, 2, None)]


def test_columns_that_others_made_are_told_also_of_the_tags() -> None:
    answer = by_column(["time", "tags_id", "busy", "seen", "more"], [(10, 2, 0.5, 1, None), (11, 1, 0.75, 2, 7)])
    tags = by_column(["id", "host", "rack", "busy"], [(1, "host_1", "r1", 3), (2, "host_2", "r2", None)])
    assert [row[-1] for row in stored_rows(COLUMNS, *answer, tags).records] == [None, '{"busy": 3, "more": 7}']


def test_what_an_array_of_duckdb_cannot_hold_is_kept() -> None:
    text = """SELECT * FROM (VALUES
        (TIMESTAMP '2016-01-01 00:00:00', 1.5::DOUBLE, 7::BIGINT, 'a'),
        (TIMESTAMP 'infinity', 'nan'::DOUBLE, NULL, NULL), (NULL, NULL, 8::BIGINT, 'b')) x(a, b, c, d)"""
    moment, floats, numbers, texts = map(_column_of, duckdb.execute(text).fetchnumpy().values())
    assert moment == [TIME_MS * 1_000_000, (2**63 - 1) * 1_000, None]
    assert (floats[0], math.isnan(floats[1]), floats[2]) == (1.5, True, None)
    assert (numbers, texts) == ([7, None, 8], ["a", None, "b"])
    whole = _column_of(duckdb.execute("SELECT 1.5::DOUBLE AS a").fetchnumpy()["a"])
    assert isinstance(whole, np.ndarray)


def test_numbers_in_columns_of_others_are_told_as_python_has_them() -> None:
    answer = ["time", "tags_id", "busy", "seen", "more"], [[10], [1], [0.5], [1], np.array([7])]
    (row,) = stored_rows(COLUMNS, *answer, by_column(["id", "host", "rack"], TAGS)).records
    assert row == (10, "host_1", "r1", 0.5, 1, '{"more": 7}')
