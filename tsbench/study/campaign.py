"""Campaigns: run the cells of a scenario one after the other into one result set, and resume an interrupted one."""

from __future__ import annotations

import difflib
import math
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import Broken, UserMistake, typed_line
from tsbench.measure.gates import checked_gate
from tsbench.report import lacking
from tsbench.results.manifest import Manifest, check_world
from tsbench.results.reading import keeps_tables, read_table
from tsbench.results.rundir import (
    ADDED_COLUMNS,
    COMPLETE,
    ERRORS_FILE,
    OPS_COLUMNS,
    RunDir,
    expect_this_format,
    find_runs,
)
from tsbench.results.summary import SERVER_DEATHS, Knee, SetSummary, Summary
from tsbench.run.lifecycle import run_cell
from tsbench.run.phases import Quiet
from tsbench.run.standing import Standing, load_key
from tsbench.scenario.file import scenario_file
from tsbench.scenario.spec import ROUND, Scenario, select
from tsbench.scenario.validation import check_spec, expect_plausible
from tsbench.study.claims import expect_cells, read_claims, read_figures
from tsbench.study.reuse import in_groups
from tsbench.study.verdicts import evaluate, shown_figures
from tsbench.targets.session import MEANT
from tsbench.units import format_rough_duration
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tsbench.run.phases import Progress
    from tsbench.scenario.spec import RunSpec

    ProgressOf = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Ran:
    """A result set whose runs have ended: its directory, and the runs' summaries in order."""

    results: Path
    summaries: list[Summary]
    knee: bool
    """Whether the scenario is a ramp, whose last run may fail a gate: that is the knee which it looks for."""

    @property
    def not_passed(self) -> list[Summary]:
        """The summaries of runs that are not valid or failed a gate."""
        return [one for one in self.summaries if not one.passed and not (self.knee and is_knee(self.summaries, one))]


def run_scenario(
    scenario: Path,
    *,
    only: Sequence[str] = (),
    overrides: Sequence[str] = (),
    endpoint: str | None = None,
    gates: Sequence[str] = (),
    repeat: int | None = None,
    out: Path = Path("results"),
    resume: Path | None = None,
    expensive: bool = False,
    reports: bool = True,
    progress_of: ProgressOf = Quiet,
    created: Callable[[Path], object] = lambda _results: None,
) -> Ran:
    """Run the cells of a scenario: start servers, load, measure, check, report.

    Parameters
    ----------
    scenario
        A scenario file, or the name of one that tsbench brings (`quickstart`).
    only, overrides, gates
        Patterns of the cells to run (all without any); changes of keys, such as `drive.duration=30s`; conditions for
        passing besides the scenario's, such as `write:p99<50ms`.
    endpoint
        URL of the server to use, instead of starting one.
    repeat
        How often to run each cell, instead of the scenario's own number.
    out, resume
        Directory for result sets; or the result set to continue, whose complete cells are kept.
    expensive
        Whether to run a scenario that would take days or much memory.
    reports
        Whether to write report.html, which needs the packages of the extra `report`.
    progress_of
        Returns the progress display of a cell, as a context manager, from its title.
    created
        Is called with the result set's directory before the first cell runs.

    Raises
    ------
    UserMistake
        If the scenario or an argument is wrong, or a server cannot be started or reached.
    Broken
        If results or a report cannot be written.
    KeyboardInterrupt
        After the servers were stopped; what was measured is kept, and `resume` continues it.
    """
    asked, cells = planned(
        scenario, only=only, overrides=overrides, endpoint=endpoint, gates=gates, repeat=repeat, expensive=expensive
    )
    results = prepare(asked, cells, out, resume)
    created(results)
    return Ran(results, campaign(asked, cells, results, progress_of, reports=reports and not lacking()), asked.knee)


def planned(
    scenario: Path,
    *,
    only: Sequence[str] = (),
    overrides: Sequence[str] = (),
    endpoint: str | None = None,
    gates: Sequence[str] = (),
    repeat: int | None = None,
    expensive: bool = False,
) -> tuple[Scenario, list[RunSpec]]:
    """Return a scenario as it is to be run, and its cells in order; parameters and errors as of `run_scenario`."""
    if endpoint is not None and not endpoint.strip():
        raise UserMistake("--endpoint is empty; give the URL of a server, or leave it out")
    path = scenario_file(scenario)
    asked = _asked(path, [*overrides, *([f"target.endpoint={endpoint}"] if endpoint else [])], gates, repeat)
    cells = asked.repeated(select(asked.expand(), only or asked.only))
    if asked.reuse:
        cells = in_groups(path, cells, keep_order=asked.knee or asked.repeat > 1)
    if not expensive:
        expect_plausible(path, cells)
    for cell in cells:
        check_spec(cell, str(path))
    return asked, cells


def _asked(path: Path, overrides: Sequence[str], gates: Sequence[str], repeat: int | None) -> Scenario:
    """Return the scenario as it is to be run."""
    asked = Scenario.load(path, overrides=overrides)
    try:
        asked.demand([checked_gate(text) for text in gates])
    except ValueError as error:
        raise UserMistake(f"--gate {error}") from None
    if repeat is not None:
        asked.repeat = repeat
    return asked


def prepare(scenario: Scenario, cells: Sequence[RunSpec], out: Path, resume: Path | None) -> Path:
    """Create the result set's directory, or return the one to resume.

    Raises
    ------
    UserMistake
        If the directory is not writable, or the result set is of another scenario.
    """
    expect_cells(scenario.path, [cell.id for cell in scenario.expand()])
    if resume is not None:
        _check_resumable(scenario, cells, resume)
        return resume
    results = out / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{scenario.name}"
    try:
        results.mkdir(parents=True)
        shutil.copyfile(scenario.path, results / "scenario.toml")
    except FileExistsError:
        raise UserMistake(f"{results} is there already; wait a second, or resume it with --resume {results}") from None
    except OSError as error:
        raise UserMistake(f"cannot write to {out}: {error.strerror}; choose another place with --out") from None
    return results


def campaign(
    scenario: Scenario, cells: Sequence[RunSpec], results: Path, progress_of: ProgressOf, *, reports: bool = True
) -> list[Summary]:
    """Run the cells that are not complete, and return all summaries; update the set's summary after every cell.

    The report is updated too if `reports`, unless that would take more than a tenth of the time.
    """
    # Before the first run, and not when it is needed: of an import that Ctrl-C cuts short, half a module remains.
    if keeps_tables():
        import tsbench.results.tables  # noqa: F401, PLC0415

    summaries: list[Summary] = []
    report_due, reached = 0.0, False
    took_s: list[float] = []
    standing = Standing(results)
    try:
        for number, cell in enumerate(cells, 1):
            done = _done(results, cell)
            if done is None:
                began_s = time.monotonic()
                place = f"[{number}/{len(cells)}{_left(took_s, len(cells) - number + 1)}]"
                shared: dict[str, Any] = {}
                if scenario.reuse:
                    more = any(load_key(other) == load_key(cell) for other in cells[number:])
                    cell, shared = standing.take(cell, more=more), {"standing": standing}  # noqa: PLW2901 - in its place
                with progress_of(f"{place} {cell.id}") as progress:
                    done = run_cell(cell, results, progress, reached=reached, **shared)
                reached = True
                took_s.append(time.monotonic() - began_s)
            summaries.append(done)
            _write(scenario, results, summaries)
            if scenario.knee and not done.passed:
                break  # higher loads than the knee would only be worse
            if reports and time.monotonic() >= report_due and number < len(cells):
                report_due = time.monotonic() + 10 * _early_report(results)
    except (KeyboardInterrupt, UserMistake):
        left = [*summaries, *_partial(results, cell)]
        if left:
            _write(scenario, results, left)
            if reports:
                _report(results)
        raise
    finally:
        standing.close()
    if reports:
        _report(results)
    return summaries


def _left(took_s: Sequence[float], cells: int) -> str:
    """Return how long the cells that are left take by the mean of those that ran, to be put behind their number."""
    return f", {format_rough_duration(statistics.mean(took_s) * cells)} left" if took_s else ""


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


def _check_resumable(scenario: Scenario, cells: Sequence[RunSpec], results: Path) -> None:
    if not results.is_dir():
        raise UserMistake(f"--resume {results}: no such result set{_near(results)}")
    if not (results / "scenario.toml").exists():
        text = "is not a result set (no scenario.toml); give one such as results/<date>-<scenario>"
        raise UserMistake(f"--resume {results}: {text}")
    expect_this_format(results)
    for run in find_runs(results) if any(results.glob("*/spec.json")) else ():
        check_world(run, WORLD_VERSION)
    name = _earlier(results).scenario
    if name not in {"", scenario.name}:
        raise UserMistake(f"--resume {results}: holds the scenario '{name}', not '{scenario.name}'; leave --resume out")
    for cell in cells:
        _done(results, cell)


def _near(results: Path) -> str:
    known = [path.name for path in results.parent.glob("*") if path.is_dir()] if results.parent.is_dir() else []
    near = difflib.get_close_matches(results.name, known, 1)
    return f"; did you mean {results.parent / near[0]}?" if near else ""


def _done(results: Path, cell: RunSpec) -> Summary | None:
    """Return the summary of a cell that an earlier attempt completed.

    Return None if the cell is to run (again): it or one of its files is missing or damaged, or its server died.
    """
    run = RunDir(results / cell.id)
    try:
        if not run.path.is_dir() or run.status().state != COMPLETE:
            return None
        spec, summary = run.read_json("spec.json"), Summary.read(run)
        if summary.cell != cell.id or spec.get("id") != cell.id or not _is_whole(run):
            return None
    except UserMistake:
        return None
    if summary.death:
        return None
    asked = cell.model_dump(mode="json", by_alias=True)
    if cell.relative_start:  # for a complete cell, `now` is the time of its run
        asked["world"]["start"] = spec["world"]["start"]
    if any(spec.get(key) != asked.get(key) for key in {*spec, *asked} - {"block", "first_block"}):  # these by its order
        text = f"{run.path} was made from another version of the scenario"
        raise UserMistake(f"{text}; start a new result set without --resume, or undo the change")
    return summary


def _is_whole(run: RunDir) -> bool:
    """Return True if a complete run has a manifest, and its table of seconds can be read; else raise UserMistake."""
    if Manifest.read(run) is None:
        return False
    if keeps_tables():
        read_table(run / "ops.parquet", OPS_COLUMNS, ADDED_COLUMNS)
    return True


def _partial(results: Path, cell: RunSpec) -> list[Summary]:
    try:
        return [Summary.read(RunDir(results / f"{cell.id}.partial"))]
    except UserMistake:
        return []


def _write(scenario: Scenario, results: Path, summaries: Sequence[Summary]) -> None:
    """Write the set's summary; cells of earlier attempts that are not in `summaries` remain in it."""
    cells = {summary.cell: summary for summary in [*_earlier(results).cells, *summaries]}
    repeats: dict[str, list[Summary]] = {}
    for summary in cells.values():
        repeats.setdefault(summary.cell.partition(ROUND)[0], []).append(summary)
    SetSummary(
        scenario=scenario.name,
        question=next((summary.question for summary in cells.values() if summary.question), ""),
        cells=tuple(sorted(cells.values(), key=_place_in(scenario))),
        claims=tuple(evaluate(read_claims(scenario.path), repeats)),
        figures=tuple(shown_figures(read_figures(scenario.path), repeats)),
        knee=_knee(list(cells.values())) if scenario.knee else None,
    ).write(results)


def _place_in(scenario: Scenario) -> Callable[[Summary], int]:
    """Return what sorts summaries: cells that ran in the order of `reuse` are shown in the scenario's."""
    if not scenario.reuse or scenario.repeat > 1:
        return lambda _: 0
    place = {cell.id: number for number, cell in enumerate(scenario.expand())}
    return lambda summary: place.get(summary.cell, 0)


def _earlier(results: Path) -> SetSummary:
    """Return the set's summary so far; an empty one if the file is missing or damaged."""
    try:
        return SetSummary.read(results)
    except UserMistake:
        return SetSummary()


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
