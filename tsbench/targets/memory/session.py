"""Sessions of the in-process database, on stores that those of one endpoint share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tsbench.model import OpError, Outcome, Query, Rows
from tsbench.targets.base import Session
from tsbench.targets.memory.answer_key import AnswerKey, Table
from tsbench.targets.memory.schemas import KEEP, CreateTable, DropTable, SortTable
from tsbench.targets.session import not_mine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Batch, Measurement
    from tsbench.targets.base import Command, Payload, Schema, Statement
    from tsbench.targets.target import Endpoint


@dataclass(slots=True)
class Store:
    """The tables of one in-memory database; the sessions of one endpoint share them."""

    tables: dict[str, Table] = field(default_factory=dict)


_stores: dict[str, Store] = {}
"""By endpoint; other processes cannot see them."""


def store_at(endpoint: str) -> Store:
    """Return the store of that name, making it if need be."""
    return _stores.setdefault(endpoint, Store())


def connect(of: Endpoint, schema: Schema, **_: object) -> MemorySession:
    """Open a session on the store of that name. Nothing here waits, so nothing times out."""
    return MemorySession(schema, store_at(of.url))


class MemorySession(Session):
    """A view of a store. Usable by itself: `add` batches, `answer` queries."""

    def __init__(self, schema: Schema | None = None, store: Store | None = None) -> None:
        self._key = AnswerKey((schema or KEEP).keeps_duplicates, (store or Store()).tables)

    def add(self, batch: Batch) -> None:
        """Store a batch, making its table if it does not exist."""
        self._key.add(batch)

    def answer(self, query: Query) -> Rows:
        """Return the answer to a query; keys are text, times are nanoseconds since 1970."""
        return self._key.answer(query)

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
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
        self._key.table(payload.measurement).add(payload.data)
        return payload.points

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if len(statement.params) != 1 or not isinstance(statement.params[0], Query):
            raise OpError(Outcome.FAILED, "statement", f"memory does not understand '{statement.text}'")
        return Rows(columns, self.answer(statement.params[0]).records)

    def facts(self) -> Mapping[str, str]:
        return {"version": f"polars {pl.__version__}"}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        return {"table": sum(self._key.table(m.name).size_bytes() for m in measurements)}

    def close(self) -> None:
        """Do nothing; the store stays for the other sessions of its endpoint."""
