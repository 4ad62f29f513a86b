"""Figures of the last seconds of a run are read from files that still grow, each byte once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.measure.test_recorder import T0, S, recorder
from tsbench.measure.live import NOW_S, LiveFigures
from tsbench.model import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.measure.recorder import Recorder

MS = 1_000_000


def second_of_ops(record: Recorder, second: int, ops: int, *, failed: int = 0) -> None:
    """Record ops of 1, 2, ... ms in a second, each write of 10 points, and write them to the files."""
    at_ns = T0 + second * S
    for number in range(1, ops + 1):
        outcome = Outcome.FAILED if number <= failed else Outcome.OK
        took_ns = number * MS
        points = 0 if number <= failed else 10
        record.op("write-10", at_ns, at_ns + took_ns, took_ns, points, outcome, "refused" if number <= failed else "")
    record.flush()


def test_nothing_is_shown_before_a_whole_second_is_there(tmp_path: Path) -> None:
    live = LiveFigures(tmp_path, "service")
    assert live.now() is None
    record = recorder(tmp_path)
    assert live.now() is None
    second_of_ops(record, 0, 100)  # its second may not be over
    assert live.now() is None
    second_of_ops(record, 1, 1)
    assert live.now() is not None


def test_the_rates_and_the_p99_are_those_of_the_last_seconds(tmp_path: Path) -> None:
    live, record = LiveFigures(tmp_path, "service"), recorder(tmp_path)
    second_of_ops(record, 0, 10)
    for second in range(1, 2 + NOW_S):
        second_of_ops(record, second, 200, failed=20)
        now = live.now()
    assert now is not None
    assert now.ops_per_s == 200
    assert now.points_per_s == 1_800
    assert now.failed == 20 * (1 + NOW_S)  # since the load began
    assert now.p99_ns == {"write": pytest.approx(198 * MS, rel=2e-3)}
    assert str(now) == "200 ops/s, 1,800 points/s; p99 write 198 ms; 120 failed"


def test_the_second_in_which_the_load_began_makes_no_rate_too_low(tmp_path: Path) -> None:
    live, record = LiveFigures(tmp_path, "service", ["write:ops/s>=150"]), recorder(tmp_path)
    for second, ops in enumerate((20, 200, 200)):
        second_of_ops(record, second, ops)
        now = live.now()
    assert now is not None
    assert now.ops_per_s == 200
    assert [gate.holds for gate in now.gates] == [True]
    assert live.now() is not None


def test_gates_are_shown_as_far_as_the_last_seconds_have_their_figures(tmp_path: Path) -> None:
    gates = ["write:p99<200ms", "write-10:p50<1ms", "failures<1%", "query:p99<1s", "write:p99.9<1s"]
    live, record = LiveFigures(tmp_path, "service", gates), recorder(tmp_path)
    for second in range(3):
        second_of_ops(record, second, 200, failed=20)
    now = live.now()
    assert now is not None
    assert [(gate.gate, gate.holds) for gate in now.gates] == [
        ("write:p99<200ms", True),
        ("write-10:p50<1ms", False),
        ("failures<1%", False),
        ("query:p99<1s", None),  # no query has ended
        ("write:p99.9<1s", None),  # 200 ops have no p99.9
    ]
    text = str(now)
    assert "write:p99<200ms holds (198 ms)" in text
    assert "failures<1% BROKEN (10 %)" in text
    assert text.endswith("write:p99.9<1s not known yet")


def test_the_slowest_process_says_which_second_is_over(tmp_path: Path) -> None:
    live, one, other = LiveFigures(tmp_path, "service"), recorder(tmp_path), recorder(tmp_path, "p1")
    for second in range(4):
        second_of_ops(one, second, 100)
    for second in range(3):
        second_of_ops(other, second, 50)
    now = live.now()
    assert now is not None
    assert now.ops_per_s == 150


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    live, record = LiveFigures(tmp_path, "service"), recorder(tmp_path)
    for second in range(3):
        second_of_ops(record, second, 100)
    counters, log = tmp_path / "process" / "p0.ops.jsonl", tmp_path / "latency" / "p0.hlog"
    whole = {path: path.read_bytes() for path in (counters, log)}
    for path, data in whole.items():
        path.write_bytes(data[:-7])
    live.now()
    for path, data in whole.items():
        path.write_bytes(data)
    now = live.now()
    assert now is not None
    assert now.ops_per_s == 100
    assert now.p99_ns == {"write": pytest.approx(99 * MS, rel=2e-3)}


def test_too_few_ops_have_no_p99(tmp_path: Path) -> None:
    live, record = LiveFigures(tmp_path, "service"), recorder(tmp_path)
    second_of_ops(record, 0, 99)
    second_of_ops(record, 1, 1)
    now = live.now()
    assert now is not None
    assert not now.p99_ns


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    live = LiveFigures(tmp_path, "service")
    recorder(tmp_path).close()
    (tmp_path / "process" / "p0.ops.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"p0.ops.jsonl:1: damaged"):
        live.now()
