"""What `tsbench report` costs: CPU per run and the highest memory, for 12 runs and for one of 100 times the length.

    python tests/benchmarks/bench_report.py

The aim is at most 15 s of CPU for 12 runs of a minute. A long run must not take much more memory than a short one: its
histograms are added up as they are read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.report.synthetic import Shape, make_results, twelve

MINUTE_S = 60
LONG = Shape(cell="long", seconds=100 * MINUTE_S, rate=20, processes=1)
AIM_S = 15.0


def cost(results: Path) -> tuple[float, float]:
    """CPU seconds and the highest resident memory (bytes) of `tsbench report` in a process of its own."""
    program = str(Path(sys.executable).parent / "tsbench")
    quiet = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(
        program, [program, "report", str(results)], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, quiet, 1)]
    )
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"tsbench report {results} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        sets = {
            "12 runs of 60 s": ("twelve", twelve(MINUTE_S)),
            "1 run of 60 s": ("short", [replace(LONG, seconds=MINUTE_S)]),
            "1 run of 6,000 s": ("long", [LONG]),
        }
        for title, (name, shapes) in sets.items():
            cpu_s, rss = cost(make_results(Path(place) / name, shapes))
            size = len(shapes)
            aim = f" (aim: {AIM_S:g} s)" if size > 1 else ""
            print(f"{title:20} {cpu_s:6.2f} s of CPU{aim}, {cpu_s / size:5.2f} s a run, {rss / 1e6:4.0f} MB at most")


if __name__ == "__main__":
    main()
