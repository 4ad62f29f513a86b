"""One chDB connection as a session: time limits, and the meaning of its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import chdb
import pyarrow as pa

from tsbench.errors import Unreachable, UserMistake, one_line
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.targets.base import Plan, ServerObject, Statement
from tsbench.targets.session import MEANT, OpSession, new_lock, statement_of, undecodable
from tsbench.targets.sql import quoted, table_names
from tsbench.targets.sql_session import by_column, inventory, read_stored
from tsbench.targets.target import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Inventory, Payload, Schema
    from tsbench.targets.target import Target

NAMESPACE = "tsbench"
"""The database with our tables, which marks a directory as ours."""
SETTINGS = {
    "max_threads": 1,  # each session has a thread of its own; more would hide the queue
    "join_use_nulls": 1,
    "aggregate_functions_null_for_empty": 1,
    "precise_float_parsing": 1,  # else the last bit of some numbers is lost
    "prefer_column_name_to_alias": 1,
    "mutations_sync": 1,
}


def parse(endpoint: str, target: Target) -> Endpoint:
    """Parse `chdb:///absolute/directory`; a directory with something else is the user's mistake."""
    url = urlsplit(endpoint)
    path = Path(unquote(url.path))
    if url.scheme not in target.schemes or url.netloc or url.query or url.fragment or not path.is_absolute():
        raise UserMistake(f"'{endpoint}' is not an endpoint of {target.product}; write {target.form}")
    if not path.parent.is_dir():
        raise UserMistake(f"the directory {path.parent} does not exist; create it first")
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or (path / "metadata").is_dir())):
        raise UserMistake(f"{path} holds something that is not chDB's; name a directory that is not there yet")
    return Endpoint(endpoint, target, path=str(path), scheme=url.scheme)


def connect(
    of: Endpoint, schema: Schema, *, timeout_s: float, connect_timeout_s: float, waiter: NewWaiter | None = None
) -> ChdbSession:
    """Open the directory, making it if need be."""
    try:
        connection = chdb.connect(of.path)
        others = _rows(connection.query("SELECT name FROM system.databases", "Arrow"))[1]
        connection.query(f"CREATE DATABASE IF NOT EXISTS {NAMESPACE}")
        connection.query(f"USE {NAMESPACE}")
        for name, value in SETTINGS.items():
            connection.query(f"SET {name} = {value}")
    except RuntimeError as error:
        kind = Unreachable if "Cannot lock" in str(error) else UserMistake
        raise kind(f"{of.path} cannot be opened as a chDB database: {one_line(error)}") from error
    known = {NAMESPACE, "default", "system", "information_schema", "INFORMATION_SCHEMA"}
    if strange := {name for (name,) in others} - known:
        connection.close()
        raise UserMistake(f"{of.path} holds the database {min(strange)}, not of tsbench; name another directory")
    return ChdbSession(connection, Path(of.path), timeout_s)


class ChdbSession(OpSession[Any]):
    """One connection to a directory, which all connections of the process share."""

    def __init__(self, connection: Any, path: Path, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._connection, self._path, self._lock, self._is_open = connection, path, new_lock(), True
        self._may_commit, self._limit_s = False, 0.0

    def begin(self, timeout_s: float) -> Any:
        self._lock.acquire()
        self._may_commit = False
        try:
            if timeout_s != self._limit_s:  # a statement of its own, which ops of the same limit are spared
                self._connection.query(f"SET max_execution_time = {max(timeout_s, 0.001):.3f}")
                self._limit_s = timeout_s
        except RuntimeError as error:
            self._lock.release()
            raise OpError(Outcome.FAILED, "connection", f"chDB: {one_line(error)}") from error
        return self._connection

    def end(self, connection: Any, error: BaseException | None, timeout_s: float) -> None:
        self._lock.release()
        if isinstance(error, RuntimeError) and not isinstance(error, MEANT):
            cause = cause_of(error)
            is_unknown = self._may_commit and cause in {"timeout", "input/output", "server"}
            raise OpError(
                Outcome.UNKNOWN if is_unknown else Outcome.FAILED, cause, f"chDB: {one_line(error)}"
            ) from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            raise undecodable("chDB", error) from error

    def execute(self, command: Command, timeout_s: float) -> None:
        statement = statement_of(command)
        with self._op(timeout_s) as connection:
            connection.query(statement.text, params=_params(statement))

    def write(self, payload: Payload) -> int:
        """Send a payload as one insert, which makes one part: it is stored whole or not at all."""
        with self._op() as connection:
            self._may_commit = True
            if payload.mode is WriteMode.BULK:
                batch = payload.data  # noqa: F841 - `Python(batch)` in the text looks it up here
                done = connection.query(payload.text)
            else:
                done = connection.query(f"{payload.text} {payload.data}")
            return int(done.rows_written())

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self._op():
            if columns[-1] == OTHERS:
                return read_stored(lambda one: by_column(*self._fetch(one)), statement, columns)
            return Rows(columns, self._fetch(statement)[1])

    def _fetch(self, statement: Statement) -> tuple[list[str], list[tuple[Any, ...]]]:
        return _rows(self._connection.query(statement.text, "Arrow", params=_params(statement)))

    def explain(self, statement: Statement) -> Plan:
        """Return the parts and granules that the primary key leaves, and the rows that were read."""
        with self._op() as connection:
            _, steps = self._fetch(Statement(f"EXPLAIN indexes = 1 {statement.text}", statement.params))
            answer = connection.query(statement.text, "Arrow", params=_params(statement))
            examined, returned, took_ms = answer.storage_rows_read(), len(_rows(answer)[1]), 1e3 * answer.elapsed()
        texts = [str(step).strip() for (step,) in steps]
        ways = [text for text in texts if text.startswith(("ReadFrom", "Granules"))]
        return Plan(", ".join(ways), int(examined), returned, took_ms, json.dumps(texts))

    def facts(self) -> Mapping[str, str]:
        """Return the library's version and the settings of sessions."""
        with self._op():
            _, ((version,),) = self._fetch(Statement("SELECT version()"))
        return {"version": f"chDB {chdb.__version__}, ClickHouse {version}", **{k: str(v) for k, v in SETTINGS.items()}}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the active parts."""
        text = f"SELECT toInt64(sum(bytes_on_disk)) FROM system.parts WHERE database = '{NAMESPACE}' AND active"
        with self._op():
            _, ((table,),) = self._fetch(Statement(text))
        return {"table": int(table or 0)}

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, and the database, which holds them and whatever others made in it."""
        with self._op():
            _, rows = self._fetch(Statement(f"SELECT name FROM system.tables WHERE database = '{NAMESPACE}'"))
        there = {name for (name,) in rows}
        drop = "DROP TABLE IF EXISTS {}".format
        tables = [
            ServerObject(f"table {name}", (Statement(drop(quoted(name))),))
            for name in table_names(measurements)
            if name in there
        ]
        database = ServerObject(f"database {NAMESPACE}", (Statement(f"DROP DATABASE {NAMESPACE}"),), "", len(there))
        return [*tables, database]

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        like_ours = (
            f"SELECT table FROM system.columns WHERE database = '{NAMESPACE}'\n"
            "AND name = 'time' AND startsWith(type, 'DateTime64')"
        )
        with self._op():
            return inventory(lambda text: self._fetch(Statement(text)), like_ours, measurements, series=series)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._connection.close()


def _params(statement: Statement) -> dict[str, str]:
    return {f"p{i}": _escaped(value) for i, value in enumerate(statement.params, 1)}


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"})


def _escaped(value: Any) -> str:
    """Return a parameter as chDB reads it: in the form of a field of tab-separated values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.translate(_ESCAPES) if isinstance(value, str) else repr(value)


def _rows(answer: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of an answer's columns, and its rows with times as nanoseconds since 1970."""
    if not (content := answer.bytes()):
        return [], []
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    columns = []
    for column in table.columns:
        is_time = pa.types.is_timestamp(column.type)
        columns.append((column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()) if is_time else column).to_pylist())
    return table.column_names, list(zip(*columns, strict=True))


def cause_of(error: Exception) -> str:
    """Return the cause of one of chDB's errors, by the code in its text."""
    found = re.match(r"Code: (\d+)", str(error))
    return _CAUSES.get(int(found[1]), "server") if found else "driver"


_CAUSES = {
    47: "statement", 62: "statement", 43: "statement", 16: "statement", 53: "statement", 46: "statement",
    457: "statement", 60: "no table", 159: "timeout", 394: "timeout", 241: "out of memory", 243: "disk full",
    75: "input/output", 76: "input/output",
}  # fmt: skip
