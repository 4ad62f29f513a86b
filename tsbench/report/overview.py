"""The page of a series: scenarios that one command ran, beginning with what became of the findings of their studies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tsbench.report.answer import answer
from tsbench.report.html import page
from tsbench.report.sides import sides_of
from tsbench.report.tables import claims_table
from tsbench.results.rundir import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.report.cells import ResultSet


def write_overview(place: Path, sets: Sequence[ResultSet], failed: Mapping[str, str]) -> Path:
    """Write report.html of a series into its directory, and return it; `failed` has by name why scenarios were not run.

    Raises
    ------
    Broken
        If the page cannot be written.
    """
    context = {
        "title": place.resolve().name,
        "verdict": verdict(sets),
        "claims": [(one, claims_table(one)) for one in sets if one.summary.claims],
        "sets": [(one, answer(sides_of(one.cells)), _passed(one)) for one in sets],
        "failed": failed,
    }
    path = place / "report.html"
    write_atomically(path, page("overview.html.j2", context).encode())
    return path


def verdict(sets: Sequence[ResultSet]) -> str:
    """Return how many findings of the sets' studies are reproduced, in words."""
    found = Counter(row.verdict for one in sets for row in one.summary.claims)
    if not found:
        return "no scenario has findings of a study"
    others = [f"{found[state]} {state}" for state in ("not reproduced", "not judged") if found[state]]
    return "; ".join([f"{found['reproduced']} of {found.total()} published findings reproduced", *others])


def _passed(found: ResultSet) -> str:
    passed = sum(cell.summary.passed for cell in found.cells)
    return f"{passed} of {len(found.cells)} runs valid, with all gates passed"
