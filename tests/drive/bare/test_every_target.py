"""Every target that `tsbench list targets` names has a locustfile under its name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn

import pytest

from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.run import locust_process
from tsbench.servers.process import free_port
from tsbench.targets.registry import TARGETS

LOCUSTFILES = Path(__file__).parents[3] / "locustfiles"
PUMPS = Path(__file__).parents[2] / "scenario" / "data" / "pumps.toml"


def test_all_targets_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list", "targets"]) == 0
    _, *lines = filter(str.strip, capsys.readouterr().out.splitlines())
    named = [line.split()[0] for line in lines if not line.startswith((" ", "target"))]
    assert named == [*TARGETS]


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_page_of_a_target_opens_the_locustfile_whose_users_ask_it(target: str) -> None:
    file = locust_process.locustfile(target)
    assert file.parent == LOCUSTFILES
    assert set(re.findall(r'^    target = "(\w+)"', file.read_text(encoding="utf-8"), re.MULTILINE)) == {target}


@pytest.mark.parametrize("name", ["", "d", "oracle", "../sqlite", "sqlit"])
def test_a_name_that_is_no_database_is_refused(name: str) -> None:
    with pytest.raises(UserMistake, match="there is no locustfile for"):
        locust_process.locustfile(name)


def test_the_page_with_a_use_case_of_ones_own_asks_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def replaced(_program: str, words: list[str]) -> NoReturn:
        opened.extend(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", replaced)
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path))
    with pytest.raises(SystemExit):
        main(["web", "sqlite", "--port", str(free_port()), "--use-case", str(PUMPS), "--scale", "3"])
    file = Path(opened[opened.index("-f") + 1])
    text = file.read_text(encoding="utf-8")
    assert file == tmp_path / "web" / "sqlite-pumps.py"
    assert f'use_case = "{PUMPS}"' in text
    assert 'self.query("hot-pumps")' in text
    assert opened[opened.index("--load-window") + 1] == "2h"
    assert opened[-4:] == ["--use-case", str(PUMPS), "--scale", "3"]
    assert main(["web", "sqlite", "--use-case", "absent.toml"]) == 2
    assert "absent.toml: no such use case" in capsys.readouterr().err
