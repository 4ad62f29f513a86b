"""The base of sessions on one psycopg connection: time limits, queries, and the causes of errors."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg import postgres
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryLoader

from tsbench.encode.pgcopy import EPOCH_2000_US
from tsbench.model import OTHERS, OpError, Outcome, Rows
from tsbench.targets.pgwire.connection import Connection
from tsbench.targets.session import GRACE_S, MEANT, NetworkSession, statement_of, undecodable
from tsbench.targets.sql_session import by_column, read_stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Statement
    from tsbench.targets.sql_session import NamedColumns

_TIMESTAMPTZ = postgres.types["timestamptz"].oid
_RAISED = "P0001"
"""Code of the error that a statement of ours raises; its message is followed by the place in that statement."""


class PgwireSession(NetworkSession[Connection]):
    """Base of sessions with one connection in autocommit mode with time zone UTC."""

    product: ClassVar[str]
    options: ClassVar[str] = ""
    """Options that the server gets at the start, before the endpoint's own `options`."""
    prepares_queries: ClassVar[bool] = True
    """Whether queries are kept prepared: not where a server soon plans such a statement for any values."""

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
                "options": f"{self.options} {self._parameters.get('options', '')}".strip(),
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

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query and fetch every row (in binary form, without parsing floats)."""
        if columns[-1] == OTHERS:
            return self._stored(statement, columns)
        with self._op() as connection:
            fetch = connection.statements.fetch if self.prepares_queries else connection.statements.fetch_once
            return Rows(columns, fetch(statement.text, statement.params))

    def ask(self, text: str) -> Rows:
        with self._op() as connection:
            return Rows((), connection.statements.fetch_once(text))

    def _stored(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Return rows with all columns of their table; unprepared: a column may have been added to it since."""
        with self._op() as connection, connection.cursor(binary=True) as cursor:
            # Python's datetimes end at the year 9999 and have no infinity.
            cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)

            def fetched(statement: Statement) -> NamedColumns:
                cursor.execute(statement.text, statement.params or None, prepare=False)
                of = cursor.description or ()
                names, values = by_column([column.name for column in of], cursor.fetchall())
                return names, [
                    _moments(column) if one.type_code == _TIMESTAMPTZ else column
                    for one, column in zip(of, values, strict=True)
                ]

            return read_stored(fetched, statement, columns)

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
            outcome, cause = self.meaning(error, broken=broken)
            text = error.diag.message_primary if error.sqlstate == _RAISED else str(error).strip()
            raise OpError(outcome, cause, f"{self.product}: {text}") from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            raise undecodable(self.product, error) from error

    def meaning(self, error: psycopg.Error, *, broken: bool) -> tuple[Outcome, str]:
        """Return the outcome of a failed statement (FAILED or UNKNOWN) and its cause."""
        state = error.sqlstate or ""
        if state == "57014":  # cancelled by its time limit
            return Outcome.UNKNOWN, "timeout"
        if broken or state.startswith(("08", "57P0")):
            return Outcome.UNKNOWN, "connection"
        if not state:  # raised by psycopg before anything was sent: a parameter that it cannot adapt, for example
            return Outcome.FAILED, "driver"
        return Outcome.FAILED, _CAUSES.get(state) or _CAUSES.get(state[:2]) or "server"


def _moments(since_2000_us: Sequence[int | None]) -> list[int | None]:
    """Return times in ns since 1970; the infinities are the ends of 64-bit microseconds."""
    return [None if time_us is None else (time_us + EPOCH_2000_US) * 1_000 for time_us in since_2000_us]


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
