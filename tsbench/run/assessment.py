"""The summary of a run: all that was found, its validity, and the gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsbench.errors import Broken, UserMistake
from tsbench.measure.built_in_gates import server_deaths
from tsbench.measure.gates import evaluate_gates
from tsbench.model import Verdict
from tsbench.results.manifest import Manifest
from tsbench.results.summary import Summary, Validity
from tsbench.run.figures import measured
from tsbench.run.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.results.rundir import RunDir
    from tsbench.run.phases import Phases
    from tsbench.scenario.spec import Job


def conclude(
    run: RunDir, spec: Job, heading: Mapping[str, Any], found: Findings, phases: Phases | None = None
) -> Summary:
    """Write summary.json, with all parts, the time that each phase took, the validity and the gates; return it.

    Checks that a dead server could not answer do not invalidate figures that were measured before its death.
    """
    checks, death = dict(found.checks), found.death
    if death:
        unasked = [name for name in ("answers", "writes", "size") if checks.get(name, Verdict(None)).valid is None]
        checks = {name: check for name, check in checks.items() if name not in unasked}
        death += f"; not checked therefore: {', '.join(unasked)}" if unasked else ""
    durations_s = phases.durations_s(found.parts.get("measured")) if phases is not None else {}
    validity = Validity.of(checks)
    parts = {**heading, "server_version": _server_version(run), **found.parts, "durations_s": durations_s}
    summary = Summary.model_validate({**parts, "validity": validity})
    built_in = [gate.under(validity) for gate in (server_deaths(death), *found.gates)]
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


def salvage(run: RunDir, spec: Job, reason: str, phases: Phases | None = None, *, death: str = "") -> Summary:
    """Write a summary of a failed or interrupted run from whatever it measured, and return it.

    `phases` are those of the run, None if its process was killed; `death` describes the server's death, if that ended
    the run.
    """
    about = heading(spec, spec.target.schema_ or "")
    broken_off = Findings(checks={"run": Verdict(None, reason)}, death=death)
    try:
        found = broken_off + measured(run, spec)
    except Exception:  # noqa: BLE001 - nothing was measured yet, or the files are not whole
        found = broken_off
    try:
        return conclude(run, spec, about, found, phases)
    except (Broken, OSError):  # the disk is full: only the directory's other files remain
        return Summary(**about, validity=Validity.of(broken_off.checks), gates=(server_deaths(death),))


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
