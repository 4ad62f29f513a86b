"""What a command imports before it has looked at what it was given: each 0.1 s is paid at every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.targets.test_registry import DRIVERS, HEAVY, imported_by, write_scenario

if TYPE_CHECKING:
    from pathlib import Path


def test_commands_start_without_drivers_reports_and_locust() -> None:
    commands = [["--help"], ["run", "missing.toml"], ["list", "queries"], ["list", "use-cases"], ["list", "targets"]]
    found = imported_by(f"from tsbench.cli.main import main\nfor words in {commands}: main(words)")
    assert not found & (DRIVERS | HEAVY | {"locust", "gevent"})


def test_a_load_process_imports_nothing_of_reports_and_no_driver() -> None:
    found = imported_by("import tsbench.drive.bare.standalone")
    assert "locust" in found
    assert not found & (DRIVERS | HEAVY)


def test_the_processes_beside_a_load_process_run_without_its_event_loop() -> None:
    found = imported_by("import tsbench.drive.bare.helper, tsbench.drive.feed.encoder")
    assert not found & {"locust", "gevent", "greenlet"}


PREPARED = """
from gevent.monkey import patch_all
patch_all()
from pathlib import Path
from tsbench.drive.cluster.clocks import Timebase
from tsbench.drive.load_process import LoadProcess
from tsbench.results.process import Share
from tsbench.results.rundir import RunDir
from tsbench.scenario.spec import Scenario
(spec,) = Scenario.load(Path({scenario!r})).expand()
run = RunDir.create(Path({place!r}), spec.id)
process = LoadProcess(spec, Share("a", 0, 1, 1), "duckdb://" + {place!r} + "/x.duckdb", run.path, Timebase())
process.close()
"""


def test_a_driver_that_blocks_is_imported_before_the_threads_of_the_pool_use_it(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    write_scenario(scenario, "duckdb")
    found = imported_by(PREPARED.format(scenario=str(scenario), place=str(tmp_path)))
    assert {"duckdb", "tsbench.targets.duckdb.session"} <= found


def test_nothing_is_imported_before_ctrl_c_is_answered() -> None:
    found = imported_by("import tsbench.cli") - imported_by("")
    assert found <= {"__future__", "tsbench", "tsbench.cli"}
