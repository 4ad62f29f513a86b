"""Checks of the data after the load: stored points against acknowledged ones, answers against gold, and the size."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tsbench.check.answers import AFTER, Answers, ask, given_answers, guarded, read_back
from tsbench.check.audit import account, count_stored
from tsbench.check.expiry import Expiry
from tsbench.check.gold import Gold
from tsbench.check.lost_writes import newest_stored_ns, with_unrecorded
from tsbench.check.points import Feed
from tsbench.check.sample import sampled
from tsbench.errors import UserMistake, one_line
from tsbench.measure.gates import torn_reads
from tsbench.model import OpError, Outcome, Verdict
from tsbench.results.ledger import read_ledgers
from tsbench.results.manifest import Manifest, check_world
from tsbench.results.reading import files_of
from tsbench.run.figures import Processes, recorded
from tsbench.run.findings import Findings
from tsbench.run.time_limits import LimitedSession, Limits
from tsbench.targets.base import NothingKept, Unsupported
from tsbench.targets.session import MEANT
from tsbench.units import format_now
from tsbench.workload import queries
from tsbench.workload.version import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tsbench.model import Query, Rows
    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import GateResult
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Plan, Schema, Session, Statement
    from tsbench.targets.target import Target

T = TypeVar("T")


class _Server:
    """The server during the checks. Once it fails to answer it is not asked again: that might take as long each time.

    `death` is the reason why it is gone, "" if it is not: that a connection ended does not mean that the server did.
    """

    def __init__(self, run: RunDir, limits: Limits, target: Target, schema: Schema) -> None:
        self._run, self._limits = run, limits
        self._connect = partial(limits.connect, target, schema)
        self._session: LimitedSession | None = None
        self.death = ""
        self._open()

    def _open(self, why: str = "") -> None:
        try:
            self._session = self._connect()
        except (UserMistake, OpError) as error:  # it was reached before
            text = f"the server at {self._limits.server} could not be reached any more ({format_now()}): {why or error}"
            self.death = " ".join(text.split())

    def ask(self, check: Callable[[LimitedSession], T]) -> T:
        """Run a check on the server's session.

        Raises
        ------
        OpError
            As the check does; `not asked` if the server did not answer before.
        """
        if self._session is None:
            raise OpError(Outcome.FAILED, "not asked", "the server did not answer before")
        try:
            return check(self._session)
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


class Examiner:
    """Checks the data in the database after the load; call `audit`, `check`, `size` and `plans` in that order.

    A server that has gone or does not answer is a finding, not an error: all results so far are kept.
    """

    def __init__(
        self, run: RunDir, spec: RunSpec, target: Target, schema: Schema, endpoint: str, *, loaded_points: int
    ) -> None:
        check_world(run, WORLD_VERSION)
        self._run, self._spec, self._schema, self._loaded_points = run, spec, schema, loaded_points
        self._world = spec.world_at()
        with recorded():
            self._ledger = read_ledgers(files_of(run / "process", "*.ledger"))
        self._answers: Answers | None = None
        self._stored = self._sampled = 0
        self._waived = False
        """True if the target keeps nothing and the scenario asks for no check: the run is about times alone."""
        self._limits = Limits(spec.timeout, endpoint)
        self._server = _Server(run, self._limits, target, schema)
        self._unrecorded = 0
        """Number of points that lost load processes may have written and not recorded."""
        self._gold = self._gold_of_all(Expiry.of(target.parse(endpoint).expire_after_s))

    def _gold_of_all(self, expiry: Expiry | None) -> Gold:
        first, last = self._spec.write_ticks(self._world)
        feed = Feed(self._world, first, self._spec.block_points, last)
        keeps = self._schema.keeps_duplicates
        return Gold(feed, self._with_unrecorded(feed), keeps_duplicates=keeps, expiry=expiry)

    def _with_unrecorded(self, feed: Feed) -> NDArray[np.void]:
        """Return the ledger with the writes that lost workers may have made and not recorded."""
        streams = [stream for worker in Processes.read(self._run).missing() for stream in worker.share.streams]
        if not streams:
            return self._ledger
        try:
            newest_ns = self._server.ask(
                lambda session: newest_stored_ns(session, self._schema, self._world.measurements)
            )
        except (OpError, Unsupported):  # which the checks find, too
            return self._ledger
        ledger = with_unrecorded(feed, self._ledger, streams, newest_ns)
        self._unrecorded = int(ledger["points"][len(self._ledger) :].sum(dtype=np.int64))
        return ledger

    def _compared(self) -> Answers:
        """Return all answers, compared with gold in one pass over the world, which the audit's count needs too."""
        if self._answers is not None:
            return self._answers
        gold, answers = self._gold, Answers(self._run.path)
        spec, schema, server, seed = self._spec, self._schema, self._server, self._spec.world.seed
        given = files_of(self._run / "process", "*.answers.jsonl")
        with recorded():
            chosen = sampled(given, seed, spec.check.sample)
            given_answers(gold, given, seed, answers, chosen)
        self._sampled = len(chosen)
        kinds = [op.query for op in spec.op if op.query is not None] or list(answers.kinds)  # bare Locust names no ops
        count, rows = spec.check.answers, spec.check.readback
        guarded(answers, lambda: server.ask(lambda session: ask(gold, session, schema, kinds, count, seed, answers)))
        if rows:
            manifest = Manifest.read(self._run)
            known = frozenset(manifest.created.others if manifest and manifest.created else ())
            guarded(answers, lambda: server.ask(lambda session: read_back(gold, session, schema, rows, answers, known)))
        answers.compare(gold, lambda query: server.ask(lambda session: _rows_of(session, schema, query)))
        self._answers = answers
        return answers

    def audit(self) -> Findings:
        """Compare the points that are stored with those acknowledged; write audit.json."""
        writes = None
        try:
            self._stored = self._server.ask(
                lambda session: count_stored(session, self._schema, self._world.measurements)
            )
            self._compared()
            accounted = account(
                self._gold, self._stored, self._ledger, self._loaded_points, unrecorded=self._unrecorded
            )
            lost = [worker.share.name for worker in Processes.read(self._run).missing()]
            writes, verdict = accounted.summary(), accounted.verdict(lost)
        except Unsupported as why:
            asked = self._spec.check.answers or self._spec.check.readback or self._spec.queries
            self._waived = isinstance(why, NothingKept) and not asked
            verdict = Verdict(True) if self._waived else Verdict(None, f"stored points could not be counted: {why}")
        except OpError as error:
            verdict = Verdict(None, f"stored points could not be counted: {error.cause}: {error}")
        self._run.write_json("audit.json", {"points": writes, "check": verdict.to_json()})
        return self._found({"writes": writes}, {"writes": verdict})

    def check(self) -> Findings:
        """Compare answers, those given under load and new ones, and rows read back with gold; write validate.json."""
        answers = self._compared()
        verdict = Verdict(True) if self._waived else answers.verdict()
        found = {**answers.summary(), "sampled": self._sampled, "given": Processes.read(self._run).answers}
        self._run.write_json("validate.json", {**found, "check": verdict.to_json()})
        gate = torn_reads(answers.torn.answers, answers.torn.rows, answers.checked)
        gates = (gate,) if self._spec.check.torn == "fail" and answers.checked else ()
        return self._found({"answers": found}, {"answers": verdict}, gates)

    def size(self, directory_bytes: Callable[[], int]) -> Findings:
        """Return the size of the data after it has settled, and the size of the data directory (`directory_bytes`)."""
        try:
            return self._found({"size": self._server.ask(lambda session: self._sized(session, directory_bytes))})
        except OpError as error:
            unknown = Verdict(None, f"the size of the data is not known: {error.cause}: {error}")
            return self._found({"size": None}, {"size": unknown} if error.cause != "not asked" else {})

    def _sized(self, session: Session, directory_bytes: Callable[[], int]) -> dict[str, Any]:
        measurements, points = self._world.measurements, self._stored
        self._limits.settle(session, self._schema, measurements)
        parts = dict(session.sizes(measurements))
        total = sum(parts.values())
        return {
            "bytes": total,
            "points": points,
            "bytes_per_point": total / points if points else None,
            "parts": parts,
            "directory_bytes": directory_bytes(),
        }

    def plans(self) -> Findings:
        """Return how the database executes one query of each kind, where it says so; write plans.json.

        What it does not answer has a reason instead: plans are no check, and the figures stand without them.
        """
        found: dict[str, Any] = {}
        texts: dict[str, Any] = {}
        for kind in dict.fromkeys(op.query for op in self._spec.op if op.query is not None):
            query = queries.make(kind, self._world, self._gold.loaded, self._spec.world.seed, AFTER)
            try:
                statement = self._schema.compile(query)
                plan = self._server.ask(partial(_explained, statement=statement))
            except Unsupported:  # which the answers name
                continue
            except OpError as error:
                found[kind] = {"error": f"{error.cause}: {error}"}
                continue
            if plan is not None:
                found[kind], texts[kind] = plan.figures(), {"query": statement.text, "plan": json.loads(plan.text)}
        if texts:
            self._run.write_json("plans.json", texts)
        return self._found({"plans": found})

    def _found(
        self, parts: dict[str, Any], checks: dict[str, Verdict] | None = None, gates: tuple[GateResult, ...] = ()
    ) -> Findings:
        return Findings(parts, checks or {}, gates, death=self._server.death)

    def close(self) -> None:
        """Close the session."""
        self._server.close()


def _explained(session: LimitedSession, statement: Statement) -> Plan | None:
    return session.explain(statement)


def _rows_of(session: Session, schema: Schema, query: Query) -> Rows:
    return session.query(schema.compile(query), query.columns)
