"""Decide whether the database or the load generator was the limit: a pure function of the run's measurements."""

from __future__ import annotations

from dataclasses import dataclass

from tsbench.model import Verdict

CLIENT = "load generator"
DATABASE = "database"
THINK_TIME = "think time"
NOTHING = "nothing"
UNKNOWN = "unknown"

HUB_CPU_SHARE = 0.85
"""CPU share of an event loop above which ops queue: at 80 % of a core a 1 ms op already took 2 ms (median)."""
LAG_FLOOR_NS = 1_000_000
"""Lag below a millisecond is normal for an idle event loop on a shared machine."""
LAG_SHARE = 0.25
"""Largest median lag of a run that measured the database, as a share of its median service time."""
PAYLOAD_WAIT_SHARE = 0.10
"""Share of the users' time that they waited for encoded writes, above which their rate is the load generator's."""
QUIET = "measure again while the machine does nothing else"
"""The cure for a run that was disturbed."""
LATE_SHARE = 0.01
"""An open loop with a larger share of late or dropped arrivals did not hold its rate."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One load process's self-observation in the measured window; durations in ns, CPU as a share of one core."""

    hub_cpu_share: float
    hub_lag_p50_ns: int
    hub_lag_p99_ns: int
    pool_wait_p50_ns: int
    service_p50_ns: int
    payload_wait_share: float = 0.0
    """Share of its users' time in which they waited for encoded writes."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """Mean think time and response time of the whole run in ns, and the number of open-loop arrivals.

    `late` are those that had to wait for a session.
    """

    think_ns: float
    response_ns: float
    scheduled: int = 0
    late: int = 0
    dropped: int = 0


def client_bound(evidence: Evidence) -> str:
    """Return the reason why a load process was the limit, with the numbers; "" if it was not."""
    if evidence.hub_cpu_share >= HUB_CPU_SHARE:
        return f"its event loop used {evidence.hub_cpu_share:.0%} of a core"
    allowed_ns = max(LAG_FLOOR_NS, LAG_SHARE * evidence.service_p50_ns)
    if evidence.hub_lag_p50_ns > allowed_ns:
        return f"its event loop ran {evidence.hub_lag_p50_ns / 1e6:.1f} ms late (median)"
    if evidence.pool_wait_p50_ns > allowed_ns:
        return f"ops waited {evidence.pool_wait_p50_ns / 1e6:.1f} ms (median) for a thread"
    if evidence.payload_wait_share > PAYLOAD_WAIT_SHARE:
        return f"its users waited {evidence.payload_wait_share:.0%} of their time for writes to be encoded"
    return ""


def limited_by(processes: list[Evidence], profile: LoadProfile, disturbed: str = "") -> tuple[str, Verdict]:
    """Return the limiting factor of a run, and a verdict on whether the run measured the database.

    A run that the load generator limited is inconclusive, whatever its figures: they describe the generator. For other
    runs, `believable` finds the percentile up to which latencies can be believed. `disturbed` says what else used the
    machine meanwhile, which is then the likelier cause than the load.
    """
    if not processes:
        return UNKNOWN, Verdict(None, "no load process reported on itself")
    causes = [cause for cause in map(client_bound, processes) if cause]
    if causes:
        cure = "use more processes, more hosts or fewer users"
        if disturbed:
            cure = f"{disturbed}: {QUIET}"
        count = f"{len(causes)} of {len(processes)} load processes: " if len(processes) > 1 else ""
        return CLIENT, Verdict(None, f"the load generator was the limit ({count}{causes[0]}); {cure}")
    if profile.scheduled:
        held = profile.late + profile.dropped <= LATE_SHARE * profile.scheduled
        return (NOTHING if held else DATABASE), Verdict(True)
    return (THINK_TIME if profile.think_ns > 4 * profile.response_ns else DATABASE), Verdict(True)
