"""`tsbench servers start`: a server in the foreground for `load` and `query`, whose data outlast it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import Command, nothing_left
from tsbench.cli.main import main
from tsbench.targets import registry

if TYPE_CHECKING:
    from pathlib import Path

LOADED = ("--use-case", "cpu-only", "--scale", "2", "--end", "2016-01-01T01:00:00Z")


def started(place: Path, name: str, target: str) -> tuple[Command, str]:
    (place / name).mkdir()
    command = Command(place / name, "tsbench", "servers", "start", target, "--dir", str(place / "data"))
    command.wait_until(lambda: "Ctrl-C stops it\n" in command.stdout)
    return command, command.stdout.splitlines()[0].rpartition(" answers at ")[2]


@pytest.mark.every_user
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("influxdb2", marks=[getattr(pytest.mark, "influxdb-2"), pytest.mark.nightly]),
    ],
)
@pytest.mark.slow
def test_a_started_server_takes_a_load_stops_at_ctrl_c_and_has_the_data_when_it_starts_again(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := next((one for one in registry.get(target).requirements if not one.is_met), None):
        pytest.skip(f"{missing.part} is not installed; {missing.cure}")
    with nothing_left():
        command, endpoint = started(tmp_path, "first", target)
        assert main(["load", target, *LOADED, "--endpoint", endpoint, "--out", str(tmp_path / "loads")]) == 0
        file = str(tmp_path / "q")
        assert main(["queries", *LOADED[2:], "--out", file, "--count", "4", "--type", "lastpoint"]) == 0
        command.signal(signal.SIGINT)
        assert command.wait() == 0
        assert f"stopped; its data are in {tmp_path / 'data'}" in command.stdout or "/data-" in command.stdout
        command, endpoint = started(tmp_path, "second", target)
        capsys.readouterr()
        assert main(["validate", target, file, "--endpoint", endpoint]) == 0
        assert "4 of 4 answers are right" in capsys.readouterr().out
        command.signal(signal.SIGTERM)
        assert command.wait() == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sqlite",), "sqlite runs inside the processes that open it; give --endpoint sqlite:///absolute/path.db"),
        ((), "servers start: give one of `tsbench list targets`"),
        (("postgres", "mariadb"), "servers start: give one of `tsbench list targets`"),
        (("nothing",), "no target is called 'nothing'"),
    ],
)
def test_what_has_no_server_is_one_line(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["servers", "start", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert main(["servers", "install", "--dir", "x"]) == 2
