"""What a run leaves on a user's server is said and removed, and nothing else is."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

import duckdb as bare_duckdb
import psycopg
import pymongo
import pytest
from influxdb_client.client.influxdb_client import InfluxDBClient

from tests.cli.support import Command, complaint, content, nothing_left, only, says, scenario
from tsbench.cli.main import main
from tsbench.results.rundir import RunDir
from tsbench.run.cleanup import clean_up, described
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.run.trial import Parts
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import schema_of
from tsbench.servers.base import ExternalServer
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.scenario.spec import Job
    from tsbench.servers.cgroup import Group

pytestmark = pytest.mark.every_user


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing that follows is done."""


def die(*_: object, **__: object) -> None:
    raise Killed


def stored(place: Path, endpoint: str, target: str) -> Path:
    """Create and load the tiny scenario's data at an endpoint; the run ends when it would begin to measure."""
    place.mkdir(exist_ok=True)
    text = scenario(place, ('name = "sqlite"', f'name = "{target}"\nendpoint = "{endpoint}"'))
    (spec,) = Scenario.load(text).expand()

    def parts(spec: Job, _run: RunDir, group: Group | None) -> Parts:
        chosen = TARGETS[target]
        return Parts(chosen, schema_of(spec, chosen), ExternalServer(endpoint), (), drive=die, group=group)

    with pytest.raises(Killed):
        run_job(spec, place / "set", Quiet(), parts)
    return place / "set"


def lines(results: Path) -> list[tuple[str, int]]:
    return [(one.text, one.code) for one in clean_up(results)]


@dataclass(frozen=True)
class Place:
    """An endpoint without anything of tsbench's; `add` stores something of the user's, `names` is all that is there."""

    target: str
    endpoint: str
    add: Callable[[], object]
    names: Callable[[], list[str]]


POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
INFLUXDB1 = pytest.param("influxdb1", marks=getattr(pytest.mark, "influxdb-1.8"))
INFLUXDB2 = pytest.param("influxdb2", marks=getattr(pytest.mark, "influxdb-2"))
MONGODB = pytest.param("mongodb", marks=pytest.mark.mongodb)


IN_CONTAINERS = [POSTGRES, INFLUXDB1, "sqlite", "duckdb"]
"""Targets whose tables are in something that outlasts them: a namespace, a database, a file."""


@pytest.fixture(params=[*IN_CONTAINERS, INFLUXDB2, MONGODB])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from PLACES[request.param](request, tmp_path)


def postgres(request: pytest.FixtureRequest, _tmp_path: Path) -> Iterator[Place]:
    endpoint = request.getfixturevalue("postgres_server").endpoint
    name = f"cleanup_{time.monotonic_ns()}"
    with psycopg.connect(endpoint, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        own = endpoint.replace("/postgres?", f"/{name}?")
        assert own != endpoint

        def ask(text: str) -> list[str]:
            with psycopg.connect(own, autocommit=True) as one:
                found = one.execute(text)
                return [row[0] for row in found.fetchall()] if found.description else []

        there = "SELECT nspname FROM pg_namespace WHERE nspname = 'tsbench' UNION SELECT relname FROM pg_class c "
        there += "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'tsbench' AND relkind = 'r' ORDER BY 1"
        yield Place("postgres", own, lambda: ask("CREATE TABLE tsbench.mine (x int)"), lambda: ask(there))
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def influxdb1(request: pytest.FixtureRequest, _tmp_path: Path) -> Iterator[Place]:
    url = request.getfixturevalue("influxdb_server")("1.8").endpoint + "_cleanup"
    at, database = url.rsplit("/", 1)

    def send(path: str, **form: str) -> Any:
        body = form.get("body", urlencode(form)).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        with urlopen(Request(f"{at}/{path}", body, headers)) as answer:
            return json.loads(answer.read() or b"{}")

    def names() -> list[str]:
        return [row[0] for row in send("query", q="SHOW DATABASES")["results"][0]["series"][0].get("values", [])]

    others = {*names()}
    add = lambda: send(f"write?db={database}", body="mine x=1")  # noqa: E731
    yield Place("influxdb1", url, add, lambda: [name for name in names() if name not in others])
    send("query", q=f'DROP DATABASE "{database}"')


def influxdb2(request: pytest.FixtureRequest, _tmp_path: Path) -> Iterator[Place]:
    url = request.getfixturevalue("influxdb_server")("2").endpoint.replace("bucket=tsbench", "bucket=cleanup")
    parts = dict(parse_qsl(urlsplit(url).query))
    token = Path(parts["token_file"]).read_text().strip()

    def names() -> list[str]:
        with InfluxDBClient(url.partition("?")[0], token, org=parts["org"]) as one:
            return [b.name for b in one.buckets_api().find_buckets().buckets if b.name == "cleanup"]

    yield Place("influxdb2", url, lambda: None, names)


def mongodb(request: pytest.FixtureRequest, _tmp_path: Path) -> Iterator[Place]:
    endpoint = request.getfixturevalue("mongodb_endpoint")
    with pymongo.MongoClient[dict[str, Any]](endpoint) as client:
        database = client.get_default_database()
        add = lambda: database["mine"].insert_one({"x": 1})  # noqa: E731
        yield Place("mongodb", endpoint, add, lambda: sorted(database.list_collection_names()))


def sqlite(_request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "place" / "a.db"
    path.parent.mkdir()

    def add() -> None:
        with closing(sqlite3.connect(path)) as one:
            one.execute("CREATE TABLE mine (x)")

    yield Place("sqlite", f"sqlite://{path}", add, lambda: sorted(file.name for file in path.parent.iterdir()))


def duckdb(_request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "place" / "a.duckdb"
    path.parent.mkdir()

    def add() -> None:
        with bare_duckdb.connect(path) as one:
            one.execute("CREATE TABLE mine (x INTEGER)")

    yield Place("duckdb", f"duckdb://{path}", add, lambda: sorted(file.name for file in path.parent.iterdir()))


PLACES = {f.__name__: f for f in (postgres, influxdb1, influxdb2, mongodb, sqlite, duckdb)}


# --- every target -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_record_of_a_killed_run_is_enough_to_remove_all_that_it_created(server: Place, tmp_path: Path) -> None:
    results = stored(tmp_path, server.endpoint, server.target)
    assert server.names()
    ((text, code),) = lines(results)
    assert code == 0
    says(text, "removed ", f" from {server.endpoint}")
    assert server.names() == []
    assert lines(results) == [(f"nothing of this run is left on {server.endpoint}", 0)]
    assert server.names() == []


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_created_tables_leaves_nothing(server: Place, tmp_path: Path) -> None:
    results = stored(tmp_path, server.endpoint, server.target)
    path = only(results, "*/env.json")
    manifest = content(path)
    del manifest["created"]["made"]  # which is recorded when all tables are there
    path.write_text(json.dumps(manifest))
    ((text, code),) = lines(results)
    assert code == 0, text
    assert server.names() == []


@pytest.mark.parametrize("server", [*IN_CONTAINERS, MONGODB], indirect=True)
@pytest.mark.slow
def test_what_others_stored_in_the_same_place_stays(server: Place, tmp_path: Path) -> None:
    results = stored(tmp_path, server.endpoint, server.target)
    before = server.names()
    server.add()
    ((text, code),) = lines(results)
    assert code == 0
    says(text, "removed ", *(("; kept ", "which holds something else") if server.target != "mongodb" else ()))
    assert {*server.names()} - {*before} <= {"mine"}
    assert server.names()


@pytest.mark.parametrize("server", IN_CONTAINERS, indirect=True)
@pytest.mark.slow
def test_a_place_that_was_there_before_the_run_stays(server: Place, tmp_path: Path) -> None:
    earlier = stored(tmp_path / "earlier", server.endpoint, server.target)
    results = stored(tmp_path / "later", server.endpoint, server.target)
    ((text, code),) = lines(results)
    assert code == 0
    says(text, "removed ")
    assert "kept" not in text
    assert server.names()  # the namespace, database or file is of the earlier run
    ((text, _),) = lines(earlier)
    says(text, "removed ")
    assert server.names() == []


@pytest.mark.parametrize(
    "server",
    [POSTGRES, pytest.param("influxdb2", marks=[getattr(pytest.mark, "influxdb-2"), pytest.mark.nightly]), MONGODB],
    indirect=True,
)
@pytest.mark.slow
def test_tables_of_a_later_run_are_not_those_of_an_earlier_one(server: Place, tmp_path: Path) -> None:
    earlier = stored(tmp_path / "earlier", server.endpoint, server.target)
    stored(tmp_path / "later", server.endpoint, server.target)
    before = server.names()
    ((text, code),) = lines(earlier)
    assert code == 0
    assert "removed" not in text
    assert server.names() == before


def test_the_names_of_what_is_left_are_one_list() -> None:
    names = ["table a", "table b c", "schema tsbench"]
    assert described(names) == "tables a, b c, schema tsbench"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    scenario(tmp_path)
    with nothing_left():
        yield tmp_path


@pytest.mark.slow
@pytest.mark.postgres
def test_a_run_says_what_it_leaves_and_the_line_that_it_names_removes_it(postgres_endpoint: str, place: Path) -> None:
    words = ("run", "tiny.toml", "--set", "target.name=postgres", "--endpoint", postgres_endpoint)
    command = Command(place, "tsbench", *words)
    command.wait()
    (line,) = (line for line in command.stdout.splitlines() if line.startswith("left on "))
    says(line, postgres_endpoint, ".cpu, ", ".tags", "remove it with: tsbench cleanup results/")
    program, *rest = shlex.split(line.partition("remove it with: ")[2])
    again = Command(place, program, *rest)
    assert again.wait() == 0, again.stderr
    says(again.stdout, "removed tables ", postgres_endpoint)


@pytest.mark.slow
@pytest.mark.postgres
def test_with_cleanup_nothing_is_left_also_after_ctrl_c(postgres_endpoint: str, place: Path) -> None:
    words = ("run", "tiny.toml", "--cleanup", "--set", "target.name=postgres", "--endpoint", postgres_endpoint)
    command = Command(place, "tsbench", *words, "--set", "drive.duration=60s")
    command.until_measured()
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    says(complaint(command.stderr), "--cleanup --resume")
    says(command.stdout, "removed tables ", postgres_endpoint)


@pytest.mark.slow
@pytest.mark.postgres
def test_cleanup_of_a_killed_run_and_of_one_that_goes_on(postgres_endpoint: str, place: Path) -> None:
    words = ("run", "tiny.toml", "--set", "target.name=postgres", "--endpoint", postgres_endpoint)
    command = Command(place, "tsbench", *words, "--set", "load.window=1000h")
    command.until_phase("load")
    results = str(only(place, "results/*"))
    during = Command(tmp(place), "tsbench", "cleanup", results)
    assert during.wait() == 2
    says(complaint(during.stderr), "has not ended", "stop it first")
    command.signal(signal.SIGKILL)
    command.wait()
    after = Command(tmp(place), "tsbench", "cleanup", results)
    assert after.wait() == 0, after.stderr
    says(after.stdout, "removed tables ")


def tmp(place: Path) -> Path:
    (place / "elsewhere").mkdir(exist_ok=True)
    return place / "elsewhere"


def test_an_unreachable_server_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endpoint = f"sqlite://{tmp_path}/gone/a.db"
    (tmp_path / "gone").mkdir()
    results = stored(tmp_path, endpoint, "sqlite")
    (tmp_path / "gone/a.db").write_bytes(b"no database" * 100)
    assert main(["cleanup", str(results)]) == 2
    says(complaint(capsys.readouterr().err), "a.db", "file is not a database")


def test_a_run_on_a_server_of_tsbenchs_own_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec,) = Scenario.load(scenario(tmp_path)).expand()
    run = RunDir.create(tmp_path, spec.id)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    assert main(["cleanup", str(tmp_path)]) == 0
    says(capsys.readouterr().out, "nothing to remove")
    (run / "server").mkdir()  # tsbench was killed
    assert main(["cleanup", str(tmp_path)]) == 0
    says(capsys.readouterr().out, "removed the data directory")
    assert not (run / "server").exists()
