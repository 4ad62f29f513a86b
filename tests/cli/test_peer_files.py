"""Files of TSBS: what is stored is what another parser reads in them, with NULL for what is missing."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.support import complaint, says
from tests.cli.test_load import TARGETS, loaded, place
from tsbench.cli.main import main

__all__ = ["place"]

DATA = Path(__file__).parent / "data"
"""The first 400 points of `tsbs_generate_data --use-case=iot --scale=4 --seed=123`, in two formats."""
TAGS = ("name", "fleet", "driver", "model", "device_version")
NUMERIC_TAGS = ("load_capacity", "fuel_capacity", "nominal_fuel_consumption")
BAD = b"readings,1451606400000000000,x,1,1,1,1,1,1\n"
PROGRAM = shutil.which("tsbs_generate_data", path=os.environ.get("TSBS_BIN"))


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def of_line_protocol(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the points of a file without escapes: time, tags by name, fields by name, for each measurement."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for line in text_of(path).splitlines():
        head, fields, time = line.split(" ")
        name, *tags = head.split(",")
        values = {k: float(v.rstrip("i")) for k, v in (pair.split("=") for pair in fields.split(","))}
        found.setdefault(name, []).append((int(time), dict(pair.split("=") for pair in tags), values))
    return found


def of_pairs(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the same of a file in the timescaledb format."""
    header, _, rest = text_of(path).partition("\n\n")
    names = {line.split(",")[0]: line.split(",")[1:] for line in header.splitlines()[1:]}
    found: dict[str, list[tuple[Any, ...]]] = {}
    lines = rest.splitlines()
    for tags, values in zip(lines[0::2], lines[1::2], strict=True):
        name, time, *cells = values.split(",")
        of = {k: v for k, v in (pair.split("=") for pair in tags.split(",")[1:]) if v}
        fields = {k: float(v) for k, v in zip(names[name], cells, strict=True) if v}
        found.setdefault(name, []).append((int(time), of, fields))
    return found


FILES = [("iot.influx.gz", of_line_protocol, TAGS), ("iot.timescaledb.gz", of_pairs, (*TAGS, *NUMERIC_TAGS))]


def stored(target: str, endpoint: str, name: str, tags: tuple[str, ...], fields: tuple[str, ...]) -> list[Any]:
    """Return time, tags and fields of all rows of a table, by the bare driver."""
    columns = ", ".join([*(f't."{tag}"' for tag in tags), *(f'm."{field}"' for field in fields)])
    if target == "sqlite":
        with closing(sqlite3.connect(endpoint.removeprefix("sqlite://"))) as one:
            text = f'SELECT m."time", {columns} FROM {name} m JOIN tags t ON t.id = m.tags_id'
            return one.execute(text).fetchall()
    with psycopg.connect(endpoint) as connection:
        text = f'SELECT extract(epoch FROM m."time")::bigint * 1000000000, {columns} FROM {name} m '
        return connection.execute(text + "JOIN tags t ON t.id = m.tags_id").fetchall()


def in_order(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=lambda row: [(value is None, str(value)) for value in row])


@pytest.mark.parametrize("place", [TARGETS[0], TARGETS[2]], indirect=True)
@pytest.mark.parametrize(("file", "read", "tags"), FILES)
def test_every_stored_row_is_the_files_with_its_nulls(
    file: str, read: Any, tags: tuple[str, ...], place: tuple[str, str], tmp_path: Path
) -> None:
    target, endpoint = place
    points = read(DATA / file)
    code, summary = loaded(tmp_path, target, str(DATA / file), "--endpoint", endpoint, "--batch", "150")
    assert code == 0
    assert summary.load is not None
    assert summary.load.points == sum(map(len, points.values())) == 400
    missing = 0
    for name, rows in points.items():
        fields = tuple(dict.fromkeys(chain.from_iterable(values for _, _, values in rows)))
        of_tags = [{x: float(v) if x in NUMERIC_TAGS else v for x, v in of.items()} for _, of, _ in rows]
        rows = [(t, of, v) for (t, _, v), of in zip(rows, of_tags, strict=True)]  # noqa: PLW2901 - typed
        wanted = [(t, *(of.get(x) for x in tags), *(v.get(x) for x in fields)) for t, of, v in rows]
        found = [
            tuple(float(x) if isinstance(x, int) and i else x for i, x in enumerate(row))
            for row in stored(target, endpoint, name, tags, fields)
        ]
        assert in_order(found) == in_order(wanted)
        missing += sum(None in row for row in wanted)
    assert missing > 20, "the file was to have nulls"


@pytest.mark.parametrize("place", [TARGETS[3]], indirect=True)
@pytest.mark.parametrize(("file", "read", "tags"), FILES)
def test_influxdb_takes_both(
    file: str, read: Any, tags: tuple[str, ...], place: tuple[str, str], tmp_path: Path
) -> None:
    del tags
    target, endpoint = place
    code, summary = loaded(tmp_path, target, str(DATA / file), "--endpoint", endpoint, "--workers", "2")
    assert code == 0
    assert summary.load is not None
    points = read(DATA / file)
    assert summary.load.points == sum(map(len, points.values()))
    assert summary.load.values == sum(len(values) for rows in points.values() for _, _, values in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [*lines[:20], b"rubbish\n", *lines[21:]], ("line 21 ", "8 points were acknowledged")),
        (lambda lines: [*lines[:21], b"readings,1,2\n", *lines[22:]], ("line 22 ", "8 points were acknowledged")),
        (lambda lines: [*lines[:21], BAD, *lines[22:]], ("line 22 ", "8 points were acknowledged")),
        (lambda lines: lines[:31], ("line 31 ", "half a point", "13 points were acknowledged")),
        (lambda lines: lines[:3], ("no empty line ends it",)),
    ],
)
def test_damage_is_named_and_all_before_it_is_stored(
    change: Any, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress((DATA / "iot.timescaledb.gz").read_bytes()).splitlines(keepends=True)
    file = tmp_path / "bad"
    file.write_bytes(b"".join(change(lines)))
    where = ("--endpoint", f"sqlite://{tmp_path / 'a.db'}", "--out", str(tmp_path))
    assert main(["load", "sqlite", str(file), *where]) == 1
    says(complaint(capsys.readouterr().err), *words)


@pytest.mark.skipif(PROGRAM is None, reason="tsbs_generate_data is neither on PATH nor in TSBS_BIN")
@pytest.mark.parametrize("form", ["influx", "timescaledb"])
def test_the_fixtures_are_what_the_program_writes(form: str, tmp_path: Path) -> None:
    words = ["--use-case=iot", "--scale=4", "--seed=123", "--timestamp-end=2016-01-01T01:00:00Z", f"--format={form}"]
    made = subprocess.run([str(PROGRAM), *words], cwd=tmp_path, capture_output=True, check=True).stdout
    assert made.startswith(gzip.decompress((DATA / f"iot.{form}.gz").read_bytes()))
