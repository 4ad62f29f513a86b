"""The commands that write a world's points, and queries about it, into a file or pipe: generate, queries."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tsbench import units
from tsbench.cli.output import stderr, stdout
from tsbench.encode import FORMAT_NAMES
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.workload.world import World, WorldSpec

T = TypeVar("T")

Yes = Annotated[bool, typer.Option("--yes", help="Run it although it would take days or much memory.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
Scale = Annotated[int, typer.Option(min=1, max=10_000_000, help="Hosts or devices.")]
Start = Annotated[str, typer.Option(help="First time: ISO 8601, now, or now-6h.")]
End = Annotated[str, typer.Option(help="End, not included.")]
Interval = Annotated[str, typer.Option(help="Time between two readings of a series.")]
Form = Annotated[str, typer.Option(help="As of `generate`.")]


def generate(
    context: typer.Context,
    out: Annotated[str, typer.Option(help="File to write; - is standard output; .zst compresses.")],
    scenario: Annotated[
        Path | None, typer.Option(help="Write the points that this scenario's runs store before they measure.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="As of `run`; needed if the scenario's cells load different points.")
    ] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="As of `run`: world.scale=1000")] = None,
    use_case: Annotated[str, typer.Option(help="See `tsbench list use-cases`.")] = "cpu-only",
    scale: Scale = 100,
    start: Start = "2016-01-01T00:00:00Z",
    end: End = "2016-01-02T00:00:00Z",
    interval: Interval = "10s",
    seed: Annotated[
        int, typer.Option(min=0, help="The same options make the same points. A scenario's depend on more: --scenario.")
    ] = 1,
    file_format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMAT_NAMES)}.")] = FORMAT_NAMES[0],
    form: Annotated[str, typer.Option(help="A variant: bounded, peer (as TSBS), or another one.")] = "bounded",
    measurement: Annotated[str | None, typer.Option(help="Only this one; a file that is a table has one.")] = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Generate a use case's points, or those of a scenario, into a file or pipe."""
    from tsbench.cli.progress import CellProgress
    from tsbench.run import generate as generator
    from tsbench.scenario.validation import YES, points_of, too_many_points

    given = given_options(context)
    if scenario is not None:
        spec, end_ns = _loaded_by(scenario, only or [], override or [], given)
        keys = "load.window, world.interval or world.scale with --set"
    else:
        if unfit := given & {"only", "override"}:
            raise UserMistake(f"{_option(unfit)} needs --scenario")
        parsed("--interval", interval, _above_zero)
        world = world_of(use_case, scale, start, end, interval, seed, form, given, may_be_empty=True)
        end_ns = world["start"] + world.pop("window")
        spec = world_spec(world)
        keys = "--start, --end, --interval or --scale"
    ticks = max(0, -(-(end_ns - spec.start_ns) // spec.interval_ns))
    points = points_of(spec, ticks)
    if not yes and (why := too_many_points(points)):
        raise UserMistake(f"this would {why[0]}; change {keys}, {YES}")
    chosen = generator.checked(spec, end_ns, file_format, measurement)[-1]  # before the file is opened
    with CellProgress(stderr, spec.use_case) as progress, generator.output(out, force=force) as file:
        progress.phase(f"generate {file_format}", max(1, ticks) * spec.scale * len(chosen))
        done = generator.generate(spec, end_ns, file_format, file, progress.advance, measurement=measurement)
    rate = done.points / done.seconds if done.seconds else 0.0
    text = f"{done.points:,} points, {done.values:,} values, {units.format_size(done.nbytes)}, {rate:,.0f} points/s"
    stderr.print(text, highlight=False, soft_wrap=True)


def _loaded_by(path: Path, only: Sequence[str], overrides: Sequence[str], given: set[str]) -> tuple[WorldSpec, int]:
    """Return the world of a scenario and the end of its initial load; refuse options that the scenario determines."""
    from tsbench.run.generate import loaded_by
    from tsbench.scenario.spec import Scenario, select

    if unfit := given & {"use_case", "scale", "start", "end", "interval", "seed", "form"}:
        raise UserMistake(
            f"{_option(unfit)}: the scenario says that; change its key with --set, or leave the option out"
        )
    cells = select(Scenario.load(path, overrides=overrides).expand(), only)
    if any(cell.relative_start for cell in cells):
        note = "tsbench: world.start is relative to now, so that a run of the scenario begins at another time"
        stderr.print(note, highlight=False, soft_wrap=True)
    return loaded_by(cells)


def _option(names: set[str]) -> str:
    first = min(names)
    return "--set" if first == "override" else f"--{first.replace('_', '-')}"


def _above_zero(text: str) -> int:
    duration_ns = units.parse_duration_ns(text)
    if not duration_ns:
        raise ValueError("must be above 0; write for example 10s")
    return duration_ns


def given_options(context: typer.Context) -> set[str]:
    """Return the names of the parameters that the command line sets."""
    return {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}


def _times(start: str, end: str) -> tuple[int, int]:
    """Return the times of --start and --end in ns, with the same `now` in both."""
    parse = partial(units.parse_storable_time_ns, now_ns=time.time_ns())
    return parsed("--start", start, parse), parsed("--end", end, parse)


def parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    """Return what an option's text stands for; raise UserMistake with the option's name if `parse` refuses it."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserMistake(f"{option} {text}: {error}") from None


# --- queries ----------------------------------------------------------------------------------------------------------


Kinds = Annotated[list[str], typer.Option("--type", help="A kind of `tsbench list queries`; of several in turn.")]


def queries(
    context: typer.Context,
    kind: Kinds,
    use_case: Annotated[str, typer.Option(help="The world that is loaded.")] = "cpu-only",
    scale: Scale = 100,
    start: Start = "2016-01-01T00:00:00Z",
    end: End = "2016-01-02T00:00:00Z",
    interval: Interval = "10s",
    seed: Annotated[int, typer.Option(min=0, help="The world's seed, and that of the queries.")] = 1,
    form: Form = "bounded",
    kept: Annotated[
        Path | None, typer.Option("--loaded", metavar="DIR", help="Ask about the data that this result set keeps.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=100_000_000, help="Number of queries.")] = 1_000,
    query_seed: Annotated[int | None, typer.Option(min=0, help="Seed of the queries, if not the world's.")] = None,
    show: Annotated[str | None, typer.Option(metavar="TARGET", help="Print what the first queries compile to.")] = None,
    out: Annotated[str, typer.Option(help="File to write; - is standard output; .zst compresses.")] = "-",
    force: Force = False,
) -> None:
    """Write queries into a file that serves every database, or show what they compile to."""
    from tsbench.model import Window
    from tsbench.run.generate import output
    from tsbench.scenario.use_case import expect_fit
    from tsbench.workload.queries import Misfit
    from tsbench.workload.query_files import MS, head_line, made
    from tsbench.workload.world import World

    given = given_options(context)
    if kept is not None:
        keys = _kept_world(kept, given)
    else:
        keys = world_of(use_case, scale, start, end, interval, seed, form, given)
    window_ns = keys.pop("window")
    try:
        world = World(world_spec(keys, MS))
        loaded = Window(world.time_ns(0), world.time_ns(world.ticks(window_ns)))
        for one in kind:
            expect_fit(one, world, loaded)
    except Misfit as error:
        raise UserMistake(str(error)) from None
    except ValueError as error:
        raise UserMistake(str(error)) from None
    lines = made(kind, count, world, loaded, seed if query_seed is None else query_seed)
    if show is not None:
        _show(show, world, [next(lines) for _ in range(min(count, len(kind)))])
        return
    if (own := keys.get("described")) is not None:
        keys["described"] = own.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    with output(out, force=force) as file:
        file.write(head_line(keys, window_ns))
        for line in lines:
            file.write(line)


def _kept_world(results: Path, given: set[str]) -> dict[str, Any]:
    """Return what `world_of` does for the data that a result set keeps."""
    from tsbench.run.keeping import read_kept

    if unfit := given & {"use_case", "scale", "start", "end", "interval", "seed", "form"}:
        raise UserMistake(f"{_option(unfit)}: --loaded says that; leave one of the two out")
    spec = read_kept(results).spec()
    return {**{name: value for name, value in spec.world if value is not None}, "window": spec.load.window}


def _show(name: str, world: World, lines: Sequence[bytes]) -> None:
    """Print what queries compile to on a target, in each of its schemas that can express them."""
    from tsbench.targets import registry
    from tsbench.targets.base import Unsupported
    from tsbench.workload.query_files import Parser

    parser = Parser(world.measurements)
    for schema in registry.get(name).schemas.values():
        for number, line in enumerate(lines):
            asked = parser.parse(line, number)
            try:
                statement = schema.compile(asked.query)
            except Unsupported as why:
                stdout.print(f"-- {name} {schema.name}, {asked.kind}: cannot be asked: {why}\n", markup=False)
                continue
            stdout.print(f"-- {name} {schema.name}, {asked.kind}", markup=False, highlight=False)
            stdout.print(statement.text, markup=False, highlight=False, soft_wrap=True)
            if statement.params:
                stdout.print(f"-- {statement.params}", markup=False, highlight=False, soft_wrap=True)
            stdout.print()


def world_spec(keys: Mapping[str, Any], resolution_ns: int = 1) -> WorldSpec:
    """Return the parameters of the world with these keys of [world]; `World` refuses a wrong form or use case.

    Raises
    ------
    UserMistake
        If another key is wrong, such as one of a use case's file.
    """
    from tsbench.scenario.parts import WorldPart

    try:
        part = WorldPart.of({**keys, "form": "bounded"})
    except ValueError as error:
        raise UserMistake(f"the use case '{keys['use_case']}': {error}") from None
    return replace(part.spec(resolution_ns), form=keys["form"])


def world_of(
    use_case: str,
    scale: int,
    start: str,
    end: str,
    interval: str,
    seed: int,
    form: str,
    given: set[str],
    *,
    may_be_empty: bool = False,
) -> dict[str, Any]:
    """Return [world] as `tsbench generate` has it from the same options, and the `window` that is loaded, in ns.

    A recording has its own scale, interval and times, unless options that are `given` say otherwise.
    """
    from tsbench.scenario.use_case import recording_of, resolved

    if (recorded := recording_of(use_case)) is not None:
        keys = {"use_case": use_case, "seed": seed, "streams": 1}
        for name, text in (("scale", scale), ("interval", interval), ("form", form), ("start", start)):
            keys |= {name: text} if name in given else {}
        made = resolved(keys, Path())
        begin, end = made["start"], end if "end" in given else units.format_time(recorded.last_ns + units.NS_PER_S)
        start_ns, end_ns = _times(begin, end)
        window = end_ns - start_ns if "end" in given else recorded.ticks * recorded.interval_ns
        if window <= 0:
            raise UserMistake(f"--end {end}: is not after the recording's start, {begin}")
        return {**made, "start": start_ns, "interval": recorded.interval_ns, "form": "bounded", "window": window}
    start_ns, end_ns = _times(start, end)
    interval_ns = parsed("--interval", interval, units.parse_duration_ns)
    if end_ns <= start_ns and not may_be_empty:
        raise UserMistake("the end is not after the start: there is nothing to load; give a later --end")
    keys = {"use_case": use_case, "start": start_ns, "seed": seed, "form": form, "streams": 1}
    own = {"scale": scale, "interval": interval_ns}  # of which a file may say its own
    made = resolved(keys | {name: value for name, value in own.items() if name in given}, Path())
    return {**own, **made, "window": max(0, end_ns - start_ns)}
