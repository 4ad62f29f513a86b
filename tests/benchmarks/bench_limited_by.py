"""Verify on real runs which figures a run calls the database's, and which its own load generator's.

First twenty runs, with and without a greenlet that burns the load process's CPU, at 1 ms per op: how often the verdict
"limited by the load generator" was right. Then ten runs, of open and closed loops: the load generator is slow in its
median or its tail, the database in its tail, both or neither; printed is up to which percentile each run was believed,
and up to which one it should have been.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own helpers

from tests.drive.support import document, run
from tsbench.measure.believable import CHANGE, RESOLUTION_NS, TIMER_NS
from tsbench.run import locust_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMES = 20
BURNING = Path(__file__).parents[1] / "drive" / "burning.py"
LOAD = document(
    drive={"users": 8, "wait": "10ms", "duration": "2s"},
    op=[{"write": 1}],
    target={"name": "null", "settings": {"service": "1ms"}},
)
SERVICE_NS = 20_000_000
STALL = {"stall_at": "2s", "stall": "1s"}
TAIL = 0.1, 0.85
"""The event loop stands still for a tenth of the time.

Closed-loop users, which all wake after it, do an op every 70 ms from then on; 850 ms later they are within one.
"""
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(frozen=True)
class Case:
    """A run: for how long the load generator burns its CPU and rests, s, and whether the database stalls for 1 s."""

    name: str
    burns: tuple[float, float] | None
    stalls: bool


CASES = (
    Case("neither is slow", None, False),
    Case("load generator slow in the median", (0.03, 0.002), False),
    Case("load generator slow in the tail", TAIL, False),
    Case("database slow in the tail", None, True),
    Case("both slow in the tail", TAIL, True),
)


def expected(case: Case, response_ns: Mapping[str, int]) -> tuple[float, float]:
    """Return the lowest and the highest percentile that may be the last believed one.

    Each op takes SERVICE_NS: what is measured above that is the load generator's delay, except for up to a millisecond
    (TIMER_NS) by which the database's own sleep may end late. A stall of the database hits more than 1 % of the ops and
    is longer than any delay.
    """
    if case.stalls:
        return 99.0, 100.0
    last = [0.0, 0.0]
    for place, database_ns in enumerate((SERVICE_NS, SERVICE_NS + TIMER_NS)):
        for name, percent in PERCENTS.items():
            if response_ns[name] - database_ns > max(CHANGE * response_ns[name], RESOLUTION_NS):
                break
            last[place] = percent
    return last[0], last[1]


@contextmanager
def burning(burns: tuple[float, float] | None) -> Iterator[None]:
    """Let load processes burn their CPU for so many seconds, and rest for so many, again and again."""
    calm = locust_process.LOCUSTFILE
    if burns is not None:
        locust_process.LOCUSTFILE = BURNING
        os.environ["BURN_S"], os.environ["REST_S"] = map(str, burns)
    try:
        yield
    finally:
        locust_process.LOCUSTFILE = calm


def done(load: dict[str, Any], burns: tuple[float, float] | None) -> dict[str, Any]:
    """Run a load and return its summary."""
    with tempfile.TemporaryDirectory() as directory, burning(burns):
        return run(Path(directory), load)


def main() -> None:
    for name, burns in (("burning its CPU", (0.008, 0.001)), ("left alone", None)):
        called = sum(done(LOAD, burns)["limited_by"] == "load generator" for _ in range(TIMES))
        wanted = TIMES if burns else 0
        print(f"load process {name}: called the limit {called} of {TIMES} times (wanted: {wanted})", flush=True)
    right = 0
    for case in CASES:
        for loop in ("closed", "open"):
            drive = {"users": 40, "wait": "50ms", "warmup": "1s", "duration": "6s"}
            drive |= {"loop": "open", "rate": 200, "users": 300, "wait": "0s"} if loop == "open" else {}
            settings = {"service": f"{SERVICE_NS // 1_000_000}ms", **(STALL if case.stalls else {})}
            summary = done({**LOAD, "drive": drive, "target": {"name": "null", "settings": settings}}, case.burns)
            held = summary["validity"]["believable_percentile"].get("write", 100.0)
            response_ns = summary["measured"]["write"]["response_ns"]
            lowest, highest = expected(case, response_ns)
            right += lowest <= held <= highest
            figures = ", ".join(f"{name} {response_ns[name] / 1e6:.1f} ms" for name in PERCENTS)
            print(
                f"{case.name:32} {loop:6}: believed up to p{held:g}, wanted: {lowest:g} to {highest:g}; {figures}",
                flush=True,
            )
    print(f"{right} of {2 * len(CASES)} right")


if __name__ == "__main__":
    main()
