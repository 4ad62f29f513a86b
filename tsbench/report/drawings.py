"""The plots of a result set with the data that they need: those of each run, and those that compare all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.errors import UserMistake
from tsbench.report import cases, frames, plots, set_plots, style, system_plots
from tsbench.results.panels import read_panels
from tsbench.results.reading import files_of
from tsbench.results.rundir import OPS_COLUMNS
from tsbench.results.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell
    from tsbench.report.sides import Side
    from tsbench.results.panels import Panel

Drawn: TypeAlias = "dict[str, tuple[Figure, str]]"
"""Figures by name, each with a description."""
Wanted: TypeAlias = "Callable[[str], bool]"
"""Returns whether a plot of that name is to be drawn."""
ZOOMED = ("throughput", "latency", "resources", "counters")
"""Plots of a run that can be zoomed; in print, and without scripts, the page has them as they are."""


@dataclass(frozen=True, slots=True)
class Data:
    """The frames of one run, and notes for the reader: warnings about the host, files that could not be read."""

    ops: pd.DataFrame
    host: pd.DataFrame
    server: pd.DataFrame
    nodes: pd.DataFrame
    counters: pd.DataFrame
    panels: tuple[Panel, ...]
    sar: pd.DataFrame
    latency: pd.DataFrame
    notes: tuple[str, ...]


def read(cell: Cell, damaged: list[str]) -> Data:
    """Return the frames of a run; a line for each file that could not be read is appended to `damaged`."""
    lines = [*cell.notes]
    notes = cell.manifest.warnings if cell.manifest else ()

    def parsed(name: str) -> pd.DataFrame:
        try:
            return frames.of_run(cell, name)
        except UserMistake as mistake:  # the page shows the note instead of the plot
            lines.append(str(mistake))
            return frames.concat([], frames.COLUMNS[name])

    if not cell.window and files_of(cell.run / "latency", "*.hlog"):
        notes = (*notes, "Latencies by percentile are missing: the run ended before it recorded its measured window.")
    ops, host, server, nodes = (frames.whole_seconds(cell, parsed(name)) for name in ("ops", "host", "server", "nodes"))
    latency, counters, sar = map(parsed, ("latency", "counters", "sar"))
    try:
        panels = read_panels(cell.run)
    except UserMistake as mistake:
        lines.append(str(mistake))
        panels = ()
    damaged += lines
    return Data(ops, host, server, nodes, counters, panels, sar, latency, (*lines, *notes))


def every(_name: str) -> bool:
    """Return True: all plots are wanted."""
    return True


def of_all(sides: Sequence[Side], data: Mapping[str, Data], wanted: Wanted = every) -> Drawn:
    """Return the wanted plots that compare all sides: those of repeats are the medians of their runs."""
    if len(sides) < 2:
        return {}
    cells = [middle_cell(side) for side in sides]

    def together(of: Callable[[Cell], pd.DataFrame], columns: Mapping[str, str], by: Sequence[str]) -> pd.DataFrame:
        parts = [
            middle_rows(side, cell.name, frames.concat([of(run) for run in side.runs], columns), by)
            for side, cell in zip(sides, cells, strict=True)
        ]
        return frames.concat(parts, columns)

    def used(run: Cell) -> pd.DataFrame:
        return frames.usage_of(run, data[run.name].host, data[run.name].server, data[run.name].nodes)

    by_percentile = ("kind", "op", "time", "percentile")
    ops = together(lambda run: data[run.name].ops, OPS_COLUMNS, ("second", "op"))
    latency = together(lambda run: data[run.name].latency, frames.LATENCY_COLUMNS, by_percentile)
    usage = together(used, frames.USAGE_COLUMNS, ("who",))
    plotted: dict[str, tuple[Callable[[], Figure | None], str]] = {
        "cases": (partial(cases.by_case, cells, usage), "Times per op, CPU and memory of every run, side by side"),
        "percentiles": (partial(set_plots.percentiles, cells, latency), "Latency by percentile, a line per run"),
        "time": (
            partial(set_plots.over_time, cells, ops),
            "Points and queries per second over time, a line per run",
        ),
        "size": (partial(set_plots.size_on_disk, cells), "Size on disk of every run by part"),
    }
    drawn = ((name, plot(), alt) for name, (plot, alt) in plotted.items() if wanted(name))
    return {name: (figure, alt) for name, figure, alt in drawn if figure is not None}


def middle_cell(side: Side) -> Cell:
    """Return a run with the medians of a side's runs as its figures, and the side's name; of one run that run."""
    if len(side.runs) < 2:
        return side.runs[0]
    figures = _middle([cell.summary.model_dump(by_alias=True) for cell in side.runs])
    summary = Summary.model_validate(figures).model_copy(update={"validity": side.runs[0].summary.validity})
    return replace(side.runs[0], name=f"{side.name} ({len(side.runs)} runs)", summary=summary)


def _middle(parts: Sequence[Any]) -> Any:
    """Return a structure like these: of numbers the median, of anything else the first."""
    first = parts[0]
    if isinstance(first, dict):
        shared = [key for key in first if all(isinstance(part, dict) and key in part for part in parts)]
        return {key: _middle([part[key] for part in parts]) for key in shared}
    numbers = [part for part in parts if isinstance(part, int | float) and not isinstance(part, bool)]
    if len(numbers) < len(parts):
        return first
    middle = median(numbers)
    return round(middle) if isinstance(first, int) else middle


def middle_rows(side: Side, name: str, frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the medians of the rows of a side's runs that agree in the columns `by`, as those of the run `name`."""
    rows = frame[frame["cell"].isin([cell.name for cell in side.runs])]
    if len(side.runs) < 2 or rows.empty:
        return rows
    median = rows.groupby([*by], as_index=False, sort=False).median(numeric_only=True)
    return median.assign(cell=name)[[*frame.columns]]


def of_run(cell: Cell, data: Data, wanted: Wanted = every) -> Drawn:
    """Return the wanted plots of a run for which it has data."""
    drawn: Drawn = {}
    moments = [(event.at_s, event.away_s or 0.0) for event in cell.summary.events]

    def draw(name: str, alt: str, plot: Callable[[], Figure | None]) -> None:
        if wanted(name) and (figure := plot()) is not None:
            style.mark_events(figure, moments)
            drawn[name] = figure, alt

    if not data.ops.empty:
        draw("throughput", "throughput over time", partial(plots.throughput, cell, data.ops))
        draw("latency", "latency over time", partial(plots.latency_over_time, cell, data.ops))
        stalled = partial(system_plots.stalls, cell, data.ops, data.counters, data.panels)
        draw("stalls", "rate, latency and the server's counters over time, stalls shaded", stalled)
    if not data.latency.empty:
        draw("percentiles", "latency by percentile", partial(plots.latency_by_percentile, cell, data.latency))
    if not (data.host.empty and data.server.empty):
        draw("resources", "CPU, memory and disk over time", partial(plots.resources, data.host, data.server))
    if not data.nodes.empty:
        draw("nodes", "CPU, memory and disk of each node over time", partial(system_plots.nodes, data.nodes))
    if not data.sar.empty:
        draw("sar", "CPU by state, disk and network, as sysstat recorded them", partial(system_plots.sar, data.sar))
    if not data.counters.empty:
        draw(
            "counters",
            "the server's own counters over time",
            partial(system_plots.counters, data.counters, data.panels),
        )
    return drawn
