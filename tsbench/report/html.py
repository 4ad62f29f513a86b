"""report.html: one self-contained page per result set. It opens offline, prints, and can be read without scripts.

A series, scenarios that one command ran, has another such page, which begins with what became of its studies' findings.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import jinja2

from tsbench.report import charts, drawings, frames, head_plots, run_tables, style, tables
from tsbench.report.answer import answer_of, judged_sides, reasons_of, said_reasons
from tsbench.report.cells import Cell, ResultSet
from tsbench.report.findings import names_of
from tsbench.report.head import head_of, machine
from tsbench.report.manifest import compared
from tsbench.report.metrics import load_text, load_texts, remarks, time_label
from tsbench.report.sides import sides_of
from tsbench.results.rundir import sets_in, undated, write_atomically
from tsbench.results.summary import Series
from tsbench.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.results.manifest import Manifest as RunManifest


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


def render(results: ResultSet, damaged: list[str]) -> str:
    """Return the HTML text of the page; a line for each file that could not be read is appended to `damaged`."""
    cells = results.cells
    data = {cell.name: drawings.read(cell, damaged) for cell in cells}
    sides = sides_of(cells)
    judged = judged_sides(results, sides)
    answered = answer_of(results, judged)
    context = {
        "answer": answered,
        "reasons": reasons_of(cells, said_reasons(cells, answered)),
        "names_of": names_of,
        "machine": machine(cells),
        "head": head_of(judged),
        "charts": [
            style.embed(figure, name=name, alt=alt) for figure, name, alt in head_plots.draw(sides, results.ends)
        ],
        "title": results.name,
        "question": results.question,
        "source": results.path.resolve().name,
        "cells": cells,
        "anchors": {cell.name: f"run-{number}" for number, cell in enumerate(cells, 1)},
        "summary": tables.summary_table(cells),
        "conducts": load_texts(cells),
        "conduct": load_text,
        "time": time_label(cells),
        "claims": tables.claims_table(results),
        "figures_behind": tables.figures_table(results),
        "found": results.summary.found if not sides.axis or results.summary.searches else [],
        "repeated": sides.repeats > 1,
        "comparison": [
            style.embed(figure, name=f"all-{name}", alt=alt)
            for name, (figure, alt) in drawings.of_all(sides.sides, data).items()
        ],
        "details": [_details(number, cell, data[cell.name]) for number, cell in enumerate(cells, 1)],
        "manifests": [
            ("Environment", compared([_shown(cell.manifest) for cell in cells])),
            ("Specification", compared([cell.spec for cell in cells])),
        ],
        "scenario": results.scenario,
        "command": results.summary.command,
        "zoomed": {*drawings.ZOOMED, "stalls"},  # panels of stalls are among the others, which shade the stalls
    }
    return page("report.html.j2", context)


def page(name: str, context: Mapping[str, Any]) -> str:
    """Return the HTML text of a template that extends page.html.j2, with the library of the charts."""
    scripts = charts.scripts()
    shared = {"library": charts.styles(), "scripts": scripts, "policy": charts.policy(scripts)}
    return _environment().get_template(name).render(**context, **shared)


# --- a series ---------------------------------------------------------------------------------------------------------


def write_overview(place: Path) -> tuple[str, Path]:
    """Write report.html of a series into its directory; return how many findings are reproduced, and the page.

    Raises
    ------
    UserMistake
        If a result set cannot be read.
    Broken
        If the page cannot be written.
    """
    failed = Series.read(place).failed
    sets = [ResultSet.read(path) for path in sets_in(place) if undated(path) not in failed]
    said = _verdict(sets)
    context = {
        "title": place.resolve().name,
        "verdict": said,
        "claims": [(one, tables.claims_table(one)) for one in sets if one.summary.claims],
        "sets": [(one, answer_of(one), _passed(one)) for one in sets],
        "failed": failed,
    }
    path = place / "report.html"
    write_atomically(path, page("overview.html.j2", context).encode())
    return said, path


def _verdict(sets: Sequence[ResultSet]) -> str:
    """Return how many findings of the sets' studies are reproduced, in words."""
    counts = Counter(row.verdict for one in sets for row in one.summary.claims)
    if not counts:
        return "no scenario has findings of a study"
    others = [f"{counts[state]} {state}" for state in ("not reproduced", "not judged") if counts[state]]
    return "; ".join([f"{counts['reproduced']} of {counts.total()} published findings reproduced", *others])


def _passed(results: ResultSet) -> str:
    passed = sum(cell.summary.passed for cell in results.cells)
    return f"{passed} of {len(results.cells)} runs valid, with all gates passed"


# --- parts of a page --------------------------------------------------------------------------------------------------


def _shown(manifest: RunManifest | None) -> dict[str, Any]:
    """Return a manifest's entries without the ids of what the run created, which differ in every run."""
    entries = manifest.to_json() if manifest else {}
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


def _details(number: int, cell: Cell, data: drawings.Data) -> dict[str, Any]:
    drawn = drawings.of_run(cell, data)
    return {
        "cell": cell,
        "anchor": f"run-{number}",
        "notes": data.notes,
        "plots": {
            name: style.embed(figure, name=f"run-{number}-{name}", alt=f"{cell.name}: {alt}")
            for name, (figure, alt) in drawn.items()
        },
        "charts": charts.embedded(cell, [drawn[name][0] for name in drawings.ZOOMED if name in drawn]),
        "ops": run_tables.ops_table(cell),
        "remarks": remarks(cell),
        "rates": [run_tables.steadiness_table(cell), run_tables.rate_stalls_table(cell)],
        "stalls": run_tables.stalls_table(frames.stalls(data.ops, cell.time), frames.STALL_FACTOR),
        "boxes": run_tables.boxes(cell),
        "durations": run_tables.durations_table(cell),
    }
