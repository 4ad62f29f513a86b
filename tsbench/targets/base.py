"""The interfaces of a database: the protocols that `targets/` implements.

A Target opens Sessions. A Schema, which is pure, converts batches and queries to the data that sessions send. A variant
of the data's layout (b-tree or BRIN, narrow or wide) is a Schema of its own, never an `if`.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from tsbench.errors import UserMistake, require
from tsbench.model import OpError, Outcome, WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query, Rows
    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.requirements import Part


@dataclass(frozen=True, slots=True)
class Statement:
    """One text to execute with its parameters; an `optional` one is skipped if the login has no right to it."""

    text: str
    params: tuple[Any, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """Administration for which a database has no statement: its sessions execute it with their own calls.

    A target derives its operations from this class, as plain data, and its session distinguishes them by their type.
    `text` describes an operation to people and is never compared.
    """

    text: str


Command: TypeAlias = Statement | Operation
"""One step of administration, as `Session.run` takes it."""


@dataclass(frozen=True, slots=True)
class ServerObject:
    """Something on a server that `Schema.create` makes: a table, a bucket, or a container (a namespace, a file).

    `id` is the database's own, which a later object of the same name does not have; "" where it has none. `remove` are
    the commands that remove it. `holds` is the number of things in a container, None for anything else.
    """

    name: str
    remove: tuple[Command, ...]
    id: str = ""
    holds: int | None = None


@dataclass(slots=True, eq=False)  # not frozen: one is made for every point, and a frozen one takes five times as long
class Payload:
    """An encoded batch: the session of the same target sends `data` unchanged.

    `nbytes` is the size of `data` on the wire as far as it is known before sending (parameters count as their text or
    binary form), for bytes per second; a complete write acknowledges `points`. Payloads are pickled on their way from
    the process that encodes them; a memoryview in `data` becomes bytes.
    """

    mode: WriteMode
    measurement: str
    text: str
    data: Any
    points: int
    nbytes: int


class Unsupported(Exception):  # noqa: N818 - a declaration, not an error
    """Raised by a schema that cannot express a query or a write mode; the text is the reason."""


@contextmanager
def expressible() -> Iterator[None]:
    """Raise `Unsupported` for a value that an encoder refuses, since the wire format cannot express it exactly."""
    try:
        yield
    except ValueError as error:
        raise Unsupported(str(error)) from error


class NothingKept(Unsupported):
    """Raised by a schema whose target keeps nothing by design: nothing can be counted or compared."""


class Schema(Protocol):
    """One layout of the data in a database. Pure: every method depends on its arguments only."""

    @property
    def name(self) -> str:
        """Name in scenarios (`btree`)."""

    @property
    def keeps_duplicates(self) -> bool:
        """True if two points of a series at the same time are both stored; else the later one replaces."""

    @property
    def modes(self) -> frozenset[WriteMode]:
        """Write modes that `encode` supports."""

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        """Return commands that make empty tables, with the given shared tags of every series (series i: entry i)."""
        ...

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return commands that remove everything that `create` made, whether or not it exists."""
        ...

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return commands that bring the database to rest after a bulk load: flush, compact, analyse."""
        ...

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Encode a batch for a session to write. SINGLE takes a batch of one point."""
        ...

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return what `encode` makes of every `points` points of the batch, in order; the last may have fewer.

        The batch is encoded at once where that is faster than slicing it (numpy's calls cost as much for ten points as
        for a thousand), but payloads are made one by one: making a thousand would delay other ops.
        """
        ...

    def compile(self, query: Query) -> Statement:
        """Compile a query to the database's language; its answer has the columns `query.columns`, in that order.

        Raises
        ------
        Unsupported
            If this layout or database cannot express the query.
        """
        ...


def encode_slices(schema: Schema, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
    """Return what `Schema.encode_each` returns, each payload encoded from a slice of the batch."""
    return (schema.encode(batch.rows(start, start + points), mode) for start in range(0, len(batch), points))


class Session(Protocol):
    """One connection. Every method raises `model.OpError` if the op fails or its outcome is unknown."""

    @property
    def arrival(self) -> Arrival | None:
        """When the last answer arrived; None if the database runs in our process, where nothing arrives."""

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute commands in order, each committed.

        All of them together end within `timeout_s`, by default the limit of one op, else the cause is `timeout`. An
        operation of another target fails with the cause `statement`.
        """
        ...

    def write(self, payload: Payload) -> int:
        """Send a payload, wait for the acknowledgement, return the number of points acknowledged: all of them.

        Raises
        ------
        tsbench.model.PartialWrite
            If the database refused some of the points and not others; only if the target `acknowledges_in_part`.
        """
        ...

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query and fetch every row.

        With the column `model.OTHERS` it is a `model.Stored`: what else the answer holds is put there by `others_text`.
        """
        ...

    def facts(self) -> Mapping[str, str]:
        """Return the version and the settings that matter to a reader of the result (for the manifest)."""
        ...

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes on disk by part (`table`, `index`, ...) as the server counts; their sum is the total."""
        ...

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the objects of these measurements that exist now; containers come last."""
        ...

    def close(self) -> None:
        """Close the connection; never raises."""
        ...


class Access(StrEnum):
    """The processes that may open the data of a target."""

    ANY_PROCESS = "any process"
    ONE_PROCESS = "one process at a time"
    OPENER = "the opener only"


@dataclass(frozen=True, slots=True)
class Driver:
    """The package that sessions need: the name it is imported by, and the extra of tsbench that installs it.

    `distributions` are the installed packages whose versions a run's manifest records.
    """

    module: str
    extra: str
    distributions: tuple[str, ...]


class Target(Protocol):
    """A database: its layouts, its abilities, and how to connect to it.

    Abilities are declared here, so that they are known before anything is started or connected; none is detected at run
    time.
    """

    @property
    def name(self) -> str:
        """Name in scenarios (`postgres`)."""

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """Layouts by name; the first is the default."""

    @property
    def durable(self) -> bool:
        """True if acknowledged data survives a restart of the server."""

    @property
    def driver(self) -> Driver | None:
        """The package to install beside tsbench's own; None where sessions need none."""

    @property
    def resolution_ns(self) -> int:
        """Finest step of time that the database stores exactly: 1, 1_000, 1_000_000 or 1_000_000_000 ns."""

    @property
    def cooperative(self) -> bool:
        """True if sessions let other greenlets run while they wait; if not, their calls run in threads."""

    @property
    def access(self) -> Access:
        """Processes that may open the data, which limits the load processes and the collectors."""

    @property
    def embedded(self) -> bool:
        """True if the database runs inside the processes that open it, without a server to cap, kill or sample."""

    @property
    def acknowledges_in_part(self) -> bool:
        """Whether it may refuse some points of a write and store the others; if not, it stores all or none."""

    @property
    def has_counters(self) -> bool:
        """True if its sessions are `collect.counters.Counting`."""

    @property
    def startable(self) -> bool:
        """True if tsbench can start the database on this machine (see `registry.SERVERS`)."""

    def expires_after_s(self, endpoint: str) -> int | None:
        """Return the age in seconds past which the database at an endpoint deletes points; None if it keeps all."""
        ...

    @property
    def requirements(self) -> Sequence[Part]:
        """What must be installed for it that an installation of tsbench may lack, for `tsbench doctor`."""

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint; nothing is connected or opened.

        Raises
        ------
        tsbench.errors.UserMistake
            If the endpoint is malformed: one line with the cure.
        """
        ...

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
        ...


class KeepsAll:
    """A target whose databases delete no points by themselves."""

    __slots__ = ()

    def expires_after_s(self, endpoint: str) -> None:
        """Return None."""
        del endpoint


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


def others_text(values: Mapping[str, Any]) -> str | None:
    """Return the text of the column `model.OTHERS` for other tags and fields; those without a value do not count."""
    found = {name: value for name, value in sorted(values.items()) if value is not None and value != ""}
    return json.dumps(found, default=str, ensure_ascii=False) if found else None


C = TypeVar("C", bound=Command)


def timed(commands: Sequence[C], timeout_s: float) -> Iterator[tuple[C, float]]:
    """Yield each command with the seconds that are left for it, where all together have `timeout_s`.

    Raises
    ------
    tsbench.model.OpError
        UNKNOWN `timeout` if no time remains.
    """
    deadline = time.monotonic() + timeout_s
    for command in commands:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise OpError(Outcome.UNKNOWN, "timeout", f"no time was left for it within {timeout_s:g} s")
        yield command, left_s


def statement_of(command: Command) -> Statement:
    """Return a command as the statement that it is, for a session that knows no operations.

    Raises
    ------
    tsbench.model.OpError
        FAILED `statement` if it is an operation.
    """
    if isinstance(command, Operation):
        raise not_mine(command)
    return command


def not_mine(command: Command) -> OpError:
    """Return the error of a session that is given a command of another target."""
    return OpError(Outcome.FAILED, "statement", f"this database has no operation '{command.text}'")
