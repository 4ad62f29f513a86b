"""Documents to MongoDB's protocol: ours beside pymongo, which gets the same documents as dicts.

Three things are compared: encoding one document per point, loading them in batches, and one document per request under
gevent. The server is FerretDB over DocumentDB, and for the load also a stand-in on loopback that acknowledges at once,
which shows the clients alone. pymongo's dicts exist before its time begins, while tsbench computes its data within its
own; neither side's start is counted. Rounds alternate, each into an empty collection; ratios are medians of the rounds'
ratios, so that a machine whose speed drifts favours nobody. `--only single` measures one part alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bson

sys.path.insert(0, str(Path(__file__).parents[2]))


from tests.benchmarks import bench_load, stub_servers
from tests.benchmarks.bench_http import Rate, run_locust
from tests.benchmarks.bench_load import START_NS
from tsbench.encode import bson_columns
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.mongodb.server import FerretdbServer
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
SCALE, TICKS, ROUNDS = 100, 2_400, 3
DOCUMENTS = SCALE * TICKS
USERS, SECONDS = 50, 8
BULK_ROUNDS, SINGLE_ROUNDS = 5, 5

OURS = """
import json, sys, time
from tsbench.targets import registry
from tsbench.run.bulk_load import bulk_load
from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World
endpoint, workers, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
world = World(built_in_spec("cpu-only", {scale}, 1, {start}, 10**10, streams=4))
target = registry.get("mongodb"); schema = target.schemas["per-point"]
session = target.connect(endpoint, schema)
session.run(schema.create(world.measurements, world.tags()) if sys.argv[4] == "create" else [])
cpu_s = time.process_time()
loaded = bulk_load(
    world, target, schema, endpoint, last_tick={ticks}, workers=workers, batch=batch, mode=WriteMode.BULK
)
print(json.dumps({{"per_s": loaded.points / loaded.duration_s, "cpu_s": time.process_time() - cpu_s}}))
assert loaded.points == {documents}
"""

PLAIN = """
import json, sys, time
import pymongo
from tests.benchmarks.bench_mongodb import dicts
endpoint, batch, share, shares = sys.argv[1], *map(int, sys.argv[2:5])
client = pymongo.MongoClient(endpoint)
points = client.get_default_database()["cpu"]
if share == 0 and sys.argv[5] == "create":
    points.drop()
    points.database.create_collection("cpu")
documents = list(dicts(share, shares))
client.admin.command("ping")
print("ready", flush=True)
sys.stdin.readline()
began_s, cpu_s = time.perf_counter(), time.process_time()
for first in range(0, len(documents), batch):
    points.insert_many(documents[first : first + batch])
print(json.dumps({"documents": len(documents), "cpu_s": time.process_time() - cpu_s}))
"""

GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent, itertools, json, sys, time
import pymongo
from tests.benchmarks.bench_mongodb import dicts
endpoint, users, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
client = pymongo.MongoClient(endpoint, maxPoolSize=users)
points = client.get_default_database()["cpu"]
points.drop()
documents = itertools.cycle(list(itertools.islice(dicts(0, 1), 10_000)))
done = 0
def work(end_s):
    global done
    while time.perf_counter() < end_s:
        points.insert_one({**next(documents)})
        done += 1
def all_users(seconds):
    end_s = time.perf_counter() + seconds
    gevent.joinall([gevent.spawn(work, end_s) for _ in range(users)], raise_error=True)
all_users(1.0)  # connects
done, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
all_users(seconds)
cpu_s, per_s = time.process_time() - cpu_s, done / (time.perf_counter() - began_s)
print(json.dumps({"per_s": per_s, "cpu_us": cpu_s / done * 1e6}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("encode", "sink", "load", "single")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="parts to measure (default: all)")
    only = parser.parse_args().only
    if "encode" in only:
        encoding()
    if "sink" in only:
        with stub_servers.serving("mongodb") as endpoint:
            print("load into a sink that acknowledges at once", flush=True)
            load(endpoint, "", "wanted: rate >= 3")
    if {*only} & {"load", "single"}:
        stored(only)


def stored(only: Sequence[str]) -> None:
    """Measure the parts that need a server."""
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = FerretdbServer(Path(directory) / "server")
        server.start()
        try:
            if "load" in only:
                print("load into FerretDB", flush=True)
                load(server.endpoint, "create", "wanted: rate >= 1, CPU <= 0.3")
            if "single" in only:
                singles(server.endpoint, Path(directory))
        finally:
            server.stop()
            server.remove()


def world() -> World:
    return World(built_in_spec("cpu-only", SCALE, 1, START_NS, 10**10, streams=4))


def dicts(share: int, shares: int) -> Iterator[dict[str, Any]]:
    """Yield the documents of one of so many processes as a plain program has them: every `shares`-th batch."""
    made = (batch for stream in range(4) for batch in world().batches(stream, points=10_000, last_tick=TICKS))
    for number, batch in enumerate(made):
        if number % shares == share:
            yield from bson.decode_all(bytes(bson_columns.points(batch).data))


# --- encoding ---------------------------------------------------------------------------------------------------------


def encoding() -> None:
    """Print the documents that one core encodes in a second, column by column and from dicts."""
    batches = list(world().batches(0, points=10_000, last_tick=TICKS))
    count = sum(map(len, batches))
    documents = [each for batch in batches for each in bson.decode_all(bytes(bson_columns.points(batch).data))]
    assert bson.encode(documents[-1]) == list(bson_columns.points(batches[-1]))[-1]
    ours, theirs = [], []
    for _ in range(BULK_ROUNDS):
        ours.append(count / cpu_of(lambda: [bson_columns.points(batch) for batch in batches]))
        theirs.append(count / cpu_of(lambda: [bson.encode(each) for each in documents]))
    print(
        f"documents of ten fields and ten tags, a second of one core: tsbench {statistics.median(ours):,.0f},"
        f" bson.encode {statistics.median(theirs):,.0f}; ratio {ratio(ours, theirs):.1f}   (wanted: 1,000,000)",
        flush=True,
    )


def cpu_of(work: Callable[[], object]) -> float:
    before_s = time.process_time()
    work()
    return time.process_time() - before_s


# --- batches ----------------------------------------------------------------------------------------------------------


def load(endpoint: str, create: str, wanted: str) -> None:
    """Print rates and CPU of both clients, by size of a batch and number of workers."""
    print(f"{'batch':>7} {'workers':>7} {'':8} {'documents/s':>12} {'client CPU s / M':>17}")
    for batch in (1_000, 10_000):
        for workers in (1, 2):
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(load_ours(endpoint, create, batch, workers))
                theirs.append(load_plain(endpoint, create, batch, workers))
            for name, found in (("tsbench", ours), ("pymongo", theirs)):
                rate, cpu = (statistics.median(one[i] for one in found) for i in (0, 1))
                print(f"{batch:>7,} {workers:>7} {name:8} {rate:>12,.0f} {cpu:>17.2f}")
            rate, cpu = (ratio([o[i] for o in ours], [t[i] for t in theirs]) for i in (0, 1))
            print(f"{batch:>7,} {workers:>7} {'ratio':8} {rate:>12.2f} {cpu:>17.3f}   ({wanted})", flush=True)


def load_ours(endpoint: str, create: str, batch: int, workers: int) -> tuple[float, float]:
    code = OURS.format(scale=SCALE, start=START_NS, ticks=TICKS, documents=DOCUMENTS)
    out, _ = bench_load.measured([sys.executable, "-c", code, endpoint, str(workers), str(batch), create])
    result = json.loads(out)
    return result["per_s"], result["cpu_s"] / DOCUMENTS * 1e6


def load_plain(endpoint: str, create: str, batch: int, workers: int) -> tuple[float, float]:
    """Return the rate and CPU of as many processes as workers: Python's threads would share one processor."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PLAIN, endpoint, str(batch), str(share), str(workers), create],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for share in range(workers)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit("the plain program did not start")
    began_s = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    took_s = time.perf_counter() - began_s
    for process in processes:
        process.communicate()
    assert sum(one["documents"] for one in found) == DOCUMENTS
    return DOCUMENTS / took_s, sum(one["cpu_s"] for one in found) / DOCUMENTS * 1e6


# --- one document per request -----------------------------------------------------------------------------------------


def singles(endpoint: str, directory: Path) -> None:
    """Print requests per second and client CPU of one process with 50 users."""
    print(f"one document per request, {USERS} users, {SINGLE_ROUNDS} rounds of {SECONDS} s, one process each")
    ours, theirs = [], []
    for _ in range(SINGLE_ROUNDS):
        ours.append(singles_ours(endpoint, directory))
        theirs.append(singles_plain(endpoint))
    for name, found in (("tsbench", ours), ("pymongo", theirs)):
        rate, cpu = (statistics.median(getattr(one, key) for one in found) for key in ("per_s", "cpu_us"))
        print(f"  {name}  {rate:>8,.0f}/s  {cpu:>6.1f} us CPU each")
    rate, cpu = (ratio([getattr(o, k) for o in ours], [getattr(t, k) for t in theirs]) for k in ("per_s", "cpu_us"))
    print(f"  tsbench / pymongo: rate {rate:.2f}, CPU {cpu:.2f}", flush=True)


def singles_ours(endpoint: str, directory: Path) -> Rate:
    results = directory / "results"
    shutil.rmtree(results, ignore_errors=True)
    locustfile = str(ROOT / "locustfiles" / "mongodb.py")
    more = ["--endpoint", endpoint, "--schema", "per-point", "--results", str(results), "--load-window", "1m"]
    return run_locust([locustfile, *more, "--warmup", "0s", "SingleWriterFlatOut"], directory)


def singles_plain(endpoint: str) -> Rate:
    command = [sys.executable, "-c", GEVENT, endpoint, str(USERS), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"the plain program failed: {done.stderr[-2000:]}")
    return Rate(**json.loads(done.stdout))


# --- helpers ----------------------------------------------------------------------------------------------------------


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
