"""The databases: their targets by name.

A module is imported when its entry is looked up: names can be listed and checked without importing any database, and
no target's module imports a driver before a session is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from tsbench.targets.target import Target


class _Targets(Mapping[str, "Target"]):
    """A table of targets by name, each given as `module:attribute`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Target:
        target: Target = resolve_name(self._places[name])
        return target

    def __contains__(self, name: object) -> bool:
        return name in self._places  # without the import that the mapping's own test would do

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


TARGETS: Mapping[str, Target] = _Targets({
    "null": "tsbench.targets.null:TARGET",
    "sqlite": "tsbench.targets.sqlite:TARGET",
    "duckdb": "tsbench.targets.duckdb:TARGET",
    "postgres": "tsbench.targets.postgres:TARGET",
    "timescaledb": "tsbench.targets.postgres:TIMESCALE",
    "influxdb1": "tsbench.targets.influxdb.v1:TARGET",
    "influxdb2": "tsbench.targets.influxdb.v2:TARGET",
    "mongodb": "tsbench.targets.mongodb:TARGET",
    "mariadb": "tsbench.targets.mysql:MARIADB",
    "mysql": "tsbench.targets.mysql:MYSQL",
    "victoriametrics": "tsbench.targets.victoriametrics:TARGET",
    "questdb": "tsbench.targets.questdb:TARGET",
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
