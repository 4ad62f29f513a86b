"""Line protocol, read back by a parser that follows the specification and shares no code with the encoder."""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.workload.test_world import CASES
from tsbench.encode import line_protocol
from tsbench.model import Batch, Codes, Field, Kind, Measurement
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World

# Letters that the protocol treats specially, and some that it does not.
NASTY = st.text(alphabet=st.sampled_from(list(", =\\\"'#iaé√😀0")), min_size=1, max_size=40).filter(
    lambda text: not text.endswith("\\")
)
INTS = st.integers(-(2**63), 2**63 - 1)
Point: TypeAlias = tuple[str, dict[str, str], dict[str, float], int]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def split(text: str, separator: str) -> list[str]:
    """Split at separators that no backslash escapes."""
    parts: list[str] = []
    current, i = "", 0
    while i < len(text):
        if text[i] == "\\" and i + 1 < len(text) and text[i + 1] in ", =":
            current += text[i : i + 2]
            i += 2
        elif text[i] == separator:
            parts.append(current)
            current = ""
            i += 1
        else:
            current += text[i]
            i += 1
    return [*parts, current]


def unescaped(text: str, special: str) -> str:
    out, i = "", 0
    while i < len(text):
        if text[i] == "\\" and i + 1 < len(text) and text[i + 1] in special:
            i += 1
        out += text[i]
        i += 1
    return out


def value(text: str) -> float:
    return int(text[:-1]) if text.endswith("i") else float(text)


def parse(line: str) -> Point:
    head, fields, time_ns = split(line, " ")
    name, *tags = split(head, ",")
    pairs = [split(tag, "=") for tag in tags]
    columns = [split(field, "=") for field in split(fields, ",")]
    return (
        unescaped(name, ", "),
        {unescaped(k, ", ="): unescaped(v, ", =") for k, v in pairs},
        {unescaped(k, ", ="): value(v) for k, v in columns},
        int(time_ns),
    )


def expected(batch: Batch, i: int) -> Point:
    series = int(batch.series[i])
    tags = {name: codes[series] for name, codes in batch.tags.items()}
    return (
        batch.measurement.name,
        {name: text for name, text in tags.items() if text},
        {name: number for name, column in batch.fields.items() if not math.isnan(number := column[i].item())},
        int(batch.time_ns[i]),
    )


def check(batch: Batch) -> None:
    data = bytes(line_protocol.encode(batch))
    found = data.decode().split("\n")
    assert found.pop() == ""
    assert len(found) == len(batch)
    for i, line in enumerate(found):
        parsed, wanted = parse(line), expected(batch, i)
        assert parsed == wanted
        for name, number in wanted[2].items():
            if isinstance(number, float):  # == does not tell -0.0 from 0.0
                assert struct.pack("d", number) == struct.pack("d", parsed[2][name])
    assert [single.decode() for single in line_protocol.encode_singles(batch)] == found


@st.composite
def batches(draw):
    names = draw(st.lists(NASTY, min_size=6, max_size=6, unique=True))
    shared, own = names[: draw(st.integers(0, 2))], names[2 : 2 + draw(st.integers(0, 2))]
    kinds = draw(st.lists(st.sampled_from([Kind.FLOAT, Kind.INT]), min_size=1, max_size=4))
    columns = draw(st.lists(NASTY, min_size=len(kinds), max_size=len(kinds), unique=True))
    units = draw(st.lists(st.sampled_from(["", "%"]), min_size=len(kinds), max_size=len(kinds)))
    fields = tuple(Field(*field) for field in zip(columns, kinds, units, strict=True))
    rows, scale = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tags = {}
    for name in (*shared, *own):
        values = tuple(draw(st.lists(NASTY | st.just(""), min_size=1, max_size=3)))
        tags[name] = Codes(rng.integers(0, len(values), scale).astype(np.int32), values)
    limit = draw(st.sampled_from([9, 100, 255, 1_023, 9_999, 10_000, 99_999_999, 10**8, 10**12, 2**62]))
    data = {}
    for field in fields:
        if field.kind is Kind.INT:
            low = draw(st.sampled_from([0, 0, -limit, limit - 1]))
            column = rng.integers(low, limit, rows, endpoint=True)
        else:
            column = np.round(rng.uniform(draw(st.sampled_from([0, -limit])), limit, rows), draw(st.integers(0, 17)))
        picked = draw(st.lists(INTS if field.kind is Kind.INT else FLOATS, max_size=3))
        column[: len(picked)] = picked[:rows]
        data[field.name] = column
    time_ns = np.sort(rng.choice(draw(st.sampled_from([3, 10**18])) + rng.integers(0, 10**17, 5), rows))
    return Batch(
        Measurement(draw(NASTY), tuple(shared), fields, tuple(own)),
        0,
        0,
        time_ns.astype(np.int64),
        rng.integers(0, scale, rows).astype(np.int32),
        tags,
        data,
    )


@examples(50)
@given(batches())
def test_lines_read_back_as_the_points_that_were_written(batch):
    check(batch)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("form", ["peer", "bounded"])
def test_the_lines_of_every_use_case_read_back(name, form):
    world = World(built_in_spec(name, 1 if name == "replication" else 3, 1, 10**18, 10**10, form=form))
    for batch in world.batches(0, points=120, last_tick=70):
        check(batch)


def test_lines_do_not_depend_on_the_size_of_batches():
    world = World(built_in_spec("cpu-only", 9, 1, 10**18, 10**10))
    whole, parts = (
        b"".join(map(line_protocol.encode, world.batches(0, points=points, last_tick=3_000)))
        for points in (27_000, 1_001)
    )
    assert whole == parts


def tiny(tag: str = "x", value: float = 1.0) -> Batch:
    measurement = Measurement("m", ("t",), (Field("f"),))
    tags = {"t": Codes(np.zeros(1, np.int32), (tag,))}
    return Batch(measurement, 0, 0, np.array([5]), np.zeros(1, np.int32), tags, {"f": np.array([value])})


def test_a_line_looks_like_this():
    assert bytes(line_protocol.encode(tiny("a b,c=d", 0.25))) == b"m,t=a\\ b\\,c\\=d f=0.25 5\n"


def test_a_tag_without_text_is_left_out():
    assert bytes(line_protocol.encode(tiny(""))) == b"m f=1 5\n"


@pytest.mark.parametrize("text", ["two\nlines", "ends with \\"])
def test_text_that_the_protocol_cannot_hold_is_refused(text):
    with pytest.raises(ValueError, match="cannot express"):
        line_protocol.encode(tiny(text))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_float_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="not finite"):
        line_protocol.encode(tiny(value=value))


def test_no_points_are_no_lines():
    world = World(built_in_spec("cpu-only", 3, 1, 10**18, 10**10))
    (batch,) = world.batches(0, points=100, last_tick=1)
    empty = batch.rows(0, 0)
    assert bytes(line_protocol.encode(empty)) == b""
    assert line_protocol.encode_singles(empty) == []
