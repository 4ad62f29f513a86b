"""The command line: each sub-command parses its arguments and calls one function."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
from contextlib import suppress
from enum import StrEnum
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from tsbench import __version__
from tsbench.cli.generate import Yes, generate, queries
from tsbench.cli.listing import scenario_names, target_names
from tsbench.cli.output import fail, say, stderr, stdout
from tsbench.cli.phases import found_place, load, query, validate
from tsbench.cli.reporting import Json, Junit, Markdown, compare, export, history, report, show_baseline, show_repeats
from tsbench.cli.setup import init, servers
from tsbench.errors import Broken, UserMistake
from tsbench.report import lacking
from tsbench.servers.interrupts import stoppable
from tsbench.text import CONTROL, printable_line, short_path, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tsbench.report.baseline import RelativeGate
    from tsbench.report.export import Exports
    from tsbench.run.cleanup import Cleaned
    from tsbench.run.keeping import Stay
    from tsbench.scenario.spec import RunSpec, Scenario
    from tsbench.study.campaign import Ran


REPEAT = "8"
"""Number of runs of a cell for `--repeat` alone: the least that find a difference in one of six figures."""
Baseline = Annotated[
    Path | None, typer.Option(metavar="DIR", help="A result set for gates on ratios: --gate 'write:p99<1.1x'.")
]
Clean = Annotated[
    bool, typer.Option("--cleanup", help="Remove at the end what the run created on the server at --endpoint.")
]
WithReport = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html, which takes some seconds of CPU.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print nothing but what went wrong.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the cells that would run and what they take; run none.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Change a key of the scenario: drive.duration=30s")]
Repeat = Annotated[
    int | None,
    typer.Option(min=1, max=200, metavar="[N]", help="Run each cell N times (8 without a number), in shuffled rounds."),
]
Reuse = Annotated[bool, typer.Option("--reuse", help="Load once for cells that differ only in how they are driven.")]

Keep = Annotated[bool, typer.Option("--keep", help="Leave the last database standing, for --loaded.")]
LoadedOption = Annotated[
    Path | None, typer.Option("--loaded", metavar="DIR", help="Use the database that this result set keeps.")
]

MOST_CHARACTERS = 1_000
"""Longest message on a mistake; the middle of a longer one, which repeats a long input, is left out."""

app = typer.Typer(
    name="tsbench",
    help="Load-tests time-series databases: checked answers, honest latencies, accounted writes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_OF_PYDANTIC = (
    (re.compile(r": Value error, "), ": "),
    (re.compile(r"Input should be "), "must be "),
    (re.compile(r", unable to parse .*"), ""),
)
"""Words of pydantic's messages, which typer passes on, and the plain words for them."""


def _plain(message: str) -> str:
    for pattern, words in _OF_PYDANTIC:
        message = pattern.sub(words, message)
    return message


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 all valid and passed, 1 not, 2 the user's mistake, 130 interrupted."""
    given = _with_number(sys.argv[1:] if arguments is None else arguments)
    if odd := next(filter(CONTROL.search, given), None):
        return _fail(f"'{shortened(odd)}' has a line break or another control character; write it without", 2)
    commands = typer.main.get_command(app)
    if "_TSBENCH_COMPLETE" in os.environ:  # a shell asks how a command line may go on
        commands.main([], prog_name="tsbench")
    try:
        # Not `commands(given)`, which ends without a message after Ctrl-C.
        with stoppable(), commands.make_context("tsbench", [*given]) as context:
            result = commands.invoke(context)
    except typer.Exit as done:
        result = done.exit_code
    except (TyperException, UserMistake) as error:
        return _fail(_plain(str(getattr(error, "format_message", error.__str__)())), 2)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Broken, OSError) as error:
        is_mistake = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG  # only what was typed is so long
        return _fail(str(error), 2 if is_mistake else 1)
    except KeyboardInterrupt as interrupt:
        return fail(str(interrupt) or "interrupted", 130)
    return int(result) if isinstance(result, int) else 0


def _with_number(given: Sequence[str]) -> list[str]:
    """Return the arguments with a number after each `--repeat` that has none."""
    after = [*given, ""][1:]
    number = [
        text == "--repeat" and not re.fullmatch(r"-?\d+", next_) for text, next_ in zip(given, after, strict=True)
    ]
    return [part for text, lacks in zip(given, number, strict=True) for part in ([text, REPEAT] if lacks else [text])]


def _fail(message: str, code: int) -> int:
    return fail(shortened(printable_line(message), MOST_CHARACTERS), code)


def _version(wanted: bool) -> None:
    if wanted:
        stdout.print(f"tsbench {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    scenario: Annotated[
        Path,
        typer.Argument(help="A scenario file, or a name of `tsbench list scenarios`.", autocompletion=scenario_names),
    ],
    only: Annotated[list[str] | None, typer.Option(help="Only cells whose id contains or matches this.")] = None,
    override: Overrides = None,
    endpoint: Annotated[str | None, typer.Option(help="Use the server at this URL instead of starting one.")] = None,
    gate: Annotated[list[str] | None, typer.Option(help="Condition for passing, for example 'write:p99<50ms'.")] = None,
    baseline: Baseline = None,
    repeat: Repeat = None,
    reuse: Reuse = False,
    keep: Keep = False,
    loaded: LoadedOption = None,
    out: Annotated[Path, typer.Option(help="Directory for result sets.")] = Path("results"),
    resume: Annotated[Path | None, typer.Option(help="Continue this result set; complete cells are kept.")] = None,
    yes: Yes = False,
    clean: Clean = False,
    report: WithReport = True,
    junit: Junit = None,
    markdown: Markdown = None,
    json: Json = None,
    quiet: QuietOption = False,
    dry_run: DryRun = False,
) -> int:
    """Run a scenario: start servers, load, measure, check, report."""
    from tsbench.cli.progress import CellProgress
    from tsbench.report.baseline import expect_baseline
    from tsbench.report.export import Exports
    from tsbench.run.keeping import apart
    from tsbench.run.phases import Quiet
    from tsbench.study.campaign import planned

    exports = Exports(junit, markdown, json)
    exports.check()
    own, relative = expect_baseline(baseline, gate or [])
    keys = [*(override or []), *(["reuse=true"] if reuse else [])]
    asked: dict[str, Any] = {"only": only or [], "overrides": keys, "endpoint": endpoint, "gates": own}
    asked |= {"repeat": repeat, "expensive": yes}
    if dry_run:
        return _show_plan(*planned(scenario, **asked))
    changes = [*(override or []), *([f"target.endpoint={endpoint}"] if endpoint else [])]
    lists = {"--only": only, "--set": changes, "--gate": gate, "--repeat": repeat, "--baseline": baseline}
    lists |= {"--loaded": loaded}
    flags = {"--reuse": reuse, "--yes": yes, "--cleanup": clean, "--no-report": not report, "--quiet": quiet}
    flags |= {"--keep": keep}
    if keep and (clean or loaded):
        raise UserMistake(f"--keep leaves a database standing: leave {'--cleanup' if clean else '--loaded'} or it out")
    asked |= {"out": out, "resume": resume, "reports": report, "keep": keep, "loaded": loaded}
    asked |= {"progress_of": Quiet if quiet else partial(CellProgress, stderr)}
    body = partial(_carry_out, scenario, asked, exports, baseline, relative, lists, flags)
    return apart(body) if keep else body()


def _carry_out(
    scenario: Path,
    asked: Mapping[str, Any],
    exports: Exports,
    baseline: Path | None,
    relative: Sequence[RelativeGate],
    lists: Mapping[str, object],
    flags: Mapping[str, bool],
    stay: Stay | None = None,
) -> int:
    """Run a scenario as `asked`, print what came of it, and return the exit code; with `stay` keep the database."""
    from tsbench.run.cleanup import Cleaned, clean_up, left_lines
    from tsbench.study.campaign import run_scenario

    sets: list[Path] = []
    ran: Ran | None = None
    stdout.quiet = flags["--quiet"]
    try:
        ran = run_scenario(scenario, **asked, created=sets.append)
        exports.write(sets)
        code = _show(ran, with_report=asked["reports"]) | show_baseline(baseline, ran.results, relative, exports)
    except KeyboardInterrupt:
        if not sets:
            raise
        code = _interrupted(scenario, sets[0], lists, flags)
    finally:
        lines = left_lines(sets[0]) if sets else []
        cleaned = _show_cleaned(clean_up(sets[0]) if flags["--cleanup"] and lines else map(Cleaned, lines))
        stdout.quiet = False
    return code or cleaned if stay is None or ran is None else _stay(ran, code, stay)


def _stay(ran: Ran, code: int, stay: Stay) -> int:
    """Say how the database that is kept can be reached and ended, and stay with it if it needs this process."""
    kept, place = ran.standing.record, short_path(ran.results)
    if kept is None:
        return fail("no database is kept: no run loaded one, or the last did not end well", 1)
    say(f"kept: {kept.endpoint}; go on with it: tsbench run SCENARIO --loaded {place}; end it: tsbench cleanup {place}")
    if kept.keeper is not None:
        stay(code, ran.standing.wait)
    return code


def _show(ran: Ran, *, with_report: bool) -> int:
    """Print the figures of a finished result set, and return the exit code."""
    from tsbench.report.table import print_summary

    print_summary(stdout, ran.results)
    lacks = lacking()
    if with_report or lacks:
        say(lacks or f"report: {short_path(ran.results / 'report.html')}")
    show_repeats(ran)
    bad = ran.not_passed
    if not bad:
        return 0
    return fail(f"{len(bad)} of {len(ran.summaries)} cells did not pass, first {bad[0].cell}: {bad[0].headline}", 1)


def _show_plan(asked: Scenario, cells: Sequence[RunSpec]) -> int:
    """Print the cells that would run, and return the exit code."""
    from tsbench.cli.listing import plan, unbroken

    table, line = plan(asked, cells)
    stdout.print(unbroken(table), crop=False)
    say(line)
    return 0


def _interrupted(scenario: Path, results: Path, lists: Mapping[str, object], flags: Mapping[str, bool]) -> int:
    """Print what was measured and the command that continues a `tsbench run`, and return the exit code."""
    from tsbench.report.table import print_summary

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would add a second line
    with suppress(Broken, UserMistake, OSError):  # no run has figures yet, or the summary was being written
        print_summary(stdout, results)
        if (results / "report.html").exists():
            say(f"report: {short_path(results / 'report.html')}")
    texts = {name: value if isinstance(value, list) else [value] for name, value in lists.items() if value is not None}
    given = [f"{name}={text}" for name, several in texts.items() for text in several]
    given += [name for name, is_given in flags.items() if is_given]
    again = shlex.join(["tsbench", "run", str(scenario), *given, "--resume", short_path(results)])
    return fail(f"interrupted; what was measured is kept; continue with: {again}", 130)


@app.command()
def cleanup(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS|TARGET", help="A result set, one run, or a database with --endpoint.")
    ],
    endpoint: Annotated[str | None, typer.Option(help="URL of the database, if a TARGET is given.")] = None,
) -> int:
    """Remove the objects that a run created on the server at --endpoint, or all tables of tsbench's worlds."""
    from tsbench.run.cleanup import clean_target, clean_up
    from tsbench.targets.registry import TARGETS

    if endpoint is not None or (str(results) in TARGETS and not results.exists()):
        place = found_place(str(results), endpoint, None)
        return _show_cleaned([clean_target(TARGETS[place["name"]], place["endpoint"])])
    places = list(clean_up(results))
    if not places:
        say(f"nothing to remove: the runs of {results} used no server of yours, or ended before they created anything")
    return _show_cleaned(places)


def _show_cleaned(places: Iterable[Cleaned]) -> int:
    """Print what was removed from each place, or why not; return the exit code."""
    code = 0
    for place in places:
        if place.code:
            fail(place.text, place.code)
        else:
            say(place.text)
        code = max(code, place.code)
    return code


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def web(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A database with a locustfile (tsbench list targets).", autocompletion=target_names)
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8089,
    host: Annotated[
        str, typer.Option(help="The address to listen on; for others than this host set TSBENCH_WEB_PASSWORD.")
    ] = "127.0.0.1",
) -> None:
    """Open Locust's web UI for a database; what follows goes to Locust (--processes 4, --endpoint URL, ...)."""
    from tsbench.run.locust_process import web as open_web

    open_web(target, host, port, context.args)


class What(StrEnum):
    """The kinds of things that `tsbench list` shows."""

    TARGETS = "targets"
    USE_CASES = "use-cases"
    QUERIES = "queries"
    SCENARIOS = "scenarios"


@app.command(name="list")
def list_(what: Annotated[What, typer.Argument(help="What to list.")]) -> None:
    """List targets with their schemas, use cases, query kinds, or scenarios."""
    from tsbench.cli import listing

    stdout.print(listing.unbroken(listing.TABLES[what.value]()), crop=False)


@app.command()
def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a page of all keys (docs/scenario-keys.md).")
    ] = False,
) -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    from tsbench.scenario import reference
    from tsbench.study.claims import TABLES

    typer.echo(
        reference.markdown(TABLES) if markdown else dumps(reference.json_schema(TABLES), indent=2), nl=not markdown
    )


@app.command()
def doctor() -> int:
    """Print what this machine has and lacks for running tsbench, with a cure for each lack."""
    from tsbench.cli.doctor import machine_table

    table, good = machine_table()
    stdout.print(table)
    return 0 if good else 1


for command in (init, servers, report, export, history, compare, generate, load, queries, query, validate):
    app.command()(command)
