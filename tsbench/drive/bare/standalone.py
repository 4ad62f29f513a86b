"""Bare `locust -f`: a run from Locust's options instead of a scenario."""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import gevent
from locust import events
from locust.runners import MasterRunner, WorkerRunner

from tsbench.drive import locust_internals
from tsbench.drive.bare import options
from tsbench.drive.bare.current_test import StandaloneTest
from tsbench.drive.cluster import encryption, forked_workers
from tsbench.drive.user import TimeSeriesUser, expect_standalone
from tsbench.drive.webui.page import WebPage, WorkerReporter
from tsbench.errors import Broken, UserMistake, exit_at_mistake, one_line
from tsbench.report import expect_packages
from tsbench.scenario.validation import undrivable
from tsbench.targets import registry
from tsbench.targets.target import require_driver

if TYPE_CHECKING:
    from locust.env import Environment

logger = logging.getLogger("tsbench")

WORKERS_TIMEOUT_S = 600.0
"""Default time limit of a headless master for its workers in seconds; see --expect-workers-max-wait."""


def standalone() -> None:
    """Make a locustfile runnable by itself: add tsbench's options, and prepare and check each test.

    Call it once at the top of the locustfile. With `--endpoint` (or TSBENCH_ENDPOINT) tests use that server, else one
    that tsbench starts if it can. Results are in a run directory like those of `tsbench run`.
    """
    try:
        events.init.remove_listener(expect_standalone)
    except ValueError:  # another of several locustfiles has called it
        return
    encryption.install()
    forked_workers.end_with_master()
    events.init_command_line_parser.add_listener(options.add_options)
    events.init.add_listener(_init)


def _init(environment: Environment, **_: Any) -> None:
    with exit_at_mistake():
        known = options.at_start(environment)
        _expect_drivable(environment)
        if not isinstance(environment.runner, WorkerRunner):
            expect_packages()
    test = StandaloneTest(environment, known)
    coordinator = test.coordinator
    if isinstance(environment.runner, MasterRunner) and environment.web_ui is None:
        forked_workers.expect_alive(lambda: coordinator.needs_no_workers)
    if isinstance(environment.runner, WorkerRunner):
        WorkerReporter(environment, coordinator)
        return
    coordinator.finished.append(test.finish)
    coordinator.failed.append(test.give_up)
    environment.events.quitting.add_listener(lambda **_: test.end())
    environment.events.quit.add_listener(lambda **_: test.say_last())
    atexit.register(test.give_up, "Locust ended before the test did", state="interrupted")
    gevent.signal_handler(signal.SIGINT, _interrupt_main)
    given = environment.parsed_options
    if given is not None and (given.headless or given.autostart):  # else the start form has it
        test.run_time_s = locust_internals.take_over_run_time(given)
    if environment.web_ui is not None:
        with exit_at_mistake():
            test.page = WebPage(environment, coordinator, test)
        return
    # Timers of gevent start from when the event loop last read the clock, which was before the imports.
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
    runner, given = environment.runner, options.given(environment)
    several = isinstance(runner, MasterRunner | WorkerRunner)
    for name in {user.target for user in environment.user_classes if issubclass(user, TimeSeriesUser)}:
        require_driver(registry.get(name))
        reason = undrivable(registry.get(name), 2 if several else 1)
        if reason and isinstance(runner, WorkerRunner) and given.processes:
            sys.exit(0)  # the master's exit code is 2
        if reason:
            forked_workers.await_end()
            raise UserMistake(reason)


def _await_workers(environment: Environment) -> None:
    """Wait for a master's workers; Locust itself would wait for ever, and end with a traceback at Ctrl-C.

    Raises
    ------
    Broken
        If they have not connected after --expect-workers-max-wait seconds.
    """
    runner, given = environment.runner, options.given(environment)
    if not isinstance(runner, MasterRunner):
        return
    limit_s = given.expect_workers_max_wait or WORKERS_TIMEOUT_S
    give_up = time.monotonic() + limit_s
    logged_s = 0.0
    while (connected := len(runner.clients.ready)) < given.expect_workers:
        if time.monotonic() > give_up:
            text = f"only {connected} of {given.expect_workers} workers connected within {limit_s:g} s"
            raise Broken(f"{text}; --expect-workers-max-wait is the limit")
        if time.monotonic() - logged_s > 5:
            logged_s = time.monotonic()
            logger.info("waiting for workers: %d of %d have connected", connected, given.expect_workers)
        gevent.sleep(0.1)
