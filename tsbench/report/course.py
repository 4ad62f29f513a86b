"""Texts of the page about the course of a run: how long its phases took, and when its rate had settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.measure.settling import MOST_RANGE, MOST_RISE
from tsbench.measure.steadiness import TOLERATED_DRIFT
from tsbench.report.cells import lookup
from tsbench.report.view import text_of
from tsbench.results.durations import PHASES, Durations

if TYPE_CHECKING:
    from tsbench.report.cells import Cell


def duration_rows(cell: Cell) -> list[tuple[str, str, str]]:
    """Return how long the run took and each of its phases, with their shares; none for results without them."""
    found = Durations.from_json(cell.summary.get("durations_s"))
    total_s = found.total_s
    if not total_s:
        return []
    rows = [
        (PHASES[name].label, text_of(taken_s, "s"), f"{taken_s / total_s:.0%}") for name, taken_s in found.in_order()
    ]
    return [("the whole run, up to the end of its checks", text_of(total_s, "s"), ""), *rows]


def warmup_rows(cell: Cell) -> list[tuple[str, str]]:
    """Return by which figures a warm-up ended that looked for a steady rate; none for a warm-up of fixed length."""
    warmup = lookup(cell.summary, ("warmup",))
    if not isinstance(warmup, dict):
        return []
    after = text_of(warmup.get("duration_s"), "s")
    rows = [("the rate settled", f"after {after}" if warmup.get("settled") else f"never, within {after}")]
    if warmup.get("tested_s"):
        rows += [(label, _figure(warmup.get(key), key)) for key, label in _TESTED.items()]
    return rows


_TESTED = {
    "tested_s": "judged by its last",
    "ops_per_s": "ops/s in these",
    "range": f"highest less lowest of five rounds (at most {MOST_RANGE:.0%})",
    "rise": f"rise over the rounds (at most {MOST_RISE:.0%})",
    "drift": f"drift in the measured window, by the trend (at most {TOLERATED_DRIFT:.0%})",
}


def _figure(value: object, key: str) -> str:
    if key in {"tested_s", "ops_per_s"} or not isinstance(value, int | float):
        return text_of(value, "s" if key == "tested_s" else "count")
    return f"{value:.1%}" if key == "range" else f"{value:+.1%}"
