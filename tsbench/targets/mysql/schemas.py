# ruff: noqa: S608 - names are quoted by sql.quoted, values are literals
"""Schemas of MySQL and MariaDB: layouts, and statements for batches and queries.

Both have a text protocol, and mysqlclient no other: values are literals in the statements. Sessions set the SQL modes
ANSI_QUOTES and NO_BACKSLASH_ESCAPES, in which names and texts are quoted as in standard SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import mysql_text, sql
from tsbench.encode.mysql_text import literal
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.targets.base import Command, Operation, Payload, Statement, Unsupported, expressible
from tsbench.targets.sql import (
    ColumnTypes,
    RefusedNames,
    SqlSchema,
    SqlText,
    column_names,
    fields,
    key_of,
    names,
    quoted,
    table_names,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.encode.text_columns import Assembled
    from tsbench.model import Batch, Codes, Latest, Measurement, Query

_EPOCH = "TIMESTAMP'1970-01-01 00:00:00'"
_PIECE_BYTES = 256 * 1024
"""About the size of the pieces of a write, between which the session may divide it into several statements."""
_LINES = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY x'09' ESCAPED BY x'5c' LINES TERMINATED BY x'0a'"
"""The form of LOAD DATA's lines; hexadecimal, since no backslash escapes a delimiter in a text."""
_LAST_SPACE = re.compile(r" \Z")
_KEYS = 100
"""Most keys of a query that have a subquery each."""
_TAG_ROWS = 1_000
"""Rows of one INSERT into the table of tags."""


@dataclass(frozen=True, slots=True)
class CreateDatabase(Operation):
    """Create the endpoint's database if it is missing, and use it."""

    text: str = "create database"


@dataclass(frozen=True, slots=True)
class DropTables(Operation):
    """Drop these tables where they exist; nothing is done if the endpoint's database does not exist."""

    text: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Purge(Operation):
    """Wait until InnoDB has purged old versions of rows and written all changed pages."""

    text: str = "purge and flush InnoDB"


@dataclass(frozen=True, slots=True)
class Compact(Operation):
    """Flush the memtables of RocksDB, compact its files, and wait for that."""

    text: str = "flush and compact RocksDB"


@dataclass(frozen=True, slots=True)
class OfSeries(Statement):
    """A statement for the rows of any series of a table, in a window: looked up by a key that begins with the series.

    The rows of a window lie apart, those of each series in a place of their own. MySQL and MariaDB look such rows up by
    key only if the series are literals, and with a subquery read the whole table: 50,000 rows of 17 million, on disk,
    took 45 s. So a session asks for the `series` first, which the key answers, and puts them in place of that subquery.
    """

    series: str = ""


class MysqlText(SqlText):
    """Dialect of MySQL and MariaDB; times are DATETIME(6), microseconds in UTC.

    `by_time` says that the primary key begins with the time.
    """

    numbers_rows = True
    languages = ("mysql", "sql")
    integer_as_float = "CAST({} AS DOUBLE)"  # the average of a BIGINT has four decimals

    newest_first = 'x."tags_id" DESC, x."time" DESC'
    """By the time alone MySQL sorts all rows of the series, whose key it reads backwards if both columns are named."""

    def __init__(self, *, by_time: bool) -> None:
        super().__init__()
        self._by_time, self._series = by_time, ""

    def statement(self, query: Query) -> Statement:
        made = replace(super().statement(query), params=())  # which are literals in the text
        if not self._series:
            return made
        return OfSeries(made.text, has_tags_apart=made.has_tags_apart, series=self._series)

    def mark(self, number: int) -> str:
        """Return the value itself."""
        return literal(self.params[number - 1])

    def bound(self, time_ns: int) -> str:
        return sql.ceil_datetime(time_ns).replace(tzinfo=None).isoformat(" ", "microseconds")

    def bucket(self, column: str, bucket_ns: int) -> str:
        width, rest = divmod(bucket_ns, 1_000)
        if rest:
            raise Unsupported(f"DATETIME counts microseconds; it has no bucket of {bucket_ns} ns")
        passed = f"TIMESTAMPDIFF(MICROSECOND, {_EPOCH}, {column})"
        return f"{_EPOCH} + INTERVAL {passed} DIV {width} * {width} MICROSECOND"

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"TIMESTAMPDIFF(MICROSECOND, {_EPOCH}, {column}) DIV {bucket_ns // 1_000}"

    def latest(self, query: Latest) -> str:
        """Return the text for the newest row of every series, or of some.

        The newest times of all are found by a skip scan of the key (tags_id, time), one look-up a series; with one
        subquery a series MySQL took eighty times as long, and both with a latest moment. Some are looked up one by one.
        """
        if query.keys is not None or query.tagged:
            return super().latest(query)
        m, before = query.measurement, self.before(query, "x")
        where = f" WHERE {before[0]}" if before else ""
        return (
            f'SELECT m."time", t.{quoted(m.key or "")}, {fields("m", query.fields)}\n'
            "FROM (\n"
            f'  SELECT x."tags_id", max(x."time") AS "time" FROM {quoted(m.name)} x{where} GROUP BY x."tags_id"\n'
            f') n JOIN {quoted(m.name)} m ON m."tags_id" = n."tags_id" AND m."time" = n."time"\n'
            'JOIN "tags" t ON t."id" = n."tags_id"'
        )

    def of_keys(self, measurement: Measurement, keys: Sequence[str] | None, *, tag_table: str = "") -> list[str]:
        """Return the condition that a row's series is one of the keys, as a list of none or one.

        Each key has a subquery of its own, whose value is known before the rows are looked up: by series and time. With
        one subquery, or a join, both products read all rows of those series: 8,641 for the 360 of an hour.
        """
        if keys is None or measurement.key is None or len(keys) > _KEYS:
            return super().of_keys(measurement, keys, tag_table=tag_table)
        key = quoted(measurement.key)
        each = [f'(SELECT max("id") FROM "tags" WHERE {key} = {self.arg(one)})' for one in keys]
        if len(each) == 1:  # IN (SELECT ...) would be the one subquery
            return [f'm."tags_id" = {each[0]}']
        return [f'm."tags_id" IN ({", ".join(each)})' if each else "FALSE"]

    def any_series(self, measurement: Measurement) -> list[str]:
        """Return the condition where the key begins with the series."""
        if not measurement.tags or self._by_time:
            return []
        self._series = f'SELECT DISTINCT "tags_id" FROM {quoted(measurement.name)}'
        return [f'm."tags_id" IN ({self._series})']


@dataclass(frozen=True, slots=True)
class MysqlSchema(SqlSchema):
    """A table per measurement whose rows are stored in the order of the primary key, and one of the tags.

    The key is (tags_id, time); with `by_time` it is (time, tags_id), and (tags_id, time) is a second one. A series has
    one point per time, the last written: writes are REPLACE statements. Without tags, the key is the time alone.
    """

    name: str
    engine: str
    by_time: bool = False
    options: str = ""
    rest: Operation | None = None
    keeps_duplicates: bool = False
    longest_name: ClassVar = 64
    refused_names: ClassVar = RefusedNames("MySQL and MariaDB", _LAST_SPACE, _LAST_SPACE)
    types: ClassVar = ColumnTypes(
        "DATETIME(6) NOT NULL", "INTEGER NOT NULL", "DOUBLE", "BIGINT", "TEXT", "INTEGER PRIMARY KEY",
        "VARCHAR(255)",
    )  # fmt: skip

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        return [CreateDatabase(), *SqlSchema.create(self, measurements, tags)]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        tables = tuple(table_names(measurements))
        return [DropTables(f"DROP TABLE IF EXISTS {names(tables)}", tables)]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return the commands that bring the engine to rest and update its statistics, also those of sizes."""
        analyse = [Statement(f"ANALYZE TABLE {quoted(name)}") for name in tables_of(measurements)]
        return [*([self.rest] if self.rest else []), *analyse]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return rows for REPLACE statements, in pieces of a statement; or lines for LOAD DATA."""
        m = batch.measurement
        name, load, replace = m.name, _load(m), _replace(m)
        with expressible():
            if mode is WriteMode.SINGLE:
                rows = mysql_text.value_rows(batch)
                return (Payload(mode, name, replace, [row], 1, len(replace) + len(row)) for row in rows)
            if mode is WriteMode.BULK:
                lines = mysql_text.lines(batch).cut(points)
                return (Payload(mode, name, load, one.data, len(one), len(one.data)) for one in lines)
            values = mysql_text.values(batch).cut(points)
        return (_statements(name, replace, one) for one in values)

    def compile(self, query: Query) -> Statement:
        return MysqlText(by_time=self.by_time).statement(query)

    def create_table(self, m: Measurement) -> list[str]:
        if m.tags and self.by_time:
            keys = 'PRIMARY KEY ("time", "tags_id"), KEY "series_time" ("tags_id", "time")'
        else:
            keys = 'PRIMARY KEY ("tags_id", "time")' if m.tags else 'PRIMARY KEY ("time")'
        text = f"CREATE TABLE {quoted(m.name)} ({self.columns(m)}, {keys}) {self._engine} {self.options}"
        return [text.rstrip()]

    def create_tags(self, tags: Mapping[str, Codes]) -> Iterator[Statement]:
        table = self.tag_table(tags, f", KEY ({key_of(tags)})")
        yield Statement(f"{table.text} {self._engine}")
        yield from self.insert_tags(sql.tag_rows(tags), tags)

    def insert_tags(self, rows: Sequence[tuple[Any, ...]], tags: Mapping[str, Codes]) -> Iterator[Statement]:
        for start in range(0, len(rows), _TAG_ROWS):
            piece = rows[start : start + _TAG_ROWS]
            texts = (f"({', '.join('NULL' if v is None else literal(v) for v in row)})" for row in piece)
            yield Statement(f'INSERT INTO "tags" VALUES {", ".join(texts)}')

    @property
    def _engine(self) -> str:
        return f"ENGINE={self.engine} DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


def _statements(name: str, text: str, values: Assembled) -> Payload:
    """Return rows for one or more REPLACE statements, in pieces without the comma before the first row."""
    pieces = [piece.data[1:] for piece in values.cut_by_size(len(values), _PIECE_BYTES)]
    return Payload(WriteMode.MULTI, name, text, pieces, len(values), len(text) + len(values.data) - 1)


def _replace(m: Measurement) -> str:
    return f"REPLACE INTO {quoted(m.name)} ({names(column_names(m))}) VALUES "


def _load(m: Measurement) -> str:
    return f"REPLACE INTO TABLE {quoted(m.name)} {_LINES} ({names(column_names(m))})"


def loaded_as_values(payload: Payload) -> tuple[bytes, list[bytes]]:
    """Return lines for LOAD DATA as REPLACE statements: their beginning, and the rows in pieces of a statement.

    Every value is a text, which a server converts as it does those of lines.
    """
    head = payload.text.replace("INTO TABLE", "INTO", 1).replace(_LINES, "", 1) + " VALUES "
    texts, lines, start = [], bytes(payload.data), 0
    while start < len(lines):
        end = lines.find(b"\n", start + _PIECE_BYTES)
        piece = lines[start : end if end >= 0 else len(lines) - 1]
        for old, new in ((b"\\\\", b"\\"), (b"'", b"''"), (b"\t", b"','"), (b"\n", b"'),('")):
            piece = piece.replace(old, new)
        texts.append(b"('%b')" % piece)
        start = end + 1 if end >= 0 else len(lines)
    return head.encode(), texts


_COMPRESSED = "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8"
SCHEMAS = tuple(
    MysqlSchema(name + ("-by-time" if by_time else ""), engine, by_time, options, rest)
    for name, engine, options, rest in (
        ("innodb", "InnoDB", "", Purge()),
        ("innodb-compressed", "InnoDB", _COMPRESSED, Purge()),
        ("rocksdb", "RocksDB", "", Compact()),
        ("tokudb", "TokuDB", "", None),
    )
    for by_time in (False, True)
)


def statements_within(head: bytes, pieces: Sequence[bytes], limit: int) -> list[bytes]:
    """Return the pieces as statements that are as long as the server takes them.

    Raises
    ------
    OpError
        FAILED `too large` if a single piece is longer.
    """
    statements: list[bytes] = []
    chosen: list[bytes] = []
    length = len(head)
    for piece in pieces:
        if len(head) + len(piece) >= limit:
            text = f"{len(piece):,} bytes of rows are more than the server's max_allowed_packet ({limit:,} bytes)"
            raise OpError(Outcome.FAILED, "too large", text)
        if chosen and length + len(piece) + 1 >= limit:
            statements.append(head + b",".join(chosen))
            chosen, length = [], len(head)
        chosen.append(piece)
        length += len(piece) + 1
    return [*statements, head + b",".join(chosen)] if chosen else statements
