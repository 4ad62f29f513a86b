"""Gob: what is written is read again, TSBS's own files byte for byte, and no damaged file does more than be refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.encode import gob
from tsbench.targets.registry import get

DATA = Path(__file__).parents[1] / "cli" / "data"
"""Three queries of `tsbs_generate_queries --use-case=cpu-only --query-type=single-groupby-1-1-1 --scale=8 --seed=3`."""
FILES = {"influxdb1": DATA / "tsbs-queries.influx", "postgres": DATA / "tsbs-queries.timescaledb"}
FIELDS = {"Label": gob.BYTES, "Count": gob.INT, "Text": gob.TEXT}


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3)), max_size=5),
    st.integers(1, 400),
)
def test_structs_are_read_as_they_were_written(rows: list[tuple[bytes, int, bytes]], size: int) -> None:
    content = gob.head("Query", FIELDS) + b"".join(gob.message(row) for row in rows)
    expected = [("Query", {name: v for name, v in zip(FIELDS, row, strict=True) if v}) for row in rows]
    assert list(gob.structs(iter(pieces(content, size)))) == expected


@pytest.mark.parametrize("target", FILES)
def test_tsbs_files_are_written_again_byte_for_byte(target: str) -> None:
    content, of = FILES[target].read_bytes(), get(target).peer_queries
    assert of is not None
    found = list(gob.structs(iter([content])))
    assert [(struct, len(fields[of.text]) > 90) for struct, fields in found] == [(of.struct, True)] * 3  # type: ignore[arg-type]
    again = gob.head(of.struct, of.fields)
    assert again + b"".join(gob.message(row.get(name, b"") for name in of.fields) for _, row in found) == content


@given(st.data())
def test_a_damaged_file_is_refused_or_read(data: st.DataObject) -> None:
    content = bytearray(FILES["postgres"].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    with suppress(ValueError):
        for _, fields in gob.structs(iter([bytes(content)])):
            assert all(isinstance(value, bytes | int) for value in fields.values())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xf8\xff\xff\xff\xff\xff\xff\xff\xff", "a message of 18,446,744,073,709,551,615 bytes"),
        (b"\x05\x81", "cut"),
        (gob.message([b"x"]), "which nothing before it defines"),
        (gob.head("Q", {"Inner": 65}), "neither bytes nor text nor a number"),
        (gob.head("Q", dict.fromkeys(map(str, range(100)), gob.INT)), "a type of 100 fields"),
        (gob.head("Q", FIELDS) + b"\x05\xff\x80\x01\x7f\x00", "behind the end"),
        (gob.head("Q", FIELDS) + b"\x05\xff\x80\x09\x01\x00", "a field that its type does not have"),
        (gob.head("Q", FIELDS)[:-3], "cut"),
    ],
)
def test_a_hostile_stream_is_named(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(gob.structs(iter([content])))
