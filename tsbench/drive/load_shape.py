"""Load shapes: the number of users over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locust import LoadTestShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.scenario.parts import Step


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


class SteppedLoad(LoadTestShape):
    """A Locust load shape; after the last step the users stay until the run ends."""

    abstract = True
    steps: Sequence[Step] = ()

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users, and how many of them may start per second."""
        users = users_at(self.steps, self.get_run_time())
        users = self.steps[-1].users if users is None else users
        return users, float(max(10, users))
