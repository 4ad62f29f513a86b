"""Sessions with QuestDB: line protocol over HTTP, SQL over PostgreSQL's protocol, in which it ignores time limits.

An endpoint is `http://user@host:9000/?pg=8812`, with https for TLS on both ports; the option `pg` is the port for SQL.
One login is for both. Without a user it is the one that every new QuestDB has.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.errors import UserMistake
from tsbench.model import OTHERS, Count, OpError, Outcome, Rows, WriteMode
from tsbench.net.http import HttpConnection
from tsbench.results.panels import Panel
from tsbench.targets import http
from tsbench.targets.base import Inventory, Payload, ServerObject, Statement
from tsbench.targets.http import HttpEndpoint
from tsbench.targets.pgwire.login import refused
from tsbench.targets.pgwire.session import PgwireSession
from tsbench.targets.questdb.schemas import PREFIX, ApplyWal
from tsbench.targets.session import decoded
from tsbench.targets.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from tsbench.model import Measurement
    from tsbench.net.http_parser import Response
    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command
    from tsbench.targets.target import Target

_LOOK_S = 0.01
_OURS = f"^{PREFIX}"
_CAUSES = (
    (re.compile(r"timeout, query aborted|cancelled by user"), Outcome.UNKNOWN, "timeout"),
    (re.compile(r"table does not exist"), Outcome.FAILED, "no table"),
    (re.compile(r"[Aa]ccess denied|permission|read.?only"), Outcome.FAILED, "permission"),
    (re.compile(r"memory|limit exceeded|No space left"), Outcome.FAILED, "resources"),
)
"""What the text of an error means: QuestDB's errors have no codes. All others are of the statement."""


class QuestSession(PgwireSession):
    """Two connections: the base has the one for SQL, and this class that for writes, which reopens by itself."""

    product = "QuestDB"
    panels = (
        Panel("Write-ahead log", "count", "gauge", {"wal.pending": "commits to apply"}, explains_stalls=True),
        Panel("Commits", "count", "rate", {"wal.commits": "acknowledged"}),
        Panel("Memory, by the server's counters", "bytes", "gauge", {"memory.RSS": "resident"}, explains_stalls=True),
    )

    def __init__(
        self, of: QuestEndpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None = None
    ) -> None:
        super().__init__(_parameters(of, password), timeout_s, waiter)
        self._of = of
        self._http = HttpConnection(of.place, timeout_s=timeout_s, waiter=waiter)
        headers = http.basic_login(of.user, password)
        self._writer = http.Writer(self._http, of, "/write?precision=n", headers, _write_refusal)

    def ping(self, timeout_s: float) -> None:
        """Verify at both ports that the server accepts our login: for writes by one without points."""
        self._writer.write(Payload(WriteMode.BULK, "", "", b"", 0, 0), timeout_s)
        try:
            self.reconnect(timeout_s)
        except Exception as error:  # also whatever psycopg raises for an answer that it cannot decode
            raise refused(self._of.url, error) from error

    @property
    def write_arrival(self) -> Arrival:
        return self._http.arrival

    def write(self, payload: Payload) -> int:
        """Send the payload's bytes; all points are in the write-ahead log on return, and visible somewhat later."""
        return self._writer.write(payload)

    def execute(self, command: Command, timeout_s: float) -> None:
        if isinstance(command, ApplyWal):
            self._apply(timeout_s)
        else:
            super().execute(command, timeout_s)

    @decoded("QuestDB")
    def _apply(self, timeout_s: float) -> None:
        """Wait until all acknowledged points of our tables are visible."""
        text = (
            "SELECT name, suspended, sequencerTxn - writerTxn, errorMessage FROM wal_tables()\n"
            "WHERE name ~ $1 AND (suspended OR sequencerTxn > writerTxn)"
        )
        deadline = time.monotonic() + timeout_s
        while waiting := self._fetch(text, _OURS):
            for name, suspended, behind, why in waiting:
                if suspended:
                    told = (
                        f"table {name} is suspended with {behind} commits not applied ({why or 'no reason is given'})"
                    )
                    raise OpError(Outcome.FAILED, "suspended", f"QuestDB: {told}; see ALTER TABLE ... RESUME WAL")
            if time.monotonic() > deadline:
                told = ", ".join(f"{behind} of {name}" for name, _, behind, _ in waiting)
                raise OpError(Outcome.UNKNOWN, "timeout", f"QuestDB: commits not applied in {timeout_s:g} s: {told}")
            time.sleep(_LOOK_S)

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if columns == Count.columns or columns[-1] == OTHERS:
            self._apply(self._timeout_s)
        return super().query(statement, columns)

    def _fetch(self, text: str, *params: Any) -> Sequence[tuple[Any, ...]]:
        with self._op() as connection:
            return connection.statements.fetch(text, params)

    @decoded("QuestDB")
    def facts(self) -> Mapping[str, str]:
        """Return the server's version and every setting that differs from its default."""
        text = "SELECT property_path, value FROM (SHOW PARAMETERS) WHERE value_source != 'default' AND NOT sensitive"
        ((build,),) = self._fetch("SELECT build()")
        version = re.search(r"QuestDB ([\w.-]+)", build)
        return {"version": f"QuestDB {version[1] if version else build}", **dict(self._fetch(text))}

    @decoded("QuestDB")
    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the tables' partitions, without their write-ahead logs."""
        text = "SELECT sum(diskSize) FROM table_partitions('{}')"
        names = [(PREFIX + m.name).replace("'", "''") for m in measurements]
        return {"table": sum(int(size or 0) for name in names for ((size,),) in [self._fetch(text.format(name))])}

    def _tables(self) -> dict[str, str]:
        tables = self._fetch("SELECT table_name, directoryName FROM tables() WHERE table_name ~ $1", _OURS)
        return dict(sorted(tables))

    @decoded("QuestDB")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        ours = {PREFIX + m.name for m in measurements}
        return [
            ServerObject(f"table {name}", (Statement(f"DROP TABLE {quoted(name)}"),), place)
            for name, place in self._tables().items()
            if name in ours
        ]

    @decoded("QuestDB")
    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """Return our tables of no measurement; rows carry their tags, so no `series`."""
        return Inventory(tuple(sorted(self._tables().keys() - {PREFIX + m.name for m in measurements})))

    def explain(self, statement: Statement) -> None:
        """Return None: a plan of QuestDB's has no figures."""

    @decoded("QuestDB")
    def counters(self) -> Mapping[str, float]:
        """Return the commits of our tables, those that are not applied yet, and the server's memory."""
        text = (
            "SELECT 'wal.commits', sum(sequencerTxn) FROM wal_tables() WHERE name ~ $1\n"
            "UNION ALL SELECT 'wal.pending', sum(sequencerTxn - writerTxn) FROM wal_tables() WHERE name ~ $1\n"
            "UNION ALL SELECT 'memory.' || memory_tag, bytes FROM memory_metrics()"
        )
        return {name: float(value or 0) for name, value in self._fetch(text, _OURS)}

    def meaning(self, error: psycopg.Error, *, broken: bool) -> tuple[Outcome, str]:
        outcome, cause = super().meaning(error, broken=broken)
        if cause == "server":
            causes = ((what, word) for words, what, word in _CAUSES if words.search(str(error)))
            return next(causes, (Outcome.FAILED, "statement"))
        return outcome, cause

    def close(self) -> None:
        self._http.close()
        super().close()


def _write_refusal(response: Response, points: int) -> OpError:
    """Return the error for a response that does not acknowledge a write.

    QuestDB commits a request for a table as a whole: one that is refused for a line has stored none of its points (seen
    with 9.3, also for 1,200,000 lines). Of one that failed in the commit nobody knows.
    """
    text = http.error_text(response)
    outcome, cause = http.BY_STATUS.get(response.status, (Outcome.UNKNOWN, "server"))
    if response.status == 400:
        no_table = re.search(r"table does not exist|creat\w+ (?:new )?tables? is disabled", text, re.IGNORECASE)
        outcome, cause = Outcome.FAILED, "no table" if no_table else "data"
    elif response.status < 400:
        cause = "protocol"
    return OpError(outcome, cause, f"QuestDB: {response.status} {text}")


# --- endpoint ---------------------------------------------------------------------------------------------------------


class QuestEndpoint(HttpEndpoint):
    """An endpoint with two ports."""

    __slots__ = ()
    usual_port: ClassVar[int] = 9000


def parse(url: str, target: Target) -> QuestEndpoint:
    """Parse an endpoint."""
    endpoint = http.parse(url, target, QuestEndpoint)
    port = endpoint.options.get("pg", "8812")
    if endpoint.path:
        raise UserMistake(f"'{endpoint.shown}': QuestDB has one database; write {target.form}")
    if not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65_535):
        raise UserMistake(f"pg={port}: write the port of QuestDB for PostgreSQL's protocol (1-65535)")
    return endpoint


def _parameters(of: QuestEndpoint, password: str | None) -> dict[str, Any]:
    """Return libpq's parameters; the password is sent as it is, as HTTP's is, and with https both are encrypted."""
    login = {"user": of.user, "password": password or ""} if of.user else {"user": "admin", "password": "quest"}
    tls = {"sslmode": "verify-full", "sslrootcert": "system"} if of.scheme == "https" else {"sslmode": "disable"}
    place = {"host": of.host, "port": of.options.get("pg", "8812"), "dbname": "qdb"}
    none_of_libpqs = {"passfile": "/nonexistent", "sslcertmode": "disable", "gssencmode": "disable"}
    return {**none_of_libpqs, **place, **login, **tls, "require_auth": "password"}


connect = http.opener(QuestSession)
