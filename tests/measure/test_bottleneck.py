from __future__ import annotations

from dataclasses import replace

import pytest

from tsbench.measure.bottleneck import (
    DATABASE,
    HUB_CPU_SHARE,
    NOTHING,
    THINK_TIME,
    UNKNOWN,
    Evidence,
    LoadProfile,
    client_bound,
    limited_by,
)
from tsbench.results.summary import CLIENT

MS = 1_000_000
CALM = Evidence(hub_cpu_share=0.2, hub_lag_p50_ns=100_000, hub_lag_p99_ns=MS, pool_wait_p50_ns=50_000)
BUSY = LoadProfile(think_ns=0, response_ns=2 * MS)


@pytest.mark.parametrize(
    ("processes", "profile", "limit", "valid"),
    [
        ([], BUSY, UNKNOWN, None),
        ([CALM], BUSY, DATABASE, True),
        ([CALM, CALM], BUSY, DATABASE, True),
        # the processor of a load process
        ([replace(CALM, hub_cpu_share=HUB_CPU_SHARE - 0.01)], BUSY, DATABASE, True),
        ([replace(CALM, hub_cpu_share=HUB_CPU_SHARE)], BUSY, CLIENT, True),
        ([CALM, replace(CALM, hub_cpu_share=1.0)], BUSY, CLIENT, True),
        # how late ops were sent: the rate would be 5 % higher at 1 of 21 ms
        ([CALM], LoadProfile(think_ns=0, response_ns=21 * MS, delayed_ns=MS), DATABASE, True),
        ([CALM], LoadProfile(think_ns=0, response_ns=21 * MS, delayed_ns=MS + 1), CLIENT, True),
        ([CALM], LoadProfile(think_ns=18 * MS, response_ns=3 * MS, delayed_ns=MS), THINK_TIME, True),
        ([CALM], LoadProfile(think_ns=18 * MS, response_ns=3 * MS, delayed_ns=MS + 1), CLIENT, True),
        ([CALM], replace(BUSY, delayed_ns=MS, scheduled=1_000), NOTHING, True),
        # think time of a closed loop
        ([CALM], LoadProfile(think_ns=99 * MS, response_ns=0), UNKNOWN, True),  # no op ended
        ([CALM], LoadProfile(think_ns=8 * MS, response_ns=2 * MS), DATABASE, True),
        ([CALM], LoadProfile(think_ns=8 * MS + 1, response_ns=2 * MS), THINK_TIME, True),
        ([replace(CALM, hub_cpu_share=0.99)], LoadProfile(think_ns=99 * MS, response_ns=MS), CLIENT, True),
        # the rate of an open loop
        ([CALM], replace(BUSY, scheduled=1_000), NOTHING, True),
        ([CALM], replace(BUSY, scheduled=1_000, late=6, dropped=4), NOTHING, True),
        ([CALM], replace(BUSY, scheduled=1_000, late=6, dropped=5), DATABASE, True),
        ([CALM], replace(BUSY, scheduled=1_000, late=1_000), DATABASE, True),
        ([replace(CALM, hub_cpu_share=0.9)], replace(BUSY, scheduled=1_000, late=900), CLIENT, None),
    ],
)
def test_what_limited_a_run_follows_from_the_evidence(
    processes: list[Evidence], profile: LoadProfile, limit: str, valid: bool | None
) -> None:
    name, verdict = limited_by(processes, profile)
    assert (name, verdict.valid) == (limit, valid)
    assert bool(verdict.reason) == (valid is not True or name == CLIENT)


@pytest.mark.parametrize(
    ("users", "processes", "cure"),
    [
        (1, 1, "more users would show"),
        (2, 2, "more users would show"),
        (8, 1, "more processes, more hosts or fewer users"),
        (0, 1, "more processes, more hosts or fewer users"),  # not known
    ],
)
def test_the_cure_fits_the_users(users: int, processes: int, cure: str) -> None:
    late = LoadProfile(think_ns=0, response_ns=3 * MS, delayed_ns=MS)
    assert cure in limited_by([CALM] * processes, late, users=users)[1].reason
    assert "quiet" not in limited_by([CALM] * processes, late, users=users)[1].reason
    assert (
        "does nothing else" in limited_by([CALM] * processes, late, "other programs used 1 core", users=users)[1].reason
    )


def test_the_reason_has_the_number_and_how_many_processes_it_concerns() -> None:
    hot = replace(CALM, hub_cpu_share=0.97)
    assert "97%" in client_bound(hot)
    late = LoadProfile(think_ns=0, response_ns=3 * MS, delayed_ns=MS)
    assert "50% higher" in limited_by([CALM], late)[1].reason
    assert "1 of 3 load processes" in limited_by([CALM, hot, CALM], BUSY)[1].reason
    assert "of 1" not in limited_by([hot], BUSY)[1].reason
