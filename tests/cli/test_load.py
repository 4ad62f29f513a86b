"""`tsbench load`: a file or a world into a database that is there, and every way out of it."""

from __future__ import annotations

import gzip
import json
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
import zstandard

from tests.cli.support import PROGRAMS, Command, complaint, nothing_left, says
from tsbench.check.audit import count_stored
from tsbench.check.comparison import canonical, forms_of
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.cli.main import main
from tsbench.model import Field, Kind, Measurement, Stored
from tsbench.results.ledger import read_ledgers
from tsbench.results.rundir import find_runs
from tsbench.results.summary import Summary
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets import registry
from tsbench.targets.postgres.server import PostgresServer
from tsbench.workload import queries
from tsbench.workload.world import World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.targets.victoriametrics.server import VictoriaServer

pytestmark = pytest.mark.slow

START_NS = 1_451_606_400 * 10**9
HOUR_NS = 3_600 * 10**9
WORLD = ("--scale", "7", "--end", "2016-01-01T01:00:00Z")

TARGETS = [
    "sqlite",
    "duckdb",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("influxdb1", marks=getattr(pytest.mark, "influxdb-1.8")),
    pytest.param("mongodb", marks=pytest.mark.mongodb),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


@pytest.fixture(params=TARGETS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The name of a target and the URL of an empty place on it."""
    name = request.param
    if name in {"sqlite", "duckdb"}:
        return name, f"{name}://{tmp_path / 'test.db'}"
    if name == "influxdb1":
        return name, request.getfixturevalue("influxdb_server")("1.8").endpoint
    if name == "questdb":
        return name, request.getfixturevalue("questdb_server").endpoint
    if name == "mariadb":
        return name, request.getfixturevalue("mysql_server")("mariadb").endpoint
    return name, request.getfixturevalue(f"{name}_endpoint")


def generated(path: Path, *words: str) -> Path:
    assert main(["generate", "--out", str(path), *(words or WORLD)]) == 0
    return path


def loaded(tmp_path: Path, *words: str) -> tuple[int, Summary]:
    """Run `tsbench load` and return its exit code, and its only run's summary."""
    out = tmp_path / f"results-{time.monotonic_ns()}"
    code = main(["load", *words, "--out", str(out)])
    (run,) = find_runs(next(out.iterdir()))
    return code, Summary.read(run)


def expect_stored(target: str, endpoint: str, spec: WorldSpec) -> None:
    """Verify that exactly the world's points were acknowledged, by counts and by all rows of each measurement."""
    world, chosen = World(spec), registry.get(target)
    schema = next(iter(chosen.schemas.values()))
    ticks = world.ticks(HOUR_NS)
    gold = Gold(Feed(world, ticks, 1_000, None), read_ledgers([]), keeps_duplicates=schema.keeps_duplicates)
    with closing(chosen.connect(endpoint, schema)) as session:
        assert count_stored(session, schema, world.measurements) == world.count(None, 0, ticks)
        for kind in ("raw-all", "lastpoint"):
            query = queries.make(kind, world, gold.loaded, 1, 0)
            rows = session.query(schema.compile(query), query.columns)
            assert gold.check(query, rows, quiet=True) is None


def test_a_generated_file_and_its_world_on_the_fly_store_the_same_points(
    place: tuple[str, str], tmp_path: Path
) -> None:
    target, endpoint = place
    file = str(generated(tmp_path / "points"))
    spec = built_in_spec("cpu-only", 7, 1, START_NS, 10**10)
    for source, workers in ((file,), "1"), (("--use-case", "cpu-only", *WORLD), "2"), ((file,), "3"):
        code, summary = loaded(
            tmp_path, target, *source, "--endpoint", endpoint, "--batch", "500", "--workers", workers
        )
        assert code == 0
        assert summary.validity.is_valid
        assert summary.load is not None
        assert (summary.load.points, summary.load.values) == (7 * 360, 7 * 360 * 10)
        expect_stored(target, endpoint, spec)


def test_measurements_that_turn_up_in_the_middle_get_their_tables(place: tuple[str, str], tmp_path: Path) -> None:
    target, endpoint = place
    world = ("--use-case", "devops", "--scale", "3", "--end", "2016-01-01T01:00:00Z")
    file = generated(tmp_path / "points", *world)
    code, summary = loaded(tmp_path, target, str(file), "--endpoint", endpoint, "--batch", "700")
    assert code == 0
    assert summary.load is not None
    assert summary.load.points == 9 * 3 * 360
    expect_stored(target, endpoint, built_in_spec("devops", 3, 1, START_NS, 10**10))


@pytest.mark.parametrize(
    "place",
    [TARGETS[0], pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.nightly]), TARGETS[3]],
    indirect=True,
)
def test_a_line_of_nonsense_is_named_and_all_before_it_is_stored(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    lines = generated(tmp_path / "points").read_bytes().splitlines(keepends=True)
    file = tmp_path / "bad"
    for nonsense in (b"nonsense\n", b"cpu,hostname=host_0 usage_user=\xff 1\n", b"cpu usage_user=1 2 3\n"):
        file.write_bytes(b"".join([*lines[:1234], nonsense, *lines[1235:]]))
        capsys.readouterr()
        code, summary = loaded(tmp_path, target, str(file), "--endpoint", endpoint, "--batch", "500", "--workers", "2")
        line = complaint(capsys.readouterr().err)
        assert code == 1
        says(line, "line 1,235 ", "1,234 points were acknowledged", "tsbench cleanup")
        assert not summary.validity.is_valid
        chosen = registry.get(target)
        schema = next(iter(chosen.schemas.values()))
        world = World(built_in_spec("cpu-only", 7, 1, START_NS, 10**10))
        with closing(chosen.connect(endpoint, schema)) as session:
            stored = count_stored(session, schema, world.measurements)
        # Line protocol is parsed by the server, which stores the good lines of the same request, before and after.
        assert 1_234 <= stored < 1_500 if schema.takes_lines else stored == 1_234


@pytest.mark.parametrize("place", [TARGETS[2], TARGETS[3]], indirect=True)
def test_what_a_run_of_load_made_is_removed_by_cleanup(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    loaded(tmp_path, target, str(generated(tmp_path / "points")), "--endpoint", endpoint)
    capsys.readouterr()
    assert main(["cleanup", str(next(tmp_path.glob("results-*/*")))]) == 0
    assert "removed " in capsys.readouterr().out


# --- files and pipes --------------------------------------------------------------------------------------------------


def in_two_parts(data: bytes) -> bytes:
    return gzip.compress(data[:50_000]) + gzip.compress(data[50_000:])


@pytest.mark.parametrize(
    ("packed", "name"),
    [
        (gzip.compress, "gz"),
        (zstandard.compress, "zst"),
        (in_two_parts, "two.gz"),
    ],
)
def test_compressed_files_are_read_and_cut_ones_refused(
    packed: Callable[[bytes], bytes], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = generated(tmp_path / "points").read_bytes()
    file = tmp_path / f"points.{name}"
    file.write_bytes(packed(data))
    endpoint = f"sqlite://{tmp_path / 'test.db'}"
    code, summary = loaded(tmp_path, "sqlite", str(file), "--endpoint", endpoint)
    assert code == 0
    assert summary.load is not None
    assert summary.load.points == 7 * 360
    file.write_bytes(packed(data)[: -len(packed(data)) // 4])
    capsys.readouterr()
    code, _ = loaded(tmp_path, "sqlite", str(file), "--endpoint", endpoint)
    line = complaint(capsys.readouterr().err)
    assert code == 1
    says(line, "was cut", " points were acknowledged")


def test_a_file_cut_in_a_line_loses_that_line_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = generated(tmp_path / "points")
    file.write_bytes(file.read_bytes()[:-5])  # the time that is left is a time too
    capsys.readouterr()
    code, _ = loaded(tmp_path, "sqlite", str(file), "--endpoint", f"sqlite://{tmp_path / 'test.db'}")
    line = complaint(capsys.readouterr().err)
    assert code == 1
    says(line, "line 2,520, the last one, has no line feed", "2,519 points were acknowledged")


def test_generate_into_load_through_a_pipe(tmp_path: Path) -> None:
    database = tmp_path / "test.db"
    line = f"{PROGRAMS}/tsbench generate --out - --scale 50 --end 2016-01-01T01:00:00Z 2>/dev/null | "
    line += f"{PROGRAMS}/tsbench load sqlite - --endpoint sqlite://{database} --workers 2"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "loaded 18,000 points" in done.stdout
    with closing(sqlite3.connect(database)) as one:
        assert one.execute('SELECT count(*), count(DISTINCT "time") FROM cpu').fetchall() == [(18_000, 360)]


def test_a_pipe_whose_writer_dies_leaves_what_came(tmp_path: Path) -> None:
    line = f"head -c 100000 {generated(tmp_path / 'points')} | {PROGRAMS}/tsbench load sqlite - --endpoint "
    line += f"sqlite://{tmp_path / 'test.db'}"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    says(complaint(done.stderr), "has no line feed", " points were acknowledged")


def test_ctrl_c_says_what_is_stored(tmp_path: Path) -> None:
    generated(tmp_path / "points")
    endpoint = f"sqlite://{tmp_path / 'test.db'}"
    words = ("load", "sqlite", "points", "--endpoint", endpoint, "--rate", "100", "--batch", "10")
    with nothing_left():
        command = Command(tmp_path, "tsbench", *words)
        command.until_phase("load")
        time.sleep(1)
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(60) == 130
    says(complaint(command.stderr), "interrupted by the user", "points were acknowledged", "tsbench cleanup results")
    (status,) = (tmp_path / "results").glob("*/*/status.json")
    assert json.loads(status.read_text())["state"] == "interrupted"


@pytest.mark.postgres
def test_ctrl_c_before_the_first_point_says_how_to_clean_up(tmp_path: Path, postgres_endpoint: str) -> None:
    words = ("load", "postgres", "--use-case", "cpu-only", "--endpoint", postgres_endpoint)
    with nothing_left(), psycopg.connect(postgres_endpoint) as one:
        one.execute("CREATE TABLE IF NOT EXISTS cpu (x int)")
        one.execute("LOCK TABLE cpu")  # so that whoever drops it waits
        command = Command(tmp_path, "tsbench", *words)
        command.until_phase("start")
        time.sleep(2)
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(60) == 130
    says(complaint(command.stderr), "interrupted by the user; remove what was created with: tsbench cleanup results")


@pytest.mark.root
def test_a_full_disk_says_what_is_stored(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("this root may not mount a file system")
    try:
        endpoint = f"sqlite://{small / 'test.db'}"
        words = ("--use-case", "cpu-only", "--scale", "50", "--batch", "1000", "--endpoint", endpoint)
        command = Command(tmp_path, "tsbench", "load", "sqlite", *words)
        assert command.wait() == 1, command.stderr
        line = complaint(command.stderr)
        says(
            line,
            "the bulk load failed",
            "full",
            " points were acknowledged, 1,000 refused; remove them with: tsbench cleanup results/",
        )
        said = int(line.partition("; ")[2].split(" points were acknowledged")[0].rpartition(" ")[2].replace(",", ""))
        with closing(sqlite3.connect(small / "test.db")) as one:
            assert one.execute("SELECT count(*) FROM cpu").fetchone() == (said,)
        assert said > 0
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.postgres
def test_a_server_that_dies_in_a_load_is_named_with_what_was_stored(
    own_server: Callable[[PostgresServer], PostgresServer], tmp_path: Path
) -> None:
    server = own_server(PostgresServer(tmp_path / "server"))
    words = ("--use-case", "cpu-only", "--scale", "50", "--rate", "2000", "--batch", "100", "--workers", "2")
    command = Command(tmp_path, "tsbench", "load", "postgres", *words, "--endpoint", server.endpoint)
    command.until_phase("load")
    time.sleep(1)
    server.kill()
    assert command.wait() == 1, command.stderr
    says(
        complaint(command.stderr),
        "the bulk load failed",
        " points were acknowledged, and ",
        "00 more may be stored; remove them with: tsbench cleanup",  # of a batch of a hundred, or of two
    )
    (status,) = (tmp_path / "results").glob("*/*.partial/status.json")
    assert json.loads(status.read_text())["state"] == "failed"


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("sqlite",), 2, "give one of FILE"),
        (("sqlite", "points", "--use-case", "cpu-only"), 2, "give one of FILE"),
        (("sqlite", "points", "--scale", "5"), 2, "--scale belongs to --use-case"),
        (("sqlite", "points"), 2, "--endpoint is missing"),
        (("null", "points"), 2, "keeps its data no longer than this process"),
        (("postgresql", "points"), 2, "did you mean 'postgres'"),
        (("sqlite", "absent", "--endpoint", "sqlite:///tmp/absent.db"), 2, "cannot read 'absent'"),
        (("sqlite", "points", "--endpoint", "sqlite:///tmp/absent.db", "--schema", "x"), 2, "no schema 'x'"),
        (("sqlite", "points", "--endpoint", "sqlite:///tmp/absent.db", "--mode", "single"), 2, "load.mode"),
        (("sqlite", "--use-case", "nothing", "--endpoint", "sqlite:///tmp/absent.db"), 2, "no use case 'nothing'"),
        (
            ("sqlite", "--use-case", "cpu-only", "--end", "2015-01-01", "--endpoint", "sqlite:///tmp/absent.db"),
            2,
            "the end is not after the start",
        ),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...],
    code: int,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["load", *words]) == code
    says(complaint(capsys.readouterr().err), expected)


@pytest.mark.parametrize("place", [*TARGETS[:2], *TARGETS[-1:]], indirect=True)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cpu,h=a v=1,v=2 2000000000", "line 1 is refused: it has the field 'v' twice"),
        (
            "cpu,h=a V=1,v=2 2000000000",
            "would have the column 'v' twice ('V' is the same name); rename the tag or field",
        ),
        ("cpu,h=a time=1 2000000000", "would have the column 'time' twice; rename the tag or field"),
        ("cpu,id=a v=1 2000000000", "the table 'tags' would have the column 'id' twice; rename the tag or field"),
    ],
)
def test_a_table_that_cannot_be_made_is_refused_before_the_old_one_is_dropped(
    place: tuple[str, str], line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    points = tmp_path / "points"
    words = [target, str(points), "--endpoint", endpoint, "--out", str(tmp_path / "r")]
    points.write_text("cpu,h=a v=5 1000000000\n")
    assert main(["load", *words]) == 0
    points.write_text(f"{line}\n")
    assert main(["load", *words]) in {1, 2}
    says(complaint(capsys.readouterr().err), expected)
    found = registry.get(target)
    schema = next(iter(found.schemas.values()))
    cpu = Measurement("cpu", ("h",), (Field("v"),))
    with closing(found.connect(endpoint, schema)) as session:
        assert count_stored(session, schema, [cpu]) == 1


@pytest.mark.parametrize("place", [TARGETS[2], *TARGETS[-1:]], indirect=True)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"cpu,h=a {'v' * 65}=1 2000000000", "has 65 bytes, more than the 6"),
        (f"cpu,{'t' * 65}=a v=1 2000000000", "has 65 bytes, more than the 6"),
        (f"{'m' * 65},h=a v=1 2000000000", "of a table's name here; rename the measurement"),
    ],
)
def test_a_name_that_is_too_long_for_a_database_is_refused_and_not_cut(
    place: tuple[str, str], line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    (tmp_path / "points").write_text(f"{line}\n")
    words = [target, str(tmp_path / "points"), "--endpoint", endpoint, "--out", str(tmp_path / "r")]
    assert main(["load", *words]) in {1, 2}
    says(complaint(capsys.readouterr().err), expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"time,host,usage\n2026-01-01,a,1.5\n",
            "is a CSV file, which is not read yet; write it as line protocol first",
        ),
        (gzip.compress(b"time,host,usage\n2026-01-01,a,1.5\n"), "is a CSV file"),
        (zstandard.ZstdCompressor().compress(b"time,host,usage\n2026-01-01,a,1.5\n"), "is a CSV file"),
        ("\ufefftime;ger\u00e4t;v\r\n2026-01-01;a;1,5\r\n".encode(), "is a CSV file"),
        (b"time\thost\tusage\n2026-01-01\ta\t1.5\n", "is a CSV file"),
        (b"tags,host string\ncpu,v\n\ntags,host=a\ncpu,1,2\n", "is in a format of TSBS's that is not read"),
        (b"PAR1\x15\x04\x15\xff\n\x1b[31m", "is a Parquet file"),
        (b'[{"time": 1}]\n', "is a JSON file"),
    ],
    ids=["csv", "csv.gz", "csv.zst", "excel", "tabs", "tsbs", "parquet", "json"],
)
def test_a_file_in_a_format_that_is_not_read_is_named_before_the_database_is_touched(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "points").write_bytes(content)
    endpoint = f"sqlite://{tmp_path / 'test.db'}"
    assert main(["load", "sqlite", str(tmp_path / "points"), "--endpoint", endpoint, "--out", str(tmp_path / "r")]) == 2
    line = complaint(capsys.readouterr().err)
    says(line, expected)
    assert line.isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["points"]


TEXTS = {
    0: (r"it said \"no\", twice", True),
    1: (r"ü, = \\ x", False),
    2: ("'; DROP TABLE log; --", True),
    3: ("", None),
    4: (None, False),
}
"""Fields of points by their seconds, as line protocol has them; None: the point lacks it."""


@pytest.mark.parametrize("place", TARGETS, indirect=True)
def test_texts_and_booleans_of_a_file_are_stored_as_they_are(place: tuple[str, str], tmp_path: Path) -> None:
    target, endpoint = place
    lines = ""
    for second, (text, flag) in TEXTS.items():
        fields = [f'msg="{text}"'] * (text is not None) + [f"ok={flag}".lower()] * (flag is not None) + ["v=1.5"]
        lines += f"log,h=a {','.join(fields)} {second + 1_609_459_200}000000000\n"
    (tmp_path / "points").write_text(lines)
    assert main(["load", target, str(tmp_path / "points"), "--endpoint", endpoint, "--out", str(tmp_path / "r")]) == 0
    found = registry.get(target)
    log = Measurement("log", ("h",), (Field("msg", Kind.TEXT), Field("ok", Kind.BOOL), Field("v")))
    schema = next(iter(found.schemas.values()))
    with closing(found.connect(endpoint, schema)) as session:
        asked = Stored(log)
        rows = canonical(session.query(schema.compile(asked), asked.columns), forms_of(asked))
        session.run(schema.drop([log]))
    at = [asked.columns.index(name) for name in ("time", "msg", "ok", "v")]
    stored = {row[at[0]] // 10**9 - 1_609_459_200: (row[at[1]], row[at[2]]) for row in rows}
    plain = {n: (text and re.sub(r"\\(.)", r"\1", text), flag) for n, (text, flag) in TEXTS.items()}
    assert stored == plain


@pytest.mark.victoria
@pytest.mark.parametrize("fields", [("v=1,w=2", "w=3", "v=4,w=5"), ("v=1", "w=2", "u=3")])
def test_points_are_counted_by_a_field_that_each_has_or_not_at_all(
    fields: tuple[str, ...], tmp_path: Path, victoria_server: VictoriaServer
) -> None:
    """VictoriaMetrics has no points, only values of fields: with those of the first one, two of three were lost."""
    lines = (f"log,h=a {one} {second + 1_609_459_200}000000000\n" for second, one in enumerate(fields))
    (tmp_path / "points").write_text("".join(lines))
    code, summary = loaded(
        tmp_path, "victoriametrics", str(tmp_path / "points"), "--endpoint", victoria_server.endpoint
    )
    assert (code, summary.load and (summary.load.points, summary.load.values)) == (0, (3, sum(map(len, fields)) // 3))


def test_a_text_is_refused_where_a_table_has_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "points").write_text('cpu,h=a v=1 1000000000\ncpu,h=a v="on" 2000000000\n')
    endpoint = f"sqlite://{tmp_path / 'test.db'}"
    words = ["sqlite", str(tmp_path / "points"), "--endpoint", endpoint, "--out", str(tmp_path / "r")]
    assert main(["load", *words]) == 1
    said = complaint(capsys.readouterr().err)
    says(said, "line 2 is refused: v is", "and a number before", "1 points were acknowledged")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("timeout.lod=1s", "has the keys timeout.connect, timeout.create, timeout.load"),
        ("load=1s", "write --set timeout.load=20s"),
        ("timeout.load=soon", "timeout.load: 'soon' is not a duration"),
        ("timeout.load=0s", "timeout.load: must be from 1ms to 7d"),
    ],
)
@pytest.mark.parametrize("command", ["load", "query", "validate"])
def test_the_time_limits_of_a_run_can_be_set_and_no_other_keys(
    tmp_path: Path, command: str, change: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q"
    assert main(["queries", "--count", "1", "--type", "lastpoint", "--out", str(file)]) == 0
    words = ["--use-case", "cpu-only"] if command == "load" else [str(file)]
    capsys.readouterr()
    assert main([command, "sqlite", *words, "--endpoint", f"sqlite://{tmp_path / 'a.db'}", "--set", change]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("precision", "time"), [("s", 1_609_459_200), ("ms", 1_609_459_200_123), ("ns", 1_609_459_200)]
)
def test_times_are_in_the_unit_that_is_said_and_odd_ones_are_named(
    precision: str, time: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "points").write_text(f"cpu,h=a v=1 {time}\ncpu,h=a\\ b v=2,ok=t {time + 1}\n")
    words = [
        "sqlite",
        str(tmp_path / "points"),
        "--endpoint",
        f"sqlite://{tmp_path / 'x.db'}",
        "--precision",
        precision,
    ]
    assert main(["load", *words, "--out", str(tmp_path / "r")]) == 0
    unit_ns = {"s": 10**9, "ms": 10**6, "ns": 1}[precision]
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        stored = connection.execute('SELECT "time" FROM cpu ORDER BY 1').fetchall()
    assert stored == [(time * unit_ns,), ((time + 1) * unit_ns,)]
    assert ("say --precision s" in capsys.readouterr().err) is (precision == "ns")


@pytest.mark.parametrize(
    "place",
    ["duckdb", *TARGETS[2:3], *TARGETS[4:], pytest.param("questdb", marks=pytest.mark.questdb)],
    indirect=True,
)
def test_times_finer_than_the_database_s_are_refused_with_their_line_or_cut(
    place: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, endpoint = place
    times = [1_609_459_200_123_000_000, 1_609_459_200_987_654_321, 1_609_459_199_999_999_999, 1_609_459_201_000_000_000]
    (tmp_path / "points").write_text("".join(f"cpu,h=a v={n}.5 {one}\n" for n, one in enumerate(times)))
    words = [target, str(tmp_path / "points"), "--endpoint", endpoint, "--out", str(tmp_path / "r")]
    assert main(["load", *words]) == 1
    says(
        complaint(capsys.readouterr().err), "line 2 is refused: the database has times to 1", "--round-times cuts them"
    )
    assert main(["load", *words, "--round-times"]) == 0
    found = registry.get(target)
    cpu, schema = Measurement("cpu", ("h",), (Field("v"),)), next(iter(found.schemas.values()))
    with closing(found.connect(endpoint, schema)) as session:
        asked = Stored(cpu, -(10**18), 2 * 10**18)
        rows = session.query(schema.compile(asked), asked.columns)
        session.run(schema.drop([cpu]))
    time_at, value_at = rows.columns.index("time"), rows.columns.index("v")
    stored = {row[value_at]: row[time_at] for row in canonical(rows, forms_of(asked))}
    assert stored == {n + 0.5: one - one % found.resolution_ns for n, one in enumerate(times)}


def test_a_time_that_is_out_of_range_in_its_unit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "points").write_text("cpu,h=a v=1 1609459200\ncpu,h=a v=2 1609459200123\n")
    words = ["sqlite", str(tmp_path / "points"), "--endpoint", f"sqlite://{tmp_path / 'x.db'}", "--precision", "s"]
    assert main(["load", *words, "--out", str(tmp_path / "r")]) == 1
    says(complaint(capsys.readouterr().err), "line 2 ", "its time is out of range", "1 points were acknowledged")
    assert main(["load", "sqlite", "--use-case", "devops", "--precision", "s"]) == 2
    says(complaint(capsys.readouterr().err), "--precision belongs to a FILE")
