"""report.html: one self-contained page per result set. It opens offline, needs no script, and prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from tsbench.errors import UserMistake
from tsbench.report import cases, charts, compare, frames, head_plots, plots, stall_plots, style, system_plots, tables
from tsbench.report.answer import answer
from tsbench.report.cells import Cell, ResultSet
from tsbench.report.head import head_of, machine
from tsbench.report.manifest import compared
from tsbench.report.metrics import load_text, load_texts, remarks, time_label
from tsbench.report.repeats import middle_cell, middle_rows
from tsbench.report.sides import sides_of
from tsbench.results.panels import read_panels
from tsbench.results.reading import files_of
from tsbench.results.rundir import (
    COUNTER_COLUMNS,
    HOST_COLUMNS,
    OPS_COLUMNS,
    SAR_COLUMNS,
    SERVER_COLUMNS,
    write_atomically,
)
from tsbench.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from tsbench.report.sides import Side
    from tsbench.results.manifest import Manifest as RunManifest
    from tsbench.results.panels import Panel


ZOOMED = ("throughput", "latency", "resources", "counters")
"""Plots of a run that can be zoomed; in print, and without scripts, the page has them as they are."""


@dataclass(frozen=True, slots=True)
class _Data:
    """The frames of one run, and notes for the reader: warnings about the host, files that could not be read."""

    ops: pd.DataFrame
    host: pd.DataFrame
    server: pd.DataFrame
    counters: pd.DataFrame
    panels: tuple[Panel, ...]
    sar: pd.DataFrame
    latency: pd.DataFrame
    notes: tuple[str, ...]


def write_report(results: Path, damaged: list[str] | None = None) -> Path:
    """Write report.html into the result set.

    Parameters
    ----------
    results
        The directory of a result set or of one run. Failed and interrupted runs are shown with what they measured.
    damaged
        A line is appended for each file that could not be read, as the page has it.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    UserMistake
        If the directory has no run.
    Broken
        If the page cannot be written.
    """
    page = render(ResultSet.read(results), [] if damaged is None else damaged)
    path = results / "report.html"
    write_atomically(path, page.encode())
    return path


def render(found: ResultSet, damaged: list[str]) -> str:
    """Return the HTML text of the page; a line for each file that could not be read is appended to `damaged`."""
    cells = found.cells
    data = {cell.name: _read(cell, damaged) for cell in cells}
    sides = sides_of(cells)
    context = {
        "answer": answer(sides),
        "machine": machine(cells),
        "head": head_of(sides),
        "charts": [style.embed(figure, name=name, alt=alt) for figure, name, alt in head_plots.draw(sides)],
        "title": found.name,
        "question": found.question,
        "source": found.path.resolve().name,
        "cells": cells,
        "anchors": {cell.name: f"run-{number}" for number, cell in enumerate(cells, 1)},
        "summary": tables.summary_table(cells),
        "conducts": load_texts(cells),
        "conduct": load_text,
        "time": time_label(cells),
        "claims": tables.claims_table(found),
        "figures_behind": tables.figures_table(found),
        "knee": found.summary.knee.sentence if found.summary.knee is not None and not sides.axis else "",
        "repeated": sides.repeats > 1,
        "comparison": _comparison(sides.sides, data),
        "details": [_details(number, cell, data[cell.name]) for number, cell in enumerate(cells, 1)],
        "manifests": [
            ("Environment", compared([_shown(cell.manifest) for cell in cells])),
            ("Specification", compared([cell.spec for cell in cells])),
        ],
        "scenario": found.scenario,
        "zoomed": {*ZOOMED, "stalls"},  # panels of stalls are among the others, which shade the stalls
        "library": charts.styles(),
        "scripts": charts.scripts(),
        "policy": charts.policy(charts.scripts()),
    }
    return _environment().get_template("report.html.j2").render(context)


def _shown(found: RunManifest | None) -> dict[str, Any]:
    """Return a manifest's entries without the ids of what the run created, which differ in every run."""
    entries = found.to_json() if found else {}
    return {name: entry for name, entry in entries.items() if name != "created"}


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tsbench.report", "."),
        autoescape=True,  # names, reasons and differences come from scenarios and servers
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(cell: Cell, damaged: list[str]) -> _Data:
    lines = [*cell.notes]
    notes = cell.manifest.warnings if cell.manifest else ()

    def read(of: Callable[[Cell], pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
        try:
            return of(cell)
        except UserMistake as mistake:  # the page shows the note instead of the plot
            lines.append(str(mistake))
            return frames.concat([], columns)

    if not frames.window_of(cell) and files_of(cell.run / "latency", "*.hlog"):
        notes = (*notes, "Latencies by percentile are missing: the run ended before it recorded its measured window.")
    ops, host, server = (
        frames.whole_seconds(cell, read(of, columns))
        for of, columns in (
            (frames.ops_of, OPS_COLUMNS),
            (frames.host_of, HOST_COLUMNS),
            (frames.server_of, SERVER_COLUMNS),
        )
    )
    latency = read(frames.latency_of, frames.LATENCY_COLUMNS)
    counters, sar = read(frames.counters_of, COUNTER_COLUMNS), read(frames.sar_of, SAR_COLUMNS)
    try:
        panels = read_panels(cell.run)
    except UserMistake as mistake:
        lines.append(str(mistake))
        panels = ()
    damaged += lines
    return _Data(ops, host, server, counters, panels, sar, latency, (*lines, *notes))


def _comparison(sides: Sequence[Side], data: Mapping[str, _Data]) -> list[Markup]:
    """Return the plots that compare all sides: those of repeats are the medians of their runs."""
    if len(sides) < 2:
        return []
    cells, parts = [], []
    for side in sides:
        cell = middle_cell(side)
        of = [data[run.name] for run in side.runs]
        used = [frames.usage_of(run, data[run.name].host, data[run.name].server) for run in side.runs]
        found = (
            (frames.concat([one.ops for one in of]), ("second", "op")),
            (
                frames.concat([one.latency for one in of], frames.LATENCY_COLUMNS),
                ("kind", "op", "time", "percentile"),
            ),
            (frames.concat(used, frames.USAGE_COLUMNS), ("who",)),
        )
        cells.append(cell)
        parts.append([middle_rows(side, cell.name, frame, by) for frame, by in found])
    ops, latency, usage = (
        frames.concat(list(of), columns)
        for of, columns in zip(
            zip(*parts, strict=True), (OPS_COLUMNS, frames.LATENCY_COLUMNS, frames.USAGE_COLUMNS), strict=True
        )
    )
    drawn: list[tuple[Figure | None, str, str]] = [
        (cases.by_case(cells, usage), "cases", "Times per op, CPU and memory of every run, side by side"),
        (compare.percentiles(cells, latency), "percentiles", "Latency by percentile, a line per run"),
        (compare.over_time(cells, ops), "time", "Points and queries per second over time, a line per run"),
        (compare.size_on_disk(cells), "size", "Size on disk of every run by part"),
    ]
    return [style.embed(figure, name=f"all-{name}", alt=alt) for figure, name, alt in drawn if figure is not None]


def _details(number: int, cell: Cell, data: _Data) -> dict[str, Any]:
    drawn: dict[str, Markup] = {}
    figures: dict[str, Figure] = {}
    moments = [(event.at_s, event.away_s or 0.0) for event in cell.summary.events]

    def draw(name: str, alt: str, figure: Figure | None) -> None:
        if figure is not None:
            style.mark_events(figure, moments)
            drawn[name] = style.embed(figure, name=f"run-{number}-{name}", alt=f"{cell.name}: {alt}")
            figures[name] = figure

    if not data.ops.empty:
        draw("throughput", "throughput over time", plots.throughput(cell, data.ops))
        draw("latency", "latency over time", plots.latency_over_time(cell, data.ops))
        stalled = stall_plots.stalls(cell, data.ops, data.counters, data.panels)
        draw("stalls", "rate, latency and the server's counters over time, stalls shaded", stalled)
    if not data.latency.empty:
        draw("percentiles", "latency by percentile", plots.latency_by_percentile(cell, data.latency))
    if not (data.host.empty and data.server.empty):
        draw("resources", "CPU, memory and disk over time", plots.resources(data.host, data.server))
    if not data.sar.empty:
        draw("sar", "CPU by state, disk and network, as sysstat recorded them", system_plots.sar(data.sar))
    if not data.counters.empty:
        draw("counters", "the server's own counters over time", system_plots.counters(data.counters, data.panels))
    return {
        "cell": cell,
        "anchor": f"run-{number}",
        "notes": data.notes,
        "plots": drawn,
        "charts": charts.embedded(cell, [figures[name] for name in ZOOMED if name in figures]),
        "ops": tables.ops_table(cell),
        "remarks": remarks(cell),
        "rates": [tables.steadiness_table(cell), tables.rate_stalls_table(cell)],
        "stalls": tables.stalls_table(frames.stalls(data.ops, cell.time), frames.STALL_FACTOR),
        "boxes": tables.boxes(cell),
        "durations": tables.durations_table(cell),
    }
