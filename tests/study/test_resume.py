"""A result set with damaged cells is taken up, and those cells run again."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.cli.support import scenario
from tests.run.test_lifecycle import Log, LoggedServer, parts_of
from tsbench.errors import Broken
from tsbench.report.cells import load_cells
from tsbench.results.summary import Summary
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.scenario.spec import Scenario
from tsbench.study import campaign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec

TWO_CELLS = (
    ('name = "sqlite"\n', 'name = "sqlite"\n[matrix]\n"drive.users" = [2, 3]\n'),
    ("write = 1\nweight = 10\n[[op]]\n", ""),
)


Resume: TypeAlias = "Callable[[], list[str]]"


def resumption(place: Path, monkeypatch: pytest.MonkeyPatch) -> Resume:
    """Return a function that resumes the set `place / "set"` and returns the cells that ran."""
    asked = Scenario.load(place / "tiny.toml")
    ran: list[str] = []

    def carry_out(cell: RunSpec, results: Path, progress: Any, **_more: Any) -> Summary:
        ran.append(cell.id)
        log = Log()
        return run_job(cell, results, progress, parts_of(log, LoggedServer(log)))

    def resume() -> list[str]:
        ran.clear()
        cells, results = asked.expand(), place / "set"
        campaign.prepare(asked, cells, place, results)
        campaign.campaign(asked, cells, results, lambda *_title: nullcontext(Quiet()))
        return list(ran)

    monkeypatch.setattr(campaign, "run_job", carry_out)
    monkeypatch.setattr("tsbench.report.html.write_report", lambda _results: None)
    return resume


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a scenario and its complete set, of which nothing runs again."""
    place = tmp_path_factory.mktemp("complete")
    (place / "set").mkdir()
    shutil.copyfile(scenario(place, *TWO_CELLS), place / "set/scenario.toml")
    with pytest.MonkeyPatch.context() as monkeypatch:
        resume = resumption(place, monkeypatch)
        assert resume() == ["users=2", "users=3"]
        assert resume() == []
    return place


@pytest.fixture
def resumed(complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resume:
    """Resumes a copy of the complete set, `tmp_path / "set"`, and returns the cells that ran."""
    shutil.copytree(complete, tmp_path, dirs_exist_ok=True)
    return resumption(tmp_path, monkeypatch)


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [halve, empty, lambda path: path.unlink()], ids=["halved", "emptied", "deleted"])
@pytest.mark.parametrize("name", ["summary.json", "status.json", "spec.json", "env.json", "ops.parquet"])
def test_a_cell_with_a_damaged_file_runs_again(
    resumed: Resume, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(tmp_path / "set/users=2" / name)
    assert resumed() == (["users=2"] if (name, damage) != ("env.json", empty) else [])
    assert resumed() == []


@pytest.mark.parametrize("text", ['{"format": 3, "cells": null}', '{"format": 3, "cells": [7]}', "{", "[]"])
def test_a_damaged_summary_of_the_set_is_written_again(resumed: Resume, tmp_path: Path, text: str) -> None:
    path = tmp_path / "set/summary.json"
    path.write_text(text)
    assert resumed() == []
    assert [cell["cell"] for cell in json.loads(path.read_text())["cells"]] == ["users=2", "users=3"]


def test_a_cell_whose_server_died_runs_again(resumed: Resume, tmp_path: Path) -> None:
    path = tmp_path / "set/users=3/summary.json"
    summary = json.loads(path.read_text())
    (gate,) = (gate for gate in summary["gates"] if gate["gate"] == "server deaths<=0")
    gate |= {"state": "fail", "text": "the server died during the run (killed by SIGKILL)"}
    path.write_text(json.dumps(summary))
    assert resumed() == ["users=3"]
    assert resumed() == []


@pytest.mark.slow
def test_a_cell_whose_server_died_is_not_complete(tmp_path: Path) -> None:
    """Also if its results are whole; they keep their place and say it, in the status and in tables."""
    log, (cell, *_) = Log(), Scenario.load(scenario(tmp_path, *TWO_CELLS)).expand()
    run_job(cell, tmp_path, Quiet(), parts_of(log, LoggedServer(log, dies=True)))
    status = json.loads((tmp_path / cell.id / "status.json").read_text())
    assert (status["state"], status["error"].startswith("the server died during the run")) == ("server died", True)
    (found,) = load_cells(tmp_path)
    assert (found.status.state, found.gates_text) == ("server died", "server died")
    assert found.validity == Summary.read(found.run).validity


@pytest.mark.slow
def test_a_report_that_fails_in_between_does_not_end_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set").mkdir()
    shutil.copyfile(scenario(tmp_path, *TWO_CELLS), tmp_path / "set/scenario.toml")
    resume = resumption(tmp_path, monkeypatch)

    def fail(_results: Path) -> None:
        raise ArithmeticError

    monkeypatch.setattr("tsbench.report.html.write_report", fail)
    with pytest.raises(Broken, match="ArithmeticError"):  # of the last report
        resume()
    assert {path.parent.name for path in tmp_path.glob("set/*/summary.json")} == {"users=2", "users=3"}
