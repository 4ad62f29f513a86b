"""The points of files as batches: the measurements, tags and series that a file turns out to have while it is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tsbench.encode.file_columns import Points, PointTable
from tsbench.encode.line_grammar import (
    MOST_TIME_NS,
    NotALine,
    is_skipped,
    kind_of,
    numbers_of,
    parsed_head,
    parts_of,
    value_of,
)
from tsbench.encode.point_files import Lines
from tsbench.model import Batch, Codes, Field, Kind, Measurement
from tsbench.text import printable, shortened
from tsbench.units import format_exact_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.encode.file_columns import Columns
    from tsbench.encode.line_grammar import ParsedLine


class Refused(Exception):  # noqa: N818 - names what happened
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
    parts: dict[tuple[tuple[str, ...], frozenset[str]], Measurement] = field(default_factory=dict)
    """The measurement with the fields that some points have, by their names and those that some of them lack."""

    def so_far(self) -> Measurement:
        """Return the measurement with all of its fields, and which of them some point lacks."""
        names = {*self.measurement.field_names}
        in_all = names.intersection(
            *({one.name for one in part.fields if not one.nullable} for part in self.parts.values())
        )
        return self.measurement.having(replace(one, nullable=one.name not in in_all) for one in self.measurement.fields)


class Tables:
    """Turns lines into batches, and collects the measurements, tags and series of a file on the way.

    The tags of the first measurement are those that all series share; others are a measurement's own. Points that lack
    fields of the kinds `nulls` stay among the others of their measurement. Times are in units of `unit_ns`; those that
    are no multiple of `step_ns` are refused, or cut to one if it `rounds`.
    """

    def __init__(
        self,
        nulls: frozenset[Kind],
        kinds: frozenset[Kind] = frozenset(Kind),
        unit_ns: int = 1,
        step_ns: int = 1,
        *,
        rounds: bool = False,
    ) -> None:
        self._step_ns, self._rounds = step_ns, rounds
        self.shared: tuple[str, ...] = ()
        self.series: dict[tuple[str, ...], int] = {}
        self._of_head: dict[bytes, tuple[str, int]] = {}
        self._known: dict[str, _Known] = {}
        self._nulls, self._held, self._unit_ns = nulls, kinds, unit_ns

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All measurements so far."""
        return tuple(known.measurement for known in self._known.values())

    def whole_measurements(self) -> tuple[Measurement, ...]:
        """Return all measurements so far, with which of their fields some point lacks."""
        return tuple(known.so_far() for known in self._known.values())

    def tags(self, first: int = 0) -> dict[str, Codes]:
        """Return the shared tags of the series from number `first` on."""
        rows = list(self.series)[first:]
        return {tag: _codes([row[i] for row in rows]) for i, tag in enumerate(self.shared)}

    def batches(self, points: Lines | Points) -> list[Batch]:
        """Return points by measurement, and by the fields that they have where others must not lack them.

        Raises
        ------
        Refused
            If a table cannot hold a line.
        """
        if isinstance(points, Lines):
            points = self._by_lines(points)
        else:
            self._note_heads(points.heads, points.head_of)
            for table in points.tables:
                kinds = self._kinds(table.name)
                if any(kinds.get(one.name, one.kind) is not one.kind for one in table.fields):
                    raise Refused(int(table.rows[0]), "it has integers where others have floats, or the reverse")
        series = np.array([self._of_head[head][1] for head in points.heads], dtype=np.int32)[points.head_of]
        tables = []
        for table in points.tables:
            self._note_fields(table.name, table.fields, int(table.rows[0]))
            tables.append(replace(table, time_ns=self._times_ns(table)))
        return [self._batch(one, series[one.rows]) for table in tables for one in _apart(table, self._nulls)]

    def _times_ns(self, table: PointTable) -> NDArray[np.int64]:
        """Return times in ns that the database has, of those of a file; raises `Refused` for one that it has not."""
        if len(late := np.flatnonzero(np.abs(table.time_ns) > MOST_TIME_NS // self._unit_ns)):
            raise Refused(int(table.rows[late[0]]), "its time is out of range")
        times_ns = table.time_ns * self._unit_ns
        if self._step_ns == 1:
            return times_ns
        finer = times_ns % self._step_ns
        if not self._rounds and len(fine := np.flatnonzero(finer)):
            unit = format_exact_duration(self._step_ns)
            raise Refused(int(table.rows[fine[0]]), f"the database has times to {unit}; --round-times cuts them")
        return times_ns - finer

    def _by_lines(self, lines: Lines) -> Points:
        """Read points line by line, those with the same fields together."""
        parsed: list[ParsedLine] = []
        places: list[int] = []
        for index, line in enumerate(lines.split()):
            if is_skipped(line):
                continue
            try:
                parsed.append(parts_of(line))
            except NotALine as why:
                raise Refused(index, str(why)) from None
            places.append(index)
        numbers = {head: number for number, head in enumerate(dict.fromkeys(one.head for one in parsed))}
        head_of = np.array([numbers[one.head] for one in parsed], dtype=np.int64)
        self._note_heads([*numbers], head_of, places)
        groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for row, one in enumerate(parsed):
            groups.setdefault((self._of_head[one.head][0], one.names), []).append(row)
        tables = []
        for (name, _), rows in groups.items():
            fields = _fields(parsed[rows[0]], places[rows[0]])
            self._note_fields(name, fields, places[rows[0]])
            times = np.array([parsed[row].time_ns for row in rows], dtype=np.int64)
            columns, texts = _columns(parsed, rows, self._kinds(name), places)
            fields = [replace(one, texts=texts.get(one.name, ())) for one in fields]
            tables.append(PointTable(name, np.array(rows), times, fields, columns))
        return Points([*numbers], head_of, tables, lambda: lines)

    def _note_heads(
        self, heads: Sequence[bytes], head_of: NDArray[np.int64], places: Sequence[int] | None = None
    ) -> None:
        """Add the measurements, tags and series of lines by their different first parts.

        `places` are the lines' indexes, where some are left out.
        """

        def refused(head: bytes, why: str) -> Refused:
            row = int(np.flatnonzero(head_of == heads.index(head))[0])
            return Refused(row if places is None else places[row], why)

        new = {}
        for head in heads:
            if head not in self._of_head:
                try:
                    new[head] = parsed_head(head)
                except NotALine as error:
                    raise refused(head, str(error)) from None
        if new and not self._known:
            first = next(iter(new.values()))[0]
            self.shared = _names(tags for name, tags in new.values() if name == first)
        shared = {*self.shared}
        for head, (name, tags) in new.items():
            key = tuple(tags.get(tag, "") for tag in self.shared)
            own = {tag: text for tag, text in tags.items() if tag not in shared}
            known = self._known.get(name)
            if known is None:
                others = _names(known_names for other, known_names in new.values() if other == name)
                own_tags = tuple(tag for tag in others if tag not in shared)
                known = self._known[name] = _Known(Measurement(name, self.shared, (), own_tags))
            if unknown := [*(own.keys() - {*known.measurement.own_tags})]:
                why = f"'{name}' had no tag '{unknown[0]}' before, and a table's tags are fixed"
                raise refused(head, why)
            number = self.series.setdefault(key, len(self.series))
            texts = tuple(own.get(tag, "") for tag in known.measurement.own_tags)
            if known.own.setdefault(number, texts) != texts:
                raise refused(head, f"the series had the tags {', '.join(known.own[number])} before")
            self._of_head[head] = name, number
        if new:
            for known in self._known.values():
                known.tags = None

    def _note_fields(self, name: str, fields: Sequence[Field], index: int) -> None:
        """Add the fields of a measurement when its first lines come; raise `Refused` for others later."""
        known = self._known[name]
        kinds = self._kinds(name)
        names = [one.name for one in fields]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Refused(index, f"it has the field '{twice}' twice")
        new = [one for one in fields if one.name not in kinds]
        if new and known.parts:
            raise Refused(index, f"'{name}' had no field '{new[0].name}' before, and a table's fields are fixed")
        if other := next((one for one in new if one.kind not in self._held), None):
            raise Refused(index, f"{other.name} is {_A_KIND[other.kind]}, and this layout holds numbers only")
        if new:
            known.measurement = replace(known.measurement, fields=(*known.measurement.fields, *new))

    def _kinds(self, name: str) -> dict[str, Kind]:
        return {one.name: one.kind for one in self._known[name].measurement.fields}

    def _batch(self, table: PointTable, series: NDArray[np.int32]) -> Batch:
        known = self._known[table.name]
        lacking = frozenset(
            name for name, column in table.columns.items() if column.dtype.kind == "f" and np.isnan(column).any()
        )
        key = (*table.columns,), lacking
        part = known.parts.get(key)
        if part is None:
            chosen = [one for one in known.measurement.fields if one.name in table.columns]
            fields = [replace(one, nullable=one.name in lacking) for one in chosen]
            part = known.parts[key] = known.measurement.having(fields)
        if any(one.texts for one in table.fields):  # each batch has its own
            texts = {one.name: one.texts for one in table.fields}
            part = replace(part, fields=tuple(replace(one, texts=texts[one.name]) for one in part.fields))
        if known.tags is None:
            known.tags = self._all_tags(known)
        return Batch(part, 0, 0, table.time_ns, series, known.tags, table.columns)

    def _all_tags(self, known: _Known) -> Mapping[str, Codes]:
        """Return the tags of every series so far, as a batch of the measurement has them."""
        without = ("",) * len(known.measurement.own_tags)
        of_own = [known.own.get(i, without) for i in range(len(self.series))]
        own = {tag: _codes([row[i] for row in of_own]) for i, tag in enumerate(known.measurement.own_tags)}
        return {**self.tags(), **own}


def _apart(table: PointTable, nulls: frozenset[Kind]) -> Iterator[PointTable]:
    """Yield points of a table, those apart that lack other fields of kinds that are not among `nulls`."""
    lacks = {
        one.name: np.isnan(table.columns[one.name])
        for one in table.fields
        if one.kind not in nulls and table.columns[one.name].dtype.kind == "f"
    }
    if not any(lack.any() for lack in lacks.values()):
        yield table
        return
    _, which = np.unique(np.packbits(np.column_stack([*lacks.values()]), axis=1), axis=0, return_inverse=True)
    for number in range(int(which.max()) + 1):
        some = np.flatnonzero(which == number)
        fields = [one for one in table.fields if one.name not in lacks or not lacks[one.name][some[0]]]
        columns = {one.name: table.columns[one.name][some] for one in fields}
        columns |= {one.name: columns[one.name].astype(np.int64) for one in fields if one.kind is not Kind.FLOAT}
        yield PointTable(table.name, table.rows[some], table.time_ns[some], fields, columns)


def _fields(line: ParsedLine, index: int) -> list[Field]:
    """Return the fields of a line; raises `Refused` if one has no value."""
    try:
        return [Field(name, kind_of(name, value)) for name, value in zip(line.names, line.values, strict=True)]
    except NotALine as why:
        raise Refused(index, str(why)) from None


def _columns(
    lines: Sequence[ParsedLine], rows: Sequence[int], kinds: Mapping[str, Kind], places: Sequence[int]
) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    """Return the values of lines with the same fields, and the texts whose places those of texts are.

    Raises
    ------
    Refused
        With the first value that is of another kind than its field.
    """
    columns: Columns = {}
    texts: dict[str, tuple[str, ...]] = {}
    for number, name in enumerate(lines[rows[0]].names):
        values = [lines[row].values[number] for row in rows]
        if kinds[name] is Kind.TEXT:
            if not all(value.startswith(b'"') for value in values):
                raise _other_kind(lines, rows, kinds, places)
            codes = _codes([str(value_of(name, value)) for value in values])
            columns[name], texts[name] = codes.codes.astype(np.int64), codes.values
            continue
        column = numbers_of(values, kinds[name])
        if column is None:
            raise _other_kind(lines, rows, kinds, places)
        columns[name] = column
    return columns, texts


def _other_kind(
    lines: Sequence[ParsedLine], rows: Sequence[int], kinds: Mapping[str, Kind], places: Sequence[int]
) -> Refused:
    """Return the error for the first value that is none, or not of its field's kind."""
    for row in rows:
        for name, value in zip(lines[row].names, lines[row].values, strict=True):
            try:
                if kind_of(name, value) is not kinds[name]:
                    text = shortened(printable(value.decode(errors="replace")), 40)
                    return Refused(places[row], f"{name} is {text}, and {_A_KIND[kinds[name]]} before")
            except NotALine as why:
                return Refused(places[row], str(why))
    raise AssertionError(rows)


_A_KIND = {Kind.FLOAT: "a number", Kind.INT: "an integer", Kind.BOOL: "true or false", Kind.TEXT: "a text"}


def _names(of: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the names of all tags, in the order of the points that have the most of them."""
    return tuple(dict.fromkeys(tag for tags in sorted(of, key=len, reverse=True) for tag in tags))


def _codes(texts: Sequence[str]) -> Codes:
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return Codes(np.array([*map(places.__getitem__, texts)], dtype=np.int32), tuple(places))
