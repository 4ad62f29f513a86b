"""Was it the database that was measured, or the load generator? A pure decision on evidence that the run collects."""

from __future__ import annotations

from dataclasses import dataclass

from tsbench.model import Verdict

CLIENT = "load generator"
DATABASE = "database"
THINK_TIME = "think time"
NOTHING = "nothing"
UNKNOWN = "unknown"

HUB_CPU_SHARE = 0.85
"""From here on ops queue for the process's own CPU: at 80 % of a core a 1 ms op already had a median of 2 ms."""
LAG_FLOOR_NS = 1_000_000
"""Lag below a millisecond is what an idle event loop on a shared machine shows."""
LAG_SHARE = 0.25
"""Lag above this share of the service time distorts what is reported by more than a quarter."""
LATE_SHARE = 0.01
"""An open loop with more late or dropped arrivals than this did not hold its rate."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one load process saw of itself in the measured window; durations in ns, the CPU as a share of one core."""

    hub_cpu_share: float
    hub_lag_p50_ns: int
    hub_lag_p99_ns: int
    pool_wait_p50_ns: int
    service_p50_ns: int


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """How the ops of the whole run went: mean think time and response in ns; arrivals of an open loop.

    `late` are those that had to wait for a session.
    """

    think_ns: float
    response_ns: float
    scheduled: int = 0
    late: int = 0
    dropped: int = 0


def client_bound(evidence: Evidence) -> str:
    """Why the process itself was the limit, with the numbers; empty when it was not."""
    if evidence.hub_cpu_share >= HUB_CPU_SHARE:
        return f"its event loop used {evidence.hub_cpu_share:.0%} of a core"
    allowed_ns = max(LAG_FLOOR_NS, LAG_SHARE * evidence.service_p50_ns)
    if evidence.hub_lag_p50_ns > allowed_ns:
        return f"its event loop ran {evidence.hub_lag_p50_ns / 1e6:.1f} ms late (median)"
    if evidence.pool_wait_p50_ns > allowed_ns:
        return f"ops waited {evidence.pool_wait_p50_ns / 1e6:.1f} ms (median) for a thread"
    return ""


def limited_by(processes: list[Evidence], conduct: LoadProfile) -> tuple[str, Verdict]:
    """What limited the run, and whether it therefore says something about the database.

    A run that the load generator limited gets "could not tell", whatever its figures: they are the generator's.
    """
    if not processes:
        return UNKNOWN, Verdict(None, "no load process reported on itself")
    causes = [cause for cause in map(client_bound, processes) if cause]
    if causes:
        cure = "use more processes, more hosts or fewer users"
        count = f"{len(causes)} of {len(processes)} load processes: " if len(processes) > 1 else ""
        return CLIENT, Verdict(None, f"the load generator was the limit ({count}{causes[0]}); {cure}")
    if conduct.scheduled:
        held = conduct.late + conduct.dropped <= LATE_SHARE * conduct.scheduled
        return (NOTHING if held else DATABASE), Verdict(True)
    return (THINK_TIME if conduct.think_ns > 4 * conduct.response_ns else DATABASE), Verdict(True)
