"""The command `tsbench generate`: a world's points in a file or pipe."""

from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tsbench import units
from tsbench.cli.output import stderr
from tsbench.encode import FORMAT_NAMES
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.workload.world import WorldSpec

T = TypeVar("T")

Yes = Annotated[bool, typer.Option("--yes", help="Run it although it would take days or much memory.")]


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
    scale: Annotated[int, typer.Option(min=1, max=10_000_000, help="Hosts or devices.")] = 100,
    start: Annotated[str, typer.Option(help="First time: ISO 8601, now, or now-6h.")] = "2016-01-01T00:00:00Z",
    end: Annotated[str, typer.Option(help="End, not included.")] = "2016-01-02T00:00:00Z",
    interval: Annotated[str, typer.Option(help="Time between two readings of a series.")] = "10s",
    seed: Annotated[
        int, typer.Option(min=0, help="The same options make the same points. A scenario's depend on more: --scenario.")
    ] = 1,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMAT_NAMES)}.")] = FORMAT_NAMES[0],
    devops: Annotated[str, typer.Option("--form", help="bounded, peer (as TSBS), uniform or pareto.")] = "bounded",
    measurement: Annotated[str | None, typer.Option(help="Only this one; csv and pgcopy hold a single one.")] = None,
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Generate a use case's points, or those of a scenario, into a file or pipe."""
    from tsbench.cli.progress import CellProgress
    from tsbench.run import generate as generator
    from tsbench.scenario.validation import YES, points_of, too_many_points
    from tsbench.workload.world import WorldSpec

    given = {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}
    if scenario is not None:
        spec, end_ns = _loaded_by(scenario, only or [], override or [], given)
        keys = "load.window, world.interval or world.scale with --set"
    else:
        if unfit := given & {"only", "override"}:
            raise UserMistake(f"{_option(unfit)} needs --scenario")
        now_ns = time.time_ns()
        start_ns = parsed("--start", start, lambda text: units.parse_storable_time_ns(text, now_ns=now_ns))
        end_ns = parsed("--end", end, lambda text: units.parse_storable_time_ns(text, now_ns=now_ns))
        spec = WorldSpec(use_case, scale, seed, start_ns, parsed("--interval", interval, _above_zero), form=devops)
        keys = "--start, --end, --interval or --scale"
    ticks = max(0, -(-(end_ns - spec.start_ns) // spec.interval_ns))
    points = points_of(spec.use_case, spec.form, spec.scale, ticks)
    if not yes and (why := too_many_points(points)):
        raise UserMistake(f"this would {why[0]}; change {keys}, {YES}")
    generator.checked(spec, end_ns, form, measurement)  # before the file is opened
    with CellProgress(stderr, spec.use_case) as progress, generator.output(out, force=force) as file:
        progress.phase(f"generate {form}", max(1, ticks) * spec.scale)
        done = generator.generate(spec, end_ns, form, file, progress.advance, measurement=measurement)
    rate = done.points / done.seconds if done.seconds else 0.0
    text = f"{done.points:,} points, {done.values:,} values, {units.format_size(done.nbytes)}, {rate:,.0f} points/s"
    stderr.print(text, highlight=False, soft_wrap=True)


def _loaded_by(path: Path, only: Sequence[str], overrides: Sequence[str], given: set[str]) -> tuple[WorldSpec, int]:
    """Return the world of a scenario and the end of its initial load; refuse options that the scenario determines."""
    from tsbench.run.generate import loaded_by
    from tsbench.scenario.spec import Scenario, select

    if unfit := given & {"use_case", "scale", "start", "end", "interval", "seed", "devops"}:
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
    return f"--{ {'devops': 'form', 'override': 'set'}.get(first, first.replace('_', '-')) }"


def _above_zero(text: str) -> int:
    duration_ns = units.parse_duration_ns(text)
    if not duration_ns:
        raise ValueError("must be above 0; write for example 10s")
    return duration_ns


def parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    """Return what an option's text stands for; raise UserMistake with the option's name if `parse` refuses it."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserMistake(f"{option} {text}: {error}") from None
