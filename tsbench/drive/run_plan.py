"""The plan of a test, and its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.scenario.spec import Job


_RAMP_SHARE = 0.2
"""Share of the run time above which users who come one by one change the figures."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The specification, the server's endpoint, and the directory for the results.

    A `timed` run (of a scenario) begins when all users have been spawned and ends after the scenario's duration. Any
    other begins with its first user, so that a ramp is measured as one, and ends when Locust or the user stops it.
    """

    spec: Job
    endpoint: str
    directory: Path
    timed: bool


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The start and the measured window of a run in epoch ns.

    Ops that are due in [start_ns, end_ns) count, earlier ones are warm-up. `end_ns` None: until the run is stopped.
    """

    go_ns: int
    start_ns: int
    end_ns: int | None

    def measures(self, moment_ns: int) -> bool:
        """Return True if a moment is in the measured window."""
        return self.start_ns <= moment_ns and (self.end_ns is None or moment_ns < self.end_ns)


def slow_ramp(users: int | None, per_s: float | None, run_time_s: float | None) -> str:
    """Return a warning where users come so slowly that much of the run is of fewer users than asked for, else ""."""
    users, per_s = users or 1, per_s or 1.0  # Locust's defaults
    if not run_time_s or users / per_s <= _RAMP_SHARE * run_time_s:
        return ""
    come = f"{users} users at {per_s:g} a second take {users / per_s:.3g} s of the run time of {run_time_s:g} s to come"
    return f"{come}, and the figures are of fewer users; -r {users} lets all come at once"
