"""Result sets as JUnit XML, for CI servers: a suite per set, a case per run and check.

A check is each of a run's verdicts and each of its gates. One that is false is a `failure`; one that could not be told
is an `error`, which is JUnit's word for a test that could not be carried out: a CI server must not take it for a pass.
A run that broke off has a case `run` with an error of its own, so that no run is without a case.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from tsbench.model import Verdict
from tsbench.report import view
from tsbench.report.cells import as_verdict
from tsbench.report.metrics import load_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.report.cells import Cell

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(sets: Sequence[tuple[str, Sequence[Cell]]]) -> str:
    """The XML of result sets, each with its scenario's name and its runs."""
    root = ET.Element("testsuites", name="tsbench")
    for name, cells in sets:
        suite = ET.SubElement(root, "testsuite", name=_clean(name))
        started = min((cell.started for cell in cells if cell.started), default="")
        if started:
            suite.set("timestamp", started.removesuffix("Z"))  # JUnit's schema knows no zone; ours are UTC
        for cell in cells:
            for check, verdict in checks(cell):
                _add_case(suite, name, cell, check, verdict)
        _count(suite)
    _count(root)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def checks(cell: Cell) -> list[tuple[str, Verdict]]:
    """What is a case of its own: whether the run completed, its verdicts, its gates."""
    verdicts = {name: as_verdict(content) for name, content in (cell.summary.get("verdicts") or {}).items()}
    gates = [(f"gate {gate}", verdict) for gate, verdict in view.gates(cell)]
    if gates:
        verdicts.pop("gates", None)  # all of them together
    found = [*verdicts.items(), *gates]
    if cell.state != "complete" and "run" not in verdicts:
        return [("run", Verdict(None, cell.verdict.reason)), *found]
    return found or [("run", cell.verdict)]


def _add_case(suite: ET.Element, name: str, cell: Cell, check: str, verdict: Verdict) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(f"{name}.{cell.name}"), name=_clean(check))
    if verdict.valid is True:
        return
    reason = verdict.reason or "no reason was given"
    counts = [f"{key}: {count}" for key, count in verdict.counts.items()]
    lines = [reason, *counts, f"run: {cell.name} ({load_text(cell)})", f"limited by: {cell.limited_by}"]
    kind = "failure" if verdict.valid is False else "error"
    told = ET.SubElement(case, kind, type=verdict.word, message=_clean(reason))
    told.text = _clean("\n".join(lines))


def _count(element: ET.Element) -> None:
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(attribute, str(sum(1 for _ in element.iter(tag))))


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold; servers' messages may have any."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
