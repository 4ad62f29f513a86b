"""INSERTs into MariaDB: ours beside sysbench, which sends the same statements to the same table of the same server.

A statement is a REPLACE of one row, or of 1,000 rows of one time, as in study C: time, sensor, five doubles
and a counter. sysbench makes its texts in Lua and sends them without server-side prepared statements, as mysqlclient
does. Both have 16 connections and begin with an empty table; the log is flushed at every commit. CPU is that of all
processes of the client, without tsbench's start. Rounds alternate, and ratios are medians of the rounds' ratios, so
that a machine whose speed drifts favours nobody. Needs mysqlclient, MariaDB (docs/databases/mysql.md) and Debian's
package sysbench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_load import START_NS, measured
from tsbench.errors import UserMistake
from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.mysql import MARIADB
from tsbench.targets.mysql.server import MariadbServer
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITERS, SENSORS = 16, 1_000
SCHEMA = MARIADB.schemas["innodb"]
BIN = Path(sys.executable).parent

LOCUSTFILE = """
from locust import constant, task
from tsbench.drive import TimeSeriesUser, standalone
standalone()
class Writer(TimeSeriesUser):
    target, use_case, wait_time = "mariadb", "sensordata", constant(0)
    @task
    def write_flat_out(self):
        for _ in range({in_a_task}):
            self.write({rows})
"""

LUA = """
local head, rows, sensors, start_s = [[{head}]], {rows}, {sensors}, {start_s}
local threads, format, uniform = {writers}, string.format, math.random
local connection, number, counter
function thread_init()
   connection = sysbench.sql.driver():connect()
   number, counter = sysbench.tid, 0
   math.randomseed(sysbench.tid + 1)
end
local function row(time, sensor)
   counter = counter + 5
   return format("('%s',%d,%.16f,%.16f,%.16f,%.16f,%.16f,%d)", time, sensor,
      uniform(), uniform(), uniform(), uniform(), uniform(), counter)
end
function event()
   local time = os.date("!%Y-%m-%dT%H:%M:%S.000000", start_s + math.floor(number * rows / sensors))
   if rows == 1 then
      connection:query(head .. row(time, {first} + number % sensors))
   else
      local texts = {{}}
      for i = 1, rows do texts[i] = row(time, {first} + i - 1) end
      connection:query(head .. table.concat(texts, ","))
   end
   number = number + threads
end
"""


@dataclass(frozen=True)
class Rate:
    """Statements per second, and CPU seconds of the client per million rows."""

    per_s: float
    cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10, help="duration of one client in a round")
    given = parser.parse_args()
    if shutil.which("sysbench") is None:
        print("sysbench not found: install the package sysbench")
        return
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = MariadbServer(Path(directory) / "server", {"innodb_flush_log_at_trx_commit": "1"})
        try:
            server.start()
        except UserMistake as mistake:
            print(mistake)
            return
        try:
            compare(server.endpoint, Path(directory), given.rounds, given.seconds)
        finally:
            server.stop()
            server.remove()


def compare(endpoint: str, directory: Path, rounds: int, seconds: int) -> None:
    """Print rates, CPU and their ratios, by rows of a statement and processes of tsbench."""
    print(f"{WRITERS} writers, {rounds} rounds of {seconds} s")
    print(f"{'rows':>6} {'processes':>9} {'':8} {'statements/s':>13} {'rows/s':>9} {'client CPU s / M rows':>22}")
    for rows, processes, wanted in ((1, 1, "rate >= 0.5"), (1, 2, "rate >= 0.7"), (1_000, 1, "rate >= 1, CPU <= 0.5")):
        pairs = []
        for _ in range(rounds):
            mine = ours(endpoint, directory, rows, processes, seconds)
            pairs.append((mine, theirs(endpoint, directory, rows, seconds)))
        for name, found in zip(("tsbench", "sysbench"), zip(*pairs, strict=True), strict=True):
            rate, cpu = (statistics.median(getattr(one, key) for one in found) for key in ("per_s", "cpu_s"))
            print(f"{rows:>6,} {processes:>9} {name:8} {rate:>13,.0f} {rate * rows:>9,.0f} {cpu:>22.2f}")
        rate, cpu = (statistics.median(getattr(o, k) / getattr(t, k) for o, t in pairs) for k in ("per_s", "cpu_s"))
        print(
            f"{rows:>6,} {processes:>9} {'ratio':8} {rate:>13.2f} {'':9} {cpu:>22.3f}   (wanted: {wanted})", flush=True
        )


# --- tsbench ----------------------------------------------------------------------------------------------------------


def ours(endpoint: str, directory: Path, rows: int, processes: int, seconds: int) -> Rate:
    """Run Locust with our users; rate and CPU are those of its measured window, after a second of warm-up."""
    locustfile = directory / "locustfile.py"
    locustfile.write_text(LOCUSTFILE.format(rows=rows, in_a_task=100 if rows == 1 else 1))
    results = directory / "results"
    shutil.rmtree(results, ignore_errors=True)
    command = [
        str(BIN / "locust"), "-f", str(locustfile), "--headless", "-u", str(WRITERS), "-r", str(WRITERS),
        "-t", f"{seconds + 2}s", "--endpoint", endpoint, "--results", str(results), "--scale", str(SENSORS),
        "--load-window", "10s", "--warmup", "1s", *(["--processes", str(processes)] if processes > 1 else []),
    ]  # fmt: skip
    samples: list[tuple[float, float]] = []
    with (directory / "locust.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        clients = CpuTimes(process.pid)
        while process.poll() is None:
            samples.append((time.time(), clients.total_s()))
            time.sleep(0.1)
    path = next(results.glob("*/*/summary.json"), None)
    # 1: the load generator was the limit, as it is meant to be here
    part = json.loads(path.read_text(encoding="utf-8"))["measured"] if path is not None else {}
    op = (part.get("ops") or {}).get(f"write-{rows}")
    if process.returncode not in {0, 1} or op is None:
        sys.exit(f"{' '.join(command)} failed: {Path(log.name).read_text()[-2000:]}")
    assert op["failed"] == op["unknown"] == 0, op
    start_s, duration_s = part["window"]["start_s"], part["window"]["duration_s"]
    during = [one for one in samples if start_s <= one[0] <= start_s + duration_s]
    busy = (during[-1][1] - during[0][1]) / (during[-1][0] - during[0][0])
    return Rate(op["ops_per_s"], busy / op["points_per_s"] * 1e6)


class CpuTimes:
    """CPU time of a process and all below it; that of those which have ended stays in it."""

    def __init__(self, pid: int) -> None:
        self._top = psutil.Process(pid)
        self._seen_s: dict[tuple[int, float], float] = {}

    def total_s(self) -> float:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (self._top, *self._top.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._seen_s[process.pid, process.create_time()] = times.user + times.system
        return sum(self._seen_s.values())


# --- sysbench ---------------------------------------------------------------------------------------------------------


def theirs(endpoint: str, directory: Path, rows: int, seconds: int) -> Rate:
    """Run sysbench with a Lua script of our statement, into an empty table that our schema made."""
    of: Any = MARIADB.parse(endpoint)
    script = directory / "insert.lua"
    script.write_text(script_of(rows, empty_table(endpoint)))
    command = [
        "sysbench", f"--threads={WRITERS}", f"--time={seconds}", "--db-ps-mode=disable", "--db-driver=mysql",
        f"--mysql-host={of.host}", f"--mysql-port={of.port}", f"--mysql-user={of.user}",
        f"--mysql-password={of.password()}", f"--mysql-db={of.path}", str(script), "run",
    ]  # fmt: skip
    out, cpu_s = measured(command, {**os.environ, "TZ": "UTC"})
    events, total_s = found(r"total number of events:\s+(\d+)", out), found(r"total time:\s+([\d.]+)s", out)
    assert found(r"ignored errors:\s+(\d+)", out) == 0, out
    return Rate(events / total_s, cpu_s / (events * rows) * 1e6)


def empty_table(endpoint: str) -> World:
    """Create the tables of the same world as the locustfile's; return it."""
    world = World(built_in_spec("sensordata", SENSORS, 1, START_NS, 10**10))
    session = MARIADB.connect(endpoint, SCHEMA)
    session.run(SCHEMA.create(world.measurements, world.tags()))
    session.close()
    return world


def script_of(rows: int, world: World) -> str:
    """Return a Lua script with our statement, which differs from ours in its quotes alone: the server's SQL mode."""
    batch = next(iter(world.batches(0, points=SENSORS)))
    head = SCHEMA.encode(batch, WriteMode.MULTI).text.replace('"', "")
    parts: Mapping[str, object] = {
        "head": head, "rows": rows, "sensors": SENSORS, "writers": WRITERS, "start_s": START_NS // 10**9,
        "first": int(batch.series.min()),
    }  # fmt: skip
    return LUA.format(**parts)


def found(pattern: str, text: str) -> float:
    """Return the number that a pattern finds in what sysbench printed."""
    match = re.search(pattern, text)
    assert match is not None, text
    return float(match[1])


if __name__ == "__main__":
    main()
