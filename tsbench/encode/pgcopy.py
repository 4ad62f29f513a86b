"""Encode a batch as PostgreSQL's binary COPY stream, column by column in one numpy structured array.

Every field of a row is an int32 length followed by its bytes, big-endian, so rows of fixed width differ only in their
values: a template row is repeated and the columns are stored into it. Rows with texts, booleans or NULLs are assembled
from parts. One core makes about 10 million rows of ten fields a second this way, some 30 times what the server takes in
through one connection.

The format: https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS-BINARY
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.encode.number_text import label_codes
from tsbench.encode.sql import Inexact, own_tags_json
from tsbench.encode.text_columns import TextPart, Texts, assembled, texts
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Batch, Field

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, length of the header extension
TRAILER = b"\xff\xff"  # a column count of -1

EPOCH_2000_US = 946_684_800_000_000  # timestamptz counts from 2000-01-01T00:00:00Z
_JSONB_VERSION = 1
_NULL = -1
_NO_VALUE = _NULL.to_bytes(4, "big", signed=True)
_NO_COLUMN = -1


def encode(batch: Batch, *, extra_json: bool) -> bytearray:
    """Return the batch as a complete COPY stream, with header and trailer.

    The columns are time (timestamptz), tags_id (int4; left out where the measurement has no tags), every field
    (float8, int8, text or bool; NULL where a point lacks it), and with `extra_json` additional_tags (jsonb): NULL where
    the measurement has no tags of its own, else their JSON text padded with spaces, which JSON ignores, so that the
    rows keep a fixed width.

    Raises
    ------
    tsbench.encode.sql.Inexact
        If a time is not a whole number of microseconds, so that it could not be stored exactly.
    """
    return _encoded(batch, extra_json=extra_json)[0]


def _encoded(batch: Batch, *, extra_json: bool) -> tuple[bytearray, NDArray[np.int64]]:
    """Return the stream of `encode`, and where each row ends, counted from the first one's start."""
    fields = batch.measurement.fields
    if any(field.labels or (field.nullable and np.isnan(batch.fields[field.name]).any()) for field in fields):
        return _by_parts(batch, extra_json=extra_json)
    documents = own_tags_json(batch) if extra_json else ()
    width = max(map(len, documents), default=0) if extra_json else _NO_COLUMN
    dtype = _row_type(len(batch.fields), keyed=bool(batch.measurement.tags), json=width)
    buffer = bytearray(_template(dtype, len(batch)))
    table = np.frombuffer(buffer, dtype, count=len(batch), offset=len(HEADER))
    table["time"] = times_us(batch.time_ns) - EPOCH_2000_US
    if batch.measurement.tags:
        table["tags_id"] = batch.series
    floats = table["fields"]["value"]
    integers = floats.view(">i8")  # the same bytes
    for column, field in enumerate(fields):
        (integers if field.kind is Kind.INT else floats)[:, column] = batch.fields[field.name]
    if documents:
        table["json"] = _padded(documents, width)[batch.series]
    return buffer, np.arange(1, len(batch) + 1) * dtype.itemsize


def _by_parts(batch: Batch, *, extra_json: bool) -> tuple[bytearray, NDArray[np.int64]]:
    """Return what `_encoded` does, of rows whose values have different lengths."""
    m = batch.measurement
    times = times_us(batch.time_ns) - EPOCH_2000_US
    parts = [_fixed(sized_numbers(times, ">i8")), *([_fixed(sized_numbers(batch.series, ">i4"))] if m.tags else [])]
    parts += [_values(field, batch.fields[field.name]) for field in m.fields]
    if extra_json:
        own = [bytes((_JSONB_VERSION,)) + text.encode() for text in own_tags_json(batch)]
        parts.append(TextPart(sized(own), batch.series) if own else TextPart(texts([_NO_VALUE])))
    columns = TextPart(texts([(1 + bool(m.tags) + len(m.fields) + extra_json).to_bytes(2, "big")]))
    rows = assembled([*parts, columns], len(batch), columns)  # each row ends with the next one's beginning
    return bytearray(b"".join((HEADER, rows.data, TRAILER))), rows.ends


def sized(values: Sequence[bytes]) -> Texts:
    """Return values, each after its length, as they stand in rows and in arrays."""
    return texts([*map(_sized, values)])


def _sized(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def label_bytes(field: Field) -> list[bytes]:
    """Return the texts or booleans of a field in binary form."""
    return [label.encode() if isinstance(label, str) else bytes((label,)) for label in field.labels]


def sized_numbers(values: NDArray[Any], kind: str) -> NDArray[np.void]:
    """Return numbers of a type, each after its length, as they stand in rows and in arrays."""
    table = np.empty(len(values), [("length", ">i4"), ("value", kind)])
    table["length"] = table.dtype["value"].itemsize
    table["value"] = values
    return table


def _fixed(table: NDArray[np.void]) -> TextPart:
    width = table.dtype.itemsize
    return TextPart(Texts(table.view(f"V{width}"), np.full(len(table), width)))


def _values(field: Field, column: NDArray[Any]) -> TextPart:
    """Return the part of a row with a field's value, which is its length alone where a point lacks it."""
    if field.labels:
        labels = label_bytes(field)
        return TextPart(texts([*map(_sized, labels), _NO_VALUE]), label_codes(column, len(labels)))
    kind = ">i8" if field.kind is Kind.INT else ">f8"
    if not field.nullable:
        return _fixed(sized_numbers(column, kind))
    nulls = np.isnan(column)
    part = _fixed(sized_numbers(np.where(nulls, 0, column), kind))
    part.table.padded[nulls] = np.void(_NO_VALUE.ljust(part.table.padded.dtype.itemsize))
    return TextPart(Texts(part.table.padded, np.where(nulls, len(_NO_VALUE), part.table.lengths)))


def encode_each(batch: Batch, points: int, *, extra_json: bool) -> Iterator[tuple[bytes, int]]:
    """Return every `points` points as a stream of their own, and their number; the last may have fewer.

    Each is as `encode` makes it of its points, except that the whole batch is encoded at once; errors as there.
    """
    stream, ends = _encoded(batch, extra_json=extra_json)
    rows = memoryview(stream)[len(HEADER) :]
    firsts = range(0, len(batch), points)
    bounds = [0, *(int(ends[min(first + points, len(batch)) - 1]) for first in firsts)]
    return (
        (b"".join((HEADER, rows[start:end], TRAILER)), min(points, len(batch) - first))
        for first, start, end in zip(firsts, bounds[:-1], bounds[1:], strict=True)
    )


def times_us(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert nanoseconds to microseconds since 1970.

    Raises
    ------
    tsbench.encode.sql.Inexact
        If a time is not a whole number of microseconds.
    """
    whole = time_ns // 1_000
    if not np.array_equal(whole * 1_000, time_ns):
        raise Inexact("times are stored in microseconds, but the batch has one with a fraction of a microsecond")
    return whole


@lru_cache(maxsize=32)
def _row_type(fields: int, *, keyed: bool, json: int) -> np.dtype[Any]:
    """Return the dtype of one row.

    The lengths of values are members of their own, so that the template can hold them. `json` is the width of the JSON
    text, 0 for a column of NULLs.
    """
    members: list[tuple[Any, ...]] = [("columns", ">i2"), ("time_length", ">i4"), ("time", ">i8")]
    if keyed:
        members += [("tags_id_length", ">i4"), ("tags_id", ">i4")]
    members += [("fields", [("length", ">i4"), ("value", ">f8")], (fields,))]
    if json >= 0:
        members += [("json_length", ">i4")]
    if json > 0:
        members += [("json_version", "u1"), ("json", f"S{json}")]
    return np.dtype(members)


@lru_cache(maxsize=16)
def _padded(texts: tuple[str, ...], width: int) -> NDArray[np.bytes_]:
    return np.array([text.ljust(width).encode() for text in texts])


@lru_cache(maxsize=32)
def _template(dtype: np.dtype[Any], rows: int) -> bytes:
    """Return a complete stream of `rows` rows whose values are all zero."""
    row = np.zeros(1, dtype)
    names = dtype.names or ()
    row["columns"] = 1 + ("tags_id" in names) + row["fields"].shape[1] + ("json_length" in names)
    row["time_length"] = 8
    row["fields"]["length"] = 8
    if "tags_id" in names:
        row["tags_id_length"] = 4
    if "json" in names:
        row["json_length"] = 1 + dtype["json"].itemsize
        row["json_version"] = _JSONB_VERSION
    elif "json_length" in names:
        row["json_length"] = _NULL
    return HEADER + row.tobytes() * rows + TRAILER
