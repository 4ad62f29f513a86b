"""The page is self-contained, shows every run, and prints nothing unescaped."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from tsbench.report import charts
from tsbench.report.html import write_report
from tsbench.report.manifest import compared
from tsbench.report.metrics import MISSING
from tsbench.results.rundir import RunDir
from tsbench.results.summary import GateResult, Summary

from .synthetic import QUESTION, Shape, make_results, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.drive.webui.browser import Browser

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checker(HTMLParser):
    """Verifies the nesting of elements and the targets of references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href"}:
                self.references.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(mixed: Path) -> str:
    return write_report(mixed).read_text(encoding="utf-8")


def test_the_page_needs_nothing_from_anywhere(page: str):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert not checker.tags & {"link", "iframe", "object"}
    assert all(reference.startswith(("#", "data:")) for reference in checker.references)
    own = page.replace(charts.scripts()[0], "")  # the library's first line names its home
    assert not re.search(r"https?://|@import|url\((?!#)", own)
    assert "default-src &#39;none&#39;" in page


def test_ids_are_unique_and_every_reference_finds_one(page: str):
    checker = Checker()
    checker.feed(page)
    assert len(checker.ids) == len(set(checker.ids))
    wanted = {r.removeprefix("#") for r in checker.references if r.startswith("#")} | set(
        re.findall(r"url\(#(\w+)\)", page)
    )
    assert wanted <= set(checker.ids)


def test_stored_points_that_differ_are_shown_with_their_place(page: str):
    assert page.count("Stored points that differ from those written") == 1
    (row,) = re.findall(r"<tr><th[^>]*>partial point</th>.*?</tr>", page)
    assert "1,500 or more" in row
    assert "cpu host_7 1970-01-01T00:00:00Z: stored usage_user=3, expected nothing" in row


def test_differences_of_answers_are_shown_by_kind_and_torn_reads_apart(page: str):
    (row,) = re.findall(r"<tr><th[^>]*>stale row</th>.*?</tr>", page)
    assert "<td>12</td><td>first: lastpoint: row 4" in row
    assert page.count("<h4>Torn reads</h4>") == 1
    assert "<td>15 of 1,200 answers, 1,700 rows</td><td>first: lastpoint: a row without usage_idle</td>" in page


def test_every_run_is_shown_with_its_validity_and_reason(page: str):
    assert QUESTION in page
    for cell in ("postgres-btree", "postgres-brin", "mongodb-wide", "influxdb-native", "sqlite-wal"):
        assert f">{cell}</a>" in page
        assert f"<h3>{cell}</h3>" in page
    for reason in ("its event loop used 93% of a core", "3 answers are wrong", "failed: the server died (signal 9)"):
        assert reason in page
    assert "interrupted: the run ended before it could say how" in page
    table = page[page.index('<section id="summary">') : page.index('<section id="reading">')]
    rows = {re.findall(r'">([\w-]+)</a>', row)[0]: row for row in table.split("<tr>") if "</a>" in row}
    # brin's only doubt is that the load generator was the limit: its figures are true of the load that it offered
    assert {name for name, row in rows.items() if "struck" in row} == {"mongodb-wide", "influxdb-native"}


def test_details_hold_the_evidence(page: str):
    for text in (
        "row 4: usage_user 51.2 expected 48.9",
        "this schema stores no tags",
        "write: timeout",
        "arrivals scheduled",
        "event loop late, p99",
        "acknowledged writes are stored",
        "Stalls: seconds whose slowest op",
        "server.settings.shared_buffers",
        "[load]\nbatch = 1000",
    ):
        assert text in page


def test_what_comes_from_outside_is_escaped(tmp_path: Path):
    evil = "<script>alert(1)</script>"
    ops = (("write", "write"),)
    shape = Shape(
        cell="pg-$x$-<b>&",
        validity="invalid",
        reason=evil,
        wrong=1,
        seconds=3,
        rate=10,
        settings=((evil, evil),),
        ops=ops,
    )
    other = replace(shape, cell="pg-plain")
    text = write_report(make_results(tmp_path / "r", [shape, other])).read_text(encoding="utf-8")
    assert evil not in text
    assert "pg-$x$-&lt;b&gt;&amp;" in text
    Checker().feed(text)


def test_one_run_alone_has_a_page_without_comparison_and_the_same_one_again(single: Path):
    text = write_report(single).read_text(encoding="utf-8")
    assert write_report(single).read_text(encoding="utf-8") == text
    assert "More comparisons" not in text
    assert "1 run, closed loop, 10 users ·" in text
    assert "<strong>service times</strong>" in text
    assert "response time</th>" not in text


@pytest.mark.usefixtures("unpainted")
def test_the_directory_of_one_run_can_be_reported_on_its_own(mixed: Path, tmp_path: Path):
    shutil.copytree(mixed / "postgres-btree", tmp_path / "postgres-btree")
    path = write_report(tmp_path / "postgres-btree")
    assert path == tmp_path / "postgres-btree" / "report.html"
    assert "<h3>postgres-btree</h3>" in path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("unpainted")
def test_damaged_files_are_told_and_the_rest_is_shown(mixed: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(mixed, copy, ignore=shutil.ignore_patterns("*.partial", "*.hlog"))
    (copy / "summary.json").unlink()
    (copy / "postgres-brin" / "ops.parquet").unlink()
    (copy / "mongodb-wide" / "ops.parquet").unlink()
    (copy / "postgres-btree" / "summary.json").write_text('{"cell": ')
    (copy / "postgres-brin" / "host.parquet").write_bytes(b"no")
    (copy / "mongodb-wide" / "env.json").unlink()
    text = write_report(copy).read_text(encoding="utf-8")
    assert "postgres-btree/summary.json is damaged" in text
    assert "postgres-brin/host.parquet is damaged" in text
    assert "Nothing was left by: mongodb-wide." in text
    assert QUESTION in text


def test_a_run_that_left_only_its_specification_is_shown(tmp_path: Path):
    run = RunDir.create(tmp_path, "postgres-btree")
    run.write_json("spec.json", {"id": "postgres-btree"})
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "The run left no figures." in text


@pytest.mark.usefixtures("unpainted")
def test_a_run_that_reached_no_part_of_a_summary_is_shown(tmp_path: Path):
    run = make_run(tmp_path, Shape(cell="pg-a", seconds=2, rate=5))
    Summary(cell="pg-a").write(run)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "the run ended before its figures were checked" in text
    assert "None" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


LONG = "other processes used 1.8 of 2 cores " * 20 + "x" * 300
"""A reason of the longest kind, with a word that no line can hold."""
OUTSIDE = """(width => [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > width + 1 && e.checkVisibility() && !e.closest('.scroll, .plot, svg')
).map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40)))"""
"""A JavaScript function that returns what reaches beyond a width, but for what scrolls by itself."""

SCROLLING = """[...document.querySelectorAll('.scroll:has(> .sides)')]
  .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth)"""


@pytest.fixture(scope="module")
def longest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the longest names and reasons."""
    small = Shape(seconds=2, warmup=0, rate=150, ops=(("write", "write"), ("single-groupby-1-1-1", "query")))
    broken = GateResult("write:p99<1ms", 6e6, "fail", f"6.00 ms ({LONG})")
    shapes = [
        replace(small, cell="timescale-hypertable-load.batch=10000-users=100"),
        replace(small, cell="postgres-btree-users-1000", gates=(broken,), settings=((LONG, LONG),)),
        replace(small, cell="s" * 150, validity="inconclusive", limited_by="load generator", reason=LONG,
                gates=(broken,)),
        replace(small, cell="sqlite-wal", validity="invalid", reason=LONG, wrong=1, state="failed", error=LONG),
    ]  # fmt: skip
    return write_report(make_results(tmp_path_factory.mktemp("longest") / "r", shapes))


@pytest.mark.chromium
@pytest.mark.parametrize("width", [1_300, 390])
def test_nothing_is_wider_than_the_page_folded_or_not(longest: Path, chromium: Browser, width: int):
    chromium.go(f"file://{longest}")
    chromium.resize(width, 900)
    for _ in ("folded", "open"):
        assert chromium.ask(f"{OUTSIDE}({width})") == []
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        assert chromium.ask(f"{SCROLLING}.length") == 0, "the head's table is read without scrolling"
        chromium.ask("document.querySelectorAll('details').forEach(one => { one.name = ''; one.open = true })")
    assert not chromium.errors


@pytest.mark.chromium
def test_a_link_of_the_head_opens_the_run_that_it_leads_to(longest: Path, chromium: Browser):
    chromium.go(f"file://{longest}")
    assert chromium.ask("[...document.querySelectorAll('#runs details')].filter(one => one.open).length") == 0
    chromium.click("document.querySelectorAll('#summary .sides a')[1]")
    chromium.until("document.querySelector('#run-2').closest('details').open", "the run to unfold")


def test_the_words_of_the_page_are_explained_on_it(page: str):
    reading = page[
        page.index('<section id="reading">') : page.index("</section>", page.index('<section id="reading">'))
    ]
    for word in ("valid", "invalid", "inconclusive", "Gates", "not judged", "Limited by"):
        assert f"<em>{word}</em>" in reading
    assert "p99 is the 99th percentile" in reading


def test_the_template_is_part_of_the_package():
    assert all((files("tsbench.report") / f"{name}.html.j2").is_file() for name in ("page", "report", "history"))


def test_manifests_are_split_into_what_is_common_and_what_differs():
    contents: list[dict[str, object]] = [
        {"a": {"b": 1, "c": [1, 2]}, "memory_bytes": 8_000_000_000},
        {"a": {"b": 2, "c": [1, 2], "d": None}},
        {},
    ]
    found = compared(contents)
    assert found.common == {"a.c": "1, 2", "a.d": MISSING}
    assert found.differing == {"a.b": ["1", "2", MISSING], "memory_bytes": ["8.00 GB", MISSING, MISSING]}
    assert found.silent == (2,)


@pytest.mark.usefixtures("unpainted")
def test_the_page_says_how_many_of_the_loads_answers_were_checked(tmp_path: Path):
    make_run(tmp_path, Shape(cell="pg-a", seconds=2, rate=5))
    text = re.sub(r"<[^>]+>", " ", write_report(tmp_path).read_text(encoding="utf-8"))
    assert re.search(r"of the measured load\s+1,000 of 81,300", text)
