"""Checks of the data after the load: stored points against acknowledged ones, answers against gold, and the size."""

from __future__ import annotations

import gc
import json
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from tsbench.check.agreement import UNPROVEN, write_unproven
from tsbench.check.answers import AFTER, Answers, ask, ask_again, given_answers, guarded, read_back, unheard, windows
from tsbench.check.audit import account, count_stored, newest_stored_ns, with_unrecorded
from tsbench.check.expiry import Expiry
from tsbench.check.gold import Gold
from tsbench.check.halves import ask_halves
from tsbench.check.points import Feed
from tsbench.check.sample import sampled
from tsbench.errors import UserMistake, one_line
from tsbench.measure.built_in_gates import torn_reads
from tsbench.model import OpError, Outcome, Verdict
from tsbench.results.ledger import writes_of
from tsbench.results.manifest import Manifest, check_world
from tsbench.results.process import TIMES
from tsbench.results.reading import files_of
from tsbench.results.rundir import WRONG
from tsbench.run.assessment import Findings
from tsbench.run.measurement import recorded
from tsbench.run.processes import Processes
from tsbench.run.time_limits import LimitedSession, Limits
from tsbench.targets.base import NothingKept, Unsupported
from tsbench.targets.session import MEANT
from tsbench.text import concealed
from tsbench.units import format_now
from tsbench.workload import WORLD_VERSION, queries
from tsbench.workload.query_files import head_line, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Query, Rows
    from tsbench.results.rundir import RunDir
    from tsbench.run.phases import Progress
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Plan, Schema, Session, Statement
    from tsbench.targets.target import Target

T = TypeVar("T")
P = ParamSpec("P")
SAMPLE, LOCATING = 50_000, 2_000_000
"""Number of rows that `changed_since` reads back, and that number if it knows that some have changed."""


class _AskedServer:
    """The server during the checks. Once it fails to answer it is not asked again: that might take as long each time.

    `death` is the reason why it is gone, "" if it is not: that a connection ended does not mean that the server did.
    """

    def __init__(self, run: RunDir, limits: Limits, target: Target, schema: Schema) -> None:
        self.target, self.schema = target, schema
        self._run, self._limits = run, limits
        self._session: LimitedSession | None = None
        self.death = ""
        self._open()

    def _open(self, why: str = "") -> None:
        try:
            self._session = self._limits.connect(self.target, self.schema)
        except (UserMistake, OpError) as error:  # it was reached before
            text = f"the server at {self._limits.server} could not be reached any more ({format_now()}): {why or error}"
            self.death = " ".join(text.split())

    @property
    def expire_after_s(self) -> int | None:
        """Age at which the server deletes points by itself, in seconds; None if it keeps all."""
        return self.target.parse(self._limits.endpoint).expire_after_s

    def ask(self, check: Callable[Concatenate[LimitedSession, Schema, P], T], *args: P.args, **how: P.kwargs) -> T:
        """Call a check with the server's session, the run's schema, and the other arguments.

        Raises
        ------
        OpError
            As the check does; `not asked` if the server did not answer before.
        """
        if self._session is None:
            raise OpError(Outcome.FAILED, "not asked", "the server did not answer before")
        try:
            return check(self._session, self.schema, *args, **how)
        except OpError as error:
            if error.cause in {"connection", "refused", "timeout"}:
                self.close()
            if error.cause in {"connection", "refused"}:
                self._open(f"{error.cause}: {error}")
            raise
        except MEANT:
            raise
        except Exception as error:  # for example of rows that are none of those which were asked for
            self._run.note_traceback(error)
            raise OpError(Outcome.UNKNOWN, type(error).__name__, one_line(error)) from error

    def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


@dataclass(frozen=True, slots=True)
class _Subject:
    """A run under examination: the server, the gold answers, and the writes.

    The last `unrecorded` points of the `ledger` are of `lost` load processes, which may have written them and did not
    record it.
    """

    run: RunDir
    spec: RunSpec
    server: _AskedServer
    gold: Gold
    ledger: NDArray[np.void]
    lost: list[str]
    unrecorded: int
    notes: list[str] = field(default_factory=list)
    """What the database said of copies when its points were counted."""

    @classmethod
    def of(cls, run: RunDir, spec: RunSpec, server: _AskedServer, earlier: Sequence[RunDir]) -> _Subject:
        world = spec.world_at()
        first_tick, last_tick = spec.write_ticks(world)
        feed = Feed(world, first_tick, spec.block_points, last_tick)
        with recorded():
            ledger = np.concatenate([writes_of(one) for one in (*earlier, run)])
        missing = Processes.read(run).missing() if run.has(TIMES) else []
        written = _with_unrecorded(
            feed, ledger, [stream for worker in missing for stream in worker.share.streams], server
        )
        unrecorded = int(written["points"][len(ledger) :].sum(dtype=np.int64))
        gold = Gold(
            feed,
            written,
            keeps_duplicates=server.schema.keeps_duplicates,
            expiry=Expiry.of(server.expire_after_s),
            shows_at_once=server.target.shows_at_once,
        )
        return cls(run, spec, server, gold, ledger, [worker.share.name for worker in missing], unrecorded)


def _with_unrecorded(
    feed: Feed, ledger: NDArray[np.void], streams: Sequence[int], server: _AskedServer
) -> NDArray[np.void]:
    """Return the ledger with the writes that lost workers may have made in their streams and not recorded."""
    if not streams:
        return ledger
    try:
        newest_ns = server.ask(newest_stored_ns, feed.world.measurements)
    except (OpError, Unsupported):  # which the checks find, too
        return ledger
    return with_unrecorded(feed, ledger, streams, newest_ns)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn the garbage collector off: it takes a third of the time of millions of rows, none of which is in a cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_without_collections()
def examine(
    run: RunDir,
    spec: RunSpec,
    target: Target,
    schema: Schema,
    endpoint: str,
    *,
    loaded_points: int,
    directory_bytes: Callable[[], int],
    progress: Progress,
    earlier: Sequence[RunDir] = (),
) -> Findings:
    """Check the data in the database after the load, and return what was found.

    Points are counted and compared with those acknowledged (audit.json), answers and rows that are read back with gold
    (validate.json); then the data's size after it has settled, and the plans of the queries (plans.json).
    `directory_bytes` returns the size of the data directory; `progress` advances with each query. What `earlier` runs
    wrote into the same data is part of all that is compared. A server that has gone or does not answer is a finding,
    not an error: all results so far are kept.

    Raises
    ------
    UserMistake
        If the run's data is of another version of the simulated worlds.
    """
    check_world(run, WORLD_VERSION)
    with closing(_AskedServer(run, Limits(spec.timeout, endpoint), target, schema)) as server:
        subject = _Subject.of(run, spec, server, earlier)
        stored = _count(subject)
        answers, sampled = _compare(subject, progress)  # which knows how many points are expected, too
        nothing_kept = isinstance(stored, NothingKept) and not (
            spec.check.answers or spec.check.readback or spec.queries
        )
        written = _written(subject, stored, loaded_points, nothing_kept=nothing_kept)
        written += _answered(subject, answers, sampled, nothing_kept=nothing_kept)
        written += _sized(subject, stored if isinstance(stored, int) else 0, directory_bytes)
        return written + _planned(subject, answers.by_kind) + Findings(death=server.death)


@_without_collections()
def changed_since(
    runs: Sequence[RunDir], spec: RunSpec, target: Target, schema: Schema, endpoint: str, stored: int | None
) -> str:
    """Return how the data differ from what some runs wrote, "" if not; the last one left `stored` points.

    Points are counted, and up to `SAMPLE` rows read back and compared, or `LOCATING` if their number is another one.
    """
    with closing(_AskedServer(runs[-1], Limits(spec.timeout, endpoint), target, schema)) as server:
        if server.death:
            return server.death
        subject = _Subject.of(runs[-1], spec, server, runs[:-1])
        storeds = _count(subject)
        if isinstance(storeds, OpError):
            return f"its points cannot be counted: {storeds.cause}: {storeds}"
        rows, said = min(SAMPLE, spec.check.readback), []
        if isinstance(storeds, int) and stored not in {None, storeds} and server.expire_after_s is None:
            rows, said = LOCATING, [f"{storeds:,} points are stored, and {stored:,} were"]
        answers = Answers()
        _read_back(subject, runs[0], rows, answers)
        answers.compare(subject.gold)
        said.append(f"stored rows: {answers.stored.text}" if answers.stored.counts else answers.failed)
        return "; ".join(filter(None, said))


def _count(subject: _Subject) -> int | OpError | Unsupported:
    """Return the number of stored points, or why it is not known."""
    try:
        return subject.server.ask(count_stored, subject.gold.world.measurements, subject.notes)
    except (OpError, Unsupported) as why:
        return why


def _compare(subject: _Subject, progress: Progress) -> tuple[Answers, int]:
    """Return all answers, compared with gold in one pass over the world, and how many of those under load."""
    run, spec, gold, server = subject.run, subject.spec, subject.gold, subject.server
    answers, seed = Answers(run.path, spec.known_differences), spec.world.seed
    given = files_of(run / "process", "*.answers.jsonl")
    with recorded():
        chosen = sampled(given, seed, spec.check.sample)
        given_answers(gold, given, seed, answers, chosen)
    kinds = [op.query for op in spec.op if op.query is not None] or list(answers.kinds)  # bare Locust names no ops
    count, rows = spec.check.answers if kinds else 0, spec.check.readback
    progress.expect(count + (windows(gold, rows) if rows else 0))
    check = partial(ask, gold, kinds=kinds, count=count, seed=seed, answers=answers, advance=progress.advance)
    guarded(answers, lambda: server.ask(check))
    guarded(answers, lambda: server.ask(partial(ask_again, gold, answers=answers)))
    guarded(answers, lambda: server.ask(partial(ask_halves, gold, answers=answers)))
    if rows:
        _read_back(subject, run, rows, answers, progress.advance)
    answers.compare(gold, lambda query: server.ask(_rows_of, query))
    if answers.unproven:
        write_unproven(run / UNPROVEN, answers.unproven)
    if answers.wrong_queries:
        _write_wrong(subject, answers)
    return answers, len(chosen)


def _write_wrong(subject: _Subject, answers: Answers) -> None:
    """Write the first query of each kind with a wrong answer into a file, and say what the database was asked."""
    keys = subject.spec.world.model_dump(mode="json", by_alias=True, exclude_none=True)
    with (subject.run / WRONG).open("wb") as file:
        file.write(head_line(keys, subject.spec.load.window))
        file.writelines(starmap(line_of, answers.wrong_queries.items()))
    if (first := answers.first_wrong) is None or first["kind"] not in answers.wrong_queries:
        return
    with suppress(Unsupported):
        statement = subject.server.schema.compile(answers.wrong_queries[first["kind"]])
        first["statement"] = statement.text + (f"\n-- {statement.params}" if statement.params else "")


def _read_back(
    subject: _Subject, first: RunDir, rows: int, answers: Answers, advance: Callable[[float], object] = unheard
) -> None:
    """Read about `rows` stored rows back; tables that existed before the `first` run are no difference."""
    manifest = Manifest.read(first)
    known = frozenset(manifest.created.others if manifest and manifest.created else ())
    check = partial(read_back, subject.gold, limit=rows, answers=answers, known=known, advance=advance)
    guarded(answers, lambda: subject.server.ask(check))


def _written(
    subject: _Subject, stored: int | OpError | Unsupported, loaded_points: int, *, nothing_kept: bool
) -> Findings:
    """Compare the number of stored points with those acknowledged; write audit.json."""
    writes = None
    if isinstance(stored, int):
        account_of = account(subject.gold, stored, subject.ledger, loaded_points, unrecorded=subject.unrecorded)
        writes, verdict = account_of.summary(), account_of.verdict(subject.lost, subject.notes)
    elif nothing_kept:
        verdict = Verdict(True)
    else:
        why = f"{stored.cause}: {stored}" if isinstance(stored, OpError) else str(stored)
        verdict = Verdict(None, f"stored points could not be counted: {why}")
    subject.run.write_json("audit.json", {"points": writes, "check": verdict.to_json()})
    return Findings({"writes": writes}, {"writes": verdict})


def _answered(subject: _Subject, answers: Answers, sampled: int, *, nothing_kept: bool) -> Findings:
    """Judge the answers, those given under load and new ones, and the rows read back; write validate.json."""
    verdict = Verdict(True) if nothing_kept else answers.verdict()
    given = sum(one.count for one in Processes.read(subject.run).answers.values())
    checked = {**answers.summary(), "sampled": sampled, "given": given}
    subject.run.write_json("validate.json", {**checked, "check": verdict.to_json()})
    gate = torn_reads(answers.torn.answers, answers.torn.rows, answers.checked)
    gates = (gate,) if subject.spec.check.torn == "fail" and answers.checked else ()
    return Findings({"answers": checked}, {"answers": verdict}, gates)


def _sized(subject: _Subject, points: int, directory_bytes: Callable[[], int]) -> Findings:
    """Return the size of the data after it has settled, and the size of the data directory."""
    measurements = subject.gold.world.measurements

    def sizes(session: LimitedSession, schema: Schema) -> Mapping[str, int]:
        session.limits.settle(session, schema, measurements)
        return session.sizes(measurements)

    try:
        parts = dict(subject.server.ask(sizes))
    except OpError as error:
        unknown = Verdict(None, f"the size of the data is not known: {error.cause}: {error}")
        return Findings({"size": None}, {"size": unknown} if error.cause != "not asked" else {})
    total = sum(parts.values())
    size = {"bytes": total, "points": points, "bytes_per_point": total / points if points else None, "parts": parts}
    return Findings({"size": size | {"directory_bytes": directory_bytes()}})


def _planned(subject: _Subject, answered: Iterable[str]) -> Findings:
    """Return how the database executes one query of each kind, if it can explain them; write plans.json.

    The kinds are the specification's and those `answered`, since bare Locust's users ask without one.

    What it does not answer has a reason instead: plans are no check, and the figures stand without them.
    """
    spec, gold = subject.spec, subject.gold
    figures: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    asked = (op.query for op in spec.op if op.query is not None)
    for kind in dict.fromkeys([*asked, *(kind for kind in answered if kind in queries.kinds_of(gold.world))]):
        query = queries.make(kind, gold.world, gold.loaded, spec.world.seed, AFTER)
        try:
            statement = subject.server.schema.compile(query)
            plan = subject.server.ask(_explained, statement)
        except Unsupported:  # which the answers name
            continue
        except OpError as error:
            figures[kind] = {"error": f"{error.cause}: {error}"}
            continue
        if plan is not None:
            figures[kind], texts[kind] = plan.figures(), {"query": statement.text, "plan": json.loads(plan.text)}
    if texts:
        subject.run.write_json("plans.json", concealed(texts))
    return Findings({"plans": figures})


def _rows_of(session: Session, schema: Schema, query: Query) -> Rows:
    return session.query(schema.compile(query), query.columns)


def _explained(session: LimitedSession, _schema: Schema, statement: Statement) -> Plan | None:
    return session.explain(statement)
