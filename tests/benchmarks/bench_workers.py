"""Scaling of the load generator itself: two load processes compared with one, on a session that does nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS, ROUNDS = 5, 3
SCENARIO = """
question = "How many ops do the load processes do themselves?"
[world]
use_case = "sensors"
scale = 100
[load]
window = "1m"
[drive]
loop = "closed"
users = 50
wait = ["0s", "0s"]
warmup = "1s"
duration = "{seconds}s"
processes = {processes}
[[op]]
write = 1
[target]
name = "null"
"""


def main() -> None:
    """Print the rates, and the ratio's median over rounds in turn."""
    found: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-") as directory:
        for _ in range(ROUNDS):
            for processes, rates in found.items():
                rates.append(rate(processes, Path(directory)))
    for processes, rates in found.items():
        each = ", ".join(f"{r:,.0f}" for r in rates)
        print(f"{processes} processes {statistics.median(rates):>10,.0f} ops/s   ({each})")
    ratio = statistics.median(two / one for one, two in zip(found[1], found[2], strict=True))
    print(f"two / one: {ratio:.2f}   (wanted: 1.8 at least, on two cores)")


def rate(processes: int, directory: Path) -> float:
    """Return the ops per second of a run with `processes` load processes."""
    scenario = directory / f"null-{processes}.toml"
    scenario.write_text(SCENARIO.format(seconds=SECONDS, processes=processes))
    command = [str(Path(sys.executable).parent / "tsbench"), "run", str(scenario), "--out", str(directory / "results")]
    before = set(directory.glob("results/*/*/summary.json"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:  # 1: it says itself that nothing but the load generator was the limit
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    (summary,) = set(directory.glob("results/*/*/summary.json")) - before
    return float(json.loads(summary.read_text())["measured"]["ops"]["write-1"]["ops_per_s"])


if __name__ == "__main__":
    main()
