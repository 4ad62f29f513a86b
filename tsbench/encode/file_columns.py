"""Points of a file by columns: where its cells are, which number each of them is, and which lines have the same names.

numpy does it for all lines of a block at once, on the bytes as they are. What is not in the plain form of a point is
left to whoever reads line by line, and says which line is none, and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.encode.file_letters import EXACT, Letters, Odd
from tsbench.encode.line_grammar import unescaped
from tsbench.encode.point_files import Lines, read_lines
from tsbench.model import Field, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.encode.file_letters import ParsedNumbers, Places

Columns: TypeAlias = "dict[str, NDArray[Any]]"

_LINE_FEED, _SPACE, _EQUALS = b"\n ="
_MOST_FORMS = 64  # of a block; for more it is as fast to look at each line by itself


@dataclass(frozen=True, slots=True, eq=False)
class PointTable:
    """Points of one measurement: their places among all points, their times, and their fields.

    A field that a point lacks is NaN, in a column of floats also if the field is an integer.
    """

    name: str
    rows: Places
    time_ns: NDArray[np.int64]
    fields: Sequence[Field]
    columns: Columns


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points that were read by columns.

    `heads` are the different measurements and tags as line protocol has them, and `head_of` is each point's index among
    them. `as_lines` returns the same points as lines, of which each can be named.
    """

    heads: Sequence[bytes]
    head_of: Places
    tables: Sequence[PointTable]
    as_lines: Callable[[], Lines]


# --- line protocol ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Fields:
    """The fields of all lines one after the other: their names from `starts` up to `equals`, and their values.

    Line i has `counts[i]` of them, from number `firsts[i]` on.
    """

    letters: Letters
    firsts: Places
    counts: Places
    starts: Places
    equals: Places
    values: ParsedNumbers

    def forms(self, rows: Places) -> Iterator[tuple[Places, Places, list[bytes]]]:
        """Yield lines with the same names in the same order, the numbers of their fields by row, and the names."""
        for _ in range(_MOST_FORMS):
            first, count = self.firsts[rows[0]], self.counts[rows[0]]
            own = slice(first, first + count)
            lengths = self.equals[own] - self.starts[own]
            names = [self.letters.text(a, b) for a, b in zip(self.starts[own], self.equals[own], strict=True)]
            may_be = self.counts[rows] == count
            some = rows[may_be]
            fields = self.firsts[some][:, None] + np.arange(count)
            starts = self.starts[fields]
            equal = (self.equals[fields] - starts == lengths).all(axis=1)
            equal[equal] = self.letters.equal(starts[equal], names)
            yield some[equal], fields[equal], names
            may_be[may_be] = equal
            rows = rows[~may_be]
            if not len(rows):
                return
        raise Odd


def read_points(
    blocks: Iterator[bytes], count: int, limit: int | None = None, *, columns: bool = False
) -> Iterator[Lines | Points]:
    """Yield the points of line protocol, `count` lines at a time: by `columns` if that is wanted and they can.

    Raises
    ------
    Broken
        As `read_lines`.
    """
    for lines in read_lines(blocks, count, limit):
        yield (of_lines(lines) if columns else None) or lines


def of_lines(lines: Lines) -> Points | None:
    """Return lines that are read by columns; None if one of them is to be looked at by itself."""
    try:
        return _points(lines)
    except Odd:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """The form of some lines: the places of all ` `, `,`, `=` and line feeds, as `marks`, and which of them is which.

    Line i begins at `begins[i]`; its fields, `counts[i]` of them, stand between the marks number `before[i]` and
    `behind[i]`, its time behind them.
    """

    letters: Letters
    marks: Places
    begins: Places
    before: Places
    behind: Places
    counts: Places

    def names(self) -> dict[bytes, int]:
        """Return the different measurements, each with the index of its first line."""
        firsts: dict[bytes, int] = {}
        ends = self.marks[np.concatenate([[0], self.behind[:-1] + 2])]
        rows = np.arange(len(self.begins))
        for _ in range(_MOST_FORMS):
            if not len(rows):
                break
            first = int(rows[0])
            name = self.letters.text(int(self.begins[first]), int(ends[first]))
            firsts[name] = first
            same = ends[rows] - self.begins[rows] == len(name)
            same[same] = self.letters.equal(self.begins[rows[same]][:, None], [name])
            rows = rows[~same]
        for row in rows.tolist():
            firsts.setdefault(self.letters.text(int(self.begins[row]), int(ends[row])), row)
        return firsts


def _is_text(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def outline(lines: Lines) -> Outline:
    """Return the form of lines; raises `Odd` if one of them has certainly another than `name,tags fields time`."""
    if b"\\" in lines.data or b'"' in lines.data or not _is_text(lines.data):
        raise Odd
    letters = Letters(lines.data, b" ")
    marks = letters.marks(b", =\n")
    kinds = letters.octets[marks]
    feeds, spaces = np.flatnonzero(kinds == _LINE_FEED), np.flatnonzero(kinds == _SPACE)
    if len(feeds) != lines.count or len(spaces) != 2 * lines.count:
        raise Odd
    before, behind = spaces[0::2], spaces[1::2]
    counts = (behind - before) // 2
    begins = np.concatenate([[letters.begin], marks[feeds[:-1]] + 1])
    is_plain = (before[1:] > feeds[:-1]).all() and (behind + 1 == feeds).all() and (behind - before == 2 * counts).all()
    commas = len(kinds) - np.count_nonzero(kinds == _EQUALS) - 3 * lines.count
    if not is_plain or len(kinds) != 2 * commas + 4 * lines.count or (letters.octets[begins] == ord("#")).any():
        raise Odd
    return Outline(letters, marks, begins, before, behind, counts)


def _points(lines: Lines) -> Points:
    form = outline(lines)
    letters, marks, before, counts = form.letters, form.marks, form.before, form.counts
    firsts = np.cumsum(counts) - counts
    equals = np.repeat(before + 1 - 2 * firsts, counts) + 2 * np.arange(int(counts.sum()))
    starts, ends = marks[equals - 1] + 1, marks[equals + 1]
    kinds = letters.octets[marks]
    if (kinds[equals] != _EQUALS).any() or (kinds[equals + 1] == _EQUALS).any() or (starts == marks[equals]).any():
        raise Odd
    values = letters.numbers(marks[equals] + 1, ends)
    fields = _Fields(letters, firsts, counts, starts, marks[equals], values)
    times = letters.times(marks[form.behind] + 1, marks[form.behind + 1])
    heads, head_of = letters.different(form.begins, marks[before])
    names = [head.partition(b",")[0] for head in heads]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.array([number_of[name] for name in names])[head_of]
    tables = []
    for name, number in number_of.items():
        rows = np.flatnonzero(numbers == number)
        tables.append(PointTable(unescaped(name), rows, times[rows], *_merged(rows, fields)))
    return Points(heads, head_of, tables, lambda: lines)


def _merged(rows: Places, fields: _Fields) -> tuple[list[Field], Columns]:
    """Return the fields of lines of one measurement, with NaN where one lacks a field."""
    fields_of: dict[str, Field] = {}
    columns: Columns = {}
    values = fields.values
    for some, numbers, names in fields.forms(rows):
        texts = [*map(unescaped, names)]
        if len({*texts}) < len(texts):
            raise Odd  # a name comes twice
        for column, name in enumerate(texts):
            own = numbers[:, column]
            marked = values.is_integer[own]
            field = fields_of.setdefault(name, Field(name, Kind.INT if marked[0] else Kind.FLOAT))
            if (marked != (field.kind is Kind.INT)).any():
                raise Odd
            if len(some) == len(rows):
                columns[name] = values.integers[own] if field.kind is Kind.INT else values.floats[own]
                continue
            if name not in columns:
                columns[name] = np.full(len(rows), math.nan)
            columns[name][np.searchsorted(rows, some)] = values.floats[own]
            if field.kind is Kind.INT and (np.abs(values.integers[own]) > EXACT).any():
                raise Odd
    for name, field in fields_of.items():
        if field.kind is Kind.INT and columns[name].dtype.kind == "f" and not np.isnan(columns[name]).any():
            columns[name] = columns[name].astype(np.int64)
    return [*fields_of.values()], columns
