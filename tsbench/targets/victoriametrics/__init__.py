"""The target for VictoriaMetrics, single nodes: line protocol to /write, MetricsQL and exports over HTTP."""

from __future__ import annotations

from tsbench.targets.target import Requirement, Target
from tsbench.targets.victoriametrics.schemas import FIELDS

TARGET = Target(
    name="victoriametrics",
    product="VictoriaMetrics",
    form="http://user@host:8428/tsbench",
    schemes=("http", "https"),
    schemas={FIELDS.name: FIELDS},
    options=("gzip", "retention", "nodes", "replicas"),
    parser="tsbench.targets.victoriametrics.session:parse",
    opener="tsbench.targets.victoriametrics.cluster:connect",
    server="tsbench.targets.victoriametrics.server:VictoriaServer",
    cluster="tsbench.targets.victoriametrics.server:VictoriaCluster",
    greetings=(rb"HTTP/1\.\d .*?\r\n(?i:X-Server-Hostname:)",),
    secrets=("TSBENCH_PASSWORD",),
    resolution_ns=1_000_000,
    has_counters=True,
    shows_at_once=False,
    durability="none: points are acknowledged in memory, and on disk some 5 s later (`inmemoryDataFlushInterval`)",
    requirements=(
        Requirement("VictoriaMetrics (victoriametrics)", programs=("victoria-metrics",)),
        Requirement(
            "several nodes of VictoriaMetrics (victoriametrics)",
            how="run tsbench servers install vmagent",
            programs=("vmagent",),
        ),
    ),
)
