"""The summary of repeated cells, made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.report.synthetic import make_results, rounds
from tests.report.test_comparison import make_run, make_set
from tsbench.report import frames
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.drawings import middle_cell, middle_rows
from tsbench.report.html import write_report
from tsbench.report.markdown import document
from tsbench.report.sides import sides_of
from tsbench.report.tables import repeats_table, summary_table

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
    cells = load_cells(few)
    part = cells[0].summary.model_copy(update={"measured": None})
    (row,) = repeats_table([replace(cells[0], summary=part), *cells[1:]]).rows
    assert any(str(entry).endswith(" ms (2 of 3 runs)") for entry in row)
    single = load_cells(make_set(tmp_path / "single", {"a": 10, "b": 10}))
    assert repeats_table(single) == summary_table(single)


@pytest.mark.nightly
@pytest.mark.slow
def test_plots_have_one_line_and_one_row_per_cell_with_the_medians_of_its_repeats(tmp_path: Path) -> None:
    shapes = [replace(shape, seconds=4, warmup=1) for shape in rounds()[:6]]
    page = write_report(make_results(tmp_path / "r", shapes)).read_text(encoding="utf-8")
    compared = page[page.index('<section id="comparison">') : page.index('<section id="runs">')]
    assert "the median of the runs of a cell" in compared
    assert set(re.findall(r">((?:alpha|beta)[^<]*)<", compared)) == {"alpha-wide (3 runs)", "beta-narrow (3 runs)"}
    found = load_cells(tmp_path / "r")
    for side in sides_of(found).sides:
        times = sorted(cell.summary.measured.write.service_ns["p99"] for cell in side.runs)  # type: ignore[union-attr]
        assert middle_cell(side).summary.measured.write.service_ns["p99"] == times[1]  # type: ignore[union-attr]
        seconds = frames.concat([frames.of_run(cell, "ops") for cell in side.runs])
        middle = middle_rows(side, "m", seconds, ("second", "op")).set_index(["second", "op"])
        counts = seconds[(seconds["second"] == 2) & (seconds["op"] == "write")]["count"]
        assert middle.loc[(2, "write"), "count"] == counts.median()
