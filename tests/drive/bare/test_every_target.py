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
from tsbench.targets.registry import TARGETS

LOCUSTFILES = Path(__file__).parents[3] / "locustfiles"


def test_all_targets_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list", "targets"]) == 0
    _, *lines = filter(str.strip, capsys.readouterr().out.splitlines())
    named = [line.split()[0] for line in lines if not line.startswith((" ", "target"))]
    assert named == [*TARGETS]


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_page_of_a_target_opens_the_locustfile_whose_users_ask_it(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def replaced(_program: str, words: list[str]) -> NoReturn:
        opened.extend(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", replaced)
    with pytest.raises(SystemExit):
        locust_process.web(target, "127.0.0.1", 0, [])
    file = Path(opened[opened.index("-f") + 1])
    assert file.parent == LOCUSTFILES
    assert set(re.findall(r'^    target = "(\w+)"', file.read_text(encoding="utf-8"), re.MULTILINE)) == {target}


@pytest.mark.parametrize("name", ["", "d", "oracle", "../sqlite", "sqlit"])
def test_a_name_that_is_no_database_is_refused(name: str) -> None:
    with pytest.raises(UserMistake, match="there is no locustfile for"):
        locust_process.web(name, "127.0.0.1", 0, [])
