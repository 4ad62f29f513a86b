"""The points of files as batches: the measurements, tags and series that a file turns out to have while it is read."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.model import Batch, Codes, Field, Kind, Measurement
from tsbench.run.point_files import Lines, matched, unescaped
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


Columns: TypeAlias = "dict[str, NDArray[Any]]"
_MANY = 256
"""Lines from which on the start of another library is worth its while."""
_NUMBERS = b"0123456789.+-eE"
_EQUALS, _COMMA, _LINE_FEED, _INTEGER = b"=,\ni"
_VALUES = re.compile(rb"=[^, ]*")


class Refused(Exception):  # noqa: N818 - names what happened
    """Raised for a line that no table can hold, by its index among the lines."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index, self.why = index, why


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points that were read by columns: by measurement and by the fields that they have, else in their order.

    `heads` are all points' measurements and tags as line protocol has them, in the file's order; a table has the
    places of its points in it, their times and their fields. Tags named in `numbers` are numbers. `as_lines` returns
    the same points as lines, of which each can be named.
    """

    heads: Sequence[bytes]
    tables: Sequence[tuple[str, NDArray[np.intp], NDArray[np.int64], Columns]]
    numbers: frozenset[str]
    as_lines: Callable[[], Lines]

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.heads)


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

    def batches(self, lines: Lines | Points) -> list[Batch]:
        """Return points by measurement and by the fields that they have, else in their order.

        Raises
        ------
        Refused
            If a table cannot hold a line.
        """
        if isinstance(lines, Points):
            return self._of_points(lines)
        plain = b"\\" not in lines.data and b'"' not in lines.data
        parts = lines.data[:-1].replace(b"\n", b" ").split(b" ") if plain else matched(lines)
        heads, texts, times = parts[0::3], parts[1::3], parts[2::3]
        if not plain and (odd := next((i for i, text in enumerate(texts) if b'"' in text), None)) is not None:
            raise Refused(odd, "a table holds numbers, not texts")
        self.numbers |= lines.numbers
        self._note_heads(heads)
        places = [self._of_head[head] for head in heads]
        rows_of: dict[str, list[int]] = {}
        for index, (name, _) in enumerate(places):
            rows_of.setdefault(name, []).append(index)
        found = [
            (name, group, columns)
            for name, rows in rows_of.items()
            for group, columns in self._columns(name, rows, texts, plain=plain)
        ]
        return [
            self._batch(name, columns, _times([times[i] for i in rows], rows), [places[i][1] for i in rows])
            for name, rows, columns in found
        ]

    def _of_points(self, points: Points) -> list[Batch]:
        self.numbers |= points.numbers
        self._note_heads(points.heads)
        series = np.array([self._of_head[head][1] for head in points.heads], dtype=np.int32)
        for name, rows, _, columns in points.tables:
            self._note_fields(name, [Field(one) for one in columns], int(rows[0]))
        return [self._batch(name, columns, time_ns, series[rows]) for name, rows, time_ns, columns in points.tables]

    def _note_heads(self, heads: Sequence[bytes]) -> None:
        """Add the measurements, tags and series of lines by their first parts."""
        new = {head: _parsed_head(head) for head in dict.fromkeys(heads) if head not in self._of_head}
        for head, (_, tags) in new.items():
            if odd := next((tag for tag in self.numbers & tags.keys() if not _is_number(tags[tag])), None):
                raise Refused(heads.index(head), f"the tag '{odd}' is to be a number, and '{tags[odd]}' is none")
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
                raise Refused(heads.index(head), why)
            number = self.series.setdefault(key, len(self.series))
            texts = tuple(own.get(tag, "") for tag in known.measurement.own_tags)
            if known.own.setdefault(number, texts) != texts:
                raise Refused(heads.index(head), f"the series had the tags {', '.join(known.own[number])} before")
            self._of_head[head] = name, number
        if new:
            for known in self._known.values():
                known.tags = None

    def _note_fields(self, name: str, fields: Sequence[Field], index: int) -> None:
        """Add the fields of a measurement when its first lines come; raise `Refused` for others later."""
        known = self._known[name]
        there = known.measurement.field_names
        new = [one for one in fields if one.name not in there]
        if new and known.parts:
            raise Refused(index, f"'{name}' had no field '{new[0].name}' before, and a table's fields are fixed")
        if new:
            known.measurement = replace(known.measurement, fields=(*known.measurement.fields, *new))

    def _columns(
        self, name: str, rows: list[int], texts: Sequence[bytes], *, plain: bool
    ) -> Iterator[tuple[list[int], Columns]]:
        """Yield the values of a measurement's lines, together of those with the same fields."""
        for some in _groups(rows, [texts[i].translate(None, _NUMBERS) for i in rows]):
            chosen = [texts[i] for i in some]
            self._note_fields(name, _fields(chosen[0]), some[0])
            if plain and len(some) >= _MANY and (columns := _read(chosen, self._kinds(name))) is not None:
                yield some, columns
                continue
            for group in _groups(some, _VALUES.sub(b"", b" ".join(chosen)).split(b" ")):
                self._note_fields(name, _fields(texts[group[0]]), group[0])
                yield group, _parsed([texts[i] for i in group], self._kinds(name), group)

    def _kinds(self, name: str) -> dict[str, Kind]:
        return {one.name: one.kind for one in self._known[name].measurement.fields}

    def _batch(
        self, name: str, fields: Columns, time_ns: NDArray[np.int64], series: Sequence[int] | NDArray[np.int32]
    ) -> Batch:
        known = self._known[name]
        names = tuple(fields)
        part = known.parts.get(names)
        if part is None:
            chosen = tuple(one for one in known.measurement.fields if one.name in fields)
            part = known.parts[names] = replace(known.measurement, fields=chosen)
        if known.tags is None:
            known.tags = self._all_tags(known)
        return Batch(part, 0, 0, time_ns, np.asarray(series, dtype=np.int32), known.tags, fields)

    def _all_tags(self, known: _Known) -> Mapping[str, Codes]:
        """Return the tags of every series so far, as a batch of the measurement has them."""
        without = ("",) * len(known.measurement.own_tags)
        of_own = [known.own.get(i, without) for i in range(len(self.series))]
        own = {tag: _codes([row[i] for row in of_own]) for i, tag in enumerate(known.measurement.own_tags)}
        return {**self.tags(), **own}


def _fields(text: bytes) -> list[Field]:
    """Return the fields of a line."""
    pairs = [pair.rsplit(b"=", 1) for pair in re.split(rb"(?<!\\),", text)]
    return [Field(unescaped(name), Kind.INT if value.endswith(b"i") else Kind.FLOAT) for name, value in pairs]


def _times(texts: Sequence[bytes], rows: Sequence[int]) -> NDArray[np.int64]:
    try:
        return np.array([*map(int, texts)], dtype=np.int64)
    except (ValueError, OverflowError):
        for row, text in zip(rows, texts, strict=True):
            if not re.fullmatch(rb"-?\d+", text):
                raise Refused(row, "its time is not a number of ns") from None
            if not -(2**63) <= int(text) < 2**63:
                raise Refused(row, "its time is out of range") from None
        raise


def _groups(rows: Sequence[int], keys: Sequence[bytes]) -> list[list[int]]:
    """Divide lines into those with the same key."""
    groups: dict[bytes, list[int]] = {}
    for row, key in zip(rows, keys, strict=True):
        groups.setdefault(key, []).append(row)
    return [*groups.values()]


def _parsed(texts: Sequence[bytes], kinds: Mapping[str, Kind], rows: Sequence[int]) -> Columns:
    """Return the values of lines with the same fields; raises `Refused` with the first of `rows` that has none."""
    tokens = b",".join(texts).replace(b"=", b",").split(b",")
    width = len(tokens) // len(texts)
    names = map(unescaped, tokens[0:width:2])
    return {name: _column(tokens[2 * i + 1 :: width], kinds[name], name, rows) for i, name in enumerate(names)}


@cache
def polars() -> Any:
    """Return the library that reads columns of texts in a third of Python's time; None if it is not installed."""
    try:
        import polars as pl  # noqa: PLC0415 - of the extra `report`
    except ImportError:
        return None
    return pl


def _read(texts: Sequence[bytes], kinds: Mapping[str, Kind]) -> Columns | None:
    """Return the values of lines with the same fields, as polars reads them; None if it cannot.

    Numbers are rounded as Python rounds them. A line that is not as the first one makes it None: who reads line by line
    then says which line, and why.
    """
    data = b"\n".join(texts) + b"\n"
    if (pl := polars()) is None or b"\r" in data:  # which it leaves out
        return None
    schema: dict[str, Any] = {}
    fields = _fields(texts[0])
    for one in fields:
        schema |= {f"name of {one.name}": pl.String, one.name: pl.Int64 if one.kind is Kind.INT else pl.Float64}
        if one.kind is Kind.INT:
            schema[f"after {one.name}"] = pl.String
    if any(kinds[one.name] is not one.kind for one in fields):
        return None
    # `a=1i,b=2.5` becomes `a,1,,b,2.5`: an integer's mark is a cell of its own
    octets = np.frombuffer(bytearray(data), dtype=np.uint8)
    ends = (octets[1:] == _COMMA) | (octets[1:] == _LINE_FEED)
    octets[:-1][(octets[:-1] == _INTEGER) & ends] = _COMMA
    octets[octets == _EQUALS] = _COMMA
    try:
        frame = pl.read_csv(octets.tobytes(), has_header=False, schema=schema, quote_char=None)
        same = [
            (pl.col(f"name of {one.name}") == one.name).all() & (pl.col(one.name).null_count() == 0) for one in fields
        ]
        if frame.height != len(texts) or not frame.select(pl.all_horizontal(same)).item():
            return None
    except (pl.exceptions.PolarsError, ValueError):
        return None
    found = {one.name: frame[one.name].to_numpy() for one in fields}
    return found if all(np.isfinite(column).all() for column in found.values()) else None


def _parsed_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Return the measurement and the tags of a line's first part."""
    name, *pairs = re.split(rb"(?<!\\),", head)
    found = [re.split(rb"(?<!\\)=", pair, maxsplit=1) for pair in pairs]
    return unescaped(name), {unescaped(tag): unescaped(text) for tag, text in found}


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
    """Return a field's values; raises `Refused` with the line, of `rows`, of the first that is none."""
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
        raise Refused(i, f"{name} is {text}, and {'an integer' if kind is Kind.INT else 'a number'} before")
    raise AssertionError(name)
