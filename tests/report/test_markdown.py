"""The Markdown summary: tables in GitHub's form, all figures of the other tables, and no links."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tsbench.report import markdown
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.metrics import MISSING, used_columns

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


def test_it_has_every_run_with_its_validity_gates_and_figures(page: str, mixed: Path):
    cells = load_cells(mixed)
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in tables(page)[0][2:]}
    assert list(rows) == [f"`{cell.name}`" for cell in cells]
    valid = rows["`postgres-btree`"]
    assert valid[:3] == ["valid", "pass", "database"]
    assert valid[-len(used_columns(cells)) :] == [column.text(cells[0]) for column in used_columns(cells)]
    assert rows["`mongodb-wide`"][0] == "**invalid**"
    assert rows["`postgres-brin`"][0] == "**inconclusive**"


def test_figures_of_runs_that_are_not_valid_are_struck_out_and_missing_ones_are_dashes(page: str, mixed: Path):
    rows = {row[0].strip(): [cell.strip() for cell in row[4:]] for row in tables(page)[0][2:]}
    assert all(text.startswith("~~") for text in rows["`mongodb-wide`"])
    assert not any("~" in text for text in rows["`postgres-btree`"])
    assert set(rows["`sqlite-wal`"]) == {MISSING}
    assert "figures of runs that are not valid are struck out" in page


def test_it_says_the_question_the_time_and_why_a_run_is_not_valid(page: str):
    assert QUESTION in page
    assert "1 of 5 runs valid with all gates passed." in page
    assert "p50, p99 and max are response times (open, 10 users)" in page
    assert "- `mongodb-wide` **invalid**: `3 answers are wrong`" in page


def test_gates_have_a_table(tmp_path: Path):
    shape = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5)
    results = make_results(tmp_path / "r", [shape])
    assert len(tables(markdown.document([ResultSet.read(results)]))) == 1
    results = make_results(tmp_path / "r", [replace(shape, gates=GATES)])
    _, gates = tables(markdown.document([ResultSet.read(results)]))
    assert [[cell.strip() for cell in row] for row in gates[2:]] == [
        ["`sqlite-wal`", "`write:p99<50ms`", "pass", "`4.00 ms`"],
        ["`sqlite-wal`", "`query:p95<2ms`", "**fail**", "`9.00 ms`"],
        ["`sqlite-wal`", "`other:p99<1s`", "**not judged**", "`no other ended`"],
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
