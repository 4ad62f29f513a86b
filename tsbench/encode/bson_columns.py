"""Encode a batch as BSON documents, column by column, without a Python step per document.

A document is its length, the tags of its series, which are the same in all of its documents, and values of fixed width:
the tags are encoded once per world, the rest is one numpy structured array. Documents stand one after the other, as the
body of an `insert` holds them.

The format: https://bsonspec.org/spec.html
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.encode.number_text import label_codes
from tsbench.encode.sql import Inexact
from tsbench.encode.text_columns import NO_ROWS, Assembled, TextPart, Texts, assembled, joined, texts
from tsbench.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Field

_Tags: TypeAlias = "tuple[tuple[str, Codes], ...]"
NS_PER_MS = 1_000_000
TIME, TAGS = "time", "tags"
"""Names in the documents, beside those of the fields."""
MEASUREMENT, POINT, FIELD, VALUE = "measurement", "point", "field", "value"
"""Names in the documents of single values."""
_DOUBLE, _TEXT, _DOCUMENT, _BOOL, _DATE, _INT64 = b"\x01", b"\x02", b"\x03", b"\x08", b"\x09", b"\x12"
_LENGTH_BYTES, _END = 4, b"\0"


def points(batch: Batch) -> Assembled:
    """Return one document per point: tags (if the measurement has any), time as a date, and every field that it has.

    Errors as in `times_ms`.
    """
    fields = batch.measurement.fields
    if not any(field.labels or (field.nullable and np.isnan(batch.fields[field.name]).any()) for field in fields):
        return _documents(batch, [TextPart(fixed(rows(batch)))], batch.series)
    time = _template((_DATE + _name(TIME),), len(batch), b"")
    time["value0"] = times_ms(batch.time_ns)
    parts = [TextPart(fixed(time)), *(_element(field, batch.fields[field.name]) for field in fields)]
    return _documents(batch, [*parts, TextPart(texts([_END]))], batch.series)


def _element(field: Field, column: NDArray[Any]) -> TextPart:
    """Return the part of a document with a field, which is empty where a point lacks it."""
    if field.labels:
        elements = [
            _text(field.name, label) if isinstance(label, str) else _BOOL + _name(field.name) + bytes((label,))
            for label in field.labels
        ]
        return TextPart(texts([*elements, b""]), label_codes(column, len(elements)))
    table = _template((_KINDS[field.kind] + _name(field.name),), len(column), b"")
    if not field.nullable:
        table["value0"] = _bits(column, field.kind)
        return TextPart(fixed(table))
    nulls = np.isnan(column)
    table["value0"] = _bits(np.where(nulls, 0, column), field.kind)
    part = fixed(table)
    return TextPart(Texts(part.padded, np.where(nulls, 0, part.lengths)))


def values(batch: Batch) -> Assembled:
    """Return one document per value: tags (if any), measurement, time, point, field and value; a point's in a row.

    `point` is a hash of all values of the point: the values of two points of a series at the same time belong together
    by it, however a server orders them. Points with the same hash have the same values.

    The `ends` are those of points: a point's documents, as many as the measurement has fields, are never separated.
    Errors as in `times_ms`.
    """
    fields = batch.measurement.fields
    count = len(batch) * len(fields)
    columns = [_bits(batch.fields[field.name], field.kind) for field in fields]
    before = _text(MEASUREMENT, batch.measurement.name) + _DATE + _name(TIME)
    middle = _template((before, _INT64 + _name(POINT)), count, b"")
    middle["value0"] = np.repeat(times_ms(batch.time_ns), len(fields))
    middle["value1"] = np.repeat(_hashes(columns), len(fields))
    names = texts([_text(FIELD, field.name) + _KINDS[field.kind] + _name(VALUE) for field in fields])
    numbers = _template((b"",), count)
    numbers["value0"] = np.column_stack(columns).ravel()
    parts = [
        TextPart(fixed(middle)),
        TextPart(names, np.tile(np.arange(len(fields)), len(batch))),
        TextPart(fixed(numbers)),
    ]
    documents = _documents(batch, parts, np.repeat(batch.series, len(fields)))
    return Assembled(documents.data, documents.ends[len(fields) - 1 :: len(fields)])


def times_ms(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert nanoseconds to milliseconds since 1970.

    Raises
    ------
    tsbench.encode.sql.Inexact
        If a time is not a whole number of milliseconds, so that it could not be stored exactly.
    """
    whole = time_ns // NS_PER_MS
    if not np.array_equal(whole * NS_PER_MS, time_ns):
        raise Inexact("times are stored in milliseconds, but the batch has one with a fraction of a millisecond")
    return whole


def rows(batch: Batch) -> NDArray[np.void]:
    """Return the fixed part of every point's document: time, fields, and the document's end."""
    fields = batch.measurement.fields
    table = _template((_DATE + _name(TIME), *(_KINDS[f.kind] + _name(f.name) for f in fields)), len(batch))
    table["value0"] = times_ms(batch.time_ns)
    for number, field in enumerate(fields, start=1):
        table[f"value{number}"] = _bits(batch.fields[field.name], field.kind)
    return table


def _documents(batch: Batch, parts: list[TextPart], series: NDArray[np.int32]) -> Assembled:
    """Return documents of these parts, each after its length and the tags of its series."""
    count = len(series)
    if not count:
        return NO_ROWS
    m = batch.measurement
    heads = np.zeros(count, _TAGGED if m.tags else _UNTAGGED)
    parts = [TextPart(fixed(heads)), *parts]
    if m.tags:
        tags = TextPart(tag_elements(batch), series)
        parts.insert(1, tags)
        heads["name"] = np.void(_DOCUMENT + _name(TAGS))
        heads["tags"] = _LENGTH_BYTES + tags.block(slice(0, count))[1]
    for part in parts:
        heads["total"] += part.block(slice(0, count))[1].astype("<i4")
    return assembled(parts, count)


def _template(names: tuple[bytes, ...], count: int, end: bytes = _END) -> NDArray[np.void]:
    """Return writable rows of `value0`, `value1`, ..., eight bytes each, between these names and an end."""
    return np.frombuffer(bytearray(_row(names, end) * count), _row_type(names, end))


@lru_cache(maxsize=64)
def _row(names: tuple[bytes, ...], end: bytes) -> bytes:
    return b"".join(name + bytes(8) for name in names) + end


@lru_cache(maxsize=64)
def _row_type(names: tuple[bytes, ...], end: bytes) -> np.dtype[Any]:
    members: list[tuple[str, str]] = []
    for number, name in enumerate(names):
        members += [(f"name{number}", f"V{len(name)}")] if name else []
        members.append((f"value{number}", "<i8"))
    return np.dtype([*members, *([("end", f"V{len(end)}")] if end else [])])


def _bits(column: NDArray[Any], kind: Kind) -> NDArray[np.int64]:
    """Return the eight bytes of every number as an integer."""
    if kind is Kind.INT:
        return column.astype("<i8", copy=False)
    return column.astype("<f8", copy=False).view("<i8")


def _hashes(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return a number for every row that depends on all of its values, and on their order."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes = (hashes ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two inputs meet
        hashes ^= hashes >> np.uint64(29)
    return hashes.view(np.int64)


def fixed(table: NDArray[np.void]) -> Texts:
    """Return rows of fixed width as a table of texts."""
    width = table.dtype.itemsize
    return Texts(table.view(f"V{width}"), np.broadcast_to(np.int32(width), len(table)))


def tag_elements(batch: Batch) -> Texts:
    """Return the tags of every series of the world, but for empty ones beside the key, and their document's end."""
    m = batch.measurement
    return _elements(tuple((tag, batch.tags[tag]) for tag in (*m.tags, *m.own_tags)), _END)


def text_elements(name: str, codes: Codes) -> Texts:
    """Return a text of every series of the world as an element of that name."""
    return _elements(((name, codes),), b"")


@lru_cache(maxsize=64)
def _elements(tags: _Tags, end: bytes) -> Texts:
    # Codes compare by identity, so a world's tags are turned into text once, not for every batch.
    columns = [
        ([_text(tag, value) if value or not number else b"" for value in codes.values], codes.codes)
        for number, (tag, codes) in enumerate(tags)
    ]
    return joined([*columns, ([end], np.zeros(len(columns[0][1]), np.int32))])


def _text(name: str, value: str) -> bytes:
    content = value.encode()
    return b"".join((_TEXT, _name(name), (len(content) + 1).to_bytes(4, "little"), content, _END))


def _name(name: str) -> bytes:
    if "\0" in name:
        raise ValueError(f"BSON cannot express the name {name!r}: it holds a zero byte")
    return name.encode() + _END


_KINDS = {Kind.FLOAT: _DOUBLE, Kind.INT: _INT64}
_UNTAGGED = np.dtype([("total", "<i4")])
_TAGGED = np.dtype([("total", "<i4"), ("name", f"V{2 + len(TAGS)}"), ("tags", "<i4")])
