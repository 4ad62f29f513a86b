"""The databases: their targets, and the servers that tsbench can start, by name.

A module is imported when its entry is looked up: names can be listed and checked without importing any database, and
no target's module imports a driver before a session is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.servers.base import ServerFactory
    from tsbench.targets.base import Target

T = TypeVar("T")


class _Lazy(Mapping[str, T]):
    """A table of objects by name, each given as `module:attribute`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places  # without the import that the mapping's own test would do

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


TARGETS: Mapping[str, Target] = _Lazy({
    "memory": "tsbench.targets.memory:TARGET",
    "null": "tsbench.targets.null:TARGET",
    "sqlite": "tsbench.targets.sqlite:TARGET",
    "duckdb": "tsbench.targets.duckdb:TARGET",
    "postgres": "tsbench.targets.postgres:TARGET",
    "influxdb1": "tsbench.targets.influxdb.v1:TARGET",
    "influxdb2": "tsbench.targets.influxdb.v2:TARGET",
    "mongodb": "tsbench.targets.mongodb:TARGET",
    "mariadb": "tsbench.targets.mysql:MARIADB",
    "mysql": "tsbench.targets.mysql:MYSQL",
})  # fmt: skip

# One entry for each target that declares itself `startable`.
SERVERS: Mapping[str, ServerFactory] = _Lazy({
    "memory": "tsbench.targets.memory:MemoryServer",
    "null": "tsbench.targets.null:NullServer",
    "sqlite": "tsbench.targets.sqlite.server:SqliteServer",
    "duckdb": "tsbench.targets.duckdb:DuckdbServer",
    "postgres": "tsbench.targets.postgres.server:PostgresServer",
    "influxdb1": "tsbench.targets.influxdb.server:InfluxServer1",
    "influxdb2": "tsbench.targets.influxdb.server:InfluxServer2",
    "mongodb": "tsbench.targets.mongodb.server:FerretdbServer",
    "mariadb": "tsbench.targets.mysql.server:MariadbServer",
    "mysql": "tsbench.targets.mysql.server:MysqlServer",
})  # fmt: skip


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
