"""The commands for single phases of a benchmark, joined by files and pipes: load, query, validate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ValidationError

from tsbench import units
from tsbench.cli.generate import End, Form, Interval, Scale, Start, Yes, given_options, parsed, world_of
from tsbench.cli.listing import target_names
from tsbench.cli.output import fail, say, stderr
from tsbench.errors import UserMistake
from tsbench.results.rundir import new_set
from tsbench.text import short_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.results.summary import Summary
    from tsbench.run.validating import Validated
    from tsbench.scenario.parts import TimeoutPart
    from tsbench.scenario.spec import FilePart, RunSpec
    from tsbench.workload.query_files import Asked, AskedText

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A database of `tsbench list targets`.", autocompletion=target_names)
]
Endpoint = Annotated[str | None, typer.Option(help="URL of the database, without a password.")]
Schema = Annotated[str | None, typer.Option(help="Layout of the data. Default: the target's first.")]
Out = Annotated[Path, typer.Option(help="Directory for result sets.")]
TimeLimits = Annotated[list[str] | None, typer.Option("--set", help="A time limit, as of `run`: timeout.load=20s.")]


def load(
    context: typer.Context,
    target: Target,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Line protocol, also .gz, .zst; - is stdin.")
    ] = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    use_case: Annotated[str | None, typer.Option(help="Simulate this world on the fly instead of a file.")] = None,
    scale: Scale = 100,
    start: Start = "2016-01-01T00:00:00Z",
    end: End = "2016-01-02T00:00:00Z",
    interval: Interval = "10s",
    seed: Annotated[int, typer.Option(min=0, help="The same options make the points of `generate`.")] = 1,
    form: Form = "bounded",
    workers: Annotated[int, typer.Option(min=1, max=64, help="Connections that load at the same time.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Points per request.")] = 10_000,
    mode: Annotated[str, typer.Option(help="bulk, or multi: ordinary writes of many points.")] = "bulk",
    precision: Annotated[Literal["ns", "us", "ms", "s"], typer.Option(help="Unit of a file's times.")] = "ns",
    limit: Annotated[int | None, typer.Option(min=1, help="Points to load at most.")] = None,
    duration: Annotated[str | None, typer.Option(help="Time to load at most: 60s.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Points per second at most.")] = None,
    time_limit: TimeLimits = None,
    out: Out = Path("results"),
    yes: Yes = False,
) -> int:
    """Load a file of points, or a simulated world, into a running database, whose tables are made anew."""
    from tsbench.cli.progress import CellProgress
    from tsbench.run.bulk_load import Pace
    from tsbench.run.loading import load as load_points
    from tsbench.scenario.spec import FileSpec, Job, RunSpec, explained

    given = given_options(context)
    _expect_one_source(file, use_case, given)
    place = found_place(target, endpoint, schema)
    name = f"load-{target}"
    common: dict[str, Any] = {"id": name, "scenario": name, "labels": {"target": target}, "target": place}
    common |= {"load": {"workers": workers, "batch": batch, "mode": mode}, "timeout": limits_of(time_limit)}
    spec: Job
    try:
        if file is not None:
            spec = FileSpec.model_validate({**common, "file": _points_of(file, limit, precision)})
        else:
            world = world_of(use_case or "", scale, start, end, interval, seed, form, given)
            common["load"]["window"] = world.pop("window")
            spec = RunSpec.model_validate({**common, "world": world})
    except ValidationError as error:
        raise UserMistake(explained(error)) from None
    if isinstance(spec, RunSpec):
        expect_loadable(spec)
        _expect_wanted(spec, limit, yes=yes)
    pace = Pace(rate, None if duration is None else parsed("--duration", duration, _seconds))
    results = new_set(out, name)
    with CellProgress(stderr, f"load {target}") as progress:
        summary = load_points(spec, results, progress, limit=limit, pace=pace)
    return ended(results, summary, _loaded_line(summary))


def _expect_one_source(file: str | None, use_case: str | None, given: set[str]) -> None:
    """Verify that points come from a file or a world, with options of that one only."""
    if (file is None) == (use_case is None):
        raise UserMistake("give either a FILE (- is standard input) or --use-case, which is simulated on the fly")
    if file is not None and (unfit := given & {"scale", "start", "end", "interval", "seed", "form"}):
        raise UserMistake(f"--{min(unfit)} belongs to --use-case; the points of a file are as they are")
    if file is None and "precision" in given:
        raise UserMistake("--precision belongs to a FILE; the points of a world have times in ns")


def _expect_wanted(spec: RunSpec, limit: int | None, *, yes: bool) -> None:
    """Verify that a load is small enough to be no slip, or that the user said yes."""
    from tsbench.scenario.validation import YES, points_of, too_many_points

    world = spec.world
    points = points_of(world.spec(), spec.load.window // world.interval)
    if not yes and (why := too_many_points(min(points, limit or points))):
        raise UserMistake(f"this would {why[0]}; change --start, --end, --interval or --scale, {YES}")


_LIKELY_NS = range(315_532_800 * units.NS_PER_S, 4_102_444_800 * units.NS_PER_S)
"""Times from 1980 to 2100: others are more often in another unit than of such a year."""


def _points_of(file: str, limit: int | None, precision: str) -> FilePart:
    """Return the part of a specification that names a file of points; refuse formats that are not read."""
    from tsbench.encode.point_files import expect_points
    from tsbench.scenario.spec import FilePart

    unit_ns, first = units.UNITS_NS[precision], expect_points(file)
    if first is not None and first * unit_ns not in _LIKELY_NS:
        likely = next((name for name, length_ns in units.UNITS_NS.items() if first * length_ns in _LIKELY_NS), None)
        shown = f"{first} {precision}" if likely is None else f"{first}; if it is in {likely}, say --precision {likely}"
        stderr.print(f"note: the first point is before 1980 or after 2100: its time is {shown}", highlight=False)
    return FilePart(name=file, limit=limit, unit_ns=unit_ns)


def _loaded_line(summary: Summary) -> str:
    done = summary.load
    if done is None:
        return ""
    values_per_s = done.values / done.duration_s if done.duration_s else 0.0
    return (
        f"loaded {done.points:,} points ({done.values:,} values, {units.format_size(done.bytes)}) in "
        f"{units.format_duration(done.duration_s * 1e9)} with {done.workers} workers "
        f"(mean rate {units.format_count(done.points_per_s)} points/s, {units.format_count(values_per_s)} values/s)"
    )


Queries = Annotated[str, typer.Argument(metavar="FILE", help="A file of `tsbench queries`; - is standard input.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Connections that ask at the same time.")]


def query(
    target: Target,
    file: Queries,
    endpoint: Endpoint = None,
    schema: Schema = None,
    workers: Workers = 1,
    burn_in: Annotated[int, typer.Option(min=0, help="Queries to ask before the measured ones.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Measured queries at most.")] = None,
    duration: Annotated[str | None, typer.Option(help="Time to ask at most: 60s.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Queries per second; response times count from when each was due.")
    ] = None,
    functions: Annotated[
        bool, typer.Option("--functions", help="Make the functions first that TSBS's texts call.")
    ] = False,
    time_limit: TimeLimits = None,
    out: Out = Path("results"),
) -> int:
    """Ask the queries of a file and print their times; the answers are not compared (see `validate`)."""
    from functools import partial
    from itertools import chain

    from tsbench.cli.progress import CellProgress
    from tsbench.encode.point_files import opened
    from tsbench.run import peer_queries
    from tsbench.run.asking import How, ask, read_queries
    from tsbench.scenario.spec import FilePart, FileSpec, RunSpec
    from tsbench.targets import registry

    place = found_place(target, endpoint, schema)
    how = How(burn_in, limit, rate, None if duration is None else parsed("--duration", duration, _seconds))
    drive = {"users": workers, "loop": "closed" if rate is None else "open", "rate": rate}
    name = f"query-{target}"
    about: dict[str, Any] = {
        "id": name,
        "scenario": name,
        "labels": {"target": target},
        "target": place,
        "drive": drive,
        "timeout": limits_of(time_limit),
    }
    with opened(file) as blocks:
        first = next(blocks, b"")
        whole = chain([first], blocks)
        asked: Iterator[Asked | AskedText]
        spec: RunSpec | FileSpec
        if peer_queries.are_theirs(first):
            asked = peer_queries.read(file, whole, registry.get(target))
            spec = FileSpec.model_validate({**about, "file": FilePart(name=file)})
        else:
            world, window_ns, asked = read_queries(file, whole)
            spec = RunSpec.model_validate({**about, "world": world, "load": {"window": window_ns}})
        made = peer_queries.functions_of(registry.get(target)) if functions else ()
        results = new_set(out, name)
        with CellProgress(stderr, f"query {target}", unit="queries") as progress:
            note = partial(setattr, progress, "note")
            summary, times, limited = ask(spec, asked, results, progress, how, note, made)
    return ended(results, summary, *_query_lines(summary, times, workers), *([limited] if limited else []))


def _query_lines(summary: Summary, times: Mapping[str, Mapping[str, float]], workers: int) -> list[str]:
    """Return the lines about the service times of each kind, as the peers print them; "-" where it had too few."""
    from tsbench.measure.hist import values_needed

    if summary.measured is None:
        return []
    whole = times.get("all queries") or next(iter(times.values()), {"count": 0, "per_s": 0.0})
    width = max(map(len, times), default=0)
    rate = f"overall query rate {units.format_count(whole['per_s'])} queries/sec"
    lines = [f"Run complete after {whole['count']:,.0f} queries with {workers} workers ({rate}):"]
    for name, asked in times.items():
        order = {"min": "min", "med": "p50", "mean": "mean", "p95": "p95", "p99": "p99", "max": "max"}
        few = {name for name in ("p95", "p99") if asked["count"] < values_needed(float(name[1:]))}
        texts = ", ".join(f"{key}: {'-' if of in few else f'{asked[of] / 1e6:,.2f}ms'}" for key, of in order.items())
        empty = f" ({asked['empty']:,.0f} answers without a row)" if asked["empty"] else ""
        counts = f"count: {asked['count']:,.0f}, rows: {asked['rows']:,.0f}{empty}"
        lines.append(f"{name:<{width}} : {texts}, {counts}, rate: {units.format_count(asked['per_s'])}/s")
    lines += [f"{count:,} queries failed: {text}" for text, count in [*summary.failures.items()][:3]]
    return [*lines, f"wall clock time: {summary.measured.duration_s:.3f}sec"]


def validate(
    words: Annotated[list[str], typer.Argument(metavar="TARGET... FILE", help="Databases, and a file of queries.")],
    endpoint: Annotated[list[str], typer.Option(help="URL of each database, in the order of the targets.")],
    schema: Annotated[list[str] | None, typer.Option(help="Layout of each, if it is not the first.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Queries to ask at most.")] = None,
    time_limit: TimeLimits = None,
) -> int:
    """Compare each database's answers with gold, computed from the world that the file names; else with one another."""
    from itertools import islice

    from tsbench.encode.point_files import opened
    from tsbench.run.asking import read_queries
    from tsbench.run.time_limits import Limits
    from tsbench.run.validating import agreements, are_of_another_world
    from tsbench.run.validating import validate as compared
    from tsbench.targets import registry

    *names, file = words
    schemas = schema or [None] * len(names)  # type: ignore[list-item]
    if not names or not len(names) == len(endpoint) == len(schemas):
        raise UserMistake("give TARGET... FILE, and as many --endpoint (and --schema, if any) as targets")
    places = [found_place(*one) for one in zip(names, endpoint, schemas, strict=True)]
    with opened(file) as blocks:
        world, window_ns, asked = read_queries(file, blocks)
        chosen = list(islice(asked, limit))
    time_limits = limits_of(time_limit)
    verdicts = []
    for place in places:
        target = registry.get(place["name"])
        layout = target.schemas[place["schema"] or next(iter(target.schemas))]
        limits = Limits(time_limits, place["endpoint"])
        verdicts.append(compared(world, window_ns, chosen, target, layout, limits))
        _say_verdict(verdicts[-1], chosen)
    unproven = agreements(chosen, verdicts)
    for kind in unproven:
        say(kind.sentence)
    if are_of_another_world(verdicts):
        raise UserMistake(
            f"{file}: the databases agree with each other and not with this file's world: their data are of another "
            "seed or another file; ask with queries that were made for their data"
        )
    if wrong := sum(one.answers.wrong for one in verdicts):
        hint = "; if these are all, the data may be of another world than the file's (seed, scale, start)"
        all_wrong = all(one.answers.wrong == one.answers.checked for one in verdicts)
        return fail(f"{wrong:,} answers are wrong{hint * all_wrong}", 1)
    if differ := sum(kind.differ for kind in unproven):
        return fail(f"{differ:,} answers that have no gold differ between the databases", 1)
    agree = {name for kind in unproven if len(kind.names) > 1 for name in kind.names}
    unheard = [one.name for one in verdicts if not one.answers.checked and one.name not in agree]
    return fail(f"{unheard[0]}: no answer could be checked", 1) if unheard else 0


def _say_verdict(validated: Validated, asked: Sequence[Asked]) -> None:
    """Print how many answers of a database are right, and the first that is not."""
    from tsbench.workload.query_files import line_of

    name, answers = validated.name, validated.answers
    if answers.checked or not answers.unchecked:
        meant = sum(one["count"] for one in answers.known_differences.values())
        say(f"{name}: {answers.checked - answers.wrong - meant:,} of {answers.checked:,} answers are right")
    for kind, known in answers.known_differences.items():
        say(f"{name}: {known['count']:,} answers to '{kind}' differ from gold, which is known: {known['reason']}")
    for kind, why in answers.unsupported.items():
        say(f"{name}: {kind} cannot be asked: {why}")
    if answers.first_wrong is None:
        return
    first = next(one for one in asked if str(one.query) == answers.first_wrong["query"])
    difference, _, sides = answers.first_wrong["difference"].partition(" (row ")
    say(f"first difference, query {first.number + 1}: {difference}")
    for side, row in zip(("answer:   ", "expected: "), sides.removesuffix(")").split(", expected "), strict=False):
        say(f"{side}{row}")
    say(line_of(first.kind, first.query).decode().strip())


def _seconds(text: str) -> float:
    return units.parse_duration_ns(text) / units.NS_PER_S


# --- what the commands have in common ---------------------------------------------------------------------------------


def limits_of(changes: Sequence[str] | None) -> TimeoutPart:
    """Return the time limits of `--set timeout.KEY=TIME`; raises UserMistake for other keys and values."""
    from tsbench.scenario.parts import TimeoutPart
    from tsbench.scenario.spec import explained

    asked = {}
    for text in changes or ():
        key, _, value = (part.strip() for part in text.partition("="))
        name = key.removeprefix("timeout.")
        if key == name or name not in TimeoutPart.model_fields:
            known = ", ".join(f"timeout.{one}" for one in TimeoutPart.model_fields)
            raise UserMistake(f"--set '{text}': this command has the keys {known}; write --set timeout.load=20s")
        asked[name] = value
    try:
        return TimeoutPart.model_validate(asked)
    except ValidationError as error:
        raise UserMistake(f"--set timeout.{explained(error)}") from None


def found_place(target: str, endpoint: str | None, schema: str | None) -> dict[str, Any]:
    """Return [target] of a database that outlasts the command.

    Raises
    ------
    UserMistake
        If there is no such target or schema, the endpoint is missing or malformed, or nothing outlasts the command.
    """
    from tsbench.targets import registry
    from tsbench.targets.credentials import refuse_secrets
    from tsbench.targets.target import require_driver

    target_of = registry.get(target)
    require_driver(target_of)
    if not target_of.durable:
        raise UserMistake(f"{target} keeps its data no longer than this process; take a database that does")
    if not endpoint:
        raise UserMistake(f"--endpoint is missing: the URL of a database that stays, such as {target_of.form}")
    refuse_secrets(endpoint, "--endpoint")
    target_of.parse(endpoint)
    if schema is not None and schema not in target_of.schemas:
        raise UserMistake(f"{target} has no schema '{schema}'; there are {', '.join(target_of.schemas)}")
    return {"name": target, "schema": schema, "endpoint": endpoint}


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
