"""The commands for single phases of a benchmark, joined by files and pipes: load, query, validate."""

from __future__ import annotations

from functools import partial
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
    from collections.abc import Mapping, Sequence

    from tsbench.results.figures import Agreement, OpFigures
    from tsbench.results.summary import Summary
    from tsbench.run.keeping import Kept, Stay
    from tsbench.run.phases import Progress
    from tsbench.run.validating import Validated
    from tsbench.scenario.parts import TimeoutPart
    from tsbench.scenario.spec import FilePart, FileSpec, Job, RunSpec
    from tsbench.workload.query_files import Asked

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A database of `tsbench list targets`.", autocompletion=target_names)
]
Endpoint = Annotated[str | None, typer.Option(help="URL of the database, without a password.")]
KeptBy = Annotated[Path | None, typer.Option("--loaded", metavar="DIR", help="The result set that keeps the database.")]
Schema = Annotated[str | None, typer.Option(help="Layout of the data. Default: the target's first.")]
Out = Annotated[Path, typer.Option(help="Directory for result sets.")]
OfScenario = Annotated[Path | None, typer.Option("--scenario", help="Store the initial load of this scenario's runs.")]
Only = Annotated[list[str] | None, typer.Option(help="Of the scenario's runs, those whose id contains this.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="A time limit (timeout.load=20s), or a key of the scenario.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Start a server, and leave it standing for `run --loaded`.")]
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
    scenario: OfScenario = None,
    only: Only = None,
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
    round_times: Annotated[
        bool, typer.Option("--round-times", help="Cut a file's times to the finest unit that the database has.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Points to load at most.")] = None,
    duration: Annotated[str | None, typer.Option(help="Time to load at most: 60s.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Points per second at most.")] = None,
    override: Changes = None,
    keep: Keep = False,
    out: Out = Path("results"),
    yes: Yes = False,
) -> int:
    """Load a file of points, or a simulated world, into a running database, whose tables are made anew."""
    from tsbench.run.keeping import apart
    from tsbench.scenario.spec import PacePart

    given = given_options(context)
    _expect_one_source({"FILE": file, "--use-case": use_case, "--scenario": scenario}, given)
    if keep and (endpoint or file or given & {"limit", "duration"}):
        raise UserMistake("--keep starts a server for a whole world; leave --endpoint, FILE, --limit, --duration out")
    place = found_place(target, endpoint, schema, needs_endpoint=not keep)
    how = {"workers": workers, "batch": batch, "mode": mode}
    about: dict[str, Any] = {"id": f"load-{target}", "scenario": f"load-{target}", "labels": {"target": target}}
    spec: RunSpec | FileSpec
    if scenario is not None:
        changes = [f"load.{name}={value}" for name, value in how.items() if name in given]
        spec = _of_scenario(scenario, only or [], place, [*(override or []), *changes]).model_copy(update=about)
    else:
        about |= {"target": place, "timeout": limits_of(override), "load": how}
        if use_case is None:
            about["file"] = _points_of(file or "", precision, round_times=round_times)
        else:
            about["world"] = world_of(use_case, scale, start, end, interval, seed, form, given)
            how["window"] = about["world"].pop("window")
        spec = _validated(about)
    _expect_wanted(spec, limit, yes=yes)
    seconds = None if duration is None else parsed("--duration", duration, _seconds)
    pace = PacePart(limit=limit, per_s=rate, duration_s=seconds)
    one = partial(_load, spec.model_copy(update={"pace": pace}), new_set(out, spec.id))
    return apart(one) if keep else one()


def _load(spec: RunSpec | FileSpec, results: Path, stay: Stay | None = None) -> int:
    """Load what a specification says, print the figures, and return the exit code."""
    from tsbench.cli.progress import CellProgress
    from tsbench.cli.running import stay_with
    from tsbench.run.lifecycle import run_job
    from tsbench.run.standing import Standing
    from tsbench.scenario.spec import LOAD, RunSpec

    standing = Standing(results, stays=True)
    if isinstance(spec, RunSpec):
        standing.share(spec, ())
        spec = spec.model_copy(update={"steps": LOAD})
    with CellProgress(stderr, f"load {spec.target.name}") as progress:
        summary = run_job(spec, results, progress, standing=standing)
    standing.keep()
    return stay_with(standing, results, ended(results, summary, _loaded_line(summary)), stay)


def _of_scenario(path: Path, only: Sequence[str], place: Mapping[str, Any], changes: Sequence[str]) -> RunSpec:
    """Return a run of a scenario that loads as its runs on a target do, and then ends."""
    from tsbench.run.generate import loaded_by
    from tsbench.scenario.spec import Scenario, select
    from tsbench.scenario.validation import check_spec

    keys = [*changes, *(f"target.{name}={value}" for name, value in place.items() if value)]
    cells = select(Scenario.load(path, overrides=keys).expand(), only)
    loaded_by(cells)
    check_spec(cells[0], str(path))
    ended = {"op": (), "query": (), "event": (), "gates": (), "block": cells[0].block_points}
    return cells[0].model_copy(update=ended)


def _expect_one_source(sources: Mapping[str, object], given: set[str]) -> None:
    """Verify that points come from a file, a world or a scenario, with options of that one only."""
    chosen = [name for name, value in sources.items() if value is not None]
    if len(chosen) != 1:
        raise UserMistake("give one of FILE (- is standard input), --use-case and --scenario")
    of_world = given & {"scale", "start", "end", "interval", "seed", "form"}
    if of_world and chosen != ["--use-case"]:
        says = (
            "points of a file are as they are" if chosen == ["FILE"] else "scenario says it; change its key with --set"
        )
        raise UserMistake(f"--{min(of_world)} belongs to --use-case; the {says}")
    if (of_file := given & {"precision", "round_times"}) and chosen != ["FILE"]:
        option = min(of_file).replace("_", "-")
        raise UserMistake(f"--{option} belongs to a FILE; the points of a world have times in ns")
    if "only" in given and chosen != ["--scenario"]:
        raise UserMistake("--only belongs to --scenario")


def _expect_wanted(spec: RunSpec | FileSpec, limit: int | None, *, yes: bool) -> None:
    """Verify that a world can be loaded, and is small enough to be no slip, unless the user said yes."""
    from tsbench.scenario.spec import FileSpec
    from tsbench.scenario.validation import YES, points_of, too_many_points

    if isinstance(spec, FileSpec):
        return
    expect_loadable(spec)
    world = spec.world
    points = points_of(world.spec(), spec.load.window // world.interval)
    if not yes and (why := too_many_points(min(points, limit or points))):
        raise UserMistake(f"this would {why[0]}; change --start, --end, --interval or --scale, {YES}")


_LIKELY_NS = range(315_532_800 * units.NS_PER_S, 4_102_444_800 * units.NS_PER_S)
"""Times from 1980 to 2100: others are more often in another unit than of such a year."""


def _points_of(file: str, precision: str, *, round_times: bool) -> FilePart:
    """Return the part of a specification that names a file of points; refuse formats that are not read."""
    from tsbench.encode.point_files import expect_points
    from tsbench.scenario.spec import FilePart

    unit_ns, first = units.UNITS_NS[precision], expect_points(file)
    if first is not None and first * unit_ns not in _LIKELY_NS:
        likely = next((name for name, length_ns in units.UNITS_NS.items() if first * length_ns in _LIKELY_NS), None)
        shown = f"{first} {precision}" if likely is None else f"{first}; if it is in {likely}, say --precision {likely}"
        stderr.print(f"note: the first point is before 1980 or after 2100: its time is {shown}", highlight=False)
    return FilePart(name=file, unit_ns=unit_ns, round_times=round_times)


def _loaded_line(summary: Summary) -> str:
    done = summary.load
    if done is None:
        return ""
    values_per_s = done.values / done.duration_s if done.duration_s else 0.0
    return (
        f"loaded {done.points:,} points ({done.values:,} values, {units.format_size(done.bytes)}) in "
        f"{units.format_duration(done.duration_s * 1e9)} with {done.workers} worker{'s' * (done.workers > 1)} "
        f"(mean rate {units.format_count(done.points_per_s)} points/s, {units.format_count(values_per_s)} values/s)"
    )


Queries = Annotated[str, typer.Argument(metavar="FILE", help="A file of `tsbench queries`; - is standard input.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Connections that ask at the same time.")]


def query(
    target: Target,
    file: Queries,
    endpoint: Endpoint = None,
    kept: KeptBy = None,
    schema: Schema = None,
    workers: Workers = 1,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Load processes that share the workers.")] = 1,
    burn_in: Annotated[int, typer.Option(min=0, help="Queries to ask before the measured ones.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Measured queries at most.")] = None,
    duration: Annotated[str | None, typer.Option(help="Time to ask at most: 60s.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Queries per second; response times count from when each was due.")
    ] = None,
    gate: Annotated[list[str] | None, typer.Option(help="As of `run`: 'query:p99<50ms'.")] = None,
    functions: Annotated[
        bool, typer.Option("--functions", help="Make the functions first that TSBS's texts call.")
    ] = False,
    time_limit: TimeLimits = None,
    out: Out = Path("results"),
) -> int:
    """Ask the queries of a file and print their times; the answers are not compared (see `validate`)."""
    from tsbench.cli.progress import CellProgress
    from tsbench.measure.gates import asked_gates
    from tsbench.run import peer_queries
    from tsbench.run.asking import checked
    from tsbench.scenario.parts import ENDLESS
    from tsbench.scenario.spec import ASK_FILE, FilePart
    from tsbench.scenario.validation import undrivable
    from tsbench.targets import registry

    if kept is not None:
        ((endpoint, schema, _),) = _kept_places([target], [kept], [endpoint, schema])
    place, asked = found_place(target, endpoint, schema), registry.get(target)
    if reason := undrivable(asked, processes):
        raise UserMistake(f"--processes: {reason}")
    name = f"query-{target}"
    drive: dict[str, Any] = {"users": workers, "processes": processes, "warmup": 0, "duration": duration or ENDLESS}
    drive |= {} if rate is None else {"loop": "open", "rate": rate}
    about: dict[str, Any] = {"id": name, "scenario": name, "labels": {"target": target}, "target": place}
    about |= {"drive": drive, "timeout": limits_of(time_limit), "gates": asked_gates(gate or ())}
    if functions:
        peer_queries.functions_of(asked)  # which refuses a database that has none
    layout = asked.schemas[schema or next(iter(asked.schemas))]
    with checked(file, asked, layout, burn_in=burn_in, limit=limit) as queries:
        about |= {"query_file": queries.part.model_copy(update={"functions": functions}), "steps": ASK_FILE}
        if queries.world is None:
            about["file"] = FilePart(name=file)
        else:
            about |= {"world": queries.world, "load": {"window": queries.window_ns}}
        spec = _validated(about)
        results = new_set(out, name)
        with CellProgress(stderr, f"query {target}", unit="queries") as progress:
            summary = _asked(spec, results, progress)
    return ended(results, summary, *_query_lines(summary))


def _asked(spec: Job, results: Path, progress: Progress) -> Summary:
    """Ask the queries of a file; an interrupt says how many were answered."""
    from tsbench.results.rundir import find_runs
    from tsbench.results.summary import Summary
    from tsbench.run.asking import answers_in
    from tsbench.run.lifecycle import run_job

    try:
        return run_job(spec, results, progress)
    except KeyboardInterrupt as interrupt:
        (run,) = find_runs(results)
        answered = answers_in(Summary.read(run).measured) if run.has("summary.json") else 0
        text = f"{interrupt}; {answered:,} queries were answered: tsbench report {short_path(results)} shows them"
        raise KeyboardInterrupt(text) from None


def _query_lines(summary: Summary) -> list[str]:
    """Return the lines about the service times of each kind, as the peers print them; "-" where it had too few."""
    measured = summary.measured
    if measured is None or measured.query is None:
        return []
    kinds = dict(sorted(measured.ops.items()))
    rate = f"overall query rate {units.format_count(measured.query.ops_per_s)} queries/sec"
    lines = [f"Run complete after {measured.query.ended:,} queries with {summary.users} workers ({rate}):"]
    if len(kinds) > 1:
        counts = {key: sum(getattr(op, key) for op in kinds.values()) for key in ("rows", "empty")}
        kinds["all queries"] = measured.query.model_copy(update=counts)
    width = max(map(len, kinds))
    lines += [f"{name:<{width}} : {_query_line(op)}" for name, op in kinds.items()]
    lines += [f"{count:,} queries failed: {text}" for text, count in [*summary.failures.items()][:3]]
    return [*lines, f"wall clock time: {measured.duration_s:.3f}sec"]


def _query_line(op: OpFigures) -> str:
    from tsbench.measure.hist import values_needed

    order = {"min": "min", "med": "p50", "mean": "mean", "p95": "p95", "p99": "p99", "max": "max"}
    few = {name for name in ("p95", "p99") if op.ended < values_needed(float(name[1:]))}
    times = [f"{key}: {'-' if of in few else f'{op.service_ns[of] / 1e6:,.2f}ms'}" for key, of in order.items()]
    empty = f" ({op.empty:,} answers without a row)" if op.empty else ""
    rate = f"rate: {units.format_count(op.ops_per_s)}/s"
    return ", ".join([*times, f"count: {op.ended:,}", f"rows: {op.rows:,}{empty}", rate])


def validate(
    words: Annotated[list[str], typer.Argument(metavar="TARGET... FILE", help="Databases, and a file of queries.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="URL of each database, in the order of the targets.")
    ] = None,
    kept: Annotated[
        list[Path] | None, typer.Option("--loaded", metavar="DIR", help="The result set that keeps each database.")
    ] = None,
    schema: Annotated[list[str] | None, typer.Option(help="Layout of each, if it is not the first.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Queries to ask at most.")] = None,
    time_limit: TimeLimits = None,
) -> int:
    """Compare each database's answers with gold, computed from the world that the file names; else with one another."""
    from itertools import islice

    from tsbench.check.agreement import agreements
    from tsbench.encode.point_files import opened
    from tsbench.run.asking import read_queries
    from tsbench.run.time_limits import Limits
    from tsbench.run.validating import validate as compared
    from tsbench.targets import registry

    *names, file = words
    places: Sequence[tuple[str | None, str | None, Kept | None]]
    if kept:
        places = _kept_places(names, kept, [endpoint, schema])
    else:
        layouts: list[str | None] = [*schema] if schema else [None] * len(names)
        places = [(at, layout, None) for at, layout in zip(endpoint or [], layouts, strict=False)]
    if not names or len(names) != len(places) or len(names) != len(schema or names):
        raise UserMistake("give TARGET... FILE, and as many --endpoint (and --schema, if any) or --loaded as targets")
    with opened(file) as blocks:
        world, window_ns, asked = read_queries(file, blocks)
        chosen = list(islice(asked, limit))
    time_limits = limits_of(time_limit)
    verdicts = []
    for name, (at, layout, by) in zip(names, places, strict=True):
        place, target = found_place(name, at, layout), registry.get(name)
        limits, tables = Limits(time_limits, place["endpoint"]), target.schemas[layout or next(iter(target.schemas))]
        verdicts.append(compared(world, window_ns, chosen, target, tables, limits, kept=by))
        _say_verdict(verdicts[-1], chosen)
    unproven = agreements(one.witness for one in verdicts)
    for kind in unproven:
        say(kind.sentence)
    return _judged(file, verdicts, unproven)


def _judged(file: str, verdicts: Sequence[Validated], unproven: Sequence[Agreement]) -> int:
    """Return the exit code, with a line that says why it is not 0."""
    from tsbench.run.validating import are_of_another_world

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
    if any(one.answers.unsteady for one in verdicts):
        return fail("answers about windows are not what those about their halves come to", 1)
    unheard = [one.name for one in verdicts if not (one.answers.checked or one.answers.halved or one.name in agree)]
    return fail(f"{unheard[0]}: no answer could be checked", 1) if unheard else 0


def _say_verdict(validated: Validated, asked: Sequence[Asked]) -> None:
    """Print how many answers of a database are right, and the first that is not."""
    from tsbench.check.answers import said_of
    from tsbench.check.comparison import ROWS

    name, answers = validated.name, validated.answers
    if answers.checked or not answers.unchecked:
        meant = sum(one["count"] for one in answers.known_differences.values())
        say(f"{name}: {answers.checked - answers.wrong - meant:,} of {answers.checked:,} answers are right")
    for kind, known in answers.known_differences.items():
        say(f"{name}: {known['count']:,} answers to '{kind}' differ from gold, which is known: {known['reason']}")
    for kind, why in answers.unsupported.items():
        say(f"{name}: {kind} cannot be asked: {why}")
    for kind, count in answers.halved.items():
        good = f"{count:,} answers without gold are what those about the halves of their windows come to"
        say(f"{name}: {kind}: {answers.unsteady.get(kind, good)}")
    if answers.first_wrong is None:
        return
    first = next(one for one in asked if said_of(one.kind, one.query) == answers.first_wrong["query"])
    difference, _, sides = answers.first_wrong["difference"].partition(ROWS)
    say(f"first difference, query {first.number + 1}: {difference}")
    for side, row in zip(("answer:   ", "expected: "), sides.removesuffix(")").split(", expected "), strict=False):
        say(f"{side}{row}")
    say(answers.first_wrong["query"])


def _kept_places(
    names: Sequence[str], sets: Sequence[Path], others: Sequence[object]
) -> list[tuple[str, str | None, Kept]]:
    """Return endpoint, schema and record of the databases that result sets keep, which are of these targets."""
    from tsbench.run.keeping import read_kept

    if any(others) or len(names) != len(sets):
        raise UserMistake("--loaded says where a database is: give one for each target, and no --endpoint or --schema")
    places = []
    for name, results in zip(names, sets, strict=True):
        kept = read_kept(results)
        there = kept.spec().target
        if there.name != name:
            raise UserMistake(f"--loaded {results}: keeps a database of {there.name}, not of {name}")
        places.append((kept.endpoint, there.schema_, kept))
    return places


def _seconds(text: str) -> float:
    return units.parse_duration_ns(text) / units.NS_PER_S


# --- what the commands have in common ---------------------------------------------------------------------------------


def _validated(about: Mapping[str, Any]) -> RunSpec | FileSpec:
    """Return the specification of a run; raises UserMistake with the first key that is wrong."""
    from tsbench.scenario.spec import explained, spec_of

    try:
        return spec_of(about)
    except ValidationError as error:
        raise UserMistake(explained(error)) from None


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


def found_place(
    target: str, endpoint: str | None, schema: str | None, *, needs_endpoint: bool = True
) -> dict[str, Any]:
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
    if endpoint:
        refuse_secrets(endpoint, "--endpoint")
        target_of.parse(endpoint)
    elif needs_endpoint:
        raise UserMistake(f"--endpoint is missing: the URL of a database that stays, such as {target_of.form}")
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
