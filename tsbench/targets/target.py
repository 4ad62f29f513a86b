"""A database as data: one frozen declaration of its layouts, its abilities, and where its code is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake, require
from tsbench.servers.programs import cached_program, install_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter
    from tsbench.servers.base import Server
    from tsbench.servers.cgroup import Group
    from tsbench.targets.base import Schema, Session


class Access(StrEnum):
    """The processes that may open the data of a target."""

    ANY_PROCESS = "any process"
    ONE_PROCESS = "one process at a time"


@dataclass(frozen=True, slots=True)
class Driver:
    """The package that sessions need: the name it is imported by, and the extra of tsbench that installs it.

    `distributions` are the installed packages whose versions a run's manifest records.
    """

    module: str
    extra: str
    distributions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A Python module, programs or files, without which a target's server cannot be started on this machine.

    `part` is what it is to people, `how` says how to install it: "" if `tsbench servers install` does. An installation
    is whole without an optional one: the target then needs the endpoint of a server that runs.
    """

    part: str
    how: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    is_optional: bool = True

    @property
    def is_met(self) -> bool:
        """Whether all of them are installed; nothing is imported."""
        there = (*map(find_spec, self.modules), *map(cached_program, self.programs), *map(Path.exists, self.files))
        return all(there)

    @property
    def places(self) -> list[str]:
        """The modules that are installed, and the paths of the programs and files that are."""
        modules = [f"Python module {name}" for name in self.modules if find_spec(name)]
        files = [path for path in self.files if path.exists()]
        return [*modules, *(str(path) for path in (*map(cached_program, self.programs), *files) if path is not None)]

    @property
    def cure(self) -> str:
        """How to install it, or to do without it."""
        return self.how or f"{install_line(*self.programs)}, or give --endpoint"


@dataclass(frozen=True, slots=True)
class PeerQueries:
    """How a file of TSBS's holds queries for a database.

    `struct` is the name of their type and `text` that of its field with the query; `path` is how the paths begin that
    are asked for, where the struct has paths. `functions` is the place of the statements that make what TSBS's texts
    call and the database lacks.
    """

    struct: str
    text: str
    path: str = ""
    functions: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The parts of an endpoint, without secrets: they come from the environment, or from a file that an option names.

    `path` is without the slash before it; user and path are unescaped.
    """

    url: str
    target: Target
    host: str = ""
    port: int = 0
    user: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    scheme: str = ""

    @property
    def shown(self) -> str:
        """The endpoint without its options, for messages."""
        return self.url.partition("?")[0]

    @property
    def expire_after_s(self) -> int | None:
        """Age in seconds past which the database deletes points; None if it keeps all."""
        return None

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each of several nodes, which the option `nodes` has; empty for a single one."""
        pairs = (one.rpartition(":") for one in self.options.get("nodes", "").split(",") if one)
        return tuple((host, int(port)) for host, _, port in pairs)

    @property
    def delivers_later(self) -> bool:
        """True if what acknowledges points delivers them later to the servers that store them."""
        return False


INTERFACE = 1
"""Version of the interface on which plug-ins build (docs/plugins.md); it rises when they have to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A database: its layouts, its abilities, and how to connect to it.

    Abilities are declared here, so that they are known before anything is started or connected; none is detected at run
    time. `parser`, `opener` and `server` are places of the form `module:name`, imported when they are first used: no
    driver is imported before a session is opened.
    """

    name: str
    """Name in scenarios (`postgres`)."""
    product: str
    """Name of the database for people (`PostgreSQL`)."""
    form: str
    """An example of its endpoints, for messages."""
    version: str = ""
    """The versions of the product, where another target has others (`1.x`)."""
    schemes: tuple[str, ...]
    """What may stand before the `://` of its endpoints."""
    schemas: Mapping[str, Schema]
    """Layouts by name; the first is the default."""
    parser: str
    """Place of the function that parses an endpoint for this target: (endpoint, target) -> `Endpoint`."""
    opener: str
    """Place of the function that opens a session; it takes what `connect` does, with a parsed endpoint."""
    server: str = ""
    """Place of the server's class if tsbench can start the database on this machine."""
    cluster: str = ""
    """Place of the class of several nodes of the server that tsbench can start; it takes `nodes` and `replicas` too."""
    nodes_are_copies: bool = False
    """Whether each of several nodes comes to have all points, and answers queries by itself."""
    options: tuple[str, ...] = ()
    """Options of its endpoints; a driver may know more."""
    driver: Driver | None = None
    """The package to install beside tsbench's own; None where sessions need none."""
    greetings: tuple[bytes, ...] = ()
    """Patterns of the first bytes of its servers, by which one that listens at another target's endpoint is named."""
    secrets: tuple[str, ...] = ()
    """Environment variables with the secret for logging in; the first one that is set is taken."""
    durable: bool = True
    """Whether acknowledged data survives a restart of the server."""
    durability: str = ""
    """Settings with which acknowledged data is on disk, for the documentation."""
    shows_at_once: bool = True
    """Whether a query sees every write that was acknowledged before it; if not, those that count see them all."""
    resolution_ns: int = 1
    """Finest step of time that the database stores exactly: 1, 1_000, 1_000_000 or 1_000_000_000 ns."""
    cooperative: bool = True
    """Whether sessions let other greenlets run while they wait; if not, their calls run in threads."""
    access: Access = Access.ANY_PROCESS
    """Processes that may open the data, which limits the load processes and the collectors."""
    embedded: bool = False
    """Whether the database runs inside the processes that open it, without a server to cap, kill or sample."""
    read_only: str = ""
    """The statement after which a session refuses to write; "" if the database has none."""
    acknowledges_in_part: bool = False
    """Whether it may refuse some points of a write and store the others; if not, it stores all or none."""
    has_counters: bool = False
    """Whether its sessions have the server's own counters."""
    peer_queries: PeerQueries | None = None
    """How TSBS's files of queries are for it; None if none are."""
    requirements: tuple[Requirement, ...] = ()
    """What must be installed for it that an installation of tsbench may lack, for `tsbench doctor`."""
    interface: int = INTERFACE
    """Version of the interface for which it is written; a plug-in states it as a number."""

    @property
    def label(self) -> str:
        """The product with its version."""
        return f"{self.product} {self.version}".rstrip()

    @property
    def startable(self) -> bool:
        """True if tsbench can start the database on this machine."""
        return bool(self.server)

    def new_server(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        group: Group | None = None,
        *,
        nodes: int = 1,
        replicas: int = 1,
    ) -> Server:
        """Return a local server that lives in a directory, without starting it.

        Its processes start in `group`; `settings` take precedence over tsbench's own. Several `nodes` (only of a target
        with a `cluster`) keep each point `replicas` times.

        Raises
        ------
        tsbench.errors.UserMistake
            If a setting does not exist, or is tsbench's own.
        """
        server: Server
        if nodes > 1:
            server = resolve_name(self.cluster)(directory, settings or {}, group, nodes=nodes, replicas=replicas)
        else:
            server = resolve_name(self.server)(directory, settings or {}, group)
        return server

    def parse(self, endpoint: str) -> Endpoint:
        """Parse an endpoint; nothing is connected or opened.

        Raises
        ------
        tsbench.errors.UserMistake
            If the endpoint is malformed: one line with the cure.
        """
        parts: Endpoint = resolve_name(self.parser)(endpoint, self)
        return parts

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> Session:
        """Open a session. `endpoint` is a URL without secrets; these come from the environment.

        Each op of the session ends within `timeout_s`, connecting within `connect_timeout_s` (by default the same).
        `waiter` is how a session waits for its server, by default by blocking the thread; one whose driver has its own
        way to wait does not use it.

        Raises
        ------
        tsbench.errors.UserMistake
            If the driver is not installed, the endpoint is malformed or the login is refused: one line with the cure.
        tsbench.errors.Unreachable
            If no server answers.
        """
        require_driver(self)
        limit_s = timeout_s if connect_timeout_s is None else connect_timeout_s
        opened: Session = resolve_name(self.opener)(
            self.parse(endpoint), schema, timeout_s=timeout_s, connect_timeout_s=limit_s, waiter=waiter
        )
        return opened


def require_driver(target: Target) -> None:
    """Verify that the target's driver is installed.

    Raises
    ------
    tsbench.errors.UserMistake
        If it is not: one line with the extra that installs it.
    """
    if target.driver is not None:
        try:
            require(target.driver.module, target.driver.extra)
        except UserMistake as error:
            raise UserMistake(f"{target.name}: {error}") from None
