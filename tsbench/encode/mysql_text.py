"""Rows as MySQL and MariaDB read them: the list of VALUES of an INSERT, and the lines of LOAD DATA.

Sources: MySQL 8.4 Reference Manual, 11.1 "Literal Values" (with the SQL mode NO_BACKSLASH_ESCAPES, in which only a
quote is doubled) and 15.2.9 "LOAD DATA Statement" (tab-separated, escaped by a backslash).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.encode import pgcopy, sql
from tsbench.encode.number_text import NumberColumn, number_parts
from tsbench.encode.text_columns import NO_ROWS, Assembled, TextPart, Texts, assembled, texts
from tsbench.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes

_OwnTags: TypeAlias = "tuple[tuple[str, Codes], ...]"
_TIME_BYTES = 26
"""Length of 2016-01-01T00:00:00.000000."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The texts around the columns of a row, the time first; `end` is the end of a row and the `lead` of the next."""

    lead: bytes
    after_time: bytes
    between: bytes
    quote: bytes
    end: bytes
    null: bytes


_VALUES = _Form(b",('", b"',", b",", b"'", b")", b"NULL")
_APART = _Form(b"('", b"',", b",", b"'", b")\0", b"NULL")  # no JSON text holds the byte 0
_LINES = _Form(b"", b"\t", b"\t", b"", b"\n", b"\\N")


def values(batch: Batch) -> Assembled:
    """Return the rows as a list of VALUES, each after a comma: `,('time',series,field,...),(...)`.

    Raises
    ------
    tsbench.encode.sql.Inexact
        If a time is not a whole number of microseconds.
    ValueError
        If a float is not finite.
    """
    return _assembled(batch, _VALUES)


def value_rows(batch: Batch) -> list[bytes]:
    """Return each row as a list of VALUES of its own; errors as in `values`."""
    return bytes(_assembled(batch, _APART).data).split(b"\0")[:-1]


def lines(batch: Batch) -> Assembled:
    """Return the rows as lines for LOAD DATA; errors as in `values`."""
    return _assembled(batch, _LINES)


def literal(value: str | float | None) -> str:
    """Return a number, boolean or text as a literal, None as NULL."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def _label(label: str | bool, form: _Form) -> bytes:
    """Return a text as a value of a row, a boolean as 0 or 1, which it is here."""
    if not isinstance(label, str):
        return b"%d" % label
    return (literal(label) if form.quote else _in_a_line(label)).encode()


def _in_a_line(text: str) -> str:
    for letter, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n")):
        text = text.replace(letter, escaped)
    return text


def _assembled(batch: Batch, form: _Form) -> Assembled:
    if not len(batch):
        return NO_ROWS
    m, end = batch.measurement, form.end + form.lead
    before = chain([form.after_time], repeat(form.between))
    columns = [NumberColumn(next(before), batch.series, b"")] if m.tags else []
    columns += [
        NumberColumn(
            next(before),
            batch.fields[field.name],
            b"",
            field.unit == "%",
            minus_zero=b"-0e0",
            null=form.null if field.nullable else None,
            labels=tuple(_label(label, form) for label in field.labels),
            whole=field.kind is Kind.INT,
        )
        for field in m.fields
    ]
    parts = [_times(pgcopy.times_us(batch.time_ns)), *number_parts(columns)]
    if m.own_tags:
        own = _own_tags(tuple((tag, batch.tags[tag]) for tag in m.own_tags), form)
        parts.append(TextPart(own, batch.series))
    # A part of its own: rows are written in stretches whose last part has one length, which a number's digits have not.
    parts.append(TextPart(texts([end])))
    return assembled(parts, len(batch), TextPart(texts([form.lead])))


def _times(time_us: NDArray[np.int64]) -> TextPart:
    """Return the part that writes the times, each different one made once."""
    # Points are ordered by tick, so many adjacent rows usually have the same time.
    begins = np.concatenate([[0], np.flatnonzero(np.diff(time_us)) + 1])
    different = np.datetime_as_string(time_us[begins].view("datetime64[us]")).astype(f"S{_TIME_BYTES}")
    table = Texts(different.view(f"V{_TIME_BYTES}"), np.full(len(different), _TIME_BYTES))
    codes = np.zeros(len(time_us), dtype=np.intp)
    codes[begins[1:]] = 1
    return TextPart(table, np.cumsum(codes))


@lru_cache(maxsize=64)
def _own_tags(tags: _OwnTags, form: _Form) -> Texts:
    """Return the own tags of every series as JSON, quoted or escaped."""
    # Codes compare by identity, so a world's tags are turned into text once.
    documents = sql.json_texts(dict(tags), tuple(name for name, _ in tags))
    if form.quote:
        return texts([form.between + literal(text).encode() for text in documents])
    return texts([form.between + _in_a_line(text).encode() for text in documents])
