"""The life cycle of one run: its steps in order, on a server that ends with it, into a directory that says how it went.

`tsbench run`, `load` and `query` call it, and so does the helper process of bare `locust -f` (see `drive.bare.helper`).
They differ in the steps that their specifications name (`run.steps`).
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

from tsbench.errors import Broken, ServerDied, Unreachable, UserMistake, advise
from tsbench.measure.built_in_gates import server_deaths
from tsbench.model import Verdict
from tsbench.results.rundir import COMPLETE, ERRORS_FILE, SERVER_DIED, RunDir
from tsbench.results.summary import PHASES, Summary, Validity
from tsbench.run import assessment
from tsbench.run.assessment import Findings
from tsbench.run.measurement import measured
from tsbench.run.phases import Phases
from tsbench.run.server_limits import capped
from tsbench.run.standing import Standing
from tsbench.run.steps import STEPS
from tsbench.run.trial import Trial, real_parts
from tsbench.targets.session import MEANT, caused_line
from tsbench.units import format_now

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.run.phases import Progress
    from tsbench.run.trial import PartsOf
    from tsbench.scenario.spec import Job
    from tsbench.servers.base import Server


def run_job(
    spec: Job,
    results: Path,
    progress: Progress,
    parts_of: PartsOf | None = None,
    *,
    reached: bool = False,
    standing: Standing | None = None,
) -> Summary:
    """Do the steps of a run and return its summary; its directory states how the run ended, whatever happens.

    If earlier runs have `reached` their servers, a UserMistake fails this run and is not raised. The server ends after
    the steps unless `standing` keeps it.

    Raises
    ------
    KeyboardInterrupt
        After the servers were stopped and what was measured was kept; its text is the reason in status.json.
    UserMistake
        If the server cannot be started, or cannot be reached at the first attempt.
    """
    standing = standing or Standing(results)
    parts_of = parts_of or partial(real_parts, standing=standing)
    run = RunDir.create(results, spec.id)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    phases, server = Phases(progress), None
    try:
        with run.held(), capped(spec.server, run) as group:
            parts = parts_of(spec, run, group)
            server = parts.server
            with standing.kept(server, run):
                summary = _carried_out(Trial(spec, run, parts, phases, standing))
    except UserMistake as error:
        is_gone = isinstance(error, Unreachable)
        if not reached and (not is_gone or spec.target.endpoint):
            run.finish("failed", error=str(error))
            raise
        reason = f"the server could not be reached ({format_now()}): {error}" if is_gone else str(error)
        summary = salvage(run, spec, reason, phases, death=reason if is_gone else "")
        run.finish("failed", error=reason)
    except (KeyboardInterrupt, Exception) as error:  # whatever a driver raises: the next cell may do better
        if (interrupt := _interrupt_in(error)) is not None:
            reason = str(interrupt) or f"interrupted by the user while {PHASES[phases.current].during}"
            salvage(run, spec, reason, phases)
            run.finish("interrupted", error=reason)
            raise KeyboardInterrupt(reason) from error
        reason = advise(_reason(error), _place(spec, run, error, server))
        if not isinstance(error, MEANT):
            run.note_traceback(error)
            reason += f" (while {PHASES[phases.current].during}; {run / ERRORS_FILE} has where it comes from)"
        death = error.death if isinstance(error, ServerDied) else ""
        summary = salvage(run, spec, reason, phases, death=death)
        run.finish("failed", error=reason)
    else:
        death = summary.death
        run.finish(SERVER_DIED if death else COMPLETE, error=death)
    return summary


def _carried_out(trial: Trial) -> Summary:
    """Return the summary of a run whose steps are done, one after the other."""
    try:
        for name in trial.spec.steps:
            with trial.naming_death():
                STEPS[name](trial)
        return trial.conclude()
    finally:
        trial.disconnect()


def salvage(run: RunDir, spec: Job, reason: str, phases: Phases | None = None, *, death: str = "") -> Summary:
    """Write a summary of a failed or interrupted run from whatever it measured, and return it.

    `phases` are those of the run, None if its process was killed; `death` describes the server's death, if that ended
    the run.
    """
    about = assessment.heading(spec, spec.target.schema_ or "")
    broken_off = Findings(checks={"run": Verdict(None, reason)}, death=death)
    try:
        notes = broken_off + measured(run, spec)
    except Exception:  # noqa: BLE001 - nothing was measured yet, or the files are not whole
        notes = broken_off
    try:
        return assessment.conclude(run, spec, about, notes, phases)
    except (Broken, OSError):  # the disk is full: only the directory's other files remain
        return Summary(**about, validity=Validity.of(broken_off.checks), gates=(server_deaths(death),))


def _interrupt_in(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that an error is or followed from; None without one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def _reason(error: BaseException) -> str:
    """Return the error as one line."""
    text = caused_line(error)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        text = f"disk full ({error.filename or 'results'})"
    return text


def _place(spec: Job, run: RunDir, error: BaseException, server: Server | None) -> str:
    """Return the directory on whose disk an error occurred: the server's data for its errors, else the results."""
    if isinstance(error, OSError) or server is None:
        return str(run.path)
    return spec.target.endpoint or server.settings().get("data_directory", str(run.path))
