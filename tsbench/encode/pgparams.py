"""Encode a batch as the binary parameters of PostgreSQL's INSERT statements, before they are sent.

A parameter in binary form is the value's bytes, big-endian; the statement's placeholders have the types of the columns.
All rows of a batch are stored into one numpy structured array, column by column, and cut into values from there: 0.7 us
a row of 12 values, where psycopg's conversion of Python objects while the op waits takes some 30.

The forms of values: https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.encode.number_text import label_codes
from tsbench.encode.pgcopy import EPOCH_2000_US, label_bytes, sized_numbers, times_us
from tsbench.encode.sql import own_tags_json
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Batch, Field

Parameters: TypeAlias = "tuple[bytes | None, ...]"
"""Values of one statement, in binary form, in the order of its placeholders; None is NULL."""

_JSONB_VERSION = b"\x01"
_NULL = struct.pack(">i", -1)
"""The length of an element of an array that is NULL."""
_TIMESTAMPTZ, _INT4, _INT8, _FLOAT8 = 1184, 23, 20, 701
_FORMS = {_TIMESTAMPTZ: ">i8", _INT4: ">i4", _INT8: ">i8", _FLOAT8: ">f8"}
"""The numbers of fixed width, by the server's number for the type."""
_LABEL_OIDS = {Kind.TEXT: 25, Kind.BOOL: 16}
_JSONB_OID = 3802


def rows(batch: Batch) -> Iterator[Parameters]:
    """Return an iterator over the parameters of each point: time, tags_id, fields, own tags.

    They are a timestamptz, an int4 if the measurement has tags, a float8, int8, text or bool per field (None where a
    point lacks it), and a jsonb if the measurement has tags of its own. The whole batch is encoded by the call; its
    rows are cut one by one.

    Raises
    ------
    tsbench.encode.sql.Inexact
        If a time is not a whole number of microseconds, so that it could not be stored exactly.
    """
    columns, lacking = _columns(batch), _lacking(batch)
    dtype = _row_type(tuple(oid for oid, _ in columns))
    table = np.empty(len(batch), dtype)
    for place, (_, values) in enumerate(columns):
        table[str(place)] = np.where(lacking[place], 0, values) if place in lacking else values
    cut = struct.Struct("".join(f"{np.dtype(_FORMS[oid]).itemsize}s" for oid, _ in columns))
    fields: Iterable[Parameters] = cut.iter_unpack(table.tobytes())
    if lacking:
        masks = {place: nulls.tolist() for place, nulls in lacking.items()}
        fields = (_with_nulls(row, i, masks) for i, row in enumerate(fields))
    m = batch.measurement
    if labels := {1 + bool(m.tags) + i: _labels(field) for i, field in enumerate(m.fields) if field.labels}:
        fields = (_labelled(row, labels) for row in fields)
    texts = _jsonb(batch)
    if not texts:
        return iter(fields)
    return ((*row, texts[i]) for row, i in zip(fields, batch.series.tolist(), strict=True))


def _labels(field: Field) -> Sequence[bytes | None]:
    """Return what the numbers of a text or boolean field stand for; the last one for none."""
    return [*label_bytes(field), None]


def _with_nulls(row: Parameters, number: int, lacking: Mapping[int, Sequence[bool]]) -> Parameters:
    values = list(row)
    for place, nulls in lacking.items():
        if nulls[number]:
            values[place] = None
    return tuple(values)


def _labelled(row: Parameters, labels: Mapping[int, Sequence[bytes | None]]) -> Parameters:
    """Return a row with texts and booleans in place of their numbers."""
    values = list(row)
    for place, texts in labels.items():
        values[place] = texts[int.from_bytes(values[place] or b"", "big")]
    return tuple(values)


def arrays(batch: Batch) -> Parameters:
    """Return one array per column that `rows` has, such as timestamptz[], int4[], float8[]; errors as in `rows`."""
    m = batch.measurement
    lacking = _lacking(batch)
    arrays_of = [_array(oid, values, lacking.get(place)) for place, (oid, values) in enumerate(_columns(batch))]
    for place, field in enumerate(m.fields, start=1 + bool(m.tags)):
        if field.labels:
            labels = _labels(field)
            values = [labels[code] for code in label_codes(batch.fields[field.name], len(field.labels)).tolist()]
            arrays_of[place] = _text_array(values, _LABEL_OIDS[field.kind])
    texts = _jsonb(batch)
    if texts:
        arrays_of.append(_text_array([texts[i] for i in batch.series.tolist()], _JSONB_OID))
    return tuple(arrays_of)


def nbytes(values: Parameters) -> int:
    """Return the bytes of the values, without the protocol's lengths."""
    return sum(len(value) for value in values if value is not None)


def _columns(batch: Batch) -> list[tuple[int, NDArray[Any]]]:
    """Return the columns of fixed width, each with its type's number; texts and booleans are their numbers."""
    columns: list[tuple[int, NDArray[Any]]] = [(_TIMESTAMPTZ, times_us(batch.time_ns) - EPOCH_2000_US)]
    if batch.measurement.tags:
        columns.append((_INT4, batch.series))
    for field in batch.measurement.fields:
        column = batch.fields[field.name]
        if field.labels:
            columns.append((_INT4, label_codes(column, len(field.labels))))
        else:
            columns.append((_INT8 if field.kind is Kind.INT else _FLOAT8, column))
    return columns


def _lacking(batch: Batch) -> dict[int, NDArray[np.bool_]]:
    """Return masks of the points that lack a number, by the place of its column, of those that any point lacks."""
    m = batch.measurement
    numbers = (
        (i, batch.fields[f.name]) for i, f in enumerate(m.fields, 1 + bool(m.tags)) if f.nullable and not f.labels
    )
    return {place: nulls for place, values in numbers if (nulls := np.isnan(values)).any()}


@lru_cache(maxsize=32)
def _row_type(columns: tuple[int, ...]) -> np.dtype[Any]:
    return np.dtype([(str(number), _FORMS[oid]) for number, oid in enumerate(columns)])


def _jsonb(batch: Batch) -> tuple[bytes, ...]:
    """Return the own tags of every series of the world as jsonb; empty if the measurement has none."""
    return _encoded(own_tags_json(batch))


@lru_cache(maxsize=16)
def _encoded(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(_JSONB_VERSION + text.encode() for text in texts)


def _array(oid: int, values: NDArray[Any], nulls: NDArray[np.bool_] | None) -> bytes:
    head = _array_head(oid, len(values))
    if nulls is None:
        return head + sized_numbers(values, _FORMS[oid]).tobytes()
    elements = sized_numbers(np.where(nulls, 0, values), _FORMS[oid])
    elements["length"][nulls] = -1
    letters = elements.view(np.uint8).reshape(len(values), -1)
    keep = np.ones(letters.shape, dtype=np.bool_)
    keep[nulls, 4:] = False
    return head + letters[keep].tobytes()


def _text_array(texts: Sequence[bytes | None], oid: int) -> bytes:
    elements = chain.from_iterable(
        (_NULL, b"") if text is None else (struct.pack(">i", len(text)), text) for text in texts
    )
    return b"".join((_array_head(oid, len(texts)), *elements))


def _array_head(oid: int, length: int) -> bytes:
    """Return the start of an array of one dimension, whose first element has the number 1."""
    return struct.pack(">iiIii", 1, 0, oid, length, 1)
