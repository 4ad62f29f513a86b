"""Tables of the databases: their targets, and the servers that tsbench can start, by name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.targets import duckdb, memory, null, postgres, sqlite
from tsbench.targets.duckdb import DuckdbServer
from tsbench.targets.influxdb import v1, v2
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.memory import MemoryServer
from tsbench.targets.null import NullServer
from tsbench.targets.postgres.server import PostgresServer
from tsbench.targets.sqlite.server import SqliteServer

if TYPE_CHECKING:
    from tsbench.servers.base import ServerFactory
    from tsbench.targets.base import Target


TARGETS: dict[str, Target] = {
    "memory": memory.TARGET,
    "null": null.TARGET,
    "sqlite": sqlite.TARGET,
    "duckdb": duckdb.TARGET,
    "postgres": postgres.TARGET,
    "influxdb1": v1.TARGET,
    "influxdb2": v2.TARGET,
}


def get(name: str) -> Target:
    """Return the target of that name.

    Raises
    ------
    tsbench.errors.UserMistake
        If the name is unknown; the text suggests the nearest one.
    """
    if name in TARGETS:
        return TARGETS[name]
    near = get_close_matches(name, TARGETS, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(TARGETS)}"
    raise UserMistake(f"no target is called '{name}'; {hint}")


# One entry for each target that declares itself `startable`.
SERVERS: dict[str, ServerFactory] = {
    "memory": MemoryServer,
    "null": NullServer,
    "sqlite": SqliteServer,
    "duckdb": DuckdbServer,
    "postgres": PostgresServer,
    "influxdb1": InfluxServer1,
    "influxdb2": InfluxServer2,
}
