"""What the encoder of writes costs: blocks encoded at once and cut into writes, beside every write on its own.

CPU microseconds of a point, from its generation to the message for the load process, by target and points of a write;
and the ratio to encoding each write from its slice of the block, which is how it was done before.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_load import START_NS
from tsbench.drive.feed.encoder import WriteStreams, framed
from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.registry import TARGETS
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.model import Batch
    from tsbench.targets.base import Payload, Schema

NAMES = ("influxdb1", "mysql", "mongodb", "postgres", "sqlite", "duckdb")
SIZES = (10, 50, 250, 1_000)
WORLD = World(built_in_spec("sensordata", 1_000, 1, START_NS, 10**10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=20_000, help="points of each figure")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"CPU us a point, lowest of {given.rounds} rounds of {given.points:,} points; ratio to slices")
    print(f"{'target':10} {'mode':5}" + "".join(f"{f'{points} points':>20}" for points in SIZES))
    for name in NAMES:
        schema = next(iter(TARGETS[name].schemas.values()))
        for mode in (WriteMode.MULTI, WriteMode.BULK):
            shown = []
            for points in SIZES:
                ours, slices = (
                    cost_us(schema, points, mode, given.points, given.rounds, sliced=s) for s in (False, True)
                )
                shown.append(f"{ours:>12.2f} ({ours / slices:.2f})")
            print(f"{name:10} {mode.value:5}" + "".join(f"{text:>20}" for text in shown), flush=True)


def cost_us(schema: Schema, points: int, mode: WriteMode, total: int, rounds: int, *, sliced: bool) -> float:
    """Return the CPU time of a point in microseconds."""
    found = []
    for _ in range(rounds):
        chosen = cast("Schema", _Sliced(schema)) if sliced else schema
        streams = WriteStreams(WORLD, chosen, (0,), block_points=10_000, first_tick=0)
        streams.next(points, mode, 16)  # tables of digits and tags are made once
        made, started_s = 0, time.process_time()
        while made < total:
            burst = streams.next(points, mode, 16)
            framed(burst)
            made += sum(burst.counts)
        found.append((time.process_time() - started_s) / made * 1e6)
    return min(found)


class _Sliced:
    """A schema that encodes every write on its own."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        return (self._schema.encode(batch.rows(i, i + points), mode) for i in range(0, len(batch), points))

    def __getattr__(self, name: str) -> object:
        return getattr(self._schema, name)


if __name__ == "__main__":
    main()
