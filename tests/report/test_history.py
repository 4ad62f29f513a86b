"""Histories of many result sets: planted changes are found in their place, flat ones have none, odd sets are named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.cli.main import main
from tsbench.measure.statistics import binomial_at_least, change_points, least_history
from tsbench.report.comparison import FIGURES
from tsbench.report.history import History, HistoryLine, read_history

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

    from tests.drive.webui.browser import Browser

pytestmark = pytest.mark.slow

NOISE = 0.02


# --- the search -------------------------------------------------------------------------------------------------------


def noisy(seed: int, size: int, noise: float = 0.03) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0, noise, size))


@pytest.mark.parametrize("size", [10, 25])
def test_flat_histories_have_a_change_no_oftener_than_is_said(size: int):
    found = sum(bool(change_points(noisy(seed, size), 0.05)) for seed in range(200))
    assert binomial_at_least(found, 200, 0.05) > 0.001, f"{found} of 200"


def test_a_step_of_ten_percent_is_found_in_its_place_and_a_visit_has_two_ends():
    steps, visits = 0, 0
    for seed in range(40):
        step, visit = noisy(seed, 24), noisy(seed, 30)
        step[14:] *= 1.1
        visit[10:20] *= 1.1
        steps += any(abs(at - 14) <= 1 for at in change_points(step, 0.05 / 12))
        visits += [round(at / 10) for at in change_points(visit, 0.05 / 12)] == [1, 2]
    assert steps >= 32
    assert visits >= 32


def test_a_single_outlier_a_drop_of_nothing_and_too_few_figures_are_no_change():
    outlier = noisy(1, 30)
    outlier[17] *= 5
    assert change_points(outlier) == []
    assert change_points(np.ones(30)) == []
    step = np.array([1.0] * 4 + [2.0] * 4)
    assert len(step) < least_history(0.05)
    assert change_points(step) == []


# --- sets -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of two runs, of which histories are made."""
    shape: dict[str, Any] = {"seconds": 8, "warmup": 2, "rate": 40}
    shapes = [Shape(cell="alpha-wide", **shape), Shape(cell="beta-narrow", seed=2, **shape)]
    return make_results(tmp_path_factory.mktemp("results") / "one", shapes)


def history(one: Path, place: Path, sets: int, change: Any = None) -> Path:
    """Make a set per day; `change` gets its number, the cell, and what summary and manifest have."""
    random = np.random.default_rng(5)
    for number in range(sets):
        moment = datetime(2026, 9, 1, 3, tzinfo=UTC) + timedelta(days=number)
        of = place / f"{moment:%Y%m%d-%H%M%S}-quickstart"
        shutil.copytree(one, of)
        for cell in ("alpha-wide", "beta-narrow"):
            contents = [json.loads((of / cell / name).read_text()) for name in ("summary.json", "env.json")]
            summary, manifest = contents
            summary["started"] = moment.isoformat()
            figures = [(summary["load"], "points_per_s"), (summary["size"], "bytes_per_point")]
            figures += [(summary["measured"]["write"], "points_per_s"), (summary["measured"]["query"], "ops_per_s")]
            for part, name in figures:
                part[name] *= float(np.exp(random.normal(0, NOISE)))
            if change is not None:
                change(number, cell, summary, manifest)
            for name, content in zip(("summary.json", "env.json"), contents, strict=True):
                (of / cell / name).write_text(json.dumps(content))
    return place


def slower(number: int, cell: str, summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Make loads of one cell a tenth slower from the set 14 on, which another commit made."""
    if number >= 14:
        manifest["tsbench"]["git"] = "beef123"
        if cell == "alpha-wide":
            summary["load"]["points_per_s"] /= 1.1


def line_of(found: History, side: str, figure: str) -> HistoryLine:
    return next(line for line in found.lines if (line.side, line.figure) == (side, figure))


def test_a_planted_change_is_named_with_its_set_its_size_and_what_differs(one: Path, tmp_path: Path, capsys: Any):
    place = history(one, tmp_path / "results", 24, slower)
    assert main(["history", str(place), "--out", str(tmp_path / "out")]) == 0
    first, last, where = capsys.readouterr().out.splitlines()
    assert first.startswith("alpha-wide: load:points/s is worse since 20260915-030000-quickstart: ")
    assert first.endswith("; differs: tsbench.git: 7eefeaf | beef123")
    assert last == (
        "1 change found in 12 figures of 24 sets; if nothing changes, at most 5% of such pages have a change marked"
    )
    assert where.startswith("history: ")
    page = (tmp_path / "out" / "history.html").read_text()
    assert first in page.replace("&gt;", ">")
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "").replace(
        "https://github.com/leeoniya", ""
    )


def test_a_flat_history_has_no_change_and_one_set_says_how_many_are_needed(one: Path, tmp_path: Path, capsys: Any):
    place = history(one, tmp_path / "results", 24)
    assert read_history([place], FIGURES).sentences()[0].startswith("no change found in 12 figures of 24 sets")
    single = next(place.iterdir())
    assert main(["history", str(single), "--out", str(tmp_path / "out")]) == 0
    assert "figures for changes: 1 of at least 14" in capsys.readouterr().out
    assert main(["history", str(tmp_path / "out"), "--out", str(tmp_path / "x")]) == 2
    assert "holds no run of tsbench" in capsys.readouterr().err


def test_invalid_runs_are_marked_and_do_not_count(one: Path, tmp_path: Path):
    def wrong(number: int, cell: str, summary: dict[str, Any], manifest: dict[str, Any]) -> None:
        if number >= 14 and cell == "alpha-wide":
            summary["load"]["points_per_s"] /= 2
            check = {"state": "invalid", "reason": "3 wrong", "counts": {}}
            summary["validity"] = {"state": "invalid", "reason": "3 wrong", "checks": {"answers": check}}

    found = read_history([history(one, tmp_path / "results", 24, wrong)], FIGURES)
    line = line_of(found, "alpha-wide", "load:points/s")
    assert [point.stands for point in line.points] == [True] * 14 + [False] * 10
    assert len(line.counted) == 14
    assert not any(line.changes for line in found.lines)
    assert len(line_of(found, "beta-narrow", "load:points/s").counted) == 24


def test_a_rate_of_the_load_generator_does_not_count_but_its_times_do(one: Path, tmp_path: Path):
    def limited(number: int, cell: str, summary: dict[str, Any], manifest: dict[str, Any]) -> None:
        summary |= {"loop": "closed", "limited_by": "load generator"}

    found = read_history([history(one, tmp_path / "results", 2, limited)], FIGURES)
    assert not line_of(found, "alpha-wide", "write:points/s").counted
    assert len(line_of(found, "alpha-wide", "write:p99").counted) == 2


def test_damaged_sets_are_named_in_a_line_each_and_the_page_is_written(one: Path, tmp_path: Path, capsys: Any):
    place = history(one, tmp_path / "results", 3)
    newest = max(place.iterdir())
    for cell in ("alpha-wide", "beta-narrow"):
        (newest / cell / "summary.json").write_text("{")
    assert main(["history", str(place), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(newest) in line
    assert newest.name in (tmp_path / "out" / "history.html").read_text()


def test_sets_of_other_scenarios_have_lines_of_their_own_and_other_machines_are_named(one: Path, tmp_path: Path):
    def other(number: int, cell: str, summary: dict[str, Any], manifest: dict[str, Any]) -> None:
        summary["scenario"] = "nightly" if number == 1 else "quickstart"
        manifest["host"]["cpu"] = "Another CPU" if number == 2 else "Example CPU"

    place = history(one, tmp_path / "results", 3, other)
    found = read_history(sorted(place.iterdir()), FIGURES)
    sizes = {line.side: len(line.points) for line in found.lines}
    names = (("quickstart", 2), ("nightly", 1))
    assert sizes == {f"{name}: {cell}": sets for name, sets in names for cell in ("alpha-wide", "beta-narrow")}
    assert found.differing == (
        ("20260903-030000-quickstart", found.sets[2][1], "differs: host.cpu: Example CPU | Another CPU"),
    )


@pytest.mark.skipif(shutil.which("otava") is None, reason="needs Apache Otava (the package apache-otava)")
def test_otava_reads_the_files_and_finds_the_change(one: Path, tmp_path: Path):
    place = history(one, tmp_path / "results", 24, slower)
    assert main(["history", str(place), "--out", str(tmp_path / "out")]) == 0
    said = subprocess.run(
        ["otava", "analyze", "alpha-wide.load_points_per_s", "--since", "2026-01-01"],
        cwd=tmp_path / "out",
        env=os.environ | {"OTAVA_CONFIG": "otava.yaml"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    before, _, after = said.partition("%")
    assert "20260914" in before.splitlines()[-3]
    assert "20260915" in after.splitlines()[2]


@pytest.mark.chromium
def test_the_page_opens_offline_its_charts_zoom_together_and_fit_a_telephone(
    one: Path, tmp_path: Path, chromium: Browser
):
    place = history(one, tmp_path / "results", 24, slower)
    main(["history", str(place), "--out", str(tmp_path / "out")])
    chromium.resize(390, 900)
    chromium.go(f"file://{tmp_path / 'out' / 'history.html'}")
    titles = "[...document.querySelectorAll('#side-1 .u-title')].map(e => e.textContent)"
    chromium.until(f"{titles}.length === 6", "the charts")
    charts = "[...document.querySelectorAll('#side-1 .panels > div')].map(e => e.chart)"
    chromium.ask(f"{charts}[0].setScale('x', {{min: 1788400000, max: 1789000000}})")
    chromium.until(f"{charts}.every(u => u.scales.x.min === 1788400000)", "one time axis")
    shown = chromium.ask("document.querySelector('#side-1 .shown').textContent")
    assert shown == "2026-09-03 01:46 to 2026-09-10 00:26"
    labels = chromium.ask(f"{charts}.map(u => u.series.map(s => s.label)).flat()")
    assert labels.count("change") == 1
    assert chromium.ask("document.documentElement.scrollWidth") <= 390
    assert not chromium.errors
