"""Speed of loading PostgreSQL, compared with TSBS's loader: same columns, same indexes, same batches, same server.

`python -m tests.benchmarks.bench_load timescaledb` compares on hypertables with the same chunks, `... questdb` on
QuestDB, where the peer waits for no acknowledgement: both are timed until all rows are visible.

The peer (`tsbs_load_timescaledb`, from a directory in TSBS_BIN or from PATH) reads a file that its own generator wrote
before; tsbench generates while it loads. Both clients' CPU is that of the whole process. Rounds alternate, and the
ratio is the median of the rounds' ratios, so that a machine whose speed drifts does not favour either.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tsbench.encode import pgcopy
from tsbench.scenario.use_case import built_in_spec
from tsbench.servers.process import free_port
from tsbench.targets.postgres.server import PostgresServer, TimescaleServer
from tsbench.targets.questdb.server import QuestServer
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALE, HOURS, BATCH, ROUNDS = 100, 48, 10_000, 2
COMMITTED = 100_000
"""Rows of a request to QuestDB, which commits each; the peer's batches are not commits, and 10,000 are its best."""
ROWS = SCALE * HOURS * 360
START_NS = 1_451_606_400 * 10**9

OURS = """
import json, sys, time
from dataclasses import replace
from tsbench.targets import registry
from tsbench.run.bulk_load import bulk_load
from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World
endpoint, workers = sys.argv[1], int(sys.argv[2])
world = World(built_in_spec("cpu-only", {scale}, 1, {start}, 10**10, streams=4))
target = registry.get({target!r}); schema = next(iter(target.schemas.values()))
if target.name == "postgres":
    schema = replace(schema, time_index='("time" DESC)', order=" DESC")  # as the peer's
session = target.connect(endpoint, schema)
session.run(schema.create(world.measurements, world.tags()))
mode = WriteMode.BULK
began = time.perf_counter()
loaded = bulk_load(world, target, schema, endpoint, last_tick={ticks}, workers=workers, batch={batch}, mode=mode)
if not target.shows_at_once: session.run(schema.settle(world.measurements), timeout_s=300)
seconds = loaded.duration_s if target.shows_at_once else time.perf_counter() - began
print(json.dumps({{"rows": loaded.points, "seconds": seconds}}))
"""


OLD_FORM = """
CREATE EXTENSION IF NOT EXISTS timescaledb;
CREATE FUNCTION create_hypertable(relation regclass, time_column_name name, replication_factor integer,
  chunk_time_interval bigint, create_default_indexes boolean) RETURNS void LANGUAGE sql AS
  'SELECT create_hypertable(relation, by_range(time_column_name, chunk_time_interval), create_default_indexes => false)'
"""
"""The form of `create_hypertable` that the peer calls, and TimescaleDB no longer has, for new databases."""


def main() -> None:
    if sys.argv[1:] == ["questdb"]:
        on_questdb()
        return
    kind = TimescaleServer if sys.argv[1:] == ["timescaledb"] else PostgresServer
    print(f"encoding binary COPY, cpu-only, one core: {encoding_rate() / 1e6:.1f} M rows/s (wanted: 1.5)")
    loader, generator = find("tsbs_load_timescaledb"), find("tsbs_generate_data")
    peer = (loader, generator) if loader and generator else None
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = kind(Path(directory) / "server")
        server.start()
        try:
            if kind is TimescaleServer:
                with psycopg.connect(server.endpoint, dbname="template1", autocommit=True) as connection:
                    connection.execute(OLD_FORM)
            compare(server, Path(directory), peer)
        finally:
            server.stop()
            server.remove()


def on_questdb() -> None:
    """Compare on QuestDB; each load fills a table of its own."""
    port = free_port()
    # The peer commits every few seconds only: each commit is synced by neither, which is the server's own default.
    settings = {"cairo.commit.mode": "nosync", "line.tcp.enabled": "true", "line.tcp.net.bind.to": f"127.0.0.1:{port}"}
    loader, generator = find("tsbs_load_questdb"), find("tsbs_generate_data")
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        data = Path(directory) / "cpu.data"
        server = QuestServer(Path(directory) / "server", settings)
        server.start()
        try:
            if loader and generator:
                with data.open("wb") as out:
                    command = [*generate_command(generator)[:-1], "--format=questdb"]
                    subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
            for workers in (1, 2):
                pairs = []
                for _ in range(ROUNDS):
                    ours = run_ours(server.endpoint, workers, "questdb", COMMITTED)
                    pairs.append((ours, run_questdb_loader(server, loader, port, data, workers) if loader else ours))
                show("tsbench", workers, [ours for ours, _ in pairs])
                show("peer", workers, [theirs for _, theirs in pairs])
                rate, cpu = (statistics.median(ours[i] / theirs[i] for ours, theirs in pairs) for i in (0, 1))
                print(f"{workers:>7} ratio {rate:.2f} of its rows/s, {cpu:.2f} of its CPU   (wanted: >= 1.0, <= 0.75)")
        finally:
            server.stop()
            server.remove()


def run_questdb_loader(server: QuestServer, program: str, port: int, data: Path, workers: int) -> tuple[float, float]:
    url = urlsplit(server.endpoint)
    place = f"host=127.0.0.1 port={url.query.removeprefix('pg=')} user=admin password=quest dbname=qdb"
    command = [
        program, f"--url=http://{url.netloc}/", f"--ilp-bind-to=127.0.0.1:{port}", f"--workers={workers}",
        f"--batch-size={BATCH}", f"--file={data}", "--reporting-period=0",
    ]  # fmt: skip
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS cpu")
        began = time.perf_counter() + 1.0  # it sleeps that long before it sends
        _, cpu_s = measured(command)
        while connection.execute("SELECT count() FROM cpu").fetchone() != (ROWS,):
            assert time.perf_counter() < began + 300, "the peer's rows are not all there"
            time.sleep(0.02)
    return ROWS / (time.perf_counter() - began), cpu_s / ROWS * 1e6


def compare(server: PostgresServer, directory: Path, peer: tuple[str, str] | None) -> None:
    target = "timescaledb" if isinstance(server, TimescaleServer) else "postgres"
    data = directory / "cpu.data"
    if peer is None:
        print(
            "peer not found: put tsbs_load_timescaledb and tsbs_generate_data on PATH or name their directory: TSBS_BIN"
        )
    else:
        with data.open("wb") as out:
            subprocess.run(generate_command(peer[1]), stdout=out, stderr=subprocess.DEVNULL, check=True)
    print(f"{'workers':>7} {'':8} {'rows/s':>10} {'client CPU s / M rows':>22} {'ratio rows/s':>13} {'ratio CPU':>10}")
    for workers in (1, 2):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(run_ours(server.endpoint, workers, target))
            if peer is not None:
                theirs.append(run_peer(server, peer[0], data, workers))
        show("tsbench", workers, ours)
        if theirs:
            same_indexes(server)
            show("peer", workers, theirs)
            rate = statistics.median(o[0] / t[0] for o, t in zip(ours, theirs, strict=True))
            cpu = statistics.median(o[1] / t[1] for o, t in zip(ours, theirs, strict=True))
            print(f"{workers:>7} {'ratio':8} {'':10} {'':22} {rate:>13.2f} {cpu:>10.3f}   (wanted: >= 1.5, <= 0.25)")


def generate_command(program: str) -> list[str]:
    end = f"2016-01-{1 + HOURS // 24:02d}T00:00:00Z"
    return [
        program, "--use-case=cpu-only", f"--scale={SCALE}", "--seed=1", "--timestamp-start=2016-01-01T00:00:00Z",
        f"--timestamp-end={end}", "--log-interval=10s", "--format=timescaledb",
    ]  # fmt: skip


def run_ours(endpoint: str, workers: int, target: str = "postgres", batch: int = BATCH) -> tuple[float, float]:
    code = OURS.format(target=target, scale=SCALE, start=START_NS, ticks=HOURS * 360, batch=batch)
    out, cpu_s = measured([sys.executable, "-c", code, endpoint, str(workers)])
    result = json.loads(out)
    assert result["rows"] == ROWS
    return result["rows"] / result["seconds"], cpu_s / ROWS * 1e6


def run_peer(server: PostgresServer, program: str, data: Path, workers: int) -> tuple[float, float]:
    place = conninfo_to_dict(server.endpoint)
    command = [
        program, f"--workers={workers}", f"--batch-size={BATCH}", f"--file={data}",
        f"--use-hypertable={'true' if isinstance(server, TimescaleServer) else 'false'}", "--chunk-time=12h",
        f"--host={place['host']}", f"--port={place['port']}", f"--user={place['user']}", "--reporting-period=0",
    ]  # fmt: skip
    started = time.perf_counter()
    out, cpu_s = measured(command, {**os.environ, "PGPASSFILE": str(place["passfile"]), "PGPASSWORD": password(place)})
    line = next(line for line in out.splitlines() if "rows in" in line)
    seconds = float(line.split("rows in ")[1].split("sec")[0])
    assert seconds <= time.perf_counter() - started
    return float(line.split("loaded ")[1].split(" ")[0].replace(",", "")) / seconds, cpu_s / ROWS * 1e6


def password(place: Mapping[str, object]) -> str:
    return Path(str(place["passfile"])).read_text(encoding="utf-8").strip().rpartition(":")[2]


def measured(command: list[str], environment: dict[str, str] | None = None) -> tuple[str, float]:
    """Return a command's output, and the CPU seconds that it and its children used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same_indexes(server: PostgresServer) -> None:
    """Make sure that both loaders filled tables with the same columns and the same indexes."""
    found = []
    text = """
        SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_name), (
          SELECT string_agg(substring(indexdef FROM 'USING .*'), '; ' ORDER BY 1) FROM pg_indexes
          WHERE tablename = 'cpu' AND schemaname = c.table_schema)
        FROM information_schema.columns c WHERE table_name = 'cpu' GROUP BY table_schema"""
    for database in ("postgres", "benchmark"):
        with psycopg.connect(server.endpoint, dbname=database) as connection:
            found.append(connection.execute(text).fetchone())
    if found[0] != found[1]:
        print(f"        the layouts differ: {found[0]} against {found[1]}")


def show(name: str, workers: int, results: list[tuple[float, float]]) -> None:
    rate, cpu = (statistics.median(column) for column in zip(*results, strict=True))
    print(f"{workers:>7} {name:8} {rate:>10,.0f} {cpu:>22.2f}", flush=True)


def encoding_rate() -> float:
    """Return the rows per second of binary COPY encoding, without generation."""
    world = World(built_in_spec("cpu-only", SCALE, 1, START_NS, 10**10))
    batches = list(world.batches(0, points=BATCH, last_tick=6 * 360))
    rows, best = sum(map(len, batches)), 0.0
    for _ in range(5):
        started = time.perf_counter()
        for batch in batches:
            pgcopy.encode(batch, extra_json=True)
        best = max(best, rows / (time.perf_counter() - started))
    return best


def find(program: str) -> str | None:
    place = os.environ.get("TSBS_BIN")
    return shutil.which(program, path=place) if place else shutil.which(program)


if __name__ == "__main__":
    main()
