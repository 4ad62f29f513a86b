# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""One SQLite connection as a session: time limits, pragmas, and the causes of errors."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tsbench.collect.counters import Counting
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.results.panels import Panel
from tsbench.servers.embedded import delete_file
from tsbench.targets.base import Command, Payload, Statement, statement_of, timed
from tsbench.targets.op_context import decoded
from tsbench.targets.sql import DeleteFile, inventory, objects_in_file, stored_records, table_names
from tsbench.targets.sqlite.schemas import Checkpoint, cause_of, wait_for_locks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.targets.base import ServerObject
    from tsbench.targets.inventory import Inventory


PANELS = (
    Panel("Write-ahead log", "bytes", "gauge", {"log.bytes": "file"}, explains_stalls=True),
    Panel("Moved from the log by checkpoints", "bytes", "rate", {"file.bytes": "file grown"}, explains_stalls=True),
)
"""What the report plots. A writer that finds the log full moves it into the file before it goes on."""


class SqliteSession(Counting):
    """One connection. After an error the open transaction is rolled back and the session remains usable."""

    panels = PANELS

    def __init__(self, connection: sqlite3.Connection, path: Path, timeout_s: float) -> None:
        self._connection = connection
        self._path = path
        self._timeout_s = timeout_s
        self._due = float("inf")
        # Called every 100,000 steps of SQLite's virtual machine (about a millisecond); true interrupts the statement.
        connection.set_progress_handler(lambda: time.monotonic() > self._due, 100_000)

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute commands in order, each committed; one that waits for a lock until the limit is a `timeout`."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            for command, left_s in timed(commands, limit_s):
                self._execute(command, left_s)
        finally:
            wait_for_locks(self._connection, self._timeout_s)

    def _execute(self, command: Command, timeout_s: float) -> None:
        if isinstance(command, DeleteFile):
            self.close()
            delete_file(self._path)
            return
        checkpoint = isinstance(command, Checkpoint)
        statement = Statement(command.text) if checkpoint else statement_of(command)
        with self._errors(timeout_s, locked="timeout"):
            wait_for_locks(self._connection, timeout_s)
            found = self._connection.execute(statement.text, statement.params).fetchall()
        if checkpoint and found[0][0]:
            raise OpError(Outcome.FAILED, "timeout", "the write-ahead log is in use and was not moved")

    def write(self, payload: Payload) -> int:
        """Send a payload in one transaction, which is durable on return."""
        with self._errors(self._timeout_s):
            if payload.mode is WriteMode.SINGLE:
                return self._connection.execute(payload.text, payload.data[0]).rowcount
            # IMMEDIATE waits for the lock (busy_timeout); a transaction that begins as a reader would fail instead.
            self._connection.execute("BEGIN IMMEDIATE")
            if payload.mode is WriteMode.MULTI:
                written = sum(self._connection.execute(s.text, s.params).rowcount for s in payload.data)
            else:
                written = self._connection.executemany(payload.text, payload.data).rowcount
            self._connection.execute("COMMIT")
            return written

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self._errors(self._timeout_s):
            cursor = self._connection.execute(statement.text, statement.params)
            found = cursor.fetchall()
        if columns[-1] == OTHERS:
            found = stored_records(found, [column[0] for column in cursor.description], columns)
        return Rows(columns, found)

    def facts(self) -> Mapping[str, str]:
        """Return the library's version and the settings for durability and memory."""
        pragmas = ("journal_mode", "synchronous", "page_size", "cache_size", "mmap_size", "wal_autocheckpoint")
        with self._errors(self._timeout_s):
            found = {p: str(self._connection.execute(f"PRAGMA {p}").fetchone()[0]) for p in pragmas}
        return {"version": f"SQLite {sqlite3.sqlite_version}", **found}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the pages of tables and indexes, if the library can separate them (it reads all)."""
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

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, and the file."""
        with self._errors(self._timeout_s):
            text = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
            found = [name for (name,) in self._connection.execute(text).fetchall()]
        there = [name for name in found if not name.startswith("sqlite_")]  # those are SQLite's own
        ours = [name for name in table_names(measurements) if name in there]
        return objects_in_file(self._path, ours, len(there))

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        def fetch(text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = self._connection.execute(text)
            return [column[0] for column in cursor.description], cursor.fetchall()

        like_ours = (
            "SELECT s.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c\n"
            "WHERE s.type = 'table' AND c.name = 'time' AND c.type IN ('INTEGER', 'INT')"
        )
        with self._errors(self._timeout_s):
            return inventory(fetch, like_ours, measurements, series=series)

    def counters(self) -> Mapping[str, float]:
        """Return the sizes of the file and of its write-ahead log in bytes, without asking the database."""
        log = self._path.with_name(f"{self._path.name}-wal")
        try:
            found = {"file.bytes": float(self._path.stat().st_size)}
            return found | {"log.bytes": float(log.stat().st_size) if log.exists() else 0.0}
        except OSError as error:
            raise OpError(Outcome.FAILED, "refused", f"SQLite: {error}") from error

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _errors(self, timeout_s: float, *, locked: str = "busy") -> Iterator[None]:
        """Convert errors to `OpError`. All are FAILED: within one process, an answer always comes.

        `locked` is the cause if another connection's lock outlasted the time limit.
        """
        self._due = time.monotonic() + timeout_s
        try:
            with decoded("SQLite", but=sqlite3.Error):
                yield
        except sqlite3.Error as error:
            cause = cause_of(error)
            if cause == "timeout" and time.monotonic() <= self._due:
                # Ctrl-C came up in the progress handler, where sqlite3 drops exceptions and ends the statement.
                raise KeyboardInterrupt from error
            raise OpError(Outcome.FAILED, locked if cause == "busy" else cause, f"SQLite: {error}") from error
        finally:
            self._due = float("inf")
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
