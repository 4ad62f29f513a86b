"""One DuckDB connection as a session: time limits, and the causes of errors."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from tsbench.errors import one_line
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.servers.embedded import delete_file
from tsbench.targets.base import Command, Payload, Statement, statement_of, timed
from tsbench.targets.duckdb.schemas import BATCH, meaning_of
from tsbench.targets.op_context import decoded
from tsbench.targets.sql import DeleteFile, inventory, objects_in_file, stored_records, table_names
from tsbench.targets.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.targets.base import ServerObject
    from tsbench.targets.inventory import Inventory


class DuckdbSession:
    """One connection. After an error the open transaction is rolled back and the session remains usable."""

    arrival = None

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path, timeout_s: float) -> None:
        self._connection = connection
        self._path = path
        self._timeout_s = timeout_s
        self.due_s = float("inf")
        _watchdog.watch(self)

    def interrupt(self) -> None:
        """Interrupt the running statement."""
        self._connection.interrupt()

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute statements in order, each committed."""
        for command, left_s in timed(commands, self._timeout_s if timeout_s is None else timeout_s):
            if isinstance(command, DeleteFile):
                self.close()
                delete_file(self._path)
                return
            statement = statement_of(command)
            with self._errors(left_s):
                self._connection.execute(statement.text, statement.params).fetchall()

    def write(self, payload: Payload) -> int:
        """Send a payload in one transaction, which is durable on return."""
        with self._errors(self._timeout_s):
            if payload.mode is WriteMode.BULK:
                self._connection.register(BATCH, payload.data)
                try:
                    return self._count(payload.text)
                finally:
                    self._connection.unregister(BATCH)
            if len(payload.data) == 1:
                return self._count(payload.data[0].text, payload.data[0].params)
            self._connection.execute("BEGIN")
            written = sum(self._count(statement.text, statement.params) for statement in payload.data)
            self._connection.execute("COMMIT")
            return written

    def _count(self, text: str, params: tuple[Any, ...] = ()) -> int:
        ((rows,),) = self._connection.execute(text, params).fetchall()
        return int(rows)

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self._errors(self._timeout_s):
            found = self._connection.execute(statement.text, statement.params).fetchall()
        if columns[-1] == OTHERS:
            found = stored_records(found, [column[0] for column in self._connection.description], columns)
        return Rows(columns, found)

    def facts(self) -> Mapping[str, str]:
        """Return the library's version and the settings for parallelism, memory and checkpoints."""
        text = """SELECT name, value FROM duckdb_settings()
            WHERE name IN ('threads', 'memory_limit', 'checkpoint_threshold') ORDER BY name"""
        with self._errors(self._timeout_s):
            ((version,),) = self._connection.execute("SELECT version()").fetchall()
            return {"version": f"DuckDB {version}", **dict(self._connection.execute(text).fetchall())}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:  # noqa: ARG002 - blocks are shared
        """Return the bytes of the file's blocks in use (tables, tags, catalogue), and of the write-ahead log."""
        text = """SELECT used_blocks * block_size FROM pragma_database_size()
            WHERE database_name = current_database()"""
        with self._errors(self._timeout_s):
            ((table,),) = self._connection.execute(text).fetchall()
        log = self._path.with_name(f"{self._path.name}.wal")
        return {"table": int(table), "log": log.stat().st_size if log.exists() else 0}

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, and the file."""
        ours = "SELECT table_name FROM duckdb_tables() WHERE schema_name = current_schema()"
        all_of_them = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = current_database()"
        with self._errors(self._timeout_s):
            there = {name for (name,) in self._connection.execute(ours).fetchall()}
            ((holds,),) = self._connection.execute(all_of_them).fetchall()
        return objects_in_file(self._path, [name for name in table_names(measurements) if name in there], holds)

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        def fetch(text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            found = self._connection.execute(text).fetchall()
            return [column[0] for column in self._connection.description], found

        like_ours = (
            "SELECT table_name FROM duckdb_columns() WHERE schema_name = current_schema()\n"
            "AND column_name = 'time' AND data_type = 'TIMESTAMP'"
        )
        with self._errors(self._timeout_s):
            return inventory(fetch, like_ours, measurements, series=series)

    def close(self) -> None:
        """Close the connection; the last one of a process writes the log into the file and unlocks it."""
        _watchdog.forget(self)
        with suppress(duckdb.Error):
            self._connection.close()

    @contextmanager
    def _errors(self, timeout_s: float) -> Iterator[None]:
        """Convert errors to `OpError`. All are FAILED: within one process, an answer always comes."""
        _watchdog.limit(self, time.monotonic() + timeout_s)
        try:
            with decoded("DuckDB", but=(duckdb.Error, RuntimeError)):
                yield
        except RuntimeError as error:
            raise meaning_of(error) from error
        except duckdb.Error as error:
            _watchdog.limit(self, float("inf"))
            with suppress(duckdb.Error):  # no transaction is open
                self._connection.execute("ROLLBACK")
            raise OpError(Outcome.FAILED, cause_of(error), f"DuckDB: {one_line(error)}") from error
        finally:
            _watchdog.limit(self, float("inf"))


_CAUSES = {
    "InterruptException": "timeout",
    "ConstraintException": "constraint",
    "TransactionException": "conflict",
    "OutOfMemoryException": "out of memory",
    "IOException": "input/output",
    "ConnectionException": "connection",
    "ParserException": "statement",
    "SyntaxException": "statement",
    "BinderException": "statement",
    "CatalogException": "statement",
    "ConversionException": "statement",
}


def cause_of(error: duckdb.Error) -> str:
    """Return the cause of an error, one of the words for `OpError.cause`."""
    text = str(error)
    if "Table with name" in text and "does not exist" in text:
        return "no table"
    if "No space left on device" in text:
        return "disk full"
    return _CAUSES.get(type(error).__name__, "server")


_watchdog = Watchdog()
