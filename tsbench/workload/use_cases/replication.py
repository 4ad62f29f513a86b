"""The lag of one database replica: a single series without tags (Source: study D, cold and warm reads)."""

from __future__ import annotations

from tsbench.model import Field, Kind
from tsbench.workload.layout import Layout, UseCase
from tsbench.workload.processes import Fresh, Lazy, Pareto

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
