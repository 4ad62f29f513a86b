"""`tsbench run --dry-run` shows what would run and runs nothing; `--quiet` says only what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.synthetic import Shape, make_results
from tsbench.cli.main import main
from tsbench.cli.running import _short
from tsbench.report.cells import ResultSet
from tsbench.results.summary import GateResult

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """
question = "?"
[target]
name = "sqlite"
[world]
use_case = "cpu-only"
scale = 8
[load]
window = "1m"
[drive]
users = 1
wait = "5ms"
warmup = 0
duration = "1s"
[[op]]
write = 1
[matrix]
"drive.users" = [1, 2]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.toml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_prints_the_cells_and_runs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "s.toml", "--dry-run", "--repeat", "3"]) == 0
    said = capsys.readouterr().out
    assert "users=2-round=3" in said
    assert "6 cells, 288 points stored first, at most 4.22 kB in a cell as plain numbers" in said
    assert "; at least about 6 s" in said
    assert not (place / "results").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "postgres"), "postgres"),
        (("--set", "world.scale=0"), "world.scale"),
        (("--set", "load.window=9000d", "--set", "world.scale=100000"), "--yes"),
        (("--gate", "p99<fast"), "--gate"),
        (("--endpoint", "mysql://x"), "mysql"),
    ],
)
def test_a_dry_run_finds_the_mistakes_that_a_run_would(
    place: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "s.toml", "--dry-run", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (place / "results").exists()


@pytest.mark.slow
def test_a_quiet_run_that_passes_prints_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "s.toml", "--quiet", "--no-report", "--only", "users=1", "--set", "drive.wait=50ms"]) == 0
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "")
    assert list((place / "results").glob("*/users=1/summary.json"))


@pytest.mark.slow
def test_a_quiet_run_that_fails_says_why_and_the_next_one_is_not_quiet(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "s.toml", "--no-report", "--only", "users=1", "--gate", "write:p99<1ns"]
    assert main([*words, "--quiet", "--out", str(place / "a")]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert len(found.err.splitlines()) == 1
    assert "1 of 1 cells did not pass, users=1: " in found.err
    assert main([*words, "--out", str(place / "b")]) == 1
    assert "users=1" in capsys.readouterr().out


def test_the_last_line_repeats_no_reason_that_stands_above_it(tmp_path: Path) -> None:
    text = "9.36 ms: 520 of 520 ops were not below 1.00 us; is broken with 99.9 %"
    gates = (GateResult("write:p99<1us", 9e6, "fail", text), GateResult("failures<1%", 0.0, "pass", "0 %"))
    small: dict[str, Any] = {"seconds": 2, "warmup": 0, "rate": 5}
    ops = (GateResult("failed ops<=0%", 13.1, "fail", "13.1 %, 21 of 160 ops: 21 ops failed"),)
    shapes = [
        Shape(cell="a", gates=gates, **small),
        Shape(cell="b", gates=ops, **small),
        Shape(cell="c", validity="invalid", reason="no server", **small),
    ]
    broken, failed, invalid = ResultSet.read(make_results(tmp_path / "r", shapes)).summary.cells
    assert _short(broken) == "failed write:p99<1us (9.36 ms)"
    assert _short(failed) == "failed ops<=0% (13.1 %, 21 of 160 ops)"
    assert _short(invalid) == "invalid"
