"""Absurd input from the scenario model, the command line and result files: one line or a result, and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.support import PATIENCE_S, TINY, complaint
from tests.examples import examples
from tests.report.synthetic import Shape, make_results
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.scenario.reference import json_schema
from tsbench.study.claims import TABLES

MOST_S = 120.0
"""Time limit of one example on a busy machine; most take a few milliseconds."""
MOST_BYTES = 500_000_000
DIGITS = st.sampled_from([1, 20, 400, 5_000]).map(lambda count: "9" * count)
NESTED = st.sampled_from([30, 3_000]).map(lambda depth: "[" * depth + "]" * depth)
STRANGE = [
    "\x1b[31m",
    "\x07",
    "\u202e",
    "\x9b2J",
    "[/x]",
    "yes",
    "4",
    "now-9999999d",
    "2500-01-01",
    "0001-01-01",
    "1ns",
]
VALUES = st.one_of(
    st.sampled_from(["true", "false", "nan", "inf", "-1", "0", "1e308", "''", "[]", "{}", "[[1]]", "{a = {b = []}}"]),
    DIGITS,
    st.tuples(DIGITS, st.sampled_from(["ns", "s", "d", "GB", "%", "k"])).map("".join),
    NESTED,
    st.sampled_from(STRANGE),
    st.sampled_from(STRANGE).map(lambda text: json.dumps([text])),
    st.text(max_size=20),
)


def keys() -> list[str]:
    """Return every key of a scenario file, and some that are none."""
    document = json_schema(TABLES)
    found = []
    for name, value in document["properties"].items():
        part = document["$defs"].get(str(value.get("$ref", "")).rpartition("/")[2], {})
        found += [name, *(f"{name}.{key}" for key in part.get("properties", {}))]
    return [*found, "id", "labels", "block", "resolution_ns", "matrix.drive.users", "matrix.case", "x", "a.b.c", ""]


KEYS = keys()


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """End a run before its first cell, and draw no figures."""

    def begun(*_: object, **__: object) -> None:
        raise UserMistake("the input is good")

    monkeypatch.setattr("tsbench.study.campaign.run_job", begun)
    monkeypatch.setattr("tsbench.report.html.render", lambda *_: "")
    monkeypatch.setattr("tsbench.servers.cgroup.create", lambda caps: begun())


def ends_well(capsys: pytest.CaptureFixture[str], *words: str, codes: tuple[int, ...] = (2,)) -> None:
    started = time.monotonic()
    code, shown = main([*words]), capsys.readouterr()
    assert time.monotonic() - started < MOST_S
    assert code in codes, (code, shown.err)
    if code:
        line = complaint(shown.err)
        assert len(line) < 1_500
        assert "Value error" not in line
        assert "Input should" not in line
    assert_plain(shown.out + shown.err)


def assert_plain(text: str) -> None:
    """Verify that a terminal obeys nothing in a text."""
    assert not [letter for letter in text if letter in "\x7f\u202e" or (ord(letter) < 32 and letter not in "\n\t")]
    assert not [letter for letter in text if 0x80 <= ord(letter) < 0xA0]


WIDE = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@pytest.mark.slow
@settings(examples(80), suppress_health_check=WIDE)
@given(changes=st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=2))
def test_any_value_of_any_key_is_taken_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[tuple[str, str]]
) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    sets = [word for key, value in changes for word in ("--set", f"{key}={value}")]
    ends_well(capsys, "run", str(path), "--out", str(tmp_path / "results"), *sets)
    shutil.rmtree(tmp_path / "results", ignore_errors=True)


@pytest.mark.slow
@settings(examples(50), suppress_health_check=WIDE)
@given(line=st.sampled_from(TINY.splitlines()), value=VALUES)
def test_any_line_of_a_file_is_taken_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, value: str
) -> None:
    path = tmp_path / "tiny.toml"
    key = line.partition("=")[0]
    path.write_text(TINY.replace(line, f"{key} = {value}" if "=" in line else value, 1), encoding="utf-8")
    ends_well(capsys, "run", str(path), "--out", str(tmp_path / "results"))
    shutil.rmtree(tmp_path / "results", ignore_errors=True)


@pytest.mark.parametrize("command", ["report", "cleanup"])
def test_a_name_longer_than_the_system_allows_is_a_mistake(capsys: pytest.CaptureFixture[str], command: str) -> None:
    ends_well(capsys, command, "9" * 5_000)


WORDS = [
    "run",
    "report",
    "generate",
    "list",
    "schema",
    "tiny.toml",
    "--set",
    "--only",
    "--gate",
    "--endpoint",
    "--resume",
]
WORDS += [
    "--out",
    "-",
    "no/such/file",
    "--scale",
    "--start",
    "--end",
    "--interval",
    "--format",
    "--junit",
    "--yes",
    "--help",
]


@settings(examples(100), suppress_health_check=WIDE)
@given(words=st.lists(st.one_of(st.sampled_from(WORDS), VALUES), min_size=1, max_size=6))
@pytest.mark.slow
def test_any_command_line_ends_in_output_or_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as place:
        monkeypatch.chdir(place)
        Path("tiny.toml").write_text(TINY)
        # An input that is good would generate for long.
        monkeypatch.setattr("tsbench.run.generate.generate", lambda *_, **__: pytest.skip("the input is good"))
        if "\0" not in "".join(words):  # no operating system passes one
            ends_well(capsys, *words, codes=(0, 1, 2))
        monkeypatch.chdir(tmp_path)


ODD: list[Any] = [None, True, -1, 10**400, float("nan"), "\x1b[31m\u202e", [], [1], ["x"], {}, {"a": {"b": []}}, 1e308]
FILES = ["summary.json", "postgres-btree/summary.json", "postgres-btree/env.json", "postgres-btree/status.json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_results(tmp_path_factory.mktemp("original") / "set", [Shape(seconds=1, warmup=0, rate=2)])


def edited(content: Any, draw: Any) -> Any:
    """Return the content with an odd value somewhere in it."""
    if isinstance(content, dict) and content and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(content)))
        return {**content, key: edited(content[key], draw)}
    return draw(st.sampled_from(ODD))


@pytest.mark.slow
@settings(examples(60), suppress_health_check=WIDE)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_any_edited_result_file_is_shown_or_named(
    tmp_path: Path, original: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject, name: str
) -> None:
    place = tmp_path / "set"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(original, place)
    content = json.loads((place / name).read_text())
    (place / name).write_text(json.dumps(edited(content, data.draw)), encoding="utf-8")
    junit, markdown = tmp_path / "j.xml", tmp_path / "m.md"
    ends_well(capsys, "report", str(place), "--junit", str(junit), "--markdown", str(markdown), codes=(0, 2))
    if junit.exists():
        ET.parse(junit)
        assert_plain(markdown.read_text())


SET = ["run", "tiny.toml", "--set"]
COMMANDS = [
    *([*SET, f"{key}={'9' * 400}"] for key in ("world.seed", "world.interval", "drive.duration")),
    *([*SET, f"world.start={time}"] for time in ("0001-01-01", "2500-01-01", "now-99999d")),
    *([*SET, f"world.scale={value}"] for value in ("true", "'4'", "4.0", "[" * 3_000, "\x1b[31m")),
    [*SET, "drive.users=1000000000"],
    [*SET, "world.interval=1ns"],
    [*SET, f"matrix.drive.users={[*range(200)]}", "--set", f"matrix.world.seed={[*range(200)]}"],
    [*SET, "target.name=influxdb1", "--endpoint", "http://a..b:0/db"],
    ["run", "tiny.toml", "--gate", "write:p99<" + "9" * 400 + "ms"],
    ["run", "/dev/zero"],
    ["run", "fifo"],
    ["run", "."],
    ["run", "tiny.toml", "--json", "fifo"],
    ["run", "long.toml"],
    [*SET, "a" * 100_000 + "=1"],
    [*SET, "drive.users=2\nworld.scale=7"],
    [*SET, 'target.name="sqlite\\n"'],
    ["run", "tiny.toml", "--out", "a\nb"],
    ["run", "tiny.toml", "--endpoint", "sqlite:///:memory:"],
    [*SET, "target.name=duckdb", "--endpoint", "duckdb:///:memory:"],
    [*SET, "target.name=duckdb", "--endpoint", "duckdb:////dev/zero"],
    ["run", "\x1b[31m.toml"],
    ["report", "\x1b]0;x\x07"],
    ["generate", "--out", "points", "--interval", "1ns"],
]


RUN_ALL = """
import json, re, sys
from pathlib import Path
from tsbench.cli.main import main
for words in json.load(sys.stdin):
    code = main(words)
    (peak_kb,) = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps([code, int(peak_kb) * 1_024]), flush=True)
    print("-" * 9, file=sys.stderr, flush=True)
"""
"""Runs commands one after the other as the console script does; prints each one's exit code and the peak memory."""


def test_absurd_commands_end_with_2_one_line_and_little_memory(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "long.toml").write_text(f"{TINY}\n[target.settings]\n{'a' * 100_000} = '1'\n")
    os.mkfifo(tmp_path / "fifo")
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        cwd=tmp_path, input=json.dumps(COMMANDS), capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    for words, (code, peak_bytes), said in zip(COMMANDS, ended, done.stderr.split("-" * 9 + "\n")[:-1], strict=True):
        assert code == 2, (words, said)
        assert_plain(complaint(said))
        assert peak_bytes < MOST_BYTES, words
    assert [path.name for path in tmp_path.glob("results/*")] == []
