"""The plots that compare runs. A run without a true verdict is hatched and pale, and its verdict is in its label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from tsbench.report import frames, style
from tsbench.report.cells import Cell, lookup
from tsbench.report.metrics import METRICS, time_label
from tsbench.report.plots import percentile_axis, percentile_line
from tsbench.report.style import GRID, INK, PALETTE, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATES = ("load_points_per_s", "write_points_per_s", "query_ops_per_s", "bytes_per_point")
"""What `rates` draws as bars from zero; latencies differ by powers of ten and get `latencies`."""
_PALE = 0.4
_WIDEST = 38


@styled
def rates(cells: Sequence[Cell], keys: Sequence[str] = RATES) -> Figure | None:
    """Bars over the runs, a panel per metric that any run has; None where there is none.

    Parameters
    ----------
    cells
        The runs, in the order of their colours.
    keys
        Metrics of METRICS.
    """
    used = [METRICS[key] for key in keys if any(METRICS[key].value(cell) is not None for cell in cells)]
    if not used:
        return None
    figure, axes = style.panels(1, len(used), height=_height(cells), sharey=True)
    for metric, panel in zip(used, axes, strict=True):
        values = [metric.value(cell) for cell in cells]
        bars = panel.barh(range(len(cells)), [v or 0 for v in values], height=0.62)
        _paint(bars, cells)
        texts = [metric.format(v) if v is not None else "none" for v in values]
        panel.bar_label(bars, texts, padding=4, fontsize=8, color=INK)
        panel.set(title=f"{metric.label[0].upper()}{metric.label[1:]}, {metric.unit}", xlabel=metric.direction)
        style.count_axis(panel, "x", ticks=3)
        panel.set_xlim(0, max((v or 0) for v in values) * 1.42 or 1)
        _cell_axis(panel, cells)
    return figure


@styled
def latencies(cells: Sequence[Cell]) -> Figure | None:
    """Median, 99th percentile and maximum of writes and queries on a logarithmic axis; None where there are none."""
    kinds = [kind for kind in ("write", "query") if any(METRICS[f"{kind}_p50_ns"].value(cell) for cell in cells)]
    if not kinds:
        return None
    figure, axes = style.panels(1, len(kinds), height=_height(cells) + 0.2, sharey=True)
    lines = style.lines_of([cell.name for cell in cells])
    for kind, panel in zip(kinds, axes, strict=True):
        for place, cell in enumerate(cells):
            values = [METRICS[f"{kind}_{part}_ns"].value(cell) or 0 for part in ("p50", "p99", "max")]
            if not all(values):
                continue
            look: dict[str, Any] = {"color": lines[cell.name].colour, "alpha": 1 if cell.verdict.valid else _PALE}
            panel.plot([values[0], values[2]], [place, place], linewidth=2, **look)
            for value, marker in zip(values, "oD|", strict=True):
                panel.plot([value], [place], marker=marker, markersize=12 if marker == "|" else 7, **look)
        panel.set(title=f"{'Writes' if kind == 'write' else 'Queries'}: {time_label(cells)}", xlabel="lower is better")
        _cell_axis(panel, cells)
        style.duration_axis(panel, "x")
    shapes = (("o", 7, "median"), ("D", 7, "p99"), ("|", 12, "max"))
    handles = [
        Line2D([], [], color=PALETTE[-1], marker=m, markersize=s, linestyle="none", label=t) for m, s, t in shapes
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure


@styled
def percentiles(cells: Sequence[Cell], latency: pd.DataFrame) -> Figure | None:
    """Latency by percentile, a line per run, all writes and all queries merged.

    Parameters
    ----------
    cells
        The runs, in the order of their colours.
    latency
        Their `frames.latency`.
    """
    merged = latency[latency["op"] == frames.ALL]
    kinds = [kind for kind in ("write", "query") if (merged["kind"] == kind).any()]
    if not kinds:
        return None
    figure, axes = style.panels(1, len(kinds), height=3.4)
    lines = style.lines_of([cell.name for cell in cells])
    for kind, panel in zip(kinds, axes, strict=True):
        for cell in cells:
            of_cell = merged[(merged["cell"] == cell.name) & (merged["kind"] == kind) & (merged["time"] == cell.time)]
            percentile_line(panel, of_cell, **_look(cell, lines[cell.name]))
        name = "Writes" if kind == "write" else "Queries"
        panel.set(title=f"{name}: {time_label(cells)}", ylabel="time")
        percentile_axis(panel)
    _cell_legend(figure, axes, cells)
    return figure


@styled
def over_time(cells: Sequence[Cell], ops: pd.DataFrame) -> Figure | None:
    """Points written and queries answered per second, a line per run.

    Parameters
    ----------
    cells
        The runs, in the order of their colours.
    ops
        Their `frames.ops`.
    """
    if ops.empty:
        return None
    lines = style.lines_of([cell.name for cell in cells])
    drawn: dict[str, list[tuple[Cell, pd.Series[float]]]] = {"points": [], "done": []}
    for cell in cells:
        of_cell = ops[ops["cell"] == cell.name]
        query = of_cell["op"].map(lambda op, cell=cell: frames.kind_of(cell, op) == "query").astype(bool)
        for column, rows in (("points", of_cell[~query]), ("done", of_cell[query])):
            series = rows.groupby("second")[column].sum()
            if series.any():
                span = range(int(series.index.min()), int(series.index.max()) + 1)
                drawn[column].append((cell, series.reindex(span).fillna(0)))
    titles = {"points": ("Points acknowledged per second", "points/s"), "done": ("Queries per second", "queries/s")}
    used = [column for column in titles if drawn[column]]
    if not used:
        return None
    figure, axes = style.panels(1, len(used), height=2.9)
    for column, panel in zip(used, axes, strict=True):
        for cell, series in drawn[column]:
            panel.plot(series.index, series, linewidth=1.2, **_look(cell, lines[cell.name]))
        panel.set(title=titles[column][0], ylabel=titles[column][1])
        style.count_axis(panel)
        style.time_axis(panel, [float(s) for _, series in drawn[column] for s in series.index])
    _cell_legend(figure, axes, cells)
    return figure


@styled
def size_on_disk(cells: Sequence[Cell]) -> Figure | None:
    """What the stored points take on disk, by part (table, index, log, ...); None where no run measured it."""
    if not any(METRICS["size_bytes"].value(cell) for cell in cells):
        return None
    parts_of = [_parts(cell) for cell in cells]
    names = list(dict.fromkeys(name for parts in parts_of for name in parts))
    figure, (panel,) = style.panels(1, 1, height=_height(cells) + 0.2)
    left = [0.0] * len(cells)
    for number, name in enumerate(names):
        widths = [parts.get(name, 0.0) for parts in parts_of]
        colour, hatch = PALETTE[number % len(PALETTE)], ("", "////", "....")[number // len(PALETTE) % 3]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": GRID, "linewidth": 0}
        bars = panel.barh(range(len(cells)), widths, left=left, height=0.62, label=name, **look)
        for bar, cell in zip(bars, cells, strict=True):
            bar.set_alpha(1 if cell.verdict.valid else _PALE)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, cell in enumerate(cells):
        per_point = METRICS["bytes_per_point"].text(cell)
        text = f"{METRICS['size_bytes'].text(cell)}  ({per_point} bytes/point)" if left[place] else "not measured"
        offset: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
        panel.annotate(text, (left[place], place), **offset)
    panel.set(title="Size on disk", xlabel="lower is better")
    style.size_axis(panel, "x")
    panel.set_xlim(0, max(left) * 1.3)
    _cell_axis(panel, cells)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper left", ncols=min(8, len(names)))
    return figure


def _parts(cell: Cell) -> dict[str, float]:
    total = METRICS["size_bytes"].value(cell) or 0
    found = lookup(cell.summary, ("size", "parts"))
    parts = {str(k): float(v) for k, v in found.items() if v} if isinstance(found, dict) else {}
    rest = total - sum(parts.values())
    return parts | ({"other" if parts else "all": rest} if rest > 0 else {})


def _height(cells: Sequence[Cell]) -> float:
    return 0.9 + 0.33 * max(2, len(cells))


def _label(cell: Cell) -> str:
    name = cell.name
    if len(name) > _WIDEST:
        name = f"{name[: _WIDEST // 2]}…{name[-_WIDEST // 2 + 1 :]}"
    return name if cell.verdict.valid else f"{name} ({cell.verdict.word})"


def _look(cell: Cell, line: style.Line) -> dict[str, Any]:
    return {
        "color": line.colour,
        "linestyle": line.dashes,
        "alpha": 1 if cell.verdict.valid else _PALE,
        "label": _label(cell),
    }


def _paint(bars: Any, cells: Sequence[Cell]) -> None:
    lines = style.lines_of([cell.name for cell in cells])
    for bar, cell in zip(bars, cells, strict=True):
        bar.set_facecolor(lines[cell.name].colour)
        if not cell.verdict.valid:
            bar.set(alpha=_PALE, hatch="////", edgecolor=INK, linewidth=0)


def _cell_axis(panel: Axes, cells: Sequence[Cell]) -> None:
    panel.set_yticks(range(len(cells)), [_label(cell) for cell in cells])
    panel.set_ylim(len(cells) - 0.4, -0.6)  # the first run on top, as in the table
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
    panel.spines["left"].set_visible(False)


def _cell_legend(figure: Figure, axes: Sequence[Axes], cells: Sequence[Cell]) -> None:
    longest = max(len(_label(cell)) for cell in cells)
    style.legend(figure, axes, columns=max(1, min(len(cells) + 1, 130 // (longest + 6))))
