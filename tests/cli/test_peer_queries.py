"""TSBS's files of queries are asked of the databases that they are for, and damaged ones are named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import complaint, says
from tests.cli.test_load import TARGETS, loaded, place
from tests.cli.test_query_files import WORLD
from tsbench.cli.main import main
from tsbench.results.rundir import find_runs
from tsbench.results.summary import Summary
from tsbench.run import peer_queries
from tsbench.targets.base import Statement
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place"]

SERVED = TARGETS[2:4]
DATA = Path(__file__).parent / "data"
"""Three queries of `tsbs_generate_queries --use-case=cpu-only --query-type=single-groupby-1-1-1 --scale=8 --seed=3`."""
FILES = {"influxdb1": DATA / "tsbs-queries.influx", "postgres": DATA / "tsbs-queries.timescaledb"}
PRODUCTS = {"postgres": "TimescaleDB", "influxdb1": "Influx"}
RUNNERS = {"postgres": "tsbs_run_queries_timescaledb", "influxdb1": "tsbs_run_queries_influx"}


def runner(target: str) -> str | None:
    """Return the path of TSBS's runner for a target, from $TSBS_BIN; None without it."""
    return shutil.which(RUNNERS[target], path=os.environ.get("TSBS_BIN"))


RUNNABLE = [one for one, target in zip(SERVED, RUNNERS, strict=True) if runner(target)]
ON_POSTGRES = [pytest.param(program, marks=pytest.mark.postgres) for program in [runner("postgres")] if program]


@pytest.mark.parametrize("place", SERVED, indirect=True)
@pytest.mark.slow
def test_their_queries_are_asked_and_reported_under_their_labels(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    capsys.readouterr()
    words = ("--endpoint", endpoint, "--out", str(tmp_path / "asked"), "--burn-in", "1")
    assert main(["query", target, str(FILES[target]), *words]) == 0
    label = f"{PRODUCTS[target]}_1_cpu_metric_s_random_1_hosts_random_1h0m0s_by_1m"
    assert f"{label} : min: " in capsys.readouterr().out
    (run,) = find_runs(next((tmp_path / "asked").iterdir()))
    summary = Summary.read(run)
    assert summary.measured is not None
    assert {name: (op.count, op.ok) for name, op in summary.measured.ops.items()} == {label: (2, 2)}


def runner_words(target: str, endpoint: str) -> list[str]:
    """Return how TSBS's runner reaches a database."""
    at = urlsplit(endpoint)
    if target == "postgres":
        options = dict(parse_qsl(at.query))
        login = Path(options["passfile"]).read_text(encoding="utf-8").strip().split(":")
        tables = options["options"].rpartition("=")[2]  # the tests' own namespace
        words = ["--hosts", at.hostname, "--port", str(at.port), "--user", at.username, "--pass", login[-1]]
        words += ["--db-name", at.path[1:], "--postgres", f"sslmode=disable search_path={tables}"]
    else:
        words = ["--urls", f"http://{at.hostname}:{at.port}", "--db-name", at.path[1:]]
    return [*map(str, words)]


DEVOPS = (
    *("single-groupby-1-1-1", "single-groupby-1-1-12", "single-groupby-1-8-1", "single-groupby-5-1-1"),
    *("single-groupby-5-1-12", "single-groupby-5-8-1", "cpu-max-all-1", "cpu-max-all-8", "cpu-max-all-32-24"),
    *("double-groupby-1", "double-groupby-5", "double-groupby-all", "groupby-orderby-limit"),
    *("high-cpu-1", "high-cpu-all", "lastpoint"),
)
IOT = (
    *("single-last-loc", "last-loc", "low-fuel", "high-load", "stationary-trucks", "long-driving-sessions"),
    *("long-daily-sessions", "avg-vs-projected-fuel-consumption", "avg-daily-driving-duration"),
    *("avg-daily-driving-session", "avg-load", "daily-activity", "breakdown-frequency"),
)
PEER = {"postgres": "timescaledb", "influxdb1": "influx"}


def theirs(program: str, tmp_path: Path, *words: str) -> Path:
    """Return what one of TSBS's programs writes: of 40 hosts or trucks, 26 hours."""
    path = tmp_path / f"{program}-{'-'.join(words)}".replace("/", "").replace("=", "")
    path = path.with_name(path.name[-120:])
    found = shutil.which(program, path=os.environ.get("TSBS_BIN"))
    assert found is not None
    common = ["--scale=40", "--seed=123", "--timestamp-end=2016-01-02T02:00:00Z"]
    with path.open("wb") as out:
        subprocess.run([found, *common, *words], stdout=out, stderr=subprocess.DEVNULL, timeout=120, check=True)
    return path


@pytest.mark.parametrize("place", RUNNABLE, indirect=True)
@pytest.mark.parametrize(("use_case", "types"), [("cpu-only", DEVOPS), ("iot", IOT)])
def test_all_types_of_theirs_run_on_their_data_and_both_runners_print_the_same_answers(
    place: tuple[str, str], use_case: str, types: tuple[str, ...], tmp_path: Path
) -> None:
    target, endpoint = place
    program = runner(target)
    assert program is not None
    if target == "postgres" and use_case == "iot":
        pytest.skip("their texts ask for the tag load_capacity, which their line protocol has as a field")
    if target == "postgres":
        endpoint += "%2Ctsbench"  # the last option is the search path
        assert "search_path" in endpoint.rpartition("&")[2]
    form = PEER[target]
    data = theirs("tsbs_generate_data", tmp_path, f"--use-case={use_case}", "--format=influx", "--log-interval=60s")
    assert loaded(tmp_path, target, str(data), "--endpoint", endpoint)[0] == 0
    case = "devops" if use_case == "cpu-only" else use_case
    of, schema = get(target).peer_queries, next(iter(get(target).schemas.values()))
    assert of is not None
    words = ["--functions"] if target == "postgres" else []
    if target == "influxdb1":  # as docs/coming-from-tsbs.md says
        with closing(get(target).connect(endpoint, schema)) as session:
            session.run([Statement("ALTER RETENTION POLICY $policy ON $database DEFAULT")])
    answered: set[str] = set()
    for kind in types:
        asked = ["--queries=3", f"--use-case={case}", f"--format={form}", f"--query-type={kind}"]
        file = theirs("tsbs_generate_queries", tmp_path, *asked)
        out = tmp_path / f"asked-{kind}"
        assert main(["query", target, str(file), "--endpoint", endpoint, "--out", str(out), *words]) == 0, kind
        if use_case != "cpu-only":
            continue
        printing = [program, "--file", str(file), "--print-responses", *runner_words(target, endpoint)]
        ended = subprocess.run(printing, capture_output=True, text=True, timeout=120, check=False)
        assert "Run complete after 3 queries" in ended.stdout, ended.stderr
        printed = printed_rows(ended.stdout)
        with closing(get(target).connect(endpoint, schema)) as session:
            for _, fields in peer_queries.structs(iter([file.read_bytes()])):
                text = fields[of.text].decode()
                answer = session.ask(text)
                answered |= {kind} if answer.records else set()
                found = [sorted(map(plain, row)) for row in answer.records]
                if len(answer.columns) == len({*answer.columns}):  # theirs drops columns of one name
                    assert sorted(found) == sorted(sorted(map(plain, row)) for row in printed[text]), kind
    if use_case == "cpu-only":
        assert answered >= {*types} - {"high-cpu-1"}  # the chosen hosts may never have been as busy


def printed_rows(said: str) -> dict[str, list[list[Any]]]:
    """Return the rows of each query that a runner has printed."""
    found = {}
    for one in objects_in(re.sub(r"^ID \d+: ", "", said, flags=re.MULTILINE)):
        if "query" in one:
            found[one["query"]] = [[*row.values()] for row in one["results"] or []]
        else:
            series = [part for result in one["response"]["results"] for part in result.get("series", ())]
            rows = [[*part.get("tags", {}).values(), *row] for part in series for row in part["values"]]
            found[one["influxql"]] = rows
    return found


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a runner's output."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        one, at = decoder.raw_decode(text, at)
        yield one


def plain(value: Any) -> str:
    """Return a value as text: a time in ns, a number with 12 digits."""
    if isinstance(value, str) and value[:1].isdigit() and "T" in value:
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return str(round(value.timestamp() * 1e9))
    if isinstance(value, int) and value > 10**15:  # a time already
        return str(value)
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)


@pytest.mark.parametrize("program", ON_POSTGRES)
def test_the_function_of_their_queries_is_made_on_request_and_goes_with_cleanup(
    program: str, postgres_endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = f"{postgres_endpoint}%2Ctsbench"
    assert loaded(tmp_path, "postgres", "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    asked = ["--queries=1", "--use-case=devops", "--format=timescaledb", "--query-type=double-groupby-1"]
    file = theirs("tsbs_generate_queries", tmp_path, *asked)
    words = ["query", "postgres", str(file), "--endpoint", endpoint, "--out"]
    assert (
        main(["cleanup", "postgres", "--endpoint", f"{postgres_endpoint[: postgres_endpoint.rindex('%3D')]}%3Dtsbench"])
        == 0
    )
    capsys.readouterr()
    assert main([*words, str(tmp_path / "without")]) == 1
    assert "function time_bucket" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "with"), "--functions"]) == 0
    capsys.readouterr()
    assert main(["cleanup", "postgres", "--endpoint", endpoint]) == 0
    assert "function tsbench.time_bucket(interval, timestamptz)" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "after")]) == 1


@pytest.mark.postgres
def test_files_of_another_database_and_damaged_ones_are_named(
    postgres_endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = FILES["postgres"].read_bytes()
    cut, spoilt = tmp_path / "cut", tmp_path / "spoilt"
    cut.write_bytes(content[:-9])
    spoilt.write_bytes(content.replace(b"SELECT", b"SEL\xffCT", 1))
    for file, why in (
        (FILES["influxdb1"], "query 1: it is not for PostgreSQL"),
        (cut, "query 3: the file ends within a message: it was cut"),
        (spoilt, "query 1: its SqlQuery is no text"),
    ):
        assert (
            main(["query", "postgres", str(file), "--endpoint", postgres_endpoint, "--out", str(tmp_path / "r")]) == 2
        )
        says(complaint(capsys.readouterr().err), str(file), why)
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
    assert main(["validate", "postgres", str(cut), "--endpoint", postgres_endpoint]) == 2
    says(complaint(capsys.readouterr().err), "this is no file of `tsbench queries`")
    assert (
        main(["query", "sqlite", str(cut), "--endpoint", f"sqlite://{tmp_path / 'x.db'}", "--out", str(tmp_path)]) == 2
    )
    says(complaint(capsys.readouterr().err), "sqlite takes no text of other programs (these do: postgres, ")


@pytest.mark.postgres
def test_a_query_that_the_database_refuses_is_a_failed_op(
    postgres_endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = FILES["postgres"].read_bytes()
    texts = [fields["SqlQuery"] for _, fields in peer_queries.structs(iter([content]))]
    for text, other in zip(texts, (b"SELECT 1", b"SELECT nothing", b"SELECT 2"), strict=True):
        content = content.replace(text, other.ljust(len(text)))
    file = tmp_path / "q.gob"
    file.write_bytes(content)
    assert main(["query", "postgres", str(file), "--endpoint", postgres_endpoint, "--out", str(tmp_path / "r")]) == 1
    assert '1 queries failed: PostgreSQL: column "nothing" does not exist' in capsys.readouterr().out
    (path,) = (tmp_path / "r").glob("*/summary.json")
    (cell,) = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [(op["ok"], op["failed"]) for op in cell["measured"]["ops"].values()] == [(2, 1)]


HEAD = FILES["postgres"].read_bytes()[: 1 + FILES["postgres"].read_bytes()[0]]
"""The definition of a struct with four fields of bytes."""


@given(st.data())
def test_a_damaged_file_is_refused_or_read(data: st.DataObject) -> None:
    content = bytearray(FILES["postgres"].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    with suppress(ValueError):
        for _, fields in peer_queries.structs(iter([bytes(content)])):
            assert all(isinstance(value, bytes) for value in fields.values())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_is_read_in_blocks_of_any_size(size: int) -> None:
    content = FILES["postgres"].read_bytes()
    blocks = (content[start : start + size] for start in range(0, len(content), size))
    texts = [fields["SqlQuery"] for _, fields in peer_queries.structs(blocks)]
    assert [text in content and text.startswith(b"SELECT to_timestamp") for text in texts] == [True] * 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xf8\xff\xff\xff\xff\xff\xff\xff\xff", "a message of 18,446,744,073,709,551,615 bytes"),
        (b"\x05\x81", "cut"),
        (b"\x04\x7e\x01\x01x", "which nothing before it defines"),
        (HEAD.replace(b"\x01\x0a\x00", b"\x01\x7e\x00", 1), "neither bytes nor text nor a number"),
        (HEAD + b"\x05\xff\x80\x01\x7f\x00", "behind the end"),
        (HEAD + b"\x05\xff\x80\x09\x01\x00", "a field that its type does not have"),
        (HEAD[:-3], "cut"),
    ],
)
def test_a_hostile_stream_is_named(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(peer_queries.structs(iter([content])))
