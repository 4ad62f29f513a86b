"""Files of points: formats, outputs, and errors."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import zstandard

from tests.drive.support import document, run
from tsbench.encode import line_protocol, pgcopy
from tsbench.encode.point_files import opened
from tsbench.errors import Broken, UserMistake
from tsbench.run.generate import generate, loaded_by, output
from tsbench.scenario.spec import Scenario
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.pgwire.login import parameters
from tsbench.workload.world import World, WorldSpec

START_NS = 1_451_606_400 * 10**9
HOUR_NS = 3_600 * 10**9
SPEC = built_in_spec("devops", 3, 1, START_NS, 10**10)
END_NS = START_NS + HOUR_NS


def written(
    spec: WorldSpec = SPEC, end_ns: int = END_NS, form: str = "influx", measurement: str | None = None
) -> bytes:
    out = io.BytesIO()
    result = generate(spec, end_ns, form, out, measurement=measurement)
    assert result.nbytes == len(out.getvalue())
    return out.getvalue()


def test_line_protocol_holds_every_point_of_the_world():
    out = io.BytesIO()
    seen: list[int] = []
    result = generate(SPEC, END_NS, "influx", out, seen.append)
    world = World(SPEC)
    wanted = b"".join(map(line_protocol.encode, world.batches(0, points=10**6, last_tick=360)))
    assert sorted(out.getvalue().splitlines()) == sorted(wanted.splitlines())
    assert result.points == sum(seen) == world.count(None, 0, 360) == 360 * 3 * 9
    assert result.values == 360 * 3 * 101
    assert result.nbytes == len(out.getvalue())
    assert result.seconds > 0


def test_several_streams_are_all_written():
    found = written(replace(SPEC, streams=2)).splitlines()
    assert len(found) == len(set(found)) == 360 * 3 * 9


def test_csv_has_a_header_and_a_row_per_point():
    names, *rows = csv.reader(io.StringIO(written(form="csv", measurement="net").decode()))
    assert names[:2] == ["time", "hostname"]
    assert names[-1] == "drop_out"
    assert len(rows) == 360 * 3
    assert {len(row) for row in rows} == {len(names)}


def test_pgcopy_is_one_complete_stream():
    for spec, name in ((SPEC, "net"), (built_in_spec("cpu-only", 3, 1, START_NS, 10**10), None)):
        data = written(spec, form="pgcopy", measurement=name)
        (batch,) = World(spec).batches(0, points=10**6, last_tick=360, only=[name or "cpu"])
        assert data == pgcopy.encode(batch, extra_json=bool(batch.measurement.own_tags))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": "xml"}, "no format 'xml'; there are influx"),
        ({"form": "csv"}, "choose one measurement of cpu, diskio"),
        ({"form": "pgcopy"}, "choose one measurement of cpu, diskio"),
        ({"measurement": "cpux"}, "no measurement 'cpux'; it has cpu"),
        ({"end_ns": START_NS}, "nothing to generate"),
        ({"spec": replace(SPEC, use_case="devop", case=None)}, "did you mean 'devops'"),
    ],
)
def test_a_mistake_is_named_before_anything_is_written(change, words):
    with pytest.raises(UserMistake, match=words):
        written(**change)


def test_a_name_that_ends_in_zst_is_compressed(tmp_path):
    path = tmp_path / "points.zst"
    with output(str(path)) as out:
        result = generate(SPEC, END_NS, "influx", out)
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read()
    assert data == written()
    assert result.nbytes == len(data) > path.stat().st_size


def test_a_file_that_cannot_be_opened_is_the_users_mistake(tmp_path):
    with pytest.raises(UserMistake, match=r"cannot write .*No such file"), output(str(tmp_path / "no" / "file")):
        pytest.fail("there is nothing to write to")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_breaks_off_with_one_line():
    with pytest.raises(Broken, match=r"^'/dev/full' is incomplete: the disk is full$"), output("/dev/full") as out:
        generate(SPEC, END_NS, "influx", out)


def test_a_reader_that_goes_away_breaks_off_with_one_line():
    reader, writer = os.pipe()
    with pytest.raises(Broken, match="its reader went away"), output(f"/dev/fd/{writer}") as out:  # noqa: PT012 - its reader goes when it is open
        os.close(reader)
        generate(SPEC, END_NS, "influx", out)
    os.close(writer)


def test_a_pipe_that_nobody_reads_is_not_waited_for_and_one_that_is_read_gets_the_points(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(UserMistake, match=r"fifo': nobody reads from it; start its reader first$"), output(str(path)):
        pytest.fail("there is nobody to write to")
    with (tmp_path / "copy").open("wb") as copy, subprocess.Popen(["cat", path], stdout=copy):
        opened = os.open(path, os.O_WRONLY)  # waits for the reader
        with output(str(path)) as out:
            os.close(opened)
            generate(SPEC, END_NS, "influx", out)
    assert (tmp_path / "copy").read_bytes() == written()


@pytest.mark.slow
def test_standard_output_gets_the_points():
    code = "from tests.run.test_generate import *\nwith output('-') as out: generate(SPEC, END_NS, 'influx', out)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout == written()
    assert done.stderr == b""


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "points"
    with output(str(path)) as out:
        generate(SPEC, END_NS, "influx", out)
        assert not path.exists()
    assert path.read_bytes() == written()
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["Ctrl-C", "full"]
)
@pytest.mark.parametrize("name", ["points", "points.zst"])
def test_what_is_not_complete_leaves_no_file_and_the_earlier_one_stands(tmp_path, failure, name):
    path = tmp_path / name
    path.write_bytes(b"earlier")

    def write_a_part() -> None:
        with output(str(path), force=True) as out:
            out.write(b"a part")
            raise failure

    with pytest.raises((KeyboardInterrupt, Broken)):
        write_a_part()
    assert path.read_bytes() == b"earlier"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_exists_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "points"
    path.write_bytes(b"earlier")
    with (
        pytest.raises(UserMistake, match=r"points' exists; choose another --out, or replace it with --force"),
        output(str(path)),
    ):
        pytest.fail("it would be overwritten")
    assert path.read_bytes() == b"earlier"
    link = tmp_path / "link"
    link.symlink_to(path)
    with output(str(link), force=True) as out:
        out.write(b"new")
    assert (link.is_symlink(), path.read_bytes()) == (True, b"new")


WORLDS: dict[str, dict[str, Any]] = {
    "ordered": {"use_case": "cpu-only", "scale": 7, "streams": 3, "seed": 5},
    "disorder": {
        "use_case": "devops",
        "scale": 5,
        "streams": 4,
        "seed": 7,
        **dict.fromkeys(("late", "out_of_order", "duplicate", "missing"), 0.1),
    },
}
"""Tables [world] of scenarios."""


def stored_rows(target: str, endpoint: str, m: Any) -> Counter[tuple[Any, ...]]:
    """Read a measurement through the bare driver: time in ns, tags, own tags as an object, fields."""
    time = "m.time" if target == "sqlite" else "(EXTRACT(epoch FROM m.time) * 1000000000)::bigint"
    own = "m.additional_tags" if m.own_tags else "NULL"
    columns = [time, *(f't."{tag}"' for tag in m.tags), own, *(f'm."{name}"' for name in m.field_names)]
    text = f"SELECT {', '.join(columns)} FROM {m.name} m JOIN tags t ON t.id = m.tags_id"
    if target == "sqlite":
        with closing(sqlite3.connect(endpoint.removeprefix("sqlite://"))) as file:
            rows = file.execute(text).fetchall()
    else:
        with psycopg.connect(**parameters(endpoint)) as connection:
            rows = connection.execute(text).fetchall()
    at = 1 + len(m.tags)
    return Counter((*row[:at], _object(row[at]), *row[at + 1 :]) for row in rows)


def _object(own: Any) -> str:
    return json.dumps(json.loads(own) if isinstance(own, str) else own or {}, sort_keys=True)


def generated_rows(spec: WorldSpec, end_ns: int, m: Any) -> Counter[tuple[Any, ...]]:
    out = io.BytesIO()
    generate(spec, end_ns, "csv", out, measurement=m.name)
    tags, own = len(m.tags), len(m.own_tags)
    found: Counter[tuple[Any, ...]] = Counter()
    for time, *row in [*csv.reader(io.StringIO(out.getvalue().decode()))][1:]:
        others = {name: text for name, text in zip(m.own_tags, row[tags : tags + own], strict=True) if text}
        fields = (float(text) if text else None for text in row[tags + own :])
        found[int(time), *(text or None for text in row[:tags]), json.dumps(others, sort_keys=True), *fields] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.nightly])]
)
@pytest.mark.parametrize("world", WORLDS)
def test_a_scenarios_points_are_those_that_its_run_stores(
    tmp_path: Path, request: pytest.FixtureRequest, target: str, world: str
) -> None:
    sqlite = f"sqlite://{tmp_path}/stored.db"
    endpoint = sqlite if target == "sqlite" else request.getfixturevalue("postgres_endpoint")
    drive = {"users": 1, "duration": "1s"}
    where = {"name": target, "endpoint": endpoint}
    content = document(world=WORLDS[world], target=where, op=[{"query": "lastpoint"}], drive=drive)
    run(tmp_path, content)
    spec, end_ns = loaded_by(Scenario(tmp_path / "test.toml", content).expand())
    for m in World(spec).measurements:
        stored = stored_rows(target, endpoint, m)
        assert stored
        assert generated_rows(spec, end_ns, m) == stored
        if world == "ordered":  # the seed alone does not make them
            assert generated_rows(replace(spec, streams=1), end_ns, m) != stored


def test_runs_that_load_different_points_are_named_and_others_are_one(tmp_path: Path) -> None:
    content = document() | {"matrix": {"world.seed": [1, 2]}}
    with pytest.raises(UserMistake, match=r"load different points; choose one with --only; there are .*1, .*2"):
        loaded_by(Scenario(tmp_path / "test.toml", content).expand())
    same = document() | {"matrix": {"drive.users": [1, 2]}}
    assert loaded_by(Scenario(tmp_path / "test.toml", same).expand())[0].streams == 4


def test_closed_standard_output_and_input_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python has it where descriptor 1 is closed
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserMistake, match="cannot write standard output: it is closed"), output("-"):
        pass
    with pytest.raises(UserMistake, match="cannot read standard input: it is closed"), opened("-"):
        pass
