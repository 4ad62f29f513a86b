"""Campaigns: run the cells of a scenario one after the other into one result set, and resume an interrupted one."""

from __future__ import annotations

import math
import shutil
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.check.own_texts import expect_gold
from tsbench.errors import Broken, UserMistake, typed_line
from tsbench.measure.gates import asked_gates
from tsbench.report import lacking
from tsbench.report.evidence import too_weak
from tsbench.results.reading import keeps_tables
from tsbench.results.rundir import ERRORS_FILE, RunDir, new_set
from tsbench.results.summary import SERVER_DEATHS, Knee, SetSummary, Summary
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.run.standing import Standing
from tsbench.scenario.file import naming, scenario_file
from tsbench.scenario.spec import ROUND, Scenario, select
from tsbench.scenario.validation import check_spec, expect_plausible
from tsbench.study.agreeing import Witnesses
from tsbench.study.claims import Study
from tsbench.study.request import RunRequest
from tsbench.study.resuming import check_resumable, done_before, earlier
from tsbench.study.reuse import for_kept, in_groups, standing_on
from tsbench.study.search import grouped, in_turn, most_runs, searched
from tsbench.study.verdicts import evaluate, shown_figures
from tsbench.targets.session import MEANT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tsbench.run.phases import Progress
    from tsbench.scenario.spec import RunSpec

    ProgressOf = Callable[[str, float | None], AbstractContextManager[Progress]]

FIRST_REPORT_S = 120.0
"""Time in seconds after which a campaign has a report of its runs so far; shorter ones have one at their end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A result set whose runs have ended: its directory, and the runs' summaries in order."""

    results: Path
    summaries: list[Summary]
    knee: bool
    """Whether the scenario is a ramp, whose last run may fail a gate: that is the knee which it looks for."""
    is_search: bool
    """Whether the scenario searches, and so has compared its runs itself."""
    standing: Standing
    """The database that is to be kept, if that was asked for and it stands; it ends with this process."""

    @property
    def not_passed(self) -> list[Summary]:
        """The summaries of runs that are not valid or failed a gate."""
        return [one for one in self.summaries if not one.passed and not (self.knee and is_knee(self.summaries, one))]


def run_scenario(
    request: RunRequest | Path | str,
    *,
    progress_of: ProgressOf = Quiet,
    created: Callable[[Path], object] = lambda _results: None,
) -> Ran:
    """Run the cells of a scenario: start servers, load, measure, check, report.

    Parameters
    ----------
    request
        What is asked; a file or a name alone is the scenario as it stands.
    progress_of
        Returns the progress display of a cell, as a context manager, from its title and the estimated time to the
        end of the last cell in s (None before one has run).
    created
        Is called with the result set's directory before the first cell runs.

    Raises
    ------
    UserMistake
        If the scenario or an argument is wrong, or a server cannot be started or reached.
    Broken
        If results or a report cannot be written.
    KeyboardInterrupt
        After the servers were stopped; what was measured is kept, and `RunRequest.resume` continues it.
    """
    asked = request if isinstance(request, RunRequest) else RunRequest(request)
    scenario, cells = planned(asked)
    cells = for_kept(cells, asked.loaded, keep=asked.keep)
    results = prepare(scenario, cells, asked.out, asked.resume)
    created(results)
    standing = standing_on(asked.loaded, cells, results, keep=asked.keep)
    reports = asked.reports and not lacking()
    summaries = campaign(
        scenario, cells, results, progress_of, reports=reports, standing=standing, command=asked.command
    )
    return Ran(results, summaries, scenario.knee, scenario.search is not None, standing)


def planned(request: RunRequest) -> tuple[Scenario, list[RunSpec]]:
    """Return a scenario as it is to be run, and its cells in order; raises UserMistake as `run_scenario`."""
    path = scenario_file(Path(request.scenario))
    scenario = _scenario(path, request)
    cells = scenario.repeated(select(scenario.expand(), request.only or scenario.only))
    if scenario.search is not None:
        grouped(scenario.search, cells)
    if scenario.reuse:
        cells = in_groups(path, cells, keep_order=scenario.knee or scenario.repeat > 1)
    if not request.expensive:
        expect_plausible(path, cells)
    for cell in cells:
        check_spec(cell, str(path))
        with naming(f"{path}: "):
            expect_gold(cell)
    return scenario, cells


def _scenario(path: Path, request: RunRequest) -> Scenario:
    """Return the scenario as it is to be run."""
    scenario = Scenario.load(path, overrides=request.changes)
    scenario.demand(asked_gates(request.gates))
    if request.repeat is not None:
        scenario.repeat = request.repeat
    return scenario


def prepare(scenario: Scenario, cells: Sequence[RunSpec], out: Path, resume: Path | None) -> Path:
    """Create the result set's directory, or return the one to resume.

    Raises
    ------
    UserMistake
        If the directory is not writable, or the result set is of another scenario.
    """
    search, whole = scenario.search, scenario.expand()
    names = [cell.id for cell in whole] if search is None else [*grouped(search, whole)]
    Study.read(scenario.path).expect_cells(names)
    if resume is not None:
        check_resumable(scenario, cells, resume)
        return resume
    results = new_set(out, scenario.name)
    try:
        shutil.copyfile(scenario.path, results / "scenario.toml")
    except OSError as error:
        raise UserMistake(f"cannot write to {out}: {error.strerror}; choose another place with --out") from None
    return results


def campaign(
    scenario: Scenario,
    cells: Sequence[RunSpec],
    results: Path,
    progress_of: ProgressOf,
    *,
    reports: bool = True,
    standing: Standing | None = None,
    command: str = "",
) -> list[Summary]:
    """Run the cells that are not complete, and return all summaries; update the set's summary after every cell.

    The server of a `standing` that stays is not ended, if all is well. The report is updated too if `reports`, unless
    that would take more than a tenth of the time; first after `FIRST_REPORT_S`. `command` is what asked for them.
    """
    # Before the first run, and not when it is needed: of an import that Ctrl-C cuts short, half a module remains.
    if keeps_tables():
        import tsbench.results.tables  # noqa: F401, PLC0415

    search = scenario.search
    write = _writer(scenario, results, command)
    summaries: list[Summary] = []
    ran, since_s, reached = 0, time.monotonic(), False
    report_due = since_s + FIRST_REPORT_S
    standing, count = standing or Standing(results), len(cells)
    turns = iter(cells)
    if search is not None:
        turns = in_turn(search, scenario.repeat, cells, summaries)
        count = most_runs(search, len(grouped(search, cells)), scenario.repeat)
    with standing:
        try:
            for number, cell in enumerate(turns, 1):
                done = done_before(results, cell)
                if done is None:
                    place = f"[{number}/{count}{' at most' if search or scenario.knee else ''}]"
                    mean_s = (time.monotonic() - since_s) / ran if ran and search is None else None
                    left_s = mean_s * (count - number + 1) if mean_s is not None else None
                    if scenario.reuse:
                        cell = standing.share(cell, cells[number:])  # noqa: PLW2901 - in its place
                    with progress_of(f"{place} {cell.id}", left_s) as progress:
                        done = run_job(cell, results, progress, reached=reached, standing=standing)
                    reached = True
                    ran += 1
                summaries.append(done)
                write(summaries)
                if scenario.knee and not done.passed:
                    break  # higher loads than the knee would only be worse
                if reports and time.monotonic() >= report_due and number < count:
                    report_due = time.monotonic() + 10 * _early_report(results)
        except (KeyboardInterrupt, UserMistake):
            left = [*summaries, *_partial(results, cell)]
            if left:
                write(left)
                if reports:
                    _report(results)
            raise
        if reports:
            _report(results)
        standing.keep()
    return summaries


def _early_report(results: Path) -> float:
    """Write the report of the cells so far, and return the seconds that it took; infinity if it failed.

    The cells that follow are run all the same, and the error shows when the last report is written.
    """
    try:
        return _report(results)
    except Exception:  # noqa: BLE001 - whatever it is, hours of measuring are worth more
        return math.inf


def _report(results: Path) -> float:
    """Write the report and return the seconds that it took."""
    from tsbench.report.html import write_report  # noqa: PLC0415 - 0.7 s of imports, at the end of a run

    started = time.monotonic()
    try:
        write_report(results)
    except MEANT:
        raise
    except Exception as error:
        RunDir(results).note_traceback(error)
        text = f"the report of {results} cannot be written: {typed_line(error)}"
        raise Broken(f"{text} ({results / ERRORS_FILE} has where it comes from); the runs are whole") from error
    return time.monotonic() - started


def _partial(results: Path, cell: RunSpec) -> list[Summary]:
    try:
        return [Summary.read(RunDir(results / f"{cell.id}.partial"))]
    except UserMistake:
        return []


def _writer(scenario: Scenario, results: Path, command: str) -> Callable[[Sequence[Summary]], None]:
    """Return `_write` for a result set, with what does not change from one run to the next."""
    least = {spec.id: asked for spec in scenario.expand() if (asked := spec.check.evidence) is not None}
    study, place = Study.read(scenario.path), _place_in(scenario)
    return partial(_write, scenario, study, place, least, command, Witnesses(results))


def _write(
    scenario: Scenario,
    study: Study,
    place: Callable[[Summary], int],
    least: Mapping[str, str],
    command: str,
    witnesses: Witnesses,
    summaries: Sequence[Summary],
) -> None:
    """Write the set's summary; cells of earlier attempts that are not in `summaries` remain in it.

    `least` is the evidence that cells ask for, by their ids.
    """
    search, results = scenario.search, witnesses.results
    cells = {summary.cell: summary for summary in [*earlier(results).cells, *summaries]}
    runs = defaultdict[str, list[Summary]](list)
    ends = searched(search, scenario.repeat, [*cells.values()]) if search is not None else []
    for end in ends:  # a study's findings are about where searches ended
        runs[end.name] = [cells[cell] for cell in end.cells]
    for name, summary in cells.items() if search is None else ():
        runs[name.partition(ROUND)[0]].append(summary)
    agreements = tuple(witnesses.agreed(cells.values()))
    asked = [(one, needed) for one in cells.values() if (needed := least.get(one.cell.partition(ROUND)[0]))]
    SetSummary(
        scenario=scenario.name,
        question=next((summary.question for summary in cells.values() if summary.question), ""),
        command=command,
        cells=tuple(sorted(cells.values(), key=place)),
        claims=tuple(evaluate(study.claims, runs)),
        figures=tuple(shown_figures(study.figures, runs)),
        knee=_knee(list(cells.values())) if scenario.knee else None,
        searches=tuple(ends),
        agreements=agreements,
        weak=tuple(text for one, needed in asked for text in too_weak(one, agreements, needed)),
    ).write(results)


def _place_in(scenario: Scenario) -> Callable[[Summary], int]:
    """Return a sort key for summaries: the place of the cell in the scenario, also if `reuse` or rounds change it."""
    if scenario.search is not None or not (scenario.reuse or scenario.repeat > 1):
        return lambda _: 0
    place = {cell.id: number for number, cell in enumerate(scenario.expand())}
    return lambda summary: place.get(summary.cell.partition(ROUND)[0], 0)


def _knee(cells: Sequence[Summary]) -> Knee:
    """Return the last cell of the ramp that passed, the first that did not, the reason, and whether it was judged."""
    held = None
    for cell in cells:
        if not cell.passed:
            return Knee(held=held, broke=cell.cell, reason=cell.headline, judged=cell.gate_state == "fail")
        held = cell.cell
    return Knee(held=held, broke=None, reason="", judged=True)


def is_knee(cells: Sequence[Summary], cell: Summary) -> bool:
    """Return True for a successful end of a ramp: a gate of the scenario failed, and a lower load held.

    The cell's figures must be valid. Failed ops may accompany the gate; a server that died is not a knee.
    """
    failed = [gate for gate in cell.gates if gate.state == "fail"]
    sought = any(not gate.built_in for gate in failed) and all(gate.gate != SERVER_DEATHS for gate in failed)
    judged = cell.validity.is_valid and all(gate.state != "not judged" for gate in cell.gates)
    return sought and judged and cell is cells[-1] and len(cells) > 1
