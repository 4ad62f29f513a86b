"""The in-process database's layouts: batches and queries as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.targets.base import NUMBERS, Operation, Payload, Schema, Statement, expect_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query, WriteMode
    from tsbench.targets.base import Command


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
class MemorySchema(Schema):
    """Points as they come (`keep`), or one per series and time, the last written (`replace`)."""

    name: str
    keeps_duplicates: bool
    kinds = NUMBERS  # of texts and booleans, the numbers that columns have

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        return [CreateTable(f"create {m.name}", m, tags) for m in measurements]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [DropTable(f"drop {m.name}", m) for m in measurements]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [SortTable(f"settle {m.name}", m) for m in measurements]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        expect_kinds(batch, self.kinds)
        name = batch.measurement.name
        slices = (batch.rows(start, start + points) for start in range(0, len(batch), points))
        return (Payload(mode, name, f"add to {name}", one, len(one), len(one) * 12 + one.values * 8) for one in slices)

    def compile(self, query: Query) -> Statement:
        """Return a statement with the query itself as its parameter; its text is for people only."""
        return Statement(str(query), (query,))


KEEP = MemorySchema("keep", keeps_duplicates=True)
REPLACE = MemorySchema("replace", keeps_duplicates=False)
