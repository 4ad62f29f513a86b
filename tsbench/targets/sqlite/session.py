# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""One SQLite connection as a session: time limits, pragmas, and the causes of errors."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.results.panels import Panel
from tsbench.targets.base import Plan
from tsbench.targets.sql import table_names
from tsbench.targets.sql_session import FileSession, foreign_file
from tsbench.targets.sqlite.schemas import APPLICATION_ID, Checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Payload, Schema, Statement
    from tsbench.targets.target import Endpoint

PANELS = (
    Panel("Write-ahead log", "bytes", "gauge", {"log.bytes": "file"}, explains_stalls=True),
    Panel("Moved from the log by checkpoints", "bytes", "rate", {"file.bytes": "file grown"}, explains_stalls=True),
)
"""What the report plots. A writer that finds the log full moves it into the file before it goes on."""


def connect(
    of: Endpoint, schema: Schema, *, timeout_s: float, connect_timeout_s: float, waiter: NewWaiter | None = None
) -> SqliteSession:
    """Open the file, making it if need be."""
    path = Path(of.path)
    try:
        connection = sqlite3.connect(path, timeout=connect_timeout_s, isolation_level=None, check_same_thread=False)
        _claim(connection, path)
        # FULL syncs the log at every commit, like PostgreSQL's synchronous_commit=on; WAL's usual NORMAL does not.
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL").fetchall()
        _wait_for_locks(connection, timeout_s)
    except sqlite3.Error as error:
        kind = Unreachable if SqliteSession.cause_of(error) == "busy" else UserMistake
        raise kind(f"{path} cannot be opened as an SQLite database: {error}") from error
    return SqliteSession(connection, path, timeout_s)


def _claim(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as ours, and refuse one with other data."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and mark != APPLICATION_ID:
        connection.close()
        raise foreign_file(path)
    if mark != APPLICATION_ID:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _wait_for_locks(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Set the time for which the connection waits for another one's lock."""
    with suppress(sqlite3.Error):  # the connection is closed
        connection.execute(f"PRAGMA busy_timeout = {max(1, round(timeout_s * 1_000))}").fetchall()


class SqliteSession(FileSession):
    """One connection to a database file, with a time limit for locks of other connections.

    SQLite's driver does not yield to gevent, so it is called from a pool of threads: connections may change threads,
    but two threads never use one at once.
    """

    product, error, panels = "SQLite", sqlite3.Error, PANELS
    tables = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
    like_ours = (
        "SELECT s.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c\n"
        "WHERE s.type = 'table' AND c.name = 'time' AND c.type IN ('INTEGER', 'INT')"
    )

    def __init__(self, connection: sqlite3.Connection, path: Path, timeout_s: float) -> None:
        super().__init__(connection, path, timeout_s)
        # Called every 100,000 steps of SQLite's virtual machine (about a millisecond); true interrupts the statement.
        connection.set_progress_handler(lambda: time.monotonic() > self.due_s, 100_000)

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        try:
            super().run(commands, timeout_s=timeout_s)
        finally:
            _wait_for_locks(self._connection, self._timeout_s)

    def execute(self, command: Command, timeout_s: float) -> None:
        """Execute one command; if it waits for a lock until the limit, the cause is `timeout`."""
        _wait_for_locks(self._connection, timeout_s)
        try:
            if isinstance(command, Checkpoint):
                self._checkpoint(command, timeout_s)
            else:
                super().execute(command, timeout_s)
        except OpError as error:
            if error.cause != "busy":
                raise
            raise OpError(error.outcome, "timeout", str(error)) from error

    def _checkpoint(self, command: Checkpoint, timeout_s: float) -> None:
        with self._op(timeout_s):
            ((is_busy, *_),) = self._fetch(command.text)[1]
        if is_busy:
            raise OpError(Outcome.FAILED, "busy", "the write-ahead log is in use and was not moved")

    def write(self, payload: Payload) -> int:
        """Send a payload in one transaction, which is durable on return."""
        with self._op() as connection:
            if payload.mode is WriteMode.SINGLE:
                self._may_commit = True
                return int(connection.execute(payload.text, payload.data[0]).rowcount)
            # IMMEDIATE waits for the lock (busy_timeout); a transaction that begins as a reader would fail instead.
            connection.execute("BEGIN IMMEDIATE")
            if payload.mode is WriteMode.MULTI:
                written = sum(connection.execute(s.text, s.params).rowcount for s in payload.data)
            else:
                written = connection.executemany(payload.text, payload.data).rowcount
            self._may_commit = True
            connection.execute("COMMIT")
            return int(written)

    @staticmethod
    def cause_of(error: Exception) -> str:
        if "no such table" in str(error):  # which has no code of its own
            return "no table"
        # Extended codes carry the primary one in their low byte. Misuse of the module itself has no code.
        code = getattr(error, "sqlite_errorcode", None)
        return "driver" if code is None else _CAUSES.get(code & 0xFF, "server")

    def end(self, connection: Any, error: BaseException | None, timeout_s: float) -> None:
        if isinstance(error, sqlite3.Error) and self.cause_of(error) == "timeout" and time.monotonic() <= self.due_s:
            # Ctrl-C came up in the progress handler, where sqlite3 drops exceptions and ends the statement.
            super().end(connection, KeyboardInterrupt(), timeout_s)
            raise KeyboardInterrupt from error
        super().end(connection, error, timeout_s)

    def explain(self, statement: Statement) -> Plan:
        """Return the way to the data, and the number of rows; the library does not report what it looks at."""
        with self._op():
            steps = self._fetch(f"EXPLAIN QUERY PLAN {statement.text}", statement.params)[1]
            ((returned,),) = self._fetch(f"SELECT count(*) FROM ({statement.text})", statement.params)[1]
        texts = [step[-1] for step in steps]
        ways = [text for text in texts if text.startswith(("SCAN", "SEARCH"))]
        return Plan(", ".join(ways), None, returned, None, json.dumps(texts))

    def facts(self) -> Mapping[str, str]:
        """Return the library's version and the settings for durability and memory."""
        pragmas = ("journal_mode", "synchronous", "page_size", "cache_size", "mmap_size", "wal_autocheckpoint")
        with self._op():
            pragmas_all = {p: str(self._connection.execute(f"PRAGMA {p}").fetchone()[0]) for p in pragmas}
        return {"version": f"SQLite {sqlite3.sqlite_version}", **pragmas_all}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the pages of tables and indexes, if the library can separate them (it reads all)."""
        tables = table_names(measurements)
        marks = ", ".join("?" * len(tables))
        text = (
            "SELECT s.type, sum(d.pgsize) FROM sqlite_schema s JOIN dbstat d ON d.name = s.name\n"
            f"WHERE d.aggregate = TRUE AND s.tbl_name IN ({marks}) GROUP BY 1"
        )
        with self._op():
            try:
                return dict(self._connection.execute(text, tables).fetchall())
            except sqlite3.OperationalError as error:
                if "dbstat" not in str(error):  # built without SQLITE_ENABLE_DBSTAT_VTAB
                    raise
            pragmas = ("page_size", "page_count", "freelist_count")
            page, count, free = (self._connection.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas)
            return {"table": page * (count - free)}

    def counters(self) -> Mapping[str, float]:
        """Return the sizes of the file and of its write-ahead log in bytes, without asking the database."""
        log = self._path.with_name(f"{self._path.name}-wal")
        try:
            values = {"file.bytes": float(self._path.stat().st_size)}
            return values | {"log.bytes": float(log.stat().st_size) if log.exists() else 0.0}
        except OSError as error:
            raise OpError(Outcome.FAILED, "refused", f"SQLite: {error}") from error


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
