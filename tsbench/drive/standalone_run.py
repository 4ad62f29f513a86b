"""Bare `locust -f`: a run from Locust's options instead of a scenario."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import psutil
from gevent.lock import RLock
from locust import events
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner
from pydantic import ValidationError

from tsbench.drive import options
from tsbench.drive.cluster import forked_workers, signing
from tsbench.drive.coordinator import Coordinator
from tsbench.drive.run_plan import RunPlan
from tsbench.drive.user import TimeSeriesUser
from tsbench.drive.webui.page import WebPage, WorkerReporter
from tsbench.errors import Broken, UserMistake, one_line
from tsbench.report import expect_packages
from tsbench.run.helper import HelperProcess
from tsbench.scenario.spec import RunSpec, explained
from tsbench.scenario.validation import check_spec, undrivable
from tsbench.targets import registry
from tsbench.targets.base import require_driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from locust.env import Environment

    from tsbench.run.helper import Ended

logger = logging.getLogger("tsbench")

CHILDREN_S = 30.0
"""Time limit for forked workers without work to end, in seconds."""
WORKERS_TIMEOUT_S = 600.0
"""Default time limit of a headless master for its workers in seconds; see --expect-workers-max-wait."""


def standalone() -> None:
    """Make a locustfile runnable by itself: add tsbench's options, and prepare and check each test.

    Call it once at the top of the locustfile. With `--endpoint` (or TSBENCH_ENDPOINT) tests use that server, else one
    that tsbench starts if it can. Results are in a run directory like those of `tsbench run`.
    """
    signing.install()
    forked_workers.end_with_master()
    events.init_command_line_parser.add_listener(options.add_options)
    events.init.add_listener(_init)


def _init(environment: Environment, **_: Any) -> None:
    try:
        options.endpoint_at_start(environment)
        _expect_drivable(environment)
        if not isinstance(environment.runner, WorkerRunner):
            expect_packages()
    except UserMistake as error:
        logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
        sys.exit(2)
    test = _Test(environment)
    coordinator = test.coordinator
    if isinstance(environment.runner, WorkerRunner):
        WorkerReporter(environment, coordinator)
        return
    coordinator.finished.append(test.finish)
    coordinator.failed.append(test.give_up)
    environment.events.quitting.add_listener(lambda **_: test.end())
    environment.events.quit.add_listener(lambda **_: test.say_last())
    atexit.register(test.give_up, "Locust ended before the test did", state="interrupted")
    gevent.signal_handler(signal.SIGINT, _interrupt_main)
    if environment.web_ui is not None:
        try:
            test.page = WebPage(environment, coordinator, test.server_pids)
        except UserMistake as error:
            logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
            sys.exit(2)
        return
    # Prepared here, the initial data does not use up --run-time, which Locust counts from its own start; and its
    # timers start from when the event loop last read the clock, which was before the imports.
    try:
        test.prepare()
        _await_workers(environment)
    except (UserMistake, Broken, OSError) as error:
        logger.error("tsbench: %s", one_line(error))  # noqa: TRY400 - one line, no traceback
        test.give_up(one_line(error))
        sys.exit(2 if isinstance(error, UserMistake) else 1)
    except KeyboardInterrupt:
        test.give_up("interrupted by the user", state="interrupted")
        logger.error("tsbench: interrupted before the test began; nothing was measured")  # noqa: TRY400 - as above
        sys.exit(130)
    gevent.get_hub().loop.update_now()


def _interrupt_main() -> None:
    """Raise KeyboardInterrupt in the main greenlet; Python itself would raise it in whichever greenlet runs."""
    gevent.get_hub().handle_system_error(KeyboardInterrupt, KeyboardInterrupt())


def _expect_drivable(environment: Environment) -> None:
    """Refuse to drive a target from more processes than may open its data.

    Raises
    ------
    UserMistake
        In the master and in its workers, before any of them has opened the data. Forked workers leave it to the master.
    """
    runner, given = environment.runner, environment.parsed_options or Namespace()
    several = isinstance(runner, MasterRunner | WorkerRunner)
    for name in {user.target for user in environment.user_classes if issubclass(user, TimeSeriesUser)}:
        require_driver(registry.get(name))
        reason = undrivable(registry.get(name), 2 if several else 1)
        if reason and isinstance(runner, WorkerRunner) and given.processes:
            sys.exit(0)  # the master's exit code is 2
        if reason:
            _await_children()
            raise UserMistake(reason)


def _await_children() -> None:
    """Wait until the workers that this process forked have ended; without a master they would wait for one."""
    give_up = time.monotonic() + CHILDREN_S
    while time.monotonic() < give_up:
        with suppress(psutil.NoSuchProcess):  # it ended in between
            if all(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process().children()):
                return
        gevent.sleep(0.05)


def _await_workers(environment: Environment) -> None:
    """Wait for a master's workers; Locust itself would wait for ever, and end with a traceback at Ctrl-C.

    Raises
    ------
    Broken
        If they have not connected after --expect-workers-max-wait seconds.
    """
    runner, given = environment.runner, environment.parsed_options or Namespace()
    if not isinstance(runner, MasterRunner):
        return
    limit_s = given.expect_workers_max_wait or WORKERS_TIMEOUT_S
    give_up = time.monotonic() + limit_s
    told_s = 0.0
    while (connected := len(runner.clients.ready)) < given.expect_workers:
        if time.monotonic() > give_up:
            text = f"only {connected} of {given.expect_workers} workers connected within {limit_s:g} s"
            raise Broken(f"{text}; --expect-workers-max-wait is the limit")
        if time.monotonic() - told_s > 5:
            told_s = time.monotonic()
            logger.info("waiting for workers: %d of %d have connected", connected, given.expect_workers)
        gevent.sleep(0.1)


class _Test:
    """The test that is running: the helper process that carries out its run, and how it ended."""

    def __init__(self, environment: Environment) -> None:
        self.coordinator = Coordinator(environment, lambda _environment: self.plan())
        self.page: WebPage | None = None
        """tsbench's part of the web UI, None without one."""
        self._environment = environment
        self._helper: HelperProcess | None = None
        self._prepared: RunPlan | None = None
        self._checks: gevent.Greenlet | None = None
        self._last = ""
        self._busy = RLock()  # the next test waits until the previous one is checked

    def server_pids(self) -> Sequence[int]:
        """Return the processes of the server that was started here."""
        return self._helper.server_pids if self._helper is not None else ()

    # --- before -------------------------------------------------------------------------------------------------------

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
        asked = environment.parsed_options or Namespace()
        spec = _spec(environment, asked, options.endpoint_of(environment))
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        helper = self._helper = HelperProcess(spec, Path(asked.results).absolute() / f"{stamp}-locust", _log_phase)
        ready = helper.await_ready()
        self._prepared = RunPlan(spec, ready.endpoint, ready.directory, timed=False)
        return self._prepared

    # --- after --------------------------------------------------------------------------------------------------------

    def finish(self, _planned: RunPlan, failure: str) -> None:
        """Let the helper process check answers and writes and commit the run.

        A separate greenlet waits for that: Locust's quit may meanwhile kill the one that ended the test.
        """
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
            self.say_last()

    def _close(self, ended: Ended) -> None:
        """Report how the test ended, also in the exit code."""
        self._helper = self._prepared = None
        state, summary = ended.state, ended.summary
        lost = f"; {ended.error}" if state == "failed" and ended.error not in summary.headline else ""
        code = 130 if state == "interrupted" else 0 if state == "complete" and summary.passed else 1
        environment = self._environment
        environment.process_exit_code = max(environment.process_exit_code or 0, code)
        self._last = f"result: {summary.headline}{lost}"
        self._last += f"; see: tsbench report {os.path.relpath(ended.directory.parent)}"
        if self.page is not None:
            self.page.reported(ended.directory.parent)
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
        # Locust quits because its runner has ended, which leaves none of its greenlets, or because the user wants it.
        impatient = self._checks is not None and not self._checks.ready() and len(runner.greenlet) > 0
        try:
            if not impatient:
                if runner.state in {STATE_SPAWNING, STATE_RUNNING}:
                    runner.stop()
                self.coordinator.stop()
                gevent.joinall([self._checks] if self._checks is not None else [])
        except KeyboardInterrupt:
            impatient = True
        if impatient and self._checks is not None:
            with suppress(KeyboardInterrupt):
                self._checks.kill()
        self.give_up("Locust ended before the test did", state="interrupted")

    def say_last(self) -> None:
        """Print how the last test ended; at Locust's end once more, below its tables."""
        if self._last:
            logger.info("%s", self._last)


def _log_phase(name: str) -> None:
    """Log the phases of a run in which the user waits."""
    told = {"load": "storing the first data", "check": "checking answers and writes"}
    if name in told:
        logger.info("%s", told[name])


def _spec(environment: Environment, options: Namespace, endpoint: str) -> RunSpec:
    classes = [c for c in environment.user_classes if issubclass(c, TimeSeriesUser)]
    names = {c.target for c in classes}
    if len(names) != 1:
        raise UserMistake(f"the user classes must have one target, not {', '.join(sorted(names)) or 'none'}")
    user = classes[0]
    target = registry.get(user.target)
    schema = options.schema or user.schema or next(iter(target.schemas))
    if schema not in target.schemas:
        raise UserMistake(f"--schema {schema}: {target.name} has {', '.join(target.schemas)}")
    if not endpoint and not target.startable:
        raise UserMistake(f"tsbench cannot start {target.name}; give --endpoint URL or set TSBENCH_ENDPOINT")
    document = {
        "id": f"{target.name}-{schema}",
        "scenario": "locust",
        "question": "A test from Locust",
        "world": {"use_case": user.use_case, "scale": options.scale, "seed": options.seed},
        "load": {"window": options.load_window},
        "drive": {"users": options.num_users or 1, "warmup": options.warmup},
        "block": user.block_points,
        "resolution_ns": target.resolution_ns,
        "gates": [gate.strip() for text in options.gate for gate in text.split(",") if gate.strip()],
        "target": {"name": target.name, "schema": schema, "endpoint": endpoint or None},
    }
    try:
        spec = RunSpec.model_validate(document)
    except ValidationError as error:
        raise UserMistake(explained(error)) from None
    except ValueError as error:
        raise Broken(str(error)) from None
    check_spec(spec, "options")
    return spec
