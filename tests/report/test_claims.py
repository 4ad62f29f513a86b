"""The findings of a study in every form of the report, with the figures behind them folded."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tsbench.report.answer import answer_of
from tsbench.report.cells import ResultSet
from tsbench.report.console import print_summary
from tsbench.report.export import Exports
from tsbench.report.html import write_report
from tsbench.results.json_files import parsed
from tsbench.results.summary import SetSummary

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    {"claim": "breaks | early", "published": "breaks at 60 to 75", "reproduced_if": "missed at 60 to 75",
     "measured": "b: 0.3 %", "verdict": "reproduced", "reason": ""},
    {"claim": "is <smaller>", "published": "4.1 times", "reproduced_if": "2.02 to 16.8 times",
     "measured": "", "verdict": "not judged", "reason": "not MongoDB, but FerretDB 2.7.0"},
    {"claim": "is slower", "published": "2 times", "reproduced_if": "1.41 to 4 times",
     "measured": "1.1 times", "verdict": "not reproduced", "reason": ""},
]  # fmt: skip
FIGURES = [{"figure": "ops/s", "cell": "sqlite-wal", "published": "4.94 ops/s", "measured": "4.51 ops/s"}]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    results = make_results(tmp_path / "set", [Shape(cell="sqlite-wal", seconds=6, warmup=1, rate=40)])
    content = {**SetSummary.read(results).model_dump(by_alias=True), "claims": ROWS, "figures": FIGURES}
    parsed(SetSummary, content).write(results)
    return results


def test_the_answer_begins_with_how_many_findings_were_found_here_too(study: Path) -> None:
    first, *rest = answer_of(ResultSet.read(study))
    assert first == "Study: 1 of the study's 3 findings was reproduced; 1 was not judged and 1 was not reproduced."
    assert {line.partition(":")[0] for line in rest} == {"Writes", "Queries", "Size", "Open"}


@pytest.mark.slow
def test_every_report_has_the_verdicts_and_folds_the_figures_behind_them(study: Path, tmp_path: Path) -> None:
    page = write_report(study).read_text(encoding="utf-8")
    (found,) = re.findall(r'<section id="claims">.*?</section>', page, re.DOTALL)
    before, _, folded = found.partition("<details")
    assert re.findall(r'class="badge (\w+)">([^<]*)', before) == [
        ("yes", "reproduced"), ("unsure", "not judged"), ("no", "not reproduced")]  # fmt: skip
    assert "is &lt;smaller&gt;" in before
    assert "not MongoDB, but FerretDB 2.7.0" in before
    assert "4.94 ops/s" not in before
    assert "4.51 ops/s" in folded
    assert not folded.startswith(" open")

    Exports(markdown=tmp_path / "x.md").write([study])
    text = (tmp_path / "x.md").read_text(encoding="utf-8")
    assert r"| `breaks \| early` | `breaks at 60 to 75` | `missed at 60 to 75` | `b: 0.3 %` | reproduced |" in text
    assert "| **not judged**: `not MongoDB, but FerretDB 2.7.0` |" in text
    assert re.search(
        r"</summary>\n\n\| run \|.*\n.*\n\| `sqlite-wal` \| `4.94 ops/s` \| `4.51 ops/s` \|\n\n</details>", text
    )

    console = Console(file=io.StringIO(), width=200)
    print_summary(console, study)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "not judged: not MongoDB, but FerretDB 2.7.0" in shown
    assert "4.94 ops/s" not in shown
