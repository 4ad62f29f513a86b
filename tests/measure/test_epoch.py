from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from tsbench.drive.cluster.clocks import Timebase
from tsbench.measure.epoch import epoch_ns

PACKAGE = Path(__file__).parents[2] / "tsbench"
S = 1_000_000_000


def test_the_clock_of_a_process_begins_at_the_wall_clock() -> None:
    assert abs(epoch_ns() - time.time_ns()) < S


@pytest.mark.parametrize("step_s", [-7_200, 7_200])
def test_a_step_of_the_wall_clock_is_not_seen(monkeypatch: pytest.MonkeyPatch, step_s: int) -> None:
    timebase, before_ns, wall = Timebase(), epoch_ns(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + step_s * S)
    monkeypatch.setattr(time, "time", lambda: wall() / S + step_s)
    assert 0 <= timebase.now_ns() - before_ns < 60 * S
    assert 0 <= epoch_ns() - before_ns < 60 * S


@pytest.mark.parametrize("package", ["measure", "collect", "drive"])
def test_what_is_measured_is_timed_by_that_clock_alone(package: str) -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        if path.name != "epoch.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"time", "time_ns"} and ast.unparse(node.value) == "time"
    ]
    assert found == []
