"""Sessions of the in-process database, on tables that those of one endpoint share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tsbench.model import OpError, Outcome, Query, Rows
from tsbench.targets.base import Session
from tsbench.targets.session import not_mine
from tsbench.testing.answer_key import AnswerKey, Table
from tsbench.testing.schemas import KEEP, CreateTable, DropTable, SortTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.targets.base import Command, Payload, Schema, Statement
    from tsbench.targets.target import Endpoint

_tables: dict[str, dict[str, Table]] = {}
"""By endpoint; other processes cannot see them."""


def tables_at(endpoint: str) -> dict[str, Table]:
    """Return the tables of an endpoint, which its sessions share."""
    return _tables.setdefault(endpoint, {})


def connect(of: Endpoint, schema: Schema, **_: object) -> MemorySession:
    """Open a session on the tables of that name. Nothing here waits, so nothing times out."""
    return MemorySession(schema, tables_at(of.url))


class MemorySession(AnswerKey, Session):
    """An answer key as a session. Usable by itself: `add` batches, `answer` queries."""

    def __init__(self, schema: Schema = KEEP, tables: dict[str, Table] | None = None) -> None:
        super().__init__(schema.keeps_duplicates, {} if tables is None else tables)

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        for command in commands:
            match command:
                case CreateTable(measurement=measurement, tags=tags):
                    self.create(measurement, tags)
                case DropTable(measurement=measurement):
                    self.tables.pop(measurement.name, None)
                case SortTable(measurement=measurement):
                    self.table(measurement.name).size_bytes()
                case _:
                    raise not_mine(command)

    def write(self, payload: Payload) -> int:
        self.table(payload.measurement).add(payload.data)
        return payload.points

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if len(statement.params) != 1 or not isinstance(statement.params[0], Query):
            raise OpError(Outcome.FAILED, "statement", f"memory does not understand '{statement.text}'")
        return Rows(columns, self.answer(statement.params[0]).records)

    def facts(self) -> Mapping[str, str]:
        return {"version": f"polars {pl.__version__}"}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        return {"table": sum(self.table(m.name).size_bytes() for m in measurements)}

    def close(self) -> None:
        """Do nothing; the tables stay for the other sessions of their endpoint."""
