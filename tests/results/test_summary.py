"""Validity and gates: what strikes figures out, and what fails a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.model import Verdict
from tsbench.results.rundir import FORMAT, RunDir
from tsbench.results.summary import SERVER_DEATHS, GateResult, Summary, Validity

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Verdict(True)
PASSED = GateResult("write:p99<50ms", 4e6, "pass", "4.00 ms")
FAILED = GateResult("query:p95<2ms", 9e6, "fail", "9.00 ms")
MISSING = GateResult("other:p99<1s", None, "not judged", "no other ended")
DIED = GateResult(SERVER_DEATHS, 1.0, "fail", "the server died", built_in=True)


def summary(*gates: GateResult, **checks: Verdict) -> Summary:
    found = Validity.of({"answers": GOOD, **checks})
    return Summary(cell="a", validity=found, gates=tuple(gate.under(found) for gate in gates), loop="closed")


def test_a_run_passes_if_it_is_valid_and_every_gate_passed():
    assert summary().passed
    assert summary(PASSED).passed
    assert summary(PASSED, PASSED).headline == "valid, all 2 gates passed"
    assert summary(PASSED).headline == "valid, the gate passed"


def test_gates_that_nobody_asked_for_are_not_counted_while_they_hold():
    alive = replace(DIED, state="pass", text="the server was alive to the end")
    assert summary(alive).headline == "valid"
    assert summary(alive, PASSED).headline == "valid, the gate passed"
    assert summary(DIED, PASSED).headline == f"valid, but {DIED.sentence}"


@pytest.mark.parametrize("bad", [FAILED, MISSING, DIED], ids=["failed", "figure missing", "server died"])
def test_a_gate_that_did_not_pass_fails_the_run_and_leaves_its_figures_valid(bad):
    found = summary(PASSED, bad)
    assert not found.passed
    assert found.validity.is_valid
    assert found.validity.stands
    assert found.headline == f"valid, but {bad.sentence}"


@pytest.mark.parametrize(
    ("checks", "state"),
    [
        ({"answers": Verdict(False, "3 answers are wrong")}, "invalid"),
        ({"writes": Verdict(False, "2 points are lost")}, "invalid"),
        ({"counts": Verdict(False, "they disagree")}, "invalid"),
        ({"workers": Verdict(False, "1 of 2 workers ended early")}, "invalid"),
        ({"limit": Verdict(None, "the load generator was the limit")}, "inconclusive"),
        ({"limit": Verdict(None, "the client"), "writes": Verdict(False, "lost")}, "invalid"),
    ],
)
def test_a_wrong_check_strikes_the_figures_and_with_an_undecided_one_no_gate_passes(checks, state):
    found = summary(PASSED, FAILED, **checks)
    assert found.validity.state == state
    assert found.validity.stands == (state == "inconclusive"), "the load generator's limit takes nothing from them"
    assert {gate.state for gate in found.gates} == {"not judged"}
    assert not found.passed
    assert found.headline.startswith(f"{state}: ")


def test_a_gate_that_was_not_judged_keeps_its_reason():
    once = PASSED.under(Validity("invalid"))
    assert once.text == "4.00 ms, but the run is invalid"
    assert once.under(Validity("inconclusive")) == once
    assert MISSING.under(Validity("invalid")) == MISSING


def test_a_dead_server_is_told_even_where_the_run_is_not_valid():
    found = summary(PASSED, DIED, answers=Verdict(False, "wrong"))
    assert [gate.state for gate in found.gates] == ["not judged", "fail"]
    assert "the server died" in found.headline


@pytest.mark.parametrize(
    ("checks", "stands"),
    [
        ({"answers": True, "limit": True}, True),
        ({"answers": True, "limit": None}, True),  # true of the load that the generator offered
        ({"answers": None, "limit": None}, False),
        ({"answers": None, "limit": True}, False),
        ({"answers": False, "limit": None}, False),
    ],
)
def test_figures_stand_unless_something_beside_the_load_generators_limit_is_in_doubt(checks: Any, stands: bool):
    assert Validity.of({name: Verdict(valid) for name, valid in checks.items()}).stands == stands
    assert not Validity("inconclusive").stands, "of a run that broke off nothing was checked"


def test_a_summary_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    run = RunDir.create(tmp_path, "a")
    written = summary(PASSED, FAILED, limit=Verdict(True, "", {"seen": 3}))
    written.write(run)
    assert run.read_json("summary.json")["format"] == FORMAT == 3
    assert Summary.read(run) == written
    assert Summary.read(run).to_json() == written.to_json()


def test_a_summary_that_says_nothing_is_inconclusive():
    found = Summary(cell="a")
    assert found.validity.state == "inconclusive"
    assert not found.passed
