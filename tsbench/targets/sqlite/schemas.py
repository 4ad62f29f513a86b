# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""Schemas of SQLite: layouts, and statements for batches and queries.

SQLite's driver does not yield to gevent, so it is called from a pool of threads: connections may change threads, but
two threads never use one at once.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from tsbench.encode import sql
from tsbench.model import Batch, Codes, Kind, WriteMode
from tsbench.targets.base import Command, Operation, Payload, Statement, Unsupported
from tsbench.targets.sql import SqlText, fields, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Latest, Measurement, Query

MAX_PARAMETERS = 32_766  # default of SQLITE_MAX_VARIABLE_NUMBER; some distributions allow more
_COLUMN_TYPE = {Kind.FLOAT: "REAL", Kind.INT: "INTEGER"}
APPLICATION_ID = 0x7473626E  # "tsbn" in the header of our files


@dataclass(frozen=True, slots=True)
class Checkpoint(Operation):
    """Move the write-ahead log into the file: a statement that says in its answer, not as an error, that it could not.

    The answer is (busy, pages in the log, pages moved).
    """

    text: str = "PRAGMA wal_checkpoint(TRUNCATE)"


class _Text(SqlText):
    """SQLite dialect of the query compiler; times are integers, so that ns stay exact and buckets are divisions."""

    def __init__(self, *, clustered: bool) -> None:
        super().__init__()
        self._clustered = clustered

    def mark(self, number: int) -> str:  # noqa: ARG002 - SQLite counts them itself
        return "?"

    def bound(self, time_ns: int) -> int:
        return time_ns

    def bucket(self, column: str, bucket_ns: int) -> str:
        return f"{column} / {bucket_ns} * {bucket_ns}"

    def among(self, column: str, keys: Sequence[str]) -> str:
        return f"{column} IN ({', '.join(self.arg(key) for key in keys)})"

    def latest(self, query: Latest) -> str:
        # SQLite has no LATERAL: each tag row finds its newest point by index; `row` is the layout's unique column.
        m = query.measurement
        before = f' AND x."time" < {self.arg(query.before_ns)}' if query.before_ns is not None else ""
        row = '"time"' if self._clustered else "rowid"
        same = 'm."tags_id" = t."id" AND ' if self._clustered else ""
        where = self.chosen(m, query.keys, tag_table="t")
        return (
            f'SELECT m."time", t.{quoted(m.key or "")}, {fields("m", query.fields)}\n'
            f'FROM "tags" t JOIN {quoted(m.name)} m ON {same}m.{row} = (\n'
            f"  SELECT x.{row} FROM {quoted(m.name)} x\n"
            f'  WHERE x."tags_id" = t."id"{before}\n'
            '  ORDER BY x."time" DESC LIMIT 1\n'
            f")\n{'WHERE ' + where[0] if where else ''}"
        ).rstrip()


@dataclass(frozen=True, slots=True)
class SqliteSchema:
    """A schema of SQLite: one table per measurement, and one of the tags.

    `wal` keeps points in the order of arrival under two indexes, as TSBS's schema for PostgreSQL. `clustered` stores
    them in the order of the key itself (WITHOUT ROWID), so one point per series and time, the last written, and no
    index on time alone.
    """

    name: str
    clustered: bool
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    @property
    def keeps_duplicates(self) -> bool:
        """True if two points of a series at the same time are both stored."""
        return not self.clustered

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Return the statements that create empty tables in place of existing ones."""
        made = list(self.drop(measurements))
        if tags:
            made += _create_tags(tags)
        for m in measurements:
            made += [Statement(text) for text in self._create_table(m)]
        return made

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements that drop the tables and the tags, where they exist."""
        tables = [*(m.name for m in measurements), "tags"]
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in tables]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return commands that collect statistics for the planner and move the log into the file."""
        return [*(Statement(f"ANALYZE {quoted(m.name)}") for m in measurements), Checkpoint()]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Return one row, statements of up to 32,766 parameters, or rows for `executemany`, for one transaction."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        if len(batch):
            return next(self.encode_each(batch, len(batch), mode))
        m = batch.measurement
        return Payload(mode, m.name, _insert(m, 1, replaces=self.clustered), [], 0, 0)

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        m, writes = batch.measurement, sql.writes(_columns(batch), points)
        if mode is WriteMode.MULTI:
            return (self._statements(m, rows, nbytes) for rows, nbytes in writes)
        text = _insert(m, 1, replaces=self.clustered)
        return (Payload(mode, m.name, text, rows, len(rows), nbytes) for rows, nbytes in writes)

    def _statements(self, m: Measurement, rows: Sequence[tuple[Any, ...]], nbytes: int) -> Payload:
        """Return rows as statements of as many parameters as one may have."""
        pieces = [
            Statement(_insert(m, len(piece), replaces=self.clustered), sql.flat(piece))
            for piece in sql.chunks(rows, MAX_PARAMETERS)
        ]
        return Payload(WriteMode.MULTI, m.name, pieces[0].text, pieces, len(rows), nbytes)

    def compile(self, query: Query) -> Statement:
        """Return the query as SQL."""
        return _Text(clustered=self.clustered).statement(query)

    def _create_table(self, m: Measurement) -> list[str]:
        of_fields = [f"{quoted(f.name)} {_COLUMN_TYPE[f.kind]}" for f in m.fields]
        columns = ['"time" INTEGER NOT NULL', *(['"tags_id" INTEGER NOT NULL'] if m.tags else []), *of_fields]
        columns += ['"additional_tags" TEXT'] if m.own_tags else []
        key = '"tags_id", "time"' if m.tags else '"time"'
        if self.clustered:
            return [f"CREATE TABLE {quoted(m.name)} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"]
        made = [f"CREATE TABLE {quoted(m.name)} ({', '.join(columns)})"]
        if m.tags:
            made.append(f"CREATE INDEX {quoted(f'{m.name}_series_time')} ON {quoted(m.name)} ({key})")
        return [*made, f'CREATE INDEX {quoted(f"{m.name}_time")} ON {quoted(m.name)} ("time")']


@lru_cache(maxsize=32)  # of one row it takes longer to write than the values, of a thousand as long
def _insert(m: Measurement, height: int, *, replaces: bool) -> str:
    columns = ["time", *(["tags_id"] if m.tags else []), *m.field_names]
    columns += ["additional_tags"] if m.own_tags else []
    verb = "INSERT OR REPLACE INTO" if replaces else "INSERT INTO"
    return f"{verb} {quoted(m.name)} ({names(columns)}) VALUES {sql.values(len(columns), height, lambda _: '?')}"


def wait_for_locks(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Set the time for which the connection waits for another one's lock."""
    with suppress(sqlite3.Error):  # the connection is closed
        connection.execute(f"PRAGMA busy_timeout = {max(1, round(timeout_s * 1_000))}").fetchall()


def _columns(batch: Batch) -> list[Sequence[Any]]:
    return sql.columns(batch, batch.time_ns.tolist(), extra_json=bool(batch.measurement.own_tags))


def _create_tags(tags: Mapping[str, Codes]) -> Iterator[Statement]:
    columns = ", ".join(f"{quoted(name)} TEXT" for name in tags)
    yield Statement(f'CREATE TABLE "tags" ("id" INTEGER PRIMARY KEY, {columns})')
    for piece in sql.chunks(sql.tag_rows(tags), MAX_PARAMETERS):
        values = sql.values(len(piece[0]), len(piece), lambda _: "?")
        yield Statement(f'INSERT INTO "tags" VALUES {values}', tuple(chain.from_iterable(piece)))
    yield Statement(f'CREATE INDEX "tags_key" ON "tags" ({quoted(next(iter(tags)))})')


_CAUSES = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "disk full",
    sqlite3.SQLITE_INTERRUPT: "timeout",
    sqlite3.SQLITE_CONSTRAINT: "constraint",
    sqlite3.SQLITE_IOERR: "input/output",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_READONLY: "read only",
    sqlite3.SQLITE_ERROR: "statement",
}


def cause_of(error: sqlite3.Error) -> str:
    """Return the cause of an error, one of the words for `OpError.cause`."""
    if "no such table" in str(error):
        return "no table"
    # Extended codes carry the primary one in their low byte. Misuse of the module itself has no code.
    code = getattr(error, "sqlite_errorcode", None)
    return "driver" if code is None else _CAUSES.get(code & 0xFF, "server")


WAL = SqliteSchema("wal", clustered=False)
CLUSTERED = SqliteSchema("clustered", clustered=True)
