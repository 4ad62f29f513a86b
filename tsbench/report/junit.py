"""Result sets as JUnit XML, for CI servers: a suite per set with its properties, a case per run and check.

The first case of a run has the time that the run took, in s. Properties are the machine, the answer, and the figures of
each run. Gates on the ratio to a baseline are cases, too, of the cell whose runs they judge; so is whether databases
agree on answers without gold.
Each check of a run's validity and each of its gates, built-in ones included, is a case. A check that found an error,
and a gate that failed, is a `failure`. An inconclusive check, and a gate that was not judged, is an `error`, JUnit's
word for a test that could not be carried out: a CI server must not count it as passed. A run that ended early has a
case `run` with an error of its own, so that every run has a case. A gate that is undecided, since the ops were too few
for its statistical test, is `skipped`: it fails nothing, and a CI server shows it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tsbench.report.answer import answer_of
from tsbench.report.head import machine
from tsbench.report.metrics import COMPARED, load_text
from tsbench.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.report.cells import Cell, ResultSet
    from tsbench.results.summary import GateResult

_TAGS = {
    "valid": "pass",
    "pass": "pass",
    "invalid": "failure",
    "fail": "failure",
    "undecided": "skipped",
    "inconclusive": "error",
    "not judged": "error",
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def document(sets: Sequence[ResultSet]) -> str:
    """Return the XML of result sets, each with its scenario's name and its runs."""
    root = ET.Element("testsuites", name="tsbench")
    for roots in sets:
        suite = ET.SubElement(root, "testsuite", name=printable(roots.name))
        started = min((time[0] for cell in roots.cells if (time := _TIME.match(cell.started))), default="")
        if started:
            suite.set("timestamp", started)  # JUnit's schema allows no zone; ours are UTC
        _add_properties(suite, roots)
        for cell in roots.cells:
            lines = [f"run: {cell.name} ({load_text(cell)})", f"limited by: {cell.limit_text}"]
            took_s = _took_s(cell)
            for number, case in enumerate(cases(cell)):
                _add_case(suite, f"{roots.name}.{cell.name}", case, lines, 0.0 if number else took_s)
        for side, gate in roots.ratios:
            _add_case(suite, f"{roots.name}.{side}", _case_of(gate), [f"cell: {side}"], 0.0)
        for one in roots.summary.agreements:
            if one.differ or (one.is_proof and not one.against_gold):
                state = "invalid" if one.differ else "valid"
                case = Case(f"answers to {one.kind} agree", _TAGS[state], state, one.sentence)
                _add_case(suite, roots.name, case, [], 0.0)
        for text in roots.summary.weak:
            case = Case("evidence for the answers", _TAGS["invalid"], "invalid", text)
            _add_case(suite, roots.name, case, [], 0.0)
        suite.set("time", f"{sum(map(_took_s, roots.cells)):.3f}")
        _count(suite)
    _count(root)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: its name, its JUnit tag (`pass`, `failure`, `error`, `skipped`), its state here, the reason."""

    name: str
    tag: str
    state: str
    reason: str
    counts: Mapping[str, int] = field(default_factory=dict)


def cases(cell: Cell) -> list[Case]:
    """Return the test cases of a run: its completion, the checks of its validity, its gates."""
    validity = cell.validity
    checks = [
        Case(name, _TAGS[check.state], check.state, check.reason, check.counts)
        for name, check in validity.checks.items()
    ]
    checks += map(_case_of, cell.summary.gates)
    if checks and (cell.is_whole or "run" in validity.checks):
        return checks
    return [Case("run", _TAGS[validity.state], validity.state, validity.reason), *checks]


def _took_s(cell: Cell) -> float:
    """Return how long a run took, in s: `durations_s` has the total beside its parts."""
    return cell.summary.durations_s.get("total", 0.0)


def _case_of(gate: GateResult) -> Case:
    return Case(f"gate {gate.gate}", _TAGS[gate.state], gate.state, gate.text)


def _add_properties(suite: ET.Element, results: ResultSet) -> None:
    """Add the machine, the answer, and the figures of each run by which runs are compared."""
    told = [("machine", machine(results.cells)), ("question", results.question)]
    told += [(f"answer {number}", text) for number, text in enumerate(answer_of(results), 1)]
    for cell in results.cells:
        figures = ((key, metric.value(cell)) for key, metric in COMPARED.items())
        told += [(f"{cell.name}.{key}", f"{value:.10g}") for key, value in figures if value is not None]
    element = ET.SubElement(suite, "properties")
    for name, text in told:
        if text:
            ET.SubElement(element, "property", name=printable(name), value=printable(text))


def _add_case(suite: ET.Element, owner: str, case: Case, about: Sequence[str], took_s: float) -> None:
    element = ET.SubElement(
        suite, "testcase", classname=printable(owner), name=printable(case.name), time=f"{took_s:.3f}"
    )
    if case.tag == "pass":
        return
    reason = case.reason or "no reason is known"
    counts = [f"{key}: {count}" for key, count in case.counts.items()]
    lines = [reason, *counts, *about]
    detail = ET.SubElement(element, case.tag, message=printable(reason))
    if case.tag != "skipped":  # JUnit's schema allows it no type
        detail.set("type", case.state)
    detail.text = printable("\n".join(lines))


def _count(element: ET.Element) -> None:
    for attribute, tag in (
        ("tests", "testcase"),
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ):
        element.set(attribute, str(sum(1 for _ in element.iter(tag))))
