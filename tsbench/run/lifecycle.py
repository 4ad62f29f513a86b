"""The life cycle of one run: from an empty server to a committed, checked result.

    server.start -> create -> load -> settle -> plausible? -> cold? -> warm up, measure, collect -> audit, validate
    -> commit

No step knows which database it deals with.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tsbench.collect.recording import collectors_for, watching
from tsbench.errors import Broken, ServerDied, Unreachable, UserMistake
from tsbench.model import Count, OpError
from tsbench.results.rundir import RunDir
from tsbench.run import assessment, counter_sources, environment, locust_process, server_limits
from tsbench.run.bulk_load import create_and_load
from tsbench.run.counter_sources import server_counters
from tsbench.run.findings import Findings
from tsbench.run.time_limits import Limits
from tsbench.scenario.validation import schema_of
from tsbench.servers.base import death, put_away
from tsbench.servers.external import ExternalServer
from tsbench.targets import registry
from tsbench.targets.base import Unsupported
from tsbench.targets.registry import SERVERS
from tsbench.units import format_now, format_time

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.collect.base import Collector
    from tsbench.collect.counters import Source
    from tsbench.results.summary import Summary
    from tsbench.scenario.spec import RunSpec
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session, Target

Drive = Callable[..., None]
DYING_S = 1.0
"""Seconds after an error in which the server may still die of the same cause."""


class Progress(Protocol):
    """Receives progress updates from a run (phase, amount done)."""

    def phase(self, name: str, total: float | None = None) -> None:
        """Start a phase; `total` is the sum of all `advance` calls in it, if known."""
        ...

    def advance(self, amount: float) -> None:
        """Add an amount to the current phase."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run that tests replace by others."""

    target: Target
    schema: Schema
    server: Server
    collectors: Sequence[Collector]
    drive: Drive = locust_process.drive


def real_parts(spec: RunSpec, run: RunDir) -> Parts:
    """Return the target's own parts: a server that tsbench starts in the run directory, or the one at the endpoint."""
    target = registry.get(spec.target.name)
    server: Server
    if spec.target.endpoint:
        server = ExternalServer(spec.target.endpoint)
    else:
        server = SERVERS[spec.target.name](run / "server", spec.target.settings)
    schema = schema_of(spec, target)

    def sources() -> list[Source]:
        return [*server_counters(target, server.endpoint, schema), *counter_sources.group_counters()]

    return Parts(target, schema, server, collectors_for(run, server.pids, sources))


def run_cell(
    spec: RunSpec, results: Path, progress: Progress, parts: Parts | None = None, *, reached: bool = False
) -> Summary:
    """Run one cell and return its summary; its directory states how the run ended, whatever happens.

    If earlier runs have `reached` their servers, an unreachable one is a failed run.

    Raises
    ------
    KeyboardInterrupt
        After the servers were stopped and the measurements were saved.
    UserMistake
        If the server cannot be started, or cannot be reached at the first attempt.
    """
    run = RunDir.create(results, spec.id)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    try:
        parts = parts or real_parts(spec, run)
        with ExitStack() as stack:
            stack.enter_context(server_limits.capped(spec.server, run))
            stack.callback(put_away, parts.server, run / "server.log")
            progress.phase("start")
            parts.server.start()
            with _naming_death(parts.server):
                summary = _carry_out(spec, run, parts, progress)
    except UserMistake as error:
        if not isinstance(error, Unreachable) or (spec.target.endpoint and not reached):
            run.finish("failed", error=str(error))
            raise
        reason = f"the server could not be reached ({format_now()}): {error}"
        summary = assessment.salvage(run, spec, reason, death=reason)
        run.finish("failed", error=reason)
    except (KeyboardInterrupt, Broken, OpError, OSError) as error:
        if _interrupted(error):
            assessment.salvage(run, spec, "interrupted by the user")
            run.finish("interrupted", error="interrupted by the user")
            raise KeyboardInterrupt from error
        reason = _reason(error)
        summary = assessment.salvage(run, spec, reason, death=error.death if isinstance(error, ServerDied) else "")
        run.finish("failed", error=reason)
    else:
        run.finish("complete")
    return summary


def _carry_out(spec: RunSpec, run: RunDir, parts: Parts, progress: Progress) -> Summary:
    """Run all steps with a started server, top to bottom, like the method section of a paper."""
    limits = Limits(spec.timeout, parts.server.endpoint)
    with closing(limits.connect(parts.target, parts.schema)) as session:
        manifest = environment.manifest()
        manifest["server"] = {**parts.server.settings(), **session.facts()}
        run.write_json("env.json", {**manifest, "warnings": environment.warnings_of(manifest)})
        loaded = _load(spec, parts, session, progress)
        _expect_plausible(spec, parts.schema, session, loaded["points"])
    if spec.target.cold:
        progress.phase("cold start")
        parts.server.cold()

    progress.phase("measure", locust_process.expected_s(spec))
    server_limits.mark()
    with watching(run, parts.collectors):
        _drive(spec, run, parts, progress)
    found = assessment.measured(run, spec)
    heading = {
        **assessment.heading(spec, parts.schema.name),
        "started": format_time(int(manifest["clock"]["utc_s"] * 1e9)),
    }
    heading |= {"durable": parts.target.durable, "load": loaded, **server_limits.summary()}
    if died := _death(parts.server):
        return assessment.conclude(run, spec, heading, found + Findings(death=died))

    progress.phase("check")
    found += assessment.examined(
        run,
        spec,
        parts.target,
        parts.schema,
        parts.server.endpoint,
        loaded_points=loaded["points"],
        directory_bytes=parts.server.size,
    )
    died = _death(parts.server, within_s=0.1)  # under the checks' own queries
    return assessment.conclude(run, spec, heading, Findings(death=died) + found)


@contextmanager
def _naming_death(server: Server) -> Iterator[None]:
    """Raise `ServerDied` in place of an error that followed from the server's death."""
    try:
        yield
    except (Broken, OpError, Unreachable) as error:
        if died := _death(server, within_s=DYING_S):
            raise ServerDied(died, _reason(error)) from error
        raise


def _load(spec: RunSpec, parts: Parts, session: Session, progress: Progress) -> dict[str, Any]:
    world, load = spec.world_at(), spec.load
    return create_and_load(
        session,
        world,
        parts.target,
        parts.schema,
        parts.server.endpoint,
        last_tick=world.ticks(load.window),
        workers=load.workers,
        batch=load.batch,
        mode=load.mode,
        progress=progress.advance,
        phase=progress.phase,
        timeout=spec.timeout,
    )


def _expect_plausible(spec: RunSpec, schema: Schema, session: Session, points: int) -> None:
    """Stop a run whose data is missing: fast queries on a half-empty table are worse than none (ClickBench)."""
    stored = 0
    for measurement in spec.world_at().measurements:
        query = Count(measurement)
        try:
            stored += int(session.query(schema.compile(query), query.columns).records[0][0])
        except Unsupported:
            return
    if stored > points or (schema.keeps_duplicates and stored < points) or not stored:
        raise Broken(f"after the load {stored:,} points are stored, but {points:,} were acknowledged")


def _drive(spec: RunSpec, run: RunDir, parts: Parts, progress: Progress) -> None:
    reached = 0.0

    def tick(passed_s: float) -> None:
        nonlocal reached
        progress.advance(passed_s - reached)
        reached = passed_s

    parts.drive(spec, run, parts.server.endpoint, tick=tick, alive=parts.server.alive)


def _death(server: Server, *, within_s: float = 0.0) -> str:
    """Return why the server cannot answer any more, or why its answers do not count; "" if all is well."""
    return server_limits.killed() or death(server, within_s=within_s)


def _interrupted(error: BaseException | None) -> bool:
    """Return True if the user stopped the run, even if that led to another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _reason(error: BaseException) -> str:
    """Return the error as one line."""
    cause = f"{error.cause}: " if isinstance(error, OpError) else ""
    text = " ".join(f"{cause}{error}".split())
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        text = f"disk full ({error.filename or 'results'})"
    return f"{text}; free some room or choose another place with --out" if "disk full" in text else text
