# ruff: noqa: S608 - names are quoted by sql.quoted, values are literals
"""One connection to MySQL or MariaDB as a session: time limits, transactions, and errors as outcomes."""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import MySQLdb

from tsbench.encode.mysql_text import literal
from tsbench.errors import UserMistake, one_line
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.targets.base import ServerObject, Statement
from tsbench.targets.endpoint import open_or_name
from tsbench.targets.mysql import causes, counters
from tsbench.targets.mysql.connection import Connection
from tsbench.targets.mysql.products import FACTS, READS, compact, plan, product_of, purge, sizes_text
from tsbench.targets.mysql.schemas import (
    Compact,
    CreateDatabase,
    DropTables,
    OfSeries,
    Purge,
    loaded_as_values,
    statements_within,
)
from tsbench.targets.session import GRACE_S, MEANT, NetworkSession, Watchdog, statement_of, undecodable
from tsbench.targets.sql import names, quoted, table_names
from tsbench.targets.sql_session import by_column, inventory, read_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.results.panels import Panel
    from tsbench.targets.base import Command, Inventory, Payload, Plan, Schema
    from tsbench.targets.mysql.endpoint import MysqlEndpoint

_MODES = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
"""Without the last, a server without an engine makes a table of InnoDB instead."""
_LOADED = re.compile(rb"Records: (\d+)\s+Deleted: (\d+)\s+Skipped: (\d+)\s+Warnings: (\d+)")


def connect(
    of: MysqlEndpoint, schema: Schema, *, timeout_s: float, connect_timeout_s: float, waiter: NewWaiter | None = None
) -> MysqlSession:
    """Open a session, as `Target.connect` says; a server of another product than the endpoint's is refused."""

    def opened(limit_s: float) -> MysqlSession:
        session = MysqlSession(of, of.password(), timeout_s, waiter)
        try:
            session.reconnect(limit_s)
        except BaseException as error:
            session.close()
            if isinstance(error, MySQLdb.Error):
                raise causes.refused(of, error) from error
            if isinstance(error, LookupError | TypeError | ValueError):
                text = f"{of.shown}: the answers of that server are not those of {of.target.product}"
                raise UserMistake(text) from error
            raise
        return session

    own = {"a MariaDB server", "a MySQL server"}
    return open_or_name(opened, connect_timeout_s, (of.host, of.port), own, of.shown)


class MysqlSession(NetworkSession[Connection]):
    """One connection in autocommit mode with time zone UTC."""

    def __init__(self, of: MysqlEndpoint, password: str, timeout_s: float, waiter: NewWaiter | None = None) -> None:
        super().__init__(timeout_s)
        self._of, self._password, self._waiter = of, password, waiter
        self._places = [replace(of, host=host, port=port) for host, port in of.nodes] or [of]
        self._turn = next(_turns)
        self._product = product_of(of.target.product)
        self.panels: Sequence[Panel] = ()
        self.due_s = float("inf")
        _watchdog.watch(self)

    def reconnect(self, timeout_s: float) -> Connection:
        self._drop()
        if self._waiter is None:
            return self._open(timeout_s)
        opened = self._waiter.in_thread(self._open, timeout_s)
        opened.wait_by(self._waiter)
        return opened

    def _open(self, timeout_s: float) -> Connection:
        """Connect to the node whose turn it is, or else to the next that takes the connection."""
        for left in reversed(range(len(self._places))):
            try:
                return self._open_at(self._places[self._turn % len(self._places)], timeout_s)
            except MySQLdb.Error:
                self._drop()
                self._turn += 1
                if not left:
                    raise
        raise AssertionError("there is a node")

    def _open_at(self, place: MysqlEndpoint, timeout_s: float) -> Connection:
        opened = self._connection = Connection(place, self._password, timeout_s, self.arrival)
        product = product_of(opened.server)
        if product is not self._product:
            reason = f"{product.name} {opened.server} answers there, not {self._product.name}"
            raise UserMistake(f"{self._of.shown}: {reason}; name the target {product.name.lower()}")
        settings = [f"sql_mode = '{_MODES}'", "time_zone = '+00:00'", "autocommit = 1", product.session]
        settings.append(product.limit_text(self._timeout_s))
        if self._of.nodes:  # what any node acknowledged before is seen on this one, too
            settings.append("wsrep_sync_wait = 1")
        _watchdog.limit(self, time.monotonic() + timeout_s + GRACE_S)
        try:
            opened.set_charset()
            opened.execute(f"SET SESSION {', '.join(filter(None, settings))}".encode())
            ((opened.max_packet_bytes, engines),) = opened.execute(
                b"SELECT @@max_allowed_packet, (SELECT count(*) FROM information_schema.engines\n"
                b"  WHERE engine = 'ROCKSDB' AND support IN ('YES', 'DEFAULT'))"
            )
        finally:
            _watchdog.limit(self, float("inf"))
        self.panels = counters.panels_for(product.name, has_rocksdb=bool(engines))
        return opened

    def interrupt(self) -> None:
        """Interrupt the running statement by shutting down the connection."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    # --- commands

    def execute(self, command: Command, timeout_s: float) -> None:
        with self._op(timeout_s) as connection, self._limited(connection, timeout_s):
            self._run(connection, command, timeout_s)

    def _run(self, connection: Connection, command: Command, left_s: float) -> None:
        if isinstance(command, CreateDatabase):
            name = quoted(self._of.path)
            if not _has_database(connection):
                connection.execute(f"CREATE DATABASE IF NOT EXISTS {name} DEFAULT CHARACTER SET utf8mb4".encode())
                connection.execute(f"USE {name}".encode())
        elif isinstance(command, DropTables):
            if _has_database(connection):
                connection.execute(f"DROP TABLE IF EXISTS {names(command.tables)}".encode())
        elif isinstance(command, Purge | Compact):
            with _optional():
                if isinstance(command, Purge):
                    purge(connection, self._product, left_s)
                else:
                    compact(connection)
        else:
            statement = statement_of(command)
            with _optional() if statement.optional else nullcontext():
                connection.execute(statement.text.encode())

    @contextmanager
    def _limited(self, connection: Connection, timeout_s: float) -> Iterator[None]:
        """Set the server's own time limit, so that an abandoned statement does not slow down the next one."""
        if timeout_s < self._timeout_s * 0.9 or timeout_s > self._timeout_s:
            connection.execute(f"SET SESSION {self._product.limit_text(timeout_s)}".encode())
            try:
                yield
            finally:
                if not connection.is_interrupted:
                    connection.execute(f"SET SESSION {self._product.limit_text(self._timeout_s)}".encode())
        else:
            yield

    # --- writes

    def write(self, payload: Payload) -> int:
        with self._op() as connection:
            if payload.mode is WriteMode.BULK:
                connection.in_thread(self._load, connection, payload)
                return payload.points
            statements = statements_within(payload.text.encode(), payload.data, connection.max_packet_bytes)
            if len(statements) == 1:
                connection.execute(statements[0])
            else:
                with _transaction(connection):
                    for statement in statements:
                        connection.execute(statement)
            return payload.points

    @staticmethod
    def _load(connection: Connection, payload: Payload) -> None:
        """Load lines, all or none.

        With LOCAL, a value or row that the server does not take is only a warning. An encrypted connection is the
        client library's alone, so that its rows are sent as values.
        """
        with _transaction(connection):
            if connection.is_encrypted:
                head, pieces = loaded_as_values(payload)
                for statement in statements_within(head, pieces, connection.max_packet_bytes):
                    connection.execute(statement)
                return
            said = connection.load(payload.text.encode(), payload.data)
            match = _LOADED.search(said)
            if match is None or (int(match[1]), match[3], match[4]) != (payload.points, b"0", b"0"):
                raise _not_loaded(connection, (match[0] if match else said).decode(errors="replace"))

    # --- queries

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self._op() as connection:
            if columns[-1] == OTHERS:
                return read_stored(lambda one: by_column(*_fetched(one, connection)), statement, columns)
            return Rows(columns, _fetched(statement, connection)[1])

    def explain(self, statement: Statement) -> Plan:
        """Return the plan; rows are examined where a handler reads them, also from a temporary table."""
        with self._op() as connection:
            text = _text(statement, connection)
            steps = connection.fetch(b"EXPLAIN FORMAT=TRADITIONAL " + text)
            before, between = (_rows_read(connection) for _ in range(2))
            returned = len(connection.fetch(text)[1])
            examined = _rows_read(connection) - between - (between - before)
        return plan(steps, max(0, examined), returned)

    def facts(self) -> Mapping[str, str]:
        """Return the server's version, and the settings for memory, durability and compression."""
        text = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_literals(FACTS)})"
        with self._op() as connection:
            rows = connection.execute(text.encode())
            return {"version": f"{self._product.name} {connection.server}", **dict(rows)}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables and indexes; those of InnoDB are files, if the login may see their sizes."""
        tables = _literals(table_names(measurements))
        text = sizes_text(self._product).format(database=literal(self._of.path), tables=tables)
        table = index = 0
        with self._op() as connection:
            for _, data, indexes, file in connection.execute(text.encode()):
                index += indexes or 0
                table += max(0, file - (indexes or 0)) if file else data or 0
        return {"table": table, "index": index}

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        database = literal(self._of.path)
        tables = (
            "SELECT table_name, CAST(create_time AS CHAR) FROM information_schema.tables\n"
            f"WHERE table_schema = {database} AND table_name IN ({_literals(table_names(measurements))})"
        )
        holds = (
            f"SELECT (SELECT count(*) FROM information_schema.tables WHERE table_schema = {database})\n"
            f"  + (SELECT count(*) FROM information_schema.routines WHERE routine_schema = {database})\n"
            f"  + (SELECT count(*) FROM information_schema.events WHERE event_schema = {database})\n"
            f"FROM information_schema.schemata WHERE schema_name = {database}"
        )
        place = quoted(self._of.path)
        with self._op() as connection:
            tables_all = [
                ServerObject(
                    f"table {self._of.path}.{name}",
                    (Statement(f"DROP TABLE {place}.{quoted(name)}"),),
                    made or "",
                )
                for name, made in connection.execute(tables.encode())
            ]
            for (number,) in connection.execute(holds.encode()):
                drop = Statement(f"DROP DATABASE {place}")
                tables_all.append(ServerObject(f"database {self._of.path}", (drop,), "", number))
        return tables_all

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        like_ours = (
            f"SELECT table_name FROM information_schema.columns WHERE table_schema = {literal(self._of.path)}\n"
            "AND column_name = 'time' AND column_type = 'datetime(6)'"
        )
        with self._op() as connection:
            return inventory(lambda text: connection.fetch(text.encode()), like_ours, measurements, series=series)

    def counters(self) -> Mapping[str, float]:
        with self._op() as connection:
            status = connection.execute(
                f"SHOW GLOBAL STATUS WHERE Variable_name IN ({_literals(counters.STATUS)})".encode()
            )
            values = {name: float(value) for name, value in status}
            if self._product.has_metrics:
                text = "SELECT name, count FROM information_schema.innodb_metrics WHERE name IN"
                metrics = connection.execute(f"{text} ({_literals(counters.METRICS)})".encode())
                values |= {name: float(value) for name, value in metrics}
        return counters.complete(values)

    # --- the connection

    def close(self) -> None:
        """Close the connection; a statement that runs in another thread is ended first, by that thread."""
        _watchdog.forget(self)
        super().close()

    def limit(self, connection: Connection, due_s: float) -> None:
        # The server's own limit should end a statement first: then the connection survives.
        _watchdog.limit(self, due_s)

    def end(self, connection: Connection, error: BaseException | None, timeout_s: float) -> None:
        """End an op; a connection that is lost, or was interrupted (maybe after its answer came), is dropped."""
        _watchdog.limit(self, float("inf"))
        if connection.is_interrupted:
            self._drop()
        if isinstance(error, MySQLdb.Error):
            if connection.is_interrupted:
                raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from None
            outcome, cause = causes.meaning(error)
            if cause in {"connection", causes.NOT_READY}:
                self._drop()
            raise OpError(outcome, cause, f"{self._product.name}: {causes.text_of(error)}") from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            self._drop()
            raise undecodable(self._product.name, error) from error

    def _reason(self, error: Exception) -> str:
        text = str(causes.refused(self._of, error)) if isinstance(error, MySQLdb.Error) else one_line(error)
        return text.removeprefix("cannot connect to ")


_watchdog = Watchdog()
_turns = count(os.getpid())
"""Spreads the sessions of a process over nodes, and the first ones of several processes."""


def _fetched(statement: Statement, connection: Connection) -> tuple[list[str], list[tuple[Any, ...]]]:
    of, rows = connection.fetch(_text(statement, connection))
    if not of:
        raise ValueError("a query was answered without columns")
    return of, rows


def _text(statement: Statement, connection: Connection) -> bytes:
    return (_with_series(statement, connection) if isinstance(statement, OfSeries) else statement.text).encode()


def _rows_read(connection: Connection) -> int:
    return sum(int(count) for _, count in connection.execute(READS))


def _with_series(statement: OfSeries, connection: Connection) -> str:
    """Return a statement's text with the series that the table has now."""
    series = ", ".join(str(number) for (number,) in connection.execute(statement.series.encode())) or "NULL"
    text = statement.text.replace(statement.series, series, 1)
    return text if len(text) < connection.max_packet_bytes else statement.text


def _has_database(connection: Connection) -> bool:
    return connection.execute(b"SELECT DATABASE()")[0][0] is not None


@contextmanager
def _optional() -> Iterator[None]:
    """Ignore that the login has no right to something."""
    try:
        yield
    except MySQLdb.Error as error:
        if causes.code_of(error) not in causes.PERMISSION:
            raise


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """Run statements in a transaction, which is rolled back after an error."""
    connection.execute(b"START TRANSACTION")
    try:
        yield
        connection.execute(b"COMMIT")
    except (MySQLdb.Error, OpError):
        with suppress(MySQLdb.Error):  # the connection is broken, so the server rolls it back
            connection.execute(b"ROLLBACK")
        raise


def _not_loaded(connection: Connection, said: str) -> OpError:
    warnings = connection.execute(b"SHOW WARNINGS LIMIT 1")
    reason = f"{warnings[0][2]} ({said})" if warnings else said
    return OpError(Outcome.FAILED, "data", f"LOAD DATA: {reason}")


def _literals(texts: Iterable[str]) -> str:
    return ", ".join(map(literal, texts))
