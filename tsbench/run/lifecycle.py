"""The life cycle of one run: from an empty server to a committed, checked result.

    server.start -> create -> load -> settle -> plausible? -> rehearse -> cold? -> warm up -> measure + collect
    -> audit -> check -> commit

`tsbench run` calls it, and so does the helper process of bare `locust -f` (see `drive.bare.helper`): only the part that
drives the load differs. No step knows which database it deals with.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from tsbench.check.expiry import Expiry
from tsbench.collect.recording import COUNTERS_TIMEOUT_S, collectors_for, watching
from tsbench.errors import Broken, ServerDied, Unreachable, UserMistake, advise
from tsbench.measure.built_in_gates import server_deaths
from tsbench.measure.live import LiveFigures
from tsbench.model import OpError, Verdict
from tsbench.results.figures import ColdStart
from tsbench.results.rundir import COMPLETE, ERRORS_FILE, SERVER_DIED, RunDir
from tsbench.results.summary import PHASES, Summary, Validity
from tsbench.run import assessment, cleanup, locust_process, preparation, server_limits
from tsbench.run.assessment import Findings
from tsbench.run.events import Events
from tsbench.run.examination import examine
from tsbench.run.measurement import measured, recorded
from tsbench.run.phases import Phases
from tsbench.run.preparation import create, expect_plausible, load, rehearse
from tsbench.run.server_limits import GroupCounters, capped
from tsbench.run.standing import Standing
from tsbench.run.time_limits import Limits
from tsbench.scenario.parts import ENDLESS
from tsbench.scenario.validation import schema_of
from tsbench.servers.base import ExternalServer, death
from tsbench.targets import registry
from tsbench.targets.session import MEANT, caused_line
from tsbench.targets.target import Access
from tsbench.units import format_now

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.collect.counters import Source
    from tsbench.collect.processes import Tree
    from tsbench.collect.sampler import Collector
    from tsbench.results.figures import Load
    from tsbench.run.phases import Progress
    from tsbench.run.time_limits import LimitedSession
    from tsbench.scenario.spec import Job, RunSpec
    from tsbench.servers.base import Server
    from tsbench.servers.cgroup import Group
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target

Drive = Callable[..., None]
"""Drives the load: `drive(spec, run, endpoint, tick=, alive=, ending=)` returns when it has ended, its files whole."""
DYING_S = 3.0
"""Seconds after an error in which the server may still die of the same cause."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run that tests replace by others."""

    target: Target
    schema: Schema
    server: Server
    collectors: Sequence[Collector]
    drive: Drive = locust_process.drive
    group: Group | None = None
    """The control group of a server with caps."""


PartsOf = Callable[["RunSpec", "RunDir", "Group | None"], Parts]
"""Returns the parts of a run; a server that tsbench starts belongs to the control group, if any."""


def real_parts(
    spec: Job, run: RunDir, group: Group | None, *, client: Tree | None = None, standing: Standing | None = None
) -> Parts:
    """Return the target's own parts: a server that tsbench starts below the run directory, or the one at the endpoint.

    A server that outlives the run stands already, or is started beside the run directory. One with caps starts in the
    control `group`. `client` are the load processes, by default Locust's among the children of this process.
    """
    target = registry.get(spec.target.name)
    server: Server
    if standing is not None and standing.server is not None:
        server = standing.server
    elif spec.target.endpoint:
        server = ExternalServer(spec.target.endpoint)
    else:
        directory = run / "server" if standing is None else standing.directory(run)
        server = spec.server.new(target, directory, spec.target.settings, group)
    schema = schema_of(spec, target)

    def sources() -> list[Source]:
        of_group = [GroupCounters(group)] if group is not None else []
        return [*server_counters(target, server.endpoint, schema), *of_group]

    nodes = {name: one.pids for name, one in server.parts().items()}
    return Parts(target, schema, server, collectors_for(run, server.pids, sources, client, nodes), group=group)


def server_counters(target: Target, endpoint: str, schema: Schema) -> list[Source]:
    """Open a session for the server's counters; empty if the target has none or admits one process only."""
    if not target.has_counters or target.access is not Access.ANY_PROCESS:
        return []
    return [cast("Source", target.connect(endpoint, schema, timeout_s=COUNTERS_TIMEOUT_S))]


def run_cell(
    spec: RunSpec,
    results: Path,
    progress: Progress,
    parts_of: PartsOf | None = None,
    *,
    reached: bool = False,
    standing: Standing | None = None,
) -> Summary:
    """Run one cell, on the data of a `standing` server if one is given; otherwise as `run_steps`."""
    standing = standing or Standing(results)
    parts = partial(parts_of or partial(real_parts, standing=standing), spec)
    steps = partial(_carry_out, spec, standing)
    return run_steps(spec, results, progress, steps, parts, standing, reached=reached)


def run_steps(
    spec: Job,
    results: Path,
    progress: Progress,
    steps: Callable[[RunDir, Parts, Phases], Summary],
    parts_of: Callable[[RunDir, Group | None], Parts],
    standing: Standing,
    *,
    reached: bool = False,
) -> Summary:
    """Make the `steps` of a run and return its summary; its directory states how the run ended, whatever happens.

    If earlier runs have `reached` their servers, a UserMistake fails this run and is not raised. The server ends after
    the steps unless `standing` keeps it.

    Raises
    ------
    KeyboardInterrupt
        After the servers were stopped and what was measured was kept; its text is the reason in status.json.
    UserMistake
        If the server cannot be started, or cannot be reached at the first attempt.
    """
    run = RunDir.create(results, spec.id)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    phases, server = Phases(progress), None
    try:
        with run.held(), capped(spec.server, run) as group:
            parts = parts_of(run, group)
            server = parts.server
            with standing.kept(server, run):
                summary = steps(run, parts, phases)
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


def _carry_out(spec: RunSpec, standing: Standing, run: RunDir, parts: Parts, progress: Phases) -> Summary:
    """Do all steps, top to bottom, as the method section of a paper would list them."""
    target, schema, server = parts.target, parts.schema, parts.server
    world = spec.world_at()
    progress.phase("start")
    loads = standing.data.loaded is None
    if loads:
        server.start()
    with naming_death(parts):
        with first_session(run, spec, parts) as (session, limits):
            if loads:
                loaded, spec = _first_data(spec, run, parts, session, limits, progress)
            else:
                expires = target.parse(server.endpoint).expire_after_s is not None
                loaded = standing.begin(run, session, schema, world.measurements, expires=expires)
            rehearse(spec, target, schema, limits)
        cold = None
        if spec.target.cold:
            progress.phase("cold start")
            cold = ColdStart(**server.cold()._asdict())

        observed = drive_and_measure(spec, run, parts, progress)
        heading = preparation.heading(run, spec, target, schema)
        heading |= {"load": loaded, "caps": server_limits.figures(parts.group), "cold": cold}
        heading |= standing.found(run, loaded)

        if not observed.death:
            progress.phase("check")
            observed += examine(
                *(run, spec, target, schema, server.endpoint),
                loaded_points=loaded.points,
                directory_bytes=server.size,
                progress=progress,
                earlier=standing.data.runs,
            )
            observed = (
                Findings(death=_death(parts, within_s=0.1)) + observed
            )  # it may die under the checks' own queries
        summary = assessment.conclude(run, spec, heading, observed, progress)
        standing.end(run, loaded, summary, stored=None if summary.writes is None else summary.writes.stored)
        return summary


def drive_and_measure(spec: Job, run: RunDir, parts: Parts, progress: Phases) -> Findings:
    """Run the load, and return its figures. Progress is in seconds, of a file of queries in queries."""
    if spec.query_file is None:
        progress.phase("measure", locust_process.expected_s(spec))
    else:
        progress.phase("measure", spec.query_file.count if spec.drive.duration == ENDLESS else None)
    if parts.group is not None:
        parts.group.mark()
    with watching(run, parts.collectors):
        _drive(spec, run, parts, progress)
    if parts.group is not None:
        parts.group.lift()  # the checks' own load is not measured: under a cap they took four times as long
    progress.time("figures")
    with recorded():
        return measured(run, spec) + Findings(death=_death(parts))


def _first_data(
    spec: RunSpec, run: RunDir, parts: Parts, session: LimitedSession, limits: Limits, progress: Phases
) -> tuple[Load, RunSpec]:
    """Create the tables, store the first data, verify that it is plausible, and return as `load` does."""
    schema, endpoint, world = parts.schema, parts.server.endpoint, spec.world_at()
    create(session, schema, world, limits)
    cleanup.note_made(run, spec, session)
    progress.phase("load", world.count(None, 0, world.ticks(spec.load.window)))
    loaded, spec = load(spec, parts.target, schema, endpoint, progress.advance)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    progress.phase("settle")
    limits.settle(session, schema, world.measurements)
    expiry = Expiry.of(parts.target.parse(endpoint).expire_after_s)
    least = None if expiry is None else expiry.kept_points(world, world.ticks(spec.load.window))
    expect_plausible(session, schema, world.measurements, loaded.points, least=least)
    return loaded, spec


@contextmanager
def first_session(run: RunDir, spec: Job, parts: Parts) -> Iterator[tuple[LimitedSession, Limits]]:
    """Open the first session on a run's server, write the manifest, and yield the session with the time limits."""
    limits, new = Limits(spec.timeout, parts.server.endpoint), cleanup.is_new(spec, parts.target)
    with closing(limits.connect(parts.target, parts.schema)) as session:
        preparation.write_manifest(run, spec, parts.target, parts.server, session, new=new)
        yield session, limits


@contextmanager
def naming_death(parts: Parts) -> Iterator[None]:
    """Raise `ServerDied` in place of an error that followed from the server's death."""
    try:
        yield
    except (Broken, OpError, Unreachable) as error:
        if died := _death(parts, within_s=DYING_S):
            raise ServerDied(died, _reason(error)) from error
        raise


def _drive(spec: Job, run: RunDir, parts: Parts, progress: Progress) -> None:
    reached, shown_s, live = 0.0, 0, LiveFigures(run.path, spec.drive.time, spec.gates)
    events = Events(parts.server, spec.event, run)

    def tick(passed_s: float) -> None:
        nonlocal reached, shown_s
        if int(passed_s) > shown_s:
            shown_s = int(passed_s)
            progress.show(live.now)
        done = passed_s if spec.query_file is None else live.done
        progress.advance(done - reached)
        reached = done
        events.advance()

    alive = lambda: events.is_down or parts.server.alive()  # noqa: E731
    parts.drive(spec, run, parts.server.endpoint, tick=tick, alive=alive, ending=events.close)


def _death(parts: Parts, *, within_s: float = 0.0) -> str:
    """Return why the server cannot answer any more, or why its answers do not count; "" if all is well."""
    died = death(parts.server, within_s=within_s)
    return server_limits.killed(parts.group) or advise(died, parts.server.settings().get("data_directory", ""))


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
