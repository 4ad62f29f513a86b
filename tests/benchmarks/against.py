"""Speed of this checkout beside another one of tsbench, for example the commit before: `against.py CHECKOUT`.

    git worktree add --detach ../before HEAD~1 && make -C ../before venv

Both do the same work by their own `tsbench` command, in turn, so that a machine whose speed drifts favours neither. Of
each pair the ratio of the rates is taken; printed are the median of the ratios and their range, which for 7 pairs is
the 98 % confidence interval of the median. A ratio above 1 means that this checkout is faster.

The HTTP server of either run is started by this checkout, anew and in the same way, since the clients are compared: as
another user the same influxd takes up to a fifth more CPU time for a request.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_http import serving

HERE = Path(__file__).parents[2]
LINES = 24 * 360 * 400  # of one day of cpu-only, 400 hosts, every 10 s

SCENARIO = """
question = "How fast is the client?"
[world]
use_case = "{use_case}"
scale = {scale}
[load]
window = "{window}"
[drive]
users = {users}
wait = "0s"
warmup = "1s"
duration = "5s"
processes = {processes}
[check]
answers = 0
readback = 0
[[op]]
write = 1
[target]
name = "{target}"
"""


SCENARIO_KEYS = ("use_case", "scale", "window", "users", "processes", "target")


@dataclass(frozen=True)
class Work:
    """One kind of work: the scenario of a run (none: `tsbench generate`), and where in its summary the rate is."""

    unit: str
    use_case: str = "cpu-only"
    scale: int = 100
    window: str = "1m"
    users: int = 8
    processes: int = 1
    target: str = ""
    is_load: bool = False
    is_served: bool = False

    def rate(self, checkout: Path, directory: Path) -> float:
        """Do the work with a checkout's command and return its rate."""
        tsbench = str(checkout / ".venv" / "bin" / "tsbench")
        if not self.target:
            began_s = time.perf_counter()
            run([tsbench, "generate", "--scale", "400", "--out", os.devnull])
            return LINES / (time.perf_counter() - began_s)
        scenario = directory / "scenario.toml"
        scenario.write_text(SCENARIO.format(**{key: getattr(self, key) for key in SCENARIO_KEYS}))
        results = directory / f"results-{time.monotonic_ns()}"
        with serving(directory) if self.is_served else nullcontext(("", directory)) as (endpoint, _):
            place = ["--endpoint", endpoint] if endpoint else []
            run([tsbench, "run", str(scenario), *place, "--out", str(results)])
        (path,) = results.glob("*/*/summary.json")
        summary = json.loads(path.read_text(encoding="utf-8"))
        if self.is_load:
            return float(summary["load"]["points_per_s"])
        return float(summary["measured"]["ops"]["write-1"]["ops_per_s"])


WORKS = {
    "generate": Work("lines/s"),
    "load": Work("points/s", window="12h", target="postgres", is_load=True),
    "http": Work("requests/s", users=50, target="influxdb1", use_case="sensors", is_served=True),
    "ceiling": Work("ops/s", target="null"),
    "workers": Work("ops/s", users=50, processes=2, target="null", use_case="sensors"),
}


def run(command: list[str]) -> None:
    """Run a command; 1 is an accepted exit code, because a run that finds the client to be the limit ends with it."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="the other checkout, with its own .venv (make venv)")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    given = parser.parse_args()
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # memory: it is the clients that differ
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir=where) as directory:
        for name in given.only:
            work = WORKS[name]
            pairs = []
            for _ in range(given.pairs):
                theirs, ours = (work.rate(each, Path(directory)) for each in (given.checkout, HERE))
                pairs.append((theirs, ours))
            ratios = sorted(ours / theirs for theirs, ours in pairs)
            before, now = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"{name:9} {before:>11,.0f} before, {now:>11,.0f} {work.unit:10} now;"
                f" ratio {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
