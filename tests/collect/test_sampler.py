from __future__ import annotations

import math
import threading
import tracemalloc

import pytest

from tsbench.collect import sampler as module
from tsbench.collect.sampler import Sampler, Samples


class Clock:
    """Time that passes only while somebody waits or samples; waits end 4 ms late, and `LAST` samples are taken."""

    LAST = 7

    def __init__(self) -> None:
        self.now_s, self.waits = 1_700_000_000.0, 0

    def monotonic(self) -> float:
        return self.now_s

    def epoch_ns(self) -> int:
        return round(self.now_s * 1e9)

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds + 0.004
        self.waits += 1
        return self.waits > self.LAST

    def set(self) -> None: ...


def test_rows_lie_on_a_grid_and_carry_the_second_that_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, passed = Clock(), list[float]()

    def sample(seconds: float) -> list[dict[str, float | str]]:
        passed.append(seconds)
        clock.now_s += 0.03  # a slow sample must not make the next ones late
        return [{"x": 1.0}]

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "epoch_ns", clock.epoch_ns)
    sampler = Sampler(sample)
    sampler.period_s, sampler.stop_s = 0.1, 60
    sampler._stopping = clock  # type: ignore[assignment]
    begun = clock.now_s
    sampler.start()
    rows = sampler.stop()
    assert len(rows) == Clock.LAST
    assert passed == pytest.approx([0.0, 0.104, *[0.1] * 6], abs=1e-6)
    offsets = [float(row["second"]) - begun for row in rows]
    assert offsets == pytest.approx([0.0, *(0.104 + 0.1 * number for number in range(6))], abs=1e-5)


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
    answers = iter([None, kind("away"), kind("still away"), None])
    all_given = threading.Event()

    def sample(_seconds: float) -> list[dict[str, float | str]]:
        answer = next(answers, all_given)
        if answer is all_given:
            all_given.set()
            return []
        if isinstance(answer, Exception):
            raise answer
        return [{"x": 1.0}]

    sampler = Sampler(sample)
    sampler.period_s = 0.02
    sampler.start()
    assert all_given.wait(60)
    assert sampler.stop()
    assert sampler.trouble == f"the figures could not be read 2 times: {text}"


def test_a_sample_that_hangs_does_not_hold_up_the_end() -> None:
    hanging, going_on = threading.Event(), threading.Event()

    def sample(seconds: float) -> list[dict[str, float | str]]:
        if seconds:
            hanging.set()
            going_on.wait(600)
        return [{"x": 1.0}]

    sampler = Sampler(sample)
    sampler.period_s, sampler.stop_s = 0.02, 0.1
    sampler.start()
    assert hanging.wait(60)
    assert [*sampler.stop()] == []
    assert sampler.is_running()
    assert sampler.trouble == "the figures: the last sample did not end within 0.1 s"
    going_on.set()


def test_rows_come_back_as_they_were_added_whatever_keys_the_next_ones_have() -> None:
    given: list[dict[str, float | str]] = [
        {"second": 1.5, "name": "a", "value": 2**53},
        {"second": 2.5, "name": "a", "value": 0.25},
        {"second": 3.5, "name": "b", "value": math.inf},
        {"second": 4.5, "node": "b"},
        {"second": 5.5, "name": "c", "value": 7},
    ]
    rows = Samples()
    for row in given:
        rows.add(row)
    assert [*rows] == given
    assert [[*map(type, row.values())] for row in rows] == [[*map(type, row.values())] for row in given]
    assert (len(rows), rows[3], rows[-1]) == (5, given[3], given[4])


def test_a_hundred_counters_take_some_hundred_megabytes_in_a_day_not_gigabytes() -> None:
    tracemalloc.start()
    rows = Samples()
    for second in range(500):
        for number in range(100):
            rows.add({"second": float(second), "name": f"counter {number}", "value": second * 1e6})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(rows) < 40, "bytes a row; a dictionary takes 300"
