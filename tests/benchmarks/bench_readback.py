"""Stored rows read back and compared with what was written, per second and database, after a load of `--rows` rows.

    python tests/benchmarks/bench_readback.py [--rows 500000] [--only sqlite duckdb]

Rows are of `cpu-only`: ten fields, ten tags. Targets that cannot be started here are named and left out.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tsbench.check.answers import Answers, read_back
from tsbench.errors import UserMistake
from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import Stand, world_of

SCALE, REPEATS = 100, 3
NAMES = (
    *("sqlite", "duckdb", "postgres", "timescaledb", "mariadb", "mysql", "questdb", "mongodb"),
    *("influxdb1", "influxdb2", "victoriametrics"),
)


def measured(name: str, rows: int, place: Path) -> tuple[int, float, float]:
    """Number of rows, and of the fastest of three times the seconds and the CPU seconds of this process."""
    target = TARGETS[name]
    schema = next(iter(target.schemas.values()))
    server = target.new_server(place, {})
    server.start()
    try:
        world = world_of("cpu-only", SCALE, interval_s=10, **({"decimals": 4} if name == "victoriametrics" else {}))
        stand = Stand(world, target, schema, server.endpoint, rows // SCALE).load()
        best = []
        for _ in range(REPEATS):
            gold, answers = stand.gold(), Answers(place)
            with closing(stand.connect()) as session:
                began, cpu = time.perf_counter(), time.process_time()
                read_back(gold, session, schema, rows, answers, stand.known)
                answers.compare(gold)
                best.append((time.perf_counter() - began, time.process_time() - cpu))
            assert answers.verdict().valid, answers.verdict()
    finally:
        server.stop()
    return answers.rows, *min(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    given = parser.parse_args()
    gc.disable()  # as the checks of a run do
    for name in given.only:
        with tempfile.TemporaryDirectory() as place:
            try:
                rows, took_s, cpu_s = measured(name, given.rows, Path(place))
            except UserMistake as absent:
                print(f"{name:<15} left out: {absent}")
                continue
        print(f"{name:<15} {rows / took_s:>9,.0f} rows/s  {cpu_s / rows * 1e6:5.1f} CPU s per million rows")
    gc.enable()  # or DuckDB prints at the end what it has not let go of


if __name__ == "__main__":
    main()
