"""The databases: their targets, and the servers that tsbench can start, by name, imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.servers.base import ServerFactory
    from tsbench.targets.base import Target

T = TypeVar("T")


class _Imported(Mapping[str, T]):
    """A table of names in modules (`module:NAME`); reading an entry imports its module.

    All drivers together cost 0.25 s of CPU and 35 MB, in each of a run's processes, of which most need a single one.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(import_module(f"tsbench.targets.{module}"), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


TARGETS: Mapping[str, Target] = _Imported[Any](
    {
        "memory": "memory:TARGET",
        "null": "null:TARGET",
        "sqlite": "sqlite:TARGET",
        "duckdb": "duckdb:TARGET",
        "postgres": "postgres:TARGET",
        "influxdb1": "influxdb.v1:TARGET",
        "influxdb2": "influxdb.v2:TARGET",
    }
)


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
SERVERS: Mapping[str, ServerFactory] = _Imported[Any](
    {
        "memory": "memory:MemoryServer",
        "null": "null:NullServer",
        "sqlite": "sqlite.server:SqliteServer",
        "duckdb": "duckdb:DuckdbServer",
        "postgres": "postgres.server:PostgresServer",
        "influxdb1": "influxdb.server:InfluxServer1",
        "influxdb2": "influxdb.server:InfluxServer2",
    }
)
