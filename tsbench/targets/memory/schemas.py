"""The in-process database's layouts: batches and queries as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.model import WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query


@dataclass(frozen=True, slots=True)
class MemorySchema:
    """Points as they come (`keep`), or one per series and time, the last written (`replace`)."""

    name: str
    keeps_duplicates: bool
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Empty tables."""
        return [Statement(f"create {m.name}", ("create", m, tags)) for m in measurements]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """No tables."""
        return [Statement(f"drop {m.name}", ("drop", m, {})) for m in measurements]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Sort what came."""
        return [Statement(f"settle {m.name}", ("settle", m, {})) for m in measurements]

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


KEEP = MemorySchema("keep", keeps_duplicates=True)
REPLACE = MemorySchema("replace", keeps_duplicates=False)
