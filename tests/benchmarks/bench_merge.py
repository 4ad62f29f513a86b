"""Seconds and peak memory of merging what load processes recorded, by the length of the run (three ops, two processes).

    python tests/benchmarks/bench_merge.py [--hours 1 ...]

The merge must take time in proportion to the run's length, and memory that hardly grows with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

import numpy as np

from tsbench.measure.hist import Interval, SparseHistogram, write_interval, write_log_head

OPS = ("write-100", "lastpoint", "double-groupby-1")
PROCESSES = 2
PER_SECOND = 1_000
START_S = 1_700_000_000
MERGE = f"""
import resource, sys
from pathlib import Path
from tsbench.measure.merge import merge
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
merged = merge(Path(sys.argv[1]), start_s={START_S}, end_s={START_S} + int(sys.argv[2]))
assert merged.recorded == merged.counted == int(sys.argv[3]), (merged.recorded, merged.counted)
print(before / 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def blobs(rng: np.random.Generator, tag: str) -> list[str]:
    """Return 40 log lines of `tag`, without their times: latencies of a second with a tail, each line another one."""
    lines = []
    for _ in range(40):
        out = StringIO()
        values = np.exp(rng.normal(14, 0.4, PER_SECOND) + 3 * (rng.random(PER_SECOND) < 0.01))
        write_interval(out, Interval(tag, 0, 1.0, SparseHistogram.recorded(values.astype(np.int64))))
        lines.append(out.getvalue().split(",", 2)[2])
    return lines


def record(place: Path, seconds: int) -> None:
    """Write the files of a run of that length."""
    rng = np.random.default_rng(1)
    tags = [f"{op}|{kind}" for op in OPS for kind in ("response", "service")]
    made = {tag: blobs(rng, tag) for tag in tags}
    (place / "latency").mkdir()
    (place / "process").mkdir()
    for process in range(PROCESSES):
        counters = (place / "process" / f"p{process}.ops.jsonl").open("w", encoding="utf-8")
        with (place / "latency" / f"p{process}.hlog").open("w", encoding="utf-8") as log, counters:
            write_log_head(log, start_s=START_S)
            for second in range(START_S, START_S + seconds):
                for tag in tags:
                    log.write(f"Tag={tag},{second}.000,{made[tag][second * 7 % 40]}")
                for op in OPS:
                    counts = {"count": PER_SECOND, "done": PER_SECOND, "failed": 0, "unknown": 0, "points": 100_000}
                    counters.write(json.dumps({"op": op, "second": second, **counts, "causes": {}}) + "\n")


def main() -> None:
    """Print a line per length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, nargs="+", default=[0.1, 1.0])
    for hours in parser.parse_args().hours:
        seconds = int(hours * 3_600)
        with tempfile.TemporaryDirectory() as directory:
            record(Path(directory), seconds)
            ops = str(seconds * len(OPS) * PROCESSES * PER_SECOND)
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", MERGE, directory, str(seconds), ops], capture_output=True, text=True, check=True
            )
            took_s = time.perf_counter() - started
        imported, peak = map(float, done.stdout.split())
        print(f"{hours:6.1f} h: {took_s:7.1f} s, peak {peak:7.0f} MB ({imported:.0f} MB of it imports)")


if __name__ == "__main__":
    main()
