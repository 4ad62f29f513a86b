"""Figures of ops and limits with any values, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from tsbench.results.figures import Limit, Load, Measured, OpFigures, Size, Window

_COUNTS = ("count", "ok", "failed", "unknown", "partial", "read", "stepped", "points", "unsent")


def op_figures(**changes: Any) -> OpFigures:
    """Return figures of an op, zero or none but for the changes."""
    none: dict[str, Any] = {"response_ns": {}, "response_undelayed_ns": {}, "service_ns": {}, "causes": {}}
    zero = dict.fromkeys((*_COUNTS, "ops_per_s", "points_per_s"), 0)
    return OpFigures.model_validate({**zero, **none, "response_at_least": (), **changes})


def measured(write: OpFigures | None = None, query: OpFigures | None = None, **ops: OpFigures) -> Measured:
    """Return a measured window of ten seconds."""
    window = Window(start_s=0, duration_s=10, warmup_s=0)
    return Measured(duration_s=10, window=window, write=write, query=query, ops=ops)


def limit(**changes: Any) -> Limit:
    """Return what load processes saw of themselves, nothing but for the changes."""
    zero = ("hub_lag_p50_ns", "hub_lag_p99_ns", "hub_cpu_percent", "pool_wait_p50_ns", "in_flight", "sent_in_bursts")
    none = dict.fromkeys(("cores", "others_cores", "steal_percent"))
    return Limit.model_validate({**dict.fromkeys(zero, 0), **none, "disturbed": "", **changes})


def load(points_per_s: float) -> Load:
    """Return a load of that rate."""
    zero = dict.fromkeys(("points", "values", "bytes", "duration_s", "encode_s", "client_cpu_s", "workers", "batch"), 0)
    return Load.model_validate({**zero, "points_per_s": points_per_s, "mode": "bulk"})


def size(bytes_per_point: float) -> Size:
    """Return a size that comes to so many bytes for each point."""
    return Size(bytes=0, points=0, bytes_per_point=bytes_per_point, parts={}, directory_bytes=0)
