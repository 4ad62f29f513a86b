"""The interfaces of a database: what its schemas make, and the sessions that send it.

A Schema, which is pure, converts batches and queries to the data that sessions send. A variant of the data's layout
(b-tree or BRIN, narrow or wide) is a Schema of its own, never an `if`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tsbench.model import Kind, WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Measurement, Query, Rows, Text
    from tsbench.net.stamps import Arrival
    from tsbench.results.panels import Panel


@dataclass(frozen=True, slots=True)
class Statement:
    """One text to execute with its parameters; an `optional` one is skipped if the login has no right to it.

    If it `has_tags_apart`, rows of the answer have the number of their series, to whose tags the session joins them.
    """

    text: str
    params: tuple[Any, ...] = ()
    optional: bool = False
    has_tags_apart: bool = False


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


def text_in(query: Text, *languages: str) -> str:
    """Return a query's text in the first of these languages in which it is written.

    Raises
    ------
    Unsupported
        If it is in none.
    """
    texts = dict(query.texts)
    for language in languages:
        if language in texts:
            return texts[language]
    raise Unsupported(f"it has no {' or '.join(f'text.{language}' for language in languages)}")


NUMBERS = frozenset({Kind.FLOAT, Kind.INT})


def expect_all_fields(batch: Batch) -> None:
    """Refuse a batch with a point that lacks a field, for a layout that cannot express it; raises `Unsupported`."""
    columns = (batch.fields[field.name] for field in batch.measurement.fields if field.nullable)
    if any(np.isnan(column).any() for column in columns):
        raise Unsupported(
            "a point lacks a field, which this layout does not hold; "
            "take world.form = 'bounded', or fields without null"
        )


def expect_kinds(batch: Batch, kinds: frozenset[Kind]) -> None:
    """Refuse a batch with fields of other kinds than those that a layout holds; raises `Unsupported`."""
    if other := next((field.name for field in batch.measurement.fields if field.kind not in kinds), None):
        raise Unsupported(f"this layout holds numbers only, and the field {other} has none")


class NothingKept(Unsupported):
    """Raised by a schema whose target keeps nothing by design: nothing can be counted or compared."""


class Schema(Protocol):
    """One layout of the data in a database. Pure: every method depends on its arguments only."""

    modes: frozenset[WriteMode] = frozenset(WriteMode)
    """Write modes that `encode` supports."""
    kinds: frozenset[Kind] = frozenset(Kind)
    """Kinds of fields that the layout stores."""
    nulls: frozenset[Kind] = frozenset(Kind)
    """Kinds of a table's fields that points of a batch may lack."""

    counts_sparse: bool = True
    """Whether points can be counted of which no field is in all (`Measurement.sparse`)."""

    if TYPE_CHECKING:  # a dataclass would take what stands here for the default of its field

        @property
        def name(self) -> str:
            """Name in scenarios (`btree`)."""

        @property
        def keeps_duplicates(self) -> bool:
            """True if two points of a series at the same time are both stored; else the later one replaces."""

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
        """Encode a batch for a session to write.

        Raises
        ------
        Unsupported
            If the mode is SINGLE and the batch has not one point, or the wire format cannot express a value exactly.
        """
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        if len(batch):
            return next(self.encode_each(batch, len(batch), mode))
        return Payload(mode, batch.measurement.name, "", b"", 0, 0)

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return what `encode` makes of every `points` points of the batch, in order; the last may have fewer.

        The batch is encoded at once where that is faster than slicing it (numpy's calls cost as much for ten points as
        for a thousand), but payloads are made one by one: making a thousand would delay other ops.
        """
        ...

    takes_lines: bool = False
    """Whether `encode_lines` sends line protocol as it is."""

    def encode_lines(self, lines: bytes, points: int) -> Payload:
        """Return the payload of `points` lines of line protocol; only if the schema `takes_lines`."""
        raise Unsupported("the layout takes no line protocol")

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        """Return commands that add, to what `create` made, empty tables of further measurements, and series.

        The tags are those of the series `first`, `first` + 1 and so on; one that a series lacks is "".

        Raises
        ------
        Unsupported
            If all tables and series must be known when the tables are created.
        """
        raise Unsupported("its tables must be known beforehand, as those of a simulated world are")

    def compile(self, query: Query) -> Statement:
        """Compile a query to the database's language; its answer has the columns `query.columns`, in that order.

        Raises
        ------
        Unsupported
            If this layout or database cannot express the query.
        """
        ...


# --- sessions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The execution of one query as its database reports it; a figure that it does not report is None.

    `access` is how it got at the data (`IXSCAN time_1`), `examined` the number of rows or documents that it looked at,
    `returned` the number of those in the answer, `duration_ms` its own time, `blocks` the number of blocks that it read
    from its cache or from disk; `text` is all that it says, as JSON.
    """

    access: str
    examined: int | None
    returned: int | None
    duration_ms: float | None
    text: str
    blocks: int | None = None

    def figures(self) -> dict[str, Any]:
        """Return the plan without its text in the form of summary.json."""
        return {name: value for name, value in asdict(self).items() if name != "text"}


def nodes(content: object, *without: str) -> Iterator[Mapping[str, Any]]:
    """Yield all mappings in a nested answer, except those `without`, by the names of what contains them."""
    if isinstance(content, Mapping):
        yield content
        for name, value in content.items():
            if name not in without:
                yield from nodes(value, *without)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from nodes(value, *without)


def grouped(accesses: Iterable[tuple[str, str]]) -> str:
    """Return ways to the data as one line, each with its first table or index and the number of others."""
    groups: dict[str, dict[str, None]] = {}
    for kind, name in accesses:
        groups.setdefault(kind, {})[name] = None
    texts = [(f"{kind} {next(iter(names))}".strip(), len(names) - 1) for kind, names in groups.items()]
    return ", ".join(f"{text} and {more:,} more" if more else text for text, more in texts)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The contents of a database beside the points of a scenario's measurements.

    `tables` are the names of tables (collections, measurements) that are like tsbench's own and of no measurement of
    the scenario. `series` are the rows of the table of tags, with the columns id, the tags and `model.OTHERS`; None
    where a layout has no such table.
    """

    tables: tuple[str, ...] = ()
    series: Rows | None = None


class Session(Protocol):
    """One connection. Every method raises `model.OpError` if the op fails or its outcome is unknown."""

    arrival: Arrival | None = None
    """When the last answer arrived; None if the database runs in our process, where nothing arrives."""

    @property
    def write_arrival(self) -> Arrival | None:
        """When the answer to the last write arrived, where writes have a connection of their own."""
        return self.arrival

    panels: Sequence[Panel] = ()
    """How the report plots the counters that mean something to its readers."""

    @abstractmethod
    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute commands in order, each committed.

        All of them together end within `timeout_s`, by default the limit of one op, else the cause is `timeout`. An
        operation of another target fails with the cause `statement`.
        """

    @abstractmethod
    def write(self, payload: Payload) -> int:
        """Send a payload, wait for the acknowledgement, return the number of points acknowledged: all of them.

        Raises
        ------
        tsbench.model.PartialWrite
            If the database refused some of the points and not others; only if the target `acknowledges_in_part`.
        """

    @abstractmethod
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Execute a compiled query and fetch every row.

        With the column `model.OTHERS` it is a `model.Stored`: what else the answer holds is put there by `others_text`.
        """

    @abstractmethod
    def facts(self) -> Mapping[str, str]:
        """Return the version and the settings that matter to a reader of the result (for the manifest)."""

    @abstractmethod
    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes on disk by part (`table`, `index`, ...) as the server counts; their sum is the total."""

    def deliver(self, timeout_s: float) -> None:
        """Wait until all acknowledged points are delivered and visible, if the endpoint `delivers_later`."""
        return

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the objects of these measurements that exist now; containers come last."""
        return ()

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """List tables of other measurements, and the rows of tags if `series` are asked for.

        A table that has not the form of tsbench's own is not listed, nor is what lies outside the place (namespace,
        database, policy, bucket) that the session writes to: it may be anybody's.
        """
        return Inventory()

    def ask(self, text: str) -> Rows:
        """Execute a query that another program wrote and fetch every row; of targets with `peer_queries` only."""
        raise Unsupported("this database takes no queries as text")

    def explain(self, statement: Statement) -> Plan | None:
        """Execute a compiled query and return how the database did that; None if it does not report it."""
        return None

    def counters(self) -> Mapping[str, float]:
        """Return the server's current counters, a few dozen at most: totals since its start, and gauges.

        Names are the server's own, dotted where it has several tables of counters (`database.xact_commit`). Reading
        them once a second must not cost noticeable time. Only sessions of a target that `has_counters` have any.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Close the connection; never raises."""


def column_of(array: NDArray[Any]) -> NDArray[Any] | list[Any]:
    """Return numbers of a driver as a column of `ByColumn`: a list where they are masked, have NaN, or are none."""
    kind = array.dtype.kind
    if kind not in "if" or np.ma.is_masked(array) or (kind == "f" and np.isnan(array).any()):
        values: list[Any] = array.tolist()
        return values
    return np.asarray(array, dtype=np.int64 if kind == "i" else np.float64)


def others_text(values: Mapping[str, Any]) -> str | None:
    """Return the text of the column `model.OTHERS` for other tags and fields; those without a value do not count."""
    fields = {name: value for name, value in sorted(values.items()) if value is not None and value != ""}
    return json.dumps(fields, default=str, ensure_ascii=False) if fields else None
