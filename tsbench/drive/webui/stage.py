"""The stage of a test in the web UI (prepared, running, checked), and the reason why it has no report yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Stage(StrEnum):
    """The stages of a test; the next one may be started in `NONE` and `ENDED`."""

    NONE = "none"
    PREPARING = "preparing"
    RUNNING = "running"
    CHECKING = "checking"
    ENDED = "ended"


_NO_REPORT = {
    Stage.NONE: "No test has run yet.",
    Stage.PREPARING: "The test is being prepared.",
    Stage.RUNNING: "The test is running; stop it first.",
    Stage.CHECKING: "The checks are running; the report is made from what they find.",
}
_NO_START = {
    Stage.PREPARING: "a test is being prepared; stop it first",
    Stage.CHECKING: "answers and writes of the last test are still being checked; wait until its report is ready",
}


@dataclass(slots=True)
class TestState:
    """The stage of the current test, the step that it waits for, and the result of the last one."""

    stage: Stage = Stage.NONE
    step: str = ""
    """The step of the preparation or of the checks, in words; "" before the first one."""
    share: float | None = None
    """How much of the step is done, from 0 to 1; None if that is not known."""
    results: Path | None = None
    """Results of the last test, once it has been checked."""
    ended_early: str = ""
    """Why the last test has no report."""

    def enter(self, stage: Stage) -> None:
        """Enter a stage; a new test forgets the results of the last one."""
        self.stage, self.step, self.share = stage, "", None
        if stage is Stage.PREPARING:
            self.results, self.ended_early = None, ""

    def end(self, results: Path | None, why: str = "") -> None:
        """End the test with its results, or with the reason why it has none."""
        self.enter(Stage.ENDED)
        self.results, self.ended_early = results, why

    @property
    def why_no_report(self) -> str:
        """The reason for a missing report; "" if the test has one."""
        return _NO_REPORT.get(self.stage, "" if self.results is not None else self.ended_early)

    @property
    def why_no_start(self) -> str:
        """The reason why no test can be started now; "" if one can."""
        return _NO_START.get(self.stage, "")

    @property
    def progress(self) -> dict[str, str | float | None] | None:
        """The step and its share as the page shows them, None if nobody waits for one."""
        if self.stage not in {Stage.PREPARING, Stage.CHECKING}:
            return None
        other = "preparing the test" if self.stage is Stage.PREPARING else "checking answers and writes"
        return {"step": self.step or other, "share": self.share}
