"""What a database must offer to be measured: the protocols that `targets/` implements.

A Target opens Sessions. A Schema, which is pure, turns batches and queries into what the sessions send. A variant of
the data's layout (b-tree or BRIN, narrow or wide) is a Schema of its own, never an `if`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from tsbench.errors import UserMistake, require
from tsbench.model import OpError, Outcome, WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query, Rows
    from tsbench.net.tcp import NewWaiter


@dataclass(frozen=True, slots=True)
class Statement:
    """One text to execute with its parameters; an `optional` one is left out where the login has no right to it."""

    text: str
    params: tuple[Any, ...] = ()
    optional: bool = False


@dataclass(slots=True, eq=False)  # not frozen: one is made for every point, and a frozen one takes five times as long
class Payload:
    """An encoded batch: `data` is what the session of the same target sends, unchanged.

    `nbytes` is the size of `data` on the wire as far as it is known before sending (parameters count as their text or
    binary form), for bytes per second; `points` is what a complete write acknowledges.
    """

    mode: WriteMode
    measurement: str
    text: str
    data: Any
    points: int
    nbytes: int


class Unsupported(Exception):  # noqa: N818 - a declaration, not an error
    """A schema cannot express a query (or a write mode), and why."""


class Schema(Protocol):
    """One way to lay the data out. Pure: every method depends on its arguments only."""

    @property
    def name(self) -> str:
        """Its name in scenarios (`btree`)."""

    @property
    def keeps_duplicates(self) -> bool:
        """Whether two points of a series at the same time are both stored (else the later one replaces)."""

    @property
    def modes(self) -> frozenset[WriteMode]:
        """The write modes that `encode` knows."""

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Statements that make empty tables, with the given shared tags of every series (series i: entry i)."""
        ...

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Statements that remove what `create` made, whether or not it is there."""
        ...

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Statements that bring the database to rest after a bulk load: flush, compact, analyse."""
        ...

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """What a session sends to write the batch. SINGLE takes a batch of one point."""
        ...

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        """One SINGLE payload per point of the batch, in order; faster than slicing the batch.

        The batch is encoded at once, the payloads are made as they are taken: a thousand of them would hold up others.
        """
        ...

    def compile(self, query: Query) -> Statement:
        """The query in the database's language; its answer has the columns `query.columns`, in that order.

        Raises
        ------
        Unsupported
            If this layout or database cannot express it.
        """
        ...


class Session(Protocol):
    """One connection. Every method raises `model.OpError` when the op fails or its outcome is unknown."""

    def run(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> None:
        """Execute statements in order, each committed.

        All of them together end within `timeout_s`, by default the limit of one op, else the cause is `timeout`.
        """
        ...

    def write(self, payload: Payload) -> int:
        """Send a payload, wait for the acknowledgement, return the number of points acknowledged."""
        ...

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query and fetch every row."""
        ...

    def facts(self) -> Mapping[str, str]:
        """Version and the settings that matter to a reader of the result (for the manifest)."""
        ...

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Bytes on disk by part (`table`, `index`, ...), as the server tells; their sum is what the data takes."""
        ...

    def close(self) -> None:
        """Close the connection; never raises."""
        ...


class Access(StrEnum):
    """Which processes may open the data of a target."""

    ANY_PROCESS = "any process"
    ONE_PROCESS = "one process at a time"
    OPENER = "the opener only"


@dataclass(frozen=True, slots=True)
class Driver:
    """The package that sessions need: the name it is imported by, and the extra of tsbench that installs it."""

    module: str
    extra: str


class Target(Protocol):
    """A database: its layouts, its abilities, and how to connect.

    Abilities are declared here, so that they are known before anything is started or connected; nothing probes them.
    """

    @property
    def name(self) -> str:
        """Its name in scenarios (`postgres`)."""

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """Its layouts by name; the first is the default."""

    @property
    def durable(self) -> bool:
        """Whether acknowledged data survives a restart of the server."""

    @property
    def driver(self) -> Driver | None:
        """The package to install beside tsbench's own; None where sessions need none."""

    @property
    def resolution_ns(self) -> int:
        """The finest step of time in ns that it stores and answers exactly: 1, 1_000, 1_000_000 or 1_000_000_000."""

    @property
    def cooperative(self) -> bool:
        """Whether its driver yields to gevent while it waits; if not, its calls run in a thread pool."""

    @property
    def access(self) -> Access:
        """Which processes may open its data: how many load processes can drive it, and whether others may look on."""

    @property
    def embedded(self) -> bool:
        """Whether it runs inside the processes that open it, so that there is no server to cap, kill or watch."""

    @property
    def has_counters(self) -> bool:
        """Whether its sessions are `collect.counters.Counting`."""

    @property
    def startable(self) -> bool:
        """Whether tsbench can start it on this machine (`registry.SERVERS` says how)."""

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
        `waiter` is how connections of tsbench's own wait for their server, by default by blocking the thread; a driver
        that has sockets of its own does not use it.

        Raises
        ------
        tsbench.errors.UserMistake
            If the driver is not installed, the endpoint is malformed or the login is refused: one line with the cure.
        tsbench.errors.Unreachable
            If nobody answers there.
        """
        ...


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


def timed(statements: Sequence[Statement], timeout_s: float) -> Iterator[tuple[Statement, float]]:
    """Yield each statement with the seconds that are left for it, where all together have `timeout_s`.

    Raises
    ------
    tsbench.model.OpError
        UNKNOWN `timeout` if none are left.
    """
    deadline = time.monotonic() + timeout_s
    for statement in statements:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise OpError(Outcome.UNKNOWN, "timeout", f"no time was left for it within {timeout_s:g} s")
        yield statement, left_s
