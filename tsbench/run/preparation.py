"""The steps before the load: create empty tables, store the first data, and verify that it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.check.audit import count_stored
from tsbench.errors import Broken
from tsbench.results.manifest import Manifest
from tsbench.run import cleanup, environment
from tsbench.run.bulk_load import bulk_load
from tsbench.targets.base import Unsupported
from tsbench.units import NS_PER_S, format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.results.figures import Load
    from tsbench.results.rundir import RunDir
    from tsbench.run.time_limits import Limits
    from tsbench.scenario.spec import RunSpec
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session
    from tsbench.targets.target import Target
    from tsbench.workload.world import World

NOT_RECORDED = "processes, log and data directory, since tsbench did not start this server"


def write_manifest(
    run: RunDir, spec: RunSpec, target: Target, server: Server, session: Session, *, new: bool = False
) -> str:
    """Write env.json: host, versions, the server's settings and facts, and warnings. Return the time of now.

    `new` means that the session has made its database's file.
    """
    missing = {"not_recorded": NOT_RECORDED} if spec.target.endpoint else {}
    manifest = environment.manifest(target.driver.distributions if target.driver is not None else ()).with_server(
        {**server.settings(), **session.facts(), **missing}
    )
    manifest = manifest.model_copy(update={"created": cleanup.note_found(spec, session, new=new)})
    manifest.write(run)
    return format_time(int((manifest.clock.utc_s if manifest.clock else 0) * NS_PER_S))


def is_durable(run: RunDir, target: Target) -> bool:
    """Return whether acknowledged data survives a crash, as the server's facts say; else as the target declares."""
    manifest = Manifest.read(run)
    said = manifest.server.get("durable") if manifest else None
    return target.durable if said is None else said == "yes"


def create(session: Session, schema: Schema, world: World, limits: Limits) -> None:
    """Drop what an earlier run left, and create empty tables.

    Raises
    ------
    tsbench.model.OpError
        If a statement fails or takes longer than `timeout.create`.
    """
    with limits.step("create", "dropping what an earlier run left") as timeout_s:
        session.run(schema.drop(world.measurements), timeout_s=timeout_s)
    with limits.step("create", "creating the tables") as timeout_s:
        session.run(schema.create(world.measurements, world.tags()), timeout_s=timeout_s)


def load(spec: RunSpec, target: Target, schema: Schema, endpoint: str, progress: Callable[[int], None]) -> Load:
    """Store the first data as [load] says; return what it came to.

    Raises
    ------
    Broken
        As `bulk_load`.
    """
    world, asked = spec.world_at(), spec.load
    loaded = bulk_load(
        world,
        target,
        schema,
        endpoint,
        last_tick=world.ticks(asked.window),
        workers=asked.workers,
        batch=asked.batch,
        mode=asked.mode,
        progress=progress,
        timeout=spec.timeout,
    )
    return loaded.figures(workers=asked.workers, batch=asked.batch, mode=asked.mode)


def expect_plausible(session: Session, schema: Schema, world: World, points: int, *, least: int | None = None) -> None:
    """Stop a run whose data is not stored: fast queries on a half-empty table are worse than none (ClickBench).

    `least` is the number of points that must be stored where the others may have expired.

    Raises
    ------
    Broken
        If more points are stored than acknowledged, none, or fewer (than `least`) by a schema that keeps all.
    """
    try:
        stored = count_stored(session, schema, world.measurements)
    except Unsupported:
        return
    least = points if least is None else min(least, points)
    if stored > points or (schema.keeps_duplicates and stored < least) or not stored:
        raise Broken(f"after the load {stored:,} points are stored, but {points:,} were acknowledged")
