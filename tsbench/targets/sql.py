# ruff: noqa: S608 - names are quoted, values are parameters
"""The query compiler for SQL databases: a table per measurement and one `tags` table.

The forms of the queries are TSBS's, completed: both bounds of every window, the key in the answer, and an order where
people expect one. Each database has a subclass for its dialect.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.model import OTHERS, Above, Bucketed, Count, Grouped, Latest, LatestBuckets, Query, Raw, Rows, Stored
from tsbench.targets.base import Operation, ServerObject, Statement, others_text
from tsbench.targets.inventory import Inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tsbench.model import Aggregate, Kind, Measurement

_FUNCTION: dict[Aggregate, str] = {"max": "max", "min": "min", "mean": "avg", "sum": "sum", "count": "count"}

_TIME = 'm."time"'
TAGS_FOLLOW = "(tags)"
"""Name of the column in the answer to `Stored` that stands between the columns of the points and those of the tags."""
OWN_TAGS = "additional_tags"
"""Name of the column with a measurement's own tags as JSON."""


@dataclass(frozen=True, slots=True)
class DeleteFile(Operation):
    """Close the session and delete the file that is its database."""

    text: str = "delete file"


def objects_in_file(path: Path, tables: Iterable[str], holds: int) -> list[ServerObject]:
    """Return the tables of a database in one file, which `holds` that many tables of anybody's, and the file."""
    found = [ServerObject(f"table {name}", (Statement(f"DROP TABLE {quoted(name)}"),)) for name in tables]
    return [*found, ServerObject(f"file {path}", (DeleteFile(),), str(path.stat().st_ino), holds)]


def table_names(measurements: Iterable[Measurement]) -> list[str]:
    """Return the names of the tables of measurements, with that of the tags."""
    return [*(measurement.name for measurement in measurements), "tags"]


Fetch: TypeAlias = "Callable[[str], tuple[Sequence[str], Sequence[tuple[Any, ...]]]]"
"""Executes a statement and returns the names of the answer's columns, and its rows."""


def inventory(fetch: Fetch, like_ours: str, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
    """Return the inventory of a database; the statement `like_ours` finds the tables with a time as ours have it."""
    ours = table_names(measurements)
    tables = tuple(sorted({name for (name,) in fetch(like_ours)[1]} - {*ours}))
    tags = next((m.tags for m in measurements if m.tags), ())
    if not series or not tags:
        return Inventory(tables)
    columns = ("id", *tags, OTHERS)
    of, found = fetch('SELECT * FROM "tags"')
    return Inventory(tables, Rows(columns, stored_records(found, of, columns)))


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(of: Iterable[str]) -> str:
    """Return names as a list of quoted identifiers."""
    return ", ".join(map(quoted, of))


class SqlText(ABC):
    """Compilation of one query. Parameters are collected in the order of their placeholders in the text."""

    def __init__(self) -> None:
        self.params: list[Any] = []

    @abstractmethod
    def mark(self, number: int) -> str:
        """Return the placeholder for a parameter by its number, from 1."""

    @abstractmethod
    def bound(self, time_ns: int) -> Any:
        """Return the parameter for a bound of a window."""

    @abstractmethod
    def bucket(self, column: str, bucket_ns: int) -> str:
        """Return the expression for the start of the bucket that contains a time."""

    @abstractmethod
    def among(self, column: str, keys: Sequence[str]) -> str:
        """Return the condition that a column holds one of the keys."""

    @abstractmethod
    def latest(self, query: Latest) -> str:
        """Return the text for the newest row of every series; only for measurements with tags."""

    def statement(self, query: Query) -> Statement:
        """Return the query's text and parameters."""
        match query:
            case Raw():
                text = self._rows(query, None)
            case Above():
                text = self._rows(query, query)
            case Bucketed():
                text = self._bucketed(query)
            case Grouped():
                text = self._grouped(query) if query.measurement.key else self._bucketed(query)
            case Latest():
                text = self.latest(query) if query.measurement.key else self._newest(query)
            case LatestBuckets():
                text = self._latest_buckets(query)
            case Count():
                text = f"SELECT count(*) AS points FROM {quoted(query.measurement.name)}"
            case Stored():
                text = self._stored(query)
        return Statement(text, tuple(self.params))

    def aggregate(self, function: str, column: str, kind: Kind) -> str:  # noqa: ARG002 - for dialects that need it
        """Return the expression for an aggregate of a field's column; an average has the precision of floats."""
        return f"{function}({column})"

    def any_series(self, measurement: Measurement) -> list[str]:  # noqa: ARG002 - for dialects that need it
        """Return a condition that every row fulfils and by which rows are looked up, as a list of none or one."""
        return []

    def arg(self, value: Any) -> str:
        """Add a parameter and return its placeholder."""
        self.params.append(value)
        return self.mark(len(self.params))

    def chosen(self, measurement: Measurement, keys: Sequence[str] | None, *, tag_table: str = "") -> list[str]:
        """Return the condition that a row's series is one of the keys, as a list of none or one.

        `tag_table` is the alias of the tags if they are joined already; otherwise a subquery looks them up.
        """
        if keys is None or measurement.key is None:
            return []
        if tag_table:
            return [self.among(f"{tag_table}.{quoted(measurement.key)}", keys)]
        condition = self.among(quoted(measurement.key), keys)
        return [f'm."tags_id" IN (SELECT "id" FROM "tags" WHERE {condition})']

    def _rows(self, query: Raw | Above, above: Above | None) -> str:
        m = query.measurement
        where = self._window(query)
        if above is not None:
            where.append(f"m.{quoted(above.field)} > {self.arg(above.threshold)}")
        where += self.chosen(m, query.keys, tag_table="t")
        key = f", t.{quoted(m.key)}" if m.key else ""
        join = ' JOIN "tags" t ON t."id" = m."tags_id"' if m.key else ""
        return (
            f'SELECT m."time"{key}, {fields("m", query.fields)}\n'
            f"FROM {quoted(m.name)} m{join}\n"
            f"WHERE {' AND '.join(where)}"
        )

    def _bucketed(self, query: Bucketed | Grouped) -> str:
        m = query.measurement
        where = self._window(query) + self.chosen(m, query.keys)
        return (
            f'SELECT {self.bucket(_TIME, query.bucket_ns)} AS "time", {self._aggregates(query)}\n'
            f"FROM {quoted(m.name)} m\n"
            f"WHERE {' AND '.join(where)}\n"
            "GROUP BY 1 ORDER BY 1"
        )

    def _grouped(self, query: Grouped) -> str:
        m = query.measurement
        where = self._window(query) + self.chosen(m, query.keys)
        return (
            f'SELECT b."time", t.{quoted(m.key or "")}, {fields("b", query.fields)}\n'
            "FROM (\n"
            f'  SELECT {self.bucket(_TIME, query.bucket_ns)} AS "time", m."tags_id", {self._aggregates(query)}\n'
            f"  FROM {quoted(m.name)} m\n"
            f"  WHERE {' AND '.join(where)}\n"
            "  GROUP BY 1, 2\n"
            ') b JOIN "tags" t ON t."id" = b."tags_id"\n'
            "ORDER BY 1, 2"
        )

    def _newest(self, query: Latest) -> str:
        m = query.measurement
        before = f'\nWHERE m."time" < {self.arg(self.bound(query.before_ns))}' if query.before_ns is not None else ""
        return (
            f'SELECT m."time", {fields("m", query.fields)}\n'
            f"FROM {quoted(m.name)} m{before}\n"
            'ORDER BY m."time" DESC LIMIT 1'
        )

    def _latest_buckets(self, query: LatestBuckets) -> str:
        return (
            f'SELECT {self.bucket(_TIME, query.bucket_ns)} AS "time", {self._aggregates(query)}\n'
            f"FROM {quoted(query.measurement.name)} m\n"
            f'WHERE m."time" < {self.arg(self.bound(query.before_ns))}\n'
            f"GROUP BY 1 ORDER BY 1 DESC LIMIT {int(query.limit)}"
        )

    def _stored(self, query: Stored) -> str:
        """Return the text for all columns of points and tags, whoever made them, and for points without tags."""
        where = []
        if query.start_ns is not None:
            where.append(f"{_TIME} >= {self.arg(self.bound(query.start_ns))}")
        if query.end_ns is not None:
            before = f"{_TIME} < {self.arg(self.bound(query.end_ns))}"
            where.append(before if where else f"({before} OR {_TIME} IS NULL)")
        where += self.any_series(query.measurement) if where else []
        tags = f", NULL AS {quoted(TAGS_FOLLOW)}, t.*" if query.measurement.tags else ""
        join = ' LEFT JOIN "tags" t ON t."id" = m."tags_id"' if tags else ""
        lines = [f"SELECT m.*{tags}", f"FROM {quoted(query.measurement.name)} m{join}"]
        lines += [f"WHERE {' AND '.join(where)}"] if where else []
        lines += [f"LIMIT {int(query.limit)}"] if query.limit is not None else []
        return "\n".join(lines)

    def _aggregates(self, query: Bucketed | Grouped | LatestBuckets) -> str:
        function = _FUNCTION[query.aggregate]
        kinds = {field.name: field.kind for field in query.measurement.fields}
        return ", ".join(
            f"{self.aggregate(function, f'm.{quoted(name)}', kinds[name])} AS {quoted(name)}" for name in query.fields
        )

    def _window(self, query: Raw | Above | Bucketed | Grouped) -> list[str]:
        start = self.arg(self.bound(query.window.start_ns))
        end = self.arg(self.bound(query.window.end_ns))
        return [f'm."time" >= {start}', f'm."time" < {end}']


def fields(table: str, of: Iterable[str]) -> str:
    """Return the columns of one table, in order."""
    return ", ".join(f"{table}.{quoted(name)}" for name in of)


def stored_records(
    found: Sequence[tuple[Any, ...]], of: Sequence[str], columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Return the rows of a `Stored` under its columns; `of` names those of the answer."""
    at = of.index(TAGS_FOLLOW) if TAGS_FOLLOW in of else len(of)
    places = {name: at + 1 + i for i, name in enumerate(of[at + 1 :])}
    places |= {name: i for i, name in enumerate(of[:at])}
    own_at = places.get(OWN_TAGS)
    ours = {places[name] for name in columns if name in places} | {at, own_at}
    ours |= {i for i, name in enumerate(of) if name == ("tags_id" if i < at else "id")}
    others = [(name, i) for i, name in enumerate(of) if i not in ours]
    if not others and all(name in places for name in columns[:-1]):
        known = itemgetter(*(places[name] for name in columns[:-1]))
        if own_at is None or not any(row[own_at] for row in found):
            return [(*known(row), None) for row in found]
    return [_stored_record(row, columns, places, own_at, others) for row in found]


def _stored_record(
    row: tuple[Any, ...],
    columns: tuple[str, ...],
    places: Mapping[str, int],
    own_at: int | None,
    others: Sequence[tuple[str, int]],
) -> tuple[Any, ...]:
    own = {} if own_at is None else _own_tags(row[own_at])
    values = [row[places[name]] if name in places else own.pop(name, None) for name in columns[:-1]]
    return (*values, others_text({**own, **{name: row[i] for name, i in others}}))


def _own_tags(stored: Any) -> dict[str, Any]:
    """Return a row's own tags by name; any other text is one value under the column's name."""
    if isinstance(stored, str):
        try:
            stored = json.loads(stored)
        except ValueError:
            return {OWN_TAGS: stored}
    return dict(stored) if isinstance(stored, dict) else {OWN_TAGS: stored}
