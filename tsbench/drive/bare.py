"""Bare `locust -f`: the run that `tsbench run` takes from a scenario, made from Locust's options instead."""

from __future__ import annotations

import logging
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.lock import RLock
from locust import events
from locust.runners import STATE_RUNNING, STATE_SPAWNING, WorkerRunner
from pydantic import ValidationError

from tsbench import beside, servers, targets
from tsbench.collected import warn
from tsbench.drive import options, signing
from tsbench.drive.coordinator import Coordinator, Run
from tsbench.drive.users import TimeSeriesUser
from tsbench.drive.web import Correspondent, Page
from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError, Verdict
from tsbench.rundir import RunDir
from tsbench.scenario import RunSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from locust.env import Environment

    from tsbench.servers.base import Server

logger = logging.getLogger("tsbench")


def standalone() -> None:
    """Make a locustfile runnable by itself: adds tsbench's options, and prepares and checks each test.

    Call it once at the top of the locustfile. With `--endpoint` (or TSBENCH_ENDPOINT) it uses that server, else it
    starts one of its own if it knows how. Results go to a run directory like those of `tsbench run`.
    """
    signing.install()
    events.init_command_line_parser.add_listener(options.add_options)
    events.init.add_listener(_init)


def _init(environment: Environment, **_: Any) -> None:
    try:
        options.endpoint_at_start(environment)
    except UserMistake as error:
        logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
        sys.exit(2)
    test = _Test()
    coordinator = Coordinator(environment, test.plan)
    if isinstance(environment.runner, WorkerRunner):
        Correspondent(environment, coordinator)
        return
    coordinator.finished.append(lambda run: test.finish(environment, run))
    environment.events.quitting.add_listener(lambda **_: test.end(environment))
    if environment.web_ui is not None:
        try:
            test.page = Page(environment, coordinator, test.server_pids)
        except UserMistake as error:
            logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
            sys.exit(2)
    if environment.web_ui is None:
        # Prepared here, the first data does not eat into --run-time, which Locust counts from its own start; and its
        # timers start from when the event loop last looked at the clock, which was before the imports.
        try:
            test.prepare(environment)
        except (UserMistake, Broken, OpError, OSError) as error:
            logger.error("tsbench: %s", " ".join(str(error).split()))  # noqa: TRY400 - one line, no traceback
            test.give_up(str(error))
            sys.exit(2 if isinstance(error, UserMistake) else 1)
        except KeyboardInterrupt:
            test.give_up("interrupted by the user", state="interrupted")
            logger.error("tsbench: interrupted before the test began; nothing was measured")  # noqa: TRY400 - as above
            sys.exit(130)
        gevent.get_hub().loop.update_now()


class _Test:
    """The test that is running: its server and its run directory."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._dir: RunDir | None = None
        self._prepared: Run | None = None
        self._loaded: dict[str, Any] = {}
        self._watch: beside.Beside | None = None
        self._busy = RLock()  # a next test waits until the one before is checked
        self.page: Page | None = None
        """Beside the web UI, if there is one."""

    def server_pids(self) -> Sequence[int]:
        """The processes of the server that was started here."""
        return self._server.pids() if self._server is not None else ()

    def plan(self, environment: Environment) -> Run:
        """What is to be done: as prepared, or for another test of the web UI prepared now."""
        if self.page is not None:
            self.page.planning()
        try:
            with self._busy:
                run = self._prepared or self.prepare(environment)
        except (UserMistake, Broken, OpError, OSError) as error:
            self.give_up(str(error))
            raise UserMistake(" ".join(str(error).split())) from None
        self._prepared = None
        if self._dir is not None:
            self._watch = beside.Beside(self._dir, run.endpoint, self.server_pids())
        if self.page is not None:
            self.page.planned(run)
        return run

    def prepare(self, environment: Environment) -> Run:
        """Start or find the server and store the first data."""
        self.put_away()
        self._dir = None
        given, asked = options.endpoint_of(environment), environment.parsed_options or Namespace()
        spec = _spec(environment, asked, given)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        results = Path(asked.results).absolute() / f"{stamp}-locust"
        run = self._dir = RunDir.create(results, spec.id)
        run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
        if not given:
            self._server = servers.SERVERS[spec.target.name](run / "server", {})
            self._server.start()
        endpoint = given or (self._server.endpoint if self._server else "")
        logger.info("storing the first data")
        self._loaded = beside.store(run, endpoint)
        self._prepared = Run(spec, endpoint, run.path, ends=False)
        return self._prepared

    def finish(self, environment: Environment, planned: Run) -> None:
        """Check what was answered and written, and write the summary."""
        run, spec = self._dir, planned.spec
        if run is None:
            return
        with self._busy:
            watch, self._watch = self._watch, None
            if watch is not None and (trouble := watch.stop()):
                warn(run, [trouble])
            try:
                whole = beside.conclude(run, planned.endpoint, self._loaded)
            except (UserMistake, Broken) as error:
                logger.error("tsbench: not checked: %s", error)  # noqa: TRY400 - one line, no traceback
                run.finish("failed", error=str(error))
                environment.process_exit_code = 1
                return
            done = run.finish("complete")
        verdict = whole["verdict"]
        logger.info("verdict: %s %s", Verdict(verdict["valid"]).word, verdict["reason"])
        logger.info("see: tsbench report %s", os.path.relpath(done.path.parent))
        if self.page is not None:
            self.page.reported(done.path.parent)
        if verdict["valid"] is False or (spec.gates and verdict["valid"] is None):  # who sets a gate waits for a yes
            environment.process_exit_code = 1

    def give_up(self, reason: str, *, state: str = "failed") -> None:
        """Put away, and keep the reason with what was begun."""
        self.put_away()
        if self._dir is not None:
            self._dir.finish(state, error=reason)

    def end(self, environment: Environment) -> None:
        """End a test that still runs while its server does, so that it is checked; then put away."""
        runner = environment.runner
        if runner is not None and runner.state in {STATE_SPAWNING, STATE_RUNNING}:
            runner.stop()
        self.put_away()

    def put_away(self) -> None:
        """Stop the server that was started here and delete its data."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.kill()
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            server.remove()


def _spec(environment: Environment, options: Namespace, endpoint: str) -> RunSpec:
    classes = [c for c in environment.user_classes if issubclass(c, TimeSeriesUser)]
    names = {c.target for c in classes}
    if len(names) != 1:
        raise UserMistake(f"the user classes must have one target, not {', '.join(sorted(names)) or 'none'}")
    user = classes[0]
    target = targets.get(user.target)
    schema = options.schema or user.schema or next(iter(target.schemas))
    if schema not in target.schemas:
        raise UserMistake(f"--schema {schema}: {target.name} has {', '.join(target.schemas)}")
    if not endpoint and target.name not in servers.SERVERS:
        raise UserMistake(f"tsbench cannot start {target.name}; give --endpoint URL or set TSBENCH_ENDPOINT")
    document = {
        "id": f"{target.name}-{schema}",
        "scenario": "locust",
        "question": "A test from Locust",
        "world": {"use_case": user.use_case, "scale": options.scale, "seed": options.seed},
        "load": {"window": options.load_window},
        "drive": {"users": options.num_users or 1, "warmup": options.warmup},
        "block": user.block_points,
        "gates": [gate.strip() for text in options.gate for gate in text.split(",") if gate.strip()],
        "target": {"name": target.name, "schema": schema},
    }
    try:
        return RunSpec.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserMistake(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError as error:
        raise Broken(str(error)) from None
