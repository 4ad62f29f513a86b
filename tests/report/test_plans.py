"""How a database executed the queries of a run, as the report shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.report import view
from tsbench.report.cells import Cell
from tsbench.report.metrics import MISSING
from tsbench.results.rundir import RunDir

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_database_does_not_tell_of_a_plan_is_named_and_errors_stand_in_its_place(tmp_path: Path) -> None:
    plans = {
        "raw-one": {"access": "IXSCAN time_1", "examined": 30, "returned": 12, "duration_ms": 3.0},
        "lastpoint": {"access": "Index Scan time_1", "examined": None, "returned": None, "duration_ms": None},
        "high-cpu-all": {"error": "timeout: no answer within 30 s"},
    }
    cell = Cell("one", RunDir(tmp_path), {"plans": plans}, None, {}, {})
    untold = ("this server does not tell",) * 3
    assert view.plans(cell) == [
        ("raw-one", "IXSCAN time_1", "30", "12", "3.00 ms"),
        ("lastpoint", "Index Scan time_1", *untold),
        ("high-cpu-all", "timeout: no answer within 30 s", MISSING, MISSING, MISSING),
    ]
    assert view.plans(Cell("one", RunDir(tmp_path), {}, None, {}, {})) == []
