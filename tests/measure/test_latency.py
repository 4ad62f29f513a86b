"""A latency that the client delayed is an interval, and ops sent later than the next is due are bursts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.results.made import op_figures
from tsbench.measure.hist import Histogram
from tsbench.measure.latency import Latency, latency_of, sent_in_bursts

MS = 1_000_000


@pytest.mark.parametrize(
    ("least_ms", "most_ms", "is_open_ended", "text", "bounds_ms"),
    [
        (5.4, 5.9, False, "5.90 ms", (5.9, 5.9)),  # less than a tenth
        (5.0, 5.9, False, "5.00-5.90 ms", (5.0, 5.9)),
        (0.9, 1.1, False, "900 us-1.10 ms", (0.9, 1.1)),
        (0.0, 1.0, False, "0 s-1.00 ms", (0.0, 1.0)),
        (5.4, 5.9, True, ">= 5.90 ms", (5.9, float("inf"))),
        (5.0, 5.9, True, ">= 5.00 ms", (5.0, float("inf"))),
    ],
)
def test_a_latency_is_one_number_while_the_clients_part_is_less_than_a_tenth(
    least_ms: float, most_ms: float, is_open_ended: bool, text: str, bounds_ms: tuple[float, float]
) -> None:
    found = Latency(least_ms * MS, most_ms * MS, is_open_ended)
    assert found.text == text
    assert found.bounds_ns == pytest.approx([bound * MS for bound in bounds_ms])


def test_a_latency_is_read_from_an_ops_figures() -> None:
    op = op_figures(
        response_ns={"p99": 9.0, "max": 4.0}, response_undelayed_ns={"p99": 3.0}, response_at_least=("max",)
    )
    assert latency_of(op, "response", "p99") == Latency(3.0, 9.0)
    assert latency_of(op, "response", "max") == Latency(4.0, 4.0, is_open_ended=True)
    assert latency_of(op, "response", "p50") is None
    assert latency_of(op, "service", "p99") is None


def test_ops_sent_later_than_the_next_one_is_due_are_bursts_if_they_are_more_than_a_tenth() -> None:
    late = Histogram(np.full(150, 3 * MS))
    assert sent_in_bursts(late, 1_000, 2.0) == 0.15  # one op is due every 2 ms
    assert sent_in_bursts(late, 1_000, 4.0) == 0.0  # every 4 ms: each is sent before the next is due
    assert sent_in_bursts(Histogram(np.full(90, 3 * MS)), 1_000, 2.0) == 0.0  # 9 %
    assert sent_in_bursts(Histogram(), 0, 2.0) == 0.0
