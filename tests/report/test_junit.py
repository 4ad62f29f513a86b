"""JUnit XML: well-formed for any messages of servers, a case per check and gate, nothing doubtful counted as passed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.report import junit
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.metrics import COMPARED
from tsbench.results.summary import GateResult, Summary

from .synthetic import ALIVE, Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

GATES = (
    ALIVE,
    GateResult("write:p99<50ms", 4e6, "pass", "4.00 ms"),
    GateResult("query:p95<2ms", 9e6, "fail", "9.00 ms"),
    GateResult("other:p99<1s", None, "not judged", "no other ended"),
)


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    return make_results(tmp_path / "r", [Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5, gates=GATES)])


def named(name: str, results: Path) -> ResultSet:
    return replace(ResultSet.read(results), name=name)


def of_cell(scenario: str, results: Path, **changes: Any) -> str:
    """Return the XML of a set whose only run is changed."""
    found = named(scenario, results)
    return junit.document([replace(found, cells=(replace(found.cells[0], **changes),))])


def cases(text: str) -> dict[tuple[str, str], str]:
    """Return the result of each case."""
    root = ET.fromstring(text)  # our own
    return {
        (case.get("classname", ""), case.get("name", "")): (case[0].tag if len(case) else "pass")
        for case in root.iter("testcase")
    }


def test_there_is_a_suite_per_scenario_and_a_case_per_run_and_check(mixed: Path):
    other = named("other", mixed)
    root = ET.fromstring(junit.document([named("quickstart", mixed), replace(other, cells=other.cells[:1])]))
    assert [suite.get("name") for suite in root] == ["quickstart", "other"]
    assert root[0].get("timestamp") == "2026-11-20T10:15:00"
    names = [case.get("name") for case in root[1].iter("testcase")]
    assert names == ["answers", "writes", "counts", "limit", "ops", "gate server deaths<=0"]
    assert {case.get("classname") for case in root[0].iter("testcase")} == {
        f"quickstart.{cell.name}" for cell in load_cells(mixed)
    }


def test_what_is_invalid_is_a_failure_and_what_is_inconclusive_an_error(mixed: Path):
    found = cases(junit.document([named("q", mixed)]))
    assert found["q.postgres-btree", "answers"] == "pass"
    assert found["q.mongodb-wide", "answers"] == "failure"
    assert found["q.postgres-brin", "limit"] == "error"


def test_a_run_that_broke_off_has_an_error_with_its_reason(mixed: Path):
    text = junit.document([named("q", mixed)])
    found = cases(text)
    assert found["q.influxdb-native", "run"] == "error"
    assert found["q.sqlite-wal", "run"] == "error"
    assert "the server died (signal 9)" in text
    assert "the run ended before it could say how" in text


def test_each_gate_is_a_case_and_a_failed_one_is_a_failure_of_its_own(gated: Path):
    found = cases(junit.document([named("q", gated)]))
    assert found["q.sqlite-wal", "gate write:p99<50ms"] == "pass"
    assert found["q.sqlite-wal", "gate query:p95<2ms"] == "failure"
    assert found["q.sqlite-wal", "gate other:p99<1s"] == "error"
    assert found["q.sqlite-wal", "gate server deaths<=0"] == "pass"
    assert [name for (_, name), what in found.items() if what == "failure"] == ["gate query:p95<2ms"]


def test_the_time_of_a_run_and_its_figures_are_in_the_suite(gated: Path):
    cell = ResultSet.read(gated).cells[0]
    summary = cell.summary.model_copy(update={"durations_s": {"total": 21.75, "load": 1.5, "measure": 20.25}})
    (suite,) = ET.fromstring(of_cell("q", gated, summary=summary))
    assert suite.get("time") == "21.750"
    assert sum(float(case.get("time", "nan")) for case in suite.iter("testcase")) == 21.75
    told = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert "Example CPU 2.5 GHz, 16 cores" in str(told["machine"])
    assert float(str(told["sqlite-wal.write_p50_ns"])) == COMPARED["write_p50_ns"].value(cell)


def test_a_gate_on_the_ratio_to_a_baseline_is_a_case(gated: Path):
    ratios = (("sqlite-wal", GateResult("write:p99<1.1x", 1.3, "fail", "1.3 times the baseline (1.2 to 1.4)")),)
    text = junit.document([replace(named("q", gated), ratios=ratios)])
    assert cases(text)["q.sqlite-wal", "gate write:p99<1.1x"] == "failure"
    assert "1.3 times the baseline (1.2 to 1.4)" in text


def test_the_counts_are_those_of_the_cases(mixed: Path, gated: Path):
    root = ET.fromstring(junit.document([named("a", mixed), named("b", gated)]))
    for element in (root, *root):
        counted = [len(list(element.iter(tag))) for tag in ("testcase", "failure", "error")]
        assert [int(element.get(name, "-1")) for name in ("tests", "failures", "errors")] == counted


def test_no_text_of_a_server_makes_the_xml_malformed(tmp_path: Path):
    nasty = "]]> <b> & \" ' \x00 \x1b[31m \ufffe \U0001f4a5"
    results = make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2, validity="invalid", reason=nasty)])
    root = ET.fromstring(of_cell(nasty, results, name=nasty))
    (failure,) = root.iter("failure")
    assert failure.get("message", "").startswith("]]> <b> & \" ' \N{REPLACEMENT CHARACTER}")
    assert "\U0001f4a5" in (failure.text or "")


def test_a_set_with_an_edited_start_is_valid_junit(tmp_path: Path):
    results = make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2)])
    summary = load_cells(results)[0].summary.model_copy(update={"started": "soon"})
    root = ET.fromstring(of_cell("q", results, summary=summary))
    assert root[0].get("timestamp") is None


def test_a_run_without_a_summary_is_not_passed_over(tmp_path: Path):
    results = make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2)])
    assert cases(of_cell("q", results, summary=Summary(cell="postgres-btree"))) == {
        ("q.postgres-btree", "run"): "error"
    }
