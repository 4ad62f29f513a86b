from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source import tree_of
from tsbench.clock import Ping, Timebase, epoch_ns, offset_ns

PACKAGE = Path(__file__).parents[1] / "tsbench"
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
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in {"time", "time_ns"} and ast.unparse(node.value) == "time"
    ]
    assert found == []


@given(
    skew=st.integers(-3_600 * S, 3_600 * S),
    ways=st.lists(st.tuples(st.integers(0, S), st.integers(0, S)), min_size=1, max_size=8),
)
def test_an_offset_is_wrong_by_half_of_the_quickest_round_trip_at_most(skew: int, ways: list[tuple[int, int]]) -> None:
    pings = [Ping(1_000 * S, 1_000 * S + there + skew, 1_000 * S + there + back) for there, back in ways]
    error = abs(offset_ns(pings) - skew)
    assert error <= min(there + back for there, back in ways) / 2 + 1


def test_a_corrected_clock_gives_the_leaders_time() -> None:
    before_ns, now_ns, after_ns = epoch_ns(), Timebase(offset_ns=5 * S).now_ns(), epoch_ns()
    assert before_ns <= now_ns + 5 * S <= after_ns


def test_without_any_answer_the_clock_is_taken_to_be_right() -> None:
    assert offset_ns([]) == 0
