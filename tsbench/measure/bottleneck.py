"""Decide whether the database or the load generator was the limit: a pure function of the run's measurements."""

from __future__ import annotations

from dataclasses import dataclass

from tsbench.model import Verdict
from tsbench.results.summary import CLIENT

DATABASE = "database"
THINK_TIME = "think time"
NOTHING = "nothing"
UNKNOWN = "unknown"

HUB_CPU_SHARE = 0.85
"""CPU share of an event loop above which ops queue: at 80 % of a core a 1 ms op was already sent 1 ms late (median)."""
UNSENT_SHARE = 0.05
"""A closed loop had the generator's rate if it would be higher by more than this with every op sent in time."""
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
    payload_wait_share: float = 0.0
    """Share of its users' time in which they waited for encoded writes."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """Mean think time and response time of the whole run in ns, and the number of open-loop arrivals.

    `delayed_ns` is how late an op was sent in the mean, which is a part of the response time. `late` are arrivals that
    had to wait for a session.
    """

    think_ns: float
    response_ns: float
    delayed_ns: float = 0.0
    scheduled: int = 0
    late: int = 0
    dropped: int = 0

    @classmethod
    def of_users(cls, users: float, duration_s: float, done: int, response_ns: float, **more: float) -> LoadProfile:
        """Return the profile of users who ended `done` ops: the time outside responses was think time."""
        each_ns = users * duration_s * 1e9 / max(1, done)
        return cls(max(0.0, each_ns - response_ns), response_ns, **more)  # type: ignore[arg-type]

    @property
    def unsent_share(self) -> float:
        """By how much a closed loop's rate would be higher if every op had been sent when its think time was over."""
        cycle_ns = self.think_ns + self.response_ns
        return self.delayed_ns / max(1.0, cycle_ns - self.delayed_ns)


def client_bound(evidence: Evidence) -> str:
    """Return the reason why a load process was the limit, with the numbers; "" if it was not."""
    if evidence.hub_cpu_share >= HUB_CPU_SHARE:
        return f"its event loop used {evidence.hub_cpu_share:.0%} of a core"
    if evidence.payload_wait_share > PAYLOAD_WAIT_SHARE:
        return f"its users waited {evidence.payload_wait_share:.0%} of their time for writes to be encoded"
    return ""


def limited_by(
    processes: list[Evidence], profile: LoadProfile, disturbed: str = "", *, users: int = 0
) -> tuple[str, Verdict]:
    """Return the limiting factor of a run, and a verdict on whether the run measured the database.

    A closed loop that the load generator held back has lower rates than the database can give, and right latencies: its
    verdict is valid, with the reason why its rates are "at least". An open loop that it held back is inconclusive: the
    database never had the load that was asked for. `disturbed` says what else used the machine meanwhile, which is
    then the likelier cause than the load; `users` is their number, 0 if it is not known.
    """
    if not processes:
        return UNKNOWN, Verdict(None, "no load process reported on itself")
    causes = [cause for cause in map(client_bound, processes) if cause]
    cure = f"{disturbed}: {QUIET}" if disturbed else more_load(users, len(processes), is_open=bool(profile.scheduled))
    if causes:
        count = f"{len(causes)} of {len(processes)} load processes: " if len(processes) > 1 else ""
        reason = f"the load generator was the limit ({count}{causes[0]}); {cure}"
        return CLIENT, Verdict(None if profile.scheduled else True, reason)
    if profile.scheduled:
        held = profile.late + profile.dropped <= LATE_SHARE * profile.scheduled
        return (NOTHING if held else DATABASE), Verdict(True)
    if not profile.response_ns:
        return UNKNOWN, Verdict(True)  # no op ended, which another check says
    if profile.unsent_share > UNSENT_SHARE:
        more = f"sent in time, ops would have come at a rate {profile.unsent_share:.0%} higher"
        return CLIENT, Verdict(True, f"the load generator was the limit ({more}); {cure}")
    is_think_time = profile.think_ns > 4 * (profile.response_ns - profile.delayed_ns)
    return (THINK_TIME if is_think_time else DATABASE), Verdict(True)


def has_few_users(users: int, processes: int) -> bool:
    """Return True if each load process has one user at most, so that more processes would do nothing; 0: not known."""
    return 0 < users <= processes


def more_load(users: int, processes: int, *, is_open: bool = False) -> str:
    """Return what makes a load generator keep up that was the limit, given its numbers of users and processes."""
    if has_few_users(users, processes):
        return "more users would show how much the database can take"
    return f"use more processes{' or more hosts' if is_open else ', more hosts or fewer users'}"
