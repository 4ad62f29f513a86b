"""A database that cannot keep up with the rate asked for is named first, and its response times are no factor."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tsbench.report import comparison, junit, markdown
from tsbench.report.answer import answer
from tsbench.report.cells import Cell, ResultSet, load_cells
from tsbench.report.console import print_summary
from tsbench.report.head import head_of
from tsbench.report.html import write_report
from tsbench.report.metrics import MISSING
from tsbench.report.sides import sides_of
from tsbench.results.rundir import RunDir, write_json

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

USERS = 10


def behind(run: RunDir, queued: int) -> None:
    """Change a run's summary to one whose database stayed so many ops behind its schedule."""
    content = run.read_json("summary.json")
    ended = sum(sum(op[key] for key in ("ok", "failed", "unknown", "partial")) for op in _kinds(content))
    arrivals = {"scheduled": ended + queued, "done": ended, "late": queued, "generator_late": 0}
    write_json(run / "summary.json", {**content, "schedule": {**arrivals, "dropped": 0, "unfinished": 0}})


def _kinds(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [content["measured"][kind] for kind in ("write", "query")]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two databases, of which the second was asked for 40 ops/s, did 20 and was 1,600 ops behind at the end."""
    shapes = [
        Shape(cell=cell, seconds=80, warmup=0, rate=5, typical_ms=typical, labels=(("target", cell),))
        for cell, typical in (("postgres", 3.0), ("questdb", 900.0))
    ]
    made = make_results(tmp_path / "set", shapes)
    behind(RunDir(made / "questdb"), 1_600)
    return made


def test_a_side_that_stays_behind_is_named_first_with_asked_and_done_rates_and_without_a_factor(results: Path):
    found = sides_of(load_cells(results))
    said = answer(found)
    (rates,) = next(side for side in found.sides if side.name == "questdb").overloads
    assert rates.asked_per_s == pytest.approx(rates.done_per_s + 20)
    asked, done = f"{rates.asked_per_s:.1f}", f"{rates.done_per_s:.1f}"
    assert said[0] == (
        f"Overloaded: questdb could not keep up: of {asked} ops/s asked for it did {done}; its queue grew to 1,600."
    )
    timed = [line for line in said if line.startswith(("Writes", "Queries"))]
    assert [line.split(" ")[1] for line in timed] == ["postgres", "postgres"]
    assert not any("times" in line or "questdb" in line for line in timed)


def test_the_first_table_has_both_rates_and_says_what_the_times_of_such_a_side_are(results: Path):
    head = head_of(sides_of(load_cells(results)))
    assert head.titles[:2] == ("asked, ops/s", "done, ops/s")
    rows = {row.name: row for row in head.rows}
    assert (rows["postgres"].verdict.text, rows["questdb"].verdict.text) == ("valid", "overloaded")
    times = [entry for title, entry in zip(head.titles, rows["questdb"].entries, strict=True) if "p99" in title]
    assert [str(entry[1]) for entry in times if isinstance(entry, tuple)] == ["its queue grew"] * 2
    ratios = {row.name: row for row in head.ratios["postgres"]}["questdb"]
    shown = [str(entry) for title, entry in zip(head.titles, ratios.entries, strict=True) if "p99" in title]
    assert shown == [MISSING] * 2


def test_terminal_page_markdown_and_junit_say_it(results: Path):
    (line,) = [line for line in answer(sides_of(load_cells(results))) if line.startswith("Overloaded")]
    text = line.partition(": ")[2]
    out = io.StringIO()
    print_summary(Console(file=out, width=1_000), results)
    found = [ResultSet.read(results)]
    for page in (out.getvalue(), write_report(results).read_text(), markdown.document(found), junit.document(found)):
        assert text in page


def test_the_terminals_table_has_both_rates_of_one_run_and_of_the_median_of_several(tmp_path: Path):
    for repeats in (1, 3):
        shapes = [
            Shape(cell=f"questdb{f'-round={n}' * (repeats > 1)}", seconds=80, warmup=0, rate=5, typical_ms=900, seed=n,
                  labels=(("target", "questdb"), *((("round", str(n)),) if repeats > 1 else ())))
            for n in range(1, repeats + 1)
        ]  # fmt: skip
        made = make_results(tmp_path / f"set-{repeats}", shapes)
        for shape in shapes:
            behind(RunDir(made / shape.cell), 1_600)
        out = io.StringIO()
        print_summary(Console(file=out, width=400), made)
        asked, done = (load_cells(made)[0].summary.asked_ops_per_s, load_cells(made)[0].summary.done_ops_per_s)
        assert asked == pytest.approx((done or 0) + 20)
        (row,) = [line for line in out.getvalue().splitlines() if line.startswith("questdb") and "valid" in line]
        assert "database (overloaded)" in row
        assert f"{asked:.1f}".removesuffix(".0") in row
        assert f"{done:.1f}".removesuffix(".0") in row


def test_compare_takes_no_time_of_such_a_side(results: Path):
    (pair,) = comparison.pairs(results / "postgres", results / "questdb")
    found = comparison.compare(*pair)
    assert not [one.figure for one in found.findings if "p99" in one.figure]
    assert any("1 of 2 runs could not keep up with the rate asked for" in note for note in found.notes)


@pytest.mark.parametrize(
    ("queued", "changes"),
    [(USERS, {}), (7, {}), (1_600, {"limited_by": "load generator"}), (1_600, {"limited_by": "nothing"})],
)
def test_a_run_that_keeps_up_is_not_called_overloaded(results: Path, queued: int, changes: dict[str, Any]):
    behind(RunDir(results / "questdb"), queued)
    cell = next(cell for cell in load_cells(results) if cell.name == "questdb")
    assert with_summary(cell, **changes).overload is None


def test_a_closed_loop_is_never_overloaded(results: Path):
    cell = next(cell for cell in load_cells(results) if cell.name == "questdb")
    assert cell.overload is not None
    assert with_summary(cell, loop="closed", schedule=None).overload is None


def with_summary(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, summary=cell.summary.model_copy(update=changes))


def test_a_ramp_says_the_lowest_rate_at_which_a_side_stays_behind(tmp_path: Path):
    shapes = [
        Shape(
            cell=f"questdb-rate={rate}",
            seconds=80,
            warmup=0,
            rate=5,
            typical_ms=900.0,
            labels=(("target", "questdb"), ("drive.rate", str(rate))),
        )
        for rate in (100, 200, 400)
    ]
    results = make_results(tmp_path / "set", shapes)
    for run in ("questdb-rate=200", "questdb-rate=400"):
        behind(RunDir(results / run), 1_600)
    said = answer(sides_of(load_cells(results)))
    assert said[0].startswith("Overloaded: questdb at a rate of 200 could not keep up")
    assert json.dumps(said).count("Overloaded") == 1
