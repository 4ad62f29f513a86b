"""Verify which percentiles are believed, on 200 simulated runs whose truth is known: `bench_believable.py [CASES]`.

Half of the cases are open loops. The client is slow in some (its event loop stands still, works too long for each op,
or gets no CPU), the server in others (pauses), both or neither in the rest. The truth is the same run with a client
that delays nobody. A case is right if its load generator raised every percentile that is believed by at most 13 %, and
the first one that is not by at least 7 %: the limit is 10 %. Also printed is how many are right if a difference below
the stated resolution counts as none.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own simulation

from tests.measure.simulated_client import MS, US, Case, S, Simulation
from tsbench.measure.believable import RESOLUTION_NS, believable_percentile
from tsbench.measure.hist import Histogram

PERCENTS = (50.0, 90.0, 99.0, 99.9)
KINDS = ("neither", "loop stands still", "server pauses", "no CPU", "loop stands still and server pauses", "slow work")
TOO_HIGH, TOO_LOW = 0.13, 0.07


def case(number: int, rng: np.random.Generator) -> Case:
    """Return a random case of the kind `number % 6`, in an open loop if the number is odd."""
    kind = KINDS[number % len(KINDS)]
    users, service_ns = int(rng.integers(2, 40)), int(10 ** rng.uniform(5.7, 7.7))
    made: dict[str, float] = {
        "spread": rng.uniform(0.1, 0.6),
        "think_ns": int(10 ** rng.uniform(6.5, 8)),
        "rate_per_s": rng.uniform(0.05, 0.5) * min(users * S / service_ns, 2_000) if number % 2 else 0.0,
        "work_ns": int(10 ** rng.uniform(5, 6.2)) if kind == "slow work" else int(rng.uniform(5, 40) * US),
    }
    if "stands still" in kind:
        made |= {"stall_ns": int(10 ** rng.uniform(6, 8.5)), "stall_every_ns": int(10 ** rng.uniform(7.5, 9.3))}
    if "pauses" in kind:
        made |= {"pause_ns": int(10 ** rng.uniform(7, 8.7)), "pause_every_ns": int(10 ** rng.uniform(8.7, 9.6))}
    if kind == "no CPU":
        made |= {"starved_share": 10 ** rng.uniform(-3, -0.3), "starved_ns": int(10 ** rng.uniform(5.7, 7.3))}
    return Case(seed=number, users=users, service_ns=service_ns, **made)  # type: ignore[arg-type]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rng, began_s = np.random.default_rng(5), time.perf_counter()
    strictly = within = 0
    for number in range(count):
        of = case(number, rng)
        seen, truth = Simulation(of).run(), Histogram(Simulation(of.ideal()).run().response)
        held = believable_percentile(*seen.histograms(), PERCENTS)
        measured = Histogram(seen.response)
        raised = {p: (measured.percentile_ns(p) - truth.percentile_ns(p)) for p in PERCENTS}
        shares = {p: raised[p] / measured.percentile_ns(p) for p in PERCENTS}
        beyond = [p for p in PERCENTS if p > held]
        is_low = bool(beyond) and shares[beyond[0]] < TOO_LOW
        too_high = [p for p in PERCENTS if p <= held and shares[p] > TOO_HIGH]
        is_noticeable = any(raised[p] > RESOLUTION_NS for p in too_high)
        strictly += not is_low and not too_high
        within += not is_low and not is_noticeable
        if is_low or too_high:
            figures = ", ".join(f"p{p:g} {shares[p]:+.0%} ({raised[p] / MS:+.2f} ms)" for p in PERCENTS)
            loop = "open" if number % 2 else "closed"
            side = "too few" if is_low else "too many"
            print(f"  case {number} ({loop}, {KINDS[number % 6]}): {side} believed, up to p{held:g}; raised: {figures}")
    print(f"{strictly} of {count} right, {within} within the resolution of {RESOLUTION_NS / MS:g} ms", end="")
    print(f"   (wanted: 95 %; {time.perf_counter() - began_s:.0f} s)")


if __name__ == "__main__":
    main()
