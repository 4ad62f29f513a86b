"""Files in TSBS's format for SQL databases, as line protocol: a header with names, then two lines per point.

tags,name string,fleet string          the tags of all points, with Go's types
readings,latitude,velocity             the fields of each measurement
an empty line
tags,name=truck_1,fleet=South          a point: its tags, perhaps with more than the header's,
readings,1451606400000000000,72.4,     its measurement, time in ns, and fields by position; empty is NULL
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from tsbench.encode.text_columns import Part, assembled, texts
from tsbench.errors import Broken
from tsbench.model import Field
from tsbench.run.file_columns import Points, Table, of_lines
from tsbench.run.file_letters import Letters, Odd
from tsbench.run.point_files import Lines, read_lines
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tsbench.run.file_letters import Places

START = b"tags,"
"""How such a file begins; line protocol of a measurement `tags` would have an `=` in its first line."""
_MOST_HEADER = 1 << 20
_ALL = (True,)


class _Format:
    """How the points of a measurement are read: as line protocol, or by columns."""

    def __init__(self, name: bytes, fields: Sequence[bytes]) -> None:
        self.name, self.plain_name, self.count = _escaped(name), name.decode(errors="replace"), len(fields)
        self._fields, self._plain_fields = [*map(_escaped, fields)], [one.decode(errors="replace") for one in fields]
        self._lines: dict[tuple[bool, ...], bytes] = {}

    def line(self, cells: Sequence[bytes]) -> bytes:
        """Return a line with the fields whose cell is not empty, for `%` with tags, values and time; b"" of none."""
        there = _ALL if b"" not in cells else tuple(map(bool, cells))
        if there not in self._lines:
            fields = self._fields if there is _ALL else compress(self._fields, there)
            pairs = b",".join(field.replace(b"%", b"%%") + b"=%b" for field in fields)
            self._lines[there] = b"%b%%b %b %%b\n" % (self.name.replace(b"%", b"%%"), pairs) if pairs else b""
        return self._lines[there]

    def table(self, letters: Letters, rows: Places, marks: Places, begins: Places) -> Table:
        """Return points by columns: the numbers `rows` of points, whose second lines begin behind the marks `begins`.

        Raises
        ------
        Odd
            If one of them is damaged or has no field.
        """
        if len({*self._plain_fields}) < self.count:
            raise Odd
        times = letters.times(marks[begins + 1] + 1, marks[begins + 2])
        starts, ends = self._cells(marks, begins)
        there = ends > starts
        found = letters.numbers(starts[there], ends[there])
        if found.is_integer.any() or not there.any(axis=1).all():
            raise Odd
        numbers = np.full(there.shape, math.nan)
        numbers[there] = found.floats
        names = [(i, name) for i, name in enumerate(self._plain_fields) if there[:, i].any()]
        columns = {name: np.ascontiguousarray(numbers[:, i]) for i, name in names}
        return Table(self.plain_name, rows, times, [Field(name) for _, name in names], columns)

    def _cells(self, marks: Places, begins: Places) -> tuple[Places, Places]:
        """Return where the fields of points begin and end, by row."""
        cells = begins[:, None] + np.arange(2, 2 + self.count)
        return marks[cells] + 1, marks[cells + 1]

    def lines(self, letters: Letters, marks: Places, begins: Places, tags: Part) -> list[bytes]:
        """Return points as lines of line protocol, whose measurement and tags are `tags`.

        Raises
        ------
        Odd
            If one of them has no field.
        """
        starts, ends = self._cells(marks, begins)
        there = ends > starts
        if not there.any(axis=1).all():
            raise Odd
        parts = [tags]
        comma = np.zeros(len(begins), dtype=np.bool_)
        for i, field in enumerate(self._fields):
            # "" for a field that a point lacks, else its name behind a space or, from the second one on, a comma
            names = texts([b"", b" " + field + b"=", b"," + field + b"="])
            parts += [Part(names, there[:, i] * (1 + comma)), letters.part(starts[:, i], ends[:, i])]
            comma |= there[:, i]
        times = letters.part(marks[begins + 1] + 1, marks[begins + 2])
        found = assembled([*parts, Part(texts([b" "])), times, Part(texts([b"\n"]))], len(begins))
        return [*found]


def point_lines(
    blocks: Iterator[bytes], count: int, limit: int | None = None, *, columns: bool = False
) -> Iterator[Lines | Points]:
    """Yield the points of a file as line protocol, `count` at a time: of line protocol itself, or of this format.

    They come by `columns` instead, if that is wanted and they can.

    Raises
    ------
    Broken
        As `read_lines`; or if a line is none of this format, after all points before it.
    """
    first = next(blocks, b"")
    whole = chain([first], blocks)
    if first.startswith(START) and b"=" not in first.partition(b"\n")[0]:
        return _translated(whole, count, limit, columns=columns)
    found = read_lines(whole, count, limit)
    return ((of_lines(lines) or lines) for lines in found) if columns else found


def _translated(blocks: Iterator[bytes], count: int, limit: int | None, *, columns: bool) -> Iterator[Lines | Points]:
    head = b""
    while b"\n\n" not in head:
        block = next(blocks, b"")
        head += block
        if not block or len(head) > _MOST_HEADER:
            raise Broken("line 1 begins a header of TSBS, but no empty line ends it; nothing is stored")
    header, _, rest = head.partition(b"\n\n")
    file = _File(header)
    for lines in read_lines(chain([rest], blocks), 2 * count, None if limit is None else 2 * limit):
        if columns and (by_columns := file.by_columns(lines)) is not None:
            yield by_columns
            continue
        points, failure = file.as_lines(lines) if columns else file.rewritten(lines)
        if points.count:
            yield points
        if failure is not None:
            raise failure


class _File:
    """What the header of a file says, and the tags that its points had so far."""

    def __init__(self, header: bytes) -> None:
        first, *names = header.split(b"\n")
        self._numbers = frozenset(
            pair.rpartition(b" ")[0].decode(errors="replace")
            for pair in first.split(b",")[1:]
            if not pair.endswith(b" string")
        )
        self._formats = {name: _Format(name, fields) for name, *fields in (line.split(b",") for line in names)}
        self._skipped = len(names) + 2
        self._tags: dict[bytes, bytes] = {}

    def as_lines(self, lines: Lines) -> tuple[Lines, Broken | None]:
        """Return points as line protocol, those before the first damaged one, and the error for that."""
        texts, found = lines.split(), []
        first = lines.first + self._skipped
        why: tuple[int, str] | None = None
        if len(texts) % 2:
            why = len(texts) - 1, "it is half a point: the file was cut"
        for index, (of, values) in enumerate(zip(texts[0::2], texts[1::2], strict=False)):
            name, time_ns, *cells = [*values.split(b","), b""] if b"," not in values else values.split(b",")
            known = self._formats.get(name)
            if not of.startswith(START):
                why = 2 * index, "it does not begin with `tags,`"
            elif known is None or known.count != len(cells):
                why = 2 * index + 1, "it is not a measurement of the header with its time and fields"
            else:
                if of not in self._tags:
                    self._tags[of] = _tags(of)
                if line := known.line(cells):
                    found.append(line % (self._tags[of], *filter(None, cells), time_ns))
                    continue
                why = 2 * index + 1, "it has no field"
            break
        points = Lines(b"".join(found), len(found), first + 1, 2, self._numbers)
        if why is None:
            return points, None
        text = shortened(printable(texts[why[0]].decode(errors="replace")), 80)
        return points, Broken(
            f"line {first + why[0]:,} is no line of points: {why[1]}: '{text}'; all points before it are stored"
        )

    def by_columns(self, lines: Lines) -> Points | None:
        """Return points that are read by columns; None if one of them is to be looked at by itself."""
        try:
            found = self._outline(lines)
            tables = [
                known.table(found.letters, rows, found.marks, found.begins[rows]) for known, rows in found.rows_of
            ]
        except Odd:
            return None
        return Points(found.heads, found.head_of, tables, self._numbers, lambda: self.as_lines(lines)[0])

    def rewritten(self, lines: Lines) -> tuple[Lines, Broken | None]:
        """Return the same as `as_lines`, of which most are written by columns."""
        try:
            found = self._outline(lines)
            heads, written = texts(found.heads), np.empty(len(found.begins), dtype=object)
            for known, rows in found.rows_of:
                tags = Part(heads, found.head_of[rows])
                written[rows] = known.lines(found.letters, found.marks, found.begins[rows], tags)
        except Odd:
            return self.as_lines(lines)
        data = b"".join(written.tolist())
        return Lines(data, len(written), lines.first + self._skipped + 1, 2, self._numbers), None

    def _outline(self, lines: Lines) -> _Outline:
        letters, count = Letters(lines.data, b"\n"), lines.count // 2
        marks = np.concatenate([[letters.begin - 1], letters.marks(b",\n")])
        feeds = np.flatnonzero(letters.octets[marks[1:]] == ord("\n")) + 1
        if len(feeds) != lines.count or lines.count % 2:
            raise Odd
        begins = feeds[0::2]
        widths = feeds[1::2] - begins - 2
        of, tags_of = letters.different(marks[np.concatenate([[0], feeds[1:-1:2]])] + 1, marks[begins])
        if not all(head.startswith(START) for head in of):
            raise Odd
        names = marks[begins] + 1
        lengths = marks[begins + 1] - names
        which, rows_of = np.full(count, -1), []
        for number, (name, known) in enumerate(self._formats.items()):
            same = (lengths == len(name)) & (widths == known.count)
            same[same] = letters.equal(names[same][:, None], [name])
            which[same] = number
            if len(rows := np.flatnonzero(same)):
                rows_of.append((known, rows))
        if (which < 0).any():
            raise Odd
        self._tags |= {head: _tags(head) for head in of if head not in self._tags}
        firsts = [known.name for known in self._formats.values()]
        pairs, head_of = np.unique(tags_of * len(firsts) + which, return_inverse=True)
        heads = [firsts[pair % len(firsts)] + self._tags[of[pair // len(firsts)]] for pair in pairs.tolist()]
        return _Outline(letters, marks, begins, rows_of, heads, head_of)


@dataclass(frozen=True, slots=True, eq=False)
class _Outline:
    """The form of some points: the places of all commas and line feeds, as `marks`, and the points of each measurement.

    The second line of point i begins behind the mark number `begins[i]`; `heads[head_of[i]]` are its measurement and
    tags in line protocol.
    """

    letters: Letters
    marks: Places
    begins: Places
    rows_of: Sequence[tuple[_Format, Places]]
    heads: Sequence[bytes]
    head_of: Places


def _tags(head: bytes) -> bytes:
    """Return the tags of a point as line protocol has them, without those that are empty."""
    return b"".join(b"," + _pair(pair) for pair in head.split(b",")[1:] if not pair.endswith(b"="))


def _pair(pair: bytes) -> bytes:
    name, _, text = pair.partition(b"=")
    return _escaped(name) + b"=" + _escaped(text)


def _escaped(text: bytes) -> bytes:
    """Return a name or tag with the escapes of line protocol; the format itself has none."""
    return text.replace(b" ", b"\\ ").replace(b"=", b"\\=")
