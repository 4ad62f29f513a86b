"""One DuckDB connection as a session: time limits, and the causes of errors."""

from __future__ import annotations

import atexit
import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from tsbench.errors import Unreachable, UserMistake, one_line
from tsbench.model import WriteMode
from tsbench.targets.base import Plan, column_of, grouped, nodes
from tsbench.targets.duckdb.schemas import BATCH
from tsbench.targets.session import Watchdog, undecodable
from tsbench.targets.sql_session import FileSession, foreign_file
from tsbench.units import UNITS_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Payload, Schema, Statement
    from tsbench.targets.sql_session import NamedColumns
    from tsbench.targets.target import Endpoint

atexit.register(gc.collect)  # after the next line: else DuckDB's binding prints at the exit what nobody has freed
atexit.register(gc.unfreeze)  # load processes freeze all that is there
NAMESPACE = "tsbench"
"""The schema with our tables, which marks a file as ours."""


def connect(
    of: Endpoint, schema: Schema, *, timeout_s: float, connect_timeout_s: float, waiter: NewWaiter | None = None
) -> DuckdbSession:
    """Open the file, making it if need be. That does not wait for anybody, so it has no time limit."""
    path = Path(of.path)
    try:
        connection = duckdb.connect(path)
        _claim(connection, path)
        connection.execute("SET threads = 1")  # each session has a thread of its own; more would hide the queue
    except RuntimeError as error:
        raise _meaning_of(error) from error
    except duckdb.Error as error:
        kind = Unreachable if DuckdbSession.cause_of(error) == "busy" else UserMistake
        raise kind(f"{path} cannot be opened as a DuckDB database: {one_line(error)}") from error
    return DuckdbSession(connection, path, timeout_s)


def _claim(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create our schema in a new file, and refuse one with other data."""
    text = "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ? AND database_name = current_database()"
    ((ours,),) = connection.execute(text, [NAMESPACE]).fetchall()
    ((tables,),) = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    if tables and not ours:
        connection.close()
        raise foreign_file(path)
    if not ours:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}")
    connection.execute(f"SET search_path = '{NAMESPACE}'")


class DuckdbSession(FileSession):
    """One connection to a DuckDB file, which all connections of the process share."""

    product, error = "DuckDB", duckdb.Error
    tables = (
        "SELECT if(table_schema = current_schema(), '', table_schema || '.') || table_name\n"
        "FROM information_schema.tables WHERE table_catalog = current_database()"
    )
    like_ours = (
        "SELECT table_name FROM duckdb_columns() WHERE schema_name = current_schema()\n"
        "AND column_name = 'time' AND data_type = 'TIMESTAMP'"
    )

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path, timeout_s: float) -> None:
        super().__init__(connection, path, timeout_s)
        _watchdog.watch(self)

    def interrupt(self) -> None:
        """Interrupt the running statement."""
        self._connection.interrupt()

    def limit(self, due_s: float) -> None:
        _watchdog.limit(self, due_s)

    def end(self, connection: Any, error: BaseException | None, timeout_s: float) -> None:
        meant = _meaning_of(error) if isinstance(error, RuntimeError) else error
        super().end(connection, meant, timeout_s)
        if meant is not error and meant is not None:
            raise meant from error

    def write(self, payload: Payload) -> int:
        """Send a payload in one transaction, which is durable on return."""
        with self._op() as connection:
            if payload.mode is WriteMode.BULK:
                connection.register(BATCH, payload.data)
                try:
                    return self._alone(payload.text)
                finally:
                    connection.unregister(BATCH)
            if len(payload.data) == 1:
                return self._alone(payload.data[0].text, payload.data[0].params)
            connection.execute("BEGIN")
            written = sum(self._count(statement.text, statement.params) for statement in payload.data)
            self._may_commit = True
            connection.execute("COMMIT")
            return written

    def _alone(self, text: str, params: tuple[Any, ...] = ()) -> int:
        """Execute a statement that is a transaction of its own."""
        self._may_commit = True
        return self._count(text, params)

    def _count(self, text: str, params: tuple[Any, ...] = ()) -> int:
        ((rows,),) = self._fetch(text, params)[1]
        return int(rows)

    @staticmethod
    def cause_of(error: Exception) -> str:
        causes = [cause for words, cause in _BY_TEXT if words in str(error)]
        return causes[0] if causes else _CAUSES.get(type(error).__name__, "server")

    def _by_column(self, statement: Statement) -> NamedColumns:
        found = self._connection.execute(statement.text, statement.params).fetchnumpy()
        return [*found], [*map(_column_of, found.values())]

    def explain(self, statement: Statement) -> Plan:
        text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
        with self._op():
            ((_, answer),) = self._fetch(text, statement.params)[1]
            ((returned,),) = self._fetch(f"SELECT count(*) FROM ({statement.text})", statement.params)[1]  # noqa: S608 - our own text
        plan = json.loads(answer)
        scans = [node for node in nodes(plan) if "rows_scanned" in node]
        ways = grouped((str(node.get("type")), str(node.get("extra_info", {}).get("Table", ""))) for node in scans)
        examined = sum(int(node["rows_scanned"]) for node in scans) if scans else None
        duration_s = plan.get("query", {}).get("total_time")
        return Plan(ways, examined, returned, None if duration_s is None else 1e3 * duration_s, answer)

    def facts(self) -> Mapping[str, str]:
        """Return the library's version and the settings for parallelism, memory and checkpoints."""
        text = """SELECT name, value FROM duckdb_settings()
            WHERE name IN ('threads', 'memory_limit', 'checkpoint_threshold') ORDER BY name"""
        with self._op():
            ((version,),) = self._connection.execute("SELECT version()").fetchall()
            return {"version": f"DuckDB {version}", **dict(self._connection.execute(text).fetchall())}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the file's blocks in use (tables, tags, catalogue), and of the write-ahead log."""
        text = """SELECT used_blocks * block_size FROM pragma_database_size()
            WHERE database_name = current_database()"""
        with self._op():
            ((table,),) = self._connection.execute(text).fetchall()
        log = self._path.with_name(f"{self._path.name}.wal")
        return {"table": int(table), "log": log.stat().st_size if log.exists() else 0}

    def disconnect(self) -> None:
        """Close the connection; the last one of a process writes the log into the file and unlocks it."""
        _watchdog.forget(self)
        super().disconnect()


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


_BY_TEXT = (
    ("Table with name", "no table"),
    ("No space left on device", "disk full"),
    ("Could not set lock", "busy"),
)
"""Causes by words of the message: these errors share their type with others, and have no code."""


def _column_of(array: Any) -> NDArray[Any] | list[Any]:
    """Return a column of an answer, with times as ns since 1970; its infinities are the ends of 64-bit microseconds."""
    if array.dtype.kind != "M":
        return column_of(array)
    unit_ns = UNITS_NS[np.datetime_data(array.dtype)[0]]
    return [None if number is None else number * unit_ns for number in array.astype(np.int64).tolist()]


def _meaning_of(error: RuntimeError) -> BaseException:
    """Return what a RuntimeError of DuckDB's means: Ctrl-C in a statement, in whose place DuckDB raises one."""
    return KeyboardInterrupt() if str(error) == "Query interrupted" else undecodable("DuckDB", error)


_watchdog = Watchdog()
