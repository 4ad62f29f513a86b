"""Plots that compare runs. A figure that tables strike out is hatched, crossed or dotted, and the legend says so.

A run that is not valid is pale, and its label says so. A failed gate does not change the plots: its figure was measured
validly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tsbench.report import frames, style
from tsbench.report.metrics import COMPARED, FORMATS, time_label
from tsbench.report.plots import percentile_axis, percentile_line
from tsbench.report.style import GRID, INK, KINDS, PALETTE, styled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell
    from tsbench.report.metrics import Metric

RATES = ("load_points_per_s", "write_points_per_s", "query_ops_per_s", "bytes_per_point")
"""Metrics that `rates` draws as bars from zero; latencies differ by powers of ten and are drawn by `latency`."""
ROOM = 1.42
"""Length of an axis of bars relative to the longest bar, with room for its figure."""
_PALE = 0.4
_WIDEST = 38
_STRUCK_BAR: Mapping[str, Any] = {"hatch": "////", "edgecolor": INK, "linewidth": 0}
_CROSS: Mapping[str, Any] = {"marker": "x", "markersize": 11, "color": INK, "linestyle": "none", "zorder": 4}
_SPANNED: Mapping[str, Mapping[str, Any]] = {
    "p50": {"label": "median", "marker": "o", "markersize": 7},
    "p99": {"label": "p99", "marker": "D", "markersize": 7},
    "max": {"label": "max", "marker": "|", "markersize": 12},
}


@styled
def rates(cells: Sequence[Cell], keys: Sequence[str] = RATES) -> Figure | None:
    """Plot rates of the runs as bars, a panel for each of `keys` (of COMPARED) that a run has; None without a rate."""
    used = [COMPARED[key] for key in keys if any(COMPARED[key].value(cell) is not None for cell in cells)]
    if not used:
        return None
    figure, axes = style.panels(1, len(used), height=height_of(cells), sharey=True)
    for metric, panel in zip(used, axes, strict=True):
        metric_bars(panel, cells, metric)
        cell_axis(panel, cells)
    if not all(cell.validity.stands for cell in cells):
        struck = Patch(facecolor="none", hatch=_STRUCK_BAR["hatch"], edgecolor=INK, linewidth=0, label=style.STRUCK)
        figure.legend(handles=[struck], loc="outside upper left")
    return figure


@styled
def latency(cells: Sequence[Cell]) -> Figure | None:
    """Plot median, p99 and maximum of writes and queries on a logarithmic axis; None without latencies."""
    kinds = [kind for kind in ("write", "query") if any(COMPARED[f"{kind}_p50_ns"].value(cell) for cell in cells)]
    if not kinds:
        return None
    figure, axes = style.panels(1, len(kinds), height=height_of(cells) + 0.2, sharey=True)
    lines = style.lines_of([cell.name for cell in cells])
    for kind, panel in zip(kinds, axes, strict=True):
        for place, cell in enumerate(cells):
            values = [COMPARED[f"{kind}_{part}_ns"].value(cell) for part in _SPANNED]
            draw_span(panel, cell, place, values, list(_SPANNED.values()), lines[cell.name].colour)
            draw_struck(panel, cell, place, dict(zip(_SPANNED, values, strict=True)))
        panel.set(title=f"{KINDS[kind]}: {time_label(cells)}", xlabel="lower is better")
        cell_axis(panel, cells)
        style.duration_axis(panel, "x")
    keys = [*mark_keys(_SPANNED.values()), *struck_keys(cells)]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys))
    return figure


@styled
def percentiles(cells: Sequence[Cell], latency: pd.DataFrame) -> Figure | None:
    """Plot time by percentile, a line per run, for all writes and all queries; `latency` is that frame."""
    merged = latency[latency["op"] == frames.ALL]
    kinds = [kind for kind in KINDS if (merged["kind"] == kind).any()]

    def draw(panel: Axes, kind: str, cell: Cell, look: dict[str, Any]) -> None:
        of_cell = merged[(merged["cell"] == cell.name) & (merged["kind"] == kind) & (merged["time"] == cell.time)]
        percentile_line(panel, of_cell, stands=cell.validity.stands, **look)

    def finish(panel: Axes, kind: str) -> None:
        panel.set(title=f"{KINDS[kind]}: {time_label(cells)}", ylabel="time")
        percentile_axis(panel)

    return _line_per_run(cells, kinds, draw, finish, height=3.4)


@styled
def over_time(cells: Sequence[Cell], ops: pd.DataFrame) -> Figure | None:
    """Plot points written and queries answered per second, a line per run; `ops` is that frame."""
    drawn: dict[str, dict[str, pd.Series[float]]] = {"points": {}, "done": {}}
    for cell in cells:
        of_cell = frames.whole_seconds(cell, ops[ops["cell"] == cell.name])
        query = of_cell["op"].map(lambda op, cell=cell: frames.kind_of(cell, op) == "query").astype(bool)
        for column, rows in (("points", of_cell[~query]), ("done", of_cell[query])):
            series = rows.groupby("second")[column].sum()
            if series.any():
                span = range(int(series.index.min()), int(series.index.max()) + 1)
                drawn[column][cell.name] = series.reindex(span).fillna(0)
    titles = {"points": ("Points acknowledged per second", "points/s"), "done": ("Queries per second", "queries/s")}

    def draw(panel: Axes, column: str, cell: Cell, look: dict[str, Any]) -> None:
        series = drawn[column].get(cell.name)
        if series is not None:
            style.line(panel, series.index, series, stands=cell.validity.stands, linewidth=1.2, **look)

    def finish(panel: Axes, column: str) -> None:
        panel.set(title=titles[column][0], ylabel=titles[column][1])
        style.count_axis(panel)
        style.time_axis(panel, [float(second) for series in drawn[column].values() for second in series.index])

    return _line_per_run(cells, [column for column in titles if drawn[column]], draw, finish, height=2.9)


@styled
def size_on_disk(cells: Sequence[Cell]) -> Figure | None:
    """Plot the size on disk of the stored points, by part (table, index, log, ...); None if not measured."""
    if not any(COMPARED["size_bytes"].value(cell) for cell in cells):
        return None
    parts_of = [_parts(cell) for cell in cells]
    names = list(dict.fromkeys(name for parts in parts_of for name in parts))
    figure, (panel,) = style.panels(1, 1, height=height_of(cells) + 0.2)
    left = [0.0] * len(cells)
    for number, name in enumerate(names):
        widths = [parts.get(name, 0.0) for parts in parts_of]
        colour, hatch = PALETTE[number % len(PALETTE)], ("", "////", "....")[number // len(PALETTE) % 3]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": GRID, "linewidth": 0}
        bars = panel.barh(range(len(cells)), widths, left=left, height=0.62, label=name, **look)
        for bar, cell in zip(bars, cells, strict=True):
            bar.set_alpha(1 if cell.validity.stands else _PALE)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, cell in enumerate(cells):
        per_point = COMPARED["bytes_per_point"].text(cell)
        text = f"{COMPARED['size_bytes'].text(cell)}  ({per_point} bytes/point)" if left[place] else "not measured"
        offset: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
        panel.annotate(text, (left[place], place), **offset)
    panel.set(title="Size on disk", xlabel="lower is better")
    style.size_axis(panel, "x")
    panel.set_xlim(0, max(left) * 1.3)
    cell_axis(panel, cells)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper left", ncols=min(8, len(names)))
    return figure


def _parts(cell: Cell) -> dict[str, float]:
    total = COMPARED["size_bytes"].value(cell) or 0
    parts = {name: value for name, value in cell.summary.size.parts.items() if value} if cell.summary.size else {}
    rest = total - sum(parts.values())
    return parts | ({"other" if parts else "all": rest} if rest > 0 else {})


# --- panels -----------------------------------------------------------------------------------------------------------


def _line_per_run(
    cells: Sequence[Cell],
    kinds: Sequence[str],
    draw: Callable[[Axes, str, Cell, dict[str, Any]], None],
    finish: Callable[[Axes, str], None],
    *,
    height: float,
) -> Figure | None:
    """Plot a panel per kind: `draw` adds a run's line in its look, `finish` the axes; None without kinds."""
    if not kinds:
        return None
    figure, axes = style.panels(1, len(kinds), height=height)
    lines = style.lines_of([cell.name for cell in cells])
    for kind, panel in zip(kinds, axes, strict=True):
        for cell in cells:
            draw(panel, kind, cell, _look(cell, lines[cell.name]))
        finish(panel, kind)
    _cell_legend(figure, axes, cells)
    return figure


def draw_span(
    panel: Axes, cell: Cell, place: int, values: Sequence[float | None], marks: Sequence[Mapping[str, Any]], line: str
) -> None:
    """Draw a run's times (ns) as marks on a line of colour `line`, or `none` without any."""
    there = [(value, mark) for value, mark in zip(values, marks, strict=True) if value]
    if not there:
        at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
        panel.annotate("none", (0.02, place), **at)
        return
    alpha = 1 if cell.validity.stands else _PALE
    ends = [min(value for value, _ in there), max(value for value, _ in there)]
    panel.plot(ends, [place, place], linewidth=2, color=line, alpha=alpha)
    for value, mark in there:
        panel.plot([value], [place], **{"color": line, "alpha": alpha, "linestyle": "none", **mark})


def draw_struck(panel: Axes, cell: Cell, place: int, values: Mapping[str, float | None]) -> None:
    """Draw a cross on the times (ns by percentile) of a run whose figures are struck out."""
    struck = [value for value in values.values() if value]
    if struck and not cell.validity.stands:
        panel.plot(struck, [place] * len(struck), **_CROSS)


def struck_keys(cells: Sequence[Cell]) -> list[Line2D]:
    """Return the legend of the crosses that `draw_struck` draws, if any run has one."""
    return [] if all(cell.validity.stands for cell in cells) else [style.struck_key()]


def mark_keys(marks: Iterable[Mapping[str, Any]]) -> list[Line2D]:
    """Return the legend of the marks that `draw_span` draws."""
    return [Line2D([], [], **{"color": PALETTE[-1], "linestyle": "none", **mark}) for mark in marks]


def metric_bars(panel: Axes, cells: Sequence[Cell], metric: Metric) -> None:
    """Draw a metric of every run, with its unit in the title."""
    draw_bars(panel, cells, [metric.value(cell) for cell in cells], FORMATS[metric.unit])
    panel.set(title=f"{metric.title[0].upper()}{metric.title[1:]}, {metric.axis}", xlabel=metric.direction)


def draw_bars(
    panel: Axes,
    cells: Sequence[Cell],
    values: Sequence[float | None],
    form: Callable[[float], str],
    *,
    shift: float = 0.0,
    height: float = 0.62,
    colour: str | None = None,
    **look: Any,
) -> None:
    """Draw a bar per run from zero, with its figure, in one colour or the runs' own; `none` without a figure.

    `shift` and `height` are parts of a run's row; `values` and the axis have the unit that `form` prints.
    """
    places = [place + shift for place in range(len(cells))]
    drawn = panel.barh(places, [value or 0 for value in values], height=height, **look)
    lines = style.lines_of([cell.name for cell in cells])
    for bar, cell in zip(drawn, cells, strict=True):
        bar.set_facecolor(colour or lines[cell.name].colour)
        if not cell.validity.stands:
            bar.set(alpha=_PALE, **_STRUCK_BAR)
    texts = ["none" if value is None else form(value) for value in values]
    panel.bar_label(drawn, texts, padding=4, fontsize=8 if height > 0.5 else 7, color=INK)
    style.count_axis(panel, "x", ticks=3)
    panel.set_xlim(0, max(value or 0 for value in values) * ROOM or 1)


def height_of(cells: Sequence[Cell]) -> float:
    """Return the height in inches of a row of panels with a line per run."""
    return 0.9 + 0.33 * max(2, len(cells))


def cell_axis(panel: Axes, cells: Sequence[Cell]) -> None:
    """Label the vertical axis with the runs, the first on top."""
    panel.set_yticks(range(len(cells)), [_label(cell) for cell in cells])
    panel.set_ylim(len(cells) - 0.4, -0.6)  # the first run on top, as in the table
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.spines["left"].set_visible(False)


def shorten(name: str, widest: int) -> str:
    """Return a name of at most `widest` characters: the middle of a longer one is left out."""
    return name if len(name) <= widest else f"{name[: widest // 2]}…{name[-widest // 2 + 1 :]}"


def _label(cell: Cell) -> str:
    name = shorten(cell.name, _WIDEST)
    return name if cell.validity.is_valid else f"{name} ({cell.validity.state})"


def _look(cell: Cell, line: style.Line) -> dict[str, Any]:
    return {
        "color": line.colour,
        "linestyle": line.dashes,
        "alpha": 1 if cell.validity.stands else _PALE,
        "label": _label(cell),
    }


def _cell_legend(figure: Figure, axes: Sequence[Axes], cells: Sequence[Cell]) -> None:
    longest = max(len(_label(cell)) for cell in cells)
    style.legend(figure, axes, columns=max(1, min(len(cells) + 1, 130 // (longest + 6))))
