"""Speed of generating points, compared with TSBS's generator: `make bench`, or run this file.

Both write line protocol of the same size of world to the same kind of place, each as a process of its own whose
start-up counts. The peer's binary, tsbs_generate_data, is looked for in the directory TSBS_BIN and on the PATH.
Figures of a shared machine are noisy: the runs alternate, and the best of each counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BEGIN = "2016-01-01T00:00:00Z"
BEGIN_NS = 1_451_606_400 * 10**9
TICKS_PER_HOUR = 360
LINES_PER_TICK = {"cpu-only": 1, "devops": 9}
HOURS = {"cpu-only": 168, "devops": 24}
WANTED = {"cpu-only": 2.5, "devops": 2.0}
RSS_LIMIT = 1.10
OURS = f"""
import sys
from tsbench.run.generate import generate, output
from tsbench.scenario.use_case import built_in_spec
use_case, scale, ticks, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
spec = built_in_spec(use_case, scale, 123, {BEGIN_NS}, 10**10, form="peer")
with output(path) as out:
    generate(spec, spec.start_ns + ticks * 10**10, "influx", out)
"""


@dataclass(frozen=True)
class Cost:
    """Resources that one process used."""

    wall_s: float
    cpu_s: float
    rss_mb: float


def run(command: list[str], path: str) -> Cost:
    """Run a generator with its output to a file or device."""
    with Path(path).open("wb") as out:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def ours(use_case: str, scale: int, ticks: int) -> list[str]:
    """Return our command, which writes to standard output."""
    return [sys.executable, "-c", OURS, use_case, str(scale), str(ticks), "-"]


def peers(binary: str, use_case: str, scale: int, ticks: int) -> list[str]:
    """Return TSBS's command for the same world."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN_NS // 10**9 + ticks * 10))
    return [
        binary,
        f"--use-case={use_case}",
        f"--scale={scale}",
        "--seed=123",
        f"--timestamp-start={BEGIN}",
        f"--timestamp-end={end}",
        "--log-interval=10s",
        "--format=influx",
    ]


def find_peer() -> str | None:
    """Return TSBS's generator, None if this machine does not have it."""
    directory = os.environ.get("TSBS_BIN")
    return shutil.which("tsbs_generate_data", path=directory) or shutil.which("tsbs_generate_data")


def compare(use_case: str, binary: str | None, path: str, repeats: int, scale: int = 100) -> bool:
    """Print the rates of one use case; return True if ours is fast enough, or without a comparison."""
    ticks = HOURS[use_case] * TICKS_PER_HOUR
    lines = ticks * scale * LINES_PER_TICK[use_case]
    commands = {"tsbench": ours(use_case, scale, ticks)}
    if binary is not None:
        commands["peer"] = peers(binary, use_case, scale, ticks)
    best: dict[str, Cost] = {}
    for _ in range(repeats):
        for who, command in commands.items():
            cost = run(command, path)
            if who not in best or cost.wall_s < best[who].wall_s:
                best[who] = cost
    for who, cost in best.items():
        print(
            f"{use_case:9} {who:8} {lines:>12,} lines {cost.wall_s:7.2f} s {lines / cost.wall_s:>12,.0f} lines/s"
            f" {cost.cpu_s / lines * 1e6:6.2f} CPU s per million points"
        )
    if "peer" not in best:
        return True
    ratio = best["peer"].wall_s / best["tsbench"].wall_s
    good = ratio >= WANTED[use_case]
    print(f"{use_case:9} ratio {ratio:.2f}, wanted {WANTED[use_case]}: {'reached' if good else 'MISSED'}")
    return good


def memory(use_case: str, lines: int = 3_000_000) -> bool:
    """Print the memory at two scales; return True if it does not grow."""
    rss_mb = {}
    for scale in (100, 10_000):
        ticks = lines // (scale * LINES_PER_TICK[use_case])
        rss_mb[scale] = run(ours(use_case, scale, ticks), os.devnull).rss_mb
    ratio = rss_mb[10_000] / rss_mb[100]
    good = ratio <= RSS_LIMIT
    figures = ", ".join(f"{size:.0f} MB at scale {scale:,}" for scale, size in rss_mb.items())
    print(f"{use_case:9} RSS {figures}: ratio {ratio:.2f}, wanted {RSS_LIMIT}: {'reached' if good else 'MISSED'}")
    return good


def main() -> None:
    """Print the tables; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=os.devnull, help="where both write to (overwritten each time)")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    binary = find_peer()
    if binary is None:
        print("peer not found: set TSBS_BIN")
    good = [compare(name, binary, arguments.output, arguments.repeats) for name in WANTED]
    good += [memory(name) for name in WANTED]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
