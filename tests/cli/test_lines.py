"""Lines on a terminal: broken between words, but commands and paths, which are copied, are left whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tsbench.cli import output

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
