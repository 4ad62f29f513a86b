"""How a database executed the queries of a run, as the report shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.report.synthetic import Shape, make_results
from tsbench.report.cells import Cell, load_cells
from tsbench.report.metrics import MISSING
from tsbench.report.run_tables import boxes
from tsbench.results.figures import PlanFigures

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.report.tables import TableRows


def test_what_a_database_does_not_tell_of_a_plan_is_named_and_errors_stand_in_its_place(tmp_path: Path) -> None:
    plans = {
        "raw-one": PlanFigures(access="IXSCAN time_1", examined=30, returned=12, duration_ms=3.0, blocks=7),
        "lastpoint": PlanFigures(access="Index Scan time_1"),
        "high-cpu-all": PlanFigures(error="timeout: no answer within 30 s"),
    }
    (cell,) = load_cells(make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2)]))
    untold = ("this server does not tell",) * 4
    assert plans_of(replace(cell, summary=cell.summary.model_copy(update={"plans": plans}))) == [
        ("raw-one", "IXSCAN time_1", "30", "12", "7", "3.00 ms"),
        ("lastpoint", "Index Scan time_1", *untold),
        ("high-cpu-all", "timeout: no answer within 30 s", MISSING, MISSING, MISSING, MISSING),
    ]
    assert plans_of(cell) == []


def plans_of(cell: Cell) -> TableRows:
    return [row for table in boxes(cell) if table.title.startswith("How the database executed") for row in table.rows]
