"""Files in TSBS's format for SQL databases, as line protocol: a header with names, then two lines per point.

tags,name string,fleet string          the tags of all points, with Go's types
readings,latitude,velocity             the fields of each measurement
an empty line
tags,name=truck_1,fleet=South          a point: its tags, perhaps with more than the header's,
readings,1451606400000000000,72.4,     its measurement, time in ns, and fields by position; empty is NULL
"""

from __future__ import annotations

from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from tsbench.errors import Broken
from tsbench.run.file_tables import Points, polars
from tsbench.run.point_files import Lines, read_lines
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.run.file_tables import Columns

START = b"tags,"
"""How such a file begins; line protocol of a measurement `tags` would have an `=` in its first line."""
_MOST_HEADER = 1 << 20
_MOST_COLUMNS = 60  # which of them a point has is a number of as many bits
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

    def columns(self, values: Sequence[bytes]) -> list[tuple[NDArray[np.intp], NDArray[np.int64], Columns]] | None:
        """Return places, times and fields of points, together of those with the same fields; None if one is damaged.

        Also without polars, which reads the numbers.
        """
        data = b"\n".join(values)
        if (pl := polars()) is None or b"\r" in data:  # which it leaves out
            return None
        is_plain = len({*self._plain_fields}) == self.count <= _MOST_COLUMNS
        if not is_plain or {text.count(b",") for text in values} != {self.count + 1}:
            return None
        schema = {"name": pl.String, "time": pl.Int64} | {f"{i}": pl.Float64 for i in range(self.count)}
        try:
            frame = pl.read_csv(data, has_header=False, schema=schema, quote_char=None)
        except (pl.exceptions.PolarsError, ValueError):
            return None
        if frame.height != len(values) or frame["time"].null_count():
            return None
        there = np.column_stack([frame[f"{i}"].is_not_null().to_numpy() for i in range(self.count)])
        numbers = np.column_stack([frame[f"{i}"].to_numpy() for i in range(self.count)])
        if not there.any(axis=1).all() or not np.isfinite(numbers[there]).all():
            return None
        times, found = frame["time"].to_numpy(), []
        which = there @ (1 << np.arange(self.count))
        for one in np.unique(which):
            places = np.flatnonzero(which == one)
            names = [(i, name) for i, name in enumerate(self._plain_fields) if there[places[0], i]]
            found.append((places, times[places], {name: numbers[places, i] for i, name in names}))
        return found


def point_lines(
    blocks: Iterator[bytes], count: int, limit: int | None = None, *, columns: bool = False
) -> Iterator[Lines | Points]:
    """Yield the points of a file as line protocol, `count` at a time: of line protocol itself, or of this format.

    Those of this format come by `columns` instead, if that is wanted and they can.

    Raises
    ------
    Broken
        As `read_lines`; or if a line is none of this format, after all points before it.
    """
    first = next(blocks, b"")
    whole = chain([first], blocks)
    if first.startswith(START) and b"=" not in first.partition(b"\n")[0]:
        return _translated(whole, count, limit, columns=columns)
    return read_lines(whole, count, limit)


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
        points, failure = file.as_lines(lines)
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
        texts = lines.split()
        heads, values = texts[0::2], texts[1::2]
        rows: dict[bytes, list[int]] = {}
        for index, text in enumerate(values):
            rows.setdefault(text.partition(b",")[0], []).append(index)
        new = [head for head in dict.fromkeys(heads) if head not in self._tags]
        is_known = rows.keys() <= self._formats.keys() and all(head.startswith(START) for head in new)
        if len(heads) != len(values) or not is_known:
            return None
        self._tags |= {head: _tags(head) for head in new}
        tables, first_parts = [], list(heads)
        for name, of in rows.items():
            known = self._formats[name]
            found = known.columns([values[i] for i in of])
            if found is None:
                return None
            for index in of:
                first_parts[index] = known.name + self._tags[heads[index]]
            places = np.array(of)
            tables += [(known.plain_name, places[chosen], times, columns) for chosen, times, columns in found]
        return Points(first_parts, tables, self._numbers, lambda: self.as_lines(lines)[0])


def _tags(head: bytes) -> bytes:
    """Return the tags of a point as line protocol has them, without those that are empty."""
    return b"".join(b"," + _pair(pair) for pair in head.split(b",")[1:] if not pair.endswith(b"="))


def _pair(pair: bytes) -> bytes:
    name, _, text = pair.partition(b"=")
    return _escaped(name) + b"=" + _escaped(text)


def _escaped(text: bytes) -> bytes:
    """Return a name or tag with the escapes of line protocol; the format itself has none."""
    return text.replace(b" ", b"\\ ").replace(b"=", b"\\=")
