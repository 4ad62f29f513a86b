"""The DuckDB target, in process: one file, columns in compressed row groups.

One process at a time can open the file, even to read; within a process, connections to a file share one database. The
driver does not yield to gevent, so it is called from a pool of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.errors import Unreachable, UserMistake, one_line
from tsbench.servers.embedded import EmbeddedServer, file_of
from tsbench.targets.base import Access, Driver, KeepsAll, require_driver
from tsbench.targets.duckdb.schemas import COLUMNS, DuckdbSchema, meaning_of
from tsbench.targets.requirements import Part, Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema
    from tsbench.targets.duckdb.session import DuckdbSession

NAMESPACE = "tsbench"
"""The schema with our tables, which marks a file as ours."""


@dataclass(frozen=True, slots=True)
class DuckdbTarget(KeepsAll):
    """The DuckDB target; an endpoint is `duckdb:///absolute/path.duckdb`."""

    name: str
    schemas: Mapping[str, DuckdbSchema]
    durable: bool = True
    driver: Driver | None = Driver("duckdb", "duckdb", ("duckdb", "pyarrow"))
    resolution_ns: int = 1_000  # Python's datetime cuts the nanoseconds of a TIMESTAMP_NS
    cooperative: bool = False
    access: Access = Access.ONE_PROCESS
    embedded: bool = True
    acknowledges_in_part: bool = False
    has_counters: bool = False
    startable: bool = True
    requirements: tuple[Part, ...] = (Requirement("DuckDB", "duckdb", "pip install 'tsbench[duckdb]'"),)

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        file_of(endpoint, "duckdb", "DuckDB", "path.duckdb")

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> DuckdbSession:
        """Open the file, making it if need be. That does not wait for anybody, so it has no time limit."""
        del schema, connect_timeout_s, waiter
        require_driver(self)
        import duckdb

        from tsbench.targets.duckdb.session import DuckdbSession

        path = file_of(endpoint, "duckdb", "DuckDB", "path.duckdb")
        try:
            connection = duckdb.connect(path)
            _claim(connection, path)
            connection.execute("SET threads = 1")  # each session has a thread of its own; more would hide the queue
        except RuntimeError as error:
            raise meaning_of(error) from error
        except duckdb.Error as error:
            kind = Unreachable if "Could not set lock" in str(error) else UserMistake
            raise kind(f"{path} cannot be opened as a DuckDB database: {one_line(error)}") from error
        return DuckdbSession(connection, path, timeout_s)


def _claim(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create our schema in a new file, and refuse one with other data: `create` drops tables."""
    text = "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ? AND database_name = current_database()"
    ((ours,),) = connection.execute(text, [NAMESPACE]).fetchall()
    ((tables,),) = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    if tables and not ours:
        connection.close()
        raise UserMistake(f"{path} holds a database that is not tsbench's; name a file that is not there yet")
    if not ours:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}")
    connection.execute(f"SET search_path = '{NAMESPACE}'")


class DuckdbServer(EmbeddedServer):
    """The directory of a DuckDB database."""

    scheme = "duckdb"
    file = "tsbench.duckdb"


TARGET = DuckdbTarget("duckdb", {s.name: s for s in (COLUMNS,)})
