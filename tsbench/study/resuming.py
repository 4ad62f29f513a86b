"""Resuming a campaign: which runs of a result set are complete, and whether they are of the same scenario."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.results.manifest import Manifest, check_world
from tsbench.results.reading import keeps_tables, read_table
from tsbench.results.rundir import ADDED_COLUMNS, COMPLETE, OPS_COLUMNS, RunDir, expect_this_format, find_runs
from tsbench.results.summary import SetSummary, Summary
from tsbench.run.keeping import FILE as KEPT
from tsbench.text import short_path
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec, Scenario


def check_resumable(scenario: Scenario, cells: Sequence[RunSpec], results: Path) -> None:
    """Refuse to continue a directory without results of this scenario, or with a kept database; raises UserMistake."""
    if not results.is_dir():
        raise UserMistake(f"--resume {results}: no such result set{_near(results)}")
    if not (results / "scenario.toml").exists():
        text = "is not a result set (no scenario.toml); give one such as results/<date>-<scenario>"
        raise UserMistake(f"--resume {results}: {text}")
    if (results / KEPT).exists():
        text = f"keeps a database; end it with tsbench cleanup {short_path(results)}, or go on with it by --loaded"
        raise UserMistake(f"--resume {results}: {text}")
    expect_this_format(results)
    for run in find_runs(results) if any(results.glob("*/spec.json")) else ():
        check_world(run, WORLD_VERSION)
    name = earlier(results).scenario
    if name not in {"", scenario.name}:
        raise UserMistake(f"--resume {results}: holds the scenario '{name}', not '{scenario.name}'; leave --resume out")
    for cell in cells:
        done_before(results, cell)


def _near(results: Path) -> str:
    known = [path.name for path in results.parent.glob("*") if path.is_dir()] if results.parent.is_dir() else []
    near = difflib.get_close_matches(results.name, known, 1)
    return f"; did you mean {results.parent / near[0]}?" if near else ""


def done_before(results: Path, cell: RunSpec) -> Summary | None:
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
    if cell.load.duration is not None:
        asked["load"]["window"] = spec["load"]["window"]
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


def earlier(results: Path) -> SetSummary:
    """Return the set's summary so far; an empty one if the file is missing or damaged."""
    try:
        return SetSummary.read(results)
    except UserMistake:
        return SetSummary()
