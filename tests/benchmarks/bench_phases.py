"""The phases as separate commands on InfluxDB 1.8: `generate | load` beside `load --use-case`, and files of queries.

With TSBS's programs (in TSBS_BIN, or on PATH): its files beside our own worlds, on InfluxDB (files) and on five other
databases (elsewhere; on PostgreSQL beside TSBS's own loader, too), and its runner beside ours, which ask the same
queries of one database that tsbench loaded. An argument is the number of rounds, others what to compare (pipe, files,
elsewhere or runners).

Rounds alternate and the ratio is the median of the rounds' ratios, so that a machine whose speed drifts favours
neither. The rates of query files are per second of CPU of one process.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tsbench.model import Window
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets import registry
from tsbench.targets.base import Statement
from tsbench.targets.influxdb.server import InfluxServer1
from tsbench.workload.query_files import MS, Parser, made
from tsbench.workload.world import World

POINTS = 1_000_000
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SCALE, END = 100, "2016-01-01T14:00:00Z"
WORLD = f"--use-case cpu-only --scale {SCALE} --end {END}"
PROGRAM = Path(sys.executable).with_name("tsbench")
KINDS = ("single-groupby-1-1-1", "single-groupby-5-8-1", "double-groupby-5", "groupby-orderby-limit")


def main() -> None:
    chosen = sys.argv[2:] or ["pipe", "files", "elsewhere", "runners"]
    if "pipe" in chosen:
        for kind in KINDS:
            print(f"{kind:<24} {'{:>9,.0f} made/s, {:>9,.0f} decoded/s'.format(*query_rates(kind))}")
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        if "elsewhere" in chosen:
            chosen.remove("elsewhere")
            elsewhere(directory)
        server = InfluxServer1(Path(directory) / "server", {"version": "1.8"})
        server.start()
        try:
            for name in chosen:
                {"pipe": compare, "files": files, "runners": runners}[name](server.endpoint, directory)
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


def files(endpoint: str, directory: str, target: str = "influxdb1", wanted: float = 0.9) -> None:
    """Print how fast TSBS's files are loaded, beside the same number of points of our own world of that name."""
    for use_case in ("cpu-only", "devops", "iot"):
        theirs_is_there = target == "postgres"
        for form, name in (("influx", "data"), ("timescaledb", "theirs"))[: 1 + theirs_is_there]:
            words = f"--use-case {use_case} --format {form} --scale 100 --seed 123 --max-data-points {POINTS}"
            program("tsbs_generate_data", f"{words} --timestamp-end 2016-01-03T00:00:00Z > {name}", directory)
        ratios, peers = [], []
        for _ in range(ROUNDS):
            load = f"{PROGRAM} load {target} --endpoint '{endpoint}' --workers 2 --limit {POINTS}"
            own = rate(f"{load} --use-case {use_case} --scale 100 --end 2016-01-03T00:00:00Z", directory)
            time.sleep(1)
            of_file = rate(f"{load} data", directory)
            ratios.append(of_file / own)
            time.sleep(1)
            if theirs_is_there:
                peers.append(of_file / loaders(endpoint, directory))
        median = statistics.median(ratios)
        print(f"{target} {use_case}: {median:.2f} of our own world's rate (wanted: >= {wanted})", flush=True)
        if peers:
            print(f"{'':12} {statistics.median(peers):.2f} of TSBS's loader's rate (wanted: >= 1)", flush=True)


def elsewhere(directory: str) -> None:
    """Print the same on databases whose formats are not the files'."""
    for name in os.environ.get("ON", "postgres mariadb mongodb sqlite duckdb").split():
        server = registry.get(name).new_server(Path(directory) / name)
        server.start()
        try:
            files(server.endpoint, directory, name, 0.4)
        finally:
            server.stop()
            server.remove()


def loaders(endpoint: str, directory: str) -> float:
    """Return the points per second of TSBS's own loader with the file and as many workers."""
    place = conninfo_to_dict(endpoint)
    password = Path(str(place["passfile"])).read_text(encoding="utf-8").strip().rpartition(":")[2]
    words = (
        f"--workers=2 --batch-size=10000 --file=theirs --use-hypertable=false --host={place['host']} "
        f"--port={place['port']} --user={place['user']} --pass={password} --reporting-period=0"
    )
    found = re.search(r"loaded (\d+) rows in ([\d.]+)sec", program("tsbs_load_timescaledb", words, directory))
    assert found, "no rate"
    return int(found[1]) / float(found[2])


def runners(endpoint: str, directory: str) -> None:
    """Print the latency and throughput of TSBS's runner and ours, asking the same queries for some seconds."""
    rate(f"{PROGRAM} load influxdb1 --endpoint {endpoint} --workers 2 {WORLD}", directory)
    host, _, database = endpoint.removeprefix("http://").rpartition("@")[2].partition("/")
    schema = next(iter(registry.get("influxdb1").schemas.values()))
    with closing(registry.get("influxdb1").connect(endpoint, schema)) as session:
        session.run([Statement("ALTER RETENTION POLICY $policy ON $database DEFAULT")])
    for kind, count in (("single-groupby-1-1-1", 4_000), ("double-groupby-1", 100)):
        words = f"--use-case devops --format influx --scale {SCALE} --seed 1 --timestamp-end {END} --queries {count}"
        program("tsbs_generate_queries", f"{words} --query-type {kind} > {kind}.gob", directory)
        for workers in (1, 4):
            found = []
            for _ in range(ROUNDS):
                ask = f"{PROGRAM} query influxdb1 {kind}.gob --endpoint {endpoint} --workers {workers}"
                ours = asked(text(ask, directory))
                words = f"--urls http://{host} --db-name {database} --file {kind}.gob --workers {workers}"
                theirs = asked(program("tsbs_run_queries_influx", words, directory))
                found.append([one / other for one, other in zip(ours, theirs, strict=True)])
            latency, throughput = (statistics.median(column) for column in zip(*found, strict=True))
            print(
                f"{kind}, {workers} workers: median {latency:.2f} of theirs (wanted: <= 1.1), "
                f"queries/s {throughput:.2f} of theirs (wanted: >= 1)",
                flush=True,
            )


def asked(said: str) -> tuple[float, float]:
    """Return the median time in ms and the queries per second that either runner prints."""
    median = re.search(r"med: +([\d,.]+)ms", said)
    per_s = re.search(r"verall query rate ([\d,.]+) queries/sec", said)
    assert median is not None, said
    assert per_s is not None, said
    return float(median[1].replace(",", "")), float(per_s[1].replace(",", ""))


def program(name: str, words: str, directory: str) -> str:
    found = shutil.which(name, path=os.environ.get("TSBS_BIN"))
    if found is None:
        sys.exit(f"{name} not found: put it on PATH or name its directory: TSBS_BIN")
    return text(f"{found} {words}", directory)


def text(command: str, directory: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rate(command: str, directory: str) -> float:
    """Return the rate that the command's summary states, in points per second."""
    said = text(command, directory)
    found = re.search(r"mean rate ([\d,.]+) points/s", said)
    assert found, said
    return float(found[1].replace(",", ""))


def query_rates(kind: str, count: int = 20_000) -> tuple[float, float]:
    """Return how many queries of a kind are made, and decoded, per second."""
    world = World(built_in_spec("cpu-only", 100, 1, 1_451_606_400 * 10**9, 10**10, resolution_ns=MS))
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
