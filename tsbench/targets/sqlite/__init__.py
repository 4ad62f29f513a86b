"""The SQLite target, in process."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.errors import Unreachable, UserMistake
from tsbench.servers.embedded import file_of
from tsbench.targets.base import Access, Driver, KeepsAll
from tsbench.targets.endpoint import check_text
from tsbench.targets.requirements import Part, Requirement
from tsbench.targets.sqlite.schemas import APPLICATION_ID, CLUSTERED, WAL, SqliteSchema, cause_of, wait_for_locks
from tsbench.targets.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema


@dataclass(frozen=True, slots=True)
class SqliteTarget(KeepsAll):
    """The SQLite target; an endpoint is `sqlite:///absolute/path.db`."""

    name: str
    schemas: Mapping[str, SqliteSchema]
    durable: bool = True
    driver: Driver | None = None
    resolution_ns: int = 1
    cooperative: bool = False
    access: Access = Access.ANY_PROCESS
    embedded: bool = True
    acknowledges_in_part: bool = False
    has_counters: bool = True
    startable: bool = True
    requirements: tuple[Part, ...] = (Requirement("SQLite", "sqlite3", "use a Python that was built with SQLite"),)

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        check_text(endpoint)
        file_of(endpoint, "sqlite", "SQLite", "path.db")

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> SqliteSession:
        """Open the file, making it if need be."""
        del schema, waiter  # the layout is in the statements
        check_text(endpoint)
        path = file_of(endpoint, "sqlite", "SQLite", "path.db")
        try:
            limit_s = timeout_s if connect_timeout_s is None else connect_timeout_s
            connection = sqlite3.connect(path, timeout=limit_s, isolation_level=None, check_same_thread=False)
            _claim(connection, path)
            # FULL syncs the log at every commit, like PostgreSQL's synchronous_commit=on; WAL's usual NORMAL does not.
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL").fetchall()
            wait_for_locks(connection, timeout_s)
        except sqlite3.Error as error:
            kind = Unreachable if cause_of(error) == "busy" else UserMistake
            raise kind(f"{path} cannot be opened as an SQLite database: {error}") from error
        return SqliteSession(connection, path, timeout_s)


def _claim(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as ours, and refuse one with other data: `create` drops tables."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and mark != APPLICATION_ID:
        connection.close()
        raise UserMistake(f"{path} holds a database that is not tsbench's; name a file that is not there yet")
    if mark != APPLICATION_ID:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


TARGET = SqliteTarget("sqlite", {s.name: s for s in (WAL, CLUSTERED)})
