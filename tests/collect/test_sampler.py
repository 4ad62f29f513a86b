from __future__ import annotations

import threading
import time

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


def test_an_expected_error_costs_its_rows_and_is_counted() -> None:
    answers = iter([None, OSError("away"), OSError("still away")])

    def sample(_seconds: float) -> list[dict[str, float | str]]:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        return [{"x": 1.0}]

    sampler = Sampler(sample, expected=(OSError,), period_s=0.02)
    sampler.start()
    time.sleep(0.15)
    assert sampler.stop()
    assert (sampler.missed, sampler.error) == (2, "still away")


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
