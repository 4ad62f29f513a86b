"""Verify on real runs which figures a run calls the database's, and which its own load generator's.

First twenty runs, with and without a greenlet that burns the load process's CPU, at 1 ms per op: how often the verdict
"limited by the load generator" was right. Then ten runs, of open and closed loops: the load generator is slow in its
median or its tail, the database in its tail, both or neither; printed is up to which percentile each run was believed.
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
from tsbench.run import locust_process

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = 20
BURNING = Path(__file__).parents[1] / "drive" / "burning.py"
LOAD = document(
    drive={"users": 8, "wait": "10ms", "duration": "2s"},
    op=[{"write": 1}],
    target={"name": "null", "settings": {"service": "1ms"}},
)
STALL = {"stall_at": "2s", "stall": "1s"}
TAIL = 0.1, 0.9
"""The event loop stands still for a tenth of each second."""


@dataclass(frozen=True)
class Case:
    """A run: for how long the load generator burns its CPU and rests, s, and the percentiles that may be the last."""

    name: str
    burns: tuple[float, float] | None
    stalls: bool
    closed: tuple[float, ...]
    opened: tuple[float, ...]


ALL = (99.0, 99.9)
CASES = (
    Case("neither is slow", None, False, ALL, ALL),
    Case("load generator slow in the median", (0.008, 0.001), False, (0.0,), (0.0,)),
    Case("load generator slow in the tail", TAIL, False, (50.0, 90.0), (50.0, 90.0)),
    Case("database slow in the tail", None, True, ALL, ALL),
    Case("both slow in the tail", TAIL, True, (50.0, 90.0), ALL),  # 1 s lost delays one op of each closed-loop user
)


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
        for loop, wanted_last in (("closed", case.closed), ("open", case.opened)):
            drive = {"users": 40, "wait": "50ms", "warmup": "1s", "duration": "6s"}
            drive |= {"loop": "open", "rate": 200, "wait": "0s"} if loop == "open" else {}
            settings = {"service": "5ms", **(STALL if case.stalls else {})}
            summary = done({**LOAD, "drive": drive, "target": {"name": "null", "settings": settings}}, case.burns)
            held = summary["validity"]["believable_percentile"]["write"]
            right += held in wanted_last
            allowed = " or ".join(f"{p:g}" for p in wanted_last)
            print(f"{case.name:33} {loop:6} loop: believed up to p{held:g} (wanted: {allowed})", flush=True)
    print(f"{right} of {2 * len(CASES)} right")


if __name__ == "__main__":
    main()
