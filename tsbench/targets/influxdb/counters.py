"""InfluxDB's counters, parsed from /debug/vars of 1.x and /metrics of 2.x: pure functions, sums over all shards."""

from __future__ import annotations

import json
import re
from collections import defaultdict

from tsbench.results.panels import Panel

VARS_PANELS = (
    Panel("Requests", "count", "rate", {"httpd.writeReq": "writes", "httpd.queryReq": "queries"}),
    Panel(
        "Points written",
        "count",
        "rate",
        {
            "httpd.pointsWrittenOK": "written",
            "httpd.pointsWrittenDropped": "dropped",
            "httpd.pointsWrittenFail": "failed",
        },
    ),
    Panel("Bytes written", "bytes", "rate", {"httpd.writeReqBytes": "write requests"}),
    Panel(
        "Compactions",
        "count",
        "rate",
        {
            "tsm1_engine.cacheCompactions": "snapshots of the cache",
            "tsm1_engine.tsmLevel1Compactions": "level 1",
            "tsm1_engine.tsmLevel2Compactions": "level 2",
            "tsm1_engine.tsmLevel3Compactions": "level 3",
            "tsm1_engine.tsmFullCompactions": "full",
        },
        explains_stalls=True,
    ),
    Panel(
        "Compactions at work",
        "count",
        "gauge",
        {
            "tsm1_engine.cacheCompactionsActive": "snapshots of the cache",
            "tsm1_engine.tsmLevel1CompactionsActive": "level 1",
            "tsm1_engine.tsmLevel2CompactionsActive": "level 2",
            "tsm1_engine.tsmLevel3CompactionsActive": "level 3",
            "tsm1_engine.tsmFullCompactionsActive": "full",
        },
        explains_stalls=True,
    ),
    Panel(
        "Memory, by the server's counters",
        "bytes",
        "gauge",
        {"tsm1_cache.memBytes": "cache", "runtime.HeapInUse": "heap"},
        explains_stalls=True,
    ),
)
"""What the report plots of 1.x."""
METRICS_PANELS = (
    Panel("Requests", "count", "rate", {"http_write_request_count": "writes", "http_query_request_count": "queries"}),
    Panel(
        "Points written",
        "count",
        "rate",
        {
            "storage_writer_ok_points_sum": "written",
            "storage_writer_dropped_points_sum": "dropped",
            "storage_writer_err_points_sum": "failed",
        },
    ),
    Panel(
        "Compactions",
        "count",
        "gauge",
        {"storage_compactions_active": "at work", "storage_compactions_queued": "queued"},
        explains_stalls=True,
    ),
    Panel(
        "Memory, by the server's counters",
        "bytes",
        "gauge",
        {"storage_cache_inuse_bytes": "cache", "go_memstats_heap_inuse_bytes": "heap"},
        explains_stalls=True,
    ),
)
"""What the report plots of 2.x."""
VARS_MODULES = frozenset(
    {"httpd", "write", "shard", "tsm1_cache", "tsm1_engine", "tsm1_wal", "queryExecutor", "runtime"}
)
METRICS = re.compile(
    rb"^((?:storage|http_write_request|http_query_request|qc_requests|go_memstats_heap_(?:alloc|inuse)"
    rb"|go_gc_duration_seconds_sum)[a-z_]*)(\{[^\n]*\})? ([-+0-9.eE]+)$",
    re.MULTILINE,
)

_BEFORE_THE_FIRST_COMPACTION = {"storage_compactions_active": 0.0, "storage_compactions_queued": 0.0}
"""Metrics that 2.x leaves out of its page until it has planned a compaction."""


def of_vars(page: bytes) -> dict[str, float]:
    """Return the counters of 1.x as `<module>.<counter>`, without those of its own database `_internal`.

    Raises
    ------
    ValueError
        If the page has another format.
    """
    totals: dict[str, float] = defaultdict(float)
    for entry in json.loads(page).values():
        if not isinstance(entry, dict) or entry.get("name") not in VARS_MODULES:
            continue
        if (entry.get("tags") or {}).get("database") == "_internal":
            continue
        for name, value in entry.get("values", {}).items():
            if isinstance(value, int | float):
                totals[f"{entry['name']}.{name}"] += value
    return dict(totals)


def of_metrics(page: bytes) -> dict[str, float]:
    """Return the metrics of 2.x in METRICS, without the buckets of histograms."""
    totals: dict[str, float] = defaultdict(float, _BEFORE_THE_FIRST_COMPACTION)
    for match in METRICS.finditer(page):
        if not match[1].endswith(b"_bucket"):
            totals[match[1].decode("ascii")] += float(match[3])
    return dict(totals)
