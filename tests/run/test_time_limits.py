"""A step that took too long says whose limit it was."""

from __future__ import annotations

import time

import pytest

from tsbench.model import OpError, Outcome
from tsbench.run.time_limits import Limits
from tsbench.scenario.parts import TimeoutPart


def store(limits: Limits, after_s: float) -> None:
    with limits.step("load", "storing 5 points"):
        time.sleep(after_s)
        raise OpError(Outcome.UNKNOWN, "timeout", "InfluxDB: 500 timeout")


def timed_out(limits: Limits, after_s: float) -> str:
    with pytest.raises(OpError) as caught:
        store(limits, after_s)
    return str(caught.value)


def test_a_step_that_reached_the_scenarios_limit_names_its_key() -> None:
    limits = Limits(TimeoutPart.model_validate({"load": "100ms"}), "http://127.0.0.1:8086/db?token=x")
    assert timed_out(limits, 0.11) == (
        "storing 5 points took longer than 100 ms on http://127.0.0.1:8086/db (InfluxDB: 500 timeout);"
        " see what holds the server up, or allow more with --set timeout.load=0.2s"
    )


def test_a_server_that_gave_up_by_a_limit_of_its_own_is_not_reported_with_the_scenarios() -> None:
    limits = Limits(TimeoutPart.model_validate({"load": "300s"}), "http://127.0.0.1:8086/db")
    assert timed_out(limits, 0.0) == (
        "storing 5 points: http://127.0.0.1:8086/db gave up after 0.0 s, a time limit of its own"
        " (InfluxDB: 500 timeout); see what holds the server up, or raise its limit"
    )
