"""A slip of a zero or a unit is found before anything is started, and --yes runs it nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.support import TINY, complaint, says
from tsbench.cli.main import main
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            ["world.interval=1ns"],
            ["would store 3e+12 points, about 35 days at 1,000,000 points/s", "load.window"],
        ),
        (["world.interval=1us", "load.window=5200w"], ["points, about 498 years at", "load.window"]),
        (["world.scale=10000000"], ["need 1.70 GB of memory per process for 10,000,000 series; change world.scale"]),
        (["drive.users=1000000"], ["need at least 50.0 GB of memory for 1,000,000 users; change drive.users"]),
        (["drive.duration=36500d"], ["1 cells would be measured for about 100 years; change drive.duration"]),
    ],
)
def test_what_would_take_days_says_so_and_how_to_run_it_nevertheless(
    place: Path, capsys: pytest.CaptureFixture[str], changes: list[str], words: list[str]
) -> None:
    sets = [word for change in changes for word in ("--set", change)]
    assert main(["run", "tiny.toml", *sets]) == 2
    says(complaint(capsys.readouterr().err), *words, "--yes")
    assert [path.name for path in place.iterdir()] == ["tiny.toml"]


def test_with_yes_it_is_run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def begun(*_: object, **__: object) -> None:
        raise UserMistake("it was begun")

    monkeypatch.setattr("tsbench.study.campaign.run_job", begun)
    assert main(["run", "tiny.toml", "--set", "drive.duration=36500d", "--yes"]) == 2
    says(complaint(capsys.readouterr().err), "it was begun")


def test_generate_says_what_it_would_write(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--out", "points", "--interval", "1ns"]) == 2
    says(complaint(capsys.readouterr().err), "this would store 8.6e+15 points, about 274 years at", "--yes")
    assert not (place / "points").exists()


@pytest.mark.parametrize(
    ("target", "endpoint", "words"),
    [
        ("postgres", "postgresql://h:0/b", "port 0 in the endpoint"),
        ("postgres", "postgresql://h/b?nobody=1", "nobody"),
        ("postgres", "http://h/b", "is not a PostgreSQL endpoint"),
        ("influxdb1", "http://h:0/b", "port 0 is out of range"),
        ("influxdb1", "http://a..b/b", "'a..b' is no host name"),
        ("influxdb1", f"http://{'a' * 64}.b/b", "is no host name"),
        ("influxdb1", "http://h/b?nobody=1", "the option 'nobody' does not exist; there are gzip, "),
        ("influxdb2", "http://h:99999/?org=o&bucket=b", "is not an endpoint of InfluxDB"),
        ("null", "null://?nobody=1", "the option 'nobody' does not exist; there are service, "),
        ("sqlite", "nonsense", "SQLite"),
        ("sqlite", " ", "--endpoint is empty"),
    ],
)
def test_a_mistake_in_an_endpoint_shows_before_anything_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], target: str, endpoint: str, words: str
) -> None:
    assert main(["run", "tiny.toml", "--set", f"target.name={target}", "--endpoint", endpoint]) == 2
    line = complaint(capsys.readouterr().err)
    says(line, words)
    assert "target.endpoint: " in line or "--endpoint" in line
    assert [path.name for path in place.iterdir()] == ["tiny.toml"]
