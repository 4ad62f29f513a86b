from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from tsbench.collect.counters import CounterCollector
from tsbench.errors import Unreachable
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.results.panels import Panel, read_panels
from tsbench.results.rundir import RunDir
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets import registry
from tsbench.targets.influxdb import counters
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres import counters as pgcounters
from tsbench.targets.postgres.schemas import BTREE
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tsbench.servers.base import Server
    from tsbench.targets.postgres.server import PostgresServer


class Clicks:
    """A counter that grows by one at every read, and cannot be read the third time."""

    panels = (Panel("Clicks", "count", "rate", {"clicks": "all"}),)

    def __init__(self) -> None:
        self.read, self.closed = 0, False

    def counters(self) -> Mapping[str, float]:
        self.read += 1
        if self.read == 3:
            raise OpError(Outcome.UNKNOWN, "timeout", "no answer")
        return {"clicks": self.read}

    def close(self) -> None:
        self.closed = True


def test_totals_are_kept_in_long_form_and_gaps_are_told(tmp_path: Path) -> None:
    clicks = Clicks()
    collector = CounterCollector(lambda: [clicks], tmp_path / "counters.json")
    collector.period_s = 0.05
    collector.start()
    give_up = time.monotonic() + 60
    while clicks.read < 6 and time.monotonic() < give_up:
        time.sleep(0.01)
    rows = collector.stop()
    assert [row["value"] for row in rows][:3] == [2.0, 4.0, 5.0]
    assert {row["name"] for row in rows} == {"clicks"}
    assert clicks.closed
    assert read_panels(RunDir(tmp_path)) == Clicks.panels
    assert collector.trouble == "the server's counters could not be read 1 times: no answer"


def test_without_sources_there_is_no_thread_and_no_row(tmp_path: Path) -> None:
    collector = CounterCollector(list, tmp_path / "counters.json")
    collector.start()
    assert (list(collector.stop()), collector.trouble) == ([], "")


def test_a_server_that_cannot_be_reached_costs_the_counters_and_not_the_run(tmp_path: Path) -> None:
    def unreachable() -> list[Clicks]:
        raise Unreachable("cannot connect to it")

    collector = CounterCollector(unreachable, tmp_path / "counters.json")
    collector.start()
    assert list(collector.stop()) == []
    assert collector.trouble == "the server's counters could not be read: cannot connect to it"


@pytest.mark.postgres
def test_postgres_counts_what_a_session_does(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.endpoint, autocommit=True) as admin:  # earlier tests' sessions may count late
        admin.execute("CREATE DATABASE counted")
    endpoint = postgres_server.endpoint.replace("/postgres?", "/counted?")
    watching = TARGET.connect(endpoint, BTREE, timeout_s=60)
    before = watching.counters()
    with psycopg.connect(endpoint, autocommit=True) as working:
        working.execute("CREATE TABLE t AS SELECT 1 AS x WHERE false")
        for _ in range(10):
            working.execute("INSERT INTO t SELECT generate_series(1, 100)")
        working.execute("UPDATE t SET x = x + 1 WHERE x = 7")
        working.execute("SELECT count(*) FROM t")
        working.execute("CHECKPOINT")
        working.execute("SELECT pg_stat_force_next_flush()")
    grown, give_up = dict[str, float](), time.monotonic() + 60
    while grown.get("database.tup_inserted", 0) < 1_000 and time.monotonic() < give_up:
        time.sleep(0.05)
        grown = {name: value - before[name] for name, value in watching.counters().items()}
    watching.close()
    assert grown["database.tup_inserted"] >= 1_000
    assert grown["database.tup_inserted"] < 1_100  # and what the catalogue took for the table
    assert grown["database.tup_updated"] >= 10
    assert grown["database.xact_commit"] >= 14
    assert grown["checkpointer.num_requested"] >= 1
    assert grown["wal.wal_bytes"] > 1_000 * 30
    assert all(value >= 0 for name, value in grown.items() if not name.startswith("waits."))


@pytest.mark.parametrize("version", [130_000, 160_004, 170_000, 180_001])
def test_each_version_of_postgres_is_asked_in_its_own_views(version: int) -> None:
    text = pgcounters.text(version)
    assert ("pg_stat_checkpointer" in text) == (version >= 170_000)
    assert ("checkpoints_timed" in text) == (version < 170_000)
    assert ("pg_stat_wal" in text) == (version >= 140_000)
    assert pgcounters.named([{"xact_commit": 1}, {}, {"num_timed": 2}, {}, {"lock": 3}]) == {
        "database.xact_commit": 1.0,
        "checkpointer.num_timed": 2.0,
        "waits.lock": 3.0,
    }


VARS = b"""{"memstats": {"Alloc": 9}, "cmdline": ["influxd"],
"httpd:127.0.0.1:8086": {"name": "httpd", "tags": {}, "values": {"writeReq": 3, "pointsWrittenOK": 300}},
"shard:a:1": {"name": "shard", "tags": {"database": "d"}, "values": {"writePointsOk": 100, "path": "/x"}},
"shard:a:2": {"name": "shard", "tags": {"database": "d"}, "values": {"writePointsOk": 200}},
"shard:b:3": {"name": "shard", "tags": {"database": "_internal"}, "values": {"writePointsOk": 999}}}"""
METRICS = b"""# HELP storage_writer_ok_points x
# TYPE storage_writer_ok_points histogram
storage_writer_ok_points_bucket{path="/e",le="1"} 77
storage_writer_ok_points_sum{path="/e"} 300
storage_shard_write_sum{bucket="a",id="1"} 100
storage_shard_write_sum{bucket="a",id="2"} 200
http_write_request_count{endpoint="/api/v2/write",status="204"} 3
go_memstats_heap_inuse_bytes 3.1080448e+07
task_scheduler_execute_delta{quantile="0.5"} NaN
"""


def test_pages_of_influxdb_are_summed_over_shards_without_its_own_database() -> None:
    assert counters.of_vars(VARS) == {
        "httpd.writeReq": 3,
        "httpd.pointsWrittenOK": 300,
        "shard.writePointsOk": 300,
    }
    assert counters.of_metrics(METRICS) == {
        "storage_writer_ok_points_sum": 300,
        "storage_shard_write_sum": 300,
        "http_write_request_count": 3,
        "go_memstats_heap_inuse_bytes": 31_080_448,
        "storage_compactions_active": 0,  # no compaction was planned so far
        "storage_compactions_queued": 0,
    }


OF_INFLUXDB = {
    "1.8": ("influxdb1", "httpd.writeReq", "httpd.pointsWrittenOK"),
    "2": ("influxdb2", "http_write_request_count", "storage_writer_ok_points_sum"),
}


@pytest.mark.parametrize(
    "version", [pytest.param(v, marks=getattr(pytest.mark, f"influxdb-{v}"), id=f"influxdb-{v}") for v in OF_INFLUXDB]
)
def test_influxdb_counts_what_a_session_writes(influxdb_server: Callable[[str], Server], version: str) -> None:
    server = influxdb_server(version)
    name, requests, points = OF_INFLUXDB[version]
    target = registry.get(name)
    schema = next(iter(target.schemas.values()))
    world = World(built_in_spec("cpu-only", scale=3, seed=1, start_ns=0, interval_ns=10**10))
    working, watching = (target.connect(server.endpoint, schema) for _ in range(2))
    working.run(schema.drop(world.measurements))
    working.run(schema.create(world.measurements, world.tags()))
    before = watching.counters()
    batches = list(world.batches(0, points=1_000, first_tick=0, last_tick=40))
    for batch in batches:
        working.write(schema.encode(batch, WriteMode.BULK))
    after = watching.counters()
    working.run(schema.drop(world.measurements))
    assert after[requests] - before.get(requests, 0) == len(batches)
    assert after[points] - before.get(points, 0) == sum(len(batch) for batch in batches)
    for session in (working, watching):
        session.close()
