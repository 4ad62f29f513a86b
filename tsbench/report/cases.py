"""Small multiples over the cases of a scenario, as in study F: times, CPU and memory, case by case."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tsbench.report import frames, set_plots, style
from tsbench.report.metrics import believable, time_label
from tsbench.report.plots import MOST_OPS
from tsbench.report.style import BLUE, GREY, INK, ORANGE, PINK, styled
from tsbench.units import format_count, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell

TIMES: Mapping[str, Mapping[str, Any]] = {
    "p50": {"label": "median", "marker": "o", "markersize": 7, "color": BLUE},
    "mean": {"label": "average", "marker": "|", "markersize": 13, "markeredgewidth": 2, "color": PINK, "zorder": 3},
    "p99": {"label": "p99", "marker": "D", "markersize": 6, "color": ORANGE},
}
"""Latencies (median, average, p99) that are drawn for every op, with the style of their marks."""
WHO = {"server": ("server's processes", BLUE), "client": ("load generator", ORANGE)}
"""Process trees whose CPU and memory is drawn, in the colours of `plots.resources`."""
_UNSEEN = {
    "server": "Server's CPU and memory: not shown, for it ran inside the load generator or on another machine.",
    "client": "Load generator's CPU and memory: not shown, for they were not sampled.",
}
_WIDEST = 34


@styled
def by_case(cells: Sequence[Cell], usage: pd.DataFrame) -> Figure | None:
    """Plot times of every op, CPU and memory, a panel for each and a row per run; None without data.

    All figures are of the measured window. Times (ns, logarithmic) are median, average and 99th percentile, in one
    panel for all writes (queries) if no run has two such ops, else in a panel per op. CPU (cores) and memory (bytes)
    are averages, with a line to the highest second. A figure that no run has gets no panel, and a note below says why.
    `usage` is the frame of that name.
    """
    ops, left_out = _op_panels(cells)
    watched = [who for who in WHO if (usage["who"] == who).any()]
    drawn: list[Callable[[Axes], None]] = [partial(_times, cells=cells, title=title, ops=of) for title, of in ops]
    if watched:
        drawn += [partial(draw, cells=cells, usage=usage, watched=watched) for draw in (_cpu, _memory)]
    if not drawn:
        return None
    columns = 2 if len(drawn) == 4 else min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    height = set_plots.height_of(cells) + 0.3
    figure, axes = style.panels(rows, columns, height=height, used=len(drawn), sharey=True)
    for draw, panel in zip(drawn, axes, strict=True):
        draw(panel)
        set_plots.cell_axis(panel, cells)
    keys = [
        *(set_plots.mark_keys(TIMES.values()) if ops else []),
        *(set_plots.struck_keys(cells) if ops else []),
        *(Patch(label=WHO[who][0], color=WHO[who][1]) for who in watched),
        *([Line2D([], [], color=INK, linewidth=1, label="to its highest second")] if watched else []),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=6)
    notes = _notes(cells, usage, watched, left_out)
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=8)
    return figure


def _op_panels(cells: Sequence[Cell]) -> tuple[list[tuple[str, list[str]]], int]:
    """Return each panel's title with every run's op in it (or ""), and the number of panels that were left out."""
    panels: list[tuple[str, list[str]]] = []
    for kind, title in style.KINDS.items():
        of = [[op for op in cell.ops if frames.kind_of(cell, op) == kind] for cell in cells]
        names = list(dict.fromkeys(op for ops in of for op in ops))
        if (
            len(names) > 1 and max(map(len, of)) == 1
        ):  # the cases differ by the size of writes, such as write-1 and write-252
            panels.append((title, [ops[0] if ops else "" for ops in of]))
        else:
            panels += [(name, [name if name in ops else "" for ops in of]) for name in names]

    def slowest(panel: tuple[str, list[str]]) -> float:
        return max(_time(cell, op, "mean") or 0 for cell, op in zip(cells, panel[1], strict=True))

    kept = sorted(panels, key=slowest, reverse=True)[:MOST_OPS]
    return [panel for panel in panels if panel in kept], len(panels) - len(kept)


def _time(cell: Cell, op: str, part: str) -> float | None:
    interval = believable(cell.ops[op], cell.time, part) if op in cell.ops else None
    return None if interval is None else float(interval.most_ns)


def _times(panel: Axes, cells: Sequence[Cell], title: str, ops: Sequence[str]) -> None:
    for place, (cell, op) in enumerate(zip(cells, ops, strict=True)):
        values = [_time(cell, op, part) for part in TIMES]
        set_plots.draw_span(panel, cell, place, values, list(TIMES.values()), GREY)
        if op:
            set_plots.draw_struck(panel, cell, place, dict(zip(TIMES, values, strict=True)))
    label = textwrap.fill(f"{time_label(cells)}, lower is better", 38)
    panel.set(title=set_plots.shorten(title, _WIDEST), xlabel=label)
    style.duration_axis(panel, "x")


def _cpu(panel: Axes, cells: Sequence[Cell], usage: pd.DataFrame, watched: Sequence[str]) -> None:
    cores = usage.assign(mean=usage["cpu_percent"] / 100, highest=usage["cpu_max_percent"] / 100)
    _used(panel, cells, cores, watched, lambda value: f"{value:.2g}" if value < 1 else format_count(value))
    panel.set(title="CPU, cores", xlabel="average, lower is better")


def _memory(panel: Axes, cells: Sequence[Cell], usage: pd.DataFrame, watched: Sequence[str]) -> None:
    sizes = usage.assign(mean=usage["rss_bytes"], highest=usage["rss_max_bytes"])
    _used(panel, cells, sizes, watched, format_size)
    panel.set(title="Memory (RSS), bytes", xlabel="average, lower is better")
    style.size_axis(panel, "x", ticks=3)


def _used(
    panel: Axes, cells: Sequence[Cell], used: pd.DataFrame, watched: Sequence[str], form: Callable[[float], str]
) -> None:
    """Draw bars of the mean with lines to the highest second, those of one run below each other."""
    height = 0.76 / len(watched)
    for number, who in enumerate(watched):
        rows = used[used["who"] == who].set_index("cell").reindex([cell.name for cell in cells])
        means = [
            float(value) if known else None for value, known in zip(rows["mean"], rows["mean"].notna(), strict=True)
        ]
        above = (rows["highest"] - rows["mean"]).fillna(0)
        look: dict[str, Any] = {"xerr": [above * 0, above], "error_kw": {"ecolor": INK, "elinewidth": 1}}
        shift = (number - (len(watched) - 1) / 2) * height
        set_plots.draw_bars(panel, cells, means, form, shift=shift, height=height * 0.9, colour=WHO[who][1], **look)
    panel.set_xlim(0, float(used["highest"].max()) * set_plots.ROOM or 1)


def _notes(cells: Sequence[Cell], usage: pd.DataFrame, watched: Sequence[str], left_out: int) -> list[str]:
    """Return notes on missing figures, with the reasons."""
    notes = [_UNSEEN[who] for who in WHO if who not in watched]
    if not watched:
        notes = ["CPU and memory: not shown, for no run has samples of its measured window."]
    elif len(usage) < len(watched) * len(cells):
        notes.append("CPU and memory, none: not sampled (embedded, on another machine, or ended too early).")
    if left_out:
        notes.append(f"{left_out} ops with a lower p99 are left out; each run's own table has them.")
    return notes
