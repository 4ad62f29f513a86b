"""One load process's share of a run: the ops of its sessions, from its queue of writes into its files."""

from __future__ import annotations

import gc
import logging
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, TypeVarTuple

from gevent.event import Event

from tsbench.drive.due_times import DueTimes, Turn
from tsbench.drive.feed.encoder import EncoderJob
from tsbench.drive.feed.payload_queue import PayloadQueue, Write
from tsbench.drive.process_files import ProcessFiles
from tsbench.drive.queries_of_file import queries_of_file
from tsbench.drive.session_calls import GreenletWaiter, caller_for
from tsbench.measure.op_times import Timed
from tsbench.model import OpError, Outcome, PartialWrite
from tsbench.scenario.spec import RunSpec
from tsbench.scenario.validation import schema_of
from tsbench.targets.base import Unsupported
from tsbench.targets.registry import get as get_target
from tsbench.targets.target import require_driver
from tsbench.units import format_duration
from tsbench.workload import queries
from tsbench.workload.query_files import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.clock import Timebase
    from tsbench.drive.run_plan import RunTimes
    from tsbench.model import Query, Rows, Window, WriteMode
    from tsbench.net.stamps import Arrival
    from tsbench.results.process import Share
    from tsbench.scenario.spec import Job
    from tsbench.targets.base import Session
    from tsbench.workload.world import World

T = TypeVar("T")
A = TypeVarTuple("A")

WritePlace: TypeAlias = tuple[int, int, int, int]
"""Stream, block, offset and points of a write, as in the ledger."""

logger = logging.getLogger("tsbench")

CONNECT = "connect"
"""Name of the op that a connection which failed counts as."""
TIMEOUT = "timeout"
"""Cause of an op that did not end in time."""
GONE = {"connection", "refused", "timeout"}
"""Causes of an op after which the queries of a file are asked no more: the others would fail, too."""
MANY_ROWS = 100_000
"""Answers with as many rows are larger than any receive buffer: they have a time of the first row, too."""
_OK = Outcome.OK  # a member of an enum takes 0.1 us to look up


class LoadProcess:
    """One process's share of a run: the streams, clock and files that all of its users have in common.

    Parameters
    ----------
    directory
        The run directory; files named after the process are written below it.
    failed
        Callback when writes can no longer be encoded, or results recorded, with the reason.
    """

    def __init__(
        self,
        spec: Job,
        share: Share,
        endpoint: str,
        directory: Path,
        timebase: Timebase,
        failed: Callable[[str], None] = logger.error,
    ) -> None:
        self.spec, self.share, self.endpoint = spec, share, endpoint
        self.target = get_target(spec.target.name)
        require_driver(self.target)
        self.schema = schema_of(spec, self.target)
        self._world: tuple[World, Window] | None = None
        """The simulated world, and its time range that was loaded, in which answers do not change during writes."""
        job = None
        if isinstance(spec, RunSpec):
            self._world = (world := spec.world_at(), spec.loaded(world))
            job = EncoderJob.of(spec, world, self.schema.name, share.streams)
        self.timebase, self._origin_ns = timebase, timebase.origin_ns
        self.files = ProcessFiles(spec, share, directory, timebase, failed)
        self.recorder = self.files.recorder
        self.caller = caller_for(cooperative=self.target.cooperative)
        if not self.target.cooperative:
            self._import_driver()
        self.feed = PayloadQueue(job, failed)
        if spec.writes:  # those of a bare locustfile are known only when it makes them
            self.feed.prepare([(op.write or 1, op.write_mode) for op in spec.writes])
        self.drained = Event()
        self.due_times = DueTimes(spec, timebase, self.drained.set)
        self._asked: Counter[str] = Counter()
        """Number of queries that were asked, by kind."""
        self._of_file = queries_of_file(spec, share) if spec.query_file is not None else None
        self._in_flight: dict[Turn, tuple[str, WritePlace | None]] = {}
        """Ops and connections that have begun and not ended, by their user's turn."""
        self._idle: Event | None = None
        """Set when no op is in flight; only while somebody waits for that, because an event costs as much as an op."""
        self.closed = False
        """True once nothing is recorded any more; what ends later has been counted as unknown."""

    def go(self, times: RunTimes) -> None:
        """Start the clock: users that wait for it begin at `times.go_ns`. A second call moves the measured window."""
        if self.due_times.times is not None:
            self.due_times.times = times
            self.files.end_reports()
            return
        gc.collect()
        gc.freeze()  # Locust and numpy alone are 100,000 objects, and going through them takes longer than most ops
        self.due_times.begin(times, self.share.index, self.share.of)

    # --- ops ----------------------------------------------------------------------------------------------------------

    def connect(self, turn: Turn) -> Session:
        """Open a session for one user."""
        timed = self._call(CONNECT, turn, None, None, self._open, ())
        if timed.value is None:
            raise timed.error or RuntimeError("no session")
        return timed.value

    def unconnected(self, error: Exception) -> None:
        """Count a user whose connection failed; the run continues without it, unless it only asks a file."""
        outcome, cause = _sort(error)
        now_ns = self.timebase.now_ns()
        self.recorder.op(CONNECT, due_ns=now_ns, end_ns=now_ns, service_ns=0, outcome=outcome, cause=cause)
        self.files.unconnected.add(error)
        if self._of_file is not None:  # it would last until the others have asked everything, or for ever
            self.drained.set()

    def _import_driver(self) -> None:
        """Open and close a session in this thread, so that the threads of the pool find all modules imported.

        Twenty threads that imported DuckDB at the same time blocked each other for good. Users meet the same error, if
        one is raised here, and it is counted then.
        """
        with suppress(Exception):
            self._open().close()

    def _open(self) -> Session:
        waiter = GreenletWaiter if self.target.cooperative else None
        timeout_s = self.spec.drive.timeout / 1e9
        return self.target.connect(self.endpoint, self.schema, timeout_s=timeout_s, waiter=waiter)

    def next_write(self, points: int, mode: WriteMode, turn: Turn) -> Write | None:
        """Return the user's next write, None at the end of streams or test; waiting is this process's delay."""
        write = self.feed.take(points, mode)
        if write is None:
            since_ns, is_first = self.timebase.now_ns(), not self.feed.has_made(points, mode)
            write = self.feed.wait_for(points, mode)
            self.due_times.held_up(turn, since_ns, is_first=is_first)
        return None if self.closed else write

    def write(self, session: Session, write: Write, name: str, turn: Turn) -> Timed[int]:
        """Send one write; its end goes into histograms, schedule and ledger, whatever it is."""
        payload, stream, block, offset = write.payload, write.stream, write.block, write.offset
        place = stream, block, offset, payload.points
        try:
            result = self._call(name, turn, place, session.write_arrival, session.write, (payload,))
        except BaseException:  # the user is killed while it waits: nobody knows whether the points arrived
            if not self.closed:
                self.recorder.wrote(*place, Outcome.UNKNOWN, None, turn.due_ns, self.timebase.now_ns())
            raise
        if self.closed:
            return result
        outcome, began_ns = self._record(name, turn, result, payload.points), result.began_ns
        self.recorder.wrote(stream, block, offset, payload.points, outcome, result.error, began_ns, result.ended_ns)
        return result

    def _call(
        self,
        name: str,
        turn: Turn,
        place: WritePlace | None,
        arrival: Arrival | None,
        function: Callable[[*A], T],
        args: tuple[*A],
    ) -> Timed[T]:
        self._in_flight[turn] = name, place
        try:
            return self.caller.call(arrival, function, args, self._origin_ns)
        finally:
            self._in_flight.pop(turn, None)  # none is left after `abandon`
            if self._idle is not None and not self._in_flight:
                self._idle.set()

    def query(self, session: Session, kind: str, turn: Turn) -> Timed[Rows]:
        """Ask the next question of a kind; one that the schema cannot express is a failed op."""
        number = self._asked[kind] * self.share.of + self.share.index
        self._asked[kind] += 1
        assert self._world is not None  # noqa: S101 - only the queries of a file may be about none
        try:
            query = queries.make(kind, *self._world, self.spec.seed, number)
        except ValueError as why:  # a kind that does not fit the world of a bare locustfile
            return self._cannot_ask(kind, turn, why)
        result = self._ask(session, kind, query, turn)
        times = self.due_times.times
        if result.value is not None and not self.closed and times is not None and times.measures(turn.due_ns):
            self.files.sample.add(kind, number, query, result.value, (result.began_ns, result.ended_ns))
        return result

    def query_of_file(self, session: Session, turn: Turn) -> tuple[str, Timed[Rows]] | None:
        """Ask the next query of the run's file, and return its kind and answer; None if this process has asked all.

        A server that does not answer is asked no more.
        """
        assert self._of_file is not None  # noqa: S101 - only runs of a file ask for this
        asked = next(self._of_file, None)
        if asked is None:
            self.due_times.give_up(turn)
            if not self._in_flight:  # else the user whose query is the last one comes here, too
                self.drained.set()
            return None
        result = self._ask(session, asked.kind, asked.query if isinstance(asked, Asked) else asked.text, turn)
        if result.value is not None and not self.closed:
            self.files.sample.count(asked.kind, len(result.value))
        if isinstance(result.error, OpError) and result.error.cause in GONE:
            self.drained.set()
        return asked.kind, result

    def _cannot_ask(self, kind: str, turn: Turn, why: Exception) -> Timed[Rows]:
        now_ns = self.timebase.now_ns()
        result: Timed[Rows] = Timed(None, OpError(Outcome.FAILED, "unsupported", str(why)), now_ns, now_ns)
        if not self.closed:
            self._record(kind, turn, result)
        return result

    def _ask(self, session: Session, kind: str, query: Query | str, turn: Turn) -> Timed[Rows]:
        """Ask a query, or the text of another program, and record it."""
        result: Timed[Rows]
        if isinstance(query, str):
            result = self._call(kind, turn, None, session.arrival, session.ask, (query,))
        else:
            try:
                statement = self.schema.compile(query)
            except (Unsupported, ValueError) as why:
                return self._cannot_ask(kind, turn, why)
            result = self._call(kind, turn, None, session.arrival, session.query, (statement, query.columns))
        first_ns = None
        is_large = result.value is not None and len(result.value) >= MANY_ROWS
        if is_large:
            first_ns = session.arrival.first_ns() if session.arrival is not None else None
            _convert(result)
        if self.closed:
            return result
        self._record(kind, turn, result)
        if is_large and result.value is not None:
            converted_ns = result.ended_ns + result.lain_ns - result.began_ns
            self.recorder.large_answer(kind, turn.due_ns, first_ns, converted_ns)
        return result

    def _record(self, name: str, turn: Turn, result: Timed[Any], points: int = 0) -> Outcome:
        outcome, cause, acknowledged, due_ns = _OK, "", points, turn.due_ns
        if result.error is not None:
            outcome, cause = _sort(result.error)
            acknowledged = result.error.acknowledged if isinstance(result.error, PartialWrite) else 0
            self.files.failures.add(result.error)
            if cause == TIMEOUT:
                result.end_by(result.began_ns + self.spec.drive.timeout)
        elif type(result.value) is int:  # a session knows better than its payload
            acknowledged = result.value
        started_ns, end_ns = result.began_ns, result.ended_ns
        service_ns = end_ns - started_ns
        if end_ns < due_ns:  # noqa: PLR1730 - half the time of `max`
            end_ns = due_ns
        result.response_ns = end_ns - due_ns
        delayed_ns = turn.ended(started_ns, end_ns, result.held_up_ns, result.lain_ns)
        self.recorder.op(name, due_ns, end_ns, service_ns, acknowledged, outcome, cause, delayed_ns, result.source)
        if self.files.firsts is not None:
            self.files.firsts.ended(name, started_ns, end_ns - due_ns, service_ns, outcome)
        if result.wait_ns:
            self.files.loop_monitor.waited(result.wait_ns)
        self.due_times.ended(turn, started_ns)
        return outcome

    # --- the end ------------------------------------------------------------------------------------------------------

    def quiesce(self) -> None:
        """Start no more ops, and wait for those in flight, at most the stop timeout.

        Locust kills users that it believes to be waiting; some of them wake before the kill reaches them, and their op
        would end unknown.
        """
        self.due_times.stop()
        self._idle = Event()
        if self._in_flight:
            self._idle.wait(timeout=self.spec.drive.stop_timeout / 1e9)

    def abandon(self) -> Iterator[tuple[str, str, int, int, OpError]]:
        """Record everything in flight as unknown now, and nothing from now on.

        What ended later would be counted by Locust and missing in our files, and so would writes in the ledger, which
        may be stored. An open loop has counted its ops as unfinished arrivals.

        Yields
        ------
            Request type, name, response time in ns, length and error of each op, for Locust's statistics.
        """
        self.closed = True
        now_ns = self.timebase.now_ns()
        limit = format_duration(self.spec.drive.stop_timeout)
        for turn, (name, place) in self._in_flight.items():
            error = OpError(Outcome.UNKNOWN, "unfinished", f"had not ended {limit} after the load was stopped")
            if place is not None:
                self.recorder.wrote(*place, Outcome.UNKNOWN, error, turn.due_ns, now_ns)
            if name == CONNECT:
                self.unconnected(error)
                yield CONNECT, name, 0, 0, error
            elif not self.due_times.is_open_loop:
                waited_ns = now_ns - turn.due_ns
                self.files.failures.add(error)
                self.recorder.op(name, turn.due_ns, now_ns, waited_ns, 0, error.outcome, error.cause)
                yield "query" if place is None else "write", name, waited_ns, 0, error
        self._in_flight.clear()

    def close(self) -> None:
        """Stop, count the remaining schedule, and write the files that are complete only at the end."""
        gc.unfreeze()  # or the interpreter cannot take its modules apart at its end, and DuckDB prints what it leaks
        self.feed.close()
        unsent, due = self.due_times.end(), self.due_times
        self.files.close(
            unsent,
            encode_ns=self.feed.encode_ns,
            payload_wait_ns=due.payload_wait_ns,
            schedule=due.schedule if due.is_open_loop else None,
        )


def _convert(result: Timed[Rows]) -> None:
    """Let Python have all values of an answer, as its user would: a driver may do that when they are used."""
    began_ns = time.perf_counter_ns()
    try:
        for _ in result.value.records if result.value is not None else ():
            pass
    except OpError as error:
        result.value, result.error = None, error
    result.lain_ns += time.perf_counter_ns() - began_ns


def _sort(error: Exception) -> tuple[Outcome, str]:
    if isinstance(error, OpError):
        return error.outcome, error.cause
    return Outcome.UNKNOWN, type(error).__name__
