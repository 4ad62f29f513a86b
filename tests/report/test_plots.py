"""Plots draw what the frames hold, without touching pyplot or the notebook's own settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from tests.report.conftest import SMALL
from tests.report.synthetic import Shape, make_results
from tsbench.measure.hist import Histogram
from tsbench.report import cases, frames, plots, set_plots, style
from tsbench.report.cells import load_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def texts(figure: Figure) -> list[str]:
    found = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return found + [
        part for axes in figure.axes for part in (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel())
    ]


def test_throughput_shows_warm_up_what_was_due_and_what_was_done(mixed: Path):
    cell = load_cells(mixed)[0]
    ops = frames.of_run(cell, "ops")
    figure = plots.throughput(cell, ops)
    assert {"writes", "queries", "writes due", "queries due", "warm-up"} <= set(texts(figure))
    done = ops[(ops["op"] == "write")].sort_values("second")["done"].to_numpy()
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert np.array_equal(np.asarray(lines["writes"].get_ydata()), done)
    assert figure.axes[1].get_ylabel() == "points/s"


def test_latency_over_time_has_a_panel_per_op_and_marks_the_stall(mixed: Path):
    cell = load_cells(mixed)[0]
    figure = plots.latency_over_time(cell, frames.of_run(cell, "ops"))
    assert figure.axes[0].get_title(loc="left") == "write"
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]
    marked = [line for line in figure.axes[0].lines if str(line.get_label()).startswith("stall")]
    assert list(np.asarray(marked[0].get_xdata())) == [5]
    assert all(axes.get_yscale() == "log" for axes in figure.axes[:3])


def test_seconds_without_ops_are_gaps_in_latency_and_zero_in_throughput(mixed: Path):
    cell = load_cells(mixed)[0]
    ops = frames.of_run(cell, "ops")
    ops = ops[ops["second"] != 3]
    latency = {line.get_label(): line for line in plots.latency_over_time(cell, ops).axes[0].lines}["median"]
    assert np.isnan(np.asarray(latency.get_ydata(), dtype=float)[list(np.asarray(latency.get_xdata())).index(3)])
    done = {line.get_label(): line for line in plots.throughput(cell, ops).axes[0].lines}["writes"]
    assert np.asarray(done.get_ydata())[list(np.asarray(done.get_xdata())).index(3)] == 0


def test_a_second_between_two_gaps_is_a_dot(mixed: Path):
    cell = load_cells(mixed)[0]
    ops = frames.of_run(cell, "ops").assign(count=100)  # enough for a p99
    for gaps, marker in (((3,), "None"), ((3, 5), ".")):
        rest = ops[~ops["second"].isin(gaps)]
        latency = {line.get_label(): line for line in plots.latency_over_time(cell, rest).axes[0].lines}
        assert [latency[name].get_marker() for name in ("median", "p99", "max")] == [marker] * 3


def test_a_percentile_line_ends_at_the_slowest_op_and_claims_no_more_nines_than_it_has_ops(single: Path):
    _, (panel,) = style.panels(1, 1, height=2)
    plots.percentile_line(panel, frames.spectrum(Histogram(np.arange(1, 501) * 1_000_000)))
    distance = np.asarray(panel.lines[0].get_xdata(), dtype=float)
    assert distance[-1] == 500
    assert np.asarray(panel.lines[0].get_ydata())[-1] == pytest.approx(500_000_000, rel=1e-3)


def test_closed_loops_are_titled_service_time(single: Path):
    cell = load_cells(single)[0]
    assert "Queries: service time" in texts(plots.latency_by_percentile(cell, frames.of_run(cell, "latency")))


def test_comparisons_say_which_way_is_better_and_mark_runs_that_are_not_valid(mixed: Path):
    cells = load_cells(mixed)
    figure = set_plots.rates(cells)
    assert figure is not None
    assert {"higher is better", "lower is better"} <= set(texts(figure))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:3] == ["postgres-btree", "postgres-brin (inconclusive)", "mongodb-wide (invalid)"]
    assert [bool(bar.get_hatch()) for bar in figure.axes[0].patches][:3] == [False, False, True]


def struck_of(figure: Figure | None) -> list[int]:
    """Return the number of values that each panel strikes out, after the legend was found to say what that is."""
    assert figure is not None
    lines = [[line for line in axes.lines if line.get_marker() == "x"] for axes in figure.axes]
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
    named = style.STRUCK in {text.get_text() for legend in legends for text in legend.get_texts()}
    assert named == any(lines)
    return [sum(np.size(line.get_xdata()) for line in of) for of in lines]


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the load generator limited, an invalid one and a valid one."""
    shapes = [
        Shape(cell="a", delayed=0.3, validity="inconclusive", **SMALL),  # type: ignore[arg-type]
        Shape(cell="b", validity="invalid", reason="3 answers are wrong", **SMALL),  # type: ignore[arg-type]
        Shape(cell="c", **SMALL),  # type: ignore[arg-type]
    ]
    return make_results(tmp_path_factory.mktemp("results") / "doubtful", shapes)


@pytest.mark.slow
def test_figures_that_tables_strike_out_are_marked_in_every_plot_and_in_its_legend(doubtful: Path):
    limited, invalid, valid = load_cells(doubtful)
    for cell, panels, parts in ((limited, 0, 0), (invalid, 2, 3), (valid, 0, 0)):
        ops, latency = frames.of_run(cell, "ops").assign(count=100), frames.of_run(cell, "latency")
        assert sum(bool(count) for count in struck_of(plots.throughput(cell, ops))) == panels
        seconds = ops["second"].nunique()
        assert struck_of(plots.latency_over_time(cell, ops))[:3] == [parts * seconds] * 3
        struck = struck_of(plots.latency_by_percentile(cell, latency))
        assert [bool(count) for count in struck] == [bool(parts)] * 2
    for cell, shown in ((limited, True), (valid, False)):  # the area of the client's part
        areas = plots.latency_by_percentile(cell, frames.of_run(cell, "latency")).axes[0].collections
        assert any(len(area.get_paths()) for area in areas) == shown
    cells = [limited, invalid, valid]
    assert struck_of(set_plots.latency(cells)) == [3] * 2
    assert all(struck_of(set_plots.percentiles(cells, frames.of_set(doubtful, "latency"))))
    assert all(struck_of(set_plots.over_time(cells, frames.of_set(doubtful, "ops"))))
    case = struck_of(cases.by_case(cells, frames.of_set(doubtful, "usage")))
    assert case[:3] == [3] * 3
    rates = set_plots.rates(cells)
    assert rates is not None
    assert style.STRUCK in texts(rates)
    clean = set_plots.rates([limited, valid])
    assert clean is not None
    assert style.STRUCK not in texts(clean)


def test_a_line_that_is_struck_out_keeps_its_label(doubtful: Path):
    figure = set_plots.over_time(load_cells(doubtful), frames.of_set(doubtful, "ops"))
    assert figure is not None
    assert {"a (inconclusive)", "b (invalid)", "c", style.STRUCK} <= set(texts(figure))


def test_a_cell_has_the_same_colour_in_every_comparison(mixed: Path):
    cells = load_cells(mixed)
    looks = style.lines_of([cell.name for cell in cells])
    time, percentiles = (
        set_plots.over_time(cells, frames.of_set(mixed, "ops")),
        set_plots.percentiles(cells, frames.of_set(mixed, "latency")),
    )
    for figure in (time, percentiles):
        assert figure is not None
        for line in (line for line in figure.axes[0].lines if line.get_label() != style.STRUCK):
            name = str(line.get_label()).split(" (")[0]
            assert line.get_color() == looks[name].colour


def test_twenty_eight_cells_look_different():
    looks = style.lines_of([str(number) for number in range(28)])
    assert len({(line.colour, str(line.dashes)) for line in looks.values()}) == 28


def test_size_on_disk_stacks_to_the_total(mixed: Path):
    cells = load_cells(mixed)
    figure = set_plots.size_on_disk(cells)
    assert figure is not None
    widths = [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert cells[0].summary.size is not None
    assert sum(widths[:: len(cells)]) == pytest.approx(cells[0].summary.size.bytes)


def test_nothing_to_compare_gives_no_figure(mixed: Path):
    interrupted = load_cells(mixed)[-1:]
    assert set_plots.rates(interrupted) is None
    assert set_plots.latency(interrupted) is None
    assert set_plots.size_on_disk(interrupted) is None
    assert set_plots.over_time(interrupted, frames.of_run(interrupted[0], "ops")) is None
    assert set_plots.percentiles(interrupted, frames.of_run(interrupted[0], "latency")) is None


def test_drawing_leaves_settings_and_pyplot_alone(mixed: Path):
    before = dict(mpl.rcParams)
    cell = load_cells(mixed)[0]
    style.embed(plots.resources(frames.of_run(cell, "host"), frames.of_run(cell, "server")), name="x", alt="x")
    assert dict(mpl.rcParams) == before


def test_no_figure_is_made_through_pyplot():
    sources = [path.read_text(encoding="utf-8") for path in Path(style.__file__).parent.glob("*.py")]
    assert not any("pyplot" in source for source in sources)


def test_figures_are_text_in_the_pages_colours_and_heavy_ones_are_pictures(mixed: Path):
    cell = load_cells(mixed)[0]
    ops = frames.of_run(cell, "ops")
    svg = style.embed(plots.throughput(cell, ops), name="a", alt='<"x">')
    assert "Ops per second</text>" in svg
    assert "currentColor" in svg
    assert style.INK not in svg
    assert 'aria-label="&lt;&#34;x&#34;&gt;"' in svg
    figure, (panel,) = style.panels(1, 1, height=2)
    panel.plot(np.zeros(style.SVG_LIMIT + 1))
    assert style.embed(figure, name="b", alt="x").startswith('<img alt="x" src="data:image/png;base64,')


def test_a_shortened_plot_keeps_the_digits_of_its_texts():
    figure, (axes,) = style.panels(1, 1, width=4.0, height=2.0)
    axes.plot([0, 1], [0, 1])
    axes.annotate("28.0 ms", (0.5, 0.5))
    assert ">28.0 ms<" in style.embed(figure, name="digits", alt="a figure")
