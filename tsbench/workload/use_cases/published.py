"""Small worlds of published studies: the lag of a replica, prices of stocks, and rows of an insert benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.model import Field, Kind
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Fixed, Fresh, Lazy, Normal, Pareto, Uniform, Walk

if TYPE_CHECKING:
    from tsbench.workload.processes import Draw

# --- replication (source: study D, cold and warm reads) ---------------------------------------------------------------

_LAG = Layout(
    "replication_data",
    (
        Field("receive_lag_kb", Kind.INT, "kB"),
        Field("replay_lag_kb", Kind.INT, "kB"),
        Field("seconds_since_last_commit", Kind.INT, "s"),
    ),
    (
        # Lags are mostly small with rare bursts; shape 1.2 has a mean of six times the least value.
        Fresh(("receive_lag_kb", "replay_lag_kb"), Pareto(1.2, 1.0, most=1e6)),
        Lazy(("seconds_since_last_commit",), 0.0, 60.0, 0.3),
    ),
)

REPLICATION = UseCase(
    "replication",
    "the lag of one replica: a single series without tags, 3 fields",
    (),
    {"peer": (_LAG,), "bounded": (_LAG,)},
)

# --- stocks (source: study B, time-series collections against regular ones) -------------------------------------------

_NAMES = ("Apple", "Orange", "Banana")


def _symbol(number: int) -> str:
    """Return the study's three names, then the same with a number: `Apple-2`."""
    again, which = divmod(number, len(_NAMES))
    return f"{_NAMES[which]}-{again + 1}" if again else _NAMES[which]


# The price only rises, by less than 1 a minute, and is not rounded, as in the study.
_PRICES = Layout(
    "prices",
    (Field("price"),),
    (Walk(("price",), Uniform(0.0, 1.0), Uniform(10.0, 100.0)),),
)

STOCKS = UseCase(
    "stocks",
    "prices of stocks: 1 measurement of one value, tags symbol and currency",
    (Tag("symbol", _symbol, numbered=True), Tag("currency", choices=("dollar", "euro", "yen"))),
    {"peer": (_PRICES,), "bounded": (_PRICES,)},
)

# --- sensordata (source: study C, InnoDB against TokuDB) --------------------------------------------------------------
#
# The study publishes no ranges, but the sizes of its tables say what matters: uniform values fill all bits of a double,
# so that no engine can compress them, and pareto values repeat, so that a row takes less than half the room.

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
