"""Synthetic result sets: the exact form that `run/lifecycle.py` writes, with plausible figures, for tests.

`python -m tests.report.synthetic DIRECTORY [ramp | rounds]` writes one to look at.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsbench.measure.hist import Histogram, Interval, SparseHistogram, write_interval, write_log_head
from tsbench.measure.merge import OpTotals
from tsbench.model import WriteMode
from tsbench.results.figures import (
    AnswerCounts,
    AnswersThatDiffer,
    FirstDifference,
    Limit,
    Load,
    LocatedFlaw,
    Measured,
    OpKind,
    Size,
    StoredDifference,
    Torn,
    TornRow,
    Window,
    Writes,
)
from tsbench.results.manifest import Host, Manifest
from tsbench.results.process import Schedule
from tsbench.results.rundir import HOST_COLUMNS, OPS_COLUMNS, SERVER_COLUMNS, RunDir
from tsbench.results.summary import Check, GateResult, SetSummary, Summary, Validity, ValidityState
from tsbench.run.bulk_load import Loaded
from tsbench.run.disturbance import Disturbance

EPOCH_S = 1_763_632_800
QUESTION = "Which layout keeps up with 10 writers, and what do the queries of a dashboard cost meanwhile?"


ALIVE = GateResult("server deaths<=0", 0.0, "pass", "the server was alive to the end", built_in=True)


@dataclass(frozen=True)
class Shape:
    """Properties of a synthetic run."""

    cell: str = "postgres-btree"
    loop: str = "open"
    validity: ValidityState = "valid"
    reason: str = ""
    state: str = "complete"
    error: str = ""
    seconds: int = 20
    warmup: int = 5
    rate: int = 200  # ops per second and op
    typical_ms: float = 3.0
    stall_at: int | None = None
    ops: tuple[tuple[str, str], ...] = (
        ("write", "write"),
        ("single-groupby-1-1-1", "query"),
        ("double-groupby-1", "query"),
        ("lastpoint", "query"),
    )
    processes: int = 2
    seed: int = 1
    limited_by: str = "database"
    wrong: int = 0
    gates: tuple[GateResult, ...] = (ALIVE,)
    doubted: str = "limit"  # the check that says why a run is not valid
    delayed: float = 0.0  # share of each response time that is the client's
    settings: tuple[tuple[str, str], ...] = (("shared_buffers", "1GB"), ("fsync", "on"))
    labels: tuple[tuple[str, str], ...] = ()


def make_run(results: Path, shape: Shape) -> RunDir:
    """One run with all its files; those of a failed or interrupted one stay in `.partial`."""
    run = RunDir.create(results, shape.cell)
    run.write_json(
        "spec.json", {"cell": shape.cell, "scenario": "quickstart", "drive": {"loop": shape.loop, "users": 10}}
    )
    _manifest(shape).write(run)
    histograms = _load(run, shape)
    _processes(run, shape)
    if shape.state != "interrupted":
        summary_of(shape, histograms).write(run)
        return run.finish(shape.state, error=shape.error)
    return run


def make_results(results: Path, shapes: list[Shape]) -> Path:
    """A result set with its own summary and scenario."""
    results.mkdir(parents=True, exist_ok=True)
    runs = [make_run(results, shape) for shape in shapes]
    cells = [Summary.read(run) if run.has("summary.json") else Summary(cell=run.cell_id) for run in runs]
    SetSummary(scenario="quickstart", question=QUESTION, cells=tuple(cells)).write(results)
    (results / "scenario.toml").write_text(f'question = "{QUESTION}"\n\n[load]\nbatch = 1000\n', encoding="utf-8")
    return results


def twelve(seconds: int = 20) -> list[Shape]:
    """Make a matrix of four layouts and three user counts with some failures."""
    layouts = ("postgres-btree", "postgres-brin", "mongodb-timeseries", "influxdb-native")
    cells = [f"{layout}-users-{users}" for layout in layouts for users in (10, 100, 1000)]
    shapes = [
        Shape(cell=c, seed=i, typical_ms=1 + 1.3 * i, rate=60 + 20 * (i % 5), seconds=seconds)
        for i, c in enumerate(cells)
    ]
    told = {
        "validity": "inconclusive",
        "limited_by": "load generator",
        "reason": "its event loop used 93% of a core; use more processes",
    }
    wrong = {"validity": "invalid", "wrong": 3, "reason": "3 of 1,200 answers differ from the in-memory database's"}
    shapes[2] = Shape(**{**shapes[2].__dict__, **told})
    shapes[5] = Shape(**{**shapes[5].__dict__, **wrong})
    shapes[8] = Shape(
        **{**shapes[8].__dict__, "state": "failed", "error": "the server died (signal 9) during the load"}
    )
    shapes[11] = Shape(**{**shapes[11].__dict__, "state": "interrupted"})
    shapes[1] = Shape(**{**shapes[1].__dict__, "stall_at": seconds // 2})
    return shapes


def ramp(seconds: int = 20) -> list[Shape]:
    """Make a ramp of three targets and four rates with a gate that two of them break, one of them late."""
    shapes = []
    for number, target in enumerate(("alpha-wide", "beta-narrow", "gamma-columns")):
        for step, rate in enumerate((500, 1000, 2000, 4000)):
            typical_ms = (1.5 + number) * (1 + 0.4 * step**2) * (8 if step > 3 - number else 1)
            p99_ms = 6 * typical_ms
            state = "pass" if p99_ms < 50 else "fail"
            gate = GateResult("write:p99<50ms", p99_ms * 1e6, state, f"{p99_ms:.1f} ms")  # type: ignore[arg-type]
            shapes.append(
                Shape(
                    cell=f"{target}-rate={rate}",
                    seed=10 * number + step,
                    typical_ms=typical_ms,
                    rate=rate // 20,
                    seconds=seconds,
                    gates=(ALIVE, gate),
                    labels=(("target", target), ("drive.rate", str(rate))),
                    limited_by="nothing" if state == "pass" else "database",
                )
            )
    return shapes


def rounds(seconds: int = 20) -> list[Shape]:
    """Make eight rounds of two targets, one of which is a third slower."""
    return [
        Shape(
            cell=f"{target}-round={number}",
            seed=10 * number + place,
            loop="closed",
            typical_ms=(2 + place) * (1 + 0.03 * (number % 4)),
            rate=round(120 / (1 + place / 3)) + number % 3,
            seconds=seconds,
            labels=(("target", target), ("round", str(number))),
        )
        for number in range(1, 9)
        for place, target in enumerate(("alpha-wide", "beta-narrow"))
    ]


def _load(run: RunDir, shape: Shape) -> dict[tuple[str, str], Histogram]:
    """Write the histogram logs and ops.parquet; return the measured histograms by op and time."""
    random = np.random.default_rng(shape.seed)
    merged: dict[tuple[str, str], Histogram] = {}
    rows: list[dict[str, Any]] = []
    logs = [(run / "latency" / f"worker-{n}.hlog").open("w", encoding="utf-8") for n in range(shape.processes)]
    for log in logs:
        write_log_head(log, start_s=EPOCH_S - shape.warmup)
    for second in range(-shape.warmup, shape.seconds):
        for number, (op, kind) in enumerate(shape.ops):
            count = int(random.poisson(shape.rate))
            typical_ns = shape.typical_ms * 1e6 * (1 + 0.8 * number) * (3 if second < 0 else 1)
            service = (typical_ns * random.lognormal(0, 0.45, count)).astype(np.int64)
            waited = (random.exponential(typical_ns / 4, count)).astype(np.int64)
            if second == shape.stall_at and kind == "write":
                service[: count // 3] += 800_000_000
                waited += 400_000_000
            row: dict[str, Any] = {"second": second, "op": op, "count": count, "done": count}
            row |= {
                "failed": int(random.random() < 0.05),
                "unknown": 0,
                "partial": 0,
                "points": count * 1000 * (kind == "write"),
            }
            response = service + waited
            own = (response * (1 - shape.delayed)).astype(np.int64)
            for time, values in (("response", response), ("response-undelayed", own), ("service", service)):
                whole = Histogram(values)
                for log, part in zip(logs, np.array_split(values, len(logs)), strict=True):
                    histogram = SparseHistogram.recorded(part)
                    write_interval(log, Interval(f"{op}|{time}", EPOCH_S + second, 1.0, histogram))
                if second >= 0:
                    merged.setdefault((op, time), Histogram()).add(whole)
                for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
                    row[f"{time}_{name}_ns"] = whole.percentile_ns(percent)
            rows.append(row)
    for log in logs:
        log.close()
    if shape.state != "interrupted":
        pd.DataFrame(rows)[list(OPS_COLUMNS)].to_parquet(run / "ops.parquet")
    return merged


def _processes(run: RunDir, shape: Shape) -> None:
    random = np.random.default_rng(shape.seed + 1)
    seconds = np.arange(-shape.warmup, shape.seconds) + 0.5
    size = len(seconds)
    grown = np.linspace(0, 4e8, size)
    host = {
        "second": seconds,
        "cpu_percent": 60 + 8 * random.standard_normal(size),
        "memory_bytes": (6e9 + grown).astype(int),
        "disk_read_bytes": random.integers(0, 10**6, size),
        "disk_write_bytes": random.integers(10**7, 9 * 10**7, size),
        "client_cpu_percent": 45 + 5 * random.standard_normal(size),
        "client_rss_bytes": np.full(size, 180_000_000),
    }
    server = {
        "second": seconds,
        "cpu_percent": 150 + 20 * random.standard_normal(size),
        "rss_bytes": (9e8 + grown).astype(int),
        "read_bytes": random.integers(0, 10**5, size),
        "write_bytes": random.integers(10**7, 6 * 10**7, size),
        "open_files": np.full(size, 120),
    }
    pd.DataFrame(host)[list(HOST_COLUMNS)].to_parquet(run / "host.parquet")
    pd.DataFrame(server)[list(SERVER_COLUMNS)].to_parquet(run / "server.parquet")


def _manifest(shape: Shape) -> Manifest:
    host = Host(cpu="Example CPU 2.5 GHz", cores=16, memory_bytes=67_430_000_000, kernel="6.1")
    server = {"version": "16.4", "settings": dict(shape.settings), "path": "/usr/lib/postgresql/16/bin/postgres"}
    versions = {"version": "0.1.0", "git": "7eefeaf"}
    return Manifest(
        tsbench=versions, python={"version": "3.11.9"}, packages={"locust": "2.47.0"}, host=host, server=server
    )


def summary_of(shape: Shape, histograms: dict[tuple[str, str], Histogram]) -> Summary:
    """Return the summary of a run."""
    measured = _measured(shape, histograms)
    points = measured.write.points if measured.write else 0
    arrivals = sum(op.count for op in measured.ops.values())
    schedule = Schedule(scheduled=arrivals, done=arrivals - 4, late=4, generator_late=0, dropped=0, unfinished=0)
    target, _, schema = shape.cell.partition("-")
    validity = Validity(shape.validity, shape.reason, _checks(shape, points))
    return Summary(
        cell=shape.cell,
        scenario="quickstart",
        question=QUESTION,
        target=target,
        schema=schema,
        labels=dict(shape.labels) or {"target.schema": schema},
        loop="open" if shape.loop == "open" else "closed",
        users=10,
        processes=shape.processes,
        started="2026-11-20T10:15:00.123456Z",
        limited_by=shape.limited_by,
        validity=validity,
        gates=tuple(gate.under(validity) for gate in shape.gates),
        load=_loaded(shape),
        measured=measured,
        schedule=schedule if shape.loop == "open" else None,
        limit=LIMIT,
        size=_size(shape),
        answers=_answers(shape),
        writes=Writes(
            acknowledged=points,
            expected=points,
            stored=points,
            unknown=2,
            refused=1,
            unrecorded=0,
            lost=0,
            unexpected=0,
        ),
    )


def _measured(shape: Shape, histograms: dict[tuple[str, str], Histogram]) -> Measured:
    kinds: dict[str, OpKind] = {op: "write" if kind == "write" else "query" for op, kind in shape.ops}
    sums = {"write": OpTotals(), "query": OpTotals()}
    ops = {}
    for op, kind in kinds.items():
        count = len(histograms[op, "service"])
        totals = OpTotals(
            response=histograms[op, "response"],
            service=histograms[op, "service"],
            response_undelayed=histograms[op, "response-undelayed"],
            done=count,
            failed=1,
            unknown=2,
            points=count * 1000 * (kind == "write"),
            causes=Counter({"timeout": 2, "constraint": 1}),
        )
        ops[op] = totals.figures(shape.seconds, kind=kind)
        sums[kind].add(totals)
    merged = {kind: totals.figures(shape.seconds) for kind, totals in sums.items() if totals.done}
    window = Window(start_s=EPOCH_S, duration_s=shape.seconds, warmup_s=shape.warmup)
    both = {"write": merged.get("write"), "query": merged.get("query")}
    return Measured.model_validate({"duration_s": shape.seconds, "window": window, "ops": ops, **both})


def _checks(shape: Shape, points: int) -> dict[str, Check]:
    good = Check(state="valid")
    checked = {"checked": 1200, **({"wrong": shape.wrong} if shape.wrong else {})}
    return {
        "answers": Check(
            state="invalid" if shape.wrong else "valid", reason=(shape.wrong and shape.reason) or "", counts=checked
        ),
        "writes": Check(state="valid", counts={"acknowledged": points, "stored": points}),
        "counts": good,
        "limit": good,
        "ops": good,
        shape.doubted: Check(state=shape.validity, reason=shape.reason),
    }


LOADED = Loaded(points=10_368_000, values=103_680_000, bytes=933_120_000, client_cpu_s=12.3, encode_s=6.5)
LIMIT = Limit(
    hub_lag_p50_ns=80_000,
    hub_lag_p99_ns=1_900_000,
    hub_cpu_percent=41.5,
    pool_wait_p50_ns=0,
    in_flight=3.2,
    sent_in_bursts=0.0,
    **Disturbance().figures(),
)


def _loaded(shape: Shape) -> Load:
    return replace(LOADED, duration_s=30.0 + shape.seed).figures(workers=4, batch=1000, mode=WriteMode.BULK)


def _size(shape: Shape) -> Size:
    size = 120_000_000 + 9_000_000 * shape.seed
    parts = {"table": size * 0.6, "index": size * 0.3, "log": size * 0.1}
    per_point = size / LOADED.points
    return Size(bytes=size, points=LOADED.points, bytes_per_point=per_point, parts=parts, directory_bytes=size)


PARTIAL = LocatedFlaw(
    measurement="cpu", series="host_7", time="1970-01-01T00:00:00Z", stored="usage_user=3", expected=""
)
"""A stored point that nobody wrote, as results locate it."""


def _answers(shape: Shape) -> AnswerCounts:
    first = FirstDifference(
        kind="lastpoint", query="double-groupby-1 #17", difference="row 4: usage_user 51.2 expected 48.9"
    )
    torn_row = TornRow(kind="lastpoint", row="a row without usage_idle")
    is_wrong = bool(shape.wrong)
    stored = StoredDifference(count=1500, at_least=True, first=(PARTIAL,))
    return AnswerCounts(
        checked=1200,
        sampled=1000,
        given=81_300,
        wrong=shape.wrong,
        rows_read_back=5_000,
        by_kind={},
        unsupported={"above": "this schema stores no tags"},
        first_wrong=first if is_wrong else None,
        differences={"stale row": AnswersThatDiffer(count=12, first=first)} if is_wrong else {},
        torn_reads=Torn(answers=15 * is_wrong, rows=1700 * is_wrong, first=torn_row if is_wrong else None),
        stored_differences={"partial point": stored} if is_wrong else {},
    )


if __name__ == "__main__":
    kind = {"ramp": ramp, "rounds": rounds}.get(sys.argv[2] if len(sys.argv) > 2 else "", twelve)
    make_results(Path(sys.argv[1]), kind(60))
