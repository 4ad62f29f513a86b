"""Rows that sysstat recorded elsewhere are added to the runs of the same time."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from tsbench.collect.recording import Attached, attach_sar, watching, write_rows
from tsbench.errors import Broken, UserMistake
from tsbench.report import frames
from tsbench.results.rundir import RunDir, write_json

DATA = Path(__file__).parent / "data"
FIRST_S = 1_795_174_154  # when the recording begins
HOUR = 3_600


def run_at(results: Path, name: str, go_s: float, *, seconds: int = 4) -> RunDir:
    """Return a run whose load began at a moment, with a second of warm-up."""
    run = RunDir.create(results, name)
    run.write_json("spec.json", {"cell": name})
    start_s = math.ceil(go_s + 1)
    write_json(run / "process/clock.json", {"go_s": go_s, "start_s": start_s, "end_s": start_s + seconds})
    return run.finish("complete")


def test_rows_are_put_on_the_runs_own_time_axis(tmp_path: Path) -> None:
    run_at(tmp_path, "one", FIRST_S + 1, seconds=2)
    run_at(tmp_path, "later", FIRST_S + 500)
    done = attach_sar(tmp_path, DATA / "recorded.json", host="db-1")
    assert done == [Attached("one", "db-1", 3.0, 3.0)]
    frame = frames.of_set(tmp_path, "sar")
    assert list(frame["second"]) == [-1.0, 0.0, 1.0]
    assert set(frame["host"]) == {"db-1"}
    assert set(frame["cell"]) == {"one"}
    assert frame["cpu_iowait_percent"].iloc[0] == 29.84


def test_a_file_that_covers_a_part_says_how_much(tmp_path: Path) -> None:
    run_at(tmp_path, "one", FIRST_S - 2.5, seconds=4)
    (done,) = attach_sar(tmp_path, DATA / "recorded.json")
    assert (done.covered_s, done.whole_s) == (3.0, 5.5)


def test_files_for_cpu_and_disk_are_joined_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    run = run_at(tmp_path, "one", FIRST_S)
    whole = (DATA / "recorded.csv").read_text().split("# hostname")
    for place, table in enumerate(whole[1:]):
        (tmp_path / f"{place}.csv").write_text("# hostname" + table)
        attach_sar(tmp_path, tmp_path / f"{place}.csv")
    joined = pl.read_parquet(run / "sar.parquet")
    attach_sar(tmp_path, DATA / "recorded.json")
    again = pl.read_parquet(run / "sar.parquet")
    assert joined.equals(again)
    assert joined.height == 5
    assert joined["cpu_user_percent"].null_count() == joined["load_1m"].null_count() == 0


def test_two_hosts_are_kept_apart(tmp_path: Path) -> None:
    results = tmp_path / "my [b]est* results?"  # which polars would take for a pattern
    run_at(results, "one", FIRST_S)
    attach_sar(results, DATA / "recorded.json", host="client")
    attach_sar(results, DATA / "recorded.json", host="server")
    assert list(frames.of_set(results, "sar").groupby("host").size()) == [5, 5]


def test_another_time_is_refused_with_both_times(tmp_path: Path) -> None:
    run_at(tmp_path, "one", FIRST_S + 100 * HOUR)
    with pytest.raises(
        UserMistake, match=r"covers from 2026-11-20T11:29:14Z.*lasted from 2026-11-24T15:29:14Z.*that day"
    ):
        attach_sar(tmp_path, DATA / "recorded.json")
    assert not (tmp_path / "one" / "sar.parquet").exists()


def test_a_whole_number_of_hours_apart_is_seen_as_a_clock_in_another_zone(tmp_path: Path) -> None:
    run_at(tmp_path, "one", FIRST_S - 2 * HOUR)
    with pytest.raises(UserMistake, match=r"would overlap if its times were \+2 h ahead of UTC"):
        attach_sar(tmp_path, DATA / "recorded.json")
    attach_sar(tmp_path, DATA / "tokyo.csv", ahead_s=11 * HOUR)


def test_a_run_that_was_never_measured_takes_nothing(tmp_path: Path) -> None:
    RunDir.create(tmp_path, "one").write_json("spec.json", {})
    with pytest.raises(UserMistake, match="has no measured run"):
        attach_sar(tmp_path, DATA / "recorded.json")


def test_collected_rows_count_from_the_measured_window(tmp_path: Path) -> None:
    run = run_at(tmp_path, "one", 100.0)
    write_rows(run, "counters", [{"second": 100.5, "name": "x", "value": 7}])
    assert pl.read_parquet(run / "counters.parquet").rows() == [(-0.5, "x", 7.0)]


class _Quiet:
    """A collector without rows that counts how often it is stopped."""

    trouble = ""

    def __init__(self, name: str) -> None:
        self.name, self.stops = name, 0

    def start(self) -> None:
        pass

    def stop(self) -> list[dict[str, float | str]]:
        self.stops += 1
        return []


def test_a_file_that_cannot_be_written_is_one_line_and_the_other_collectors_are_stopped(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "one")
    (run / "host.parquet").mkdir()  # stops root too
    collectors = [_Quiet("host"), _Quiet("server")]
    with (
        pytest.raises(Broken, match=r"cannot write .*host\.parquet: Is a directory; free some room"),
        watching(run, collectors),
    ):
        pass
    assert [collector.stops for collector in collectors] == [1, 1]
