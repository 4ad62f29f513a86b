"""The steps of a run, each a function of the `Trial`: no step knows which database it deals with.

    run        start  create  load  settle  rehearse  (cold)  drive  check
    run, on data of runs before
               start  adopt   rehearse  (cold)  drive  check
    load       start  create  load  settle
    query      start  burn in  drive

A specification names its steps; the life cycle (`run.lifecycle`) goes through them in that order.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tsbench.check.audit import count_stored
from tsbench.check.expiry import Expiry
from tsbench.collect.recording import watching
from tsbench.errors import Broken
from tsbench.measure.live import LiveFigures
from tsbench.model import OpError, Text
from tsbench.results.figures import ColdStart
from tsbench.run import asking, cleanup, loading, locust_process
from tsbench.run.assessment import Findings
from tsbench.run.events import Events
from tsbench.run.examination import examine
from tsbench.run.measurement import measured, recorded
from tsbench.scenario.parts import ENDLESS
from tsbench.scenario.spec import FileSpec
from tsbench.targets.base import Statement, Unsupported
from tsbench.workload import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsbench.run.trial import Trial
    from tsbench.scenario.spec import StepName


def start(trial: Trial) -> None:
    """Start the server, if it does not stand with its data, and open the first session."""
    trial.progress.phase("start")
    if trial.standing.data.loaded is None:
        trial.parts.server.start()
    trial.connect()


def create(trial: Trial) -> None:
    """Drop what an earlier run left, and create the world's tables."""
    schema, world = trial.parts.schema, trial.of_world.world_at()
    made = schema.create(world.measurements, world.tags())  # which refuses names, before anything is dropped
    with loading.saying_what_is_left(trial):
        with trial.limits.step("create", "dropping what an earlier run left") as timeout_s:
            trial.session.run(schema.drop(world.measurements), timeout_s=timeout_s)
        with trial.limits.step("create", "creating the tables") as timeout_s:
            trial.session.run(made, timeout_s=timeout_s)
    cleanup.note_made(trial.run, trial.spec, trial.session)


def load(trial: Trial) -> None:
    """Store the first data: those of a world, or the points of a file, whose tables are made as they appear."""
    store = loading.store_file if isinstance(trial.spec, FileSpec) else loading.store_world
    with loading.saying_what_is_left(trial):
        store(trial)
    how = trial.spec.load
    trial.load = trial.total.figures(workers=how.workers, batch=how.batch, mode=how.mode)


def adopt(trial: Trial) -> None:
    """Take the data of the runs before over, if they are as those left them."""
    spec, parts = trial.of_world, trial.parts
    expires = parts.target.parse(parts.server.endpoint).expire_after_s is not None
    measurements = spec.world_at().measurements
    trial.load = trial.standing.begin(trial.run, trial.session, parts.schema, measurements, expires=expires)


def settle(trial: Trial) -> None:
    """Wait until the data is at rest, and verify that it is stored.

    Fast queries on a half-empty table are worse than none (ClickBench). Some points may have expired, and of those at
    one time a schema may keep one.

    Raises
    ------
    Broken
        If more points are stored than acknowledged, none, or too few.
    """
    trial.progress.phase("settle")
    parts, measurements, points = trial.parts, trial.spec.measurements(), trial.total.points
    trial.limits.settle(trial.session, parts.schema, measurements)
    expiry, least = Expiry.of(parts.target.parse(parts.server.endpoint).expire_after_s), points
    if expiry is not None and not isinstance(trial.spec, FileSpec):
        world = trial.of_world.world_at()
        least = min(points, expiry.kept_points(world, world.ticks(trial.spec.load.window)))
    try:
        stored = trial.stored = count_stored(trial.session, parts.schema, measurements)
    except Unsupported:
        return
    if stored > points or (parts.schema.keeps_duplicates and stored < least) or not stored:
        raise Broken(f"after the load {stored:,} points are stored, but {points:,} were acknowledged")


def rehearse(trial: Trial) -> None:
    """Ask each query in the database's own words once, in a session that refuses to write if the target has such.

    The measured load asks without that: it would be measured, too.

    Raises
    ------
    Broken
        If the database does not answer some, with the reason of each; not after a time-out, which the load shows.
    """
    spec, target, schema = trial.of_world, trial.parts.target, trial.parts.schema
    world = spec.world_at()
    loaded, failed = spec.loaded(world), []
    for kind in dict.fromkeys(op.query for op in spec.op if op.query is not None):
        query = queries.make(kind, world, loaded, spec.world.seed, 0)
        if not isinstance(query, Text):
            continue
        with closing(trial.limits.connect(target, schema)) as session:  # one each: an error may end a transaction
            if target.read_only:
                session.run([Statement(target.read_only)])
            try:
                session.query(schema.compile(query), query.columns)
            except Unsupported:  # which is said in its place
                continue
            except OpError as error:
                failed += [f"query '{kind}' fails: {error.cause}: {error}"] if error.cause != "timeout" else []
    if failed:
        raise Broken("; ".join(failed))


def burn_in(trial: Trial) -> None:
    """Ask the first queries of a file without measuring them."""
    cleanup.note_nothing_made(trial.run)
    asking.burn_in(trial)


def cold(trial: Trial) -> None:
    """Restart the server with its files out of the page cache, if the scenario says so."""
    if trial.spec.target.cold:
        trial.disconnect()
        trial.progress.phase("cold start")
        trial.cold = ColdStart(**trial.parts.server.cold()._asdict())


def drive(trial: Trial) -> None:
    """Run the load while the collectors watch, and work out its figures."""
    trial.disconnect()
    trial.stored = None  # the load writes
    spec, group, progress = trial.spec, trial.parts.group, trial.progress
    if spec.query_file is None:
        progress.phase("measure", locust_process.expected_s(spec))  # its progress is in seconds,
    else:
        progress.phase("measure", spec.query_file.count if spec.drive.duration == ENDLESS else None)  # or in queries
    if group is not None:
        group.mark()
    with watching(trial.run, trial.parts.collectors):
        _drive(trial)
    if group is not None:
        group.lift()  # the checks' own load is not measured: under a cap they took four times as long
    progress.time("figures")
    with recorded():
        trial.observed += measured(trial.run, spec) + Findings(death=trial.death())
    if spec.query_file is not None:
        trial.observed += Findings(checks={"asked": asking.all_asked(spec, trial.observed)})


def _drive(trial: Trial) -> None:
    spec, run, parts = trial.spec, trial.run, trial.parts
    reached, shown_s, live = 0.0, 0, LiveFigures(run.path, spec.drive.time, spec.gates)
    events = Events(parts.server, spec.event, run)

    def tick(passed_s: float) -> None:
        nonlocal reached, shown_s
        if int(passed_s) > shown_s:
            shown_s = int(passed_s)
            trial.progress.show(live.now)
        done = passed_s if spec.query_file is None else live.done
        trial.progress.advance(done - reached)
        reached = done
        events.advance()

    alive = lambda: events.is_down or parts.server.alive()  # noqa: E731
    parts.drive(spec, run, parts.server.endpoint, tick=tick, alive=alive, ending=events.close)


def check(trial: Trial) -> None:
    """Compare stored points with acknowledged ones, and answers with gold; a dead server is not asked."""
    if trial.observed.death:
        return
    if trial.load is None:
        raise Broken("nothing was loaded, so that nothing can be checked")
    trial.progress.phase("check")
    parts, observed = trial.parts, trial.observed
    observed += examine(
        *(trial.run, trial.of_world, parts.target, parts.schema, parts.server.endpoint),
        loaded_points=trial.load.points,
        directory_bytes=parts.server.size,
        progress=trial.progress,
        earlier=trial.standing.data.runs,
    )
    trial.observed = Findings(death=trial.death(within_s=0.1)) + observed  # it may die under the checks' own queries


STEPS: Mapping[StepName, Callable[[Trial], None]] = {
    "start": start,
    "create": create,
    "load": load,
    "adopt": adopt,
    "settle": settle,
    "rehearse": rehearse,
    "burn in": burn_in,
    "cold": cold,
    "drive": drive,
    "check": check,
}
