"""One psycopg connection as a session: login, time limits, and the causes of errors."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format, TransactionStatus

from tsbench.collect.counters import Counting
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OTHERS, OpError, Outcome, Rows, WriteMode
from tsbench.targets import credentials
from tsbench.targets.base import statement_of, timed
from tsbench.targets.postgres import counters
from tsbench.targets.postgres.schemas import NAMESPACE
from tsbench.targets.sql import stored_records

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from psycopg.abc import Buffer

    from tsbench.model import Measurement
    from tsbench.targets.base import Command, Payload, Statement

_PREFIXES = ("postgresql://", "postgres://")
_YEAR_2000_US = 946_684_800_000_000
_UNREACHABLE = "is the server running there?"


class _Nanoseconds(Loader):
    """Loads a timestamptz as ns since 1970: Python's datetimes end at the year 9999 and have no infinity."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        """Return the time; the infinities are the ends of 64-bit microseconds since 2000."""
        return (int.from_bytes(data, "big", signed=True) + _YEAR_2000_US) * 1_000


class _Overdue(Exception):  # noqa: N818 - becomes an OpError
    """Raised if no answer came within the session's time limit."""


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait ends at a deadline.

    The server's own statement_timeout cannot end a wait for a server that hangs, and TCP's time limits do not count
    while the peer's kernel acknowledges. psycopg wakes a waiting generator every 0.1 s to check for Ctrl-C; the
    deadline is checked at the same time, so limits are accurate to about 0.1 s.
    """

    deadline = float("inf")

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
        """Run a generator of the connection until it ends or the deadline passes."""
        return super().wait(_until(gen, self.deadline), *args, **more)


def _until(gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if time.monotonic() > deadline:  # also in the middle of an answer that arrives slowly
                raise _Overdue
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def connect(endpoint: str, *, timeout_s: float, connect_timeout_s: float | None = None) -> PostgresSession:
    """Open a session on a PostgreSQL server.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint is malformed or holds a password, or the login is refused.
    tsbench.errors.Unreachable
        If no server answers.
    """
    session = PostgresSession(parameters(endpoint), timeout_s)
    try:
        session.reconnect(timeout_s if connect_timeout_s is None else connect_timeout_s)
    except psycopg.Error as error:
        last = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        cure = _cure(last, endpoint)
        kind = Unreachable if cure == _UNREACHABLE else UserMistake
        raise kind(f"cannot connect to {endpoint}: {last}; {cure}") from error
    return session


def parameters(endpoint: str) -> dict[str, Any]:
    """Return an endpoint's connection parameters by libpq's names, with the environment's password for it if any.

    The password is taken from TSBENCH_PASSWORD, from the file in TSBENCH_PASSWORD_FILE, or from libpq's own sources
    (PGPASSWORD, PGPASSFILE). For an endpoint with a `passfile` only that is used; for one that may not receive the
    environment's secrets, nothing.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint is malformed or holds a password.
    """
    credentials.refuse_secrets(endpoint, "the endpoint")
    if not endpoint.startswith(_PREFIXES):
        raise UserMistake(f"{_hidden(endpoint)} is not a PostgreSQL endpoint; write postgresql://user@host:port/db")
    try:
        found: dict[str, Any] = conninfo_to_dict(endpoint)
    except psycopg.Error as error:
        raise UserMistake(f"{_hidden(endpoint)} is not a PostgreSQL URL: {str(error).strip()}") from error
    for port in filter(None, str(found.get("port", "")).split(",")):
        if not (port.isdecimal() and 1 <= int(port) <= 65_535):
            raise UserMistake(f"port {port} in the endpoint {_hidden(endpoint)} is out of range (1-65535)")
    if "passfile" in found:
        password = _passfile_password(found)
    elif credentials.is_entitled(endpoint):
        password = credentials.read("TSBENCH_PASSWORD")
    else:  # an empty password overrides PGPASSWORD, a missing file ~/.pgpass
        return found | {"password": "", "passfile": "/nonexistent/passfile"}
    return found | ({"password": password} if password is not None else {})


class PostgresSession(Counting):
    """One connection in autocommit mode with time zone UTC.

    After an error of a statement the connection stays open; after a broken connection or a time-out it is dropped, and
    the next op opens a new one (if that fails, the op is FAILED with the cause `refused`: nothing was sent).
    """

    panels = counters.PANELS

    def __init__(self, of: Mapping[str, Any], timeout_s: float) -> None:
        self._parameters = dict(of)
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None

    def reconnect(self, timeout_s: float) -> _Connection:
        """Replace the connection by a new one and return it."""
        self.close()
        opened = _Connection.connect(
            **{
                "connect_timeout": max(2, round(timeout_s)),
                "application_name": "tsbench",
                "options": f"-c search_path={NAMESPACE}",
                **self._parameters,
            },
            autocommit=True,
            cursor_factory=psycopg.RawCursor,  # $1 is the server's own syntax: the client need not rewrite texts
            prepare_threshold=0,
        )
        opened.deadline = time.monotonic() + timeout_s + 1.0
        try:
            opened.execute("SET TimeZone = 'UTC'", prepare=False)
            self._limit(opened, self._timeout_s)
        except _Overdue:
            opened.close()
            raise psycopg.errors.ConnectionTimeout("the server accepts connections but does not answer") from None
        self._connection = opened
        return opened

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute statements in order, each committed."""
        for command, left_s in timed(commands, self._timeout_s if timeout_s is None else timeout_s):
            statement = statement_of(command)
            with self._errors(left_s) as connection:
                self._limit(connection, left_s)
                try:
                    with suppress(*((psycopg.errors.InsufficientPrivilege,) if statement.optional else ())):
                        connection.execute(statement.text, statement.params or None, prepare=False)
                finally:
                    if connection.info.transaction_status is TransactionStatus.IDLE:  # not after a deadline of ours
                        self._limit(connection, self._timeout_s)

    def write(self, payload: Payload) -> int:
        """Send a payload; it is committed on return."""
        with self._errors(self._timeout_s) as connection, connection.cursor() as cursor:
            if payload.mode is WriteMode.BULK:
                with cursor.copy(payload.text) as copy:
                    copy.write(payload.data)
            else:
                # A multi-row text has thousands of parameters; keeping its plan would cost more than parsing it.
                cursor.execute(payload.text, payload.data, prepare=payload.mode is WriteMode.SINGLE)
            return cursor.rowcount

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query, prepared, and fetch every row (in binary form, without parsing floats)."""
        stored = columns[-1] == OTHERS
        with self._errors(self._timeout_s) as connection, connection.cursor(binary=True) as cursor:
            if stored:  # a column that somebody added since the statement was prepared would be an error
                cursor.adapters.register_loader("timestamptz", _Nanoseconds)
            cursor.execute(statement.text, statement.params or None, prepare=not stored)
            found = cursor.fetchall()
            names = [column.name for column in cursor.description or ()]
        return Rows(columns, stored_records(found, names, columns) if stored else found)

    def facts(self) -> Mapping[str, str]:
        """Return the server's version and every setting that differs from its default."""
        text = (
            "SELECT name, current_setting(name) FROM pg_settings\n"
            "WHERE source NOT IN ('default', 'client', 'session', 'override')"
        )
        with self._errors(self._timeout_s) as connection:
            version = connection.execute("SHOW server_version").fetchall()[0][0]
            return {"version": f"PostgreSQL {version}", **dict(connection.execute(text).fetchall())}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables, indexes and out-of-line storage (with free-space and visibility maps)."""
        tables = [m.name for m in measurements] + ["tags"] * any(m.tags for m in measurements)
        text = (
            "SELECT sum(pg_relation_size(r))::bigint, sum(pg_indexes_size(r))::bigint,\n"
            "       sum(pg_table_size(r) - pg_relation_size(r))::bigint\n"
            "FROM (SELECT quote_ident(n)::regclass AS r FROM unnest($1::text[]) AS n) AS relations"
        )
        with self._errors(self._timeout_s) as connection:
            sizes = connection.execute(text, (tables,)).fetchall()[0]
        return dict(zip(("table", "index", "toast"), sizes, strict=True))

    def counters(self) -> Mapping[str, float]:
        """Return the server's counters of this database, its checkpoints and its write-ahead log.

        Sessions report what they did at most once a second, so a total may be that late.
        """
        with self._errors(self._timeout_s) as connection:
            text = counters.text(connection.info.server_version)
            row = connection.execute(text, prepare=True).fetchall()[0]
        return counters.named(row)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                connection.close()

    @staticmethod
    def _limit(connection: _Connection, timeout_s: float) -> None:
        """Set the server's own time limit, so that an abandoned statement does not slow down the next one."""
        # 0 would be no limit.
        connection.execute(f"SET statement_timeout = {max(1, round(timeout_s * 1_000))}", prepare=False)

    @contextmanager
    def _errors(self, timeout_s: float) -> Iterator[_Connection]:
        """Yield an open connection with a deadline; convert errors to `OpError`."""
        connection = self._live()
        # One second more than the server's limit, which should end a statement first: then the connection survives.
        connection.deadline = time.monotonic() + timeout_s + 1.0
        try:
            yield connection
        except _Overdue:
            self.close()
            raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from None
        except psycopg.Error as error:
            broken = connection.broken or connection.closed
            if broken:
                self.close()
            outcome, cause = _meaning(error, broken=broken)
            raise OpError(outcome, cause, f"PostgreSQL: {str(error).strip()}") from error
        except BaseException:  # a greenlet killed or timed out from outside: the answer is lost
            self.close()
            raise
        finally:
            connection.deadline = float("inf")

    def _live(self) -> _Connection:
        if self._connection is not None:
            return self._connection
        try:
            return self.reconnect(self._timeout_s)
        except psycopg.Error as error:
            raise OpError(Outcome.FAILED, "refused", f"cannot connect again: {str(error).strip()}") from error


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


def _cure(message: str, endpoint: str) -> str:
    if "password" in message or "authentication" in message:
        return credentials.cure(endpoint, "TSBENCH_PASSWORD, TSBENCH_PASSWORD_FILE or PGPASSFILE")
    if "does not exist" in message:
        return "create it, or name one that is there"
    return _UNREACHABLE


def _hidden(endpoint: str) -> str:
    """Return the endpoint without the part before the @: a mistyped URL may hold a password."""
    return endpoint.rpartition("@")[2]


def _passfile_password(found: Mapping[str, Any]) -> str | None:
    """Return the password for these parameters in their passfile, which PGPASSWORD would override in libpq."""
    if not os.environ.get("PGPASSWORD"):
        return None
    wanted = [str(found.get(name, "")) for name in ("host", "port", "dbname", "user")]
    with suppress(OSError):
        for line in Path(found["passfile"]).read_text(encoding="utf-8").splitlines():
            *match, password = line.split(":", 4)
            if len(match) == 4 and all(m in {"*", w} for m, w in zip(match, wanted, strict=True)):
                return password
    return None
