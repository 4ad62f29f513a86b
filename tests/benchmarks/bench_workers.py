"""Scaling of the load generator itself: two load processes compared with one, on a session that does nothing."""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own helpers

from tests.benchmarks.against import HERE, WORKERS

ROUNDS = 3


def main() -> None:
    """Print the rates, and the ratio's median over rounds in turn."""
    found: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-") as directory:
        for _ in range(ROUNDS):
            for processes, rates in found.items():
                rates.append(replace(WORKERS, processes=processes).rate(HERE, Path(directory)))
    for processes, rates in found.items():
        each = ", ".join(f"{r:,.0f}" for r in rates)
        print(f"{processes} processes {statistics.median(rates):>10,.0f} ops/s   ({each})")
    ratio = statistics.median(two / one for one, two in zip(found[1], found[2], strict=True))
    print(f"two / one: {ratio:.2f}   (wanted: 1.8 at least, on two cores)")


if __name__ == "__main__":
    main()
