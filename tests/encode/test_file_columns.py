"""Files that are read by columns become the same batches, and the same complaints, as files read line by line."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.encode import file_columns, sql
from tsbench.encode.file_columns import Points, outline, read_points
from tsbench.encode.point_files import Lines
from tsbench.errors import Broken
from tsbench.model import Kind, WriteMode
from tsbench.run.file_tables import Tables
from tsbench.run.loading import FileSource
from tsbench.targets import registry

if TYPE_CHECKING:
    from tsbench.model import Batch

SCHEMA = next(iter(registry.get("sqlite").schemas.values()))
NUMBERS = ("1", "-0", "0.1", "1e5", "2.2250738585072011e-308", "9007199254740993", "123456789.123456789", ".5")
ODD = (
    "",
    "x",
    "nan",
    "inf",
    "1e999",
    "1_0",
    "0x10",
    "1e",
    "--1",
    "5i",
    "1,2",
    "5 6",
    "\u00e4",
    "\r",
    '"a"',
    "=",
    "True",
)
ODD_INTEGERS = ("", "1", "1.5i", "i", "99999999999999999999i", "1ii", "-i", "1,2i")


def stored(text: bytes, count: int) -> tuple[list[Any], str]:
    """Return all points with measurement, series, time and fields in the order they are stored, and the complaint."""
    found: list[Any] = []
    lines = read_points(iter([text]), count, columns=True)
    tables = Tables(SCHEMA.nulls)
    source = FileSource(lines, SCHEMA, WriteMode.BULK, 250, lambda *_: None, tables)
    series: list[tuple[str, ...]] = []
    try:
        for piece in source:
            batch: Batch = piece.encode.args[0]  # type: ignore[attr-defined]
            series = [*tables.series]
            columns = sql.columns(batch, batch.time_ns.tolist(), extra_json=False)
            for time_ns, number, *values in zip(*columns, strict=True):
                pairs = zip(batch.measurement.field_names, values, strict=True)
                fields = {name: repr(value) for name, value in pairs if value is not None}
                found.append((batch.measurement.name, series[number], time_ns, fields))
    except Broken as error:
        return found, str(error)
    return found, ""


def both_ways(text: bytes, monkeypatch: pytest.MonkeyPatch, count: int = 1_000) -> str:
    """Assert that both ways store the same and say the same; return what they say."""
    by_columns = stored(text, count)
    if not by_columns[1]:
        assert all(isinstance(one, Points) for one in read_points(iter([text]), count, columns=True))
    with monkeypatch.context() as patched:
        patched.setattr(file_columns, "of_lines", lambda _: None)
        by_lines = stored(text, count)
    assert by_columns[1] == by_lines[1]
    # Within a block, points of one measurement with the same fields come together; their order among others is free.
    assert sorted(by_columns[0], key=repr) == sorted(by_lines[0], key=repr)
    return by_lines[1]


def protocol(cells: list[list[str]], names: tuple[str, ...] = ("a", "b", "mean1")) -> bytes:
    def line(i: int, row: list[str]) -> str:
        return f"cpu,host=h{i % 7} {','.join(f'{n}={c}' for n, c in zip(names, row, strict=True))} {10**18 + i}\n"

    return "".join(line(i, row) for i, row in enumerate(cells)).encode()


def test_numbers_are_rounded_as_python_rounds_them(monkeypatch):
    drawn = random.Random(7)

    def number() -> str:
        others = drawn.gauss(0, 1e3), drawn.uniform(-1, 1) * 10 ** drawn.randint(-300, 300)
        return drawn.choice([*NUMBERS, *map(repr, others)])

    cells = [[number() for _ in range(3)] for _ in range(3_000)]
    assert both_ways(protocol(cells), monkeypatch) == ""
    points, _ = stored(protocol(cells), 1_000)
    assert sorted(points, key=lambda one: one[2])[17][3] == dict(
        zip(("a", "b", "mean1"), map(repr, map(float, cells[17])), strict=True)
    )


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_number_is_complained_of_alike(odd, monkeypatch):
    cells = [["1.5", "2", "3"] for _ in range(900)]
    cells[700][1] = odd
    said = both_ways(protocol(cells), monkeypatch)
    assert said


@pytest.mark.parametrize("odd", ODD_INTEGERS)
def test_integers_are_checked_alike(odd, monkeypatch):
    cells = [["1i", f"{i}i", "3.5"] for i in range(900)]
    assert both_ways(protocol(cells), monkeypatch) == ""
    cells[700][1] = odd
    assert both_ways(protocol(cells), monkeypatch)


def test_lines_without_some_fields_are_read_alike(monkeypatch):
    drawn = random.Random(5)
    names = ("a", "nominal_fuel_consumption", "status", "a_name_of_17_byte")
    lines = []
    for i in range(2_000):
        pairs = [f"{name}={drawn.choice(('1', '2.5', '-7'))}" for name in names if drawn.random() < 0.8]
        counted = [f"count={i}i"] if drawn.random() < 0.9 or not pairs else []
        lines.append(f"{drawn.choice(('m', 'n,h=1', 'm,h=2'))} {','.join(pairs + counted)} {10**18 + i}\n")
    lines[0] = "m a=1,nominal_fuel_consumption=2,status=3,a_name_of_17_byte=4,count=5i 1\n"
    assert both_ways("".join(lines).encode(), monkeypatch, 500) == ""


def pieces(text: bytes, target: str, layout: str = "") -> list[Batch]:
    schemas = registry.get(target).schemas
    schema = schemas[layout or next(iter(schemas))]
    points, tables = read_points(iter([text]), 1_000, columns=True), Tables(schema.nulls)
    source = FileSource(points, schema, WriteMode.BULK, 400, lambda *_: None, tables)
    return [piece.encode.args[0] for piece in source]  # type: ignore[attr-defined]


def test_points_that_lack_a_field_stay_with_the_others_where_a_table_has_null():
    lines = [f"m,h=1 a=1.5,b={i}i,c=2 {10**18 + i}\n" for i in range(600)]
    lines[100], lines[200] = f"m,h=1 a=1.5,b=100i {10**18 + 100}\n", f"m,h=1 a=1.5,c=2 {10**18 + 200}\n"
    text = "".join(lines).encode()
    first, second = pieces(text, "sqlite")
    assert (len(first), len(second)) == (400, 200), "of at most a batch each"
    assert first.time_ns.tolist() == [10**18 + i for i in range(400)], "in the order of the file"
    assert np.flatnonzero(np.isnan(first.fields["c"])).tolist() == [100]
    assert np.flatnonzero(np.isnan(first.fields["b"])).tolist() == [200]
    assert [field.kind for field in first.measurement.fields] == [Kind.FLOAT, Kind.INT, Kind.FLOAT]
    assert [len(one) for one in pieces(text, "mongodb")] == [400, 200]
    apart = pieces(text, "mongodb", "per-value")  # which has a document for each field
    assert sorted((len(one), len(one.fields)) for one in apart) == [(1, 2), (1, 2), (198, 3), (400, 3)]
    for one in apart:
        assert "b" not in one.fields or one.fields["b"].dtype == np.int64


def test_integers_that_no_float_has_stay_exact(monkeypatch):
    big = 2**53 + 1
    lines = [f"m,h=1 a=1,b={big + i}i {10**18 + i}\n" for i in range(300)]
    assert both_ways("".join(lines).encode(), monkeypatch) == ""
    lines[7] = f"m,h=1 a=1 {10**18 + 7}\n"
    first, *_ = pieces("".join(lines).encode(), "postgres")
    assert first.fields["b"].tolist()[:3] == [big, big + 1, big + 2]


@pytest.mark.parametrize(
    "time_ns", ["1", "-1", "0", "922337203685477580", "9223372036854775806", "-9223372036854775806"]
)
def test_times_are_read_alike_at_their_limits(time_ns, monkeypatch):
    assert (
        both_ways(
            f"m,host=a value=1 5\nm,host=a value=2 {time_ns}\nm,host=a value=2 5000000000\n".encode(), monkeypatch
        )
        == ""
    )
    more = f"m,host=a value=1 5\nm,host=a value=2 {time_ns}0000000000000000000\n".encode()
    assert bool(both_ways(more, monkeypatch)) is (time_ns != "0")


def test_the_measurements_of_lines_are_found_however_many_there_are():
    lines = [b"measurement_%d,host=h value=1 %d\n" % (i % 90, 10**18 + i) for i in range(500)]
    found = outline(Lines(b"".join(lines), 500, 1)).names()
    assert found == {b"measurement_%d" % i: i for i in range(90)}


def test_a_tag_without_a_text_is_named(monkeypatch):
    text = protocol([["1", "2", "3"]] * 300).replace(b"host=h3", b"host3", 1)
    assert "line 4 is refused" in both_ways(text, monkeypatch)


@pytest.mark.parametrize(
    "change", [(("b", "a", "mean1"), ""), (("a", "b", "mean2"), "fixed"), (("a", "b", "ma1en"), "fixed")]
)
def test_a_line_with_other_names_is_not_taken_for_the_first_ones(change, monkeypatch):
    names, complaint = change
    first, rest = protocol([["1", "2", "3"]] * 600), protocol([["1", "2", "3"]] * 600, names)
    said = both_ways(first + rest, monkeypatch, 300)
    assert complaint in said
    assert bool(said) is bool(complaint)
    swapped = protocol([["1", "2", "3"]] * 400) + protocol([["9", "8", "7"]] * 400, names)
    both_ways(swapped, monkeypatch)


def test_a_time_that_is_no_number_is_named(monkeypatch):
    text = protocol([["1", "2", "3"]] * 800).replace(b" 1000000000000000700\n", b" soon\n")
    assert "line 701 is refused: its time is not a number" in both_ways(text, monkeypatch)
