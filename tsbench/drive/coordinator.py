"""Ties Locust's events to a run: who writes which streams, when the clock starts, and what is left at the end.

The same object lives in every Locust process. A single process does all of it; a master decides and tells its `Team`;
a worker is a `Member` that is told.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from locust.runners import MasterRunner, WorkerRunner

from tsbench.drive.distributed import Member, Team
from tsbench.drive.process import Clock, LoadProcess, Share
from tsbench.drive.tally import Tally
from tsbench.drive.timebase import Timebase
from tsbench.errors import Broken, UserMistake
from tsbench.rundir import write_json
from tsbench.scenario import RunSpec
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from locust.env import Environment

logger = logging.getLogger("tsbench")

LEAD_NS = 300_000_000
"""From the decision to start until the first op: time for the message to reach every worker."""


class Run:
    """What is to be done, by which server, kept where; `ends` tells whether tsbench or the user stops it."""

    def __init__(self, spec: RunSpec, endpoint: str, directory: Path, *, ends: bool) -> None:
        self.spec, self.endpoint, self.directory, self.ends = spec, endpoint, directory, ends


class Coordinator:
    """One per Locust environment; `Coordinator.of(environment)` finds it."""

    def __init__(self, environment: Environment, plan: Callable[[Environment], Run]) -> None:
        self.environment = environment
        self.process: LoadProcess | None = None
        self.tally = Tally(environment)
        self.began: list[Callable[[Run, LoadProcess], None]] = []
        self.finished: list[Callable[[Run], None]] = []
        self.trouble = ""
        """Why the last test could not begin, if it could not."""
        self.patient = False
        """Whether such a test is no reason to end: a web UI has a start form that can be corrected."""
        self._plan = plan
        self._run: Run | None = None
        self._clock: Clock | None = None
        self._drained = Event()
        runner = environment.runner
        self._team = Team(runner) if isinstance(runner, MasterRunner) else None
        self._member = Member(runner, self) if isinstance(runner, WorkerRunner) else None
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)
        _coordinators[id(environment)] = self

    @staticmethod
    def of(environment: Environment) -> Coordinator:
        """The coordinator of an environment."""
        return _coordinators[id(environment)]

    @property
    def start_s(self) -> int | None:
        """When the measured window begins, in epoch seconds; None before that is known."""
        return None if self._clock is None else self._clock.start_ns // NS_PER_S

    # --- start --------------------------------------------------------------------------------------------------------

    def _on_test_start(self, **_: Any) -> None:
        self.process, self._clock, self.trouble = None, None, ""
        self._drained.clear()
        try:
            if self._member is not None:
                self._member.begin(Run)
                return
            run = self._run = self._plan(self.environment)
            if self._team is not None:
                self._team.share_out(run)
            else:
                self.begin(run, Share("local", 0, 1, tuple(range(run.spec.world.spec().streams))), 0)
        except (UserMistake, Broken, OSError) as error:  # Locust would log a traceback and go on without us
            if self.patient and self._member is not None:  # its master could not begin either, and has said why
                return
            self._give_up(str(error))
            if self.patient:
                gevent.sleep(1)  # until `_abort` ends this greenlet, which would start users of no run

    def _give_up(self, reason: str) -> None:
        logger.error("tsbench: %s", reason)
        self.trouble = reason
        if self.patient and self._member is None:
            gevent.spawn(self._abort)
            return
        self.environment.process_exit_code = 2
        if self.environment.runner is not None:
            gevent.spawn(self.environment.runner.quit)

    def _abort(self) -> None:
        """End the test, and a start of it that is under way, as Locust's own stop button does."""
        web_ui, runner = self.environment.web_ui, self.environment.runner
        if web_ui is not None and web_ui._swarm_greenlet is not None:  # noqa: SLF001
            web_ui._swarm_greenlet.kill(block=True)  # noqa: SLF001
        if runner is not None:
            runner.stop()

    def begin(self, run: Run, share: Share, clock_offset_ns: int) -> None:
        """Take a share of a run: make its payloads and its files."""
        self.process = LoadProcess(run.spec, share, run.endpoint, run.directory, Timebase(clock_offset_ns))
        self.process.failed = self._give_up
        self.tally.start()
        self.process.drained.rawlink(lambda _: self._tell_drained())
        for listener in self.began:
            listener(run, self.process)

    def _tell_drained(self) -> None:
        if self._member is not None:
            self._member.drained()
        else:
            self._drained.set()

    def _on_spawning_complete(self, **_: Any) -> None:
        run = self._run
        if self._member is not None or run is None or self._clock is not None:
            return
        # Whole seconds, because histograms and counters are kept per second of the epoch.
        go_s = -(-(time.time_ns() + LEAD_NS) // NS_PER_S)
        start_s = go_s + run.spec.drive.warmup // NS_PER_S
        end_s = start_s + run.spec.drive.duration // NS_PER_S if run.ends else None
        self._clock = Clock(go_s * NS_PER_S, start_s * NS_PER_S, None if end_s is None else end_s * NS_PER_S)
        if self._team is not None:
            self._team.go(self._clock)
        self.go(self._clock)
        if self._clock.end_ns is not None:
            gevent.spawn(self._end_in_time, run, self._clock.end_ns)

    def go(self, clock: Clock) -> None:
        """Start the clock of this process."""
        if self.process is not None:
            self.process.go(clock)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _end_in_time(self, run: Run, end_ns: int) -> None:
        """Stop after the measured window; an open loop first gets time to work off what is overdue."""
        drained = self._drained if self._team is None else self._team.drained
        left_s = max(0.0, (end_ns - time.time_ns()) / NS_PER_S)
        if run.spec.drive.loop == "open":
            gevent.sleep(left_s)
            drained.wait(timeout=run.spec.drive.stop_timeout / NS_PER_S)
        else:  # it may also have written all that the scenario's window has
            drained.wait(timeout=left_s)
        if self.environment.runner is not None:
            self.environment.runner.quit()

    def _on_test_stopping(self, **_: Any) -> None:
        if self._team is not None and self._run is not None:
            self._team.stop(self._run)
        self.close_process()

    def close_process(self) -> None:
        """Finish the ops in flight and write all files."""
        if self.process is not None and not self.process.closed:
            self.process.quiesce()
            self.tally.stop()
            try:
                self.process.close()
            except OSError as error:
                self._give_up(f"cannot write results: {error.strerror}; free some room")

    def _on_test_stop(self, **_: Any) -> None:
        self.process = None
        run, self._run = self._run, None
        if run is None or self._clock is None:
            return
        self._write_end(run, self._clock)
        for listener in self.finished:
            listener(run)

    def _write_end(self, run: Run, clock: Clock) -> None:
        """Write what only the leader knows: the window, cut to whole seconds where the run was stopped, and counts."""
        end_ns = min(clock.end_ns or time.time_ns(), time.time_ns()) // NS_PER_S * NS_PER_S
        times = {
            "go_s": clock.go_ns // NS_PER_S,
            "start_s": clock.start_ns // NS_PER_S,
            "end_s": max(end_ns, clock.start_ns + NS_PER_S) // NS_PER_S,
        }
        write_json(run.directory / "process" / "clock.json", times)
        runner = self.environment.runner
        assert runner is not None  # noqa: S101 - a test has ended in it
        total = runner.stats.total
        counts = {
            "requests": total.num_requests,
            "failures": total.num_failures,
            "users": runner.target_user_count,
            "shares": self._team.shares if self._team is not None else [],
        }
        write_json(run.directory / "process" / "locust.json", counts)


_coordinators: dict[int, Coordinator] = {}


def read_spec(directory: Path) -> RunSpec:
    """The spec of a run directory."""
    return RunSpec.model_validate(json.loads((directory / "spec.json").read_text(encoding="utf-8")))
