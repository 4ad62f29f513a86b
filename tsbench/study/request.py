"""RunRequest: how a scenario is to be run, for the command line, notebooks and tests."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How to run a scenario.

    Parameters
    ----------
    scenario
        A scenario file, or the name of one that tsbench brings (`quickstart`).
    only, overrides, gates
        Patterns of the cells to run (all without any); changes of keys, such as `drive.duration=30s`; conditions for
        passing besides the scenario's, such as `write:p99<50ms`.
    endpoint
        URL of the server to use, instead of starting one.
    repeat
        How often to run each cell, instead of the scenario's own number.
    reuse
        Whether cells that differ only in how they are driven share a load.
    keep, loaded
        Whether the last database stays (`Ran.standing`); the result set whose database is used. Cells then share loads.
    out, resume
        Directory for result sets; or the result set to continue, whose complete cells are kept.
    expensive, reports
        Whether to run a scenario that would take days or much memory; whether to write report.html (extra `report`).

    Raises
    ------
    UserMistake
        If parameters do not go together.
    """

    scenario: Path | str
    only: Sequence[str] = ()
    overrides: Sequence[str] = ()
    gates: Sequence[str] = ()
    endpoint: str | None = None
    repeat: int | None = None
    reuse: bool = False
    keep: bool = False
    loaded: Path | None = None
    out: Path = Path("results")
    resume: Path | None = None
    expensive: bool = False
    reports: bool = True

    def __post_init__(self) -> None:
        if self.endpoint is not None and not self.endpoint.strip():
            raise UserMistake("--endpoint is empty; give the URL of a server, or leave it out")
        if self.keep and self.loaded:
            raise UserMistake("--keep leaves a database standing: leave --loaded or it out")

    @property
    def changes(self) -> list[str]:
        """All changes of the scenario's keys."""
        shares = self.reuse or self.keep or self.loaded is not None
        own = [f"target.endpoint={self.endpoint}"] if self.endpoint else []
        return [*self.overrides, *own, *(["reuse=true"] if shares else [])]

    @property
    def command(self) -> str:
        """The command that asks the same, but for where results are."""
        return shlex.join(["tsbench", "run", str(self.scenario), *self.words])

    @property
    def words(self) -> list[str]:
        """The options of `tsbench run` that ask the same, but for those of where results are."""
        several = {"--only": self.only, "--set": self.overrides, "--gate": self.gates}
        one = {"--endpoint": self.endpoint, "--repeat": self.repeat, "--loaded": self.loaded}
        flags = {"--reuse": self.reuse, "--keep": self.keep, "--yes": self.expensive, "--no-report": not self.reports}
        return [
            *(f"{name}={text}" for name, texts in several.items() for text in texts),
            *(f"{name}={text}" for name, text in one.items() if text is not None),
            *(name for name, is_given in flags.items() if is_given),
        ]
