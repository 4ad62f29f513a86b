"""Every output strikes out invalid figures, and shows a failed gate next to a valid figure."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tsbench.report import frames, markdown
from tsbench.report.cells import Cell, ResultSet, load_cells
from tsbench.report.console import print_summary
from tsbench.report.html import write_report
from tsbench.report.metrics import COMPARED, MISSING
from tsbench.results.summary import GateResult, Knee

from .synthetic import ALIVE, Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("unpainted")
BROKEN = GateResult("write:p99<1ms", 6e6, "fail", "6.00 ms (response time of 20 ops, open loop)")
DEAD = GateResult("server deaths<=0", 1.0, "fail", "the server died during the run (signal 9)", built_in=True)
SMALL = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=10, ops=(("write", "write"), ("lastpoint", "query")))


def made(tmp_path: Path, **changes: object) -> Path:
    return make_results(tmp_path / "r", [Shape(**{**SMALL.__dict__, **changes})])


def struck(results: Path) -> dict[str, set[str]]:
    """Return the figures that each output strikes out."""
    out = io.StringIO()
    print_summary(Console(file=out, width=300, force_terminal=True, color_system="truecolor"), results)
    page = write_report(results).read_text(encoding="utf-8")
    return {
        "console": {text.strip() for text in re.findall(r"\x1b\[2;9m\s*~([^\x1b]*)~", out.getvalue())} - {""},
        "markdown": set(re.findall(r"~~(.*?)~~", markdown.document([ResultSet.read(results)]))),
        "html": set(re.findall(r'<span class="struck">(.*?)</span>', page)),
    }


def texts(cell: Cell, *keys: str) -> set[str]:
    return {COMPARED[key].text(cell) for key in keys} - {MISSING}


@pytest.mark.parametrize("gate", [BROKEN, DEAD], ids=["a limit exceeded", "a server that died"])
def test_a_gate_that_failed_is_shown_and_strikes_nothing_out(tmp_path: Path, gate: GateResult):
    results = made(tmp_path, gates=(ALIVE, gate))
    assert struck(results) == {"console": set(), "markdown": set(), "html": set()}
    out = io.StringIO()
    print_summary(Console(file=out, width=300), results)
    assert f"sqlite-wal: gate {gate.gate} failed: {gate.text}" in out.getvalue()
    gates = "server died" if gate is DEAD else "1 of 1 fail"
    assert gates in out.getvalue()
    assert f"| **fail** | `{gate.gate}` | 1 of 1 | {gate.text} |" in markdown.document([ResultSet.read(results)])
    page = (results / "report.html").read_text(encoding="utf-8").replace("&lt;", "<")
    summary = page[page.index('<section id="summary">') : page.index('<section id="reading">')]
    assert f"<code>{gate.gate}</code> measured: {gate.text}" in summary
    (row,) = frames.runs(results).to_dict("records")
    assert (row["validity"], row["gates"], row["failed_gates"]) == ("valid", gates, gate.sentence)


@pytest.mark.parametrize(
    ("validity", "reason"),
    [("invalid", "3 answers are wrong"), ("inconclusive", "the answers could not be checked")],
)
def test_figures_of_a_run_that_is_not_valid_are_struck_out_on_every_page(tmp_path: Path, validity: str, reason: str):
    results = made(tmp_path, validity=validity, reason=reason, doubted="answers", gates=(ALIVE, BROKEN))
    (cell,) = load_cells(results)
    for found in struck(results).values():
        assert texts(cell, "write_p50_ns", "write_p99_ns", "write_points_per_s") <= found
    assert cell.gates_text == "not judged"
    assert cell.summary.failed_gates == []
    assert f"`sqlite-wal` **{validity}**: {reason}" in markdown.document([ResultSet.read(results)])


def test_figures_of_a_run_that_only_the_load_generator_limited_are_not_struck_out(tmp_path: Path):
    reason = "its event loop used 93% of a core"
    results = made(tmp_path, validity="inconclusive", reason=reason)
    assert struck(results) == {"console": set(), "markdown": set(), "html": set()}
    assert f"**inconclusive**: {reason}" in markdown.document([ResultSet.read(results)])


def test_a_latency_that_the_client_delayed_is_an_interval_on_every_page(tmp_path: Path):
    for delayed, is_interval in ((0.05, False), (0.3, True)):
        results = made(tmp_path / str(delayed), delayed=delayed)
        (cell,) = load_cells(results)
        text = COMPARED["write_max_ns"].text(cell)
        assert bool(re.fullmatch(r"[\d.]+-[\d.]+ ms", text)) == is_interval
        out = io.StringIO()
        print_summary(Console(file=out, width=300), results)
        page = write_report(results).read_text(encoding="utf-8")
        assert all(text in output for output in (out.getvalue(), markdown.document([ResultSet.read(results)]), page))


def test_a_knee_that_could_not_be_judged_is_not_said_to_have_failed():
    for judged, words in ((True, "b did not pass."), (False, "b could not be judged: why")):
        found = Knee(held="a", broke="b", reason="why", judged=judged).sentence
        assert found == f"The highest load that held is a; {words}"
