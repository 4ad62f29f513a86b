"""Verify that stalls are found where they are: runs with one stall that is forced at a known time, and calm runs.

A stall lasts 2 s. In turn: FLUSH TABLES WITH READ LOCK on MariaDB; MyRocks with its background work paused, so that its
small write buffers fill up; a lock on PostgreSQL's table; its processes stopped (SIGSTOP; a CHECKPOINT of this load's
few pages takes milliseconds and stalls nothing); a lock on SQLite's file.
It counts as found if one of the stalls that the run names begins within a second of it. Every other stall is false; the
host's own (steal, other processes) are among them, so leave the machine alone meanwhile.

`python tests/benchmarks/bench_stalls.py [STALLS [CALM [LOOP]]]` (20 of each, closed; a run takes about 40 s). In an
open loop what a stall held up is caught up at once. Prints which of the server's counters were high in each stall.
Exits with 1 if fewer than 19 of 20 were found or more than one was false.
Needs MariaDB with MyRocks and mysqlclient (docs/databases/mysql.md).
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own helpers

import MySQLdb
import psycopg

from tests.drive.support import document
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.scenario.spec import Scenario
from tsbench.targets.pgwire.login import parameters
from tsbench.targets.postgres.schemas import NAMESPACE
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.servers.base import Server

STALL_S = 2.0
NEAR_S = 1.0
FIRST_S, LAST_S = 6.0, 16.0
"""When the stall begins, after the load processes have recorded their first second."""
START_S = 300.0
"""Time limit for that."""
LOOPS: dict[str, Any] = {
    "closed": {"users": 4, "wait": "10ms"},
    "open": {"loop": "open", "wait": "0s", "users": 8, "rate": 200, "arrivals": "poisson"},
}
LOAD: dict[str, Any] = {
    "op": [{"write": 10}],
    "check": {"answers": 0, "readback": 1_000},
}
KINDS = (
    "mariadb read lock", "mariadb background paused", "postgres table locked", "postgres stopped", "sqlite file locked",
)  # fmt: skip
CALM = ("postgres", "mariadb", "sqlite")
SMALL_BUFFERS = {"rocksdb_default_cf_options": "write_buffer_size=64k;max_write_buffer_number=2"}


@contextmanager
def stalled(kind: str, server: Server) -> Iterator[None]:
    """Hold up the database during a `with` block."""
    if kind == "postgres stopped":
        pids = server.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    elif kind.startswith("mariadb"):
        of: Any = TARGETS["mariadb"].parse(server.endpoint)
        connection = MySQLdb.connect(host=of.host, port=of.port, user=of.user, password=of.password())
        locks = kind == "mariadb read lock"
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK" if locks else "SET GLOBAL rocksdb_pause_background_work = 1")
            try:
                yield
            finally:
                cursor.execute("UNLOCK TABLES" if locks else "SET GLOBAL rocksdb_pause_background_work = 0")
    elif kind == "postgres table locked":
        with psycopg.connect(**parameters(server.endpoint)) as connection:
            connection.execute(f"LOCK TABLE {NAMESPACE}.cpu IN ACCESS EXCLUSIVE MODE")
            yield
    else:
        path = server.endpoint.removeprefix("sqlite://")
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield


class Forcing(Quiet):
    """Forces a stall some seconds after the load began; a Progress of the run whose directory is below `results`."""

    def __init__(self, kind: str, server: Server, after_s: float, results: Path) -> None:
        self._kind, self._server, self._after_s, self._results = kind, server, after_s, results
        self.began_s: float | None = None
        """When the stall began, epoch seconds."""

    def phase(self, name: str, total: float | None = None) -> None:
        del total
        if name == "measure" and self._kind:
            threading.Thread(target=self._force, daemon=True).start()

    def _force(self) -> None:
        give_up = time.monotonic() + START_S
        while not any("Tag=" in log.read_text() for log in self._results.glob("*/latency/*.hlog")):
            if time.monotonic() > give_up:
                return
            time.sleep(0.05)
        time.sleep(self._after_s)
        with stalled(self._kind, self._server):
            self.began_s = time.time()
            time.sleep(STALL_S)


@dataclass(frozen=True)
class Result:
    """What a run found: whether the forced stall (True for a calm run), how many others, and both in words."""

    found: bool
    false: int
    text: str


def measure(directory: Path, target: str, kind: str, after_s: float, loop: str) -> Result:
    """Run one cell against a server of our own, and compare its stalls with the forced one, if any."""
    directory.mkdir()
    myrocks = kind == "mariadb background paused"
    server = TARGETS[target].new_server(directory / "server", SMALL_BUFFERS if myrocks else {})
    server.start()
    try:
        forcing = Forcing(kind, server, after_s, directory)
        where = {"name": target, "endpoint": server.endpoint, **({"schema": "rocksdb"} if myrocks else {})}
        content = document(**LOAD, drive={**LOOPS[loop], "warmup": "2s", "duration": "22s"}, target=where)
        (spec,) = Scenario(directory / "test.toml", content).expand()
        summary = run_job(spec, directory, forcing).to_json()
    finally:
        server.stop()
    start_s = summary["measured"]["window"]["start_s"]
    stalls = summary["steadiness"]["write"]["stalls"]
    due_s = None if forcing.began_s is None else forcing.began_s - start_s
    near = [stall for stall in stalls if due_s is not None and abs(stall["start_s"] - due_s) <= NEAR_S]
    return Result(bool(near) or not kind, len(stalls) - bool(near), _text(due_s, stalls))


def _text(due_s: float | None, stalls: list[dict[str, Any]]) -> str:
    texts = []
    for stall in stalls:
        high = [f"{rise['panel']}, {rise['label']} {rise['highest']:,.4g}" for rise in stall["counters"]]
        counters = f" ({'; '.join(high)})" if high else ""
        texts.append(f"{stall['start_s']} s for {stall['length_s']} s down to {stall['lowest']:.0%}{counters}")
    forced = "calm" if due_s is None else f"forced at {due_s:.1f} s"
    return f"{forced}; found: {', '.join(texts) or 'none'}"


def main() -> None:
    """Run and print."""
    stalls, calm, loop = (*sys.argv[1:4], *("20", "20", "closed")[len(sys.argv) - 1 :])
    kinds = [KINDS[number % len(KINDS)] for number in range(int(stalls))]
    rest = [""] * int(calm)
    found = false = 0
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        for number, kind in enumerate([*kinds, *rest]):
            target = kind.split()[0] if kind else CALM[number % len(CALM)]
            result = measure(Path(directory) / str(number), target, kind, chance.uniform(FIRST_S, LAST_S), loop)
            found += bool(kind) and result.found
            false += result.false
            print(f"{number + 1:>3}  {kind or target + ' calm':<24} {result.text}", flush=True)
    runs = len(kinds) + len(rest)
    print(f"\nfound {found} of {len(kinds)} forced stalls within {NEAR_S:g} s; {false} false ones in {runs} runs")
    if found < len(kinds) * 19 / 20 or false > 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
