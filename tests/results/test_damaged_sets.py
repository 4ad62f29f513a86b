"""Result sets of others: whatever is in them, one line or a report comes of it, in little time and memory."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from pyarrow import parquet

from tests.cli.support import TINY
from tests.report.synthetic import Shape, make_results
from tests.results import damaged
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.measure.hist import scan_log
from tsbench.results.json_files import read_json
from tsbench.results.ledger import read_ledgers
from tsbench.results.reading import read_table
from tsbench.results.rundir import COUNTER_COLUMNS, find_runs, write_json

ROOT = Path(__file__).parents[2]
USUAL = 12
"""Sets that are damaged by the way; `python -m tests.results.damaged` damages 600."""


@pytest.mark.nightly
def test_a_damaged_set_ends_in_a_report_or_one_line_in_little_time_and_memory() -> None:
    count = USUAL * settings().max_examples // 100
    # A process of its own: it forks for each set, which pytest with its threads and its memory had better not do.
    command = [sys.executable, "-m", "tests.results.damaged", str(count), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + 30 * count, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def table(path: Path, second: object = (0.0, 1.0), name: object = ("a", "b"), value: object = (1.0, 2.0)) -> Path:
    columns = {"second": pa.array(second), "name": pa.array(name), "value": pa.array(value)}
    parquet.write_table(pa.table(columns), path, compression="zstd")
    return path


def test_a_table_is_read_with_its_types(tmp_path: Path) -> None:
    whole = read_table(table(tmp_path / "x", second=[0, 1], value=[None, 2]), COUNTER_COLUMNS)
    assert whole.to_pydict() == {"second": [0.0, 1.0], "name": ["a", "b"], "value": [None, 2.0]}
    assert read_table(table(tmp_path / "x"), {**COUNTER_COLUMNS, "more": "int64"}, {"more"})["more"].to_pylist() == [
        0,
        0,
    ]


ROWS = 30_000_000


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"second": [0.0, 9e5]}, "its seconds are 0 to 900000"),
        ({"second": [0.0, float("nan")]}, "a row has no second"),
        ({"second": [None, 1.0]}, "a row has no second"),
        ({"second": [1e18, 1e18]}, "its seconds are 1e"),
        ({"value": [1.0, float("inf")]}, "the column value has a number beyond"),
        ({"value": [1.0, -1e300]}, "the column value has a number beyond"),
        ({"value": ["1", "2"]}, "it has no column value of double"),
        ({"value": [[1.0], [2.0]]}, "it has no column value of double"),
        ({"name": [None, "a"]}, "the column name has a text of more than"),
        ({"name": ["x" * 300, "a"]}, "the column name has a text of more than"),
        ({"name": ["x" * 90_000_000, "a"]}, "it unpacks to 90.0 MB for 6 values"),
        ({"name": [b"\xff", b"a"]}, "is damaged (Invalid"),
    ],
)
def test_a_table_that_no_run_makes_is_damaged(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    path = table(tmp_path / "counters.parquet", **columns)
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(UserMistake, match=r"counters.parquet is damaged \(.*run the cell again") as caught:
        read_table(path, COUNTER_COLUMNS)
    assert said in str(caught.value)
    assert pa.default_memory_pool().bytes_allocated() - before < 1_000_000


def test_a_table_of_many_rows_in_few_bytes_is_not_unpacked(tmp_path: Path) -> None:
    path = table(
        tmp_path / "x", np.zeros(ROWS), pa.DictionaryArray.from_arrays(np.zeros(ROWS, "i4"), ["a"]), np.zeros(ROWS)
    )
    assert path.stat().st_size < 1_000_000
    with pytest.raises(UserMistake, match=r"30,000,000 rows in .* kB, more than"):
        read_table(path, COUNTER_COLUMNS)


def test_a_directory_that_lies_about_what_a_column_unpacks_to_is_of_no_use(tmp_path: Path) -> None:
    out = io.BytesIO()
    columns = {"second": pa.array([0.0]), "name": pa.array(["x" * 90_000_000]), "value": pa.array([1.0])}
    parquet.write_table(pa.table(columns), out, compression="zstd", use_dictionary=False, write_statistics=False)
    (tmp_path / "x").write_bytes(data := damaged.lying(out.getvalue()))
    said = parquet.read_metadata(pa.BufferReader(data)).row_group(0).column(1).total_uncompressed_size
    assert said < 1_000_000
    with pytest.raises(UserMistake, match=r"it unpacks to 90.0 MB for 3 values"):
        read_table(tmp_path / "x", COUNTER_COLUMNS)


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "link", "link to /dev/zero"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, other = tmp_path / "status.json", tmp_path / "other.json"
    write_json(other, {"state": "complete"})
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("status.json")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if "zero" in kind else other)
    with pytest.raises(UserMistake, match=r"status.json is damaged \(it is .*not a file\)"):
        read_json(path)


def test_nothing_is_written_through_a_link_that_a_set_holds(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "report.html.new").symlink_to(victim)
    write_json(tmp_path / "report.html", {})
    assert victim.read_text() == "mine"


def test_a_run_that_is_a_link_is_none_of_the_set(tmp_path: Path) -> None:
    (tmp_path / "set" / "a").mkdir(parents=True)
    write_json(tmp_path / "set" / "a" / "spec.json", {})
    (tmp_path / "set" / "b").symlink_to(tmp_path / "set" / "a")
    assert [run.cell_id for run in find_runs(tmp_path / "set")] == ["a"]


@pytest.mark.parametrize("start_s", ["nan", "inf", "-1", "1e18", "1795389593000000000"])
def test_a_line_of_no_time_is_damaged(tmp_path: Path, start_s: str) -> None:
    line = f"Tag=a|service,{start_s},1.0,1.0,{damaged.encoded(bytes([2]))}\n"
    (tmp_path / "x.hlog").write_text(line)
    with pytest.raises(ValueError, match=r"x.hlog:1: damaged histogram log line \(no time of a run"):
        list(scan_log(tmp_path / "x.hlog"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (bytes(100_000_000), "unpacks to more than"),
        (b"\xfe" + b"\xff" * 6 + b"\x7f", "a histogram of more than 1,000,000,000,000 ops"),
        (b"\x02" * 40_000, "counters; tsbench keeps"),
    ],
)
def test_a_histogram_that_no_run_makes_is_not_unpacked(tmp_path: Path, body: bytes, said: str) -> None:
    (tmp_path / "x.hlog").write_text(f"Tag=a|service,1.0,1.0,1.0,{damaged.encoded(body)}\n")
    with pytest.raises(ValueError, match=said):
        next(scan_log(tmp_path / "x.hlog")).decode()


def test_a_log_unpacks_to_a_few_times_its_size(tmp_path: Path) -> None:
    (tmp_path / "x.hlog").write_text(f"Tag=a|service,1.0,1.0,1.0,{damaged.encoded(bytes([2]) * 33_000)}\n" * 1_000)
    with pytest.raises(ValueError, match="the log's lines unpack to more than 4 times its size"):
        [line.decode() for line in scan_log(tmp_path / "x.hlog")]


def test_a_ledger_of_blocks_that_do_not_exist_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "x.ledger").write_bytes(b"\x7f" * 45)
    with pytest.raises(ValueError, match=r"x.ledger: damaged: a record of a write that no load process makes"):
        read_ledgers([tmp_path / "x.ledger"])


COMMANDS = (
    ("report", "{set}", "--markdown", "{out}/x.md", "--json", "{out}/x.json"),
    ("compare", "{set}", "{other}"),
    ("compare", "{other}", "{set}"),
    ("history", "{set}", "{other}", "--out", "{out}/h"),
    ("export", "{set}", "--out", "{out}/e", "--format", "csv"),
    ("run", "{out}/s.toml", "--baseline", "{set}", "--gate", "write:p99<2x", "--out", "{out}/r"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("harm", ["a time that no calendar has", "a name that is no UTF-8"])
@pytest.mark.slow
def test_harms_that_once_ended_in_a_traceback(
    tmp_path: Path, words: tuple[str, ...], harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = Shape(cell="sqlite-wal", seconds=2, warmup=0, rate=5)
    place, other = (make_results(tmp_path / name, [shape]) for name in ("set", "other"))
    spec = json.loads((place / "sqlite-wal" / "spec.json").read_text())
    if harm.startswith("a time"):
        spec["world"] = {"start": -1e308}
        write_json(place / "sqlite-wal" / "spec.json", spec)
    else:
        (place / "sqlite-wal").rename(os.fsdecode(os.fsencode(place) + b"/bad\xff"))
    (tmp_path / "s.toml").write_text(TINY)
    code = main([word.format(set=place, other=other, out=tmp_path) for word in words])
    said = capsys.readouterr()
    if harm.startswith("a name"):
        assert code == 2
        assert "bad\\udcff: its name is no UTF-8" in said.err
        assert not (tmp_path / "r").exists(), "a baseline is read before the run"
    else:
        assert code in {0, 1}, said.err


def test_a_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "x")

    def exhausted(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr("tsbench.results.reading._table", exhausted)
    with pytest.raises(UserMistake, match="x cannot be read: this machine has too little free memory for it"):
        read_table(path, COUNTER_COLUMNS)
