"""The page and the frames have how long the phases of a run took, and whether its rate settled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.report.synthetic import Shape, make_results
from tsbench.report import frames, markdown
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.html import write_report
from tsbench.report.metrics import remarks
from tsbench.results.rundir import RunDir, write_json

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return make_results(tmp_path / "set", [SMALL])


def change(results: Path, **parts: object) -> None:
    run = RunDir(results / SMALL.cell)
    write_json(run / "summary.json", {**run.read_json("summary.json"), **parts})


def text_of_page(results: Path) -> str:
    page = write_report(results).read_text(encoding="utf-8")
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.slow
def test_a_folded_table_has_the_total_first_and_then_the_phases_in_order(results: Path):
    change(results, durations_s={"total": 120.0, "check": 30.0, "load": 60.0, "measured window": 30.0})
    page = write_report(results).read_text(encoding="utf-8")
    (table,) = re.findall(r'<details class="run"><summary>How long it took: 120 s.*?</details>', page, re.DOTALL)
    rows = [re.findall(r">([^<]*)</t[hd]>", row) for row in table.split("<tr>")[1:]]
    assert rows == [
        ["the whole run, up to the end of its checks", "120 s", ""],
        ["first data stored", "60.0 s", "50%"],
        ["measured window", "30.0 s", "25%"],
        ["writes and answers checked", "30.0 s", "25%"],
    ]
    assert frames.of_set(results, "durations").to_dict("list") == {
        "cell": [SMALL.cell] * 3,
        "phase": ["load", "measured window", "check"],
        "duration_s": [60.0, 30.0, 30.0],
    }


@pytest.mark.slow
def test_a_run_without_durations_is_shown(results: Path):
    assert "How long it took" not in text_of_page(results)
    found = frames.of_set(results, "durations")
    assert (list(found.columns), len(found)) == (["cell", "phase", "duration_s"], 0)


NEVER = {"settled": False, "duration_s": 600.0, "limit_s": 600.0, "tested_s": 300, "ops_per_s": 1_234.5}
NEVER |= {"range": 0.43, "rise": -0.12, "drift": -0.3}


@pytest.mark.slow
def test_a_rate_that_never_settled_is_a_finding_with_its_figures_and_invalidates_nothing(results: Path):
    change(results, warmup=NEVER)
    (cell,) = load_cells(results)
    assert cell.validity.is_valid
    (text,) = remarks(cell)
    assert text == (
        "the rate never settled within the warm-up's limit of 600 s: in its last 300 s five means differed by 43% (at "
        "most 20%), rose by -12% (at most 10%), and the trend would come to -30% in the measured window (at most 10%); "
        "what follows was measured while it changed"
    )
    page = text_of_page(results)
    assert "The rate never settled within the warm-up&#39;s limit of 600 s" in page
    assert "the rate settled never, within 600 s judged by its last 300 s ops/s in these 1,23" in page
    assert "the rate never settled" in markdown.document([ResultSet.read(results)])


@pytest.mark.slow
def test_a_rate_that_settled_has_its_figures_in_the_page_and_no_remark(results: Path):
    change(results, warmup={**NEVER, "settled": True, "duration_s": 34.6, "range": 0.04, "rise": 0.01, "drift": 0.0})
    assert remarks(load_cells(results)[0]) == []
    assert "the rate settled after 34.6 s judged by its last" in text_of_page(results)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"tested_s": None}, "it had too few whole seconds to be judged"),
        ({"ops_per_s": 0.0}, "no op succeeded in its last 300 s"),
    ],
)
def test_a_rate_that_could_not_be_judged_says_why(results: Path, figures: dict[str, object], said: str):
    change(results, warmup={**NEVER, **figures})
    assert remarks(load_cells(results)[0]) == [f"the rate never settled within the warm-up's limit of 600 s: {said}"]


def test_times_that_changed_within_the_window_are_named(results: Path):
    measured = RunDir(results / SMALL.cell).read_json("summary.json")["measured"]
    change(results, measured={**measured, "time_drifts": {"lastpoint": 0.42, "cpu-max-all-1": 9.71}})
    said = "times changed within the window; those at its end by those at its beginning: cpu-max-all-1 9.7x, lastpoint "
    assert remarks(load_cells(results)[0]) == [f"{said}0.42x"]


@pytest.mark.parametrize(
    ("nodes", "busy", "is_named"),
    [(3, 1.9, True), (3, 1.5, False), (1, 1.9, False), (3, None, False), ("3", 1.9, False)],
)
def test_cores_that_several_nodes_share_are_named_where_they_were_the_limit(
    results: Path, nodes: object, busy: float | None, *, is_named: bool
):
    run = RunDir(results / SMALL.cell)
    loaded = {**run.read_json("summary.json")["load"], "cores_busy": busy}
    change(results, load=loaded)
    environment = run.read_json("env.json")
    write_json(run / "env.json", {**environment, "host": {**environment["host"], "cores": 2}})
    write_json(run / "spec.json", {**run.read_json("spec.json"), "server": {"nodes": nodes}})
    said = (
        "1.9 of this machine's 2 cores were at work during the load, which all nodes share: they, and not the number "
    )
    found = remarks(load_cells(results)[0])
    assert found == ([f"{said}of nodes, were the limit"] if is_named else [])
