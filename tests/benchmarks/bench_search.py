"""Where a search for the best load ends, beside the best of the whole grid: batches and workers, on real servers.

Each load is into empty tables and takes as many seconds as the first argument says (5). The grid's loads are made in an
order drawn anew each time, before the search's.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.model import WriteMode
from tsbench.run.bulk_load import bulk_load
from tsbench.run.time_limits import Deadline
from tsbench.scenario.file_keys import SearchPart
from tsbench.scenario.use_case import built_in_spec
from tsbench.study.search import End, walk
from tsbench.targets import registry
from tsbench.workload.world import World

if TYPE_CHECKING:
    from tsbench.servers.base import Server

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
NAMES = sys.argv[2:] or ["influxdb1", "postgres"]
AXES = [{"key": "load.batch", "first": 250, "most": 8_000}, {"key": "load.workers", "first": 1, "most": 8}]
SEARCH = SearchPart.model_validate({"axes": AXES})
RUNS = 3


def main() -> None:
    for name in NAMES:
        target = registry.get(name)
        with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
            server = target.new_server(Path(directory) / "server")
            server.start()
            try:
                compare(name, server)
            finally:
                server.stop()
                server.remove()


def compare(name: str, server: Server) -> None:
    places = [*itertools.product(*(axis.values for axis in SEARCH.axes))]
    random.shuffle(places)
    grid = {place: rate(name, server.endpoint, *place) for place in places}
    best = max(places, key=lambda place: grid[place])
    runs: dict[tuple[int, ...], list[float]] = {}
    while not isinstance(found := walk(SEARCH, RUNS, runs), End):
        runs.setdefault(found, []).append(rate(name, server.endpoint, *found))
    for workers in SEARCH.axes[1].values:
        print(f"{workers} workers:", *(f"{batch}: {grid[batch, workers]:,.0f}" for batch in SEARCH.axes[0].values))
    share = grid[found.place] / grid[best]
    doublings = [max(a, b) // min(a, b) for a, b in zip(found.place, best, strict=True)]
    number = sum(map(len, runs.values()))
    print(f"{name}: the best of the grid is {best}, the search ended at {found.place} after {number} loads")
    print(f"of {SECONDS:g} s each: {found.reasons}; factors {doublings} (wanted: <= 2), {share:.2f} of the best rate")


def rate(name: str, endpoint: str, batch: int, workers: int) -> float:
    """Return the points per second of one load."""
    target = registry.get(name)
    schema = next(iter(target.schemas.values()))
    world = World(built_in_spec("cpu-only", 100, 1, 1_451_606_400 * 10**9, 10**10, streams=8))
    with closing(target.connect(endpoint, schema)) as session:
        session.run(schema.create(world.measurements, world.tags()))
    how = {"workers": workers, "batch": batch, "mode": WriteMode.BULK, "deadline": Deadline(world, SECONDS)}
    done = bulk_load(world, target, schema, endpoint, last_tick=10**6, **how)  # type: ignore[arg-type]
    return done.points / done.duration_s


if __name__ == "__main__":
    main()
