"""One psycopg connection as a session: time limits, and the causes of errors."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format, TransactionStatus

from tsbench.encode.pgcopy import EPOCH_2000_US
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.results.panels import Panel
from tsbench.targets.base import ServerObject, Statement
from tsbench.targets.endpoint import open_or_name
from tsbench.targets.postgres import counters, explain
from tsbench.targets.postgres.connection import Connection
from tsbench.targets.postgres.login import parameters, refused
from tsbench.targets.postgres.schemas import CHUNK_INTERVAL, EXTENSIONS, INTERVAL, NAMESPACE
from tsbench.targets.session import GRACE_S, MEANT, NetworkSession, statement_of, undecodable
from tsbench.targets.sql import quoted, table_names, tables_of
from tsbench.targets.sql_session import inventory, stored_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.abc import Buffer

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Inventory, Payload, Plan, Schema
    from tsbench.targets.target import Endpoint

_PARTS = ("table", "index", "toast")
_RAISED = "P0001"
"""Code of the error that a statement of ours raises; its message is followed by the place in that statement."""
_SINGLE = WriteMode.SINGLE  # a member of an enum takes 0.1 us to look up


class _Nanoseconds(Loader):
    """Loads a timestamptz as ns since 1970: Python's datetimes end at the year 9999 and have no infinity."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        """Return the time; the infinities are the ends of 64-bit microseconds since 2000."""
        return (int.from_bytes(data, "big", signed=True) + EPOCH_2000_US) * 1_000


def connect(
    of: Endpoint,
    schema: Schema,
    *,
    timeout_s: float,
    connect_timeout_s: float,
    waiter: NewWaiter | None = None,
    kind: type[PostgresSession] | None = None,
) -> PostgresSession:
    """Open a session on a PostgreSQL server.

    Raises
    ------
    tsbench.errors.UserMistake
        If the login is refused.
    tsbench.errors.Unreachable
        If no server answers.
    """
    del schema  # the layout is in the statements
    found = parameters(of.url)

    def opened(limit_s: float) -> PostgresSession:
        session = (kind or PostgresSession)(found, timeout_s, waiter)
        try:
            session.reconnect(limit_s)
        except Exception as error:  # also whatever psycopg raises for an answer that it cannot decode
            raise refused(of.url, error) from error
        return session

    place = (of.host, of.port) if of.host else None
    return open_or_name(opened, connect_timeout_s, place, {"a PostgreSQL server"}, of.url)


def connect_timescale(of: Endpoint, schema: Schema, **given: Any) -> PostgresSession:
    """Open a session on a PostgreSQL server with TimescaleDB, as `connect` does."""
    return connect(of, schema, **given, kind=TimescaleSession)


class PostgresSession(NetworkSession[Connection]):
    """One connection in autocommit mode with time zone UTC."""

    panels: Sequence[Panel] = counters.PANELS

    def __init__(self, of: Mapping[str, Any], timeout_s: float, waiter: NewWaiter | None = None) -> None:
        super().__init__(timeout_s)
        self._parameters = dict(of)
        self._waiter = waiter

    def reconnect(self, timeout_s: float) -> Connection:
        self._drop()
        opened = Connection.connect(
            **{
                "connect_timeout": max(2, round(timeout_s)),
                "application_name": "tsbench",
                **self._parameters,
                # The last of several values counts: the endpoint may name another path.
                "options": f"-c search_path={NAMESPACE} {self._parameters.get('options', '')}",
            },
            autocommit=True,
            cursor_factory=psycopg.RawCursor,  # $1 is the server's own syntax: the client need not rewrite texts
            prepare_threshold=0,
        )
        opened.wait_with(self._waiter, self.arrival)
        opened.deadline = time.monotonic() + timeout_s + GRACE_S
        try:
            opened.execute("SET TimeZone = 'UTC'", prepare=False)
            _limit_statements(opened, self._timeout_s)
        except TimeoutError:
            opened.close()
            raise psycopg.errors.ConnectionTimeout("the server accepts connections but does not answer") from None
        self._connection = opened
        return opened

    def execute(self, command: Command, timeout_s: float) -> None:
        statement = statement_of(command)
        with self._op(timeout_s) as connection:
            _limit_statements(connection, timeout_s)
            try:
                with suppress(*((psycopg.errors.InsufficientPrivilege,) if statement.optional else ())):
                    connection.execute(statement.text, statement.params or None, prepare=False)
            finally:
                if connection.info.transaction_status is TransactionStatus.IDLE:  # not after a deadline of ours
                    _limit_statements(connection, self._timeout_s)

    def write(self, payload: Payload) -> int:
        """Send a payload; it is committed on return."""
        connection = self.begin(self._timeout_s)
        try:  # as `_op`, which would be a tenth of what a write of one row costs
            if payload.mode is _SINGLE:
                return connection.statements.execute_prepared(payload.text, payload.data)
            if payload.mode is WriteMode.MULTI:
                # It has thousands of parameters; keeping its plan would cost more than parsing it.
                return connection.statements.execute_once(payload.text, payload.data)
            return connection.statements.copy_in(payload.text, payload.data)
        except BaseException as error:
            self.end(connection, error, self._timeout_s)
            raise

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query, prepared, and fetch every row (in binary form, without parsing floats)."""
        if columns[-1] == OTHERS:
            return self._stored(statement, columns)
        with self._op() as connection:
            return Rows(columns, connection.statements.fetch(statement.text, statement.params))

    def ask(self, text: str) -> Rows:
        with self._op() as connection:
            return Rows((), connection.statements.fetch_once(text))

    def _stored(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Return rows with all columns of their table; unprepared: a column may have been added to it since."""
        with self._op() as connection, connection.cursor(binary=True) as cursor:
            cursor.adapters.register_loader("timestamptz", _Nanoseconds)
            cursor.execute(statement.text, statement.params or None, prepare=False)
            names = [column.name for column in cursor.description or ()]
            return Rows(columns, stored_records(cursor.fetchall(), names, columns))

    def explain(self, statement: Statement) -> Plan:
        with self._op() as connection:
            text = explain.command(statement.text)
            ((answer,),) = connection.execute(text, statement.params or None, prepare=False).fetchall()
        return explain.plan(answer[0])

    def facts(self) -> Mapping[str, str]:
        """Return the server's version and every setting that differs from its default."""
        text = (
            "SELECT name, current_setting(name) FROM pg_settings\n"
            "WHERE source NOT IN ('default', 'client', 'session', 'override')"
        )
        with self._op() as connection:
            version = connection.execute("SHOW server_version").fetchall()[0][0]
            return {"version": f"PostgreSQL {version}", **dict(connection.execute(text).fetchall())}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables, indexes and out-of-line storage (with free-space and visibility maps)."""
        return self._sizes_of(tables_of(measurements))

    def _sizes_of(self, tables: Sequence[str]) -> dict[str, int]:
        text = (
            "SELECT coalesce(sum(pg_relation_size(r)), 0)::bigint, coalesce(sum(pg_indexes_size(r)), 0)::bigint,\n"
            "       coalesce(sum(pg_table_size(r) - pg_relation_size(r)), 0)::bigint\n"
            "FROM (SELECT quote_ident(n)::regclass AS r FROM unnest($1::text[]) AS n) AS relations"
        )
        with self._op() as connection:
            sizes = connection.execute(text, (list(tables),)).fetchall()[0]
        return dict(zip(_PARTS, sizes, strict=True))

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, and our namespace."""
        tables = (
            "SELECT n.nspname, c.relname, c.oid::text\n"
            "FROM unnest($1::text[]) AS t(name) JOIN pg_class c ON c.oid = to_regclass(quote_ident(t.name))\n"
            "JOIN pg_namespace n ON n.oid = c.relnamespace"
        )
        namespace = (
            "SELECT oid::text, (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)\n"
            "  + (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid)\n"
            "  + (SELECT count(*) FROM pg_type WHERE typnamespace = n.oid)\n"
            "FROM pg_namespace n WHERE nspname = $1"
        )
        with self._op() as connection:
            found = [
                ServerObject(
                    f"table {place}.{name}", (Statement(f"DROP TABLE {quoted(place)}.{quoted(name)}"),), number
                )
                for place, name, number in connection.execute(tables, (table_names(measurements),)).fetchall()
            ]
            for number, holds in connection.execute(namespace, (NAMESPACE,)).fetchall():
                drop = Statement(f"DROP SCHEMA {quoted(NAMESPACE)}")  # which fails if anything is in it
                found.append(ServerObject(f"schema {NAMESPACE}", (drop,), number, holds))
        return found

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        like_ours = (
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
            "JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'time' AND t.atttypid = 'timestamptz'::regtype\n"
            "JOIN pg_attribute o ON o.attrelid = c.oid AND o.attname = 'additional_tags'\n"
            "WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND o.atttypid = 'jsonb'::regtype"
        )

        def fetch(text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = connection.execute(text, prepare=False)  # a column may have been added to it since
            return [column.name for column in cursor.description or ()], cursor.fetchall()

        with self._op() as connection:
            return inventory(fetch, like_ours, measurements, series=series)

    def counters(self) -> Mapping[str, float]:
        """Return the server's counters of this database, its checkpoints and its write-ahead log.

        Sessions report what they did at most once a second, so a total may be that late.
        """
        with self._op() as connection:
            text = counters.text(connection.info.server_version)
            row = connection.execute(text, prepare=True).fetchall()[0]
        return counters.named(row)

    def limit(self, connection: Connection, due_s: float) -> None:
        connection.deadline = due_s

    def _drop(self) -> None:
        with suppress(psycopg.Error, OSError):
            super()._drop()

    def end(self, connection: Connection, error: BaseException | None, timeout_s: float) -> None:
        """End an op; a connection that is lost, or whose answer is still to come, is dropped."""
        if error is None:
            return
        broken = connection.broken or connection.closed
        if broken or not isinstance(error, psycopg.Error):  # else a greenlet killed in its wait: an answer is to come
            self._drop()
        if isinstance(error, TimeoutError):
            raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from None
        if isinstance(error, psycopg.Error):
            outcome, cause = _meaning(error, broken=broken)
            text = error.diag.message_primary if error.sqlstate == _RAISED else str(error).strip()
            raise OpError(outcome, cause, f"PostgreSQL: {text}") from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            raise undecodable("PostgreSQL", error) from error


class TimescaleSession(PostgresSession):
    """One connection to PostgreSQL with TimescaleDB."""

    panels = (
        *counters.PANELS,
        Panel("Chunks", "count", "gauge", {"chunks": "of all hypertables"}, explains_stalls=True),
    )

    def facts(self) -> Mapping[str, str]:
        """Return also the extension's version, which is the product's, and its licence (apache: no compression)."""
        text = (
            "SELECT coalesce(installed_version, default_version), current_setting('timescaledb.license', true),\n"
            f"       {INTERVAL}::text\n"
            "FROM pg_available_extensions WHERE name = 'timescaledb'"
        )
        facts = dict(super().facts())
        with self._op() as connection:
            found = connection.execute(text).fetchall()
        if not found:
            return facts
        version, licence, interval = found[0]
        facts |= {"version": f"TimescaleDB {version} on {facts['version']}", CHUNK_INTERVAL: interval}
        return facts | ({"timescaledb.license": licence} if licence else {})

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables, indexes and out-of-line storage, with those of all chunks, compressed or not."""
        text = (
            "SELECT sum(h.table_bytes)::bigint, sum(h.index_bytes)::bigint, coalesce(sum(h.toast_bytes), 0)::bigint\n"
            f"FROM unnest($1::text[]) AS n, {EXTENSIONS}.hypertable_detailed_size(quote_ident(n)::regclass) AS h"
        )
        with self._op() as connection:
            ((*found,),) = connection.execute(text, ([m.name for m in measurements],)).fetchall()
        tags = self._sizes_of(["tags"] * any(m.tags for m in measurements))
        return {part: size + tags[part] for part, size in zip(_PARTS, found, strict=True)}

    def counters(self) -> Mapping[str, float]:
        """Return the server's counters, with the number of chunks of our hypertables."""
        text = (
            "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent\n"
            "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
        )
        with self._op() as connection:
            ((chunks,),) = connection.execute(text, prepare=True).fetchall()
        return {**super().counters(), "chunks": float(chunks)}


def _limit_statements(connection: Connection, timeout_s: float) -> None:
    """Set the server's own time limit, so that an abandoned statement does not slow down the next one."""
    # 0 would be no limit.
    connection.execute(f"SET statement_timeout = {max(1, round(timeout_s * 1_000))}", prepare=False)


_CAUSES = {  # by class or code of https://www.postgresql.org/docs/current/errcodes-appendix.html, the longest that fits
    "22": "data",
    "23": "constraint",
    "25": "read only",
    "40": "conflict",
    "42": "statement",
    "42501": "permission",
    "42P01": "no table",
    "53": "resources",
    "53100": "disk full",
    "53300": "connections",
    "55": "lock",
    _RAISED: "unsupported",
}


def _meaning(error: psycopg.Error, *, broken: bool) -> tuple[Outcome, str]:
    """Return the outcome of a failed statement (FAILED or UNKNOWN) and its cause."""
    state = error.sqlstate or ""
    if state == "57014":  # cancelled by its time limit
        return Outcome.UNKNOWN, "timeout"
    if broken or state.startswith(("08", "57P0")):
        return Outcome.UNKNOWN, "connection"
    if not state:  # raised by psycopg before anything was sent: a parameter that it cannot adapt, for example
        return Outcome.FAILED, "driver"
    return Outcome.FAILED, _CAUSES.get(state) or _CAUSES.get(state[:2]) or "server"
