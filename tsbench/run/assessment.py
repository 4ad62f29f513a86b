"""The steps after the measurement: merge the processes' files, check answers and writes, write the summary."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tsbench.check.answers import Answers, ask, given_answers, guarded, read_back
from tsbench.check.audit import account
from tsbench.check.gold import Gold
from tsbench.errors import Broken, UserMistake
from tsbench.measure.bottleneck import LoadProfile, limited_by
from tsbench.measure.gates import evaluate_gates, failed_connections, failed_ops, percents_of_gates, server_deaths
from tsbench.measure.hist import Histogram
from tsbench.measure.merge import Merged, OpTotals, evidence, merge
from tsbench.model import OpError, Outcome, Verdict
from tsbench.results.ledger import read_ledgers
from tsbench.results.summary import Summary, Validity
from tsbench.run.findings import Findings
from tsbench.run.time_limits import Limits
from tsbench.targets.base import Unsupported
from tsbench.units import format_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import GateResult
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Schema, Session, Target

T = TypeVar("T")

GOLD_VALUES = 400_000_000
"""Maximum number of field values for gold answers in memory (3.2 GB); larger runs are not checked."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Final reports of the load processes and Locust's master, and the measured window (epoch s)."""

    start_s: int
    end_s: int
    stopped_s: float
    shares: list[dict[str, Any]]
    locust_requests: int | None
    users: int
    planned: list[dict[str, Any]]

    @classmethod
    def read(cls, run: RunDir) -> Processes:
        """Return the reports in the run's process files; a process that was killed has left none."""
        clock = run.read_json("process/clock.json")
        locust = run.read_json("process/locust.json") if run.has("process/locust.json") else {}
        names = sorted(path.stem for path in (run / "latency").glob("*.hlog"))
        shares = [run.read_json(f"process/{n}.json") for n in names if run.has(f"process/{n}.json")]
        window = int(clock["start_s"]), int(clock["end_s"])
        return cls(
            *window,
            clock.get("stopped_s", window[1]),
            shares,
            locust.get("requests"),
            locust.get("users", 0),
            locust.get("shares", []),
        )

    def missing(self) -> list[dict[str, Any]]:
        """Return the workers that had a share but did not finish."""
        ended = {share["name"] for share in self.shares}
        return [share for share in self.planned if share["name"] not in ended]

    def verdict(self) -> Verdict:
        """Return invalid if a worker was lost: its last ops are unknown, and its remaining ones were not run."""
        texts = [f"{s['name']} with streams {', '.join(map(str, s['streams']))}" for s in self.missing()]
        if texts:
            return Verdict(False, f"{len(texts)} of {len(self.planned)} workers ended early: {'; '.join(texts)}")
        return Verdict(True, "", {"workers": max(1, len(self.planned))})


def measured(run: RunDir, spec: RunSpec) -> Findings:
    """Return the findings that need no database: figures, the limit, consistency of counts, failed ops."""
    processes = Processes.read(run)
    merged = merge(run.path, start_s=processes.start_s, end_s=processes.end_s)
    merged.per_second.write_parquet(run / "ops.parquet")
    duration_s = processes.end_s - processes.start_s
    kinds = {op.name: "write" if op.write is not None else "query" for op in spec.op}
    percents = percents_of_gates(spec.demands)
    ops: dict[str, Any] = {}
    sums = {"write": OpTotals(), "query": OpTotals()}
    for name, totals in sorted(merged.totals.items()):
        kind = kinds.get(name, "write" if name.startswith("write-") else "query")
        ops[name] = {"kind": kind, **totals.summary(duration_s, percents)}
        sums[kind].add(totals)
    schedule = _schedule(processes)
    limit, limit_name, limit_verdict = _limit(run, spec, processes, sums, schedule)
    summary = {
        "measured": {
            "duration_s": duration_s,
            "window": {"start_s": processes.start_s, "duration_s": duration_s},
            "ops": ops,
            **{kind: totals.summary(duration_s, percents) for kind, totals in sums.items() if len(totals.response)},
        },
        "schedule": schedule,
        "limited_by": limit_name,
        "limit": limit,
        "encode_s": sum(share["encode_ns"] for share in processes.shares) / 1e9,
        "failures": _failures(processes),
    }
    checks = {
        "workers": processes.verdict(),
        "counts": _counts_agree(merged, processes, schedule),
        "limit": limit_verdict,
        "ops": _some_ended(sums, processes),
    }
    return Findings(summary, checks, _built_in_gates(sums, spec.check.failures, processes))


class _Server:
    """The server during the checks. After one missing answer it is not used again: each try might take as long.

    `death` describes its death, if it died.
    """

    def __init__(self, limits: Limits, target: Target, schema: Schema) -> None:
        self._limits = limits
        self._session: Session | None = None
        self.death = ""
        try:
            self._session = limits.connect(target, schema)
        except UserMistake as error:  # the server was reached before
            self._gone(str(error))

    def ask(self, check: Callable[[Session], T]) -> T:
        """Run a check that needs a session.

        Raises
        ------
        OpError
            As the check raises; `not asked` if an earlier check got no answer.
        """
        if self._session is None:
            raise OpError(Outcome.FAILED, "not asked", "the server did not answer before")
        try:
            return check(self._session)
        except OpError as error:
            if error.cause in {"connection", "refused"}:
                self._gone(f"{error.cause}: {error}")
            if error.cause in {"connection", "refused", "timeout"}:
                self.close()
            raise

    def _gone(self, why: str) -> None:
        text = f"the server at {self._limits.server} could not be reached any more ({format_now()}): {why}"
        self.death = " ".join(text.split())

    def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def examined(
    run: RunDir,
    spec: RunSpec,
    target: Target,
    schema: Schema,
    endpoint: str,
    *,
    loaded_points: int,
    directory_bytes: Callable[[], int],
) -> Findings:
    """Return the findings that need the database: answers, writes and size.

    A server that has died or does not answer is a finding and no error: earlier figures and findings are kept.
    """
    limits = Limits(spec.timeout, endpoint)
    server = _Server(limits, target, schema)
    try:
        found, checks = _checked(run, spec, server, schema, loaded_points=loaded_points)
        try:
            found["size"] = server.ask(
                lambda session: _sized(spec, limits, session, schema, found, directory_bytes=directory_bytes)
            )
        except OpError as error:
            found["size"] = None
            if error.cause != "not asked":
                checks["size"] = Verdict(None, f"the size of the data is not known: {error.cause}: {error}")
    finally:
        server.close()
    return Findings(found, checks, death=server.death)


def _checked(
    run: RunDir, spec: RunSpec, server: _Server, schema: Schema, *, loaded_points: int
) -> tuple[dict[str, Any], dict[str, Verdict]]:
    """Check answers and writes; also write validate.json and audit.json."""
    world = spec.world_at()
    ticks = world.ticks(spec.load.window)
    ledger = read_ledgers(sorted((run / "process").glob("*.ledger")))
    in_all = loaded_points + int(ledger["points"].sum())
    values = in_all * max(len(m.fields) for m in world.measurements)
    answers = Answers()
    if values > GOLD_VALUES:
        verdict = Verdict(None, f"{values:,} values are more than the answer key may hold ({GOLD_VALUES:,})")
        return {"answers": answers.summary(), "writes": None}, {"answers": verdict, "writes": verdict}
    gold = Gold(world, loaded_ticks=ticks, keeps_duplicates=schema.keeps_duplicates)
    gold.load()
    last = None if spec.drive.window is None else ticks + world.ticks(spec.drive.window)
    gold.add(ledger, block_points=spec.block_points, last_tick=last)
    summary: dict[str, Any] = {"writes": None}
    try:
        accounted = server.ask(lambda session: account(gold, session, schema, ledger, loaded_points))
        lost = [share["name"] for share in Processes.read(run).missing()]
        summary["writes"], writes_verdict = accounted.summary(), accounted.verdict(lost)
    except Unsupported as why:
        writes_verdict = Verdict(None, f"stored points could not be counted: {why}")
    except OpError as error:
        writes_verdict = Verdict(None, f"stored points could not be counted: {error.cause}: {error}")
    given = sorted((run / "process").glob("*.answers.jsonl"))
    guarded(answers, lambda: given_answers(gold, given, spec.world.seed, answers))
    kinds = [op.query for op in spec.op if op.query is not None] or list(answers.by_kind)  # bare Locust names no ops
    count, seed = spec.check.answers, spec.world.seed
    guarded(answers, lambda: server.ask(lambda session: ask(gold, session, schema, kinds, count, seed, answers)))
    rows = spec.check.readback
    if rows:
        guarded(answers, lambda: server.ask(lambda session: read_back(gold, session, schema, rows, answers)))
    summary["answers"] = answers.summary()
    verdicts = {"answers": answers.verdict(), "writes": writes_verdict}
    run.write_json("validate.json", {**answers.summary(), "check": verdicts["answers"].to_json()})
    run.write_json("audit.json", {"points": summary["writes"], "check": writes_verdict.to_json()})
    return summary, verdicts


def _sized(
    spec: RunSpec,
    limits: Limits,
    session: Session,
    schema: Schema,
    found: Mapping[str, Any],
    *,
    directory_bytes: Callable[[], int],
) -> dict[str, Any]:
    """Return the size of the settled data by the server's own account, and of the data directory if it is ours."""
    measurements = spec.world_at().measurements
    limits.settle(session, schema, measurements)
    sizes = dict(session.sizes(measurements))
    points = (found.get("writes") or {}).get("stored") or 0
    total = sum(sizes.values())
    return {
        "bytes": total,
        "points": points,
        "bytes_per_point": total / points if points else None,
        "parts": sizes,
        "directory_bytes": directory_bytes(),
    }


def conclude(run: RunDir, spec: RunSpec, heading: Mapping[str, Any], found: Findings) -> Summary:
    """Write summary.json: all parts, their validity, and the gates.

    Checks that a dead server could not answer do not invalidate figures that were measured before its death.
    """
    checks, death = dict(found.checks), found.death
    if death:
        unasked = [name for name in ("answers", "writes", "size") if checks.get(name, Verdict(None)).valid is None]
        checks = {name: check for name, check in checks.items() if name not in unasked}
        death += f"; not checked therefore: {', '.join(unasked)}" if unasked else ""
    validity, parts = Validity.of(checks), {**heading, **found.parts}
    built_in = [gate.under(validity) for gate in (server_deaths(death), *found.gates)]
    summary = Summary.of(parts, validity, [*built_in, *evaluate_gates(spec.demands, parts, validity)])
    run.write_json("summary.json", summary.to_json())
    return summary


def salvage(run: RunDir, spec: RunSpec, reason: str, *, death: str = "") -> Summary:
    """Write a summary of a failed or interrupted run from whatever it measured, and return it.

    `death` describes the server's death, if that ended the run.
    """
    about = heading(spec, spec.target.schema_ or "")
    broken_off = Findings(checks={"run": Verdict(None, reason)}, death=death)
    try:
        found = broken_off + measured(run, spec)
    except (UserMistake, ValueError, OSError):  # nothing was measured yet, or the files are not whole
        found = broken_off
    try:
        return conclude(run, spec, about, found)
    except (Broken, OSError):  # the disk is full: only the directory's other files remain
        return Summary.of(about, Validity.of(broken_off.checks), [server_deaths(death)])


def heading(spec: RunSpec, schema_name: str) -> dict[str, Any]:
    """Return the part of a summary that identifies the run."""
    return {
        "cell": spec.id,
        "scenario": spec.scenario,
        "question": spec.question,
        "target": spec.target.name,
        "schema": schema_name,
        "labels": spec.labels,
        "loop": spec.drive.loop,
        "users": spec.drive.users,
        "processes": spec.drive.processes,
    }


def _schedule(processes: Processes) -> dict[str, int] | None:
    parts = [share["schedule"] for share in processes.shares if share["schedule"]]
    if not parts:
        return None
    return {key: sum(int(part[key]) for part in parts) for key in parts[0]}


def _limit(
    run: RunDir,
    spec: RunSpec,
    processes: Processes,
    sums: Mapping[str, OpTotals],
    schedule: Mapping[str, int] | None,
) -> tuple[dict[str, Any], str, Verdict]:
    everything = OpTotals()
    for totals in sums.values():
        everything.add(totals)
    service_p50 = everything.service.percentile_ns(50)
    window = {"start_s": processes.start_s, "end_s": processes.end_s}
    seen = [evidence(run.path, share["name"], **window, service_p50_ns=service_p50) for share in processes.shares]
    counts = schedule or {}
    response_ns = everything.response.mean_ns
    users = processes.users or spec.drive.users
    each_ns = users * (processes.end_s - processes.start_s) * 1e9 / max(1, everything.done)  # of a user's time, per op
    conduct = LoadProfile(
        think_ns=max(0.0, each_ns - response_ns),
        response_ns=response_ns,
        scheduled=counts.get("scheduled", 0),
        late=counts.get("late", 0) - counts.get("generator_late", 0),
        dropped=counts.get("dropped", 0),
    )
    name, verdict = limited_by([item for item, _ in seen], conduct)
    lag = Histogram()
    for _, histogram in seen:
        lag.add(histogram)
    figures = {
        "hub_lag_p50_ns": lag.percentile_ns(50),
        "hub_lag_p99_ns": lag.percentile_ns(99),
        "hub_cpu_percent": 100 * max((item.hub_cpu_share for item, _ in seen), default=0.0),
        "pool_wait_p50_ns": max((item.pool_wait_p50_ns for item, _ in seen), default=0),
    }
    return figures, name, verdict


def _counts_agree(merged: Merged, processes: Processes, schedule: Mapping[str, int] | None) -> Verdict:
    counts = {"histograms": merged.recorded, "counters": merged.counted}
    if processes.locust_requests is not None:
        counts["locust"] = processes.locust_requests
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return Verdict(False, f"the counts of ops disagree: {text}", counts)
    if processes.locust_requests is None:
        return Verdict(None, "Locust ended without saying how many requests it counted", counts)
    if schedule and schedule["scheduled"] != sum(schedule[k] for k in ("done", "late", "dropped", "unfinished")):
        return Verdict(False, f"the schedule does not add up: {json.dumps(dict(schedule))}", counts)
    return Verdict(True, "", counts)


def _some_ended(sums: Mapping[str, OpTotals], processes: Processes) -> Verdict:
    if any(totals.done for totals in sums.values()):
        return Verdict(True)
    early_s = processes.start_s - processes.stopped_s
    why = f": the test was stopped {early_s:.1f} s before the warm-up was over" if early_s > 0 else ""
    return Verdict(None, f"no op ended in the measured window{why}")


def _built_in_gates(sums: Mapping[str, OpTotals], allowed: float, processes: Processes) -> tuple[GateResult, ...]:
    causes, unconnected = Counter[str](), Counter[str]()
    for totals in sums.values():
        causes.update(totals.causes)
    for share in processes.shares:
        unconnected.update(share["unconnected"])
    done, failed, unknown = (sum(getattr(t, name) for t in sums.values()) for name in ("done", "failed", "unknown"))
    return failed_ops(done, failed, unknown, causes, allowed), failed_connections(unconnected)


def _failures(processes: Processes) -> dict[str, int]:
    found: dict[str, int] = {}
    for share in processes.shares:
        for text, count in share["failures"].items():
            found[text] = found.get(text, 0) + count
    return found
