"""Connects Locust's events with a run: the assignment of streams, the start of the clock, and the results at the end.

Every Locust process has a coordinator. That of a single process does everything; a master's decides and instructs its
workers through `MasterProtocol`; a worker's follows through `WorkerProtocol`.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path  # noqa: TC003 - a field's type
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.lock import RLock
from locust.runners import MasterRunner, WorkerRunner

from tsbench.clock import Timebase, epoch_ns
from tsbench.drive import locust_internals
from tsbench.drive.cluster.protocol import MasterProtocol, WorkerProtocol
from tsbench.drive.load_process import LoadProcess
from tsbench.drive.locust_stats import LocustStats, UserCounts, change_load
from tsbench.drive.run_plan import RunTimes
from tsbench.drive.settling_watch import SettlingWatch
from tsbench.errors import Broken, UserMistake
from tsbench.results.process import MASTER, TIMES, WARMUP, WINDOW, MasterReport, MeasuredFrom, Share, Times
from tsbench.results.rundir import write_json
from tsbench.targets.session import caused_line
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment
    from locust.runners import Runner

    from tsbench.drive.run_plan import RunPlan
    from tsbench.scenario.spec import Job

logger = logging.getLogger("tsbench")

LEAD_NS = 300_000_000
"""Time from a decision until the first op or the measured window, for the message to reach every worker."""
FIRST_USER_S = 120.0
"""Time limit for the first user to start, from the moment at which users are wanted."""
LOOK_S = 0.1
"""How often the coordinator looks whether the rate has settled."""
_LOCAL = "local"
"""Name of a single process."""


@dataclass(slots=True, eq=False)
class _Test:
    """The state of one test in the process that leads it."""

    run: RunPlan
    times: RunTimes | None = None
    stopped_ns: int | None = None
    watch: SettlingWatch | None = None
    users: UserCounts = field(default_factory=UserCounts)
    is_over: bool = False  # it has ended, could not begin, or was abandoned

    def ends(self) -> bool:
        """Return True once the test is being stopped."""
        return self.is_over or self.stopped_ns is not None


class Coordinator:
    """The coordinator of one Locust environment; `Coordinator.of(environment)` returns it."""

    def __init__(self, environment: Environment, plan: Callable[[Environment], RunPlan]) -> None:
        self.environment = environment
        self.process: LoadProcess | None = None
        self.locust_stats = LocustStats(environment)
        self.began: list[Callable[[LoadProcess], None]] = []
        self.running: list[Callable[[int], None]] = []
        """Callback when it is known when a test's users begin to work (epoch ns); not in a worker."""
        self.finished: list[Callable[[RunPlan, str], None]] = []
        """Callback when a test has ended, with the reason if its files are not complete."""
        self.failed: list[Callable[[str], None]] = []
        """Callback when a test could not begin, with the reason."""
        self.start_error = ""
        """Reason why the last test could not begin, "" if it could."""
        self.end_s: int | None = None
        """End of the last test's measured window in epoch seconds, once it is known."""
        self.keeps_running = False
        """True if the process continues after such a test: the user of a web UI can correct its start form."""
        self._plan = plan
        self._test: _Test | None = None
        """The current test, or the last one; None in a worker."""
        self._stopping = RLock()
        self._unrecorded = ""
        self._drained = Event()
        locust_internals.parse_defaults_once()
        locust_internals.sleep_once()
        runner = environment.runner
        self._master = MasterProtocol(runner, self.user_started) if isinstance(runner, MasterRunner) else None
        self._worker = WorkerProtocol(runner, self) if isinstance(runner, WorkerRunner) else None
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)
        _coordinators[id(environment)] = self

    @staticmethod
    def of(environment: Environment) -> Coordinator:
        """Return the coordinator of an environment."""
        return _coordinators[id(environment)]

    @property
    def _times(self) -> RunTimes | None:
        return self._test.times if self._test is not None else None

    @property
    def start_s(self) -> int | None:
        """Start of the measured window in epoch seconds; None before it is known."""
        return None if self._times is None else self._times.start_ns // NS_PER_S

    @property
    def running_s(self) -> float:
        """Seconds since the first op of the test; 0 before it."""
        return 0.0 if self._times is None else max(0.0, (epoch_ns() - self._times.go_ns) / NS_PER_S)

    @property
    def _runner(self) -> Runner:
        runner = self.environment.runner
        assert runner is not None  # noqa: S101 - Locust makes it before anything happens in it
        return runner

    # --- start --------------------------------------------------------------------------------------------------------

    def _on_test_start(self, **_: Any) -> None:
        self.start_error = self._unrecorded = ""
        try:
            if self._worker is not None:
                self._expect_share(self._worker)
                return
            self.process = self._test = self.end_s = None
            self._drained.clear()
            run = self._plan(self.environment)
            test = self._test = _Test(run)
            if self._master is not None:
                self._master.share_out(run)
            else:
                own = Share(_LOCAL, 0, 1, run.spec.streams)
                self.begin(run.spec, run.endpoint, run.directory, own, 0)
            if not run.timed:
                gevent.spawn(self._await_first_user, test)
        except Exception as error:  # noqa: BLE001 - Locust would log a traceback and go on without us
            self._give_up(caused_line(error), code=2 if isinstance(error, UserMistake) else 1)
            if self._survives:
                raise gevent.GreenletExit from None  # quietly: this greenlet would start users without a run

    @property
    def needs_no_workers(self) -> bool:
        """True once the test has begun or was given up, so that a worker that ends is no loss."""
        return self.start_s is not None or bool(self.environment.process_exit_code)

    def user_started(self) -> None:
        """Start the clock of a test that begins with its first user, on whichever worker that is."""
        if self._worker is not None:
            self._worker.user_started()
        else:
            self._start_once(timed=False)

    def _await_first_user(self, test: _Test) -> None:
        """End a test whose first user does not start: its run time, which would end it, has not begun."""
        waited_s = 0.0
        while test.times is None and not test.ends():
            gevent.sleep(LOOK_S)
            waited_s += LOOK_S if self._runner.target_user_count else 0.0  # a load shape may begin with none
            if waited_s > FIRST_USER_S:
                self._cannot_record(f"no user has started within {FIRST_USER_S:g} s; is this machine overloaded?")
                return

    @property
    def _survives(self) -> bool:
        """True if this process survives a test that cannot begin; one with --autostart does not."""
        return self.keeps_running and self._worker is None and gevent.getcurrent().parent is not None

    def abandon(self) -> None:
        """End a test that is being prepared, before any of its users has been started."""
        locust_internals.kill_start(self.environment)
        self.close_process()
        self.process = None
        if self._test is not None:
            self._test.is_over = True

    def _expect_share(self, worker: WorkerProtocol) -> None:
        if worker.has_share or self.keeps_running:  # with a web UI the master reports the error
            return
        if not worker.unable:
            raise UserMistake("this worker joined after the run had begun, so that no streams are left for it")
        gevent.spawn(self._runner.quit)

    def cannot_take_part(self, reason: str) -> None:
        """Log why this worker cannot take the streams that the master assigned; its exit code will be 2.

        The master then ends the test, and its request to quit may come before a test has begun in this worker.
        """
        if not self.keeps_running:
            logger.error("tsbench: this worker cannot take part: %s", reason)
            self.environment.process_exit_code = 2

    def _give_up(self, reason: str, *, code: int) -> None:
        """End a test that could not begin."""
        self.start_error = reason
        if self._test is not None:
            self._test.is_over = True
        for listener in self.failed:
            listener(reason)
        # A load shape would try again and again.
        self._end_early(reason, code, lambda: locust_internals.kill_start(self.environment))

    def _cannot_record(self, reason: str) -> None:
        """End a test whose results can no longer be recorded; earlier ones are summarised."""
        if not self._unrecorded:
            self._unrecorded = reason
            self._end_early(reason, 1, self._runner.stop)

    def _end_early(self, reason: str, code: int, stop: Callable[[], None]) -> None:
        """Log the reason and call `stop`, or end the process with the exit code if it does not survive the test."""
        logger.error("tsbench: %s", reason)
        if self._survives:
            gevent.spawn(stop)
            return
        self.environment.process_exit_code = code
        gevent.spawn(self._runner.quit)

    def abandoned(self, reason: str) -> None:
        """Write what was measured and end this worker with 1: nobody will start or end a test in it any more."""
        logger.error("tsbench: %s", reason)
        self.environment.process_exit_code = 1
        self.close_process()
        self._runner.quit()

    def begin(self, spec: Job, endpoint: str, directory: Path, share: Share, clock_offset_ns: int) -> None:
        """Prepare this process's share of a run: make its first payloads and its files."""
        self.close_process()  # left by a test that another worker could not take part in
        timebase = Timebase(clock_offset_ns)
        process = self.process = LoadProcess(spec, share, endpoint, directory, timebase, self._cannot_record)
        self.locust_stats.start()
        if spec.drive.finds_steady_state:
            process.files.report_rate(self._report_rate)
        process.drained.rawlink(lambda _: self._report_drained())
        for listener in self.began:
            listener(process)

    def _report_rate(self, counts: list[tuple[int, int]], through_s: int) -> None:
        if self._worker is not None:
            self._worker.report_rate(counts, through_s)
        elif self._test is not None and self._test.watch is not None:
            self._test.watch.add(_LOCAL, counts, through_s)

    def _report_drained(self) -> None:
        if self._worker is not None:
            self._worker.drained()
        else:
            self._drained.set()

    def _on_spawning_complete(self, **_: Any) -> None:
        self._start_once(timed=True)

    def _start_once(self, *, timed: bool) -> None:
        """Start the run of a test that begins in this way, unless it has begun."""
        test = self._test
        if test is not None and not test.is_over and test.run.timed is timed and test.times is None:
            self._start_run(test)

    def _start_run(self, test: _Test) -> None:
        """Set the measured window, equal for all processes, and let users start."""
        run = test.run
        go_ns = epoch_ns() + LEAD_NS
        # Whole seconds, because histograms and counters are kept per second of the epoch.
        start_s = -(-(go_ns + run.spec.drive.longest_warmup) // NS_PER_S)
        if not run.spec.drive.warmup:  # the first op is measured: none may begin before the window does
            go_ns = start_s * NS_PER_S
        times = self._set_times(test, go_ns, start_s)
        gevent.spawn(test.users.watch, lambda: self._runner.user_count, lambda: test.times, test.ends)
        for listener in self.running:
            listener(go_ns)
        if run.spec.drive.finds_steady_state:
            watch = test.watch = SettlingWatch(go_ns // NS_PER_S + 1, run.spec.drive.duration // NS_PER_S)
            if self._master is not None:
                self._master.watch = watch
            gevent.spawn(self._measure_when_settled, test, times, watch)
        elif times.end_ns is not None:
            gevent.spawn(self._end_in_time, test, times.end_ns)
        else:
            gevent.spawn(self._end_when_written, test)

    def _set_times(self, test: _Test, go_ns: int, start_s: int) -> RunTimes:
        """Let the measured window of all processes begin at an epoch second."""
        run = test.run
        end_s = start_s + run.spec.drive.duration // NS_PER_S if run.timed else None
        times = test.times = RunTimes(go_ns, start_s * NS_PER_S, None if end_s is None else end_s * NS_PER_S)
        if run.spec.event and run.timed:
            write_json(run.directory / WINDOW, asdict(MeasuredFrom(start_s)))
        if self._master is not None:
            self._master.go(times)
        self.go(times)
        return times

    def _measure_when_settled(self, test: _Test, times: RunTimes, watch: SettlingWatch) -> None:
        """Begin the measured window when the rate has settled; until then, `times` has it at the warm-up's limit."""
        run, settled = test.run, False
        while not settled and epoch_ns() < times.start_ns - LEAD_NS:
            if self._all_drained.wait(timeout=LOOK_S):  # all points of the scenario's window are written
                self._runner.quit()
                return
            if test.stopped_ns is not None:
                return
            settled = watch.has_settled(self._master.present() if self._master is not None else {_LOCAL})
        start_s = -(-(epoch_ns() + LEAD_NS) // NS_PER_S) if settled else times.start_ns // NS_PER_S
        times = self._set_times(test, times.go_ns, min(start_s, times.start_ns // NS_PER_S))
        warmup_s, limit_s = (times.start_ns - times.go_ns) / NS_PER_S, run.spec.drive.longest_warmup / NS_PER_S
        try:
            settled_at = watch.ended(settled=settled, warmup_s=warmup_s, limit_s=limit_s)
            write_json(run.directory / WARMUP, asdict(settled_at))
        except Broken as error:
            self._cannot_record(str(error))
            return
        assert times.end_ns is not None  # noqa: S101 - only a scenario's run waits for a steady rate
        self._end_in_time(test, times.end_ns)

    @property
    def _all_drained(self) -> Event:
        return self._drained if self._master is None else self._master.drained

    def go(self, times: RunTimes) -> None:
        """Start the clock of this process."""
        if self.process is not None:
            self.process.go(times)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _end_in_time(self, test: _Test, end_ns: int) -> None:
        """Stop after the measured window; an open loop first gets time to run overdue ops."""
        run = test.run
        gevent.spawn(change_load, run, end_ns - run.spec.drive.duration, self._runner, test.ends)
        drained = self._all_drained
        left_s = max(0.0, (end_ns - epoch_ns()) / NS_PER_S)
        is_open, stop_s = run.spec.drive.loop == "open", run.spec.drive.stop_timeout / NS_PER_S
        if is_open and not run.spec.ends_early:
            gevent.sleep(left_s)
            drained.wait(timeout=stop_s)
        elif not drained.wait(timeout=left_s) and is_open:  # else it ends early, with all its points written
            drained.wait(timeout=stop_s)
        self._runner.quit()

    def _end_when_written(self, test: _Test) -> None:
        """Stop a test without an end of its own when all points that were recorded are written."""
        self._all_drained.wait()
        if test is self._test and not test.ends():
            logger.info("all points of the recording are written, so the test ends")
            self._runner.stop() if self.keeps_running else self._runner.quit()

    def stop(self) -> None:
        """End the test in any state: Locust's quit may have killed the greenlet that was ending it."""
        if self._test is not None and not self._test.is_over:
            self._on_test_stopping()
            self._on_test_stop()

    def _on_test_stopping(self, **_: Any) -> None:
        with self._stopping:  # a second call waits for the first one
            test = self._test
            if test is not None and test.stopped_ns is None:
                test.stopped_ns = epoch_ns()
                if self._master is not None and not test.is_over:
                    self._master.stop(test.run)
            self.close_process()

    def close_process(self) -> None:
        """Finish the ops in flight and write all files."""
        with self._stopping:
            process = self.process
            if process is None or process.closed:
                return
            process.quiesce()
            for op in process.abandon():
                self.locust_stats.add(*op)
            self.locust_stats.stop()
            process.close()

    def _on_test_stop(self, **_: Any) -> None:
        self.process = None
        test = self._test
        if test is None or test.is_over:  # a worker's, or one that could not begin
            return
        test.is_over = True
        try:
            if test.times is not None:
                self._write_end(test, test.times, test.stopped_ns or epoch_ns())
        except Broken as error:
            self._cannot_record(str(error))
        reason = self._unrecorded or ("" if test.times is not None else "the test ended before it began to measure")
        for listener in self.finished:
            listener(test.run, reason)

    def _write_end(self, test: _Test, times: RunTimes, stopped_ns: int) -> None:
        """Write the leader's data: the window, truncated to whole seconds if the run was stopped, and counts."""
        run = test.run
        end_ns = min(times.end_ns or stopped_ns, stopped_ns) // NS_PER_S * NS_PER_S
        if run.spec.query_file is not None:  # all that was asked counts: the window ends after the last answer
            stopped_ns = epoch_ns()
            end_ns = -(-stopped_ns // NS_PER_S) * NS_PER_S
        self.end_s = max(end_ns, times.start_ns + NS_PER_S) // NS_PER_S
        window = Times(times.go_ns / NS_PER_S, times.start_ns // NS_PER_S, self.end_s, stopped_ns / NS_PER_S)
        write_json(run.directory / TIMES, asdict(window))
        total, users = self._runner.stats.total, test.users.totals(self._runner.target_user_count)
        workers = tuple(self._master.workers.values()) if self._master is not None else ()
        report = MasterReport(total.num_requests, total.num_failures, *users, workers)
        write_json(run.directory / MASTER, asdict(report))


_coordinators: dict[int, Coordinator] = {}
