"""The databases: their targets by name.

A module is imported when its entry is looked up: names can be listed and checked without importing any database, and
no target's module imports a driver before a session is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake, one_line

if TYPE_CHECKING:
    from tsbench.targets.target import Target


PLUGINS = "tsbench.targets"
"""Group of entry points by which installed packages bring targets: `name = "module:attribute"`."""


class _Targets(Mapping[str, "Target"]):
    """A table of targets by name, each given as `module:attribute`: our own, then those of installed packages.

    A target of a package that cannot be used is left out where all are gone over; `get` says why, and so does `broken`.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    @cached_property
    def _plugins(self) -> Mapping[str, str]:
        points = entry_points(group=PLUGINS)
        return {point.name: point.value for point in points if point.name not in self._places}

    @cached_property
    def broken(self) -> Mapping[str, str]:
        """Targets of installed packages that cannot be used, each with the reason."""
        return {name: why for name, place in self._plugins.items() if (why := _fault_of(name, place))}

    def __getitem__(self, name: str) -> Target:
        if name not in self._places and (why := self.broken.get(name)):
            raise UserMistake(f"the target '{name}' of an installed package cannot be used: {why}")
        target: Target = resolve_name(self._places.get(name) or self._plugins[name])
        return target

    def __contains__(self, name: object) -> bool:
        # Without the import that the mapping's own test would do, and without a look at packages for one of ours.
        return name in self._places or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from (name for name in self._plugins if name not in self.broken)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _fault_of(name: str, place: str) -> str:
    """Return why a package's target cannot be used; "" if it can."""
    from tsbench.targets.target import Target  # noqa: PLC0415 - which few commands need

    try:
        target = resolve_name(place)
    except Exception as error:  # noqa: BLE001 - somebody else's module raises anything
        return f"{place} cannot be imported ({type(error).__name__}: {one_line(error)[:200]})"
    if not isinstance(target, Target):
        return f"{place} is a {type(target).__name__}, not a tsbench.targets.target.Target"
    if target.name != name:
        return f"{place} is called '{target.name}', and its entry point '{name}'"
    return ""


TARGETS = _Targets({
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
