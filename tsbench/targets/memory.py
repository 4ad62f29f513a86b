"""A database in memory: the answer key as a target, for dry runs and for the load generator's own ceiling.

A write costs one list append.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import polars as pl

from tsbench.errors import UserMistake
from tsbench.model import Batch, Codes, OpError, Outcome, Query, Rows, WriteMode
from tsbench.servers.embedded import InMemoryServer
from tsbench.targets.base import Access, Operation, Payload, Requirement, Statement, Unsupported, not_mine
from tsbench.workload.answer_key import AnswerKey, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.targets.base import Command, Schema


@dataclass(slots=True)
class Store:
    """What one in-memory database holds; the sessions of one endpoint share it."""

    tables: dict[str, Table] = field(default_factory=dict)


_stores: dict[str, Store] = {}


@dataclass(frozen=True, slots=True, eq=False)
class CreateTable(Operation):
    """Make an empty table; `tags` holds the shared tags of every series."""

    measurement: Measurement
    tags: Mapping[str, Codes]


@dataclass(frozen=True, slots=True)
class DropTable(Operation):
    """Remove a table, if it exists."""

    measurement: Measurement


@dataclass(frozen=True, slots=True)
class SortTable(Operation):
    """Sort the points of a table that were written since it was last read."""

    measurement: Measurement


@dataclass(frozen=True, slots=True)
class MemorySchema:
    """Points as they come (`keep`), or one per series and time, the last written (`replace`)."""

    name: str
    keeps_duplicates: bool
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        """Empty tables."""
        return [CreateTable(f"create {m.name}", m, tags) for m in measurements]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """No tables."""
        return [DropTable(f"drop {m.name}", m) for m in measurements]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Sort what came."""
        return [SortTable(f"settle {m.name}", m) for m in measurements]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """The batch itself."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        name = batch.measurement.name
        return Payload(mode, name, f"add to {name}", batch, len(batch), len(batch) * 12 + batch.values * 8)

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        """One payload per point."""
        return (self.encode(batch.rows(i, i + 1), WriteMode.SINGLE) for i in range(len(batch)))

    def compile(self, query: Query) -> Statement:
        """The query itself; its text is its representation, for people."""
        return Statement(str(query), (query,))


class MemorySession:
    """A view of a store. Usable by itself: `add` batches, `answer` queries."""

    def __init__(self, schema: Schema | None = None, store: Store | None = None) -> None:
        self._key = AnswerKey((schema or KEEP).keeps_duplicates, (store or Store()).tables)

    def add(self, batch: Batch) -> None:
        """Store a batch, making its table if there is none."""
        self._key.add(batch)

    def answer(self, query: Query) -> Rows:
        """The query's answer; keys are text, times are nanoseconds since 1970."""
        return self._key.answer(query)

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Make, remove or sort tables."""
        del timeout_s  # nothing here waits
        for command in commands:
            match command:
                case CreateTable(measurement=measurement, tags=tags):
                    self._key.create(measurement, tags)
                case DropTable(measurement=measurement):
                    self._key.tables.pop(measurement.name, None)
                case SortTable(measurement=measurement):
                    self._key.table(measurement.name).size_bytes()
                case _:
                    raise not_mine(command)

    def write(self, payload: Payload) -> int:
        """Store the payload's batch."""
        self._key.table(payload.measurement).add(payload.data)
        return payload.points

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Answer the query that the statement carries."""
        if len(statement.params) != 1 or not isinstance(statement.params[0], Query):
            raise OpError(Outcome.FAILED, "statement", f"memory does not understand '{statement.text}'")
        return Rows(columns, self.answer(statement.params[0]).records)

    def facts(self) -> Mapping[str, str]:
        """The version of polars."""
        return {"version": f"polars {pl.__version__}"}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Bytes of the columns in memory."""
        return {"table": sum(self._key.table(m.name).size_bytes() for m in measurements)}

    def close(self) -> None:
        """Nothing to close; the store stays for the other sessions of its endpoint."""


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The in-process database; `memory://NAME` is shared by the sessions of this process."""

    name: str
    schemas: Mapping[str, MemorySchema]
    durable: bool = False
    resolution_ns: int = 1
    cooperative: bool = True
    access: Access = Access.OPENER
    embedded: bool = True
    acknowledges_in_part: bool = False
    has_counters: bool = False
    startable: bool = True
    requirements: tuple[Requirement, ...] = ()

    def connect(
        self, endpoint: str, schema: Schema, *, timeout_s: float = 30.0, connect_timeout_s: float | None = None
    ) -> MemorySession:
        """Open a session on the store of that name, making it if need be. Nothing here waits, so nothing times out."""
        del timeout_s, connect_timeout_s
        if urlsplit(endpoint).scheme != "memory":
            raise UserMistake(f"'{endpoint}' is not an in-memory endpoint; write memory://NAME")
        return MemorySession(schema, _stores.setdefault(endpoint, Store()))


KEEP = MemorySchema("keep", keeps_duplicates=True)
REPLACE = MemorySchema("replace", keeps_duplicates=False)
TARGET = MemoryTarget("memory", {s.name: s for s in (KEEP, REPLACE)})


class MemoryServer(InMemoryServer):
    """The in-memory database: its name is the directory's, so runs do not share."""

    @property
    def endpoint(self) -> str:
        """The URL of the store."""
        return f"memory://{quote(os.fsencode(self._directory))}"
