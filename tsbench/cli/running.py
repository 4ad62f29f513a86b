"""The command `run`: a scenario, or a series of them one after the other."""

from __future__ import annotations

import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import sameopenfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsbench.cli.generate import Yes  # noqa: TC001 - typer reads it
from tsbench.cli.listing import scenario_names
from tsbench.cli.output import fail, say, stderr, stdout
from tsbench.cli.reporting import Json, Junit, Markdown, show_baseline, show_overview, show_repeats
from tsbench.errors import Broken, UserMistake
from tsbench.report import lacking
from tsbench.results.rundir import dated, undated
from tsbench.servers.interrupts import SIGNALS
from tsbench.text import short_path, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tsbench.report.baseline import RelativeGate
    from tsbench.report.export import Exports
    from tsbench.results.summary import Summary
    from tsbench.run.cleanup import Cleaned
    from tsbench.run.keeping import Stay
    from tsbench.run.standing import Standing
    from tsbench.scenario.spec import RunSpec, Scenario
    from tsbench.study.campaign import Ran
    from tsbench.study.request import RunRequest

REPEAT = "8"
"""Number of runs of a cell for `--repeat` alone: the least that find a difference in one of six figures."""
Scenarios = Annotated[
    list[Path],
    typer.Argument(
        metavar="SCENARIO...",
        help="Scenario files, or names of `tsbench list scenarios`.",
        autocompletion=scenario_names,
    ),
]
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


def run(
    scenarios: Scenarios,
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
    """Run a scenario, or several: start servers, load, measure, check, report."""
    from tsbench.report.baseline import expect_baseline
    from tsbench.report.export import Exports
    from tsbench.run.keeping import apart
    from tsbench.study.campaign import planned
    from tsbench.study.request import RunRequest

    exports = Exports(junit, markdown, json)
    exports.check()
    own, relative = expect_baseline(baseline, gate or [])
    request = RunRequest(
        scenarios[0],
        only=only or (),
        overrides=override or (),
        gates=own,
        endpoint=endpoint,
        repeat=repeat,
        reuse=reuse,
        keep=keep,
        loaded=loaded,
        out=out,
        resume=resume,
        expensive=yes,
        reports=report,
    )
    _expect_fitting(scenarios, {"--baseline": baseline, "--keep": keep, "--loaded": loaded}, clean=clean)
    plans = [planned(replace(request, scenario=path)) for path in scenarios] if dry_run or scenarios[1:] else []
    if dry_run:
        return max(_show_plan(*plan, named=len(plans) > 1) for plan in plans)
    command = _Run(scenarios, request, exports, baseline, relative, cleans=clean, quiet=quiet)
    if plans:
        names = {path: plan.name for path, (plan, _) in zip(scenarios, plans, strict=True)}
        if len({*names.values()}) < len(names):
            raise UserMistake(f"scenarios of a series need different names, and these are {', '.join(names.values())}")
        return command.series(names)
    one = partial(command.one, request)
    return apart(one) if keep else one()


def _expect_fitting(scenarios: Sequence[Path], single: Mapping[str, object], *, clean: bool) -> None:
    """Refuse options that do not go together."""
    if single["--keep"] and clean:
        raise UserMistake("--keep leaves a database standing: leave --cleanup or it out")
    given = next((name for name, value in single.items() if value), None)
    if len(scenarios) > 1 and given is not None:
        raise UserMistake(f"{given} is about one scenario, and {len(scenarios)} are given; run that one by itself")
    if len({*scenarios}) < len(scenarios):
        raise UserMistake("a scenario is given twice; to repeat its runs use --repeat")


@dataclass(frozen=True, slots=True)
class _Run:
    """What the command was asked: scenarios, the request for the first of them, and what to do beside running them."""

    scenarios: Sequence[Path]
    request: RunRequest
    exports: Exports
    baseline: Path | None
    relative: Sequence[RelativeGate]
    cleans: bool
    quiet: bool
    done: list[Path] = field(default_factory=list)
    """The result sets that are complete."""

    def one(self, request: RunRequest, stay: Stay | None = None) -> int:
        """Run a scenario, print its figures, and return the exit code; with `stay` keep the database."""
        from tsbench.cli.progress import CellProgress
        from tsbench.run.cleanup import Cleaned, clean_up, left_lines
        from tsbench.run.phases import Quiet
        from tsbench.study.campaign import run_scenario

        sets: list[Path] = []
        ran: Ran | None = None
        stdout.quiet = self.quiet
        progress_of = Quiet if self.quiet else partial(CellProgress, stderr)
        try:
            ran = run_scenario(request, progress_of=progress_of, created=sets.append)
            self.done.append(ran.results)
            self.exports.write(self.done)
            code = _show(ran, with_report=request.reports)
            code |= show_baseline(self.baseline, ran.results, self.relative, self.exports)
        except KeyboardInterrupt:
            if not sets:
                raise
            code = self._interrupted(sets[0], request.out if self.scenarios[1:] else sets[0])
        finally:
            lines = left_lines(sets[0]) if sets and not request.loaded else []
            cleaned = show_cleaned(clean_up(sets[0]) if self.cleans and lines else map(Cleaned, lines))
            stdout.quiet = False
        if stay is None or ran is None:
            return code or cleaned
        if ran.standing.record is None:
            return fail("no database is kept: no run loaded one, or the last did not end well", 1)
        return stay_with(ran.standing, ran.results, code, stay)

    def _interrupted(self, results: Path, place: Path) -> int:
        """Print what was measured and the command that goes on in `place`, and return the exit code."""
        for number in SIGNALS:  # a second one, also in the import, would add or take a line
            signal.signal(number, signal.SIG_IGN)
        from tsbench.report.console import print_summary

        with suppress(Broken, UserMistake, OSError):  # no run has figures yet, or the summary was being written
            print_summary(stdout, results)
            if (results / "report.html").exists():
                say(f"report: {short_path(results / 'report.html')}")
        given = [*self.request.words, *(f"--gate={gate.text}" for gate in self.relative)]
        given += [f"--baseline={self.baseline}"] if self.baseline is not None else []
        given += [name for name, is_given in {"--cleanup": self.cleans, "--quiet": self.quiet}.items() if is_given]
        again = shlex.join(["tsbench", "run", *map(str, self.scenarios), *given, "--resume", short_path(place)])
        return fail(f"interrupted; what was measured is kept; continue with: {again}", 130)

    def series(self, names: Mapping[Path, str]) -> int:
        """Run scenarios one after the other, and write the page that begins with their findings; return the exit code.

        Their result sets are in one directory, which `resume` names to go on with it. A scenario that cannot be run is
        named, and the others run.
        """
        from tsbench.results.summary import Series

        out, resume = self.request.out, self.request.resume
        if resume is not None and not any(resume.glob("*/scenario.toml")):
            raise UserMistake(
                f"--resume {resume}: is no series; give the directory with the result sets of these scenarios"
            )
        place = resume or out / dated(f"{len(names)}-scenarios")
        failed = {**Series.read(place).failed}  # of an earlier attempt
        codes = []
        for number, (path, name) in enumerate(names.items(), 1):
            say(f"--- {number} of {len(names)}: {name}")
            failed.pop(name, None)
            try:
                codes.append(self.one(replace(self.request, scenario=path, out=place, resume=_set_of(place, name))))
            except (UserMistake, Broken) as error:
                failed[name] = str(error)
                codes.append(fail(f"{name}: {error}", 2 if isinstance(error, UserMistake) else 1))
            place.mkdir(parents=True, exist_ok=True)
            Series(failed=failed).write(place)
            if codes[-1] == 130:
                return 130
        if self.done and self.request.reports and not lacking():
            show_overview(place)
        return max(codes)


def _set_of(place: Path, name: str) -> Path | None:
    """Return the newest result set of a scenario in the directory of a series, None without one."""
    sets = [path for path in place.glob("*/") if undated(path) == name and (path / "scenario.toml").exists()]
    return max(sets, default=None)


def stay_with(standing: Standing, results: Path, code: int, stay: Stay | None) -> int:
    """Print how to go on with the database that is kept and how to end it; stay with it if it needs this process."""
    kept, place = standing.record, short_path(results)
    if kept is not None:
        on, end = f"tsbench run SCENARIO --loaded {place}", f"tsbench cleanup {place}"
        say(f"kept: {kept.endpoint}; go on with it: {on}; end it: {end}")
        if kept.keeper is not None and stay is not None:
            stay(code, standing.wait)
    return code


def _show(ran: Ran, *, with_report: bool) -> int:
    """Print the figures of a finished result set, and return the exit code."""
    from tsbench.report.console import print_summary
    from tsbench.results.summary import SetSummary

    print_summary(stdout, ran.results)
    lacks = lacking()
    if with_report or lacks:
        say(lacks or f"report: {short_path(ran.results / 'report.html')}")
    show_repeats(ran)
    bad = ran.not_passed
    if not bad:
        of_set = SetSummary.read(ran.results)
        said = [*(one.sentence for one in of_set.agreements if one.differ), *of_set.weak]
        return fail("; ".join(said), 1) if said else 0
    first = bad[0]
    which = f"first {first.cell}" if bad[1:] else first.cell
    why = _short(first) if _one_place() and not stdout.quiet else first.headline
    return fail(f"{len(bad)} of {len(ran.summaries)} cells did not pass, {which}: {why}", 1)


def _short(summary: Summary) -> str:
    """Return why a run did not pass, without what stands in the lines about it."""
    from tsbench.results.summary import failed

    if not summary.validity.is_valid:
        return ", ".join([summary.validity.state, *(failed(gate.gate) for gate in summary.failed_gates)])
    said = [
        (failed(gate.gate) if gate.state == "fail" else f"not judged {gate.gate}", gate.text)
        for gate in summary.gates
        if gate.state in {"fail", "not judged"}
    ]
    return ", ".join(f"{gate} ({shortened(text.partition(': ')[0], 80)})" for gate, text in said)


def _one_place() -> bool:
    """Return True if standard output and standard error are read as one: in a terminal, or a pipe for both."""
    try:
        return (stdout.is_terminal and stderr.is_terminal) or sameopenfile(1, 2)
    except OSError:  # one of them is closed
        return False


def _show_plan(asked: Scenario, cells: Sequence[RunSpec], *, named: bool) -> int:
    """Print the cells that would run, below the scenario's name if it is `named`, and return the exit code."""
    from tsbench.cli.listing import plan, show

    if named:
        say(f"--- {asked.name}")
    table, line = plan(asked, cells)
    show(table)
    say(line)
    return 0


def show_cleaned(places: Iterable[Cleaned]) -> int:
    """Print what was removed from each place, or why not; return the exit code."""
    code = 0
    for place in places:
        if place.code:
            fail(place.text, place.code)
        else:
            say(place.text)
        code = max(code, place.code)
    return code
