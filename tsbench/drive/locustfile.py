"""The locustfile of `tsbench run`: one user class whose tasks and weights are the scenario's ops."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust import LoadTestShape, between, events
from locust.runners import MasterRunner

from tsbench.drive.cluster import encryption, forked_workers
from tsbench.drive.coordinator import Coordinator
from tsbench.drive.locust_stats import at_once
from tsbench.drive.run_plan import RunPlan
from tsbench.drive.user import TimeSeriesUser, expect_standalone
from tsbench.scenario.spec import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from locust.env import Environment

    from tsbench.scenario.parts import Op, Step

DIRECTORY = Path(os.environ["TSBENCH_RUN"])
SPEC = spec_of(json.loads((DIRECTORY / "spec.json").read_text(encoding="utf-8")))
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
    """The Locust user of a scenario, whose tasks are the scenario's ops, or of a file of queries."""

    target = SPEC.target.name
    only_ops = True
    wait_time = between(SPEC.drive.wait[0] / 1e9, SPEC.drive.wait[1] / 1e9)
    tasks = [task for op in SPEC.op for task in [task_of(op)] * op.weight] or [TimeSeriesUser.query_of_file]


@events.init.add_listener
def _coordinate(environment: Environment, **_: Any) -> None:
    run = RunPlan(SPEC, os.environ["TSBENCH_ENDPOINT"], DIRECTORY, timed=True)
    coordinator = Coordinator(environment, lambda _environment: run)
    if isinstance(environment.runner, MasterRunner):
        forked_workers.expect_alive(lambda: coordinator.needs_no_workers)


def users_at(steps: Sequence[Step], second: float) -> int | None:
    """Return the number of users of a stepped load after `second` seconds; None when the last step is over.

    A step with `ramp` goes from the users of the previous step (or none) to its own in a straight line.
    """
    begin_s, before = 0.0, 0
    for step in steps:
        length_s = step.duration / 1e9
        if second < begin_s + length_s:
            part = (second - begin_s) / length_s if step.ramp else 1.0
            return max(1, round(before + (step.users - before) * part))
        begin_s, before = begin_s + length_s, step.users
    return None


if SPEC.drive.steps:

    class Shape(LoadTestShape):
        """The scenario's steps; after the last one the users stay until the run ends."""

        def get_run_time(self) -> float:
            """Return the time since the run's first op: Locust's own begins before its workers have users."""
            assert self.runner is not None  # noqa: S101 - Locust sets it before it asks
            return Coordinator.of(self.runner.environment).running_s

        def tick(self) -> tuple[int, float] | None:
            """Return the number of users, and how many of them may start or go per second."""
            assert self.runner is not None  # noqa: S101 - Locust sets it before it asks
            users = users_at(SPEC.drive.steps, self.get_run_time()) or SPEC.drive.steps[-1].users
            return users, at_once(users, self.runner)
