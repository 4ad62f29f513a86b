"""The summary of a run: what its steps found, its validity, and the gates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.measure.built_in_gates import server_deaths
from tsbench.measure.gates import evaluate_gates
from tsbench.model import Verdict
from tsbench.results.manifest import Manifest
from tsbench.results.summary import Summary, Validity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import GateResult
    from tsbench.run.phases import Phases
    from tsbench.scenario.spec import Job


@dataclass(frozen=True, slots=True)
class Findings:
    """What one step found: parts of a `Summary` by name, checks of its figures, built-in gates, the server's death.

    Checks say whether the figures were measured right; a dead server or failed ops do not affect them.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Verdict] = field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    death: str = ""

    def __add__(self, other: Findings) -> Findings:
        parts, checks = {**self.parts, **other.parts}, {**self.checks, **other.checks}
        return Findings(parts, checks, self.gates + other.gates, self.death or other.death)


def conclude(
    run: RunDir, spec: Job, heading: Mapping[str, Any], findings: Findings, phases: Phases | None = None
) -> Summary:
    """Write summary.json, with all parts, the time that each phase took, the validity and the gates; return it.

    Checks that a dead server could not answer do not invalidate figures that were measured before its death.
    """
    checks, death = dict(findings.checks), findings.death
    if death:
        unasked = [name for name in ("answers", "writes", "size") if checks.get(name, Verdict(None)).valid is None]
        checks = {name: check for name, check in checks.items() if name not in unasked}
        death += f"; not checked therefore: {', '.join(unasked)}" if unasked else ""
    durations_s = phases.durations_s(findings.parts.get("measured")) if phases is not None else {}
    validity = Validity.of(checks)
    parts = {**heading, "server_version": _server_version(run), **findings.parts, "durations_s": durations_s}
    summary = Summary.model_validate({**parts, "validity": validity})
    built_in = [gate.under(validity) for gate in (server_deaths(death), *findings.gates)]
    summary = summary.model_copy(update={"gates": (*built_in, *evaluate_gates(spec.demands, summary))})
    summary.write(run)
    return summary


def _server_version(run: RunDir) -> str:
    """Return the name and version of the server that was measured; "" if it was never reached."""
    try:
        manifest = Manifest.read(run)
    except UserMistake:  # the report has a note of it
        return ""
    return str(manifest.server.get("version") or "") if manifest is not None else ""


def heading(spec: Job, schema_name: str) -> dict[str, Any]:
    """Return what a summary says about which run it is."""
    return {
        "cell": spec.id,
        "scenario": spec.scenario,
        "question": spec.question,
        "target": spec.target.name,
        "schema": schema_name,
        "labels": spec.labels,
        "loop": spec.drive.loop,
        "users": spec.drive.users,
        "processes": spec.drive.processes,
    }
