"""Plots of one run. Each function takes frames and returns a matplotlib Figure; a notebook may show or save it.

Parameters have the names of frames in `tsbench.report.frames` (`whole_seconds` removes those that are not whole). Times
are from the start of the measured window, warm-up is shaded, and latencies are response times in an open loop,
else service times, as their titles say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from tsbench.measure.hist import values_needed
from tsbench.measure.latency import NOTICEABLE
from tsbench.measure.merge import PERCENTS
from tsbench.report import frames, style
from tsbench.report.style import BLUE, GREY, KIND_COLOURS, KINDS, ORANGE, RED, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell

_BAD = ("failed", "unknown", "partial")
MOST_OPS = 12
"""Maximum number of panels of latency over time; the ops that took longest come first."""


@styled
def throughput(cell: Cell, ops: pd.DataFrame) -> Figure:
    """Plot ops and points per second over time; in an open loop also ops that were due, and failed ones."""
    kinds = ops["op"].map(lambda op: frames.kind_of(cell, op))
    seconds = np.arange(int(ops["second"].min()), int(ops["second"].max()) + 1)
    sums = {
        kind: part.groupby("second")[["count", "done", *_BAD, "points"]].sum().reindex(seconds).fillna(0)
        for kind, part in ops.groupby(kinds)
    }
    written = "write" in sums and bool(sums["write"]["points"].any())
    figure, axes = style.panels(1, 2 if written else 1, height=2.7)
    stands = cell.validity.stands
    for kind in ("write", "query"):
        if kind not in sums:
            continue
        if cell.loop == "open":
            due: dict[str, Any] = {"color": KIND_COLOURS[kind], "alpha": 0.4, "linewidth": 3}
            axes[0].plot(seconds, sums[kind]["count"], label=f"{KINDS[kind].lower()} due", **due)
        look: dict[str, Any] = {"color": KIND_COLOURS[kind], "label": KINDS[kind].lower()}
        style.line(axes[0], seconds, sums[kind]["done"], stands=stands, **look)
    bad = sum(part[[*_BAD]].sum(axis="columns") for part in sums.values())
    if np.any(bad):
        axes[0].plot(seconds, bad, color=RED, linewidth=1, label="failed, refused in part or unknown")
    axes[0].set(title="Ops per second", ylabel="ops/s")
    if written:
        style.line(axes[1], seconds, sums["write"]["points"], stands=stands, color=KIND_COLOURS["write"])
        axes[1].set(title="Points acknowledged per second", ylabel="points/s")
    for panel in axes:
        style.count_axis(panel)
        style.time_axis(panel, seconds.tolist())
    style.legend(figure, axes)
    return figure


@styled
def latency_over_time(cell: Cell, ops: pd.DataFrame) -> Figure:
    """Plot median, 99th percentile and maximum of every second, a panel per op, with stalls marked.

    Of more than MOST_OPS ops those with the highest maximum are drawn.
    """
    worst = ops.groupby("op")[f"{cell.time}_max_ns"].max().sort_values(ascending=False, kind="stable")
    names = sorted(worst.index[:MOST_OPS], key=lambda op: (frames.kind_of(cell, op) != "write", op))
    columns = 1 if len(names) == 1 else 2
    rows = -(-len(names) // columns)
    figure, axes = style.panels(rows, columns, height=2.35, used=len(names), sharex=True)
    stalls = frames.stalls(ops, cell.time)
    span = (float(ops["second"].min()), float(ops["second"].max()))
    for place, (name, panel) in enumerate(zip(names, axes, strict=True)):
        _latency_panel(panel, cell, ops[ops["op"] == name], stalls[stalls["op"] == name])
        panel.set(title=name, ylabel=f"{cell.time} time")
        bottom = place + columns >= len(names)
        panel.tick_params(labelbottom=bottom)
        style.time_axis(panel, span, label=bottom)
    style.legend(figure, axes)
    return figure


def latency_lines(panel: Axes, cell: Cell, by_second: pd.DataFrame, **look: Any) -> None:
    """Draw highest, p99 and median latency by second, where it has enough ops; `by_second` is like a frame `ops`."""
    lines = (("max", "max", GREY, 0.9), ("p99", "p99", ORANGE, 1.4), ("p50", "median", BLUE, 1.6))
    for part, label, colour, width in lines:
        enough = by_second["count"] >= values_needed(PERCENTS[part])
        values = by_second[f"{cell.time}_{part}_ns"].where(enough).clip(lower=1)
        whole = {"color": colour, "linewidth": width, "label": label, **look}
        if enough.any():
            style.line(panel, by_second.index, values, stands=cell.validity.stands, **whole)


def _latency_panel(panel: Axes, cell: Cell, rows: pd.DataFrame, frame: pd.DataFrame) -> None:
    seconds = np.arange(int(rows["second"].min()), int(rows["second"].max()) + 1)
    # a second without ops is a gap in the line: it has no measurement
    rows = rows[rows["count"] > 0].set_index("second").reindex(seconds)
    has_ops = rows["count"].notna()
    alone = has_ops & ~has_ops.shift(1, fill_value=False) & ~has_ops.shift(-1, fill_value=False)
    dots = {"marker": ".", "markersize": 4} if alone.any() else {}  # no line shows a second between two gaps
    latency_lines(panel, cell, rows, **dots)
    if len(frame):
        marked = [
            s for start, n in zip(frame["start_s"], frame["length_s"], strict=True) for s in range(start, start + n)
        ]
        heights = rows[f"{cell.time}_max_ns"].reindex(marked)
        label = f"stall: max over {frames.STALL_FACTOR}x the usual p99"
        panel.plot(marked, heights, linestyle="none", marker="v", color=RED, markersize=6, label=label)
    style.duration_axis(panel)


@styled
def latency_by_percentile(cell: Cell, latency: pd.DataFrame) -> Figure:
    """Plot time by percentile, a line per op; the last point of each line is its slowest op.

    In an open loop the service time is drawn too, thin and dotted: the distance between both is waiting.
    """
    single = latency[latency["op"] != frames.ALL]
    kinds = [kind for kind in ("write", "query") if (single["kind"] == kind).any()]
    figure, axes = style.panels(1, len(kinds), height=3.3)
    for kind, panel in zip(kinds, axes, strict=True):
        chosen = single[single["kind"] == kind]
        for name, line in style.lines_of(sorted(chosen["op"].unique())).items():
            of_op = chosen[chosen["op"] == name]
            look: dict[str, Any] = {"label": name, "color": line.colour, "linestyle": line.dashes}
            percentile_line(panel, of_op[of_op["time"] == cell.time], stands=cell.validity.stands, **look)
            if cell.time == "response":
                thin: dict[str, Any] = {"color": line.colour, "linewidth": 0.9, "linestyle": (0, (1, 1.5))}
                percentile_line(panel, of_op[of_op["time"] == "service"], **thin)
        dotted = "; dotted: service time" if cell.time == "response" else ""
        panel.set(title=f"{KINDS[kind]}: {cell.time} time{dotted}", ylabel=f"{cell.time} time")
        percentile_axis(panel)
        named = style.handles_of([panel])
        panel.legend(
            named.values(),
            named.keys(),
            loc="upper left",
            bbox_to_anchor=(0, -0.2),
            ncols=2,
            fontsize=8,
            labelspacing=0.25,
        )
    return figure


def percentile_line(panel: Axes, spectrum: pd.DataFrame, *, stands: bool = True, **look: Any) -> None:
    """Draw one spectrum up to the percentile that its number of ops supports: 500 ops have no 99.99th one.

    Where the client's part in the times is noticeable, the area from the times without it to the measured ones is pale.
    """
    if spectrum.empty:
        return
    total = int(spectrum["total"].iloc[0])
    kept = spectrum[(spectrum["percentile"] < 100) & (1 - spectrum["percentile"] / 100 >= 1 / total)]
    distance = [*(1 / (1 - kept["percentile"] / 100)), float(total)]
    ends = {column: max(1, int(spectrum[column].max())) for column in ("value_ns", "least_ns")}
    values, least = (np.array([*kept[column].clip(lower=1), end]) for column, end in ends.items())
    between = {"where": values - least > NOTICEABLE * values, "color": look.get("color"), "alpha": 0.2, "linewidth": 0}
    panel.fill_between(distance, least, values, **between)
    whole: dict[str, Any] = {"markevery": [len(values) - 1], "marker": "o", "markersize": 3.5, **look}
    style.line(panel, distance, values, stands=stands, **whole)


def percentile_axis(panel: Axes) -> None:
    """Set a logarithmic axis of the distance to 100 %, as in HdrHistogram's plots, and a vertical one of durations."""
    panel.set_xscale("log")
    drawn = (np.asarray(line.get_xdata(), dtype=float) for line in panel.lines)
    most = max((float(np.max(distance)) for distance in drawn if distance.size), default=100.0)
    decades = [10.0**n for n in range(int(np.ceil(np.log10(max(most, 100)))) + 1)]
    panel.set_xlim(1, max(most * 1.15, 100))
    ticks = [1.0, *([2.0] if most < 20_000 else []), *decades[1:]]  # 0 % and 50 % would touch
    panel.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= most * 1.15 or tick <= 100]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 - 100 / value:.10g} %"))
    panel.set_xlabel("ops that took no longer; each line ends at its slowest op")
    style.duration_axis(panel)


@styled
def resources(host: pd.DataFrame, server: pd.DataFrame) -> Figure:
    """Plot CPU, memory and disk of the server's processes, the load generator and the host; a frame may be empty."""
    figure, axes = style.panels(2, 2, height=2.2, sharex=True)
    cores, whole, memory, disk = axes
    seconds = [float(s) for frame in (host, server) for s in frame["second"]]
    series = (
        (cores, server, "cpu_percent", 100, "server", BLUE, "-"),
        (cores, host, "client_cpu_percent", 100, "load generator", ORANGE, "-"),
        (whole, host, "cpu_percent", 1, "whole host", GREY, "-"),
        (memory, host, "memory_bytes", 1, "whole host", GREY, "-"),
        (memory, server, "rss_bytes", 1, "server", BLUE, "-"),
        (memory, host, "client_rss_bytes", 1, "load generator", ORANGE, "-"),
        # not the server's writes: Linux counts a whole folio for each of them (see rundir.SERVER_COLUMNS)
        (disk, server, "read_bytes", 1, "_server, reads", BLUE, (0, (1.5, 1.2))),
        (disk, host, "disk_write_bytes", 1, "whole host", GREY, "-"),
        (disk, host, "disk_read_bytes", 1, "_whole host, reads", GREY, (0, (1.5, 1.2))),
    )
    for panel, frame, column, scale, label, colour, dashes in series:
        if not frame.empty and not frame[column].isna().all():
            panel.plot(
                frame["second"], frame[column] / scale, color=colour, linestyle=dashes, label=label, linewidth=1.2
            )
    cores.set(title="Cores used by the processes", ylabel="cores")
    whole.set(title="CPU of the whole host", ylabel="busy")
    memory.set(title="Memory", ylabel="bytes")
    disk.set(title="Disk: writes, and reads dotted", ylabel="bytes in each second")
    style.count_axis(cores)
    whole.set_ylim(0, 100)
    whole.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    for panel in (memory, disk):
        style.size_axis(panel)
    for place, panel in enumerate(axes):
        style.time_axis(panel, seconds, label=place >= 2)
    style.legend(figure, axes)
    return figure
