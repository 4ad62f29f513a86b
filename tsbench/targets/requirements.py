"""What a target needs on this machine beside tsbench itself, for `tsbench doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeAlias

from tsbench.servers.programs import cached_program


@dataclass(frozen=True, slots=True)
class Requirement:
    """A Python module without which the target's server cannot be started on this machine.

    `part` is what it is to people, `cure` the command that installs it.
    """

    part: str
    module: str
    cure: str
    is_optional: bool = False
    """True if an installation is whole without it."""

    @property
    def is_met(self) -> bool:
        """Whether the module is installed; it is not imported."""
        return find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The programs with which tsbench starts a server; without them, its target needs the endpoint of one that runs.

    `part` is what it is to people, `cure` says how to install it.
    """

    part: str
    programs: tuple[str, ...]
    cure: str
    is_optional: bool = True

    @property
    def is_met(self) -> bool:
        """Whether all programs are installed."""
        return all(cached_program(name) for name in self.programs)


Part: TypeAlias = Requirement | LocalServer
