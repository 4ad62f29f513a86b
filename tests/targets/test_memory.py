from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

from tsbench.model import Count, Measurement, OpError
from tsbench.testing import data, memory
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, START_NS
from tsbench.testing.schemas import KEEP
from tsbench.testing.session import MemorySession, tables_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point


pytestmark = pytest.mark.usefixtures("in_memory")


class TestMemory(TargetContract):
    name = "memory"
    holds_anything = False
    test_other_processes_open_the_data_as_declared = None  # type: ignore[assignment]  # they are in this process only

    @classmethod
    def the_target(cls) -> Target:
        return memory.TARGET

    @pytest.fixture
    def url(self, memory_endpoint: str) -> str:
        return memory_endpoint

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        table = tables_at(url)[measurement.name]
        points = table.between(-(2**62), 2**62).rows()
        own = [table.tags[tag].tolist() for tag in measurement.own_tags]
        return [
            (
                row[0],
                row[1] if measurement.tags else None,
                *map(float, row[2:]),
                {tag: own[i][row[1]] for i, tag in enumerate(measurement.own_tags)} or None,
            )
            for row in points
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        table = tables_at(url)[alteration.measurement]
        points = table.between(-(2**62), 2**62)
        found = (pl.col("time") == alteration.time_ns) & (pl.col("series") == alteration.series)
        of, changed = points.filter(found), pl.lit(alteration.value, dtype=pl.Int64).alias(f"f:{alteration.field}")
        new = {"delete": [], "duplicate": [of, of], "change": [of.with_columns(changed)]}
        table._tail = pl.concat([points.filter(~found), *new[alteration.action]])
        table._sorted = table._sorted.clear()


def test_stores_of_different_names_share_nothing_and_sessions_of_one_share_all() -> None:
    one, same = (cast("MemorySession", memory.TARGET.connect("memory://one", KEEP)) for _ in range(2))
    other: Any = memory.TARGET.connect("memory://other", KEEP)
    one.run(KEEP.create([CPU], data.shared_tags()))
    one.add(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]))
    assert same.answer(Count(CPU)).records == [(1,)]
    with pytest.raises(OpError):
        other.answer(Count(CPU))
    one.run(KEEP.drop([CPU]))
