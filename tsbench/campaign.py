"""Runs the cells of a scenario one after the other into one result set, and takes up again where it was stopped."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.report.html import write_report
from tsbench.run import check_spec, run_cell
from tsbench.rundir import FORMAT, RunDir, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tsbench.run import Progress
    from tsbench.scenario import RunSpec, Scenario

    ProgressOf = Callable[[str], AbstractContextManager[Progress]]


def prepare(scenario: Scenario, cells: Sequence[RunSpec], out: Path, resume: Path | None) -> Path:
    """Check every cell, and make the result set's directory (or take the one to resume).

    Raises
    ------
    UserMistake
        Before anything was started: a cell that cannot work, an unwritable place, a result set of something else.
    """
    for cell in cells:
        check_spec(cell, str(scenario.path))
    if resume is not None:
        if not resume.is_dir():
            raise UserMistake(f"--resume {resume}: no such result set")
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


def campaign(scenario: Scenario, cells: Sequence[RunSpec], results: Path, progress_of: ProgressOf) -> bool:
    """Run what is not complete yet; after every cell the set's summary and report are true for what there is.

    Returns whether every cell has a true verdict.
    """
    summaries: list[dict[str, Any]] = []
    for number, cell in enumerate(cells, 1):
        done = _done(results, cell)
        if done is None:
            with progress_of(f"[{number}/{len(cells)}] {cell.id}") as progress:
                try:
                    done = run_cell(cell, results, progress)
                except KeyboardInterrupt:
                    _write(scenario, results, [*summaries, *_partial(results, cell)])
                    raise
        summaries.append(done)
        _write(scenario, results, summaries)
    return all(summary["verdict"]["valid"] is True for summary in summaries)


def _done(results: Path, cell: RunSpec) -> dict[str, Any] | None:
    """The summary of a cell that an earlier attempt completed."""
    run = RunDir(results / cell.id)
    if not run.path.is_dir() or run.status()["state"] != "complete":
        return None
    if run.read_json("spec.json") != cell.model_dump(mode="json", by_alias=True):
        text = f"{run.path} was made from another version of the scenario"
        raise UserMistake(f"{text}; start a new result set, or undo the change")
    return run.read_json("summary.json")


def _partial(results: Path, cell: RunSpec) -> list[dict[str, Any]]:
    path = results / f"{cell.id}.partial" / "summary.json"
    return [read_json(path)] if path.exists() else []


def _write(scenario: Scenario, results: Path, summaries: Sequence[dict[str, Any]]) -> None:
    question = summaries[0].get("question", "") if summaries else ""
    content = {"format": FORMAT, "scenario": scenario.name, "question": question, "cells": list(summaries)}
    write_json(results / "summary.json", content)
    if summaries:
        write_report(results)


def short(path: Path) -> str:
    """The path as one would type it from here."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
