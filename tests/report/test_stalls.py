"""Stalls of the rates in the page: their table, and the plot of rate, latency and counters on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.report.synthetic import Shape, make_results
from tests.report.test_plots import texts
from tsbench.collect.recording import write_rows
from tsbench.report import frames, system_plots
from tsbench.report.answer import answer_at
from tsbench.report.cells import load_cells
from tsbench.report.html import write_report
from tsbench.results.panels import Panel, read_panels, write_panels
from tsbench.results.rundir import RunDir, write_json

if TYPE_CHECKING:
    from pathlib import Path

RISE = {"counter": "waits.lock", "panel": "Sessions that wait", "label": "for a lock", "unit": "count", "kind": "gauge"}
LOGGED = {"counter": "wal", "panel": "Logged", "label": "log", "unit": "bytes", "kind": "rate"}
STALLS = [
    {"start_s": 14, "length_s": 1, "lowest": 0.25, "counters": []},
    {
        "start_s": 6,
        "length_s": 2,
        "lowest": 0.0,
        "counters": [
            {**RISE, "usual": 0.0, "highest": 8.0, "deviations": 100.0},
            {**LOGGED, "usual": 1e6, "highest": 5e7, "deviations": 30.0},
        ],
    },
]
PANELS = (
    Panel("Rows", "count", "rate", {"rows": "inserted"}),
    Panel("Logged", "bytes", "rate", {"wal": "log"}, explains_stalls=True),
    Panel("Sessions that wait", "count", "gauge", {"waits.lock": "for a lock"}, explains_stalls=True),
)


@pytest.fixture
def stalled(tmp_path: Path) -> Path:
    results = make_results(tmp_path / "results", [Shape(stall_at=6)])
    run = RunDir(results / "postgres-btree")
    summary = run.read_json("summary.json")
    steady = {"settled_s": 0, "median_per_s": 2e5, "variation": 0.1, "drift": 0.0, "stall_count": 2, "stalled_s": 3}
    write_json(run / "summary.json", {**summary, "steadiness": {"write": {**steady, "stalls": STALLS}}})
    write_panels(run / "counters.json", PANELS)
    rows: list[dict[str, float | str]] = [
        {"second": float(second), "name": name, "value": float(value)}
        for name, column in {
            "rows": np.arange(25) * 1e5,
            "wal": np.cumsum(np.where(np.arange(25) == 11, 5e7, 1e6)),
            "waits.lock": np.where(np.arange(25) == 11, 8, 0),
        }.items()
        for second, value in enumerate(column, -5)
    ]
    (run / "process").mkdir(exist_ok=True)
    write_json(run / "process/clock.json", {"go_s": 0, "start_s": 0, "end_s": 20})
    write_rows(run, "counters", rows)
    return results


def test_the_answer_names_the_worst_stall_and_no_short_one(stalled: Path) -> None:
    said = [line for line in answer_at(stalled) if line.startswith("Stalls:")]
    assert said == ["Stalls: postgres-btree's write rate fell to 0% for 2 s, 6 s after the start."]
    run = RunDir(stalled / "postgres-btree")
    summary = run.read_json("summary.json")
    summary["steadiness"]["write"]["stalls"] = STALLS[:1]
    write_json(run / "summary.json", summary)
    assert not [line for line in answer_at(stalled) if line.startswith("Stalls:")]


@pytest.mark.slow
def test_the_page_lists_each_stall_of_a_rate_with_the_counters_that_were_high(stalled: Path) -> None:
    page = write_report(stalled).read_text(encoding="utf-8")
    first, second = page.index("Sessions that wait, for a lock: 8 (usually 0)"), page.index("<td>14 s</td>")
    assert first < second  # in order of time
    assert "Logged, log: 50.0 MB/s (usually 1.00 MB/s)" in page
    assert '<td class="text">none</td>' in page[second:]


def test_the_plot_has_rate_latency_and_the_counters_that_may_explain_a_stall_with_the_stalls_shaded(
    stalled: Path,
) -> None:
    (cell,) = load_cells(stalled)
    figure = system_plots.stalls(
        cell, frames.of_run(cell, "ops"), frames.of_run(cell, "counters"), read_panels(cell.run)
    )
    assert figure is not None
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[0] == "Points written per second"
    assert titles[2:] == ["Sessions that wait", "Logged"]  # those that rose most first; rows inserted explain nothing
    assert [axes.get_yscale() for axes in figure.axes[:2]] == ["linear", "log"]
    for axes in figure.axes:
        shaded = [
            p.get_extents().transformed(axes.transData.inverted()) for p in axes.patches if p.get_label() == "stall"
        ]
        assert sorted(round(edge) for box in shaded for edge in (box.x0, box.x1)) == [6, 8, 14, 15]
    assert "stall" in texts(figure)


def test_a_run_without_stalls_has_no_such_plot(tmp_path: Path) -> None:
    (cell,) = load_cells(make_results(tmp_path / "results", [Shape()]))
    assert system_plots.stalls(cell, frames.of_run(cell, "ops"), frames.of_run(cell, "counters"), PANELS) is None


def test_a_summary_whose_stalls_were_damaged_is_refused_with_the_place(stalled: Path) -> None:
    run = RunDir(stalled / "postgres-btree")
    summary = run.read_json("summary.json")
    summary["steadiness"]["write"]["stalls"][0]["start_s"] = "soon"
    write_json(run / "summary.json", summary)
    assert "steadiness.write.stalls.0.start_s is not a number" in write_report(stalled).read_text(encoding="utf-8")
