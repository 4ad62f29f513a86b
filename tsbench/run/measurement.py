"""The figures of a run from its processes' files: times and rates, the bottleneck, and whether the counts agree."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.errors import Broken, UserMistake, one_line
from tsbench.measure.bottleneck import Evidence, LoadProfile, limited_by
from tsbench.measure.built_in_gates import failed_connections, failed_ops
from tsbench.measure.error_texts import ErrorTexts
from tsbench.measure.gates import percents_of_gates
from tsbench.measure.hist import Histogram
from tsbench.measure.latency import BURST_REACH, latency_of, sent_in_bursts
from tsbench.measure.merge import PERCENTS, Merged, OpTotals, merge, observation
from tsbench.measure.stall_counters import counters_in_stalls
from tsbench.measure.steadiness import steadiness_by_kind, time_drifts
from tsbench.model import Verdict
from tsbench.results.figures import Limit, Measured
from tsbench.results.json_files import read_part
from tsbench.results.panels import read_panels
from tsbench.results.process import (
    WARMUP,
    MasterReport,
    Schedule,
    WarmUp,
)
from tsbench.results.reading import damaged
from tsbench.results.rundir import COUNTER_COLUMNS, SERVER_COLUMNS
from tsbench.run import events
from tsbench.run.assessment import Findings
from tsbench.run.disturbance import disturbance
from tsbench.run.processes import Processes
from tsbench.scenario.spec import RunSpec
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from tsbench.results.figures import OpKind, Steadiness, Tail
    from tsbench.results.process import FirstOp
    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import GateResult
    from tsbench.scenario.spec import Job


PEERS_PERCENTS = {"min": 0.0, "p95": 95.0}
"""What the runners of other suites print, too, of the queries of a file."""


@contextmanager
def recorded() -> Iterator[None]:
    """Raise `Broken` for damage in what the load processes recorded, which other machines may have sent."""
    try:
        yield
    except (UserMistake, ValueError) as error:
        raise Broken(f"what the load processes recorded is damaged: {one_line(error)}") from error


@contextmanager
def _regular_files(run: RunDir, name: str) -> Iterator[None]:
    """Raise UserMistake for a link or a pipe in place of a file that is read from the run's directory of that name."""
    try:
        yield
    except OSError as error:
        raise damaged(run / name, error) from None


def measured(run: RunDir, spec: Job) -> Findings:
    """Return the findings that need no database: figures, bottleneck, whether the counts agree, failed ops."""
    processes = Processes.read(run)
    times, duration_s = processes.times, processes.duration_s
    with _regular_files(run, "latency"):
        merged = merge(run.path, start_s=times.start_s, end_s=times.end_s)
    write_seconds(run, merged)
    kinds, sums, everything = by_kind(merged, spec)
    with _regular_files(run, "process"):
        client = _ClientDelays.read(run, processes)
    schedule = processes.schedule
    disturbed = disturbance(run, duration_s, external=spec.target.endpoint is not None)
    profile = _load_profile(spec, processes, everything, schedule)
    limit_name, limit_verdict = limited_by(
        client.evidence, profile, disturbed.text, users=round(processes.mean_users) or spec.drive.users
    )
    bursts = sent_in_bursts(everything.lateness, len(everything.response), duration_s)
    parts = {
        **_users(processes.master, is_open=spec.drive.loop == "open"),
        "processes": max(1, len(processes.workers)),  # a spec from bare Locust's options does not know them
        "measured": _measured(run, spec, processes, merged, kinds, sums, bursts),
        "schedule": schedule,
        "limited_by": limit_name,
        "limit": Limit(
            **client.figures(),
            **_on_the_wire(everything, profile, duration_s),
            sent_in_bursts=bursts,
            **disturbed.figures(),
        ),
        "encode_s": sum(report.encode_ns for report in processes.reports) / 1e9,
        "steadiness": {}
        if _is_steered(spec)
        else steadiness_with_counters(
            run,
            merged.per_second,
            kinds,
            _ended_s(processes),
            merged.unsent if spec.drive.loop == "open" else None,
        ),
        "warmup": read_part(run / WARMUP, WarmUp) if run.has(WARMUP) else None,
        "failures": _failures(processes),
        "firsts": processes.firsts,
        "events": events.figures(run, merged.per_second, spec.drive.time),
    }
    checks = {
        "workers": processes.verdict(),
        "counts": _counts_agree(merged, processes, schedule),
        "limit": limit_verdict,
        "ops": _some_ended(spec, everything, processes),
    }
    failures = failed(everything, spec.check.failures, processes.firsts)
    return Findings(parts, checks, (failures, failed_connections(processes.unconnected)))


def write_seconds(run: RunDir, merged: Merged) -> None:
    """Write ops.parquet, the ops by second; not where polars is not installed."""
    if merged.per_second is not None:
        from tsbench.results.tables import write_parquet  # noqa: PLC0415 - load workers do without polars

        write_parquet(merged.per_second, run / "ops.parquet")


def _measured(
    run: RunDir,
    spec: Job,
    processes: Processes,
    merged: Merged,
    kinds: Mapping[str, OpKind],
    sums: Mapping[OpKind, OpTotals],
    bursts: float,
) -> Measured:
    """Return the figures of ops, with margins, changes of their times, and the ops beyond the limits of gates."""
    percents, time = PERCENTS | percents_of_gates(spec.demands), spec.drive.time
    if spec.query_file is not None:
        percents |= PEERS_PERCENTS
    duration_s = processes.duration_s
    of_kind = {
        kind: totals.figures(duration_s, percents, time=time) for kind, totals in sums.items() if len(totals.response)
    }
    answers = {op: {"rows": given.rows, "empty": given.empty} for op, given in processes.answers.items()}
    figures = Measured(
        duration_s=duration_s,
        window=processes.window,
        ops={
            op: merged.totals[op].figures(duration_s, percents, kind, time).model_copy(update=answers.get(op, {}))
            for op, kind in kinds.items()
        },
        write=of_kind.get("write"),
        query=of_kind.get("query"),
        disk_read_bytes=_disk_read_bytes(run),
    )
    totals = {**merged.totals, "write": sums["write"], "query": sums["query"]}
    users = _users(processes.master, is_open=spec.drive.loop == "open")
    is_steady = not _is_steered(spec) and users.get("users") == users.get("users_least")
    drifts = time_drifts(merged.per_second, end_s=_ended_s(processes)) if is_steady else {}
    return figures.model_copy(update={"tails": _tails(spec, figures, totals, bursts), "time_drifts": drifts})


def _is_steered(spec: Job) -> bool:
    """Return True if the load is changed on purpose, so that rates and times that change neither drift nor stall."""
    return any(event.changes_load for event in spec.event)


def _ended_s(processes: Processes) -> int:
    """Return the second of the measured window in which it, or the load, ended."""
    return min(int(processes.duration_s), int(processes.stopped_s) - processes.times.start_s)


def _tails(spec: Job, figures: Measured, totals: Mapping[str, OpTotals], bursts: float) -> dict[str, Tail]:
    """Return the ops beyond the limits of gates on percentiles, by the gates' texts; `totals` are by op and by kind."""
    tails = {}
    for gate in spec.demands:
        of, time = gate.of or "", gate.time or spec.drive.time
        op, percent = figures.of_kind(of) or figures.ops.get(of), gate.percent or 0
        if op is None or not op.count or not 0 < percent < 100:
            continue
        latency = latency_of(op, time, gate.figure)
        in_doubt = latency is not None and (latency.is_interval or latency.is_open_ended or bursts)
        certain_ns = gate.limit * (BURST_REACH if bursts else 1.0)
        tails[gate.text] = totals[of].tail(time, percent, gate.limit, certain_ns=certain_ns if in_doubt else None)
    return tails


def _disk_read_bytes(run: RunDir) -> int | None:
    """Return the bytes that the server's processes read from storage once the window began; None without a sample."""
    if not run.has("server.parquet"):
        return None
    from tsbench.results.tables import read_frame  # noqa: PLC0415 - load workers do without polars

    sampled = read_frame(run / "server.parquet", SERVER_COLUMNS)
    inside = sampled.filter(sampled["second"] > -1)  # a row is about the second that begins at its `second`
    return int(inside["read_bytes"].sum()) if len(inside) else None


def failed(ops: OpTotals, allowed: float, firsts: Mapping[str, FirstOp] | None = None) -> GateResult:
    """Evaluate the built-in gate on failed ops, of which a share is allowed.

    `firsts` are the first ops of a cold run, by name, whose only ops may have ended after its window.
    """
    if not ops.done and firsts:
        ends = Counter(first.outcome for first in firsts.values())
        return failed_ops(ends.total(), ends["failed"], ends["unknown"], ends, allowed, partial=ends["partial"])
    return failed_ops(ops.done, ops.failed, ops.unknown, ops.causes, allowed, partial=ops.partial)


def by_kind(merged: Merged, spec: Job) -> tuple[dict[str, OpKind], dict[OpKind, OpTotals], OpTotals]:
    """Return the kind (write or query) of each op by name, the totals by kind of what was sent, and of all ops."""
    kinds: dict[str, OpKind] = {op.name: "write" if op.write is not None else "query" for op in spec.op}
    of_kind: dict[str, OpKind] = {}
    sums: dict[OpKind, OpTotals] = {"write": OpTotals(), "query": OpTotals()}
    everything = OpTotals()
    for name, totals in sorted(merged.totals.items()):
        of_kind[name] = kinds.get(name, "write" if name.startswith("write-") else "query")
        if not totals.done or totals.causes["unsupported"] < totals.done:  # else nothing was asked, which takes no time
            sums[of_kind[name]].add(totals)
        everything.add(totals)
    return of_kind, sums, everything


def _users(master: MasterReport | None, *, is_open: bool) -> dict[str, int]:
    """Return the highest and lowest number of users; both are the highest in an open loop, which ends its users."""
    if master is None:
        return {}
    return {"users": master.users, "users_least": master.users if is_open else master.users_least}


def steadiness_with_counters(
    run: RunDir,
    per_second: pl.DataFrame | None,
    kinds: Mapping[str, str],
    end_s: int,
    unsent: Mapping[int, int] | None = None,
) -> dict[str, Steadiness]:
    """Return how the rates went on by kind of ops, and which counters rose in their stalls.

    The parameters are those of `steadiness_by_kind`; without seconds the part is empty.
    """
    if per_second is None:
        return {}
    steadiness = steadiness_by_kind(per_second, kinds, end_s=end_s, unsent=unsent)
    if any(steady.stalls for steady in steadiness.values()) and run.has("counters.parquet"):
        import polars as pl  # noqa: PLC0415 - load workers do without

        from tsbench.results.tables import read_frame  # noqa: PLC0415

        counters, panels = read_frame(run / "counters.parquet", COUNTER_COLUMNS), read_panels(run)
        done = dict(per_second.group_by("second").agg(pl.col("done").sum()).iter_rows())
        usual = float(np.median([*done.values()])) or 1.0
        for kind, steady in steadiness.items():
            seconds = [(stall.start_s, stall.start_s + stall.length_s - 1) for stall in steady.stalls]
            caught_up = [max(done.get(s, 0) for s in range(first, last + 3)) / usual for first, last in seconds]
            high = counters_in_stalls(counters, panels, seconds, None if unsent is None else caught_up)
            stalls = (replace(stall, counters=rises) for stall, rises in zip(steady.stalls, high, strict=True))
            steadiness[kind] = replace(steady, stalls=tuple(stalls))
    return steadiness


@dataclass(frozen=True, slots=True)
class _ClientDelays:
    """The load processes' observations of themselves, together."""

    evidence: list[Evidence]
    lag: Histogram

    @classmethod
    def read(cls, run: RunDir, processes: Processes) -> _ClientDelays:
        evidence, lag = [], Histogram()
        window = {"start_s": processes.times.start_s, "end_s": processes.times.end_s}
        users_ns = processes.mean_users * processes.duration_s * NS_PER_S / max(1, len(processes.reports))
        for report in processes.reports:
            seen = observation(run.path, report.share.name, **window)
            waited = report.payload_wait_ns / max(1.0, users_ns)
            evidence.append(replace(seen.evidence, payload_wait_share=waited))
            lag.add(seen.lag)
        return cls(evidence, lag)

    def figures(self) -> dict[str, Any]:
        """Return them for the `Limit` of a run."""
        return {
            "hub_lag_p50_ns": self.lag.percentile_ns(50),
            "hub_lag_p99_ns": self.lag.percentile_ns(99),
            "hub_cpu_percent": 100 * max((one.hub_cpu_share for one in self.evidence), default=0.0),
            "pool_wait_p50_ns": max((one.pool_wait_p50_ns for one in self.evidence), default=0),
        }


def _on_the_wire(everything: OpTotals, profile: LoadProfile, duration_s: float) -> dict[str, Any]:
    """Return the mean number of ops on the wire, and in a closed loop the rate per second of a client in time.

    On the wire are ops that are sent and whose answer has not arrived. A client in time would have sent every op when
    arrival and think time said.
    """
    per_s = everything.done / duration_s
    figures = {"in_flight": per_s * everything.service.mean_ns / NS_PER_S}
    if not profile.scheduled:
        figures["in_time_per_s"] = per_s * (1 + profile.unsent_share)
    return figures


def _load_profile(spec: Job, processes: Processes, everything: OpTotals, schedule: Schedule | None) -> LoadProfile:
    response_ns = everything.response.mean_ns
    return LoadProfile.of_users(
        processes.mean_users or spec.drive.users,
        processes.duration_s,
        everything.done,
        response_ns,
        delayed_ns=response_ns - everything.response_undelayed.mean_ns,
        scheduled=schedule.scheduled if schedule else 0,
        late=schedule.late - schedule.generator_late if schedule else 0,
        dropped=schedule.dropped if schedule else 0,
    )


def _counts_agree(merged: Merged, processes: Processes, schedule: Schedule | None) -> Verdict:
    counts = {"histograms": merged.recorded, "counters": merged.counted}
    if processes.master is not None:
        counts["locust"] = processes.master.requests
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return Verdict(False, f"the counts of ops disagree: {text}", counts)
    if processes.master is None:
        return Verdict(None, "Locust ended without saying how many requests it counted", counts)
    if schedule and schedule.scheduled != schedule.done + schedule.late + schedule.dropped + schedule.unfinished:
        return Verdict(False, f"the schedule does not add up: {json.dumps(asdict(schedule))}", counts)
    return Verdict(True, "", counts)


def _some_ended(spec: Job, everything: OpTotals, processes: Processes) -> Verdict:
    if everything.done or processes.firsts:  # what a cold run is made for may end after its window
        return Verdict(True)
    early_s = processes.times.start_s - processes.stopped_s
    why = f": the test ended {early_s:.1f} s before the warm-up was over" if early_s > 0 else ""
    ends = why and (spec.ends_early or (isinstance(spec, RunSpec) and spec.world.is_recorded))
    cure = "; it ends with its last point or query: give it more, or a shorter warm-up" if ends else ""
    return Verdict(None, f"no op ended in the measured window{why}{cure}")


def _failures(processes: Processes) -> dict[str, int]:
    failures = Counter[str]()
    for report in processes.reports:
        failures.update(report.failures)
    return ErrorTexts(failures).most_common()
