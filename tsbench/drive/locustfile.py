"""The locustfile of `tsbench run`: one user class whose tasks and weights are the scenario's ops."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust import between, events
from locust.runners import MasterRunner

from tsbench.drive.cluster import encryption, forked_workers
from tsbench.drive.coordinator import Coordinator, read_spec
from tsbench.drive.load_shape import SteppedLoad
from tsbench.drive.run_plan import RunPlan
from tsbench.drive.user import TimeSeriesUser, expect_standalone

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment

    from tsbench.scenario.parts import Op

DIRECTORY = Path(os.environ["TSBENCH_RUN"])
SPEC = read_spec(DIRECTORY)
events.init.remove_listener(expect_standalone)
encryption.install()
forked_workers.end_with_master()


def task_of(op: Op) -> Callable[[TimeSeriesUser], None]:
    """Return the Locust task for one op."""
    if op.query is not None:
        kind = op.query
        return lambda user: user.query(kind)
    points, mode = op.write or 1, op.write_mode
    return lambda user: user.write(points, mode)


class SpecUser(TimeSeriesUser):
    """The Locust user of a scenario: its tasks are the scenario's ops."""

    target = SPEC.target.name
    wait_time = between(SPEC.drive.wait[0] / 1e9, SPEC.drive.wait[1] / 1e9)
    tasks = [task for op in SPEC.op for task in [task_of(op)] * op.weight]  # noqa: RUF012 - as `@task` makes it


@events.init.add_listener
def _coordinate(environment: Environment, **_: Any) -> None:
    run = RunPlan(SPEC, os.environ["TSBENCH_ENDPOINT"], DIRECTORY, timed=True)
    coordinator = Coordinator(environment, lambda _environment: run)
    if isinstance(environment.runner, MasterRunner):
        forked_workers.expect_alive(lambda: coordinator.start_s is not None)


if SPEC.drive.steps:

    class Shape(SteppedLoad):
        """The scenario's steps."""

        steps = SPEC.drive.steps

        def get_run_time(self) -> float:
            """Return the time since the run's first op: Locust's own begins before its workers have users."""
            assert self.runner is not None  # noqa: S101 - Locust sets it before it asks
            return Coordinator.of(self.runner.environment).running_s
