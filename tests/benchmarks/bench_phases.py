"""The phases as separate commands: `generate | load` beside `load --use-case` on InfluxDB, and files of queries.

Rounds alternate and the ratio is the median of the rounds' ratios, so that a machine whose speed drifts favours
neither. The rates of query files are per second of CPU of one process.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tsbench.model import Window
from tsbench.targets.influxdb.server import InfluxServer1
from tsbench.workload.query_files import MS, Parser, made
from tsbench.workload.world import World, WorldSpec

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
WORLD = "--use-case cpu-only --scale 100 --end 2016-01-01T14:00:00Z"
PROGRAM = Path(sys.executable).with_name("tsbench")
KINDS = ("single-groupby-1-1-1", "single-groupby-5-8-1", "double-groupby-5", "groupby-orderby-limit")


def main() -> None:
    for kind in KINDS:
        print(f"{kind:<24} {'{:>9,.0f} made/s, {:>9,.0f} decoded/s'.format(*query_rates(kind))}")
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = InfluxServer1(Path(directory) / "server", {"version": "1.8"})
        server.start()
        try:
            compare(server.endpoint, directory)
        finally:
            server.stop()
            server.remove()


def compare(endpoint: str, directory: str) -> None:
    ratios = []
    for _ in range(ROUNDS):
        load = f"{PROGRAM} load influxdb1 --endpoint {endpoint} --workers 2 --batch 5000"
        alone = rate(f"{load} {WORLD}", directory)
        piped = rate(f"{PROGRAM} generate {WORLD} --out - | {load} -", directory)
        ratios.append(piped / alone)
        print(
            f"load --use-case {alone:>9,.0f} points/s, generate | load {piped:>9,.0f} points/s, ratio {ratios[-1]:.2f}"
        )
        time.sleep(1)  # result sets are named by the second
    print(f"median ratio {statistics.median(ratios):.2f} (wanted: >= 0.9)")


def rate(command: str, directory: str) -> float:
    """Return the rate that the command's summary states, in points per second."""
    done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=False)
    found = re.search(r"mean rate ([\d,.]+) points/s", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1].replace(",", ""))


def query_rates(kind: str, count: int = 20_000) -> tuple[float, float]:
    """Return how many queries of a kind are made, and decoded, per second."""
    world = World(WorldSpec("cpu-only", 100, 1, 1_451_606_400 * 10**9, 10**10, resolution_ns=MS))
    loaded = Window(world.time_ns(0), world.time_ns(8_640))
    began = time.process_time()
    lines = list(made([kind], count, world, loaded, 1))
    between = time.process_time()
    parser = Parser(world.measurements)
    for number, line in enumerate(lines):
        parser.parse(line, number)
    return count / (between - began), count / (time.process_time() - between)


if __name__ == "__main__":
    main()
