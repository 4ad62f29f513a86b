"""The summary of repeated cells, made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.report.test_comparison import make_run, make_set
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.markdown import document
from tsbench.report.repeats import repeats_table
from tsbench.report.tables import summary_table

if TYPE_CHECKING:
    from pathlib import Path


def test_repeats_are_one_row_with_medians_and_intervals(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 20}, rounds=7, noise=0)
    make_run(place, "a-round=8", 10, validity="invalid")
    table = repeats_table(load_cells(place))
    rows = {str(row[0]): [str(entry) for entry in row[1:]] for row in table.rows}
    assert set(rows) == {"a (7 of 8 runs)", "b (7 runs)"}
    assert rows["a (7 of 8 runs)"][0] == "7 valid, 1 invalid"
    p99 = [*table.heads].index("p99") - 1
    assert rows["b (7 runs)"][p99] == "22.5 ms (20.6 ms to 24.6 ms)"
    assert "b (7 runs)" in document([ResultSet.read(place)])


def test_few_repeats_have_no_interval_and_single_runs_are_rows_of_their_own(tmp_path: Path) -> None:
    few = make_set(tmp_path / "few", {"a": 10}, rounds=3, noise=0)
    (row,) = repeats_table(load_cells(few)).rows
    assert "10.6 ms" in map(str, row)
    single = load_cells(make_set(tmp_path / "single", {"a": 10, "b": 10}))
    assert repeats_table(single) == summary_table(single)
