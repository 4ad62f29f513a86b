"""InfluxDB line protocol: `measurement,tag=value field=1i,field=0.5 time` with times in nanoseconds.

Source: the specification of the line protocol (InfluxDB v2 reference). A tag without text is left out, as that says,
and so is a field that a point lacks.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.encode.number_text import NumberColumn, number_parts, time_part
from tsbench.encode.text_columns import NO_ROWS, Assembled, TextPart, Texts, assemble, assembled, joined, texts
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Field, Measurement

_Tags: TypeAlias = "tuple[tuple[str, Codes], ...]"
_SUFFIX = {Kind.INT: b"i"}
_NULL = b"\0"
"""Stands for a field that a point lacks until it is taken out; no text of ours has it."""


def encode(batch: Batch) -> memoryview:
    """Return the batch's points in line protocol, one line each, every line with its line feed.

    Raises
    ------
    ValueError
        If a name or tag value has a form that the protocol cannot express (a line break, or a backslash at its end), a
        float is not finite, or a point has no field.
    """
    return lines(batch).data


def lines(batch: Batch) -> Assembled:
    """Return the same bytes as `encode`, and where each point's line ends; errors as in `encode`."""
    if not len(batch):
        return NO_ROWS
    text = assembled(*_plan(batch))
    return _without_nulls(text.data, batch.measurement) if batch.measurement.nullable else text


def encode_singles(batch: Batch) -> list[bytes]:
    """Return one line per point, without the line feed; errors as in `encode`."""
    return bytes(encode(batch)).split(b"\n")[:-1]


def blocks(batch: Batch) -> Iterator[NDArray[np.uint8]]:
    """Yield the same bytes as `encode`, in pieces that are not copied; each is valid until the next is requested.

    Errors as in `encode`.
    """
    if not len(batch):
        return
    for block in assemble(*_plan(batch)):
        if batch.measurement.nullable:
            yield np.frombuffer(_without_nulls(block.data, batch.measurement).data, dtype=np.uint8)
        else:
            yield block


def _without_nulls(data: memoryview, measurement: Measurement) -> Assembled:
    """Return whole lines without the fields that are null."""
    text = bytes(data)
    nulls = [_escaped(field.name, ", =") + b"=" + _NULL + _SUFFIX.get(field.kind, b"") for field in measurement.fields]
    for null in nulls:
        text = text.replace(b"," + null, b"")
    first = b" " + nulls[0]
    text = text.replace(first + b",", b" ")
    if first + b" " in text:
        raise ValueError("line protocol cannot express a point without any field")
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")) + 1  # there is none within a line
    return Assembled(memoryview(text), ends)


def _plan(batch: Batch) -> tuple[list[TextPart], int, TextPart]:
    """Return the arguments of `assemble`: the parts of a line, the number of lines, and the start of each line."""
    name = _escaped(batch.measurement.name, ", ")
    fields = [
        NumberColumn(
            separator + _escaped(field.name, ", =") + b"=",
            batch.fields[field.name],
            _SUFFIX.get(field.kind, b""),
            field.unit == "%",
            null=_NULL if field.nullable else None,
            labels=_labels(field),
            whole=field.kind is Kind.INT,
        )
        for field, separator in zip(batch.measurement.fields, chain([b" "], repeat(b",")), strict=False)
    ]
    parts = [TextPart(table, batch.series) for table in _heads(batch)]
    parts += number_parts(fields)
    # The name at the start of a line is written as the end of the previous line, which saves one part per line.
    parts.append(time_part(b" ", batch.time_ns, b"\n" + name))
    return parts, len(batch), TextPart(texts([name]))


def _labels(field: Field) -> tuple[bytes, ...]:
    """Return the values of a text or boolean field as line protocol has them; nothing for numbers."""
    if field.kind is Kind.BOOL:
        return b"f", b"t"
    if any("\n" in text or "\0" in text for text in field.texts):
        raise ValueError(f"line protocol cannot express a text of the field {field.name}: use no line break")
    return tuple(b'"%b"' % text.replace("\\", "\\\\").replace('"', '\\"').encode() for text in field.texts)


def _heads(batch: Batch) -> list[Texts]:
    """Return the tags of every series as text: the shared tags, and the measurement's own ones."""
    measurement = batch.measurement
    groups = (measurement.tags, measurement.own_tags)
    return [_tag_texts(tuple((tag, batch.tags[tag]) for tag in tags)) for tags in groups if tags]


@lru_cache(maxsize=64)
def _tag_texts(tags: _Tags) -> Texts:
    # Codes compare by identity, so a world's tags are turned into text once, and shared tags once for all measurements.
    columns = []
    for tag, codes in tags:
        key = b"," + _escaped(tag, ", =") + b"="
        columns.append(([key + _escaped(value, ", =") if value else b"" for value in codes.values], codes.codes))
    return joined(columns)


def _escaped(text: str, special: str) -> bytes:
    if "\n" in text or text.endswith("\\"):
        raise ValueError(f"line protocol cannot express {text!r}: use no line break and no backslash at the end")
    for letter in special:
        text = text.replace(letter, "\\" + letter)
    return text.encode()
