"""The queries of a file, asked as a run of its own (`tsbench query`)."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.clock import Timebase
from tsbench.collect.processes import Tree
from tsbench.collect.recording import watching
from tsbench.encode.point_files import read_lines
from tsbench.errors import Broken, UserMistake
from tsbench.measure.bottleneck import threads_bound
from tsbench.measure.error_texts import ErrorTexts
from tsbench.measure.gates import percents_of_gates
from tsbench.measure.hist import Histogram
from tsbench.measure.merge import OpTotals, merge
from tsbench.measure.op_times import Direct
from tsbench.measure.recorder import Recorder
from tsbench.measure.steadiness import time_drifts
from tsbench.model import OpError, Outcome, Verdict
from tsbench.results.figures import Measured, Window
from tsbench.results.process import TIMES, Times
from tsbench.results.summary import CLIENT
from tsbench.run import assessment, cleanup, preparation
from tsbench.run.assessment import Findings
from tsbench.run.lifecycle import first_session, naming_death, real_parts, run_steps
from tsbench.run.measurement import by_kind, failed, write_seconds
from tsbench.run.standing import Standing
from tsbench.scenario.parts import WorldPart
from tsbench.targets.base import Unsupported
from tsbench.units import NS_PER_S
from tsbench.workload.query_files import MS, AskedText, Parser, parse_head
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.measure.hist import SparseHistogram
    from tsbench.measure.op_times import Timed
    from tsbench.model import Rows
    from tsbench.net.stamps import Arrival
    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import Summary
    from tsbench.run.lifecycle import Parts
    from tsbench.run.phases import Phases, Progress
    from tsbench.scenario.spec import Job
    from tsbench.targets.base import Command, Schema, Session
    from tsbench.workload.query_files import Asked

_GONE = {"connection", "refused", "timeout"}
"""Causes after which the server is asked no more."""
_TURN_S = 0.1
"""Interval at which it is measured how late a thread wakes up that has nothing else to do."""
_JUDGED_S = 1.0  # shorter runs are not
PERCENTS = {"min": 0.0, "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def read_queries(path: str, blocks: Iterator[bytes]) -> tuple[WorldPart, int, Iterator[Asked]]:
    """Return the world of a file of `tsbench queries`, the loaded time in ns, and the queries.

    Raises
    ------
    UserMistake
        If it is another file; while queries are read, with the number of the line.
    """
    lines = (line for some in read_lines(blocks, 1_000) for line in some.split())
    try:
        world, window_ns = parse_head(next(lines, b""))
        part = WorldPart.model_validate(world)
        measurements = world_of(part).measurements
    except ValueError as error:
        raise UserMistake(f"'{path}', line 1: {str(error).splitlines()[0]}") from None
    return part, window_ns, _parsed(path, lines, Parser(measurements))


def _parsed(path: str, lines: Iterator[bytes], parser: Parser) -> Iterator[Asked]:
    for number, line in enumerate(lines):
        try:
            yield parser.parse(line, number)
        except ValueError as error:
            raise UserMistake(f"'{path}', line {number + 2}: {error}") from None


def world_of(part: WorldPart) -> World:
    """Return the world that a file of queries names."""
    return World(part.spec(MS))


# --- asking -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class How:
    """How to ask: number of queries before the measured ones; limits of these, of their rate and time (None: none)."""

    burn_in: int = 0
    limit: int | None = None
    per_s: float | None = None
    duration_s: float | None = None


def ask(
    spec: Job,
    queries: Iterator[Asked | AskedText],
    results: Path,
    progress: Progress,
    how: How,
    seen: Callable[[str], None],
    functions: Sequence[Command] = (),
) -> tuple[Summary, dict[str, dict[str, float]], str]:
    """Ask queries with `spec.drive.users` workers; return the summary, the times by kind in ns, and `_Steps.limit`.

    `seen` receives the p99 so far as text, once a second. `functions` create what the texts of queries call.
    """
    steps = _Steps(spec, queries, how, seen, functions)
    parts_of = partial(real_parts, spec, client=Tree(lambda: [os.getpid()]))
    summary = run_steps(spec, results, progress, steps, parts_of, Standing(results))
    return summary, steps.times, steps.limit


@dataclass(slots=True)
class _Steps:
    """The steps of a run that asks."""

    spec: Job
    queries: Iterator[Asked | AskedText]
    how: How
    seen: Callable[[str], None]
    functions: Sequence[Command] = ()
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    limit: str = ""
    """Why the load generator was the limit; "" if it was not, or if that is unknown."""
    is_embedded: bool = False

    def __call__(self, run: RunDir, parts: Parts, phases: Phases) -> Summary:
        spec, target, schema = self.spec, parts.target, parts.schema
        phases.phase("start")
        parts.server.start()
        with naming_death(parts):
            with first_session(run, spec, parts) as (session, limits):
                cleanup.note_nothing_made(run)
                with limits.step("create", "making the functions") as timeout_s:
                    session.run(self.functions, timeout_s=timeout_s)
            phases.phase("measure", None if self.how.limit is None else self.how.limit)
            asking = _Asking(self.queries, schema, run, self.how, phases.advance, self.seen)
            self.is_embedded = target.embedded
            sessions = [limits.connect(target, schema).session for _ in range(spec.drive.users)]
            try:
                with watching(run, parts.collectors):
                    asking.run(sessions)
            except KeyboardInterrupt:
                asking.close()
                self._figures(run, asking)
                text = f"interrupted by the user; {asking.done:,} queries were answered; they are in {run.path}"
                raise KeyboardInterrupt(text) from None
        summary = self._figures(run, asking)
        if asking.failure is not None:
            summary += Findings(
                checks={"run": Verdict(None, f"{asking.failure}; {asking.done:,} queries were answered")}
            )
        return assessment.conclude(run, spec, preparation.heading(run, spec, target, schema), summary, phases)

    def _figures(self, run: RunDir, asking: _Asking) -> Findings:
        """Return the figures of all recorded queries."""
        duration_s, times = max(1, asking.ended_ns - asking.began_ns) / NS_PER_S, asking.times
        merged = merge(run.path, start_s=times.start_s, end_s=times.end_s)
        write_seconds(run, merged)
        kinds, sums, everything = by_kind(merged, self.spec)
        self.times = {
            name: _times(totals, duration_s, asking.rows[name], asking.empty[name])
            for name, totals in merged.totals.items()
        }
        if len(self.times) > 1:
            self.times["all queries"] = _times(everything, duration_s, asking.rows.total(), asking.empty.total())
        percents = {"p95": 95.0} | percents_of_gates(self.spec.demands)
        window = Window(start_s=asking.began_ns / NS_PER_S, duration_s=duration_s, warmup_s=0.0)
        measured = Measured(
            duration_s=duration_s,
            window=window,
            ops={op: merged.totals[op].figures(duration_s, percents, kind) for op, kind in kinds.items()},
            query=sums["query"].figures(duration_s, percents) if len(everything.response) else None,
            time_drifts=time_drifts(merged.per_second, end_s=int(duration_s)),
        )
        counts = {"histograms": merged.recorded, "counters": merged.counted, "asked": asking.done}
        same = len({*counts.values()}) == 1
        agree = Verdict(same, "" if same else "counts differ", counts)
        some = Verdict(True) if asking.done else Verdict(None, "no query was asked after the burn-in")
        parts = {"measured": measured, "failures": asking.errors.most_common(20)}
        if not self.is_embedded and duration_s >= _JUDGED_S:  # else the process's CPU time is the database's, too
            self.limit = threads_bound(asking.cpu_s / duration_s, float(np.median(asking.lags_s)))
            parts |= {"limited_by": CLIENT} if self.limit else {}
        return Findings(parts, {"counts": agree, "ops": some}, (failed(everything, 0.0),))


def _times(totals: OpTotals, duration_s: float, rows: int, empty: int) -> dict[str, float]:
    values = totals.service.percentiles_ns(PERCENTS.values())
    times: dict[str, float] = dict(zip(PERCENTS, values, strict=True))
    counts = {"count": totals.done, "per_s": totals.done / duration_s, "rows": rows, "empty": empty}
    return {**times, "mean": totals.service.mean_ns, **counts}


class _Asking:
    """Asks queries in threads of their own, each with a session, and records them."""

    def __init__(
        self,
        queries: Iterator[Asked | AskedText],
        schema: Schema,
        run: RunDir,
        how: How,
        progress: Callable[[float], None],
        seen: Callable[[str], None],
    ) -> None:
        self._queries, self._schema, self._how, self._progress, self._seen = queries, schema, how, progress, seen
        self._run, self._timebase = run, Timebase()
        self.began_ns = self.ended_ns = self._timebase.now_ns()
        self._recorder = Recorder(run.path, "queries", start_ns=self.began_ns)
        self._recorder.observer = self
        self._service = Histogram()
        self._lock, self._working = threading.Lock(), 0
        self._taken = 0
        self._over, self._ended = threading.Event(), threading.Event()
        self.done = 0
        """Number of recorded queries."""
        self.errors = ErrorTexts()
        self.rows: Counter[str] = Counter()
        """Number of rows of the answers, by kind."""
        self.empty: Counter[str] = Counter()
        """Number of answers without a row, by kind."""
        self.failure: Exception | None = None
        self._cpu_began_s = 0.0
        self.cpu_s = 0.0
        """CPU time of this process while the recorded queries were asked."""
        self.lags_s: list[float] = [0.0]
        """How late a thread of this process woke up, time and again."""

    def run(self, sessions: list[Session]) -> None:
        """Ask until the queries, the limit or the time end; `failure` is the error that ended it before."""
        threads = [threading.Thread(target=self._work, args=(one,), daemon=True) for one in sessions]
        self._working = len(threads)
        self.began_ns = self.ended_ns = self._timebase.now_ns()
        try:
            for thread in threads:
                thread.start()
            while not self._waited(1.0):
                with self._lock:
                    self._recorder.flush()
                if len(self._service):
                    self._seen(f"p99 {self._service.percentile_ns(99) / MS:,.2f} ms")
        finally:
            self._over.set()
            for thread in threads:
                thread.join(10.0)
            self._run.write_json(TIMES, asdict(self.times))
        self.close()
        if isinstance(self.failure, UserMistake | Broken):
            raise self.failure

    def _waited(self, for_s: float) -> bool:
        """Wait, and note how late each turn began; return True once all threads have ended."""
        over_s = time.monotonic() + for_s
        while (began_s := time.monotonic()) < over_s:
            if self._ended.wait(_TURN_S):
                return True
            self.lags_s.append(time.monotonic() - began_s - _TURN_S)
        return False

    @property
    def times(self) -> Times:
        """The whole seconds in which the recorded queries were asked."""
        first, last = self.began_ns // NS_PER_S, self.ended_ns // NS_PER_S
        return Times(go_s=first, start_s=first, end_s=last + 1, stopped_s=self.ended_ns / NS_PER_S)

    def close(self) -> None:
        """Write what was recorded."""
        self.cpu_s = time.process_time() - self._cpu_began_s
        with self._lock:
            self._recorder.close()

    def saw(self, tag: str, second: int, histogram: SparseHistogram) -> None:
        """Receive what the recorder writes."""
        if tag.endswith("|service"):
            histogram.add_to(self._service)

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Ignore the counters."""

    def _next(self) -> tuple[Asked | AskedText, int] | None:
        """Return the next query and its place among all that are asked; None at the end."""
        how = self._how
        with self._lock:
            if self._over.is_set() or (how.limit is not None and self._taken >= how.burn_in + how.limit):
                return None
            asked = next(self._queries, None)
            self._taken += 1
        return None if asked is None else (asked, self._taken - 1)

    def _work(self, session: Session) -> None:
        try:
            while (turn := self._next()) is not None:
                self._ask(session, *turn)
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.failure = self.failure or error
            self._over.set()
        finally:
            session.close()
            with self._lock:
                self._working -= 1
                if not self._working:
                    self._ended.set()

    def _ask(self, session: Session, asked: Asked | AskedText, place: int) -> None:
        call: Callable[[Arrival | None], Timed[Rows]]
        origin_ns = self._timebase.origin_ns
        if isinstance(asked, AskedText):
            call = partial(Direct.call, function=session.ask, args=(asked.text,), origin_ns=origin_ns)
        else:
            try:
                statement = self._schema.compile(asked.query)
            except Unsupported as why:
                raise Broken(f"{asked.kind} (line {asked.number + 2}) cannot be asked: {why}") from None
            args = statement, asked.query.columns
            call = partial(Direct.call, function=session.query, args=args, origin_ns=origin_ns)
        place -= self._how.burn_in
        due_ns = self._due_ns(place)
        if due_ns is None:
            return
        result = call(session.arrival)
        if place < 0:
            self._expect_answer(result.error, asked)
            return
        outcome, cause = Outcome.OK, ""
        if result.error is not None:
            outcome, cause = Outcome.UNKNOWN, type(result.error).__name__
            if isinstance(result.error, OpError):
                outcome, cause = result.error.outcome, result.error.cause
        service_ns = result.ended_ns - result.began_ns
        with self._lock:
            due_ns = due_ns or result.began_ns
            self._recorder.op(asked.kind, due_ns, result.ended_ns, service_ns, 0, outcome, cause, 0, result.source)
            if result.error is not None:
                self.errors.add(result.error)
            else:
                rows = len(result.value or ())
                self.rows[asked.kind] += rows
                self.empty[asked.kind] += not rows
            self.done += 1
            self.ended_ns = max(self.ended_ns, result.ended_ns)
        self._progress(1)
        if isinstance(result.error, OpError) and result.error.cause in _GONE:
            self._expect_answer(result.error, asked)

    def _due_ns(self, place: int) -> int | None:
        """Wait until a query is due and return when that is; 0 if at once, None if the time is over before.

        The measured time begins with the first query after the burn-in.
        """
        if place <= 0:
            with self._lock:
                self.began_ns = self.ended_ns = self._timebase.now_ns()
                self._cpu_began_s = time.process_time()
        limit_s, per_s = self._how.duration_s, self._how.per_s
        due_ns = self.began_ns + round(max(0, place) / per_s * NS_PER_S) if per_s else 0
        over_ns = self.began_ns + round(limit_s * NS_PER_S) if limit_s is not None else None
        now_ns = self._timebase.now_ns()
        if over_ns is not None and max(due_ns, now_ns) >= over_ns:
            self._over.set()
            return None
        if due_ns > now_ns and self._over.wait((due_ns - now_ns) / NS_PER_S):
            return None
        return due_ns

    def _expect_answer(self, error: Exception | None, asked: Asked | AskedText) -> None:
        if error is not None:
            cause = f"{error.cause}: " if isinstance(error, OpError) else ""
            raise OpError(Outcome.UNKNOWN, "query", f"query {asked.number + 1} ({asked.kind}): {cause}{error}")
