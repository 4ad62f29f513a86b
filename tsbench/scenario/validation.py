"""Checks of a scenario against targets and world, before anything is started or written."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.servers import cgroup
from tsbench.targets import registry
from tsbench.targets.credentials import refuse_secrets
from tsbench.targets.registry import TARGETS
from tsbench.targets.target import Access, require_driver
from tsbench.workload import queries

if TYPE_CHECKING:
    from tsbench.scenario.parts import ServerPart
    from tsbench.scenario.spec import RunSpec
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target
    from tsbench.workload.world import World


def check_spec(spec: RunSpec, place: str) -> None:
    """Verify names, schemas, drivers, modes, streams, server and queries of a run's specification.

    Raises
    ------
    UserMistake
        One line that names the scenario (`place`) and its key.
    """
    try:
        target = registry.get(spec.target.name)
        require_driver(target)
    except UserMistake as error:
        raise UserMistake(f"{place}: target.name: {error}") from None
    try:
        schema = schema_of(spec, target)
    except UserMistake as error:
        raise UserMistake(f"{place}: target.schema: {error}") from None
    _check_server(spec, target, place)
    try:
        check_caps(spec.server, target, spec.target.endpoint)
    except UserMistake as error:
        raise UserMistake(f"{place}: {error}") from None
    try:
        world = spec.world_at()
    except ValueError as error:
        raise UserMistake(f"{place}: world: {error}") from None
    _check_times(spec, target, place)
    _check_load(spec, world, place)
    if spec.drive.processes > world.spec.streams:
        text = f"{spec.drive.processes} processes cannot share {world.spec.streams} streams; raise world.streams"
        raise UserMistake(f"{place}: drive.processes: {text}{_SCALE if world.spec.streams == world.spec.scale else ''}")
    modes = {"load.mode": spec.load.mode, **{f"op {op.name}: mode": op.write_mode for op in spec.writes}}
    for key, mode in modes.items():
        if mode not in schema.modes:
            known = ", ".join(sorted(schema.modes))
            raise UserMistake(f"{place}: {key}: '{mode}' is not one of {target.name}'s {schema.name}: {known}")


_SCALE = " and world.scale, since a stream has at least one series"


def schema_of(spec: RunSpec, target: Target) -> Schema:
    """Return the configured schema, or the target's first one.

    Raises
    ------
    UserMistake
        If the target has no such schema.
    """
    name = spec.target.schema_ or next(iter(target.schemas))
    if name not in target.schemas:
        near = difflib.get_close_matches(name, target.schemas, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(target.schemas)}"
        raise UserMistake(f"{target.name} has no schema '{name}'; {hint}")
    return target.schemas[name]


def _check_server(spec: RunSpec, target: Target, place: str) -> None:
    wanted = spec.target
    if reason := undrivable(target, spec.drive.processes):
        key = "target.name" if target.access is Access.OPENER else "drive.processes"
        raise UserMistake(f"{place}: {key}: {reason}")
    if wanted.endpoint is not None:
        refuse_secrets(wanted.endpoint, f"{place}: target.endpoint")
        try:
            target.parse(wanted.endpoint)
        except UserMistake as error:
            raise UserMistake(f"{place}: target.endpoint: {error}") from None
        for key, given in (("cold", wanted.cold), ("settings", bool(wanted.settings))):
            if given:
                text = "needs a server that tsbench starts; take it out, or take target.endpoint out"
                raise UserMistake(f"{place}: target.{key}: {text}")
        return
    if not target.startable:
        text = f"is missing, and tsbench cannot start {target.name} itself; give --endpoint URL"
        raise UserMistake(f"{place}: target.endpoint: {text}")
    if wanted.cold and not target.durable:
        raise UserMistake(f"{place}: target.cold: {target.name} keeps nothing on disk that could be cold; take it out")
    try:
        target.new_server(Path("unused"), wanted.settings)  # nothing is started: the constructor checks the settings
    except UserMistake as error:
        raise UserMistake(f"{place}: target.{error}") from None


def _check_times(spec: RunSpec, target: Target, place: str) -> None:
    for key, time_ns in (("interval", spec.world.interval), ("start", spec.world.start)):
        if time_ns % target.resolution_ns:
            text = f"{target.name} stores times to {target.resolution_ns:,} ns; give a multiple of that"
            raise UserMistake(f"{place}: world.{key}: {text}")


def _check_load(spec: RunSpec, world: World, place: str) -> None:
    if not spec.load.window:
        raise UserMistake(f"{place}: load.window: must be above 0; queries need something to find")
    loaded = spec.loaded(world)
    try:
        _ = spec.block_points
        for op in spec.queries:
            queries.fit(op.query or "", world, loaded)
    except ValueError as error:
        raise UserMistake(f"{place}: op: {error}") from None


def undrivable(target: Target, processes: int) -> str:
    """Return the reason why `processes` load processes cannot drive a target, with the cure; "" if they can."""
    if target.access is Access.OPENER:
        text = f"'{target.name}' exists only in the memory of one process, so load processes cannot use it"
        others = [name for name, one in TARGETS.items() if one.startable and one.access is Access.ANY_PROCESS]
        return f"{text}; take {', '.join(others[:-1])} or {others[-1]}"
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
