from __future__ import annotations

import threading
import time

import pytest

from tsbench.collect.sampler import Sampler


def test_rows_lie_on_a_grid_and_carry_the_second_that_they_are_about() -> None:
    passed: list[float] = []

    def sample(seconds: float) -> list[dict[str, float | str]]:
        passed.append(seconds)
        time.sleep(0.03)  # a slow sample must not make the next ones late
        return [{"x": 1.0}]

    sampler = Sampler(sample, period_s=0.1)
    begun = time.time()
    sampler.start()
    time.sleep(0.75)
    periods = (time.time() - begun) / 0.1  # more than 7 on a busy machine
    rows = sampler.stop()
    assert passed[0] == 0.0
    assert periods - 2 <= len(rows) <= periods + 1
    offsets = [float(row["second"]) - begun for row in rows]
    assert all(abs(offset - number * 0.1) < 0.05 for number, offset in enumerate(offsets)), offsets
    assert sampler.spent_s > 0.15


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (OSError, "still away"),
        (KeyError, "KeyError: 'still away'"),
        (ZeroDivisionError, "ZeroDivisionError: still away"),
    ],
)
def test_any_error_costs_its_rows_and_is_counted_and_the_next_samples_are_taken(
    kind: type[Exception], text: str
) -> None:
    answers = iter([None, kind("away"), kind("still away")])

    def sample(_seconds: float) -> list[dict[str, float | str]]:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        return [{"x": 1.0}]

    sampler = Sampler(sample, period_s=0.02)
    sampler.start()
    time.sleep(0.15)
    assert sampler.stop()
    assert sampler.trouble("the figures") == f"the figures could not be read 2 times: {text}"


def test_a_sample_that_hangs_does_not_hold_up_the_end() -> None:
    going_on = threading.Event()

    def sample(seconds: float) -> list[dict[str, float | str]]:
        if seconds:
            going_on.wait(30)
        return [{"x": 1.0}]

    sampler = Sampler(sample, period_s=0.02, stop_s=0.1)
    sampler.start()
    time.sleep(0.1)
    began = time.monotonic()
    assert sampler.stop() == []
    assert time.monotonic() - began < 5
    assert sampler.hung == "the last sample did not end within 0.1 s"
    going_on.set()
