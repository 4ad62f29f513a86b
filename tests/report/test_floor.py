"""The client's floor is shown beside the latencies that are near it, wherever figures are printed."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tsbench.report import markdown, view
from tsbench.report.cells import load_cells
from tsbench.report.html import write_report
from tsbench.report.metrics import floor_texts
from tsbench.report.table import print_summary

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three ops with medians of some 3 ms: one near its floor, one far from it, one whose floor is not known."""
    place = make_results(tmp_path / "results", [Shape()])
    (path,) = place.glob("*/summary.json")
    content = json.loads(path.read_text())
    medians = {name: op["service_ns"]["p50"] for name, op in content["measured"]["ops"].items()}
    content["client_floor_ns"] = {"write": medians["write"] // 2, "lastpoint": medians["lastpoint"] // 6}
    path.write_text(json.dumps(content))
    return place


def test_only_medians_below_five_times_the_floor_are_named(results: Path) -> None:
    (cell,) = load_cells(results)
    (text,) = floor_texts(cell)
    assert text.startswith("the client's floor for write is 1.")
    assert "its median service time here is " in text


def test_console_page_and_markdown_show_the_same_text(results: Path) -> None:
    cells = load_cells(results)
    (text,) = floor_texts(cells[0])
    out = io.StringIO()
    print_summary(Console(file=out, width=200), results)
    assert f"{cells[0].name}: {text}." in out.getvalue()
    assert text in markdown.document([("quickstart", "", cells)])
    page = write_report(results).read_text()
    assert text[1:].replace("'", "&#39;") in page
    far = view.text_of(cells[0].summary["client_floor_ns"]["lastpoint"], "ns")
    assert ("the client's floor for lastpoint", far) in view.facts(cells[0], "limit")


def test_runs_without_floors_say_nothing(tmp_path: Path) -> None:
    results = make_results(tmp_path / "results", [Shape()])
    out = io.StringIO()
    print_summary(Console(file=out, width=200), results)
    assert "floor" not in out.getvalue()
    assert "floor" not in write_report(results).read_text()
