"""The queries of a file are asked by load processes: each once, counted exactly, and checked before any is asked."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import psutil
import pytest

from tests.cli.support import Command, complaint, nothing_left, says
from tests.cli.test_query_files import WORLD, asked
from tsbench.cli.main import main
from tsbench.collect.processes import LOCUST
from tsbench.drive.queries_of_file import queries_of_file
from tsbench.results.process import Share
from tsbench.results.rundir import find_runs
from tsbench.results.summary import Summary
from tsbench.scenario.spec import FileSpec
from tsbench.targets.postgres.server import PostgresServer
from tsbench.workload.query_files import AskedText, line_of_text

if TYPE_CHECKING:
    from collections.abc import Callable

NO_PERCENTILE: dict[str, object] = {
    "query": "LatestBuckets",
    "measurement": "cpu",
    "fields": ["usage_user"],
    "aggregate": "p95",
}
NO_PERCENTILE |= {"bucket_ns": 60 * 10**9, "before_ns": 1_451_677_690 * 10**9, "limit": 5}
KINDS = ("--type", "lastpoint", "--type", "single-groupby-1-1-1")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("asked")
    words = ("--use-case", "cpu-only", *WORLD, "--endpoint", f"sqlite://{place / 'a.db'}", "--out", str(place / "set"))
    assert main(["load", "sqlite", *words]) == 0
    return f"sqlite://{place / 'a.db'}"


def answered(tmp_path: Path, *words: str) -> Summary:
    assert main(["query", *words, "--out", str(tmp_path / "sets")]) == 0
    (run,) = find_runs(next((tmp_path / "sets").iterdir()))
    assert not Path(json.loads((run / "spec.json").read_text())["query_file"]["checked"]).exists()
    return Summary.read(run)


@pytest.mark.parametrize("of", [1, 2, 3])
@pytest.mark.parametrize(("burn_in", "count"), [(0, 1), (0, 7), (3, 7), (5, 2)])
def test_the_processes_share_the_queries_of_a_file(of: int, burn_in: int, count: int, tmp_path: Path) -> None:
    lines = [line_of_text(AskedText("ab"[number % 2], number, f"text {number}")) for number in range(12)]
    (tmp_path / "q").write_bytes(b"".join(lines))
    content = {"id": "a", "scenario": "a", "target": {"name": "sqlite"}, "file": {"name": "a"}}
    of_file = {"name": "q", "checked": str(tmp_path / "q"), "count": count, "burn_in": burn_in}
    spec = FileSpec.model_validate({**content, "query_file": of_file})
    shares = [[*queries_of_file(spec, Share(str(i), i, of, of))] for i in range(of)]
    numbers = [one.number for share in shares for one in share]
    assert sorted(numbers) == [*range(burn_in, burn_in + count)]
    assert {one.text for share in shares for one in share if isinstance(one, AskedText)} == {
        f"text {number}" for number in numbers
    }
    arrivals = [len(range(i, count, of)) for i in range(of)]  # of an open loop
    assert [len(share) for share in shares] == arrivals
    if count == 7 and of == 2:  # kinds take turns in the file, and so they do in each process
        kinds = [[one.kind for one in share[:3]] for share in shares]
        assert all(one != other for share in kinds for one, other in pairwise(share))


@pytest.mark.slow
def test_several_processes_ask_each_query_once(endpoint: str, tmp_path: Path) -> None:
    file = asked(tmp_path / "q", "--count", "111", *KINDS)
    words = ("--endpoint", endpoint, "--workers", "4", "--processes", "2", "--burn-in", "10")
    summary = answered(tmp_path, "sqlite", file, *words)
    assert summary.passed
    assert (summary.processes, summary.users) == (2, 4)
    assert summary.measured is not None
    assert {name: op.ended for name, op in summary.measured.ops.items()} == {
        "lastpoint": 51,
        "single-groupby-1-1-1": 50,
    }
    assert summary.measured.ops["lastpoint"].rows == 51 * 8
    assert 0 < summary.measured.duration_s < 5
    assert summary.measured.ops["lastpoint"].ops_per_s == pytest.approx(51 / summary.measured.duration_s)


def test_an_open_loop_has_as_many_arrivals_as_queries(endpoint: str, tmp_path: Path) -> None:
    file = asked(tmp_path / "q", "--count", "100", *KINDS)
    summary = answered(tmp_path, "sqlite", file, "--endpoint", endpoint, "--rate", "100", "--limit", "31")
    assert summary.schedule is not None
    assert summary.schedule.scheduled == 31 == summary.schedule.done + summary.schedule.late
    assert summary.measured is not None
    assert 0.3 <= summary.measured.duration_s < 2


def test_the_time_ends_what_a_limit_does_not(endpoint: str, tmp_path: Path) -> None:
    file = asked(tmp_path / "q", "--count", "50000", "--type", "lastpoint")
    summary = answered(tmp_path, "sqlite", file, "--endpoint", endpoint, "--duration", "1s", "--workers", "2")
    assert summary.measured is not None
    assert summary.measured.query is not None
    assert summary.measured.query.ended < 50_000
    assert 1 <= summary.measured.duration_s < 3


def test_a_gate_decides_on_the_queries_of_a_file(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = asked(tmp_path / "q", "--count", "60", *KINDS)
    ask = ["query", "sqlite", file, "--endpoint", endpoint, "--out", str(tmp_path / "sets")]
    capsys.readouterr()
    assert main([*ask, "--gate", "lastpoint:p50<1us"]) == 1
    says(complaint(capsys.readouterr().err), "gate lastpoint:p50<1us failed")
    assert main([*ask, "--gate", "lastpoint:p50<9s", "--gate", "query:failures<=0%"]) == 0


@pytest.mark.parametrize(
    ("change", "words", "code"),
    [
        (NO_PERCENTILE, "line 21", 1),
        ({"values": [["drop", "usage_user"]]}, "line 21: there is no aggregate 'drop'", 2),
        ({}, "line 21: unexpected end of data", 2),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_asked(
    change: dict[str, object], words: str, code: int, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q"
    asked(file, "--count", "30", "--type", "single-groupby-1-1-1")
    lines = file.read_bytes().splitlines(keepends=True)
    known = {} if "query" in change else orjson.loads(lines[20])
    lines[20] = orjson.dumps({**known, **change, "type": "other"}) + b"\n"
    if not change:  # the file was cut
        lines[20:] = [lines[20][:-9]]
    file.write_bytes(b"".join(lines))
    capsys.readouterr()
    ask = ["query", "sqlite", str(file), "--endpoint", endpoint, "--out", str(tmp_path / "sets")]
    assert main(ask) == code
    says(complaint(capsys.readouterr().err), words)
    assert not (tmp_path / "sets").exists()
    assert main([*ask, "--burn-in", "9", "--limit", "10"]) == 0  # which are those before it


@pytest.mark.parametrize(
    ("target", "words", "expected"),
    [
        ("sqlite", ("--burn-in", "20"), "has 20 queries, and none is left after --burn-in 20"),
        ("sqlite", ("--workers", "2", "--processes", "3"), "2 users cannot be spread over 3 processes"),
        ("sqlite", ("--duration", "soon"), "drive.duration"),
        ("sqlite", ("--gate", "double-groupby-1:p99<5ms"), "double-groupby-1"),
        ("sqlite", ("--gate", "query:p99<5 parsecs"), "is not a duration"),
        ("duckdb", ("--processes", "2"), "--processes: duckdb lets one process at a time open its data"),
    ],
)
def test_wrong_options_are_one_line(
    target: str, words: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = asked(tmp_path / "q", "--count", "20", *KINDS)
    capsys.readouterr()
    where = ("--endpoint", f"{target}://{tmp_path / 'none.db'}", "--out", str(tmp_path / "sets"))
    assert main(["query", target, file, *where, *words]) == 2
    says(complaint(capsys.readouterr().err), expected)
    assert not (tmp_path / "sets").exists()


@pytest.mark.slow
@pytest.mark.postgres
def test_workers_that_cannot_connect_end_it(
    own_server: Callable[[PostgresServer], PostgresServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = own_server(PostgresServer(tmp_path / "server", {"fsync": "off", "max_connections": "6"}))
    where = ("--endpoint", server.endpoint, "--out", str(tmp_path / "sets"))
    assert main(["load", "postgres", "--use-case", "cpu-only", *WORLD, *where]) == 0
    file = asked(tmp_path / "q", "--count", "3000", "--type", "lastpoint")
    capsys.readouterr()
    assert main(["query", "postgres", file, *where, "--workers", "20"]) == 1
    says(complaint(capsys.readouterr().err), "of 3,000 queries were answered")


@pytest.mark.slow
def test_a_load_that_somebody_ends_has_not_asked_everything(endpoint: str, tmp_path: Path) -> None:
    asked(tmp_path / "q", "--count", "5000", "--type", "lastpoint")
    with nothing_left():
        command = Command(tmp_path, "tsbench", "query", "sqlite", "q", "--endpoint", endpoint, "--rate", "50")
        command.until_measured()
        locust = [one for one in psutil.Process(command.process.pid).children() if LOCUST in one.cmdline()]
        os.kill(locust[0].pid, signal.SIGTERM)
        assert command.process.wait(60) == 1
    says(complaint(command.stderr), "of 5,000 queries were answered")
