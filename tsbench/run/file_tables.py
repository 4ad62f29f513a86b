"""The points of files as batches: the measurements, tags and series that a file turns out to have while it is read."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import Batch, Codes, Field, Kind, Measurement, OpError
from tsbench.run.bulk_load import Piece
from tsbench.run.point_files import LINE, Lines, good_part, looks_right, not_a_line
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import WriteMode
    from tsbench.targets.base import Schema

_VALUES = re.compile(rb"=[^, ]*")


class _Refused(Exception):  # noqa: N818 - names what happened
    """Raised for a line that no table can hold, by its index among the lines."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index, self.why = index, why


@dataclass(slots=True, eq=False)
class _Known:
    """A measurement of a file, and the own tags of its series."""

    measurement: Measurement
    own: dict[int, tuple[str, ...]] = field(default_factory=dict)
    tags: Mapping[str, Codes] | None = None
    parts: dict[tuple[str, ...], Measurement] = field(default_factory=dict)
    """The measurement with the fields that some points have, by their names in the lines' order."""


class Tables:
    """Turns lines into batches, and collects the measurements, tags and series of a file on the way.

    The tags of the first measurement are those that all series share; others are a measurement's own.
    """

    def __init__(self) -> None:
        self.shared: tuple[str, ...] = ()
        self.numbers: frozenset[str] = frozenset()
        """Tags whose values are numbers."""
        self.series: dict[tuple[str, ...], int] = {}
        self._of_head: dict[bytes, tuple[str, int]] = {}
        self._known: dict[str, _Known] = {}

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements so far."""
        return tuple(known.measurement for known in self._known.values())

    def tags(self, first: int = 0) -> dict[str, Codes]:
        """Return the shared tags of the series from number `first` on."""
        rows = list(self.series)[first:]
        columns = {tag: _codes([row[i] for row in rows]) for i, tag in enumerate(self.shared)}
        return {tag: replace(codes, is_number=tag in self.numbers) for tag, codes in columns.items()}

    def batches(self, lines: Lines) -> list[Batch]:
        """Return the points of lines by measurement and by the fields that they have, else in their order.

        Raises
        ------
        _Refused
            If a table cannot hold a line.
        """
        plain = b"\\" not in lines.data and b'"' not in lines.data
        parts = lines.data[:-1].replace(b"\n", b" ").split(b" ") if plain else _matched(lines)
        heads, texts, times = parts[0::3], parts[1::3], parts[2::3]
        if not plain and (odd := next((i for i, text in enumerate(texts) if b'"' in text), None)) is not None:
            raise _Refused(odd, "a table holds numbers, not texts")
        self.numbers |= lines.numbers
        self._note_heads(heads)
        places = [self._of_head[head] for head in heads]
        rows_of: dict[str, list[int]] = {}
        for index, (name, _) in enumerate(places):
            rows_of.setdefault(name, []).append(index)
        found = [(name, group) for name, rows in rows_of.items() for group in _alike(rows, texts)]
        for name, rows in found:
            self._note_fields(name, texts[rows[0]], rows[0])
        return [
            self._batch(name, rows, [texts[i] for i in rows], [times[i] for i in rows], [places[i][1] for i in rows])
            for name, rows in found
        ]

    def _note_heads(self, heads: Sequence[bytes]) -> None:
        """Add the measurements, tags and series of lines by their first parts."""
        new = {head: _parsed_head(head) for head in dict.fromkeys(heads) if head not in self._of_head}
        for head, (_, tags) in new.items():
            if odd := next((tag for tag in self.numbers & tags.keys() if not _is_number(tags[tag])), None):
                raise _Refused(heads.index(head), f"the tag '{odd}' is to be a number, and '{tags[odd]}' is none")
        if new and not self._known:
            first = next(iter(new.values()))[0]
            self.shared = _names(tags for name, tags in new.values() if name == first)
        for head, (name, tags) in new.items():
            key = tuple(tags.get(tag, "") for tag in self.shared)
            own = {tag: text for tag, text in tags.items() if tag not in self.shared}
            known = self._known.get(name)
            if known is None:
                others = _names(found for other, found in new.values() if other == name)
                own_tags = tuple(tag for tag in others if tag not in self.shared)
                known = self._known[name] = _Known(Measurement(name, self.shared, (), own_tags))
            if unknown := [tag for tag in own if tag not in known.measurement.own_tags]:
                why = f"'{name}' had no tag '{unknown[0]}' before, and a table's tags are fixed"
                raise _Refused(heads.index(head), why)
            number = self.series.setdefault(key, len(self.series))
            texts = tuple(own.get(tag, "") for tag in known.measurement.own_tags)
            if known.own.setdefault(number, texts) != texts:
                raise _Refused(heads.index(head), f"the series had the tags {', '.join(known.own[number])} before")
            self._of_head[head] = name, number
        if new:
            for known in self._known.values():
                known.tags = None

    def _note_fields(self, name: str, text: bytes, index: int) -> None:
        """Add the fields of a measurement when its first lines come; raise `_Refused` for others later."""
        known = self._known[name]
        there = known.measurement.field_names
        pairs = [pair.rsplit(b"=", 1) for pair in re.split(rb"(?<!\\),", text)]
        new = [Field(_unescaped(n), Kind.INT if v.endswith(b"i") else Kind.FLOAT) for n, v in pairs]
        new = [one for one in new if one.name not in there]
        if new and known.parts:
            raise _Refused(index, f"'{name}' had no field '{new[0].name}' before, and a table's fields are fixed")
        known.measurement = replace(known.measurement, fields=(*known.measurement.fields, *new))

    def _batch(self, name: str, rows: list[int], texts: list[bytes], times: list[bytes], series: list[int]) -> Batch:
        known = self._known[name]
        tokens = b",".join(texts).replace(b"=", b",").split(b",")
        width = len(tokens) // len(texts)
        names = tuple(map(_unescaped, tokens[0:width:2]))
        kinds = {one.name: one.kind for one in known.measurement.fields}
        fields = {
            field: _column(tokens[2 * i + 1 :: width], kinds[field], field, rows) for i, field in enumerate(names)
        }
        part = known.parts.get(names)
        if part is None:
            chosen = tuple(one for one in known.measurement.fields if one.name in fields)
            part = known.parts[names] = replace(known.measurement, fields=chosen)
        if known.tags is None:
            known.tags = self._all_tags(known)
        try:
            time_ns = np.array([*map(int, times)], dtype=np.int64)
        except OverflowError:
            odd = next(i for i, time in enumerate(times) if not -(2**63) <= int(time) < 2**63)
            raise _Refused(rows[odd], "its time is out of range") from None
        return Batch(part, 0, 0, time_ns, np.array(series, dtype=np.int32), known.tags, fields)

    def _all_tags(self, known: _Known) -> Mapping[str, Codes]:
        """Return the tags of every series so far, as a batch of the measurement has them."""
        without = ("",) * len(known.measurement.own_tags)
        of_own = [known.own.get(i, without) for i in range(len(self.series))]
        own = {tag: _codes([row[i] for row in of_own]) for i, tag in enumerate(known.measurement.own_tags)}
        return {**self.tags(), **own}


def _alike(rows: list[int], texts: Sequence[bytes]) -> list[list[int]]:
    """Divide lines of a measurement into those with the same fields."""
    chosen = [texts[i] for i in rows]
    tokens = b",".join(chosen).replace(b"=", b",").split(b",")
    width = 2 * chosen[0].count(b"=")
    if len(tokens) == width * len(rows) and tokens[0::2] == tokens[0:width:2] * len(rows):
        return [rows]
    groups: dict[bytes, list[int]] = {}
    for i, fields in zip(rows, _VALUES.sub(b"", b" ".join(chosen)).split(b" "), strict=True):
        groups.setdefault(fields, []).append(i)
    return [*groups.values()]


def _parsed_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Return the measurement and the tags of a line's first part."""
    name, *pairs = re.split(rb"(?<!\\),", head)
    found = [re.split(rb"(?<!\\)=", pair, maxsplit=1) for pair in pairs]
    return _unescaped(name), {_unescaped(tag): _unescaped(text) for tag, text in found}


def _names(of: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the names of all tags, in the order of the points that have the most of them."""
    return tuple(dict.fromkeys(tag for tags in sorted(of, key=len, reverse=True) for tag in tags))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _codes(texts: Sequence[str]) -> Codes:
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return Codes(np.array([*map(places.__getitem__, texts)], dtype=np.int32), tuple(places))


def _column(tokens: list[bytes], kind: Kind, name: str, rows: Sequence[int]) -> NDArray[Any]:
    """Return a field's values; raises `_Refused` with the line, of `rows`, of the first that is none."""
    try:
        if kind is Kind.INT:
            if all(token.endswith(b"i") for token in tokens):
                return np.array([int(token[:-1]) for token in tokens], dtype=np.int64)
        else:
            found = np.array([*map(float, tokens)])
            if np.isfinite(found).all():
                return found
    except (ValueError, OverflowError):
        pass
    for i, token in zip(rows, tokens, strict=True):
        text = shortened(printable(token.decode(errors="replace")), 40)
        with suppress(ValueError, OverflowError):
            if kind is Kind.INT and token.endswith(b"i") and abs(int(token[:-1])) < 2**63:
                continue
            if kind is Kind.FLOAT and math.isfinite(float(token)):
                continue
        raise _Refused(i, f"{name} is {text}, and {'an integer' if kind is Kind.INT else 'a number'} before")
    raise AssertionError(name)


def _matched(lines: Lines) -> list[bytes]:
    """Return the three parts of every line, of which some have escapes."""
    found = (LINE.fullmatch(line) for line in lines.split())
    return [part for one in found if one is not None for part in one.groups()]


def _unescaped(text: bytes) -> str:
    found = text.decode(errors="replace")
    return re.sub(r"\\([ ,=])", r"\1", found) if "\\" in found else found


# --- sources of a load ------------------------------------------------------------------------------------------------


class FileSource:
    """The pieces of a file, in its order.

    `create` is called before the first batch that needs new tables or series: with the tables, the measurements that
    are new, and the number of series that were known before.
    """

    def __init__(
        self,
        lines: Iterator[Lines],
        schema: Schema,
        mode: WriteMode,
        create: Callable[[Tables, Sequence[Measurement], int], None],
    ) -> None:
        self._lines, self._schema, self._mode, self._create = lines, schema, mode, create
        self._ready: list[Piece] = []
        self._failure: Exception | None = None
        self._made: set[str] = set()
        self._made_series = 0
        self.tables = Tables()
        self.names: dict[str, str] = {}
        """The first field of each measurement of lines that are sent as they are."""

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements so far; of lines that are sent as they are, only their names and a field."""
        if not self._schema.takes_lines:
            return self.tables.measurements
        return tuple(Measurement(name, (), (Field(first),)) for name, first in self.names.items())

    def __iter__(self) -> FileSource:
        return self

    def __next__(self) -> Piece:
        self.begin()
        if not self._ready and self._failure is not None:
            raise self._failure
        return self._ready.pop(0)

    def begin(self) -> None:
        """Read the first lines, so that the first tables exist, which sessions may need."""
        while not self._ready and self._failure is None:
            self._read()

    def _read(self) -> None:
        """Read the next lines; an error is raised when those before it have been handed out."""
        try:
            lines = next(self._lines)
            if not looks_right(lines):
                lines, self._failure = good_part(lines)
            if lines.count:
                self._ready += self._sent_as_they_are(lines) if self._schema.takes_lines else self._parsed(lines)
        except Exception as error:  # noqa: BLE001 - raised by `__next__`, also the end
            self._failure = error

    def _sent_as_they_are(self, lines: Lines) -> list[Piece]:
        found, values = _contents(lines)
        for name in found.keys() - self.names.keys():
            fields = LINE.fullmatch(lines.split()[found[name]])
            self.names[name] = _unescaped(re.split(rb"(?<!\\)=", fields[2], maxsplit=1)[0]) if fields else ""
        encode = partial(self._schema.encode_lines, lines.data, lines.count)
        return [Piece(encode, lines.count, values, partial(self._explained, lines), lines.first)]

    def _explained(self, lines: Lines, error: Exception) -> tuple[Piece | None, Exception]:
        """Return what to do about lines that the database refuses: the part before the first one that is none."""
        if not isinstance(error, OpError) or error.cause not in {"data", "partial write"}:
            return None, error
        before, found = good_part(lines)
        if found is None:
            last = lines.first + lines.count - 1
            return None, OpError(error.outcome, error.cause, f"lines {lines.first:,} to {last:,}: {error}")
        values = _contents(before)[1] if before.count else 0
        encode = partial(self._schema.encode_lines, before.data, before.count)
        return Piece(encode, before.count, values, number=lines.first), found

    def _parsed(self, lines: Lines) -> list[Piece]:
        try:
            batches = self.tables.batches(lines)
        except _Refused as refused:
            self._failure = not_a_line(lines, refused.index, refused.why)
            return self._parsed(lines.until(refused.index)) if refused.index else []
        new = [m for m in self.tables.measurements if m.name not in self._made]
        if new or len(self.tables.series) > self._made_series:
            self._create(self.tables, new, self._made_series)
            self._made |= {m.name for m in new}
            self._made_series = len(self.tables.series)
        return [Piece(partial(self._schema.encode, b, self._mode), len(b), b.values) for b in batches]


def _contents(lines: Lines) -> tuple[dict[str, int], int]:
    """Return the index of a line of each measurement, and the number of field values of all lines."""
    data = lines.data
    if b"\\" in data or b'"' in data:
        parts = _matched(lines)
        names = {re.split(rb"(?<!\\),", head)[0]: i for i, head in enumerate(parts[0::3])}
        return {_unescaped(name): i for name, i in names.items()}, b"".join(parts[1::3]).count(b"=")
    octets = np.frombuffer(data, dtype=np.uint8)
    spaces, equals = np.flatnonzero(octets == ord(" ")), np.flatnonzero(octets == ord("="))
    values = np.searchsorted(equals, spaces[1::2]) - np.searchsorted(equals, spaces[0::2])
    starts = [0, *(np.flatnonzero(octets[:-1] == ord("\n")) + 1).tolist()]
    firsts = enumerate(zip(starts, spaces[0::2].tolist(), strict=True))
    names = {data[start:end].partition(b",")[0]: i for i, (start, end) in firsts}
    return {_unescaped(name): i for name, i in names.items()}, int(values.sum())
