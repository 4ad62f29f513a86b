"""Plots of what happened around a run: hosts (sysstat), nodes, the server's own counters, and stalls beside these.

As in `plots`, each function takes frames of one run and returns a matplotlib Figure on the measured window's time axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from matplotlib.ticker import PercentFormatter

from tsbench.report import frames, plots, style
from tsbench.report.style import BLUE, DASHES, GREEN, GREY, KIND_COLOURS, ORANGE, PALETTE, PINK, RED, SKY, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from tsbench.report.cells import Cell
    from tsbench.results.figures import Stall
    from tsbench.results.panels import Panel

MOST_PANELS = 4
"""Maximum number of panels of counters; those whose counters rose most in a stall come first."""
_RATES = {
    "write": ("Points written per second", "points", "points/s"),
    "query": ("Queries per second", "done", "queries/s"),
}
STATES = (("user", BLUE), ("nice", SKY), ("system", ORANGE), ("iowait", RED), ("steal", PINK))
"""States of a busy CPU, from bottom to top, in sar's order."""


@styled
def sar(recorded: pd.DataFrame) -> Figure:
    """Plot CPU by state, disk and network of each host, a row of panels per host; `recorded` is the frame `sar`."""
    hosts = list(recorded["host"].unique())
    figure, axes = style.panels(len(hosts), 3, height=2.3, sharex=True)
    # A point is drawn in the middle of the seconds that it is the mean of; the mean of one second at its beginning.
    recorded = recorded.assign(at=recorded["second"] + (recorded["interval_s"] - 1) / 2).sort_values("at")
    span = [float(at) for at in recorded["at"]]
    for place, host in enumerate(hosts):
        rows = recorded[recorded["host"] == host]
        cpu, disk, network = axes[3 * place : 3 * place + 3]
        _cpu(cpu, rows)
        _lines(
            disk,
            rows,
            (("disk_write_bytes_per_s", "writes", BLUE, "-"), ("disk_read_bytes_per_s", "reads", BLUE, DASHES[2])),
        )
        _lines(
            network,
            rows,
            (
                ("network_in_bytes_per_s", "in", GREEN, "-"),
                ("network_out_bytes_per_s", "out", GREEN, DASHES[2]),
                ("loopback_bytes_per_s", "loopback", GREY, "-"),
            ),
        )
        cpu.set(title=f"{host}: CPU by state", ylabel="of all cores")
        disk.set(title=f"{host}: disk", ylabel="bytes/s")
        network.set(title=f"{host}: network", ylabel="bytes/s")
        for panel in (cpu, disk, network):
            style.time_axis(panel, span, label=False)
            if place == len(hosts) - 1:
                panel.set_xlabel("s since the measured window began")
    style.legend(figure, axes, columns=11)
    return figure


def _cpu(panel: Axes, rows: pd.DataFrame) -> None:
    used = [(state, colour) for state, colour in STATES if rows[f"cpu_{state}_percent"].notna().any()]
    shares = [rows[f"cpu_{state}_percent"].fillna(0) for state, _ in used]
    if shares:
        labels, colours = [state for state, _ in used], [colour for _, colour in used]
        panel.stackplot(rows["at"], *shares, labels=labels, colors=colours, alpha=0.85, linewidth=0)
    panel.set_ylim(0, 100)
    panel.yaxis.set_major_formatter(PercentFormatter(decimals=0))


def _lines(panel: Axes, rows: pd.DataFrame, series: Sequence[tuple[str, str, str, object]]) -> None:
    for column, label, colour, dashes in series:
        if rows[column].notna().any():
            panel.plot(rows["at"], rows[column], color=colour, linestyle=dashes, label=label, linewidth=1.2)
    style.size_axis(panel)


@styled
def nodes(sampled: pd.DataFrame) -> Figure:
    """Plot CPU, memory and disk of each node of a server over time; `sampled` is the frame `nodes`."""
    figure, axes = style.panels(1, 3, height=2.3, sharex=True)
    cores, memory, disk = axes
    names = sorted(sampled["node"].unique())
    for name, (colour, dashes) in zip(names, _looks(len(names)), strict=True):
        rows = sampled[sampled["node"] == name].assign(cores=lambda frame: frame["cpu_percent"] / 100)
        for panel, column in ((cores, "cores"), (memory, "rss_bytes"), (disk, "read_bytes")):
            panel.plot(rows["second"], rows[column], color=colour, linestyle=dashes, label=name, linewidth=1.2)
    cores.set(title="CPU of each node", ylabel="cores")
    memory.set(title="Memory of each node", ylabel="bytes")
    disk.set(title="Disk reads of each node", ylabel="bytes in each second")
    style.count_axis(cores)
    style.size_axis(memory)
    style.size_axis(disk)
    for panel in axes:
        style.time_axis(panel, [float(second) for second in sampled["second"]])
    style.legend(figure, axes, columns=11)
    return figure


_Y_LABELS = {
    ("count", "rate"): "per second",
    ("count", "gauge"): "",
    ("bytes", "rate"): "bytes/s",
    ("bytes", "gauge"): "bytes",
}


@styled
def counters(counted: pd.DataFrame, panels: Sequence[Panel]) -> Figure | None:
    """Plot the panels of the server's own counters, totals as rates; None if no counter of a panel moves.

    `counted` is the frame `counters`, and `panels` what the database says about them (`results.panels.read_panels`).
    """
    panels_of = moving_panels(counted, panels)
    if not panels_of:
        return None
    columns = min(3, len(panels_of))
    rows = -(-len(panels_of) // columns)
    figure, axes = style.panels(rows, columns, height=2.3, used=len(panels_of), sharex=True)
    span = [float(second) for second in counted["second"]]
    for place, ((panel, lines), axis) in enumerate(zip(panels_of, axes, strict=True)):
        draw_panel(axis, panel, lines)
        bottom = place + columns >= len(panels_of)
        axis.tick_params(labelbottom=bottom)
        style.time_axis(axis, span, label=False)
        if bottom:
            axis.set_xlabel("s since the measured window began")
    return figure


PanelLines: TypeAlias = "list[tuple[str, pd.DataFrame, str]]"
"""The lines of a panel: label, rows of one counter, and the column to plot."""


def moving_panels(counted: pd.DataFrame, panels: Sequence[Panel]) -> list[tuple[Panel, PanelLines]]:
    """Return the panels of which a counter is ever other than 0, with the lines of these counters."""
    rates = frames.rates(counted)
    movings = []
    for panel in panels:
        names = panel.counters
        source, column = (rates, "per_s") if panel.kind == "rate" else (counted, "value")
        chosen = source[source["name"].isin(list(names)) & source[column].notna()]
        moving = [name for name in names if (chosen.loc[chosen["name"] == name, column] != 0).any()]
        if moving:
            movings.append((panel, [(names[n], chosen[chosen["name"] == n], column) for n in moving]))
    return movings


def draw_panel(axis: Axes, panel: Panel, lines: PanelLines) -> None:
    """Draw the counters of a panel, with their legend and units."""
    for (label, part, column), (colour, dashes) in zip(lines, _looks(len(lines)), strict=True):
        axis.plot(part["second"], part[column], color=colour, linestyle=dashes, label=label, linewidth=1.2)
    axis.set(title=panel.title, ylabel=_Y_LABELS[panel.unit, panel.kind])
    (style.size_axis if panel.unit == "bytes" else style.count_axis)(axis)
    # only the lines: the shade of the warm-up is explained above
    axis.legend(handles=axis.lines[: len(lines)], loc="upper left", fontsize=8, labelspacing=0.25, handlelength=1.6)
    axis.set_ylim(top=axis.get_ylim()[1] * 1.25)  # room for the legend


def _looks(number: int) -> list[tuple[str, object]]:
    return [(PALETTE[place % len(PALETTE)], DASHES[place // len(PALETTE) % len(DASHES)]) for place in range(number)]


# --- stalls -----------------------------------------------------------------------------------------------------------


@styled
def stalls(cell: Cell, ops: pd.DataFrame, counted: pd.DataFrame, panels: Sequence[Panel]) -> Figure | None:
    """Plot rates, latencies and the counters that may explain a stall, with the stalls shaded; None without stalls.

    `counted` and `panels` are as for `counters`.
    """
    by_kind = {kind: cell.summary.steadiness[kind].stalls for kind in _RATES if kind in cell.summary.steadiness}
    kinds = [kind for kind, of_kind in by_kind.items() if of_kind]
    if not kinds or ops.empty:
        return None
    shown = moving_panels(counted, _explaining(panels, [s for kind in kinds for s in by_kind[kind]]))
    shown = shown[:MOST_PANELS]
    rows = 2 * len(kinds) + len(shown)
    figure, axes = style.panels(rows, 1, height=1.75, sharex=True)
    seconds = np.arange(int(ops["second"].min()), int(ops["second"].max()) + 1)
    for place, kind in enumerate(kinds):
        of_kind = ops[ops["op"].map(lambda op: frames.kind_of(cell, op)) == kind]
        _stalled_rate(axes[2 * place], kind, of_kind, seconds)
        _stalled_latency(axes[2 * place + 1], cell, kind, of_kind, seconds)
    for axis, (panel, lines) in zip(axes[2 * len(kinds) :], shown, strict=True):
        draw_panel(axis, panel, lines)
    for place, axis in enumerate(axes):
        of = kinds if place >= 2 * len(kinds) else [kinds[place // 2]]
        for stall in (stall for kind in of for stall in by_kind[kind]):
            end_s = stall.start_s + stall.length_s
            axis.axvspan(stall.start_s, end_s, color=RED, alpha=0.18, linewidth=0, zorder=0.6, label="stall")
        style.time_axis(axis, seconds.tolist(), label=place == rows - 1)
        axis.tick_params(labelbottom=place == rows - 1)
    style.legend(figure, axes[: 2 * len(kinds)])
    return figure


def _explaining(panels: Sequence[Panel], stalls: Sequence[Stall]) -> list[Panel]:
    """Return the panels that may explain a stall, those whose counters rose in one first."""
    rises = [rise for stall in stalls for rise in stall.counters]
    highest = {name: max(r.deviations for r in rises if r.panel == name) for name in {r.panel for r in rises}}
    return sorted((p for p in panels if p.explains_stalls), key=lambda panel: -highest.get(panel.title, 0.0))


def _stalled_rate(axis: Axes, kind: str, ops: pd.DataFrame, seconds: NDArray[np.int_]) -> None:
    title, column, unit = _RATES[kind]
    per_s = ops.groupby("second")[column].sum().reindex(seconds).fillna(0)
    axis.plot(seconds, per_s, color=KIND_COLOURS[kind], label=unit)
    axis.set(title=title, ylabel=unit)
    style.count_axis(axis)


def _stalled_latency(axis: Axes, cell: Cell, kind: str, ops: pd.DataFrame, seconds: NDArray[np.int_]) -> None:
    slowest = ops[ops["count"] > 0].groupby("second").max(numeric_only=True).reindex(seconds)
    plots.latency_lines(axis, cell, slowest, marker=".", markersize=3)
    axis.set(title=f"{kind.capitalize()} {cell.time} time", ylabel=f"{cell.time} time")
    style.duration_axis(axis, most=5)
