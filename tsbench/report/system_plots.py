"""Plots of other observers' data: sysstat on one or several hosts, and the server's own counters.

As in `plots`, each function takes frames of one run and returns a matplotlib Figure on the measured window's time axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import PercentFormatter

from tsbench.report import frames, style
from tsbench.report.style import DASHES, PALETTE, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY = PALETTE
STATES = (("user", BLUE), ("nice", SKY), ("system", ORANGE), ("iowait", RED), ("steal", PINK))
"""States of a busy CPU, from bottom to top, in sar's order."""
RATE, GAUGE = "per second", "as it is"

COUNTERS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "Requests and transactions",
        "count",
        RATE,
        {
            "database.xact_commit": "commits",
            "database.xact_rollback": "roll-backs",
            "httpd.writeReq": "writes",
            "httpd.queryReq": "queries",
            "http_write_request_count": "writes",
            "http_query_request_count": "queries",
        },
    ),
    (
        "Rows and points written",
        "count",
        RATE,
        {
            "database.tup_inserted": "rows inserted",
            "httpd.pointsWrittenOK": "points written",
            "httpd.pointsWrittenDropped": "points dropped",
            "httpd.pointsWrittenFail": "points failed",
            "storage_writer_ok_points_sum": "points written",
            "storage_writer_dropped_points_sum": "points dropped",
            "storage_writer_err_points_sum": "points failed",
        },
    ),
    ("Rows read", "count", RATE, {"database.tup_returned": "scanned", "database.tup_fetched": "by index"}),
    ("Blocks", "count", RATE, {"database.blks_hit": "in shared buffers", "database.blks_read": "from the system"}),
    (
        "Logged and written back",
        "size",
        RATE,
        {
            "wal.wal_bytes": "write-ahead log",
            "httpd.writeReqBytes": "write requests",
            "database.temp_bytes": "temporary files",
        },
    ),
    (
        "Compactions and checkpoints",
        "count",
        RATE,
        {
            "checkpointer.num_timed": "checkpoints, timed",
            "checkpointer.num_requested": "checkpoints, requested",
            "tsm1_engine.cacheCompactions": "snapshots of the cache",
            "tsm1_engine.tsmLevel1Compactions": "compactions, level 1",
            "tsm1_engine.tsmLevel2Compactions": "compactions, level 2",
            "tsm1_engine.tsmLevel3Compactions": "compactions, level 3",
            "tsm1_engine.tsmFullCompactions": "compactions, full",
        },
    ),
    (
        "Memory, by the server's own account",
        "size",
        GAUGE,
        {
            "tsm1_cache.memBytes": "cache",
            "runtime.HeapInUse": "heap",
            "storage_cache_inuse_bytes": "cache",
            "go_memstats_heap_inuse_bytes": "heap",
        },
    ),
    ("CPU under its cap", "count", RATE, {"group.cpu_s": "used, cores", "group.throttled_s": "held back"}),
    ("Memory under its cap", "size", GAUGE, {"group.memory_bytes": "with page cache"}),
)
"""Panels: title, unit, rate or gauge, and the label of each counter in it, for all servers that have it."""


@styled
def sar(recorded: pd.DataFrame) -> Figure:
    """Plot CPU by state, disk and network of each host, a row of panels per host.

    Parameters
    ----------
    recorded
        `frames.sar` of one run.
    """
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
def counters(counted: pd.DataFrame) -> Figure | None:
    """Plot some of the server's own counters, as rates; None if none of them is in COUNTERS.

    Parameters
    ----------
    counted
        `frames.counters` of one run.
    """
    rates = frames.rates(counted)
    found = []
    for title, unit, kind, names in COUNTERS:
        source, column = (rates, "per_s") if kind == RATE else (counted, "value")
        chosen = source[source["name"].isin(list(names)) & source[column].notna()]
        moving = [name for name in names if (chosen.loc[chosen["name"] == name, column] != 0).any()]
        if moving:
            found.append((title, unit, kind, [(names[n], chosen[chosen["name"] == n], column) for n in moving]))
    if not found:
        return None
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure, axes = style.panels(rows, columns, height=2.3, used=len(found), sharex=True)
    span = [float(second) for second in counted["second"]]
    for place, ((title, unit, kind, lines), panel) in enumerate(zip(found, axes, strict=True)):
        for (label, part, column), (colour, dashes) in zip(lines, _looks(len(lines)), strict=True):
            panel.plot(part["second"], part[column], color=colour, linestyle=dashes, label=label, linewidth=1.2)
        bytes_ = "bytes" if unit == "size" else ""
        panel.set(title=title, ylabel=bytes_ if kind == GAUGE else f"{bytes_}/s" if bytes_ else "per second")
        (style.size_axis if unit == "size" else style.count_axis)(panel)
        bottom = place + columns >= len(found)
        panel.tick_params(labelbottom=bottom)
        style.time_axis(panel, span, label=False)
        if bottom:
            panel.set_xlabel("s since the measured window began")
        drawn = panel.lines[: len(lines)]  # the shade of the warm-up is explained above
        panel.legend(handles=drawn, loc="upper left", fontsize=8, labelspacing=0.25, handlelength=1.6)
        panel.set_ylim(top=panel.get_ylim()[1] * 1.25)  # room for the legend
    return figure


def _looks(number: int) -> list[tuple[str, object]]:
    return [(PALETTE[place % len(PALETTE)], DASHES[place // len(PALETTE) % len(DASHES)]) for place in range(number)]
