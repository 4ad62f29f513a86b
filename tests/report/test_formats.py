"""Exported files are read back by the tools that they are for, and have the figures of the results."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.cli.support import PROGRAMS
from tsbench.cli.main import main
from tsbench.measure.hist import Histogram
from tsbench.report import formats, frames, style
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.metrics import COMPARED

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path


def exported(results: Path, out: Path, *asked: str) -> dict[str, Path]:
    """Return the files that the command writes, by name."""
    words = [word for name in asked for word in ("--format", name)]
    assert main(["export", str(results), "--out", str(out), *words]) == 0
    return {path.name: path for path in out.iterdir()}


def rows_of(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return list(connection.execute(query).fetchall())


@pytest.mark.slow
def test_tables_are_read_by_pandas_and_duckdb_with_the_same_rows(mixed: Path, tmp_path: Path):
    files = exported(mixed, tmp_path / "x", "csv", "parquet")
    assert {"runs.csv", "ops.csv", "seconds.csv", "histograms.csv", "host.csv", "server.csv"} <= set(files)
    for name in [name for name in files if name.endswith(".csv")]:
        table = name.removesuffix(".csv")
        read = pd.read_csv(files[name])
        assert list(read.columns[:4]) == ["set", "cell", "validity", "stands"]
        for path in (files[name], files[f"{table}.parquet"]):
            columns = [name for name, *_ in rows_of(f"describe select * from '{path}'")]
            assert columns == list(read.columns)
            assert rows_of(f"select count(*) from '{path}'") == [(len(read),)]
    ((p99,),) = rows_of(f"select write_p99_ns from '{files['runs.parquet']}' where cell = 'postgres-btree'")
    assert p99 == COMPARED["write_p99_ns"].value(load_cells(mixed)[0])
    struck = rows_of(f"select cell from '{files['runs.csv']}' where not stands order by cell")
    assert struck == [("influxdb-native",), ("mongodb-wide",), ("sqlite-wal",)]


def test_logs_and_distributions_are_those_of_the_reference_implementation(mixed: Path, tmp_path: Path):
    pytest.importorskip("hdrh", reason="hdrhistogram, the reference implementation, has no wheels for this platform")
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    files = exported(mixed, tmp_path / "x", "hlog", "hgrm")
    ops = frames.of_run(load_cells(mixed)[0], "ops")
    reader = HistogramLogReader(str(files["postgres-btree.hlog"]), HdrHistogram(1, 3_600_000_000_000, 3))
    whole = HdrHistogram(1, 3_600_000_000_000, 3)
    measured_s = 1_763_632_800
    intervals = 0
    while (found := reader.get_next_interval_histogram()) is not None:
        if found.get_tag() == "write|response":
            intervals += 1
            if found.get_start_time_stamp() >= measured_s * 1_000:
                whole.add(found)
    assert intervals == 10, "one for each second, of both processes"
    measured = ops[(ops["op"] == "write") & (ops["second"] >= 0)]
    assert whole.get_total_count() == measured["count"].sum()
    rows = [
        line.split()
        for line in files["postgres-btree.write.response.hgrm"].read_text().splitlines()
        if line and line.lstrip()[0].isdigit()
    ]
    seen = {step.value_iterated_to: step.total_count_to_this_value for step in whole.get_recorded_iterator()}
    highest = {f"{whole.get_highest_equivalent_value(value) / 1e6:.3f}": count for value, count in seen.items()}
    counts = sorted(seen.values())
    total = whole.get_total_count()
    for value, level, count, *_ in rows:
        assert int(count) == highest[value]
        before = max((one for one in counts if one < int(count)), default=0)
        assert before / total < max(float(level), 1e-12) <= max(int(count) / total, 1e-12)
    assert [float(row[1]) for row in rows][:8] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6]
    assert (float(rows[-1][1]), int(rows[-1][2])) == (1, total)


def test_a_distribution_of_nothing_and_of_one_value_ends_too():
    assert "Total count    =            0" in formats.distribution(Histogram())
    rows = [line.split() for line in formats.distribution(Histogram(np.array([2_000_000]))).splitlines()[2:4]]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("2.001", "0.000000000000", "1"),
        ("2.001", "1.000000000000", "1"),
    ]


def test_metrics_are_read_by_prometheus_own_parser(mixed: Path, tmp_path: Path):
    files = exported(mixed, tmp_path / "x", "openmetrics")
    families = {one.name: one for one in text_string_to_metric_families(files["metrics.openmetrics.txt"].read_text())}
    cell = load_cells(mixed)[0]
    rate, times = families["tsbench_write_points_per_second"], families["tsbench_op_seconds"]
    (sample,) = [one for one in rate.samples if one.labels["cell"] == "postgres-btree"]
    assert sample.value == COMPARED["write_points_per_s"].value(cell)
    assert float(sample.timestamp) == 1_763_632_808
    assert {one.labels["validity"] for one in rate.samples} == {"valid", "inconclusive", "invalid"}
    assert times.type == "summary"
    asked = {"cell": "postgres-btree", "op": "lastpoint", "time": "response", "quantile": "0.99"}
    (p99,) = [one.value for one in times.samples if asked.items() <= one.labels.items()]
    histogram = frames.measured_histograms(cell)["query", "lastpoint", "response"]
    assert p99 == histogram.percentile_ns(99) / 1e9


def test_texts_from_outside_are_escaped_in_metrics_and_reduced_in_names_of_files(tmp_path: Path):
    nasty = '../a"b\\c\n{}é'
    shapes = [Shape(cell=f"pg-{n}", seconds=2, warmup=0, rate=20, ops=(("write", "write"),)) for n in (1, 2)]
    found = ResultSet.read(make_results(tmp_path / "r", shapes))
    cells = tuple(replace(cell, name=nasty) for cell in found.cells)
    export = formats.Export([replace(found, cells=cells)], tmp_path / "x")
    written = export.write(["hlog", "openmetrics"])
    assert [path.name for path in written] == ["_a_b_c_.hlog", "_a_b_c_-2.hlog", "metrics.openmetrics.txt"]
    assert all(path.resolve().parent == (tmp_path / "x").resolve() for path in written)
    samples = [one for family in text_string_to_metric_families(written[-1].read_text()) for one in family.samples]
    assert {sample.labels["cell"] for sample in samples} == {nasty}


@pytest.mark.slow
def test_plots_are_written_by_name_as_svg_and_png(mixed: Path, tmp_path: Path):
    words = ["export", str(mixed), "--out", str(tmp_path), "--format", "svg", "--format", "png"]
    assert main([*words, "--chart", "latency", "--chart", "all-size"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"all-size.svg", "all-size.png", "postgres-btree.latency.svg", "postgres-btree.latency.png"} <= names
    assert not any("throughput" in name for name in names)
    assert ET.parse(tmp_path / "postgres-btree.latency.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "all-size.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chart", "files"), [("latency", "*.latency.*"), ("all-size", "all-size.*"), ("head-write_p99_ns", "head-*")]
)
def test_a_plot_that_was_not_asked_for_is_not_drawn(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chart: str, files: str
):
    drawn: list[Any] = []
    panels = style.panels

    def counted(*given: Any, **named: Any) -> Any:
        drawn.append(given)
        return panels(*given, **named)

    monkeypatch.setattr(style, "panels", counted)
    words = ["export", str(mixed), "--out", str(tmp_path), "--format", "svg", "--format", "png", "--chart", chart]
    assert main(words) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in tmp_path.glob(files))
    assert len(drawn) == len(names) / 2 > 0  # once for both formats


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "xml"], "--format xml: no such format; there are csv, parquet"),
        (["--chart", "latency"], "--chart is about plots; add --format svg"),
        (["--format", "svg", "--chart", "latncy"], "--chart latncy: no such plot; there are all-cases"),
        (["--out", "{file}"], "is no directory; choose another one"),
    ],
)
def test_mistakes_are_one_line(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
):
    file = tmp_path / "file"
    file.write_text("")
    out = [] if "--out" in words else ["--out", str(tmp_path / "x")]
    assert main(["export", str(mixed), *out, *(word.format(file=file) for word in words)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_damaged_log_is_one_line(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    copy = shutil.copytree(mixed, tmp_path / "copy")
    (copy / "postgres-btree" / "latency" / "worker-0.hlog").write_text("Tag=write|response,1763632800,1,2,AAAA\n")
    assert main(["export", str(copy), "--out", str(tmp_path / "x"), "--format", "hlog"]) == 2
    assert "worker-0.hlog:1: damaged histogram log line" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("export", "{set}", "--out", "{out}", "--format", "csv", "--format", "openmetrics"),
        ("history", "{set}", "--out", "{out}"),
        ("compare", "{set}/postgres-btree", "{set}/postgres-brin", "--json", "{out}/c.json"),
    ],
)
@pytest.mark.slow
def test_where_no_room_is_left_old_files_stay_and_none_is_half(mixed: Path, tmp_path: Path, words: tuple[str, ...]):
    out = tmp_path / "out"
    filled = [shlex.quote(word.format(set=mixed, out=out)) for word in words]
    command = f"{shlex.quote(str(PROGRAMS / 'tsbench'))} {' '.join(filled)}"
    assert subprocess.run(command, shell=True, check=False, capture_output=True).returncode in {0, 1}
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    largest = max(map(len, before.values()))
    limited = f"ulimit -f {max(1, largest // 2048)}; {command}"  # files may have half of what the largest one needs
    done = subprocess.run(["bash", "-c", limited], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
