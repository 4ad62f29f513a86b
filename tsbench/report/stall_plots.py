"""A plot of a run's stalls: rate, latency and what the server was doing, on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.report import frames, plots, style, system_plots
from tsbench.report.style import PALETTE, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell
    from tsbench.results.figures import Stall
    from tsbench.results.panels import Panel

BLUE, RED, GREEN, *_ = PALETTE
MOST_PANELS = 4
"""Maximum number of panels of counters; those whose counters rose most in a stall come first."""
_RATES = {
    "write": ("Points written per second", "points", "points/s"),
    "query": ("Queries per second", "done", "queries/s"),
}


@styled
def stalls(cell: Cell, ops: pd.DataFrame, counted: pd.DataFrame, panels: Sequence[Panel]) -> Figure | None:
    """Plot rates, latencies and the counters that may explain a stall, with the stalls shaded; None without stalls.

    Parameters
    ----------
    cell
        The run; its summary says where the stalls are.
    ops, counted
        Its `frames.ops` and `frames.counters`.
    panels
        `results.panels.read_panels` of that run.
    """
    found = {kind: cell.summary.steadiness[kind].stalls for kind in _RATES if kind in cell.summary.steadiness}
    kinds = [kind for kind, of_kind in found.items() if of_kind]
    if not kinds or ops.empty:
        return None
    shown = system_plots.moving_panels(counted, _explaining(panels, [s for kind in kinds for s in found[kind]]))
    shown = shown[:MOST_PANELS]
    rows = 2 * len(kinds) + len(shown)
    figure, axes = style.panels(rows, 1, height=1.75, sharex=True)
    seconds = np.arange(int(ops["second"].min()), int(ops["second"].max()) + 1)
    for place, kind in enumerate(kinds):
        of_kind = ops[ops["op"].map(lambda op: frames.kind_of(cell, op)) == kind]
        _rate(axes[2 * place], kind, of_kind, seconds)
        _latency(axes[2 * place + 1], cell, kind, of_kind, seconds)
    for axis, (panel, lines) in zip(axes[2 * len(kinds) :], shown, strict=True):
        system_plots.draw_panel(axis, panel, lines)
    for place, axis in enumerate(axes):
        of = kinds if place >= 2 * len(kinds) else [kinds[place // 2]]
        for stall in (stall for kind in of for stall in found[kind]):
            end_s = stall.start_s + stall.length_s
            axis.axvspan(stall.start_s, end_s, color=RED, alpha=0.18, linewidth=0, zorder=0.6, label="stall")
        style.time_axis(axis, seconds.tolist(), label=place == rows - 1)
        axis.tick_params(labelbottom=place == rows - 1)
    style.legend(figure, axes[: 2 * len(kinds)])
    return figure


def _explaining(panels: Sequence[Panel], found: Sequence[Stall]) -> list[Panel]:
    """Return the panels that may explain a stall, those whose counters rose in one first."""
    rises = [rise for stall in found for rise in stall.counters]
    highest = {name: max(r.deviations for r in rises if r.panel == name) for name in {r.panel for r in rises}}
    return sorted((p for p in panels if p.explains_stalls), key=lambda panel: -highest.get(panel.title, 0.0))


def _rate(axis: Axes, kind: str, ops: pd.DataFrame, seconds: np.ndarray[Any, Any]) -> None:
    title, column, unit = _RATES[kind]
    per_s = ops.groupby("second")[column].sum().reindex(seconds).fillna(0)
    axis.plot(seconds, per_s, color=BLUE if kind == "write" else GREEN, label=unit)
    axis.set(title=title, ylabel=unit)
    style.count_axis(axis)


def _latency(axis: Axes, cell: Cell, kind: str, ops: pd.DataFrame, seconds: np.ndarray[Any, Any]) -> None:
    slowest = ops[ops["count"] > 0].groupby("second").max(numeric_only=True).reindex(seconds)
    plots.latency_lines(axis, cell, slowest, marker=".", markersize=3)
    axis.set(title=f"{kind.capitalize()} {cell.time} time", ylabel=f"{cell.time} time")
    style.duration_axis(axis, most=5)
