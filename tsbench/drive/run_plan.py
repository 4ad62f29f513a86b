"""The plan of a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The specification, the server's endpoint, and the directory for the results.

    A `timed` run (of a scenario) begins when all users have been spawned and ends after the scenario's duration. Any
    other begins with its first user, so that a ramp is measured as one, and ends when Locust or the user stops it.
    """

    spec: RunSpec
    endpoint: str
    directory: Path
    timed: bool
