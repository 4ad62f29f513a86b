"""Lines on a terminal: broken between words, but commands and paths, which are copied, are left whole."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tsbench.cli import output
from tsbench.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

LONG = "the load generator was the limit (sent in time, ops would have come at a rate 8% higher); other processes ran"
COMMAND = (
    "tsbench run a-scenario.toml --only=one --set=drive.duration=60s --set=load.window=9h --resume results/20261123"
)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(output, "stderr", Console(file=written, width=80, force_terminal=True))
    return written


def test_a_terminal_breaks_a_sentence_between_words(lines: io.StringIO) -> None:
    assert output.fail(LONG, 1) == 1
    found = lines.getvalue().splitlines()
    assert len(found) == 2
    assert max(map(len, found)) <= 80
    assert " ".join(line.strip() for line in found) == f"tsbench: {LONG}"


def test_a_command_to_go_on_with_is_a_line_of_its_own_that_is_not_broken(lines: io.StringIO) -> None:
    output.fail(f"interrupted; what was measured is kept; continue with: {COMMAND}", 130)
    assert lines.getvalue().splitlines() == [
        "tsbench: interrupted; what was measured is kept; continue with:",
        COMMAND,
    ]


def test_a_long_path_is_not_broken(lines: io.StringIO) -> None:
    path = f"/{'a' * 60}/{'b' * 60}"
    output.fail(f"cannot read {path}", 1)
    assert path in lines.getvalue()


def test_a_pipe_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(output, "stderr", Console(file=written, width=80))
    output.fail(f"{LONG}: {COMMAND}", 1)
    assert written.getvalue().splitlines() == [f"tsbench: {LONG}: {COMMAND}"]


REPEATED = """
question = "?"
target = { name = "sqlite" }
world = { use_case = "cpu-only", scale = 2 }
load = { window = "1h" }
drive = { users = 1, wait = "20ms", warmup = 0, duration = "1s" }
[matrix]
case = [
  { name = "c", op = [{ write = 1 }] },
  { name = "d", op = [{ query = "single-groupby-1-1-1" }] },
  { name = "a", op = [{ write = 1 }] },
]
"""


@pytest.mark.nightly
def test_repeats_are_listed_as_the_scenario_has_them_and_compared_where_they_did_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(REPEATED)
    monkeypatch.chdir(tmp_path)
    main(["run", "s.toml", "--repeat", "2", "--no-report"])
    said = capsys.readouterr().out
    order = re.findall(r"\[\d/6.*?\] (\w)-round=", said)
    assert list(dict.fromkeys(order)) != ["c", "d", "a"], "the order of the rounds shows nothing"
    assert re.findall(r"^(\w) \(2 runs\)", said, re.MULTILINE)[:3] == ["c", "d", "a"]
    assert re.findall(r"^compare: tsbench compare \S+/(\w) \S+/(\w)$", said, re.MULTILINE) == [("c", "a")]
