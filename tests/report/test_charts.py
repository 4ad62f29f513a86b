"""Charts that zoom: they show what the plots show, take no name for markup, and obey a real mouse in Chromium."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.report import charts, frames, plots
from tsbench.report.cells import load_cells
from tsbench.report.html import write_report
from tsbench.results.figures import Stall, Steadiness

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

    from tests.drive.webui import browser
    from tsbench.report.cells import Cell

LIBRARY = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""uPlot 1.6.32 as its package has it: SHA-256 of each file."""
EVIL = '</script><img src=x onerror="document.title=1"><b>'


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_is_carried_unmodified_with_its_licence(name: str):
    content = (files("tsbench.report") / "static" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == LIBRARY[name]


def data_of(cell: Cell) -> dict[str, Any]:
    ops = frames.whole_seconds(cell, frames.of_run(cell, "ops"))
    found = charts.embedded(cell, [plots.throughput(cell, ops), plots.latency_over_time(cell, ops)])
    assert found is not None
    return dict(json.loads(found))


def test_lines_are_those_of_the_frames_and_heat_maps_count_every_op(mixed: Path):
    cell = load_cells(mixed)[0]
    found = data_of(cell)
    panels = {panel["title"]: panel for panel in found["panels"]}
    assert list(panels) == [
        "Ops per second", "Points acknowledged per second",
        "Writes: ops by response time", "Queries: ops by response time",
        "write", "double-groupby-1", "lastpoint",
    ]  # fmt: skip
    assert found["span"] == [-2, 7]
    ops = frames.whole_seconds(cell, frames.of_run(cell, "ops")).set_index(["op", "second"])
    highest = next(line for line in panels["lastpoint"]["lines"] if line["label"] == "max")
    assert found["xs"][highest["x"]] == list(range(-2, 8))
    assert highest["y"] == pytest.approx(list(ops.loc["lastpoint"]["response_max_ns"]), rel=1e-3)
    heat = panels["Writes: ops by response time"]
    assert [sum(counts) for _, counts in heat["counts"]] == list(ops.loc["write"]["count"])
    slowest = max(place + len(counts) - 1 for place, counts in heat["counts"])
    assert slowest == int(np.log10(ops.loc["write"]["response_max_ns"].max()) * charts.STEPS) == heat["most"]
    assert found["bands"] == [[-2, 0.0, "warm-up"]]


def test_what_is_struck_out_says_so_and_stalls_are_shaded(mixed: Path):
    cell = next(one for one in load_cells(mixed) if one.name == "mongodb-wide")
    stall = Stall(start_s=3, length_s=2, lowest=0.1)
    steady = Steadiness(0, median_per_s=1.0, variation=0.1, drift=0.0, stalls=(stall,), stall_count=1, stalled_s=2)
    summary = cell.summary.model_copy(update={"steadiness": {"write": steady}})
    found = data_of(replace(cell, summary=summary))
    assert found["bands"][1] == [3.0, 5.0, "stall"]
    labels = {line["label"] for panel in found["panels"] for line in panel.get("lines", ())}
    assert {"writes (struck out)", "median (struck out)"} <= labels


def test_of_a_long_run_a_point_is_the_highest_latency_or_the_mean_rate():
    x, y = np.arange(7_200.0), np.arange(7_200.0) % 100
    seconds, highest = charts._thinned(x, y, highest=True)
    assert len(seconds) == charts.MOST_POINTS
    assert set(highest[:10].tolist()) == {9.0, 19.0, 29.0, 39.0, 49.0, 59.0, 69.0, 79.0, 89.0, 99.0}
    y[:5] = np.nan
    assert charts._thinned(x, y, highest=False)[1][:2].tolist() == [7.0, 14.5]
    y[:10] = np.nan
    assert np.isnan(charts._thinned(x, y, highest=False)[1][0])


# --- in Chromium ------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path: Path) -> Path:
    shape = Shape(cell="pg-a", seconds=30, warmup=5, rate=30, ops=((f"write-{EVIL}", "write"), ("lastpoint", "query")))
    return write_report(make_results(tmp_path / "r", [shape, replace(shape, cell="pg-b", seed=2)]))


OPEN = "document.querySelectorAll('#runs details.run')[0].open = true"
SCALES = """[...document.querySelectorAll('#run-1-charts .panels > div')].map(e => e.chart.scales.x)
  .map(({min, max}) => [min, max])"""
SHOWN = "[...document.querySelectorAll('{}')].filter(e => e.checkVisibility()).length"


def place_of(chromium: browser.Browser, number: int) -> list[float]:
    """Return left, top, width and height of a chart's plot, scrolled into view."""
    plot = f"document.querySelectorAll('#run-1-charts .u-over')[{number}]"
    chromium.ask(f"{plot}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    return list(chromium.ask(f"(r => [r.x, r.y, r.width, r.height])({plot}.getBoundingClientRect())"))


@pytest.mark.slow
@pytest.mark.chromium
@pytest.mark.parametrize("width", [390, pytest.param(1_300, marks=pytest.mark.nightly)])
def test_every_chart_is_hovered_and_zooms_all_charts_of_its_run(page: Path, chromium: browser.Browser, width: int):
    chromium.resize(width, 900)
    chromium.go(f"file://{page}")
    chromium.ask(OPEN)
    titles = chromium.until(
        "[...document.querySelectorAll('#run-1-charts .u-title')].map(e => e.textContent)", "charts"
    )
    assert len(titles) == 10
    assert f"write-{EVIL}" in titles
    assert chromium.ask("document.querySelectorAll('#run-2-charts .u-title').length") == 0, "made when unfolded"
    whole = [[-5, 29]] * len(titles)
    chromium.until(f"JSON.stringify({SCALES}) === '{json.dumps(whole, separators=(',', ':'))}'", "one time axis")
    for number, title in enumerate(titles):
        left, top, wide, high = place_of(chromium, number)
        chromium.mouse("mouseMoved", left + wide / 2, top + high / 2)
        legends = "[...document.querySelectorAll('#run-1-charts .u-legend')].map(e => e.textContent)"
        chromium.until(
            f"{legends}.every(text => /at1[12](\\.5)? s/.test(text))", f"the cursor of {title} in every chart"
        )
        if "ops by" in title:
            assert re.search(r"\d+ of \d+ took [\d.]+ [mu]s to [\d.]+ [mu]s", chromium.ask(legends)[number])
        chromium.mouse("mousePressed", left + wide / 4, top + high / 2, 1)
        chromium.mouse("mouseMoved", left + wide / 2, top + high / 2, 1)
        chromium.mouse("mouseReleased", left + wide / 2, top + high / 2, 1)
        chromium.until(
            f"{SCALES}.every(([a, b]) => Math.abs(a - 3.6) < 0.5 && Math.abs(b - 12.2) < 0.5)",
            f"{title} to zoom all charts",
        )
        assert re.fullmatch(
            r"[34](\.\d+)? to 1[12](\.\d)? s", chromium.ask("document.querySelector('.shown').textContent")
        )
        for clicks in (1, 2):
            chromium.mouse("mousePressed", left + wide / 2, top + high / 2, clicks)
            chromium.mouse("mouseReleased", left + wide / 2, top + high / 2, clicks)
        chromium.until(f"{SCALES}.every(([a, b]) => a === -5 && b === 29)", f"a double click on {title} to show all")
    assert chromium.ask("document.documentElement.scrollWidth") <= width
    assert chromium.ask("document.title") != "1"
    assert not chromium.errors


@pytest.mark.slow
@pytest.mark.chromium
def test_a_finger_zooms_sideways_scrolls_upwards_and_shows_all_with_two_taps(page: Path, chromium: browser.Browser):
    chromium.resize(390, 800)
    chromium.go(f"file://{page}")
    chromium.ask(OPEN)
    chromium.until("document.querySelectorAll('#run-1-charts .u-title').length === 10", "charts")
    left, top, wide, high = place_of(chromium, 2)
    steps = [(left + wide * share, top + high / 2) for share in (0.25, 0.3, 0.4, 0.5)]
    chromium.swipe(*steps)
    chromium.until(
        f"{SCALES}.every(([a, b]) => Math.abs(a - 3.6) < 0.5 && Math.abs(b - 12.2) < 0.5)",
        "a finger to zoom all charts",
    )
    zoomed, before = chromium.ask(SCALES), chromium.ask("scrollY")
    chromium.swipe(*((left + wide / 2, top + high / 2 - step) for step in range(0, 200, 20)))
    chromium.until(f"scrollY > {before} + 50", "the page to scroll")
    assert chromium.ask(SCALES) == zoomed
    left, top, wide, high = place_of(chromium, 2)
    for _ in range(2):
        chromium.swipe((left + wide / 2, top + high / 2))
    chromium.until(f"{SCALES}.every(([a, b]) => a === -5 && b === 29)", "two taps to show all")
    assert not chromium.errors


@pytest.mark.slow
@pytest.mark.chromium
def test_no_chart_is_there_twice_and_print_and_pages_without_scripts_have_the_plots(
    page: Path, chromium: browser.Browser
):
    chromium.go(f"file://{page}")
    chromium.ask(OPEN)
    charts_shown, plots_shown = SHOWN.format(".zoom canvas"), SHOWN.format(".still svg")
    chromium.until(f"{charts_shown} === 10", "the charts")
    assert chromium.ask(plots_shown) == 0
    chromium.print_preview(on=True)
    chromium.until(f"{charts_shown} === 0 && {plots_shown} === 3", "the plots in print")
    chromium.print_preview(on=False)
    chromium.without_scripts()
    chromium.go(f"file://{page}")
    assert chromium.ask("document.documentElement.className") == ""
    assert chromium.ask("[...document.querySelectorAll('.zoom')].every(e => getComputedStyle(e).display === 'none')")
    assert chromium.ask("[...document.querySelectorAll('.still')].every(e => getComputedStyle(e).display === 'block')")
