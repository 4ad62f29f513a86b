from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tsbench.collect.recording import write_rows
from tsbench.results.panels import Panel, write_panels
from tsbench.results.rundir import RunDir
from tsbench.run.measurement import steadiness_with_counters

if TYPE_CHECKING:
    from pathlib import Path

WAITS = Panel("Sessions that wait", "count", "gauge", {"waits.lock": "for a lock"}, explains_stalls=True)
ROWS = pl.DataFrame(
    [{"second": s, "op": "write-1", "points": 100 * (s != 30), "count": 100, "done": 100} for s in range(-5, 60)]
)
"""The rows of ops.parquet for a rate that stalls in second 30."""


def test_a_stall_in_the_summary_has_the_counters_of_the_run_that_were_high_then(tmp_path: Path):
    run = RunDir(tmp_path)
    (stall,) = steadiness_with_counters(run, ROWS, {"write-1": "write"}, 60)["write"].stalls
    assert (stall.start_s, stall.counters) == (30, ())  # the run has no counters
    write_rows(run, "counters", [{"second": s, "name": "waits.lock", "value": 4.0 * (s == 30)} for s in range(-5, 60)])
    write_panels(run / "counters.json", [WAITS])
    (stall,) = steadiness_with_counters(run, ROWS, {"write-1": "write"}, 60)["write"].stalls
    (rise,) = stall.counters
    assert (rise.counter, rise.panel, rise.usual, rise.highest) == ("waits.lock", WAITS.title, 0.0, 4.0)
