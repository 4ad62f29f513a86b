"""The plots by case show the summaries' figures and the samples of the measured window, in scenario order."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from tsbench.report import cases, frames, style
from tsbench.report.cells import Cell, load_cells
from tsbench.report.html import write_report
from tsbench.report.plots import MOST_OPS
from tsbench.results.rundir import HOST_COLUMNS, SERVER_COLUMNS

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from tsbench.results.figures import OpFigures

pytestmark = pytest.mark.slow

ASKED = (("last-value", "query"), ("select-6h", "query"))
SINGLE = Shape(
    cell="single-10", loop="closed", seconds=4, warmup=2, rate=50, ops=(("write-1", "write"), *ASKED), limited_by=""
)
BATCH = replace(SINGLE, cell="batch-25", seed=2, rate=10, ops=(("write-252", "write"), *ASKED))
SHAPES = [replace(SINGLE, cell="single-100", seed=3), SINGLE, BATCH]  # neither order is the alphabet's


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make three cases as in study F, with windows of 4 s: one point per write, or 252."""
    return make_results(tmp_path_factory.mktemp("study") / "low-end", SHAPES)


@pytest.fixture
def own_study(study: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return shutil.copytree(study, tmp_path / "low-end")


def sampled(columns: dict[str, str], **values: list[float]) -> pd.DataFrame:
    size = len(values["second"])
    return pd.DataFrame({name: values.get(name, [1.0] * size) for name in columns})


def by_case(results: Path) -> Figure:
    figure = cases.by_case(load_cells(results), frames.of_set(results, "usage"))
    assert figure is not None
    return figure


def panels(figure: Figure) -> dict[str, Axes]:
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}


def widths(panel: Axes) -> list[float]:
    return [bar.get_width() for bar in panel.patches]  # type: ignore[attr-defined]


def marked(panel: Axes, marker: str) -> dict[int, Line2D]:
    """Return the marks of one kind by row."""
    return {int(np.asarray(line.get_ydata())[0]): line for line in panel.lines if line.get_marker() == marker}


def at(line: Line2D) -> float:
    return float(np.asarray(line.get_xdata())[0])


def note(figure: Figure) -> str:
    return figure.get_supxlabel()


def test_usage_is_of_whole_seconds_inside_the_measured_window(own_study: Path) -> None:
    seconds = [-2.0, -0.5, 0.0, 1.0, 3.0, 3.5, 4.0]  # the second at -0.5 began in warm-up, the one at 3.5 ends too late
    sampled(
        HOST_COLUMNS,
        second=seconds,
        client_cpu_percent=[900, 900, 10, 20, 60, 900, 900],
        client_rss_bytes=[9e9, 9e9, 1e6, 2e6, 6e6, 9e9, 9e9],
    ).to_parquet(own_study / "batch-25" / "host.parquet")
    sampled(SERVER_COLUMNS, second=[0.5, 1.5], cpu_percent=[100, 200], rss_bytes=[5e6, 7e6]).to_parquet(
        own_study / "batch-25" / "server.parquet"
    )
    found = frames.of_set(own_study, "usage")
    assert list(found.columns) == ["cell", *frames.USAGE_COLUMNS]
    rows = found[found["cell"] == "batch-25"].set_index("who").drop(columns="cell")
    assert list(rows.loc["client"]) == [3, 30, 60, 3e6, 6e6]
    assert list(rows.loc["server"]) == [2, 150, 200, 6e6, 7e6]


def test_a_run_whose_window_is_unknown_has_no_usage(mixed: Path) -> None:
    found = frames.of_set(mixed, "usage")
    assert "sqlite-wal" not in set(found["cell"])
    assert {"postgres-btree", "influxdb-native"} <= set(found["cell"])


def test_seconds_in_which_no_process_was_there_do_not_count(own_study: Path) -> None:
    sampled(HOST_COLUMNS, second=[0, 1, 2], client_cpu_percent=[0, 40, 40], client_rss_bytes=[0, 8e6, 8e6]).to_parquet(
        own_study / "batch-25" / "host.parquet"
    )
    rows = frames.of_set(own_study, "usage").set_index(["cell", "who"])
    assert rows.loc[("batch-25", "client"), "cpu_percent"] == 40
    assert rows.loc[("batch-25", "client"), "rss_bytes"] == 8e6


def test_cases_stand_in_scenario_order_and_each_measure_has_a_panel(study: Path) -> None:
    found = panels(by_case(study))
    assert list(found) == [
        "Writes",
        "last-value",
        "select-6h",
        "CPU, cores",
        "Memory (RSS), bytes",
    ]
    for place, panel in enumerate(found.values()):
        labels = [text.get_text() for text in panel.get_yticklabels()]
        assert labels == (["single-100", "single-10", "batch-25"] if place in {0, 3} else [])
        bottom, top = panel.get_ylim()
        assert bottom > top, "the first on top"


def write_of(cell: Cell) -> OpFigures:
    assert cell.summary.measured is not None
    assert cell.summary.measured.write is not None
    return cell.summary.measured.write


def test_times_are_the_summarys_median_average_and_p99_of_the_op_of_each_case(study: Path) -> None:
    found = panels(by_case(study))
    for place, cell in enumerate(load_cells(study)):
        for title, op in (("Writes", SHAPES[place].ops[0][0]), ("last-value", "last-value")):
            assert cell.summary.measured is not None
            of = cell.summary.measured.ops[op]
            for part, mark in cases.TIMES.items():
                shown = marked(found[title], mark["marker"])
                if part != "p99" or of.count >= 100:
                    assert at(shown[place]) == of.service_ns[part]
                else:
                    assert place not in shown
    assert found["Writes"].get_xscale() == "log"
    assert found["Writes"].get_xlabel() == "service time, lower is better"


def test_cpu_and_memory_have_the_units_of_their_titles(study: Path) -> None:
    found, cells = panels(by_case(study)), load_cells(study)
    usage = frames.of_set(study, "usage").set_index(["who", "cell"])
    order = [(who, cell.name) for who in ("server", "client") for cell in cells]
    assert widths(found["CPU, cores"]) == pytest.approx(list(usage["cpu_percent"].loc[order] / 100))
    assert widths(found["Memory (RSS), bytes"]) == pytest.approx(list(usage["rss_bytes"].loc[order]))
    found["CPU, cores"].figure.canvas.draw()
    for title, column, unit in (("CPU, cores", "cpu_max_percent", 100), ("Memory (RSS), bytes", "rss_max_bytes", 1)):
        ends = [
            float(np.asarray(line.vertices)[1][0]) for part in found[title].collections for line in part.get_paths()
        ]
        assert ends == pytest.approx(list(usage[column].loc[order] / unit))
        assert found[title].get_xlim()[1] > max(ends)


def test_several_writes_in_a_run_have_a_panel_each_and_a_case_without_one_says_none(tmp_path: Path) -> None:
    both = replace(SINGLE, ops=(("write-1", "write"), ("write-252", "write")))
    found = panels(by_case(make_results(tmp_path / "r", [both, BATCH])))
    assert list(found)[:4] == ["write-1", "write-252", "last-value", "select-6h"]
    assert [text.get_text() for text in found["write-1"].texts] == ["none"]
    assert found["write-1"].texts[0].xy[1] == 1  # type: ignore[attr-defined]
    assert not found["write-252"].texts


def test_a_p99_of_too_few_ops_is_not_drawn(study: Path) -> None:
    shown = panels(by_case(study))["Writes"]
    counts = [write_of(cell).count for cell in load_cells(study)]
    assert [count < 100 for count in counts] == [False, False, True]
    assert sorted(marked(shown, "D")) == [0, 1]
    assert sorted(marked(shown, "o")) == [0, 1, 2]


@pytest.mark.usefixtures("painted_by_case")
def test_without_samples_there_are_no_panels_of_cpu_and_memory_and_a_line_says_why(own_study: Path) -> None:
    for path in own_study.glob("*/*.parquet"):
        if path.stem in {"host", "server"}:
            path.unlink()
    figure = by_case(own_study)
    assert list(panels(figure)) == ["Writes", "last-value", "select-6h"]
    assert "no run has samples of its measured window" in note(figure)
    page = write_report(own_study).read_text(encoding="utf-8")
    assert "no run has samples of its measured window" in page


def test_an_unseen_server_is_said_and_the_load_generator_is_shown(own_study: Path) -> None:
    for path in own_study.glob("*/server.parquet"):
        path.unlink()
    figure = by_case(own_study)
    assert len(widths(panels(figure)["CPU, cores"])) == 3
    assert note(figure).startswith("Server's CPU and memory: not shown")
    assert "server's processes" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_server_unseen_in_one_case_is_none_there(own_study: Path) -> None:
    assert note(by_case(own_study)) == ""
    (own_study / "single-10" / "server.parquet").unlink()
    figure = by_case(own_study)
    texts = [text.get_text() for text in panels(figure)["Memory (RSS), bytes"].texts]
    assert [place for place, text in enumerate(texts) if text == "none"] == [1]
    assert "none: not sampled" in note(figure)


def test_the_ops_with_the_lowest_p99_are_left_out_where_there_are_too_many(tmp_path: Path) -> None:
    ops = tuple((f"q-{number:02}", "query") for number in range(MOST_OPS + 2))  # each slower than the one before
    shape = replace(SINGLE, seconds=2, warmup=0, rate=200, ops=ops)
    figure = by_case(make_results(tmp_path / "r", [shape, replace(shape, cell="other", seed=2)]))
    assert list(panels(figure))[:MOST_OPS] == [name for name, _ in ops[2:]]
    assert note(figure).startswith("2 ops with a lower p99 are left out")


def test_runs_whose_figures_are_struck_out_are_pale(mixed: Path) -> None:
    found = panels(by_case(mixed))
    assert [bool(bar.get_hatch()) for bar in found["CPU, cores"].patches][:3] == [False, False, True]
    alphas = [line.get_alpha() for line in marked(found["write"], "o").values()]
    assert alphas[:2] == [1, 1], "what the load generator limited is true of its load"
    assert alphas[2] < 1  # type: ignore[operator]


@pytest.mark.parametrize("rate", [10, 50])  # with hollow marks in the legend, and without
def test_labels_beside_each_other_do_not_overlap(tmp_path: Path, rate: int) -> None:
    names = [f"postgres-btree-users-{users}" for users in (10, 100, 1000)]
    doubtful = replace(SINGLE, validity="inconclusive", reason="x", rate=rate)
    shapes = [replace(doubtful, cell=name, typical_ms=3 * 7**n) for n, name in enumerate(names)]
    figure = by_case(make_results(tmp_path / "r", shapes))
    figure.canvas.draw()
    for panel in panels(figure).values():
        boxes = [t.get_window_extent() for t in panel.get_xticklabels() if t.get_text() and t.get_visible()]
        low, high = panel.get_xlim()
        shown = [b for b, t in zip(boxes, panel.get_xticks(), strict=True) if low <= t <= high]
        assert all(left.x1 < right.x0 for left, right in pairwise(shown))
    legend = figure.legends[0].get_window_extent()
    assert legend.x1 <= figure.bbox.x1
    assert all(legend.y0 > panel.get_window_extent().y1 for panel in panels(figure).values())


@pytest.mark.parametrize(("low", "high"), [(11, 36), (2, 15), (9, 2_000), (10.1, 10.9), (0.0005, 90_000)])
@pytest.mark.parametrize("which", ["x", "y"])
def test_an_axis_of_durations_has_some_round_labels_that_do_not_touch(low: float, high: float, which: str) -> None:
    figure, axes = style.panels(2, 3, height=2.6)
    axes[0].set(xlim=(low * 1e6, high * 1e6), ylim=(low * 1e6, high * 1e6))
    style.duration_axis(axes[0], which)
    figure.canvas.draw()
    axis = axes[0].xaxis if which == "x" else axes[0].yaxis
    labels = [label for label in axis.get_ticklabels() if label.get_text()]
    assert 2 <= len(labels) <= (4 if which == "x" else 9)
    boxes = [label.get_window_extent() for label in labels]
    sides = [(box.x0, box.x1) if which == "x" else (box.y0, box.y1) for box in boxes]
    assert all(one[1] < other[0] for one, other in pairwise(sides))


def test_an_axis_of_no_bytes_at_all_has_no_fractions_of_a_byte() -> None:
    _, (panel,) = style.panels(1, 1, height=2)
    panel.plot([0, 1], [0, 0])
    style.size_axis(panel)
    assert [str(panel.yaxis.get_major_formatter()(tick, 0)) for tick in panel.get_yticks()] == ["0"]


@pytest.mark.usefixtures("painted_by_case")
def test_the_page_shows_the_figure_as_text_once(own_study: Path) -> None:
    page = write_report(own_study).read_text(encoding="utf-8")
    assert page.count("CPU, cores</text>") == 1
    assert page.count('aria-label="Times per op, CPU and memory of every run, side by side"') == 1
    assert style.embed(by_case(own_study), name="all-cases", alt="x").startswith("<svg")


def test_one_run_alone_has_no_figure_by_case(single: Path) -> None:
    assert "CPU, cores" not in write_report(single).read_text(encoding="utf-8")


def test_nothing_measured_gives_no_figure(mixed: Path) -> None:
    interrupted = load_cells(mixed)[-1:]
    assert cases.by_case(interrupted, frames.of_set(mixed, "usage").iloc[:0]) is None
