"""Checks of a scenario against targets, world and common sense, before anything is started or written."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tsbench.errors import UserMistake
from tsbench.model import Text, WriteMode
from tsbench.scenario.file import naming
from tsbench.scenario.use_case import expect_fit
from tsbench.servers import cgroup
from tsbench.targets import registry
from tsbench.targets.base import Unsupported
from tsbench.targets.credentials import refuse_secrets
from tsbench.targets.registry import TARGETS
from tsbench.targets.target import Access, require_driver
from tsbench.text import suggestion
from tsbench.units import format_rough_duration, format_size
from tsbench.workload import queries
from tsbench.workload.world import World, layouts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.scenario.parts import ServerPart
    from tsbench.scenario.spec import Job, RunSpec
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target
    from tsbench.workload.world import WorldSpec


def check_spec(spec: RunSpec, place: str) -> None:
    """Verify names, schemas, drivers, modes, streams, server and queries of a run's specification.

    Raises
    ------
    UserMistake
        One line that names the scenario (`place`) and its key.
    """
    with naming(f"{place}: "):
        with naming("target.name: "):
            target = registry.get(spec.target.name)
            require_driver(target)
        with naming("target.schema: "):
            schema = schema_of(spec, target)
        _check_server(spec, target)
        check_caps(spec.server, target, spec.target.endpoint)
        with naming("world: ", ValueError):
            world = spec.world_at()
        expect_room_for(world, target, schema)
        _check_times(spec, target, world)
        _check_load(spec, world, target, schema)
        if spec.drive.processes > world.spec.streams:
            text = f"{spec.drive.processes} processes cannot share {world.spec.streams} streams; raise world.streams"
            raise UserMistake(f"drive.processes: {text}{_SCALE if world.spec.streams == world.spec.scale else ''}")
        modes = {"load.mode": spec.load.mode, **{f"op {op.name}: mode": op.write_mode for op in spec.writes}}
        for key, mode in modes.items():
            if mode not in schema.modes:
                known = ", ".join(sorted(schema.modes))
                raise UserMistake(f"{key}: '{mode}' is not one of {target.name}'s {schema.name}: {known}")
        expect_values(world, schema)


def expect_room_for(world: World, target: Target, schema: Schema) -> None:
    """Verify that a layout holds the fields of a user's use case.

    Raises
    ------
    UserMistake
        If it does not: one line with the field and the cure.
    """
    for field in [field for m in world.measurements for field in m.fields if world.spec.case]:
        if field.kind not in schema.kinds:
            why = f"{target.name}'s layout {schema.name} holds numbers only"
            raise UserMistake(f"world.use_case: {why}; make '{field.name}' a number or a tag, or take another target")
        if field.nullable and field.kind not in schema.nulls:
            of_kind = f" of the kind {field.kind.value}" if schema.nulls else ""
            why = f"{target.name}'s layout {schema.name} holds no points that lack a field{of_kind}"
            cure = "take null out of" if world.recorded is None else "give a default to"
            raise UserMistake(f"world.use_case: {why}; {cure} '{field.name}', or take another target")
    sparse = next((m for m in world.measurements if m.sparse), None)
    if sparse is not None and not schema.counts_sparse:
        why = f"{target.name} counts points by a field that each has, and those of '{sparse.name}' have none"
        cure = "take null out of" if world.recorded is None else "give a default to"
        raise UserMistake(f"world.use_case: {why}; {cure} one of its fields, or take another target")


def expect_values(world: World, schema: Schema, points: int = 200) -> None:
    """Verify that a layout's encoder takes the first points, 20 batches of `points` each; of simulated ones few series.

    The values of the first tick alone may have fewer digits than later ones.

    Raises
    ------
    UserMistake
        If it does not: one line with the field and the cure.
    """
    few = replace(world.spec, scale=min(world.spec.scale, _TRIED_SERIES), streams=1)
    if world.recorded is None and isinstance(schema, Hashable):
        refusal = _refusal(few, repr(few.case), schema, points)
    else:
        refusal = _tried(World(few) if world.recorded is None else world, schema, points)
    if refusal:
        raise UserMistake(f"world.use_case: {refusal}")


@lru_cache(maxsize=64)
def _refusal(few: WorldSpec, _case: str, schema: Hashable, points: int) -> str:
    """Return what a layout refuses of simulated points, the same for many cells of a scenario; "" if it takes them."""
    return _tried(World(few), cast("Schema", schema), points)


def _tried(world: World, schema: Schema, points: int) -> str:
    mode = WriteMode.MULTI if WriteMode.MULTI in schema.modes else next(iter(schema.modes))
    try:
        for batch in islice(world.batches(0, points=points), _TRIED_BATCHES):
            schema.encode(batch, mode)
    except Unsupported as why:
        return str(why)
    return ""


def decimals_for(world: World, schemas: Iterable[Schema]) -> int | None:
    """Return to how many decimals floats are rounded so that all of these layouts hold them; None if they do so."""
    try:
        for schema in schemas:
            expect_values(world, schema)
    except UserMistake:
        return _DECIMALS
    return None


_DECIMALS = 4
_TRIED_SERIES, _TRIED_BATCHES = 10, 20
_SCALE = " and world.scale, since a stream has at least one series"


def schema_of(spec: Job, target: Target) -> Schema:
    """Return the configured schema, or the target's first one.

    Raises
    ------
    UserMistake
        If the target has no such schema.
    """
    name = spec.target.schema_ or next(iter(target.schemas))
    if name not in target.schemas:
        raise UserMistake(f"{target.name} has no schema '{name}'; {suggestion(name, target.schemas)}")
    return target.schemas[name]


def _check_server(spec: RunSpec, target: Target) -> None:
    wanted = spec.target
    if reason := undrivable(target, spec.drive.processes):
        raise UserMistake(f"drive.processes: {reason}")
    done = next((event.do for event in spec.event if not event.changes_load), None)
    if done and (wanted.endpoint is not None or target.embedded or not target.durable):
        why = "tsbench does not start the server" if wanted.endpoint is not None else f"{target.name} has no server"
        raise UserMistake(f"event: {why}, so it cannot {done} it; take [[event]] out")
    if wanted.endpoint is None:
        _check_nodes(spec, target)
    else:
        if spec.server.nodes > 1:
            why = "needs a server that tsbench starts; take target.endpoint or this out"
            raise UserMistake(f"server.nodes: {why}")
        refuse_secrets(wanted.endpoint, "target.endpoint")
        with naming("target.endpoint: "):
            nodes = len(target.parse(wanted.endpoint).nodes)
        _check_shares(spec, target, nodes, "give one node's endpoint")
        for key, given in (("cold", wanted.cold), ("settings", bool(wanted.settings))):
            if given:
                text = "needs a server that tsbench starts; take it out, or take target.endpoint out"
                raise UserMistake(f"target.{key}: {text}")
        return
    if not target.startable:
        text = f"is missing, and tsbench cannot start {target.name} itself; give --endpoint URL"
        raise UserMistake(f"target.endpoint: {text}")
    if wanted.cold and not target.durable:
        raise UserMistake(f"target.cold: {target.name} keeps nothing on disk that could be cold; take it out")
    with naming("target."):
        spec.server.new(
            target, Path("unused"), wanted.settings
        )  # nothing is started: the constructor checks the settings


def _check_nodes(spec: RunSpec, target: Target) -> None:
    if spec.server.nodes == 1:
        return
    if not target.cluster:
        known = ", ".join(name for name, one in TARGETS.items() if one.cluster)
        raise UserMistake(f"server.nodes: tsbench starts one node of {target.name}, several of {known}")
    if spec.target.cold:
        several = f"of {spec.server.nodes} nodes"
        raise UserMistake(f"target.cold: is not possible {several}; take it out, or set server.nodes = 1")
    _check_shares(spec, target, spec.server.nodes, "set server.nodes = 1")


def _check_shares(spec: RunSpec, target: Target, nodes: int, cure: str) -> None:
    """Refuse what several nodes that each have a share of the points cannot do."""
    if nodes <= 1 or target.nodes_are_copies:
        return
    several = f"of {nodes} nodes"
    if spec.queries:
        why = f"{several}, none asks the others; take queries out, or {cure}"
        raise UserMistake(f"op: query = '{spec.queries[0].query}': {why}")
    if spec.world.duplicate:
        why = f"{several}, copies that the world makes look like those of a point; take it out"
        raise UserMistake(f"world.duplicate: {why}")


def _check_times(spec: RunSpec, target: Target, world: World) -> None:
    step = [] if world.recorded is None else [("use_case", world.recorded.step_ns)]
    for key, time_ns in (("interval", spec.world.interval), ("start", spec.world.start), *step):
        if time_ns % target.resolution_ns:
            cure = "cut them with round in recording.time" if key == "use_case" else "give a multiple of that"
            text = f"{target.name} stores times to {target.resolution_ns:,} ns; {cure}"
            raise UserMistake(f"world.{key}: {text}")


def _check_load(spec: RunSpec, world: World, target: Target, schema: Schema) -> None:
    if not spec.load.window:
        raise UserMistake("load.window: must be above 0; queries need something to find")
    if spec.load.duration is not None and (spec.queries or world.is_irregular):
        what = "queries need to know what is stored" if spec.queries else "points that come late belong to no tick"
        raise UserMistake(f"load.duration: {what}; take it out, or {'them' if spec.queries else 'disorder'}")
    loaded = spec.loaded(world)
    if world.recorded is None and spec.load.share is not None:
        raise UserMistake("load.share: belongs to recorded data; these are simulated, so give load.window")
    first, last = spec.write_ticks(world)
    if spec.writes and last is not None and last <= first:
        raise UserMistake("op: everything that was recorded is loaded before, so nothing is left to write; load less")
    _expect_enough(spec, world)
    with naming("op: ", ValueError):
        _ = spec.block_points
        for op in spec.queries:
            expect_fit(op.query or "", world, loaded)
    for op in spec.queries:
        asked = queries.make(op.query or "", world, loaded, spec.world.seed, 0)
        if isinstance(asked, Text):
            with naming(f"query.{op.query}: {target.name}: ", Unsupported):
                schema.compile(asked)


def _expect_enough(spec: RunSpec, world: World) -> None:
    """Verify that the writes of an open loop, of which the number is known, do not run out of recorded points."""
    if world.recorded is None or spec.drive.rate is None or not spec.writes:
        return
    left = world.recorded.rows_from(spec.loaded(world).end_ns - world.later_ns)
    if (wanted := spec.drive.rate * spec.points_of_an_op * spec.seconds) > left:
        raise UserMistake(
            f"drive.{'rate' if spec.drive.speed is None else 'speed'}: about {wanted:,.0f} points are due in "
            f"{spec.seconds:g} s, and {left:,} of the recording are left after the load; lower it, load less, or "
            "measure for a shorter time"
        )


def undrivable(target: Target, processes: int) -> str:
    """Return the reason why `processes` load processes cannot drive a target, with the cure; "" if they can."""
    if target.access is Access.ONE_PROCESS and processes > 1:
        return f"{target.name} lets one process at a time open its data; use one load process, and more users"
    return ""


def check_caps(part: ServerPart, target: Target, endpoint: str | None) -> None:
    """Refuse caps that would have no effect, before anything is started.

    Raises
    ------
    UserMistake
        One line that begins with the key of the cap.
    """
    key = next((name for name in ("cpu", "memory") if getattr(part, name) is not None), None)
    if key is None:
        return
    if endpoint:
        raise UserMistake(f"server.{key}: needs a server that tsbench starts; take it out, or take target.endpoint out")
    if target.embedded:
        text = f"{target.name} runs inside the load processes, so there is no server to cap; take [server] out"
        raise UserMistake(f"server.{key}: {text}")
    cgroup.create(part.caps).remove()


# --- what a scenario costs at best: a slip of a zero or a unit --------------------------------------------------------

FASTEST_LOAD = 1_000_000.0
"""Points per second; few databases on one machine store more."""
MOST_LOAD_S = 24 * 3_600.0
MOST_MEASURED_S = 7 * 24 * 3_600.0
SERIES_BYTES = 170
"""Memory of each process for the tags of one series."""
USER_BYTES = 50_000
"""Memory of a load process for one user; its session may need more."""
MOST_BYTES = 500_000_000
YES = "or give --yes to run it nevertheless"


def expect_plausible(path: Path, cells: Sequence[RunSpec]) -> None:
    """Refuse a scenario that would take days or much memory even on the fastest database.

    Raises
    ------
    UserMistake
        One line that says what it would cost, which keys to change, and `--yes`.
    """
    for cell in cells:
        why = too_many_points(first_points(cell)) or _too_much_memory(cell)
        if why:
            cure = f"change {why[1] or 'load.window, world.interval or world.scale'}, {YES}"
            raise UserMistake(f"{path}: {cell.id} would {why[0]}; {cure}")
    measured_s = sum(cell.seconds for cell in cells)
    if measured_s > MOST_MEASURED_S:
        text = f"{len(cells):,} cells would be measured for {format_rough_duration(measured_s)}"
        raise UserMistake(f"{path}: {text}; change drive.duration or the matrix, {YES}")


def first_points(cell: RunSpec) -> int:
    """Return the number of points that a cell stores before it is measured."""
    world = cell.world
    return points_of(world.spec(), -(-cell.load.window // world.interval))


def first_bytes(cell: RunSpec) -> int:
    """Return the size of these points, with times and values as numbers of 8 bytes."""
    ticks = -(-cell.load.window // cell.world.interval)
    return 8 * cell.world.scale * ticks * sum(1 + len(layout.fields) for layout in layouts_of(cell.world.spec()))


def points_of(world: WorldSpec, ticks: int) -> int:
    """Return the number of points of a world; 0 for a use case or form that does not exist."""
    return world.scale * sum(-(-ticks // layout.every(world.interval_ns)) for layout in layouts_of(world))


def too_many_points(points: int) -> tuple[str, str] | None:
    """Return what storing the points would cost if that is more than a day; else None."""
    seconds = points / FASTEST_LOAD
    if seconds <= MOST_LOAD_S:
        return None
    return f"store {points:.2g} points, {format_rough_duration(seconds)} at {FASTEST_LOAD:,.0f} points/s", ""


def _too_much_memory(cell: RunSpec) -> tuple[str, str] | None:
    later = [*(step.users for step in cell.drive.steps), *(event.users or 0 for event in cell.event)]
    users = max([cell.drive.users, *later])
    count = cell.world.spec().series
    series, of_users = SERIES_BYTES * count, USER_BYTES * users
    if series > MOST_BYTES:
        return f"need {format_size(series)} of memory per process for {count:,} series", "world.scale"
    if of_users > MOST_BYTES:
        return f"need at least {format_size(of_users)} of memory for {users:,} users", "drive.users"
    return None
