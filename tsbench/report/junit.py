"""Result sets as JUnit XML, for CI servers: a suite per set, a case per run and check.

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

from tsbench.report.metrics import load_text
from tsbench.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.report.cells import Cell, ResultSet

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
    for found in sets:
        suite = ET.SubElement(root, "testsuite", name=printable(found.name))
        started = min((time[0] for cell in found.cells if (time := _TIME.match(cell.started))), default="")
        if started:
            suite.set("timestamp", started)  # JUnit's schema allows no zone; ours are UTC
        for cell in found.cells:
            for case in cases(cell):
                _add_case(suite, found.name, cell, case)
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
    found = [
        Case(name, _TAGS[check.state], check.state, check.reason, check.counts)
        for name, check in validity.checks.items()
    ]
    found += [Case(f"gate {gate.gate}", _TAGS[gate.state], gate.state, gate.text) for gate in cell.summary.gates]
    if found and (cell.is_whole or "run" in validity.checks):
        return found
    return [Case("run", _TAGS[validity.state], validity.state, validity.reason), *found]


def _add_case(suite: ET.Element, name: str, cell: Cell, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", classname=printable(f"{name}.{cell.name}"), name=printable(case.name))
    if case.tag == "pass":
        return
    reason = case.reason or "no reason is known"
    counts = [f"{key}: {count}" for key, count in case.counts.items()]
    lines = [reason, *counts, f"run: {cell.name} ({load_text(cell)})", f"limited by: {cell.limited_by}"]
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
