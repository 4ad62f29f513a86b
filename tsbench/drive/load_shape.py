"""Load shapes: how many users there are at a time of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locust import LoadTestShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.scenario.parts import Step


def users_at(steps: Sequence[Step], second: float) -> int | None:
    """The users of a stepped load after so many seconds; None when the last step is over.

    A step that ramps goes from the users of the step before (or none) to its own in a straight line.
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
    """Locust's form of it; after the last step the users stay until the run ends by itself."""

    abstract = True
    steps: Sequence[Step] = ()

    def tick(self) -> tuple[int, float] | None:
        """Users and how many of them may start per second."""
        users = users_at(self.steps, self.get_run_time())
        users = self.steps[-1].users if users is None else users
        return users, float(max(10, users))
