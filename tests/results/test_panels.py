from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tsbench.results.panels import Panel, read_panels, write_panels
from tsbench.results.rundir import RunDir

if TYPE_CHECKING:
    from pathlib import Path

PANELS = (
    Panel("Requests", "count", "rate", {"a.writes": "writes", "a.reads": "reads"}),
    Panel("Memory", "bytes", "gauge", {"heap": "heap"}, explains_stalls=True),
)


def test_panels_are_the_same_after_they_were_written_and_read(tmp_path: Path):
    write_panels(tmp_path / "counters.json", PANELS)
    assert read_panels(RunDir(tmp_path)) == PANELS


def test_a_run_without_the_file_has_no_panels(tmp_path: Path):
    assert read_panels(RunDir(tmp_path)) == ()


def test_a_panel_that_cannot_be_plotted_is_left_out(tmp_path: Path):
    path = tmp_path / "counters.json"
    write_panels(path, PANELS)
    content = json.loads(path.read_text())
    content["panels"] += [7, {**content["panels"][0], "kind": "histogram"}, {**content["panels"][0], "counters": []}]
    path.write_text(json.dumps(content))
    assert read_panels(RunDir(tmp_path)) == PANELS
