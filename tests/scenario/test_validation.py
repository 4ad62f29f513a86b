"""Checks before a run refuse scenarios that the target's declared abilities do not allow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.scenario.test_spec import PLAIN, load, only_cell
from tsbench.errors import UserMistake
from tsbench.scenario.validation import check_spec
from tsbench.targets import sqlite
from tsbench.targets.target import Access

if TYPE_CHECKING:
    from pathlib import Path

ONE = '[target]\nname = "sqlite"\nschema = "wal"\n'
TWO = PLAIN.replace(ONE, '[matrix]\ntarget = [{name = "%s"}, {name = "%s"}]\n')


def test_several_load_processes_are_refused_where_one_at_a_time_may_open_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "TARGET", replace(sqlite.TARGET, access=Access.ONE_PROCESS))
    check_spec(only_cell(tmp_path), "s.toml")
    with pytest.raises(UserMistake, match=r"^s\.toml: drive\.processes: .* one load process"):
        check_spec(only_cell(tmp_path, PLAIN, "drive.processes=2"), "s.toml")


@pytest.mark.parametrize("override", ["world.interval=1500us", "world.start=2016-01-01T00:00:00.0005Z"])
def test_times_finer_than_the_target_stores_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str
) -> None:
    more = (override, "load.window=1s", "op=[{write=1}]")
    check_spec(only_cell(tmp_path, PLAIN, *more), "s.toml")
    monkeypatch.setattr(sqlite, "TARGET", replace(sqlite.TARGET, resolution_ns=1_000_000))
    with pytest.raises(UserMistake, match=r"^s\.toml: world\.(interval|start): sqlite stores times to 1,000,000 ns; "):
        check_spec(only_cell(tmp_path, PLAIN, *more), "s.toml")


def test_all_cells_are_asked_at_the_coarsest_resolution_of_the_scenarios_targets(tmp_path: Path) -> None:
    for targets, step_ns in ((("sqlite", "postgres"), 1_000), (("sqlite", "influxdb1"), 1)):
        cells = load(tmp_path, TWO % targets).expand()
        assert [cell.world_at().spec.resolution_ns for cell in cells] == [step_ns, step_ns]
