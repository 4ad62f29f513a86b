"""The databases: their targets by name.

A module is imported when its entry is looked up: names can be listed and checked without importing any database, and
no target's module imports a driver before a session is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from tsbench import plugins
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from tsbench.targets.target import Target


class _Targets(Mapping[str, "Target"]):
    """A table of targets by name, each given as `module:attribute`: our own, then those of plug-ins.

    A target of a package that cannot be used is left out where all are gone over; `get` says why, and so does `broken`.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    @cached_property
    def _looked_at(self) -> tuple[dict[str, Target], dict[str, str]]:
        """The targets of plug-ins, and the reasons why others cannot be used, each by name."""
        good: dict[str, Target] = {}
        broken: dict[str, str] = {}
        for name, point in plugins.points(plugins.TARGETS).items():
            if name not in self._places:
                try:
                    good[name] = _target_at(name, point.value)
                except plugins.Unusable as why:
                    broken[name] = str(why)
        for module in plugins.files():
            good |= _targets_in(module, self._places.keys(), good.keys())
        return good, broken

    @property
    def broken(self) -> Mapping[str, str]:
        """Targets of installed packages that cannot be used, each with the reason."""
        return self._looked_at[1]

    @property
    def added(self) -> Mapping[str, Target]:
        """Targets of plug-ins."""
        return self._looked_at[0]

    def __getitem__(self, name: str) -> Target:
        if name in self._places:
            ours: Target = resolve_name(self._places[name])
            return ours
        if why := self.broken.get(name):
            raise UserMistake(f"the target '{name}' of an installed package cannot be used: {why}")
        return self.added[name]

    def __contains__(self, name: object) -> bool:
        # Without the import that the mapping's own test would do, and without a look at packages for one of ours.
        return name in self._places or name in self.added or name in self.broken

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from self.added

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _target_at(name: str, place: str) -> Target:
    """Return a package's target; raises `plugins.Unusable` if it is none, or not of this name."""
    found = plugins.load(place)
    _expect_target(found, place)
    if found.name != name:
        raise plugins.Unusable(f"{place} is called '{found.name}', and its entry point '{name}'")
    return cast("Target", found)


def _targets_in(module: str, ours: Collection[str], theirs: Collection[str]) -> dict[str, Target]:
    """Return the targets that a file defines, by name; it may have imported `ours`.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file cannot be imported, has no target, or one of the name of another plug-in's.
    """
    from tsbench.targets.target import Target  # noqa: PLC0415 - which few commands need

    path = plugins.files()[module]
    try:
        values = [value for value in vars(plugins.load(module)).values() if isinstance(value, Target)]
        found = {target.name: target for target in values if target.name not in ours}
        for name, target in found.items():
            _expect_target(target, f"{module}:{name}")
    except plugins.Unusable as why:
        raise UserMistake(f"the plug-in {path} cannot be used: {why}") from None
    if not found:
        raise UserMistake(f"the plug-in {path} has no target of a name of its own (a module-level Target)")
    if both := found.keys() & theirs:
        raise UserMistake(f"the plug-in {path} has a target '{min(both)}', as another one does; rename it")
    return found


def _expect_target(value: object, place: str) -> None:
    from tsbench.targets.target import INTERFACE, Target  # noqa: PLC0415 - which few commands need

    if not isinstance(value, Target):
        raise plugins.Unusable(f"{place} is a {type(value).__name__}, not a tsbench.targets.target.Target")
    if value.interface != INTERFACE:
        text = f"{place} is written for version {value.interface} of the interface, and this tsbench has {INTERFACE}"
        raise plugins.Unusable(f"{text}; install the version of it that fits")


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


def expect_files() -> None:
    """Verify that the files of `--plugin` have targets; raises `UserMistake` otherwise."""
    _ = TARGETS.added


def get(name: str) -> Target:
    """Return the target of that name.

    Raises
    ------
    tsbench.errors.UserMistake
        If the name is unknown; the text suggests the nearest one.
    """
    if name in TARGETS:
        return TARGETS[name]
    raise UserMistake(unknown(name))


def unknown(name: str) -> str:
    """Return the text that no target has a name, with the nearest one."""
    near = get_close_matches(name, TARGETS, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(TARGETS)}"
    return f"no target is called '{name}'; {hint}"
