"""A ramp is complete if a gate of the scenario failed on valid figures and a lower load held."""

from __future__ import annotations

import pytest

from tsbench.model import Verdict
from tsbench.results.summary import SERVER_DEATHS, GateResult, Summary, Validity
from tsbench.study.campaign import is_knee

ASKED = GateResult("write:p99<50ms", 9e7, "fail", "90.0 ms")
FAILED_OPS = GateResult("failed ops<=0%", 0.1, "fail", "10 %", built_in=True)
DEATH = GateResult(SERVER_DEATHS, 1.0, "fail", "the server died", built_in=True)
MISSING = GateResult("bytes/point<1", None, "not judged", "the size of the data is not known")
WRONG = {"answers": Verdict(False, "3 answers are wrong")}
CLIENT = {"limit": Verdict(None, "the load generator was the limit")}
HELD = Summary(cell="held", validity=Validity("valid"))


def cell(*gates: GateResult, **checks: Verdict) -> Summary:
    validity = Validity.of({"counts": Verdict(True), **checks})
    return Summary(cell="last", validity=validity, gates=tuple(gate.under(validity) for gate in gates))


@pytest.mark.parametrize(
    ("last", "found"),
    [
        (cell(ASKED), True),
        (cell(ASKED, FAILED_OPS), True),
        (cell(FAILED_OPS), False),
        (cell(ASKED, DEATH), False),
        (cell(DEATH), False),
        (cell(ASKED, MISSING), False),
        (cell(MISSING), False),
        (cell(ASKED, **WRONG), False),
        (cell(ASKED, **CLIENT), False),
    ],
    ids=[
        "the gate",
        "the gate, and ops failed",
        "only ops failed",
        "the gate, and the server died",
        "only the server died",
        "the gate, and one not judged",
        "only one not judged",
        "wrong answers",
        "the client was the limit",
    ],
)
def test_the_end_of_a_ramp_is_its_knee_only_if_the_gate_failed_as_sought(last: Summary, found: bool):
    assert is_knee([HELD, last], last) is found
    assert not is_knee([last], last), "no lower load held"
