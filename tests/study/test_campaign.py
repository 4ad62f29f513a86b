"""A scenario runs from Python as from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import scenario
from tests.run.test_lifecycle import Log, LoggedServer, parts_of
from tsbench.errors import UserMistake
from tsbench.results.summary import SetSummary
from tsbench.run.lifecycle import run_job
from tsbench.study import campaign
from tsbench.study.campaign import run_scenario
from tsbench.study.request import RunRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.results.summary import Summary
    from tsbench.scenario.spec import RunSpec


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that ran, on a server that does nothing."""
    cells: list[str] = []

    def carry_out(cell: RunSpec, results: Path, progress: Any, **_more: Any) -> Summary:
        cells.append(cell.id)
        log = Log()
        return run_job(cell, results, progress, parts_of(log, LoggedServer(log)))

    monkeypatch.setattr(campaign, "run_job", carry_out)
    return cells


TWO_CELLS = (
    ('name = "sqlite"\n', 'name = "sqlite"\n[matrix]\n"drive.users" = [2, 3]\n'),
    ("write = 1\nweight = 10\n[[op]]\n", ""),
)


@pytest.mark.slow
def test_a_scenario_that_is_run_twice_has_two_calls_and_one_result_set_if_it_is_resumed(
    tmp_path: Path, ran: list[str]
) -> None:
    path, created = scenario(tmp_path, *TWO_CELLS), list[Any]()
    first = run_scenario(
        RunRequest(path, only=["users=3"], out=tmp_path / "sets", reports=False), created=created.append
    )
    assert (ran, created) == (["users=3"], [first.results])
    assert [summary.cell for summary in first.summaries] == ["users=3"]
    asked = SetSummary.read(first.results).command
    assert asked == f"tsbench run {path} --only=users=3 --no-report"
    whole = run_scenario(RunRequest(path, resume=first.results, reports=False))
    assert ran == ["users=3", "users=2"]
    assert [summary.cell for summary in whole.summaries] == ["users=2", "users=3"]
    assert whole.results == first.results


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endpoint": " "}, "--endpoint is empty"),
        ({"gates": ["fast"]}, "--gate "),
        ({"only": ["x"]}, "--only x: no such cell"),
        ({"overrides": ["drive.duration=36500d"]}, "--yes"),
    ],
)
def test_what_cannot_run_is_refused_before_a_result_set_is_created(
    tmp_path: Path, ran: list[str], given: dict[str, Any], says: str
) -> None:
    path, created = scenario(tmp_path, *TWO_CELLS), list[Any]()
    with pytest.raises(UserMistake, match=says):
        run_scenario(RunRequest(path, out=tmp_path / "sets", **given), created=created.append)
    assert (ran, created, (tmp_path / "sets").exists()) == ([], [], False)
