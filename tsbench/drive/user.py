"""The Locust user for locustfiles: tasks need only `write` and `query`."""

from __future__ import annotations

import logging
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
from locust import User, events
from locust.exception import StopUser
from locust.runners import WorkerRunner

from tsbench.drive import locust_internals
from tsbench.drive.cluster import forked_workers
from tsbench.drive.coordinator import Coordinator
from tsbench.drive.due_times import Turn
from tsbench.drive.load_process import CONNECT
from tsbench.model import WriteMode
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from locust.env import Environment

    from tsbench.drive.load_process import LoadProcess
    from tsbench.measure.op_times import Timed
    from tsbench.targets.base import Session

logger = logging.getLogger("tsbench")

FAILURE_PAUSE_S = 0.1
"""Pause of a closed-loop user after a failed op; else a dead server would get ten thousand requests a second."""


@events.init.add_listener
def expect_standalone(environment: Environment, **_: Any) -> None:
    """End a Locust whose locustfile has not called `standalone()`, which removes this listener."""
    options = environment.parsed_options
    if isinstance(environment.runner, WorkerRunner) and options is not None and options.processes:
        sys.exit(0)  # a forked worker: its master says so
    forked_workers.await_end()
    files = ", ".join(Path(file).name for file in (options.locustfile if options is not None else "").split(","))
    text = "must call standalone(), so that a test is prepared and checked: add `from tsbench.drive import standalone`"
    logger.error("tsbench: %s %s and `standalone()` before its user classes", files or "the locustfile", text)
    sys.exit(2)


@cache
def _named(points: int, mode: WriteMode | None) -> tuple[str, WriteMode]:
    """Return the name of a write's op, and its mode."""
    return f"write-{points}", mode or WriteMode.usual(points)


class TimeSeriesUser(User):
    """A Locust user with one session to the target, which writes its process's streams and runs seeded queries.

    Class attributes configure bare `locust -f`; `tsbench run` takes all of that from the scenario.
    """

    abstract = True
    target: ClassVar[str] = ""
    schema: ClassVar[str | None] = None
    use_case: ClassVar[str] = "cpu-only"
    block_points: ClassVar[int | None] = None
    only_ops: ClassVar[bool] = False
    """Tasks are one op each and nothing else, so that an op is due when the think time after the last one is over."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._session: Session | None = None
        self._process: LoadProcess | None = None
        self._turn = Turn()
        self._coordinator = Coordinator.of(environment)
        self._think_s = self.wait_time
        if not getattr(self._think_s, "__qualname__", "").startswith("constant_pacing"):  # which keeps to a clock
            self.wait_time = self._think  # type: ignore[method-assign]

    def _think(self) -> float:
        """Wait for the think time; Locust, which calls this for the seconds to wait, has none left to wait for."""
        think_s: float = self._think_s()
        if self._process is None or self._process.due_times.is_open_loop:
            return think_s
        has_slept = self._process.due_times.think(self._turn, think_s, exactly=self.only_ops)
        return locust_internals.SLEPT if has_slept else 0.0

    def on_start(self) -> None:
        """Connect, and wait for the run's start, which in bare Locust is that of its first user."""
        process = self._process = self._coordinator.process
        if process is None:  # the run could not begin; the coordinator has printed the reason
            raise gevent.GreenletExit  # as StopUser, of which Locust would log a traceback here
        self._coordinator.user_started()
        try:
            self._session = process.connect(self._turn)
        except Exception as error:  # noqa: BLE001 - Locust would only log it, and no count would have the user
            if not process.closed:
                process.unconnected(error)
                self._coordinator.locust_stats.add(CONNECT, CONNECT, 0, 0, error)
            raise gevent.GreenletExit from None
        process.due_times.wait_for_go()

    def on_stop(self) -> None:
        """Close the session, outside the event loop if its driver blocks: SQLite's last one writes a checkpoint."""
        session, self._session = self._session, None
        process = self._process
        if session is not None and process is not None:
            process.caller.call(None, session.close, ())

    def write(self, points: int = 1, mode: WriteMode | None = None) -> None:
        """Write the next `points` points of a stream that this process owns, in one request."""
        process, session = self._process, self._session
        if process is None or session is None or not process.due_times.wait(self._turn):
            raise StopUser
        name, mode = _named(points, mode)
        write = process.next_write(points, mode, self._turn)
        if write is None:
            self._nothing_left(process)
            return
        result = process.write(session, write, name, self._turn)
        self._done(process, "write", name, write.payload.nbytes, result)

    def _nothing_left(self, process: LoadProcess) -> None:
        """Handle the end of all points for writes of this size; other sizes may still have some."""
        process.due_times.give_up(self._turn)
        if process.feed.exhausted:
            process.drained.set()
            raise StopUser
        gevent.sleep(0.001)

    def query(self, kind: str) -> None:
        """Run the next query of a kind (`tsbench list queries`) and fetch the whole answer."""
        process, session = self._process, self._session
        if process is None or session is None or not process.due_times.wait(self._turn):
            raise StopUser
        result = process.query(session, kind, self._turn)
        self._done(process, "query", kind, 0 if result.value is None else len(result.value), result)

    def query_of_file(self) -> None:
        """Run the next query of the run's file; the user ends when all have been asked."""
        process, session = self._process, self._session
        if process is None or session is None or not process.due_times.wait(self._turn):
            raise StopUser
        asked = process.query_of_file(session, self._turn)
        if asked is None:
            process.drained.wait()  # so that the number of users is the same to the end
            raise StopUser
        kind, result = asked
        self._done(process, "query", kind, 0 if result.value is None else len(result.value), result)

    def _done(self, process: LoadProcess, request_type: str, name: str, length: int, result: Timed[Any]) -> None:
        if process.closed:  # it was counted as unknown
            return
        self._coordinator.locust_stats.add(request_type, name, result.response_ns, length, result.error)
        if result.error is not None and not process.due_times.is_open_loop:
            gevent.sleep(FAILURE_PAUSE_S)
            self._turn.ended_ns += int(FAILURE_PAUSE_S * NS_PER_S)
