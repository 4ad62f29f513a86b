"""Rows of sensors for an insert benchmark: five values and a counter (Source: study C, InnoDB against TokuDB).

The study publishes no ranges, but the sizes of its tables say what matters: uniform values fill all bits of a double,
so that no engine can compress them, and pareto values repeat, so that a row takes less than half the room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.model import Field, Kind
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Fixed, Fresh, Normal, Pareto, Uniform, Walk

if TYPE_CHECKING:
    from tsbench.workload.processes import Draw

_VALUES = tuple(f"data{number}" for number in range(1, 6))
_FIELDS = (*(Field(name) for name in _VALUES), Field("cnt", Kind.INT))
_COUNT = Walk(("cnt",), Normal(5.0, 1.0), Fixed(0.0), monotone=True)


def _sensordata(draw: Draw, decimals: int | None = None) -> Layout:
    return Layout("sensordata", _FIELDS, (Fresh(_VALUES, draw), _COUNT), decimals=decimals)


_UNIFORM = _sensordata(Uniform(0.0, 1.0))
# Whole numbers by the 80:20 rule (shape 1.16), at least 1: every third value is 1.
_PARETO = _sensordata(Pareto(1.16, 1.0, most=1e6), decimals=0)

SENSORDATA = UseCase(
    "sensordata",
    "rows of numbered sensors: 1 measurement of 5 values and a counter, tag sensor_id",
    (Tag("sensor_id", first=1, numbered=True),),
    {"bounded": (_UNIFORM,), "peer": (_UNIFORM,), "uniform": (_UNIFORM,), "pareto": (_PARETO,)},
)
