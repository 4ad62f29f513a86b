"""A warm-up ends when the rate has settled: on all processes at one moment, by figures that the files confirm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.drive.support import document, run
from tsbench.drive.settling_watch import SettlingWatch, SucceededOps
from tsbench.scenario import parts

if TYPE_CHECKING:
    from pathlib import Path

HOOK = """
from tsbench.measure import settling

settling.LEAST_S = 5
settling.MOST_RANGE = settling.MOST_RISE = settling.TOLERATED_DRIFT = {most}
"""
"""Makes load processes judge five seconds instead of thirty, so that a test is short, by other bounds."""
DURATION_S = 3


def warmed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, most: float, limit_s: int, processes: int
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Run a scenario; return its summary and the ops that ended, by second."""
    hook, results = tmp_path / "hook", tmp_path / "results"
    hook.mkdir()
    results.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(most=most), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr(parts, "_LEAST_LIMIT_S", limit_s)
    drive = {"warmup": "steady", "warmup_limit": f"{limit_s}s", "duration": f"{DURATION_S}s", "processes": processes}
    summary = run(results, document(drive={**drive, "wait": "50ms"}, op=[{"write": 1}], target={"name": "null"}))
    assert "measured" in summary, summary["validity"]["reason"]
    (table,) = results.glob("*/ops.parquet")
    return summary, pl.read_parquet(table).group_by("second").agg(pl.col("done").sum()).sort("second")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_the_measured_window_begins_when_the_rate_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    # Any rate but one of nothing is level enough, since the test's machine may do other work.
    summary, ops = warmed_up(tmp_path, monkeypatch, most=100.0, limit_s=60, processes=processes)
    warmup, window = summary["warmup"], summary["measured"]["window"]
    assert (warmup["settled"], warmup["limit_s"]) == (True, 60)
    assert 5 < warmup["duration_s"] < 60
    assert warmup["duration_s"] == pytest.approx(window["warmup_s"], abs=0.001)
    assert window["duration_s"] == DURATION_S
    assert ops["second"].min() == pytest.approx(-warmup["duration_s"], abs=1.01)
    # The seconds that were judged are among those in the files, and all processes are in their mean.
    per_s = dict(ops.iter_rows())
    tested_s = warmup["tested_s"]
    means = [
        sum(per_s.get(last - place, 0) for place in range(tested_s)) / tested_s
        for last in range(-round(warmup["duration_s"]), 0)
    ]
    assert any(mean == pytest.approx(warmup["ops_per_s"]) for mean in means), (means, warmup)
    assert summary["durations_s"]["warm-up"] == pytest.approx(warmup["duration_s"], abs=0.01)
    assert summary["durations_s"]["measured window"] == DURATION_S
    assert summary["durations_s"]["check"] > 0


@pytest.mark.nightly
def test_a_rate_that_never_settles_is_measured_after_the_limit_and_the_summary_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, _ = warmed_up(tmp_path, monkeypatch, most=-1.0, limit_s=15, processes=1)
    assert summary["warmup"]["settled"] is False
    assert 15 <= summary["warmup"]["duration_s"] < 16.5
    assert summary["warmup"]["tested_s"] >= 5
    assert summary["measured"]["window"]["duration_s"] == DURATION_S
    assert not any("settled" in check["reason"] for check in summary["validity"]["checks"].values())


def test_a_second_counts_when_all_processes_have_reported_it_and_only_ops_that_succeeded_count() -> None:
    watch, ops = SettlingWatch(first_s=100, measured_s=10), SucceededOps()
    for second in range(99, 130):
        ops.counted("write-1", second, {"count": 7})
        ops.counted("write-1", second, {"done": 110, "failed": 7, "unknown": 3, "partial": 1})
    watch.add("worker-0", ops.take(), 129)
    assert ops.take() == []
    for second in range(99, 130):
        assert watch.last is None
        assert not watch.has_settled({"worker-0", "worker-1"}), second
        watch.add("worker-1", [(second, 50)], second)
    assert watch.has_settled({"worker-0", "worker-1"})
    assert watch.last is not None
    assert (watch.last.tested_s, watch.last.ops_per_s) == (30, 150)
    assert not watch.has_settled({"worker-0", "worker-1"})  # nothing new to judge


def test_a_lost_process_holds_nothing_up() -> None:
    watch = SettlingWatch(first_s=0, measured_s=10)
    watch.add("worker-0", [(second, 100) for second in range(40)], 39)
    watch.add("worker-1", [(second, 1) for second in range(5)], 4)
    assert not watch.has_settled({"worker-0", "worker-1"})
    assert watch.has_settled({"worker-0"})
