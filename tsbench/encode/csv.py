"""CSV (RFC 4180, lines ended by a line feed): time in nanoseconds since 1970, tags, fields; nothing where one lacks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.encode.number_text import NumberColumn, number_parts, time_part
from tsbench.encode.text_columns import TextPart, Texts, assemble, assembled, joined
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Measurement

_Tags: TypeAlias = "tuple[Codes, ...]"


def header(measurement: Measurement) -> bytes:
    """Return the header line with the names of the columns."""
    names = ("time", *measurement.tags, *measurement.own_tags, *measurement.field_names)
    return b",".join(_quoted(name) for name in names) + b"\n"


def encode(batch: Batch) -> memoryview:
    """Return the batch's points as CSV, one line each, without a header.

    Raises
    ------
    ValueError
        If a float is not finite.
    """
    return assembled(*_plan(batch)).data if len(batch) else memoryview(b"")


def blocks(batch: Batch) -> Iterator[NDArray[np.uint8]]:
    """Yield the same bytes as `encode`, in pieces; each is valid until the next one is requested.

    Errors as in `encode`.
    """
    if len(batch):
        yield from assemble(*_plan(batch))


def _plan(batch: Batch) -> tuple[list[TextPart], int, TextPart]:
    """Return the arguments of `assemble`: the parts of a line, the number of lines, and the start of each line."""
    measurement, times_ns = batch.measurement, batch.time_ns
    groups = (measurement.tags, measurement.own_tags)
    heads = [_tag_texts(tuple(batch.tags[tag] for tag in tags)) for tags in groups if tags]
    fields = [
        NumberColumn(
            b",",
            batch.fields[field.name],
            b"",
            field.unit == "%",
            null=b"" if field.nullable else None,
            labels=tuple(_quoted(label if isinstance(label, str) else str(label).lower()) for label in field.labels),
            whole=field.kind is Kind.INT,
        )
        for field in measurement.fields
    ]
    following = np.append(times_ns[1:], times_ns[-1])
    parts = [
        *(TextPart(table, batch.series) for table in heads),
        *number_parts(fields),
        time_part(b"\n", following, b""),
    ]
    return parts, len(batch), time_part(b"", times_ns, b"")


@lru_cache(maxsize=64)
def _tag_texts(tags: _Tags) -> Texts:
    return joined([([b"," + _quoted(value) for value in codes.values], codes.codes) for codes in tags])


def _quoted(text: str) -> bytes:
    if any(letter in text for letter in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()
