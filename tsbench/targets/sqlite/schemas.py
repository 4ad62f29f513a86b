"""Schemas of SQLite: layouts, and statements for batches and queries.

SQLite's driver does not yield to gevent, so it is called from a pool of threads: connections may change threads, but
two threads never use one at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import sql
from tsbench.model import WriteMode
from tsbench.targets.base import Operation, Payload, Statement
from tsbench.targets.sql import ColumnTypes, SqlSchema, SqlText, insert, key_of, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query
    from tsbench.targets.base import Command

APPLICATION_ID = 0x7473626E  # "tsbn" in the header of our files


@dataclass(frozen=True, slots=True)
class Checkpoint(Operation):
    """Move the write-ahead log into the file: a statement that says in its answer, not as an error, that it could not.

    The answer is (busy, pages in the log, pages moved).
    """

    text: str = "PRAGMA wal_checkpoint(TRUNCATE)"


class _Text(SqlText):
    """SQLite dialect of the query compiler; times are integers, so that ns stay exact and buckets are divisions."""

    numbers_rows = True
    languages = ("sqlite", "sql")

    def __init__(self, unique: str) -> None:
        super().__init__()
        self.unique = unique

    def bound(self, time_ns: int) -> int:
        return time_ns

    def bucket(self, column: str, bucket_ns: int) -> str:
        return f"{column} / {bucket_ns} * {bucket_ns}"

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"{column} / {bucket_ns}"


@dataclass(frozen=True, slots=True)
class SqliteSchema(SqlSchema):
    """A schema of SQLite: one table per measurement, and one of the tags.

    `wal` keeps points in the order of arrival under two indexes, as TSBS's schema for PostgreSQL. `clustered` stores
    them in the order of the key itself (WITHOUT ROWID), so one point per series and time, the last written, and no
    index on time alone.
    """

    name: str
    clustered: bool
    types: ClassVar = ColumnTypes(
        "INTEGER NOT NULL", "INTEGER NOT NULL", "REAL", "INTEGER", "TEXT", "INTEGER PRIMARY KEY", "TEXT", "INTEGER"
    )
    max_parameters: ClassVar = 32_766  # default of SQLITE_MAX_VARIABLE_NUMBER; some distributions allow more

    @property
    def keeps_duplicates(self) -> bool:
        """True if two points of a series at the same time are both stored."""
        return not self.clustered

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return commands that collect statistics for the planner and move the log into the file."""
        return [*(Statement(f"ANALYZE {quoted(m.name)}") for m in measurements), Checkpoint()]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return one row, statements of up to 32,766 parameters, or rows for `executemany`, for one transaction."""
        m, writes = batch.measurement, sql.writes(_columns(batch), points)
        verb = "INSERT OR REPLACE" if self.clustered else "INSERT"
        if mode is WriteMode.MULTI:
            return (self.inserts(m, rows, nbytes, verb) for rows, nbytes in writes)
        text = insert(m, 1, verb)
        return (Payload(mode, m.name, text, rows, len(rows), nbytes) for rows, nbytes in writes)

    def compile(self, query: Query) -> Statement:
        return _Text('"time"' if self.clustered else "rowid").statement(query)

    def create_table(self, m: Measurement) -> list[str]:
        key = '"tags_id", "time"' if m.tags else '"time"'
        if self.clustered:
            return [f"CREATE TABLE {quoted(m.name)} ({self.columns(m)}, PRIMARY KEY ({key})) WITHOUT ROWID"]
        made = [f"CREATE TABLE {quoted(m.name)} ({self.columns(m)})"]
        if m.tags:
            made.append(f"CREATE INDEX {quoted(f'{m.name}_series_time')} ON {quoted(m.name)} ({key})")
        return [*made, f'CREATE INDEX {quoted(f"{m.name}_time")} ON {quoted(m.name)} ("time")']

    def create_tags(self, tags: Mapping[str, Codes]) -> Iterator[Statement]:
        yield from SqlSchema.create_tags(self, tags)
        yield Statement(f'CREATE INDEX "tags_key" ON "tags" ({key_of(tags)})')


def _columns(batch: Batch) -> list[Sequence[Any]]:
    return sql.columns(batch, batch.time_ns.tolist(), extra_json=bool(batch.measurement.own_tags))


WAL = SqliteSchema("wal", clustered=False)
CLUSTERED = SqliteSchema("clustered", clustered=True)
