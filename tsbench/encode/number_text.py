"""Columns as text: integers, floats as the shortest text that parses to the same value, and what numbers stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tsbench.encode.text_columns import TextPart, Texts, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_SMALL = 1024
"""Integers below this come from a lookup table per field, which includes the field's name."""
_PERCENT = 101
"""Two adjacent percentages (0 .. 100) share one lookup table with all combinations."""
_GROUP = 10_000
"""Larger integers are written in groups of four digits."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """A column of numbers with the text before and after each; `percent` if most values are within 0 .. 100.

    `minus_zero` is the text of -0.0, with four letters: MySQL reads `-0.0` as a decimal number, which has no such zero.
    `null` is the text in place of NaN, without which NaN is refused. `labels` are texts in place of 0, 1, ... Floats
    that are `whole` are written as integers.
    """

    before: bytes
    values: NDArray[Any]
    after: bytes
    percent: bool = False
    minus_zero: bytes = b"-0.0"
    null: bytes | None = None
    labels: tuple[bytes, ...] = ()
    whole: bool = False

    def is_alike(self, other: NumberColumn) -> bool:
        """Return whether numbers and NaN are written as those of another column."""
        return (self.null, self.whole) == (other.null, other.whole)


def number_parts(columns: Sequence[NumberColumn]) -> list[TextPart]:
    """Return the parts that write columns of numbers next to each other.

    Raises
    ------
    ValueError
        If a float is not finite, or NaN without a text for it.
    """
    parts: list[TextPart] = []
    for write, group in groupby(columns, _writer):
        parts += write([*group])
    return parts


def _writer(column: NumberColumn) -> Callable[[Sequence[NumberColumn]], list[TextPart]]:
    if column.labels:
        return _labels
    return _long_floats if _has_long_floats(column) else _short_numbers


def _labels(columns: Sequence[NumberColumn]) -> list[TextPart]:
    return [
        TextPart(
            _label_texts(one.before, one.labels if one.null is None else (*one.labels, one.null), one.after),
            label_codes(one.values, len(one.labels)),
        )
        for one in columns
    ]


def label_codes(column: NDArray[Any], labels: int) -> NDArray[np.int64]:
    """Return the indexes of labels that a column has; where it has NaN, the one behind the last."""
    if column.dtype.kind != "f":
        return column
    return np.where(np.isnan(column), labels, column).astype(np.int64)


@lru_cache(maxsize=256)
def _label_texts(before: bytes, labels: tuple[bytes, ...], after: bytes) -> Texts:
    return texts([before + label + after for label in labels])


def _short_numbers(columns: Sequence[NumberColumn]) -> list[TextPart]:
    parts: list[TextPart] = []
    pair: list[NumberColumn] = []
    for column in columns:
        size = _small_size(column.values)
        if pair and (size != _PERCENT or not column.percent):
            parts.append(_small(pair, _PERCENT))
            pair = []
        if size == _PERCENT and column.percent:
            pair.append(column)
            if len(pair) == 2:
                parts.append(_small(pair, _PERCENT))
                pair = []
        elif size:
            parts.append(_small([column], size))
        elif column.values.dtype.kind == "f":
            parts += _floats(column)
        else:
            parts += _integers(column.before, column.values, column.after)
    return [*parts, _small(pair, _PERCENT)] if pair else parts


def _small_size(values: NDArray[Any]) -> int:
    """Return the size of the lookup table for these values; 0 if they are floats, negative or too large."""
    if values.dtype.kind == "f" or int(values.min()) < 0:
        return 0
    # Few sizes, so that few tables are made for a slowly growing value; 101 is for percentages.
    most = int(values.max())
    return next((size for size in (_PERCENT, 256, 512, _SMALL) if most < size), 0)


def _small(columns: Sequence[NumberColumn], size: int) -> TextPart:
    codes = columns[0].values
    for column in columns[1:]:
        codes = codes * size + column.values
    return TextPart(_combinations(tuple((c.before, c.after) for c in columns), size), codes)


@lru_cache(maxsize=256)
def _combinations(around: tuple[tuple[bytes, bytes], ...], size: int) -> Texts:
    """Return the texts of all combinations of integers below `size`; the last integer varies fastest."""
    combinations = [b""]
    for before, after in around:
        one = [b"%b%d%b" % (before, n, after) for n in range(size)]
        combinations = [head + tail for head in combinations for tail in one]
    return texts(combinations)


# --- integers of any size ---------------------------------------------------------------------------------------------


def _integers(prefix: bytes, values: NDArray[Any], suffix: bytes) -> list[TextPart]:
    sign: list[TextPart] = []
    magnitude = values
    if int(values.min()) < 0:
        sign = [TextPart(_texts(prefix, prefix + b"-"), (values < 0).astype(np.intp))]
        prefix = b""
        magnitude = np.abs(values).view(np.uint64)  # the most negative int64 has no positive counterpart
    groups = []
    while int(magnitude.max()) >= _GROUP:
        rest = magnitude // _GROUP
        groups.append(magnitude - rest * _GROUP)
        magnitude = rest
    groups.append(magnitude)
    groups.reverse()
    first, last = int(groups[0].min()), int(groups[0].max())
    low, high = first // 64 * 64, last // 64 * 64 + 64
    leading = len(groups) > 1
    if high - low <= _SMALL:
        tail = b"" if leading else suffix
        parts = [TextPart(_stretch(prefix, low, high, tail, leading), (groups[0] - low).astype(np.intp))]
        return sign + parts + _tail_groups(groups, suffix)
    start = [TextPart(_texts(prefix))] if prefix else []
    top = TextPart(_group(b"" if leading else suffix, leading), (groups[0] + _GROUP).astype(np.intp))
    return sign + start + [top] + _tail_groups(groups, suffix)


def _tail_groups(groups: list[NDArray[Any]], suffix: bytes) -> list[TextPart]:
    """Return the parts of all groups but the first: padded with zeros if a digit precedes them, else not."""
    parts = []
    blank = groups[0] == 0
    for i, group in enumerate(groups[1:], 1):
        final = i == len(groups) - 1
        codes = group.astype(np.intp)
        if blank.any():
            codes = codes + blank * _GROUP
            blank &= group == 0
        parts.append(TextPart(_group(suffix if final else b"", not final), codes))
    return parts


@lru_cache(maxsize=16)
def _group(suffix: bytes, omit_zero: bool) -> Texts:
    """Return the texts 0000 .. 9999, then 0 .. 9999 without leading zeros (zero as "" if `omit_zero`)."""
    plain = [b"%d%b" % (n, suffix) for n in range(_GROUP)]
    if omit_zero:
        plain[0] = suffix
    return texts([b"%04d%b" % (n, suffix) for n in range(_GROUP)] + plain)


@lru_cache(maxsize=256)
def _stretch(prefix: bytes, low: int, high: int, suffix: bytes, omit_zero: bool) -> Texts:
    """Return the texts of low .. high - 1 between prefix and suffix (zero as "" if `omit_zero`)."""
    return texts([prefix + (b"" if omit_zero and n == 0 else b"%d" % n) + suffix for n in range(low, high)])


@lru_cache(maxsize=1024)
def _texts(*values: bytes) -> Texts:
    return texts(values)


# --- floats -----------------------------------------------------------------------------------------------------------


def _has_long_floats(column: NumberColumn) -> bool:
    """Return whether a column has floats with more than two decimals, as its first values show."""
    return column.values.dtype.kind == "f" and any(round(x, 2) != x for x in column.values[:8].tolist())


@cache
def _hundredths(suffix: bytes) -> Texts:
    return texts([(b".%02d" % n).rstrip(b"0").rstrip(b".") + suffix for n in range(100)])


def _floats(column: NumberColumn) -> list[TextPart]:
    values = column.values
    with np.errstate(over="ignore"):
        hundredths = np.rint(values * 100)
    # Up to 15 digits a decimal number is the shortest text of its nearest float, so two decimals need no search.
    if not np.signbit(values).any() and float(hundredths.max()) < 1e15 and bool((hundredths / 100 == values).all()):
        whole = hundredths.astype(np.int64)
        units = whole // 100
        fraction = TextPart(_hundredths(column.after), whole - units * 100)
        return [*number_parts([NumberColumn(column.before, units, b"")]), fraction]
    return _long_floats([column])


def _long_floats(columns: Sequence[NumberColumn]) -> list[TextPart]:
    """Return the parts of adjacent columns of floats; those with one letter between them are written together."""
    between = [*(one.after + other.before for one, other in pairwise(columns)), b""]
    parts = []
    start = 0
    for stop, text in enumerate(between, 1):
        if len(text) == 1 and text == between[start] and columns[stop].is_alike(columns[start]):
            continue
        table = _shortest(columns[start:stop], between[start])
        parts += [TextPart(_texts(columns[start].before)), TextPart(table), TextPart(_texts(columns[stop - 1].after))]
        start = stop
    return [part for part in parts if part.table.lengths.any()]


def _shortest(columns: Sequence[NumberColumn], between: bytes) -> Texts:
    """Return the shortest texts of one or more columns of floats, row by row, with that letter between them."""
    lists, minus_zero, null = [column.values for column in columns], columns[0].minus_zero, columns[0].null
    values = np.column_stack(lists) if len(lists) > 1 else np.ascontiguousarray(lists[0])
    refused = ~np.isfinite(values) if null is None else np.isinf(values)
    if refused.any():
        raise ValueError("a float is not finite; databases accept no text for it")
    # orjson writes a value in 50 ns, polars in 40 (but takes 180 MB on a load worker's disk), Python's repr in 500.
    letters = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if columns[0].whole:
        letters = letters.replace(b".0", b"")
    if null is not None:
        letters = letters.replace(b"null", null)
    if minus_zero != b"-0.0" and bool((np.signbit(values) & (values == 0)).any()):
        letters = letters.replace(b"-0.0,", minus_zero + b",").replace(b"-0.0]", minus_zero + b"]")
    if len(columns) > 1:  # [[1.5,2.25],[3.5,4.25]]
        letters, apart = letters[1:-1].replace(b",", between), b"],["
    else:  # [1.5,2.25]
        letters, apart = letters[:-1] + b",", b","
    ends = np.flatnonzero(np.frombuffer(letters, dtype=np.uint8) == apart[0])
    begins = np.concatenate([[1], ends[:-1] + len(apart)])
    lengths = ends - begins
    width = int(lengths.max())
    letters += b" " * width
    window: NDArray[np.void] = np.ndarray((len(letters) - width + 1,), f"V{width}", letters, strides=(1,))
    return Texts(window[begins], lengths)


# --- times ------------------------------------------------------------------------------------------------------------


def time_part(before: bytes, times_ns: NDArray[np.int64], after: bytes) -> TextPart:
    """Return the part that writes times as integers, each between `before` and `after`."""
    # Points are ordered by tick, so many adjacent rows usually have the same time.
    begins = np.flatnonzero(np.diff(times_ns)) + 1
    if len(begins) * 4 < len(times_ns):
        different = times_ns[np.concatenate([[0], begins])].tolist()
        codes = np.zeros(len(times_ns), dtype=np.intp)
        codes[begins] = 1
        return TextPart(texts([b"%b%d%b" % (before, t, after) for t in different]), np.cumsum(codes))
    return TextPart(texts([b"%b%d%b" % (before, t, after) for t in times_ns.tolist()]))
