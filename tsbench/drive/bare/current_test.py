"""The test of a bare Locust: the helper process that carries out its run, and how it ended."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.lock import RLock
from locust.runners import STATE_RUNNING, STATE_SPAWNING

from tsbench.clock import epoch_ns
from tsbench.drive.bare import options
from tsbench.drive.bare.asked_queries import may_write
from tsbench.drive.bare.helper import HelperProcess
from tsbench.drive.bare.spec import spec_of, with_form
from tsbench.drive.coordinator import Coordinator
from tsbench.drive.run_plan import RunPlan, slow_ramp
from tsbench.errors import Broken, UserMistake
from tsbench.results.rundir import dated
from tsbench.results.summary import PHASES
from tsbench.run.cleanup import left_lines
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from locust.env import Environment

    from tsbench.drive.bare.helper import Ended
    from tsbench.drive.bare.options import AtStart
    from tsbench.drive.load_process import LoadProcess
    from tsbench.drive.webui.page import WebPage

logger = logging.getLogger("tsbench")

_OTHER_TABLES = (
    "Locust's tables count from the first user on and round to whole ms; trust the lines below, "
    "which are of the measured window, without the client's delays"
)
REPORT_EVERY_S = 10.0
"""Seconds between two lines of the log on how far a phase is."""


class StandaloneTest:
    """The test that is running, or is being prepared or checked; one at a time."""

    def __init__(self, environment: Environment, known: AtStart) -> None:
        self.coordinator = Coordinator(environment, lambda _environment: self.plan())
        self.coordinator.began.append(self._begin_encoding)
        self.coordinator.running.append(self._start_timer)
        environment.events.test_stop.add_listener(self._stop_timer)
        self.page: WebPage | None = None
        """tsbench's part of the web UI, None without one."""
        self.run_time_s: float | None = None
        """Time from a test's first user to its end; None: until it is stopped."""
        self._timer: gevent.Greenlet | None = None
        self._environment, self._known = environment, known
        self._helper: HelperProcess | None = None
        self._prepared: RunPlan | None = None
        self._checks: gevent.Greenlet | None = None
        self._last = ""
        self._ended: Path | None = None
        self._logged = "", 0.0
        self._busy = RLock()  # the next test waits until the previous one is checked

    def server_pids(self) -> Sequence[int]:
        """Return the processes of the server that was started here."""
        return self._helper.server_pids if self._helper is not None else ()

    # --- before -------------------------------------------------------------------------------------------------------

    def refusal(self, form: Mapping[str, str], picked: Collection[str]) -> str:
        """Return the reason why no test can be started with the fields of the start form, "" if one can.

        `picked` are the user classes that the form names, none without --class-picker.
        """
        try:
            asked = with_form(options.given(self._environment), form)
            spec_of(self._environment, asked, self._known, picked)
        except (UserMistake, Broken) as error:
            return str(error)
        return ""

    def plan(self) -> RunPlan:
        """Return the plan of the next test: the prepared one, or for another test of the web UI a new one."""
        if self.page is not None:
            self.page.planning()
        with self._busy:
            run = self._prepared or self.prepare()
        self._prepared = None
        if self.page is not None:
            self.page.planned(run)
        return run

    def prepare(self) -> RunPlan:
        """Let the helper process do everything that precedes the load, and return the plan.

        Raises
        ------
        UserMistake
            If an option cannot be used, or the server cannot be had.
        Broken
            If the data could not be stored.
        """
        before, self._helper = self._helper, None
        if before is not None:  # its test was stopped before it had begun
            before.stop("the test was stopped before it began", interrupted=True)
        environment = self._environment
        asked = options.given(environment)
        spec = spec_of(environment, asked, self._known)
        if (
            asked.headless
            and environment.shape_class is None
            and (slow := slow_ramp(asked.num_users, asked.spawn_rate, self.run_time_s))
        ):
            logger.warning("%s", slow)
        helper = self._helper = HelperProcess(spec, Path(asked.results).absolute() / dated("locust"), self._report)
        ready = helper.await_ready()
        self._prepared = RunPlan(spec, ready.endpoint, ready.directory, timed=False)
        return self._prepared

    def abandon(self) -> None:
        """Stop the preparation of a test, with the server that was started for it."""
        self.coordinator.abandon()
        helper, self._helper, self._prepared = self._helper, None, None
        if helper is not None:
            helper.stop("the test was stopped before it began", interrupted=True)
        logger.info("the test was stopped before it began; nothing was measured")

    def _report(self, phase: str, done: float, total: float | None) -> None:
        """Report how far the run is: to the page, and now and then in the log."""
        waiting_for = PHASES[phase].waiting_for
        if not waiting_for:
            return
        share = min(1.0, done / total) if total else None
        if self.page is not None:
            self.page.progressed(waiting_for, share)
        name, at_s = self._logged
        if phase in {"load", "check"} and (phase != name or time.monotonic() - at_s >= REPORT_EVERY_S):
            self._logged = phase, time.monotonic()
            logger.info("%s%s", waiting_for, f": {share:.0%}" if share else "")

    # --- meanwhile ----------------------------------------------------------------------------------------------------

    def _begin_encoding(self, process: LoadProcess) -> None:
        if may_write(self._environment.user_classes):
            process.feed.begin()

    def _start_timer(self, go_ns: int) -> None:
        if self.run_time_s is not None:
            lead_s = max(0.0, (go_ns - epoch_ns()) / NS_PER_S)
            self._timer = gevent.spawn_later(lead_s + self.run_time_s, self._time_is_up)

    def _stop_timer(self, **_: Any) -> None:
        if self._timer is not None and self._timer is not gevent.getcurrent():
            self._timer.kill(block=False)
        self._timer = None

    def _time_is_up(self) -> None:
        runner, given = self._environment.runner, options.given(self._environment)
        logger.info("the run time of %g s is over", self.run_time_s)
        if runner is None:
            return
        if self.page is None:
            runner.quit()
            return
        runner.stop()
        if given.autostart and given.autoquit != -1:
            gevent.sleep(given.autoquit)
            runner.quit()
            if self._environment.web_ui is not None:
                self._environment.web_ui.stop()

    # --- after --------------------------------------------------------------------------------------------------------

    def finish(self, _planned: RunPlan, failure: str) -> None:
        """Let the helper process check answers and writes and commit the run.

        A separate greenlet waits for that: Locust's quit may meanwhile kill the one that ended the test.
        """
        if self.page is not None:
            self.page.checking()
        self._checks = gevent.spawn(self._conclude, failure)
        self._checks.join()

    def _conclude(self, failure: str) -> None:
        with self._busy:
            if self._helper is None:
                return
            try:
                ended = self._helper.conclude(failure)
            except gevent.GreenletExit:
                ended = self._helper.stop("", interrupted=True)
            self._close(ended)
            if self.page is not None:  # else Locust ends now, and it is said below its tables
                self.say_last()

    def _close(self, ended: Ended) -> None:
        """Report how the test ended, also in the exit code."""
        self._helper = self._prepared = None
        for line in left_lines(ended.directory.parent):
            logger.info("%s", line)
        state, summary = ended.state, ended.summary
        lost = f"; {ended.error}" if state == "failed" and ended.error not in summary.headline else ""
        code = 130 if state == "interrupted" else 0 if state == "complete" and summary.passed else 1
        environment = self._environment
        environment.process_exit_code = max(environment.process_exit_code or 0, code)
        self._ended = ended.directory.parent
        self._last = f"result: {summary.headline}{lost}; see: tsbench report {os.path.relpath(self._ended)}"
        if self.page is not None:
            self.page.reported(ended.directory.parent, summary)
        elif environment.runner is not None:  # without a page there is nothing left to do, with or without workers
            gevent.spawn(environment.runner.quit)

    def give_up(self, reason: str, *, state: str = "failed") -> None:
        """End a test that could not begin or did not finish; keep the reason, and its results so far."""
        if self._helper is not None:
            self._close(self._helper.stop(reason, interrupted=state == "interrupted"))

    # --- Locust's end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End a running test, and wait until it is checked; a second quit ends that wait."""
        runner = self._environment.runner
        assert runner is not None  # noqa: S101 - this is its end
        checks = self._checks
        # Locust quits by itself when its runner has ended, which leaves none of its greenlets; else the user wants it.
        user_quits = len(runner.greenlet) > 0
        try:
            if checks is not None and not checks.ready() and user_quits:
                checks.kill()
            else:
                if runner.state in {STATE_SPAWNING, STATE_RUNNING}:
                    runner.stop()
                self.coordinator.stop()
                gevent.joinall([self._checks] if self._checks is not None else [])
        except KeyboardInterrupt:
            if self._checks is not None:
                with suppress(KeyboardInterrupt):
                    self._checks.kill()
        self.give_up("Locust ended before the test did", state="interrupted")

    def say_last(self) -> None:
        """Print how the last test ended: with a page at once, and in any case at Locust's end, below its tables."""
        if self._ended is None:
            return
        from tsbench.report.answer import answer_at  # noqa: PLC0415 - a second of imports

        for line in (_OTHER_TABLES, *answer_at(self._ended), self._last):
            logger.info("%s", line)
