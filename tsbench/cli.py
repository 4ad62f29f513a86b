"""The command line: each sub-command parses its arguments and calls one function."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from typer.exceptions import TyperException

from tsbench import __version__, units
from tsbench.errors import Broken, UserMistake

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

app = typer.Typer(
    name="tsbench",
    help="Load-tests time-series databases: checked answers, honest latencies, accounted writes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
stderr = Console(stderr=True)
stdout = Console()


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 good, 1 a verdict failed, 2 the user's mistake."""
    try:
        result = app(arguments, standalone_mode=False)
    except TyperException as error:
        return _fail(str(getattr(error, "format_message", error.__str__)()), 2)
    except UserMistake as error:
        return _fail(str(error), 2)
    except Broken as error:
        return _fail(str(error), 1)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    return int(result) if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    stderr.print(f"tsbench: {' '.join(message.split())}", markup=False, highlight=False, soft_wrap=True)
    return code


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's form of an eager flag
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
    scenario: Annotated[Path, typer.Argument(help="A scenario file, for example scenarios/quickstart.toml.")],
    only: Annotated[list[str] | None, typer.Option(help="Only cells whose id contains or matches this.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key of the scenario: drive.duration=30s")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="Use the server at this URL instead of starting one.")] = None,
    out: Annotated[Path, typer.Option(help="Where result sets are made.")] = Path("results"),
    resume: Annotated[Path | None, typer.Option(help="Go on with this result set; complete cells are kept.")] = None,
) -> int:
    """Run a scenario: start servers, load, measure, check, report."""
    from tsbench.campaign import campaign, prepare, short
    from tsbench.progress import CellProgress
    from tsbench.report.table import print_summary
    from tsbench.scenario import Scenario, select

    overrides = [*(override or []), *([f"target.endpoint={endpoint}"] if endpoint else [])]
    asked = Scenario.load(scenario, overrides=overrides)
    cells = select(asked.expand(), only or [])
    results = prepare(asked, cells, out, resume)
    try:
        good = campaign(asked, cells, results, lambda title: CellProgress(stderr, title))
    except KeyboardInterrupt:
        stderr.print(
            f"tsbench: interrupted; go on with: tsbench run {scenario} --resume {short(results)}", markup=False
        )
        return 130
    print_summary(stdout, results)
    stdout.print(f"report: {short(results / 'report.html')}", soft_wrap=True, highlight=False)
    return 0 if good else 1


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Result sets, for example results/20261120-101500-quickstart.")],
) -> None:
    """Make report.html of result sets again, and print their tables."""
    from tsbench.campaign import short
    from tsbench.report.html import write_report
    from tsbench.report.table import print_summary

    for result in results:
        print_summary(stdout, result)
        stdout.print(f"report: {short(write_report(result))}", soft_wrap=True, highlight=False)


class What(StrEnum):
    """What can be listed."""

    TARGETS = "targets"
    USE_CASES = "use-cases"
    QUERIES = "queries"
    SCENARIOS = "scenarios"


@app.command(name="list")
def list_(what: Annotated[What, typer.Argument(help="What to list.")]) -> None:
    """List targets with their schemas, use cases, query kinds, or scenarios."""
    from tsbench import catalogue

    stdout.print(catalogue.TABLES[what.value]())


@app.command()
def doctor() -> int:
    """Say what this machine has and lacks for running tsbench, with the cure for each lack."""
    from tsbench import catalogue

    table, good = catalogue.doctor()
    stdout.print(table)
    return 0 if good else 1


@app.command()
def generate(
    out: Annotated[str, typer.Option(help="File to write; - is standard output; .zst compresses.")],
    use_case: Annotated[str, typer.Option(help="See `tsbench list use-cases`.")] = "cpu-only",
    scale: Annotated[int, typer.Option(min=1, help="Hosts or devices.")] = 100,
    start: Annotated[str, typer.Option(help="First time: ISO 8601, now, or now-6h.")] = "2016-01-01T00:00:00Z",
    end: Annotated[str, typer.Option(help="End, not included.")] = "2016-01-02T00:00:00Z",
    interval: Annotated[str, typer.Option(help="Time between two readings of a series.")] = "10s",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same points.")] = 1,
    form: Annotated[str, typer.Option("--format", help="influx, pgcopy or csv.")] = "influx",
    devops: Annotated[str, typer.Option("--form", help="bounded, or peer (as TSBS simulates).")] = "bounded",
    measurement: Annotated[str | None, typer.Option(help="Only this one; csv and pgcopy hold a single one.")] = None,
) -> None:
    """Generate a use case's points into a file or pipe."""
    from tsbench import generate as generator
    from tsbench.progress import CellProgress
    from tsbench.workload.world import WorldSpec

    now_ns = time.time_ns()
    start_ns = _parsed("--start", start, lambda text: units.parse_time_ns(text, now_ns=now_ns))
    end_ns = _parsed("--end", end, lambda text: units.parse_time_ns(text, now_ns=now_ns))
    interval_ns = _parsed("--interval", interval, units.parse_duration_ns)
    spec = WorldSpec(use_case, scale, seed, start_ns, interval_ns, form=devops)
    with CellProgress(stderr, use_case) as progress, generator.output(out) as file:
        progress.phase(f"generate {form}", max(1, (end_ns - start_ns) // max(1, interval_ns)) * scale)
        done = generator.generate(spec, end_ns, form, file, progress.advance, measurement=measurement)
    rate = done.points / done.seconds if done.seconds else 0.0
    text = f"{done.points:,} points, {done.values:,} values, {units.format_size(done.nbytes)}, {rate:,.0f} points/s"
    stderr.print(text, highlight=False, soft_wrap=True)


def _parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise UserMistake(f"{option} {text}: {error}") from None
