"""The commands for single phases of a benchmark: `tsbench load`, joined with others by files and pipes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from tsbench import units
from tsbench.cli.generate import Yes, parsed
from tsbench.cli.output import fail, say, stderr
from tsbench.errors import UserMistake
from tsbench.text import short_path

if TYPE_CHECKING:
    from tsbench.results.summary import Summary

Target = Annotated[str, typer.Argument(metavar="TARGET", help="A database of `tsbench list targets`.")]
Endpoint = Annotated[str | None, typer.Option(help="URL of the database, without a password.")]
Schema = Annotated[str | None, typer.Option(help="Layout of the data. Default: the target's first.")]
Out = Annotated[Path, typer.Option(help="Directory for result sets.")]


def load(
    context: typer.Context,
    target: Target,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Line protocol, also .gz or .zst; - is standard input.")
    ] = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    use_case: Annotated[str | None, typer.Option(help="Simulate this world on the fly instead of a file.")] = None,
    scale: Annotated[int, typer.Option(min=1, max=10_000_000, help="Hosts or devices.")] = 100,
    start: Annotated[str, typer.Option(help="First time: ISO 8601, now, or now-6h.")] = "2016-01-01T00:00:00Z",
    end: Annotated[str, typer.Option(help="End, not included.")] = "2016-01-02T00:00:00Z",
    interval: Annotated[str, typer.Option(help="Time between two readings of a series.")] = "10s",
    seed: Annotated[int, typer.Option(min=0, help="The same options make the points of `generate`.")] = 1,
    form: Annotated[str, typer.Option(help="As of `generate`.")] = "bounded",
    workers: Annotated[int, typer.Option(min=1, max=64, help="Connections that load at the same time.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Points per request.")] = 10_000,
    mode: Annotated[str, typer.Option(help="bulk, or multi: ordinary writes of many points.")] = "bulk",
    limit: Annotated[int | None, typer.Option(min=1, help="Points to load at most.")] = None,
    duration: Annotated[str | None, typer.Option(help="Time to load at most: 60s.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Points per second at most.")] = None,
    out: Out = Path("results"),
    yes: Yes = False,
) -> int:
    """Load a file of points, or a simulated world, into a running database, whose tables are made anew."""
    from tsbench.cli.progress import CellProgress
    from tsbench.run.bulk_load import Pace
    from tsbench.run.loading import load as load_points
    from tsbench.scenario.spec import FilePart, FileSpec, Job, RunSpec, explained
    from tsbench.scenario.validation import YES, points_of, too_many_points

    given = {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}
    if (file is None) == (use_case is None):
        raise UserMistake("give either a FILE (- is standard input) or --use-case, which is simulated on the fly")
    if file is not None and (unfit := given & {"scale", "start", "end", "interval", "seed", "form"}):
        raise UserMistake(f"--{min(unfit)} belongs to --use-case; the points of a file are as they are")
    place = found_place(target, endpoint, schema)
    common: dict[str, Any] = {"id": f"load-{target}", "scenario": f"load-{target}", "target": place}
    common |= {"load": {"workers": workers, "batch": batch, "mode": mode}, "labels": {"target": target}}
    spec: Job
    try:
        if file is not None:
            spec = FileSpec.model_validate({**common, "file": FilePart(name=file, limit=limit)})
        else:
            world = world_of(use_case or "", scale, start, end, interval, seed, form)
            common["load"]["window"] = world.pop("window")
            spec = RunSpec.model_validate({**common, "world": world})
    except ValidationError as error:
        raise UserMistake(explained(error)) from None
    if isinstance(spec, RunSpec):
        expect_loadable(spec)
        points = points_of(spec.world.use_case, spec.world.form, scale, spec.load.window // spec.world.interval)
        if not yes and (why := too_many_points(min(points, limit or points))):
            raise UserMistake(f"this would {why[0]}; change --start, --end, --interval or --scale, {YES}")
    pace = Pace(rate, None if duration is None else parsed("--duration", duration, units.parse_duration_ns) / 1e9)
    results = new_results(out, f"load-{target}")
    with CellProgress(stderr, f"load {target}", "points") as progress:
        summary = load_points(spec, results, progress, limit=limit, pace=pace)
    return ended(results, summary, _loaded_line(summary))


def _loaded_line(summary: Summary) -> str:
    done = summary.load
    if done is None:
        return ""
    values_per_s = done.values / done.duration_s if done.duration_s else 0.0
    return (
        f"loaded {done.points:,} points ({done.values:,} values, {units.format_size(done.bytes)}) in "
        f"{done.duration_s:.3f} s with {done.workers} workers (mean rate {done.points_per_s:,.2f} points/s, "
        f"{values_per_s:,.2f} values/s)"
    )


# --- what the commands have in common ---------------------------------------------------------------------------------


def found_place(target: str, endpoint: str | None, schema: str | None) -> dict[str, Any]:
    """Return [target] of a database that outlasts the command.

    Raises
    ------
    UserMistake
        If there is no such target or schema, the endpoint is missing or malformed, or nothing outlasts the command.
    """
    from tsbench.targets import registry
    from tsbench.targets.credentials import refuse_secrets
    from tsbench.targets.target import Access, require_driver

    found = registry.get(target)
    require_driver(found)
    if found.access is Access.OPENER or not found.durable:
        raise UserMistake(f"{target} keeps its data no longer than this process; take a database that does")
    if not endpoint:
        raise UserMistake(f"--endpoint is missing: the URL of a database that stays, such as {found.form}")
    refuse_secrets(endpoint, "--endpoint")
    found.parse(endpoint)
    if schema is not None and schema not in found.schemas:
        raise UserMistake(f"{target} has no schema '{schema}'; there are {', '.join(found.schemas)}")
    return {"name": target, "schema": schema, "endpoint": endpoint}


def world_of(use_case: str, scale: int, start: str, end: str, interval: str, seed: int, form: str) -> dict[str, Any]:
    """Return [world] as `tsbench generate` has it from the same options, and the `window` that is loaded, in ns."""
    now_ns = time.time_ns()
    start_ns = parsed("--start", start, lambda text: units.parse_storable_time_ns(text, now_ns=now_ns))
    end_ns = parsed("--end", end, lambda text: units.parse_storable_time_ns(text, now_ns=now_ns))
    interval_ns = parsed("--interval", interval, units.parse_duration_ns)
    if end_ns <= start_ns:
        raise UserMistake("the end is not after the start: there is nothing to load; give a later --end")
    return {
        "use_case": use_case,
        "scale": scale,
        "start": start_ns,
        "interval": interval_ns,
        "seed": seed,
        "form": form,
        "streams": 1,
        "window": end_ns - start_ns,
    }


def expect_loadable(spec: Any) -> None:
    """Verify that the world exists and the target stores its times; raises UserMistake."""
    from tsbench.targets import registry

    try:
        spec.world_at()
    except ValueError as error:
        raise UserMistake(str(error)) from None
    step_ns = registry.get(spec.target.name).resolution_ns
    if spec.world.interval % step_ns or spec.world.start % step_ns:
        text = f"{spec.target.name} stores times to {step_ns:,} ns; give --start and --interval in multiples of that"
        raise UserMistake(text)


def new_results(out: Path, name: str) -> Path:
    """Return the directory of a new result set, which is not made yet."""
    results = out / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{name}"
    if results.exists():
        raise UserMistake(f"{results} is there already; wait a second, or choose another --out")
    return results


def ended(results: Path, summary: Summary, *lines: str) -> int:
    """Write the set's summary, print the lines and where the results are, and return the exit code."""
    from tsbench.results.summary import SetSummary

    SetSummary(scenario=summary.scenario, cells=(summary,)).write(results)
    for line in filter(None, lines):
        say(line)
    say(f"results: {short_path(results)}")
    if summary.passed:
        return 0
    broke_off = summary.load is None and summary.measured is None
    return fail(summary.validity.reason if broke_off else summary.headline, 1)
