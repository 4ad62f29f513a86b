"""TSBS's files of queries: asked of the databases that they are for, and written for its own runner."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.cli.support import complaint, says
from tests.cli.test_load import TARGETS, loaded, place
from tests.cli.test_query_files import KINDS, WORLD
from tests.encode.test_gob import FILES
from tsbench.cli.main import main
from tsbench.encode import gob
from tsbench.results.rundir import find_runs
from tsbench.results.summary import Summary
from tsbench.run.asking import read_queries
from tsbench.targets.base import Statement
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place"]

SERVED = TARGETS[2:4]
FORMS = {"postgres": "tsbs-timescaledb", "influxdb1": "tsbs-influx"}
RUNNERS = {"postgres": "tsbs_run_queries_timescaledb", "influxdb1": "tsbs_run_queries_influx"}


def runner(target: str) -> str | None:
    """Return the path of TSBS's runner for a target, from $TSBS_BIN; None without it."""
    return shutil.which(RUNNERS[target], path=os.environ.get("TSBS_BIN"))


RUNNABLE = [one for one, target in zip(SERVED, FORMS, strict=True) if runner(target)]
ON_POSTGRES = [pytest.param(program, marks=pytest.mark.postgres) for program in [runner("postgres")] if program]


def written(path: Path, form: str, *words: str) -> Path:
    assert main(["queries", *WORLD, "--format", form, "--out", str(path), *words]) == 0
    return path


@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_their_queries_are_asked_and_reported_under_their_labels(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    capsys.readouterr()
    words = ("--endpoint", endpoint, "--out", str(tmp_path / "asked"), "--burn-in", "1")
    assert main(["query", target, str(FILES[target]), *words]) == 0
    label = f"{get(target).peer_queries.product}_1_cpu_metric_s_random_1_hosts_random_1h0m0s_by_1m"  # type: ignore[union-attr]
    assert f"{label} : min: " in capsys.readouterr().out
    (run,) = find_runs(next((tmp_path / "asked").iterdir()))
    summary = Summary.read(run)
    assert summary.measured is not None
    assert {name: (op.count, op.ok) for name, op in summary.measured.ops.items()} == {label: (2, 2)}


@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_what_is_written_for_their_runner_is_the_same_question(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    types = [word for kind in KINDS for word in ("--type", kind)]
    theirs = written(tmp_path / "q.gob", FORMS[target], "--count", str(len(KINDS)), *types)
    assert main(["queries", *WORLD, "--out", str(tmp_path / "q"), "--count", str(len(KINDS)), *types]) == 0
    blocks = iter([(tmp_path / "q").read_bytes()])
    *_, own = read_queries("q", blocks)
    of, schema = get(target).peer_queries, next(iter(get(target).schemas.values()))
    assert of is not None
    found = [fields for _, fields in gob.structs(iter([theirs.read_bytes()]))]
    with closing(get(target).connect(endpoint, schema)) as session:
        for asked, fields in zip(own, found, strict=True):
            rows = session.query(schema.compile(asked.query), asked.query.columns).records
            answered = session.ask(str(fields[of.text], "utf-8")).records  # type: ignore[arg-type]
            assert len(answered) == len(rows), asked.kind
            if target == "postgres":
                assert list(answered) == list(rows), asked.kind


@pytest.mark.parametrize("place", RUNNABLE, indirect=True)  # none without TSBS's programs, whatever is required
def test_their_runner_takes_what_is_written_for_it(place: tuple[str, str], tmp_path: Path) -> None:
    target, endpoint = place
    program = runner(target)
    assert program is not None
    assert loaded(tmp_path, target, "--use-case", "cpu-only", *WORLD, "--endpoint", endpoint)[0] == 0
    types = [word for kind in KINDS for word in ("--type", kind)]
    file = written(tmp_path / "q.gob", FORMS[target], "--count", "20", *types)
    command = [program, "--file", str(file), *runner_words(target, endpoint)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Run complete after 20 queries" in ended.stdout, ended.stderr


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
    if target == "postgres":
        endpoint += "%2Ctsbench"  # the last option is the search path
        assert "search_path" in endpoint.rpartition("&")[2]
    form = PEER[target]
    data = theirs("tsbs_generate_data", tmp_path, f"--use-case={use_case}", f"--format={form}", "--log-interval=60s")
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
            for _, fields in gob.structs(iter([file.read_bytes()])):
                text = str(fields[of.text], "utf-8")  # type: ignore[arg-type]
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


def test_formats_and_kinds_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", str(tmp_path / "q"))
    assert main(["queries", "--type", "lastpoint", "--format", "tsbs", *out]) == 2
    says(complaint(capsys.readouterr().err), "--format tsbs: there are tsbench, tsbs-timescaledb, tsbs-influx")
    words = ["--use-case", "iot", "--scale", "4", "--type", "high-load", "--format", "tsbs-influx"]
    assert main(["queries", *words, *out]) == 2
    says(complaint(capsys.readouterr().err), "--type high-load: InfluxDB 1.x cannot be asked: ")
    assert not (tmp_path / "q").exists()


@pytest.mark.postgres
def test_a_query_that_the_database_refuses_is_a_failed_op(
    postgres_endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = get("postgres").peer_queries
    assert of is not None
    file = tmp_path / "q.gob"
    rows = [(b"good", b"", b"", b"SELECT 1"), (b"bad", b"", b"", b"SELECT nothing"), (b"good", b"", b"", b"SELECT 2")]
    file.write_bytes(gob.head(of.struct, of.fields) + b"".join(map(gob.message, rows)))
    assert main(["query", "postgres", str(file), "--endpoint", postgres_endpoint, "--out", str(tmp_path / "r")]) == 1
    assert '1 queries failed: PostgreSQL: column "nothing" does not exist' in capsys.readouterr().out
    (path,) = (tmp_path / "r").glob("*/summary.json")
    (cell,) = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert {name: (op["ok"], op["failed"]) for name, op in cell["measured"]["ops"].items()} == {
        "good": (2, 0),
        "bad": (0, 1),
    }
