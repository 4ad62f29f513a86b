"""Files that are read by columns become the same batches, and the same complaints, as files read line by line."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.errors import Broken
from tsbench.model import WriteMode
from tsbench.run import file_tables, peer_files
from tsbench.run.loading import FileSource
from tsbench.run.peer_files import point_lines
from tsbench.targets import registry

if TYPE_CHECKING:
    from tsbench.model import Batch

SCHEMA = next(iter(registry.get("sqlite").schemas.values()))
NUMBERS = ("1", "-0", "0.1", "1e5", "2.2250738585072011e-308", "9007199254740993", "123456789.123456789", "+5", ".5")
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
    lines = point_lines(iter([text]), count, columns=True)
    source = FileSource(lines, SCHEMA, WriteMode.BULK, lambda *_: None)
    series: list[tuple[str, ...]] = []
    try:
        for piece in source:
            batch: Batch = piece.encode.args[0]  # type: ignore[attr-defined]
            series = [*source.tables.series]
            columns = {name: values.tolist() for name, values in batch.fields.items()}
            for i in range(len(batch)):
                fields = {name: repr(values[i]) for name, values in columns.items()}
                found.append((batch.measurement.name, series[batch.series[i]], int(batch.time_ns[i]), fields))
    except Broken as error:
        return found, str(error)
    return found, ""


def both_ways(text: bytes, monkeypatch: pytest.MonkeyPatch, count: int = 1_000) -> str:
    """Assert that both ways store the same and say the same; return what they say."""
    by_columns = stored(text, count)
    with monkeypatch.context() as patched:
        patched.setattr(file_tables, "polars", lambda: None)
        patched.setattr(peer_files, "polars", lambda: None)
        by_lines = stored(text, count)
    assert by_columns[1] == by_lines[1]
    # Within a block, points of one measurement with the same fields come together; their order among others is free.
    assert sorted(by_columns[0], key=repr) == sorted(by_lines[0], key=repr)
    return by_lines[1]


def protocol(cells: list[list[str]], names: tuple[str, ...] = ("a", "b", "mean1")) -> bytes:
    def line(i: int, row: list[str]) -> str:
        return f"cpu,host=h{i % 7} {','.join(f'{n}={c}' for n, c in zip(names, row, strict=True))} {10**18 + i}\n"

    return "".join(line(i, row) for i, row in enumerate(cells)).encode()


def pairs(cells: list[list[str]]) -> bytes:
    lines = "".join(f"tags,host=h{i % 7},os=\ncpu,{10**18 + i},{','.join(row)}\n" for i, row in enumerate(cells))
    return f"tags,host string,os string\ncpu,a,b,mean1\n\n{lines}".encode()


@pytest.mark.parametrize("form", [protocol, pairs])
def test_numbers_are_rounded_as_python_rounds_them(form, monkeypatch):
    drawn = random.Random(7)

    def number() -> str:
        others = drawn.gauss(0, 1e3), drawn.uniform(-1, 1) * 10 ** drawn.randint(-300, 300)
        return drawn.choice([*NUMBERS, *map(repr, others)])

    cells = [[number() for _ in range(3)] for _ in range(3_000)]
    assert both_ways(form(cells), monkeypatch) == ""
    points, _ = stored(form(cells), 1_000)
    assert sorted(points, key=lambda one: one[2])[17][3] == dict(
        zip(("a", "b", "mean1"), map(repr, map(float, cells[17])), strict=True)
    )


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("form", [protocol, pairs])
def test_what_is_no_number_is_complained_of_alike(form, odd, monkeypatch):
    cells = [["1.5", "2", "3"] for _ in range(900)]
    cells[700][1] = odd
    said = both_ways(form(cells), monkeypatch)
    assert bool(said) is not ((odd == "" and form is pairs) or odd == "1_0")


@pytest.mark.parametrize("odd", ODD_INTEGERS)
def test_integers_are_checked_alike(odd, monkeypatch):
    cells = [["1i", f"{i}i", "3.5"] for i in range(900)]
    assert both_ways(protocol(cells), monkeypatch) == ""
    cells[700][1] = odd
    assert both_ways(protocol(cells), monkeypatch)


def test_points_without_some_fields_are_divided_alike(monkeypatch):
    drawn = random.Random(3)
    cells = [[drawn.choice(("", "1.5", "2", "-3e2")) for _ in range(2)] + ["7"] for _ in range(3_000)]
    assert both_ways(pairs(cells), monkeypatch) == ""
    assert "it has no field" in both_ways(pairs([*cells, ["", "", ""]]), monkeypatch)


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


@pytest.mark.parametrize(
    "damage",
    [
        b"cpu,5\n",
        b"tags,host=x\ntags,host=x\n",
        b"mem,5,1,2,3\n",
        b"tags,host=x\ncpu,x,1,2,3\n",
        b"tags,host=x\ncpu,99999999999999999999,1,2,3\n",
        b"tags,host=x\ncpu,5,1,2\n",
    ],
)
def test_a_damaged_pair_is_named_alike(damage, monkeypatch):
    text = pairs([["1", "2", "3"]] * 800)
    assert both_ways(text + damage + text.partition(b"\n\n")[2], monkeypatch)


def test_a_time_that_is_no_number_is_named(monkeypatch):
    text = protocol([["1", "2", "3"]] * 800).replace(b" 1000000000000000700\n", b" soon\n")
    assert "line 701 is no line of points: its time is not a number" in both_ways(text, monkeypatch)


def test_a_tag_that_is_to_be_a_number_and_is_none_is_named_alike(monkeypatch):
    text = pairs([["1", "2", "3"]] * 800).replace(b"host string", b"host float32").replace(b"=h", b"=")
    assert both_ways(text, monkeypatch) == ""
    assert "is to be a number" in both_ways(text + b"tags,host=x\ncpu,5,1,2,3\n", monkeypatch)
