"""The Markdown summary: tables in GitHub's form, all figures of the other tables, and no links."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tsbench.report import markdown
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.metrics import MISSING, used_columns
from tsbench.results.summary import GateResult

from .synthetic import QUESTION, Shape, make_results
from .test_junit import GATES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def page(mixed: Path) -> str:
    return markdown.document([ResultSet.read(mixed)])


def tables(page: str) -> list[list[list[str]]]:
    """The cells of every table."""
    blocks = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    return [[re.split(r"(?<!\\)\|", line)[1:-1] for line in block] for block in blocks]


def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: str):
    for table in tables(page):
        assert {len(row) for row in table} == {len(table[0])}
        assert all(re.fullmatch(r" -{3}:? ", cell) for cell in table[1])


def all_figures(page: str) -> list[list[str]]:
    """The rows of the folded table of all figures."""
    return [row for table in tables(page) if "validity" in table[0][1] for row in table[2:]]


def test_outside_the_folds_are_verdicts_the_answer_and_at_most_six_columns(page: str):
    shown = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    verdicts, sides = tables(shown)
    assert verdicts[2] == [" **invalid** ", " figures are valid ", " 1 of 5 ", " mongodb-wide: 3 answers are wrong "]
    assert len(sides[0]) == 6
    assert (
        page.index("figures are valid")
        < page.index("\n- **Invalid**: mongodb-wide does not count (3 answers are wrong).")
        < page.index("<details>")
    )


def test_gates_of_several_runs_are_one_row_each_with_the_worst_outcome(tmp_path: Path):
    shape = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5, gates=GATES)
    better = replace(GATES[2], state="undecided", text="8.00 ms; too few")
    other = replace(shape, cell="sqlite-truncate", gates=(*GATES[:2], better, GATES[3]))
    found = ResultSet.read(make_results(tmp_path / "r", [shape, other]))
    ratio = GateResult("write:p99<1.1x", 1.3, "undecided", "1.3 times the baseline (0.9 to 1.7)")
    page = markdown.document([replace(found, ratios=(("sqlite-wal", ratio),))])
    rows = [[cell.strip() for cell in row] for row in tables(page)[0][2:]]
    assert rows == [
        ["valid", "figures are valid", "2 of 2", MISSING],
        ["pass", "`write:p99<50ms`", "2 of 2", MISSING],
        ["**fail**", "`query:p95<2ms`", "1 of 2", "sqlite-wal: 9.00 ms"],
        ["**not judged**", "`other:p99<1s`", "2 of 2", "sqlite-wal: no other ended"],
        ["**undecided**", "`write:p99<1.1x`", "1 of 1", "1.3 times the baseline (0.9 to 1.7)"],
    ]


def test_it_has_every_run_with_its_validity_gates_and_figures(page: str, mixed: Path):
    cells = load_cells(mixed)
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in all_figures(page)}
    assert list(rows) == [f"`{cell.name}`" for cell in cells]
    valid = rows["`postgres-btree`"]
    assert valid[:3] == ["valid", "none", "database"]
    assert valid[-len(used_columns(cells)) :] == [column.text(cells[0]) for column in used_columns(cells)]
    assert rows["`mongodb-wide`"][0] == "**invalid**"
    assert rows["`postgres-brin`"][0] == "**inconclusive**"


def test_figures_of_runs_that_are_not_valid_are_struck_out_and_missing_ones_are_dashes(page: str, mixed: Path):
    rows = {row[0].strip(): [cell.strip() for cell in row[4:]] for row in all_figures(page)}
    assert all(text.startswith("~~") for text in rows["`mongodb-wide`"])
    assert not any("~" in text for text in rows["`postgres-btree`"])
    assert set(rows["`sqlite-wal`"]) == {MISSING}
    assert "those that are not valid are struck out" in page


def test_it_says_the_question_the_time_and_why_a_run_is_not_valid(page: str):
    assert QUESTION in page
    assert "p50, p99 and max are response times (open, 10 users)" in page
    assert "- `mongodb-wide` **invalid**: 3 answers are wrong" in page


def test_gates_have_a_table(tmp_path: Path):
    shape = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5)
    results = make_results(tmp_path / "r", [shape])
    assert len(tables(markdown.document([ResultSet.read(results)]))[0]) == 3
    results = make_results(tmp_path / "r", [replace(shape, gates=GATES)])
    gates, *_ = tables(markdown.document([ResultSet.read(results)]))
    assert [[cell.strip() for cell in row] for row in gates[3:]] == [
        ["pass", "`write:p99<50ms`", "1 of 1", "4.00 ms"],
        ["**fail**", "`query:p95<2ms`", "1 of 1", "9.00 ms"],
        ["**not judged**", "`other:p99<1s`", "1 of 1", "no other ended"],
    ]


def test_no_text_of_a_server_is_markup_a_link_or_a_mention(tmp_path: Path):
    nasty = "a | b `x` @someone #1 https://example.org <img src=x>\n| --- |\n[l](http://x) " + "long " * 200
    results = make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2, validity="invalid", reason=nasty)])
    found = ResultSet.read(results)
    cells = tuple(replace(cell, name="a|b`c") for cell in found.cells)
    page = markdown.document([replace(found, name=nasty, question=nasty, cells=cells)])
    outside = re.sub(r"`[^`\n]*`", "", page)
    for mark in ("@", "#1", "http", "<img", "]("):
        assert mark not in outside
    assert page.count("`") % 2 == 0
    for table in tables(page):
        assert {len(row) for row in table} == {len(table[0])}
    assert max(map(len, page.splitlines())) < 1_500


def test_several_result_sets_are_sections_of_one_page(mixed: Path, single: Path):
    page = markdown.document(
        [replace(ResultSet.read(path), name=name) for path, name in ((mixed, "one"), (single, "two"))]
    )
    assert re.findall(r"^### .*$", page, re.MULTILINE) == ["### tsbench: `one`", "### tsbench: `two`"]
