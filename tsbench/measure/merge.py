"""Merge the files of all load processes: exact histograms over all of them, and one row per second and op."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsbench.measure.bottleneck import Evidence
from tsbench.measure.hist import Histogram, read_log
from tsbench.measure.seconds import COUNTS, LATENCIES, LogIndex, SecondTable, read_counters, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import polars as pl

PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(slots=True)
class OpTotals:
    """Histograms and counts of one op over the measured window."""

    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    done: int = 0
    failed: int = 0
    unknown: int = 0
    points: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, other: OpTotals) -> None:
        """Add another op's histograms and counts."""
        self.response.add(other.response)
        self.service.add(other.service)
        self.done += other.done
        self.failed += other.failed
        self.unknown += other.unknown
        self.points += other.points
        self.causes.update(other.causes)

    def count(self, line: Mapping[str, Any]) -> None:
        """Take in the counters of an op and second, by name."""
        self.done += int(line.get("done", 0))
        self.failed += int(line.get("failed", 0))
        self.unknown += int(line.get("unknown", 0))
        self.points += int(line.get("points", 0))
        self.causes.update(line.get("causes", {}))

    def summary(self, duration_s: float, percents: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Return the op's part of summary.json: counts, rates per second, percentiles in ns.

        `percents` are percentiles in addition to PERCENTS.
        """
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
    """The merged result of all processes.

    `totals` covers the measured window, by op; `per_second` holds the rows of ops.parquet; `recorded` and `counted`
    count every op, with warm-up.
    """

    totals: dict[str, OpTotals]
    per_second: pl.DataFrame
    recorded: int
    counted: int


def merge(directory: Path, *, start_s: int, end_s: int) -> Merged:
    """Merge the files of a run directory; the measured window is [start_s, end_s) in epoch seconds.

    `recorded` is the number of ops in the histograms, `counted` in the counters, both with warm-up: they must agree.
    Logs are read twice, once for where each second is, so that only one second's histograms are in memory at a time:
    a process may write a second's again much later, when an op ends that was due then.

    Raises
    ------
    ValueError
        If a histogram log is damaged.
    """
    totals: dict[str, OpTotals] = defaultdict(OpTotals)

    def add(second: int, op: str, line: Mapping[str, Any]) -> None:
        if start_s <= second < end_s:
            totals[op].count(line)

    counters = [read_counters(path, add) for path in sorted((directory / "process").glob("*.ops.jsonl"))]
    logs = LogIndex(sorted((directory / "latency").glob("*.hlog")))
    table = SecondTable([logs, *counters])
    for part in counters:
        table.add_counters(part)
    recorded = 0
    for second, op, kind, histogram in logs.histograms():
        table.set_latencies(second, op, kind, histogram.percentiles_ns(tuple(LATENCIES.values())))
        if start_s <= second < end_s:
            histogram.add_to(getattr(totals[op], kind))
        recorded += len(histogram) if kind == "response" else 0
    counted = sum(int(part.numbers[:, COUNTS.index("done")].sum()) for part in counters)
    return Merged(dict(totals), table.frame(start_s), recorded, counted)


def evidence(
    directory: Path, process: str, *, start_s: int, end_s: int, service_p50_ns: int
) -> tuple[Evidence, Histogram]:
    """Return a process's self-observation in the measured window, and its lag histogram (for merging)."""
    seen = {"lag": Histogram(), "wait": Histogram()}
    path = directory / "process" / f"{process}.self.hlog"
    for interval in read_log(path):
        if start_s <= int(interval.start_s) < end_s:
            seen[interval.tag].add(interval.histogram)
    used = passed = 0
    for line in read_lines(directory / "process" / f"{process}.cpu.jsonl"):
        if start_s <= int(line["second"]) < end_s:
            used += int(line["cpu_ns"])
            passed += int(line["wall_ns"])
    lag_p50, lag_p99 = seen["lag"].percentiles_ns((50, 99))
    share = used / passed if passed else 0.0
    return Evidence(share, lag_p50, lag_p99, seen["wait"].percentile_ns(50), service_p50_ns), seen["lag"]


def _percentiles(histogram: Histogram, percents: Mapping[str, float]) -> dict[str, float]:
    values = histogram.percentiles_ns(percents.values())
    return {**dict(zip(percents, values, strict=True)), "mean": histogram.mean_ns}
