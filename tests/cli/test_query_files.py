"""`tsbench queries | query | validate | cleanup TARGET`: one file of queries for every database."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.cli.support import PROGRAMS, Command, complaint, nothing_left, says
from tests.cli.test_load import TARGETS, loaded, place
from tsbench.cli.main import main
from tsbench.model import Window
from tsbench.results.manifest import Manifest
from tsbench.results.rundir import HOST_COLUMNS, find_runs
from tsbench.results.summary import Summary
from tsbench.results.tables import read_frame
from tsbench.scenario.use_case import built_in_case, built_in_spec
from tsbench.servers.base import kill_processes
from tsbench.targets.postgres.server import PostgresServer
from tsbench.units import NS_PER_S
from tsbench.workload import queries
from tsbench.workload.query_files import MS, Parser, line_of, made
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["place"]

WORLD = ("--scale", "8", "--end", "2016-01-01T12:00:00Z")
BUILT_IN = built_in_case("cpu-only", 10 * NS_PER_S).queries
KINDS = [name for name in BUILT_IN if name.startswith(("single-", "double-", "cpu-max-all-8", "high-", "last"))]
KINDS += ["groupby-orderby-limit", "raw-one"]
SERVED = [
    TARGETS[0],
    TARGETS[2],
    pytest.param("influxdb1", marks=[getattr(pytest.mark, "influxdb-1.8"), pytest.mark.nightly]),
]


def asked(path: Path, *words: str) -> str:
    assert main(["queries", *WORLD, "--out", str(path), *words]) == 0
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_a_loaded_database_answers_every_kind_as_gold_and_a_changed_value_is_found(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    file = asked(tmp_path / "q.zst", "--count", "60", *(word for kind in KINDS for word in ("--type", kind)))
    assert main(["validate", target, file, "--endpoint", endpoint]) == 0
    assert "60 of 60 answers are right" in capsys.readouterr().out
    other = ("--use-case", "cpu-only", "--scale", "8", "--end", "2016-01-01T11:59:50Z")  # the last tick is missing
    assert loaded(tmp_path, target, *other, "--endpoint", endpoint)[0] == 0
    capsys.readouterr()
    assert main(["validate", target, file, "--endpoint", endpoint]) == 1
    out, err = capsys.readouterr()
    says(complaint(err), "answers are wrong")
    assert "first difference, query " in out
    assert '"type":"' in out


def test_two_targets_are_compared_and_the_rows_stand_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [f"sqlite://{tmp_path / 'a.db'}", f"duckdb://{tmp_path / 'b.duckdb'}"]
    for end in ends:
        assert loaded(tmp_path, end.partition(":")[0], "--use-case", "cpu-only", *WORLD, "--endpoint", end)[0] == 0
    with closing(sqlite3.connect(tmp_path / "a.db")) as one:
        one.execute("UPDATE cpu SET usage_user = usage_user + 1 WHERE rowid = (SELECT max(rowid) FROM cpu)")
        one.commit()
    file = asked(tmp_path / "q", "--count", "3", "--type", "lastpoint")
    capsys.readouterr()
    words = [word for end in ends for word in ("--endpoint", end)]
    assert main(["validate", "sqlite", "duckdb", file, *words]) == 1
    out, err = capsys.readouterr()
    says(complaint(err), "3 answers are wrong")
    assert "sqlite wal: 0 of 3 answers are right" in out
    assert "duckdb columns: 3 of 3 answers are right" in out
    says(next(line for line in out.splitlines() if line.startswith("first difference")), "usage_user", " instead of ")
    rows = [line.partition(" ")[2] for line in out.splitlines() if line.startswith(("answer: ", "expected: "))]
    assert len(rows) == 2
    assert rows[0] != rows[1]


@pytest.mark.slow
def test_databases_that_agree_with_each_other_and_not_with_the_world_have_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [f"sqlite://{tmp_path / 'a.db'}", f"duckdb://{tmp_path / 'b.duckdb'}"]
    for end in ends:
        other = ("--use-case", "cpu-only", *WORLD, "--seed", "2", "--endpoint", end)
        assert loaded(tmp_path, end.partition(":")[0], *other)[0] == 0
    kinds = ("single-groupby-1-1-1", "lastpoint", "double-groupby-5")
    file = asked(tmp_path / "q", "--count", "30", *(word for kind in kinds for word in ("--type", kind)))
    capsys.readouterr()
    words = [word for end in ends for word in ("--endpoint", end)]
    assert main(["validate", "sqlite", "duckdb", file, *words]) == 2
    says(complaint(capsys.readouterr().err), "agree with each other and not with this file's world", "another seed")
    assert main(["validate", "sqlite", file, "--endpoint", ends[0]]) == 1  # alone it may be at fault
    says(complaint(capsys.readouterr().err), "30 answers are wrong; if these are all, the data may be of another world")
    with closing(sqlite3.connect(tmp_path / "a.db")) as one:  # now they differ: one of them is at fault
        one.execute("UPDATE cpu SET usage_user = usage_user + 1")
        one.commit()
    assert main(["validate", "sqlite", "duckdb", file, *words]) == 1
    assert "agree with each other" not in complaint(capsys.readouterr().err)


@pytest.mark.parametrize("place", SERVED, indirect=True)
@pytest.mark.slow
def test_queries_are_timed_counted_and_reported(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    file = asked(tmp_path / "q", "--count", "50", "--type", "single-groupby-1-1-1", "--type", "lastpoint")
    capsys.readouterr()
    words = ("--endpoint", endpoint, "--burn-in", "10", "--workers", "2", "--out", str(tmp_path / "asked"))
    assert main(["query", target, file, *words]) == 0
    out = capsys.readouterr().out
    says(out, "Run complete after 40 queries with 2 workers", "all queries", "wall clock time: ", "p99: ")
    (newest,) = [line for line in out.splitlines() if line.startswith("lastpoint")]
    says(newest, "count: 20, rows: 160, rate: ")  # eight hosts have a newest row each
    assert "without a row" not in out
    (run,) = find_runs(next((tmp_path / "asked").iterdir()))
    summary = Summary.read(run)
    assert summary.passed
    manifest = Manifest.read(run)
    assert manifest is not None
    assert not [one for one in manifest.warnings if "sar" in one]  # although no second was recorded
    assert summary.measured is not None
    assert summary.measured.query is not None
    assert {name: op.ok for name, op in summary.measured.ops.items()} == {"single-groupby-1-1-1": 20, "lastpoint": 20}
    for op in summary.measured.ops.values():
        assert 0 < op.service_ns["p50"] <= op.service_ns["p95"] <= op.service_ns["max"]
    assert main(["cleanup", str(run.path)]) == 0  # which created nothing
    assert main(["validate", target, file, "--endpoint", endpoint]) == 0
    assert main(["report", str(run.path.parent), "--json", str(tmp_path / "r.json")]) == 0
    capsys.readouterr()
    assert main(["cleanup", target, "--endpoint", endpoint]) == 0
    assert "removed " in capsys.readouterr().out
    assert main(["query", target, file, *words[:2], "--out", str(tmp_path / "none")]) == 1


def test_answers_without_a_row_are_counted_for_they_are_fast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = f"sqlite://{tmp_path / 'a.db'}"
    assert loaded(tmp_path, "sqlite", "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    file = asked(tmp_path / "q", "--count", "12", "--type", "single-groupby-1-1-1", "--type", "lastpoint")
    with closing(sqlite3.connect(tmp_path / "a.db")) as one:
        one.execute("DELETE FROM cpu")
        one.commit()
    capsys.readouterr()
    assert main(["query", "sqlite", file, "--endpoint", endpoint, "--out", str(tmp_path / "asked")]) == 0
    says(capsys.readouterr().out, "count: 12, rows: 0 (12 answers without a row), rate: ")
    assert main(["report", str(next((tmp_path / "asked").iterdir()))]) == 0
    says(" ".join(capsys.readouterr().out.split()), "every answer to 'lastpoint', 'single-groupby-1-1-1' was empty")


def test_a_rate_counts_response_times_from_when_queries_were_due(tmp_path: Path) -> None:
    endpoint = f"sqlite://{tmp_path / 'a.db'}"
    assert loaded(tmp_path, "sqlite", "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    file = asked(tmp_path / "q", "--count", "2000", "--type", "double-groupby-all")
    out = ("--out", str(tmp_path / "asked"))
    assert main(["query", "sqlite", file, "--endpoint", endpoint, "--rate", "5000", "--limit", "30", *out]) == 0
    (run,) = find_runs(next((tmp_path / "asked").iterdir()))
    summary = Summary.read(run)
    assert summary.loop == "open"
    assert summary.measured is not None
    assert summary.measured.query is not None
    assert summary.measured.query.count == 30
    assert summary.measured.query.response_ns["max"] > 3 * summary.measured.query.service_ns["max"]


def test_a_file_names_the_queries_of_a_run_at_whole_milliseconds() -> None:
    world = World(built_in_spec("cpu-only", 100, 1, 1_451_606_400 * 10**9, 10**10, resolution_ns=MS))
    loaded = Window(world.time_ns(0), world.time_ns(8_640))
    parser = Parser(world.measurements)
    for kind in KINDS:
        for number, line in enumerate(made([kind], 20, world, loaded, 5)):
            found = parser.parse(line, number)
            assert found.query == queries.make(kind, world, loaded, 5, number)
            assert line_of(kind, found.query) == line
            if (window := getattr(found.query, "window", None)) is not None:
                assert window.start_ns % MS == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measurement": "nothing"}, "nothing"),
        ({"values": [["max", "nothing"]]}, "cpu has no field 'nothing'"),
        ({"values": []}, "it has no values"),
        ({"by": ["nothing"]}, "cpu has no tag 'nothing'"),
        ({"tagged": [{"tag": "nothing", "values": ["x"]}]}, "cpu has no tag 'nothing'"),
        ({"tagged": [{"tag": "region", "values": [1]}]}, "values of tags are texts"),
        ({"where": [{"field": "usage_user", "comparison": "~", "value": 1}]}, "where has conditions of a field"),
        ({"window": [5, 4]}, "an empty window"),
        ({"window": [1.5, 4]}, "no whole number"),
        ({"window": [1]}, "not enough values"),
        ({"keys": [1]}, "keys are no texts"),
        ({"values": [["drop", "usage_user"]]}, "there is no aggregate 'drop'"),
        ({"bucket_ns": 1.5}, "no whole number"),
        ({"bucket_ns": 0}, "above 0"),
        ({"query": "Count"}, "Count"),
        ({"more": 1}, "it needs "),
    ],
)
def test_a_damaged_query_is_one_line_with_its_number(
    change: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q"
    asked(file, "--count", "5", "--type", "single-groupby-1-1-1")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = orjson.dumps({**json.loads(lines[3]), **change}) + b"\n"
    file.write_bytes(b"".join(lines))
    capsys.readouterr()
    endpoint = f"sqlite://{tmp_path / 'a.db'}"
    assert main(["validate", "sqlite", str(file), "--endpoint", endpoint]) == 2
    says(complaint(capsys.readouterr().err), "line 4: ", words)


def test_show_prints_what_each_layout_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("postgres", "influxdb1", "influxdb2", "mongodb", "mariadb", "sqlite", "duckdb"):
        assert main(["queries", "--type", "single-groupby-1-1-1", "--show", target]) == 0
        says(capsys.readouterr().out, f"-- {target} ", "usage_user")


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    endpoint = f"sqlite://{tmp_path / 'a.db'}"
    assert loaded(tmp_path, "sqlite", "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    asked(tmp_path / "q", "--count", "5000", "--type", "lastpoint")
    with nothing_left():
        command = Command(tmp_path, "tsbench", "query", "sqlite", "q", "--endpoint", endpoint, "--rate", "20")
        command.until_measured()
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(60) == 130
    says(complaint(command.stderr), "interrupted by the user", "queries were answered")
    (run,) = find_runs(next((tmp_path / "results").iterdir()))
    host = read_frame(run / "host.parquet", HOST_COLUMNS)
    assert host["client_rss_bytes"].head(-1).min() > 10_000_000  # type: ignore[operator] # the last is of their end
    assert {0.0} <= set(host["second"].round(0).to_list()) <= {float(second) for second in range(-9, 9)}


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.parametrize(("command", "phase"), [("load", "load"), ("query", "measure")])
def test_a_server_that_dies_ends_the_command_in_one_line(
    own_server: Callable[[PostgresServer], PostgresServer], command: str, phase: str, tmp_path: Path
) -> None:
    server = own_server(PostgresServer(tmp_path / "server", {"fsync": "off"}))
    where, world = ("--endpoint", server.endpoint), ("--use-case", "cpu-only", *WORLD)
    assert loaded(tmp_path, "postgres", *where, *world)[0] == 0
    asked(tmp_path / "q", "--count", "20000", "--type", "lastpoint")
    what = (*world, "--batch", "50") if command == "load" else ("q",)
    running = Command(tmp_path, "tsbench", command, "postgres", *what, *where, "--rate", "100")
    running.until_phase(phase)
    time.sleep(2)
    kill_processes(server)
    assert running.process.wait(120) == 1
    says(complaint(running.stderr), "points were acknowledged" if command == "load" else "queries were answered")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("queries",), "--type"),
        (("queries", "--type", "nothing"), "no query 'nothing'"),
        (("queries", "--type", "single-groupby-1-8-1", "--scale", "3"), "chooses 8 series"),
        (("query", "sqlite", "absent", "--endpoint", "sqlite:///tmp/absent.db"), "cannot read 'absent'"),
        (("query", "sqlite", "absent"), "--endpoint is missing"),
        (("validate", "absent", "--endpoint", "sqlite:///tmp/absent.db"), "give TARGET... FILE"),
        (("validate", "sqlite", "duckdb", "absent", "--endpoint", "sqlite:///tmp/absent.db"), "give TARGET... FILE"),
        (("cleanup", "sqlite"), "--endpoint is missing"),
        (("cleanup", "nothing", "--endpoint", "sqlite:///tmp/absent.db"), "no target is called 'nothing'"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == 2
    says(complaint(capsys.readouterr().err), expected)


@pytest.mark.slow
def test_the_script_for_people_who_come_from_tsbs_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/coming-from-tsbs.md").read_text()
    script = "set -eu\n" + page.split("```sh\n", 1)[1].split("```", 1)[0].replace("/tmp/", f"{tmp_path}/")
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    says(
        done.stdout,
        "loaded 21,600 points",
        "Run complete after 270 queries",
        "300 of 300 answers are right",
        "removed ",
    )
