"""What the load processes wrote, put together: exact histograms over all of them, and one row per second and op."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsbench.measure.bottleneck import Evidence
from tsbench.measure.hist import Histogram, read_log
from tsbench.results.rundir import OPS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import polars as pl

PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(slots=True)
class OpTotals:
    """One op over the measured window."""

    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    done: int = 0
    failed: int = 0
    unknown: int = 0
    points: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, other: OpTotals) -> None:
        """Take in another op's."""
        self.response.add(other.response)
        self.service.add(other.service)
        self.done += other.done
        self.failed += other.failed
        self.unknown += other.unknown
        self.points += other.points
        self.causes.update(other.causes)

    def summary(self, duration_s: float, percents: Mapping[str, float] | None = None) -> dict[str, Any]:
        """The figures of summary.json: counts, rates per second, percentiles in ns (`percents` beside the usual)."""
        wanted = PERCENTS | dict(percents or {})
        return {
            "count": len(self.response),
            "ok": self.done - self.failed - self.unknown,
            "failed": self.failed,
            "unknown": self.unknown,
            "points": self.points,
            "ops_per_s": self.done / duration_s,
            "points_per_s": self.points / duration_s,
            "response_ns": _percentiles(self.response, wanted),
            "service_ns": _percentiles(self.service, wanted),
            "causes": dict(self.causes.most_common()),
        }


@dataclass(slots=True)
class Merged:
    """All processes' ops: totals by op over the measured window, rows for ops.parquet, and every op ever recorded."""

    totals: dict[str, OpTotals]
    per_second: pl.DataFrame
    recorded: int
    counted: int


def merge(directory: Path, *, start_s: int, end_s: int) -> Merged:
    """Merge the files of a run directory; the measured window is [start_s, end_s) in epoch seconds.

    `recorded` is the number of ops in the histograms, `counted` in the counters, both with warm-up: they must agree.

    Raises
    ------
    ValueError
        If a histogram log is damaged.
    """
    from tsbench.results.tables import frame  # noqa: PLC0415 - imports polars, which load workers do without

    totals: dict[str, OpTotals] = defaultdict(OpTotals)
    seconds: dict[tuple[int, str], dict[str, Any]] = defaultdict(_empty_second)
    recorded = 0
    for path in sorted((directory / "latency").glob("*.hlog")):
        for interval in read_log(path):
            op, _, kind = interval.tag.rpartition("|")
            second = int(interval.start_s)
            seconds[second, op][kind].add(interval.histogram)
            if start_s <= second < end_s:
                getattr(totals[op], kind).add(interval.histogram)
            recorded += len(interval.histogram) if kind == "response" else 0
    counted = 0
    for line in _lines((directory / "process").glob("*.ops.jsonl")):
        second, op = int(line["second"]), str(line["op"])
        counted += int(line.get("done", 0))
        row = seconds[second, op]
        for key in ("count", "done", "failed", "unknown", "points"):
            row[key] += int(line.get(key, 0))
        if start_s <= second < end_s:
            total = totals[op]
            for key in ("done", "failed", "unknown", "points"):
                setattr(total, key, getattr(total, key) + int(line.get(key, 0)))
            total.causes.update(line.get("causes", {}))
    rows = [_second_row(second - start_s, op, row) for (second, op), row in sorted(seconds.items())]
    return Merged(dict(totals), frame(rows, OPS_COLUMNS), recorded, counted)


def evidence(
    directory: Path, process: str, *, start_s: int, end_s: int, service_p50_ns: int
) -> tuple[Evidence, Histogram]:
    """What a process saw of itself in the measured window, and its lag histogram (for merging)."""
    seen = {"lag": Histogram(), "wait": Histogram()}
    path = directory / "process" / f"{process}.self.hlog"
    for interval in read_log(path):
        if start_s <= int(interval.start_s) < end_s:
            seen[interval.tag].add(interval.histogram)
    used = passed = 0
    for line in _lines([directory / "process" / f"{process}.cpu.jsonl"]):
        if start_s <= int(line["second"]) < end_s:
            used += int(line["cpu_ns"])
            passed += int(line["wall_ns"])
    lag_p50, lag_p99 = seen["lag"].percentiles_ns((50, 99))
    share = used / passed if passed else 0.0
    return Evidence(share, lag_p50, lag_p99, seen["wait"].percentile_ns(50), service_p50_ns), seen["lag"]


def _lines(paths: Iterable[Path]) -> Iterable[Mapping[str, Any]]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):  # the last line of a killed process may be cut off
                    yield json.loads(line)


def _percentiles(histogram: Histogram, percents: Mapping[str, float]) -> dict[str, float]:
    values = histogram.percentiles_ns(percents.values())
    return {**dict(zip(percents, values, strict=True)), "mean": histogram.mean_ns}


def _empty_second() -> dict[str, Any]:
    return {
        "count": 0,
        "done": 0,
        "failed": 0,
        "unknown": 0,
        "points": 0,
        "response": Histogram(),
        "service": Histogram(),
    }


def _second_row(second: int, op: str, row: Mapping[str, Any]) -> dict[str, Any]:
    latencies = {}
    for kind in ("response", "service"):
        for name, value in zip(("p50", "p99", "max"), row[kind].percentiles_ns((50, 99, 100)), strict=True):
            latencies[f"{kind}_{name}_ns"] = value
    counts = {key: row[key] for key in ("count", "done", "failed", "unknown", "points")}
    return {"second": second, "op": op, **counts, **latencies}
