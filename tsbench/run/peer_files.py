"""Files in TSBS's format for SQL databases, as line protocol: a header with names, then two lines per point.

tags,name string,fleet string          the tags of all points, with Go's types
readings,latitude,velocity             the fields of each measurement
an empty line
tags,name=truck_1,fleet=South          a point: its tags, perhaps with more than the header's,
readings,1451606400000000000,72.4,     its measurement, time in ns, and fields by position; empty is NULL
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tsbench.errors import Broken
from tsbench.run.point_files import Lines, read_lines
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

START = b"tags,"
"""How such a file begins; line protocol of a measurement `tags` would have an `=` in its first line."""
_MOST_HEADER = 1 << 20


def point_lines(blocks: Iterator[bytes], count: int, limit: int | None = None) -> Iterator[Lines]:
    """Yield the points of a file as line protocol, `count` at a time: of line protocol itself, or of this format.

    Raises
    ------
    Broken
        As `read_lines`; or if a line is none of this format, after all points before it.
    """
    first = next(blocks, b"")
    whole = chain([first], blocks)
    if first.startswith(START) and b"=" not in first.partition(b"\n")[0]:
        return _translated(whole, count, limit)
    return read_lines(whole, count, limit)


def _translated(blocks: Iterator[bytes], count: int, limit: int | None) -> Iterator[Lines]:
    head = b""
    while b"\n\n" not in head:
        block = next(blocks, b"")
        head += block
        if not block or len(head) > _MOST_HEADER:
            raise Broken("line 1 begins a header of TSBS, but no empty line ends it; nothing is stored")
    header, _, rest = head.partition(b"\n\n")
    prefixes: dict[bytes, list[bytes]] = {}
    first, *names = header.split(b"\n")
    numbers = frozenset(
        pair.rpartition(b" ")[0].decode(errors="replace")
        for pair in first.split(b",")[1:]
        if not pair.endswith(b" string")
    )
    for line in names:
        name, *fields = line.split(b",")
        prefixes[name] = [(b"," if i else b"") + _escaped(field) + b"=" for i, field in enumerate(fields)]
    skipped = header.count(b"\n") + 2
    tags: dict[bytes, bytes] = {}
    failure: Exception | None = None
    lines = read_lines(chain([rest], blocks), 2 * count, None if limit is None else 2 * limit)
    while failure is None:
        try:
            some = next(lines)
        except StopIteration:
            return
        points, failure = _points(some, prefixes, tags, skipped)
        points = replace(points, numbers=numbers)
        if points.count:
            yield points
    raise failure


def _points(
    lines: Lines, prefixes: Mapping[bytes, Sequence[bytes]], tags: dict[bytes, bytes], skipped: int
) -> tuple[Lines, Broken | None]:
    """Return points as line protocol, those before the first damaged one, and the error for that."""
    texts, found = lines.split(), []
    first = lines.first + skipped
    why: tuple[int, str] | None = (len(texts) - 1, "it is half a point: the file was cut") if len(texts) % 2 else None
    for index, (of, values) in enumerate(zip(texts[0::2], texts[1::2], strict=False)):
        name, time_ns, *cells = [*values.split(b","), b""] if b"," not in values else values.split(b",")
        known = prefixes.get(name)
        if not of.startswith(START):
            why = 2 * index, "it does not begin with `tags,`"
        elif known is None or len(known) != len(cells):
            why = 2 * index + 1, "it is not a measurement of the header with its time and fields"
        else:
            if of not in tags:
                tags[of] = b"".join(b"," + _pair(pair) for pair in of.split(b",")[1:] if not pair.endswith(b"="))
            given = b"".join(prefix + cell for prefix, cell in zip(known, cells, strict=True) if cell)
            if given:
                found.append(b"%b%b %b %b\n" % (_escaped(name), tags[of], given.removeprefix(b","), time_ns))
                continue
            why = 2 * index + 1, "it has no field"
        break
    points = Lines(b"".join(found), len(found), first + 1, step=2)
    if why is None:
        return points, None
    text = shortened(printable(texts[why[0]].decode(errors="replace")), 80)
    return points, Broken(
        f"line {first + why[0]:,} is no line of points: {why[1]}: '{text}'; all points before it are stored"
    )


def _pair(pair: bytes) -> bytes:
    name, _, text = pair.partition(b"=")
    return _escaped(name) + b"=" + _escaped(text)


def _escaped(text: bytes) -> bytes:
    """Return a name or tag with the escapes of line protocol; the format itself has none."""
    return text.replace(b" ", b"\\ ").replace(b"=", b"\\=")
