# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""SQLite in process: a file, its write-ahead log, and one connection per session.

It does not yield to gevent, so the drive calls it from a pool of threads: connections may change threads, never be
used by two at once.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tsbench.encode import sql
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import Batch, Codes, Kind, OpError, Outcome, Rows, WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported, timed
from tsbench.targets.sql import SqlText, fields, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Latest, Measurement, Query
    from tsbench.targets.base import Schema

MAX_PARAMETERS = 32_766  # SQLITE_MAX_VARIABLE_NUMBER as it is built by default; some distributions allow more
_COLUMN_TYPE = {Kind.FLOAT: "REAL", Kind.INT: "INTEGER"}
APPLICATION_ID = 0x7473626E  # "tsbn" in the header of our files

CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"


class _Text(SqlText):
    """Times are integers, so that nanoseconds stay exact and buckets are divisions."""

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
        # SQLite has no LATERAL: each tag row finds its newest point by index, by what identifies a row in the layout.
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
    """A table per measurement beside `tags`.

    `wal` keeps points in the order of arrival under two indexes, as the peers lay out PostgreSQL. `clustered` stores
    them in the order of the key itself (WITHOUT ROWID), so one point per series and time, the last written, and no
    index on time alone.
    """

    name: str
    clustered: bool
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    @property
    def keeps_duplicates(self) -> bool:
        """Whether two points of a series at the same time are both stored."""
        return not self.clustered

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Empty tables, whatever was there before."""
        made = list(self.drop(measurements))
        if tags:
            made += _create_tags(tags)
        for m in measurements:
            made += [Statement(text) for text in self._create_table(m)]
        return made

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """The tables and the tags, where they exist."""
        tables = [*(m.name for m in measurements), "tags"]
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in tables]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Statistics for the planner, and the log moved into the file."""
        return [*(Statement(f"ANALYZE {quoted(m.name)}") for m in measurements), Statement(CHECKPOINT)]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """One row, statements of up to 32,766 parameters, or rows for `executemany`, in one transaction."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        columns = _columns(batch)
        rows, nbytes = sql.rows(columns), sql.width_bytes(columns)
        if mode is not WriteMode.MULTI:
            text = self._insert(batch.measurement, 1)
            return Payload(mode, batch.measurement.name, text, rows, len(batch), nbytes)
        pieces = [
            Statement(self._insert(batch.measurement, len(piece)), sql.flat(piece))
            for piece in sql.chunks(rows, MAX_PARAMETERS)
        ]
        text = pieces[0].text if pieces else ""
        return Payload(mode, batch.measurement.name, text, pieces, len(batch), nbytes)

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        """One payload per point."""
        columns = _columns(batch)
        text, name = self._insert(batch.measurement, 1), batch.measurement.name
        each = sql.width_bytes(columns) // max(1, len(batch))
        return (Payload(WriteMode.SINGLE, name, text, [row], 1, each) for row in sql.rows(columns))

    def compile(self, query: Query) -> Statement:
        """The query as SQL."""
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

    def _insert(self, m: Measurement, height: int) -> str:
        columns = ["time", *(["tags_id"] if m.tags else []), *m.field_names]
        columns += ["additional_tags"] if m.own_tags else []
        verb = "INSERT OR REPLACE INTO" if self.clustered else "INSERT INTO"
        return f"{verb} {quoted(m.name)} ({names(columns)}) VALUES {sql.values(len(columns), height, lambda _: '?')}"


class SqliteSession:
    """One connection. After an error the open transaction is rolled back and the session goes on."""

    def __init__(self, connection: sqlite3.Connection, path: Path, timeout_s: float) -> None:
        self._connection = connection
        self._path = path
        self._timeout_s = timeout_s
        self._due = float("inf")
        # Called every 100,000 steps of SQLite's virtual machine (about a millisecond); true interrupts the statement.
        connection.set_progress_handler(lambda: time.monotonic() > self._due, 100_000)

    def run(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> None:
        """Execute statements in order, each committed; one that waits for a lock until the limit is a `timeout`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            for statement, left_s in timed(statements, limit_s):
                self._execute(statement, left_s)
        finally:
            wait_for_locks(self._connection, self._timeout_s)

    def _execute(self, statement: Statement, timeout_s: float) -> None:
        with self._errors(timeout_s, locked="timeout"):
            wait_for_locks(self._connection, timeout_s)
            found = self._connection.execute(statement.text, statement.params).fetchall()
        if statement.text == CHECKPOINT and found[0][0]:
            raise OpError(Outcome.FAILED, "timeout", "the write-ahead log is in use and was not moved")

    def write(self, payload: Payload) -> int:
        """Send a payload in one transaction; durable when it returns."""
        with self._errors(self._timeout_s):
            if payload.mode is WriteMode.SINGLE:
                return self._connection.execute(payload.text, payload.data[0]).rowcount
            # IMMEDIATE waits for its turn (busy_timeout); a transaction that begins as a reader would fail instead.
            self._connection.execute("BEGIN IMMEDIATE")
            if payload.mode is WriteMode.MULTI:
                written = sum(self._connection.execute(s.text, s.params).rowcount for s in payload.data)
            else:
                written = self._connection.executemany(payload.text, payload.data).rowcount
            self._connection.execute("COMMIT")
            return written

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query and fetch every row."""
        with self._errors(self._timeout_s):
            return Rows(columns, self._connection.execute(statement.text, statement.params).fetchall())

    def facts(self) -> Mapping[str, str]:
        """The library's version and the settings that decide durability and memory."""
        pragmas = ("journal_mode", "synchronous", "page_size", "cache_size", "mmap_size", "wal_autocheckpoint")
        with self._errors(self._timeout_s):
            found = {p: str(self._connection.execute(f"PRAGMA {p}").fetchone()[0]) for p in pragmas}
        return {"version": f"SQLite {sqlite3.sqlite_version}", **found}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Bytes of the pages of tables and of indexes, where the library can tell them apart (it reads every page)."""
        tables = [*(m.name for m in measurements), "tags"]
        marks = ", ".join("?" * len(tables))
        text = (
            "SELECT s.type, sum(d.pgsize) FROM sqlite_schema s JOIN dbstat d ON d.name = s.name\n"
            f"WHERE d.aggregate = TRUE AND s.tbl_name IN ({marks}) GROUP BY 1"
        )
        with self._errors(self._timeout_s):
            try:
                return dict(self._connection.execute(text, tables).fetchall())
            except sqlite3.OperationalError as error:
                if "dbstat" not in str(error):  # built without SQLITE_ENABLE_DBSTAT_VTAB
                    raise
            pragmas = ("page_size", "page_count", "freelist_count")
            page, count, free = (self._connection.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas)
            return {"table": page * (count - free)}

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _errors(self, timeout_s: float, *, locked: str = "busy") -> Iterator[None]:
        """Errors as `OpError`. They are all FAILED: in one process there is always an answer.

        `locked` is the cause if somebody else's lock outlasted the time limit.
        """
        self._due = time.monotonic() + timeout_s
        try:
            yield
        except sqlite3.Error as error:
            cause = cause_of(error)
            raise OpError(Outcome.FAILED, locked if cause == "busy" else cause, f"SQLite: {error}") from error
        finally:
            self._due = float("inf")
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


@dataclass(frozen=True, slots=True)
class SqliteTarget:
    """SQLite; an endpoint is `sqlite:///absolute/path.db`."""

    name: str
    schemas: Mapping[str, SqliteSchema]
    durable: bool = True
    cooperative: bool = False
    shared: bool = True

    def connect(
        self, endpoint: str, schema: Schema, *, timeout_s: float = 30.0, connect_timeout_s: float | None = None
    ) -> SqliteSession:
        """Open the file, making it if need be."""
        del schema  # the layout is in the statements
        url = urlsplit(endpoint)
        path = Path(unquote(url.path))
        if url.scheme != "sqlite" or url.netloc or not path.is_absolute():
            raise UserMistake(f"'{endpoint}' is not an SQLite endpoint; write sqlite:///absolute/path.db")
        if url.query or url.fragment:
            raise UserMistake(f"'{endpoint}': in a path write %3F for a question mark and %23 for a number sign")
        if not path.parent.is_dir():
            raise UserMistake(f"the directory {path.parent} does not exist; make it first")
        try:
            limit_s = timeout_s if connect_timeout_s is None else connect_timeout_s
            connection = sqlite3.connect(path, timeout=limit_s, isolation_level=None, check_same_thread=False)
            _claim(connection, path)
            # FULL syncs the log at every commit, like PostgreSQL's synchronous_commit=on; WAL's usual NORMAL does not.
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL").fetchall()
            wait_for_locks(connection, timeout_s)
        except sqlite3.Error as error:
            kind = Unreachable if cause_of(error) == "busy" else UserMistake
            raise kind(f"{path} cannot be opened as an SQLite database: {error}") from error
        return SqliteSession(connection, path, timeout_s)


def wait_for_locks(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Let the connection wait so long for a lock of another one."""
    with suppress(sqlite3.Error):  # it is closed
        connection.execute(f"PRAGMA busy_timeout = {max(1, round(timeout_s * 1_000))}").fetchall()


def _claim(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as ours, and refuse one that holds somebody's data: `create` drops tables."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and mark != APPLICATION_ID:
        connection.close()
        raise UserMistake(f"{path} holds a database that is not tsbench's; name a file that is not there yet")
    if mark != APPLICATION_ID:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


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
    """Return the cause of an error in the words of `OpError`."""
    if "no such table" in str(error):
        return "no table"
    # Extended codes carry the primary one in their low byte. Misuse of the module itself has no code.
    code = getattr(error, "sqlite_errorcode", None)
    return "driver" if code is None else _CAUSES.get(code & 0xFF, "server")


WAL = SqliteSchema("wal", clustered=False)
CLUSTERED = SqliteSchema("clustered", clustered=True)
TARGET = SqliteTarget("sqlite", {s.name: s for s in (WAL, CLUSTERED)})
