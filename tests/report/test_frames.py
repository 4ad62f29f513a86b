"""Frames have the files' content, over the measured window, for every run that has files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from tsbench.errors import UserMistake
from tsbench.measure.hist import Histogram
from tsbench.report import frames
from tsbench.report.cells import load_cells
from tsbench.report.metrics import COMPARED
from tsbench.results.rundir import HOST_COLUMNS, OPS_COLUMNS, SERVER_COLUMNS
from tsbench.results.summary import Summary

if TYPE_CHECKING:
    from pathlib import Path


def test_every_run_has_a_row_in_the_order_in_which_it_was_planned(mixed: Path):
    runs = frames.runs(mixed)
    assert list(runs["cell"]) == ["postgres-btree", "postgres-brin", "mongodb-wide", "influxdb-native", "sqlite-wal"]
    assert list(runs["validity"]) == ["valid", "inconclusive", "invalid", "inconclusive", "inconclusive"]
    assert list(runs["state"]) == ["complete", "complete", "complete", "failed", "interrupted"]
    assert set(COMPARED) <= set(runs.columns)
    assert runs.loc[0, "label.target.schema"] == "btree"


def test_a_run_that_broke_off_is_never_valid_and_says_why(mixed: Path):
    failed = load_cells(mixed)[3]
    assert Summary.read(failed.run).validity.state == "valid"
    assert failed.validity.state == "inconclusive"
    assert "the server died (signal 9)" in failed.validity.reason


def test_frames_over_time_have_the_columns_of_the_file_format(mixed: Path):
    for frame, columns in (
        (frames.of_set(mixed, "ops"), OPS_COLUMNS),
        (frames.of_set(mixed, "host"), HOST_COLUMNS),
        (frames.of_set(mixed, "server"), SERVER_COLUMNS),
    ):
        assert list(frame.columns) == ["cell", *columns]
        assert len(frame)


def test_the_spectrum_merged_from_the_logs_equals_the_summary(mixed: Path):
    latency = frames.of_set(mixed, "latency").set_index(["cell", "kind", "op", "time", "percentile"])["value_ns"]
    cell = load_cells(mixed)[0]
    assert cell.summary.measured is not None
    for op, content in cell.summary.measured.ops.items():
        for time in ("response", "service"):
            for name, percent in (("p50", 50.0), ("p90", 90.0), ("max", 100.0)):
                key = (cell.name, str(content.kind), op, time, percent)
                assert latency.loc[key] == (content.response_ns if time == "response" else content.service_ns)[name]
    merged = cell.summary.measured.query
    assert merged is not None
    assert latency.loc[cell.name, "query", frames.ALL, "response", 90.0] == merged.response_ns["p90"]


def test_warm_up_is_not_in_the_spectrum(mixed: Path):
    latency = frames.of_set(mixed, "latency")
    of_write = latency[(latency["cell"] == "postgres-brin") & (latency["op"] == "write")]
    measured = load_cells(mixed)[1].summary.measured
    assert measured is not None
    assert set(of_write["total"]) == {measured.ops["write"].count}


def test_a_run_whose_window_is_unknown_has_no_spectrum(mixed: Path):
    assert "sqlite-wal" not in set(frames.of_set(mixed, "latency")["cell"])


def test_the_spectrum_has_the_ticks_of_hdrhistogram():
    spectrum = frames.spectrum(Histogram(np.arange(1, 1001) * 1000))
    percents = list(spectrum["percentile"])
    assert percents[:9] == pytest.approx([0, 10, 20, 30, 40, 50, 55, 60, 65])
    assert percents[-2:] == [99.999, 100.0]
    assert all(a < b for a, b in pairwise(percents))
    assert spectrum["value_ns"].is_monotonic_increasing
    assert spectrum["value_ns"].iloc[-1] == pytest.approx(1_000_000, rel=1e-3)


def test_a_second_far_above_the_usual_is_a_stall(mixed: Path):
    found = frames.stalls(frames.of_set(mixed, "ops"))
    first = found.iloc[0]
    assert (first["cell"], first["op"], first["start_s"], first["length_s"]) == ("postgres-btree", "write", 5, 1)
    assert first["factor"] > 10


def test_neighbouring_slow_seconds_are_one_stall_and_warm_up_is_none():
    seconds = list(range(-3, 20))
    slow = {-2, 4, 5, 6, 11}
    frame = pd.DataFrame(
        {
            "cell": "a",
            "second": seconds,
            "op": "write",
            "count": 1,
            "response_p99_ns": 1000,
            "response_max_ns": [50_000 if s in slow else 2000 for s in seconds],
        }
    )
    found = frames.stalls(frame)
    assert sorted(zip(found["start_s"], found["length_s"], strict=True)) == [(4, 3), (11, 1)]


def test_seconds_that_are_not_whole_can_be_cut_at_both_ends(mixed: Path):
    cell = load_cells(mixed)[0]
    assert cell.summary.measured is not None
    window = cell.summary.measured.window.model_copy(update={"warmup_s": 1.4})
    measured = cell.summary.measured.model_copy(update={"window": window})
    cell = replace(cell, summary=cell.summary.model_copy(update={"measured": measured}))
    ops = pd.DataFrame({"second": [-2, -1, 0, 7, 8, 9]})
    assert list(frames.whole_seconds(cell, ops)["second"]) == [-1, 0, 7], "-2 and 8 are not whole"
    samples = pd.DataFrame({"second": [-1.9, -1.3, 6.9, 7.0005, 7.2]})
    assert list(frames.whole_seconds(cell, samples)["second"]) == [-1.3, 6.9, 7.0005]


def test_a_damaged_file_is_named_with_its_cure(mixed: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(mixed, copy)
    (copy / "postgres-btree" / "ops.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserMistake, match=r"ops\.parquet is damaged.*--resume"):
        frames.of_set(copy, "ops")
    (copy / "postgres-btree" / "latency" / "worker-0.hlog").write_text("Tag=write|service,1,1,1,xx\n")
    with pytest.raises(UserMistake, match=r"worker-0\.hlog:1: damaged"):
        frames.of_set(copy, "latency")


def test_a_column_with_nulls_stays_readable(mixed: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(mixed / "postgres-btree", copy)
    server = pd.read_parquet(copy / "server.parquet").astype({"rss_bytes": "Int64"})
    server.loc[0, "rss_bytes"] = None
    server.to_parquet(copy / "server.parquet")
    assert frames.of_set(copy, "server")["rss_bytes"].isna().sum() == 1


def test_runs_that_left_no_files_give_empty_typed_frames(mixed: Path, tmp_path: Path):
    (tmp_path / "x.partial").mkdir()
    shutil.copyfile(mixed / "sqlite-wal.partial" / "spec.json", tmp_path / "x.partial" / "spec.json")
    for frame in (frames.of_set(tmp_path, name) for name in ("ops", "host", "server", "latency")):
        assert frame.empty
        assert frame.columns[0] == "cell"
    assert frames.runs(tmp_path).loc[0, "state"] == "interrupted"


def test_a_directory_without_runs_is_a_mistake_of_the_user(tmp_path: Path):
    with pytest.raises(UserMistake, match="holds no run"):
        frames.runs(tmp_path)


def test_ops_of_an_earlier_format_had_no_writes_refused_in_part(tmp_path: Path, mixed: Path) -> None:
    copy = shutil.copytree(mixed, tmp_path / "old")
    for path in copy.glob("*/ops.parquet"):
        pd.read_parquet(path).drop(columns="partial").to_parquet(path)
    found = frames.of_set(copy, "ops")
    assert len(found) == len(frames.of_set(mixed, "ops")) > 0
    assert found["partial"].tolist() == [0] * len(found)
