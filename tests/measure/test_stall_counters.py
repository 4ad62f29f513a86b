"""Each counter is made by hand: it rises in the stall, at another time, by chance, or not at all."""

import numpy as np
import polars as pl
import pytest

from tsbench.measure.stall_counters import MOST_COUNTERS, counters_in_stalls
from tsbench.results.figures import CounterRise
from tsbench.results.panels import Panel
from tsbench.results.rundir import COUNTER_COLUMNS
from tsbench.results.tables import frame

SECONDS = np.arange(-5, 60)
STALL = (30, 31)
WAITS = Panel("Waits", "count", "gauge", {"waits": "for a lock"}, explains_stalls=True)
COMPACTIONS = Panel("Compactions", "bytes", "rate", {"compacted": "level 1"}, explains_stalls=True)


def counted(offset_s: float = 0.3, without: int | None = None, /, **values: np.ndarray) -> pl.DataFrame:
    """Rows of counters.parquet; `offset_s` is the time at which the sampler asks within a second."""
    rows = [
        {"second": float(second) + offset_s, "name": name, "value": float(value)}
        for name, column in values.items()
        for second, value in zip(SECONDS, column, strict=True)
        if second != without
    ]
    return frame(rows, COUNTER_COLUMNS)


def rises(counters: pl.DataFrame, *panels: Panel) -> tuple[CounterRise, ...]:
    (found,) = counters_in_stalls(counters, panels, [STALL])
    return found


def noise(mean: float, share: float = 0.1, seed: int = 1) -> np.ndarray:
    return mean * (1 + share * np.random.default_rng(seed).standard_normal(len(SECONDS)))


def high(values: np.ndarray, value: float, first_s: int = 30, last_s: int = 31) -> np.ndarray:
    return np.where((first_s <= SECONDS) & (last_s >= SECONDS), value, values)


@pytest.mark.parametrize("offset_s", [0.0, 0.3, 0.9])
def test_a_gauge_and_a_total_that_rise_in_the_stall_are_named_with_what_is_usual(offset_s):
    total = np.cumsum(high(noise(1e6), 50e6))
    found = rises(counted(offset_s, waits=high(noise(2), 8), compacted=total), WAITS, COMPACTIONS)
    assert [(r.counter, r.panel, r.label, r.unit, r.kind) for r in found] == [
        ("compacted", "Compactions", "level 1", "bytes", "rate"),
        ("waits", "Waits", "for a lock", "count", "gauge"),
    ]
    assert [rise.usual for rise in found] == pytest.approx([1e6, 2], rel=0.05)
    assert [rise.highest for rise in found] == pytest.approx([50e6, 8])
    assert found[0].deviations > found[1].deviations > 10


def test_a_counter_that_is_always_zero_but_in_the_stall_is_named():
    (found,) = rises(counted(waits=high(np.zeros(len(SECONDS)), 4)), WAITS)
    assert [found.usual, found.highest, found.deviations] == pytest.approx([0, 4, 100])


@pytest.mark.parametrize(
    "values",
    [
        noise(5),
        np.full(len(SECONDS), 7.0),
        high(noise(5), 0),  # it fell, as what the load makes falls
        high(noise(5), 50, 10, 14),
        high(noise(5), 50, 33, 36),
        (np.arange(len(SECONDS)) % 5 == 0) * 1.0,
    ],
    ids=["chance", "constant", "fell", "long before", "afterwards", "now and then"],
)
def test_a_counter_that_does_not_rise_in_the_stall_is_not_named(values):
    assert rises(counted(waits=values), WAITS) == ()


def test_of_two_hundred_counters_that_move_by_chance_hardly_one_is_named():
    found = [rises(counted(waits=noise(5, seed=seed)), WAITS) for seed in range(200)]
    assert sum(map(len, found)) <= 2


def test_a_counter_of_a_panel_that_explains_no_stall_is_not_named():
    panel = Panel("Waits", "count", "gauge", {"waits": "for a lock"})
    assert rises(counted(waits=high(noise(2), 8)), panel) == ()


def test_a_server_that_answered_only_after_the_stall_is_seen_all_the_same():
    """The row of second 29 was asked for before the stall and holds what the server answered after it."""
    total = np.cumsum(high(noise(1e6), 50e6, 29, 29))
    (found,) = rises(counted(0.1, 30, compacted=total), COMPACTIONS)
    assert found.counter == "compacted"


def test_a_total_that_fell_with_a_restart_is_no_rise_and_too_few_seconds_say_nothing():
    total = np.cumsum(noise(1e6))
    total[SECONDS >= 31] -= total[SECONDS == 31]
    assert rises(counted(compacted=total), COMPACTIONS) == ()
    assert rises(counted(waits=high(noise(2), 8)).filter(pl.col("second").is_between(28, 37)), WAITS) == ()
    assert rises(counted(), WAITS) == ()


def test_each_stall_has_its_own_counters_and_few_of_them():
    panels = [Panel(f"P{n}", "count", "gauge", {f"c{n}": "c"}, explains_stalls=True) for n in range(6)]
    values = pl.concat([counted(**{f"c{n}": high(noise(5, seed=n), 20 + n)}) for n in range(6)])
    first, second = counters_in_stalls(values, panels, [STALL, (50, 50)])
    assert len(first) == MOST_COUNTERS
    assert second == ()


def test_a_rate_that_rises_with_the_ops_that_are_caught_up_is_not_named_and_one_that_rises_more_is():
    for factor, named in ((3.0, 0), (9.0, 1)):
        rows = counted(compacted=np.cumsum(high(noise(1e6, 0.05), factor * 1e6, 32, 32)))
        (found,) = counters_in_stalls(rows, [COMPACTIONS], [STALL], [3.0])
        assert len(found) == named
        assert len(rises(rows, COMPACTIONS)) == 1  # in a closed loop nothing is caught up
