"""The DuckDB target, in process: one file, columns in compressed row groups.

One process at a time can open the file, even to read; within a process, connections to a file share one database. The
driver does not yield to gevent, so it is called from a pool of threads. An endpoint is
`duckdb:///absolute/path.duckdb`.
"""

from __future__ import annotations

from tsbench.servers.embedded import EmbeddedServer
from tsbench.targets.duckdb.schemas import COLUMNS
from tsbench.targets.target import Access, Driver, Requirement, Target


class DuckdbServer(EmbeddedServer):
    """The directory of a DuckDB database."""

    scheme = "duckdb"
    file = "tsbench.duckdb"


TARGET = Target(
    name="duckdb",
    product="DuckDB",
    form="duckdb:///absolute/path.duckdb",
    schemes=("duckdb",),
    schemas={COLUMNS.name: COLUMNS},
    parser="tsbench.targets.endpoint:parse_file",
    opener="tsbench.targets.duckdb.session:connect",
    server="tsbench.targets.duckdb:DuckdbServer",
    driver=Driver("duckdb", "duckdb", ("duckdb", "pyarrow")),
    resolution_ns=1_000,  # Python's datetime cuts the nanoseconds of a TIMESTAMP_NS
    cooperative=False,
    access=Access.ONE_PROCESS,
    embedded=True,
    read_only="BEGIN TRANSACTION READ ONLY",
    durability="nothing: a commit is synced to the write-ahead log",
    requirements=(Requirement("DuckDB", "pip install 'tsbench[duckdb]'", modules=("duckdb",), is_optional=False),),
)
