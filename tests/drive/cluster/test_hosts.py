"""Master and workers on hosts of their own: network namespaces that see neither each other's loopback nor results."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import PATIENCE_S, disturbances
from tests.namespaces import NETWORK
from tests.targets.postgres.test_server import socket_directory
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCUSTFILE = Path(__file__).parents[3] / "locustfiles" / "postgres.py"
SECONDS = 8

DELAY_MS = 50
SLOW_DOOR = """
import asyncio, sys, time

path, delay_s, host = sys.argv[1], float(sys.argv[2]) / 1e3, sys.argv[3]

async def serve(reader, writer):
    server, sink = await asyncio.open_unix_connection(path)
    asked_ns = 0

    async def ask():
        nonlocal asked_ns
        while data := await reader.read(65_536):
            asked_ns = time.perf_counter_ns()
            sink.write(data)
        sink.close()

    async def answer():
        while data := await server.read(65_536):
            if b"INSERT 0 1\\0" in data:  # not of the checks, which read many rows
                await asyncio.sleep(delay_s)
                print((time.perf_counter_ns() - asked_ns) / 1e6, flush=True)
            writer.write(data)
        writer.close()

    await asyncio.gather(ask(), answer())

async def main():
    door = await asyncio.start_server(serve, host, 0)
    print(door.sockets[0].getsockname()[1], flush=True)
    await door.serve_forever()

asyncio.run(main())
"""
"""A way to the server's socket by TCP; it prints its port, and then of each INSERT of a row for how many ms it took."""

pytestmark = pytest.mark.netns


@pytest.fixture
def server(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[PostgresServer]:
    """A server with a socket; `postgres_server` skips where there is none."""
    with socket_directory() as sockets:
        server = PostgresServer(tmp_path / "pg", {"shared_buffers": "16MB", "unix_socket_directories": sockets})
        server.start()
        yield server
        server.kill()
        server.remove()


def start(host: str, results: Path, log: Path, *options: str, blind: bool) -> subprocess.Popen[bytes]:
    """Start Locust on a host; a `blind` one has a results directory of its own, as another machine would."""
    locust = shutil.which("locust", path=str(Path(sys.executable).parent))
    hide = f"mount -t tmpfs none {results} && " if blind else ""
    words = [str(locust), "-f", str(LOCUSTFILE), *options]
    with log.open("wb") as out:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, "sh", "-c", f'{hide}exec "$@"', "sh", *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, "TSBENCH_CLUSTER_SECRET": "one secret for the master and its workers"},
        )


def distributed(hosts, tmp_path, server, *, blind, kill=None, place=None):
    """Run on the hosts, kill the worker `kill` in the middle; return the summary, the exit code and the log.

    The server is at its socket, or at `place` (host and port).
    """
    results = tmp_path / "results"
    results.mkdir()
    # the file system is shared, and with it the server's socket, which no network namespace hides
    passfile = tmp_path / "passfile"
    passfile.touch(mode=0o600)
    passfile.write_text(f"*:*:*:postgres:{server._password()}\n")
    sockets = server.settings()["unix_socket_directories"]
    endpoint = f"postgresql://postgres@/postgres?host={sockets}&port={server._port}&passfile={passfile}"
    if place is not None:
        endpoint = f"postgresql://postgres@{place}/postgres?passfile={passfile}"
    options = ["--master", "--headless", "--expect-workers", "2", "-u", "8", "-r", "8", "-t", f"{SECONDS}s"]
    options += ["--master-bind-host", f"{NETWORK}.1", "--endpoint", endpoint, "--results", str(results)]
    options += ["--load-window", "2h", "--warmup", "1s", "--stop-timeout", "10", "--only-summary"]
    master = start(hosts[0], results, tmp_path / "master.log", *options, blind=False)
    member = ["--worker", "--master-host", f"{NETWORK}.1"]
    workers = [start(h, results, tmp_path / f"{h}.log", *member, blind=blind) for h in hosts[1:]]
    if kill is not None:

        def recorded() -> list[int]:
            return [path.stat().st_size for path in results.rglob("*.ops.jsonl")]

        wait_for(lambda: len(recorded()) == 2 and all(recorded()))
        time.sleep(3)
        subprocess.run(["pkill", "-KILL", "-P", str(workers[kill].pid)], check=False)
        workers[kill].kill()
    code = master.wait(timeout=PATIENCE_S)
    (summary,) = results.glob("*/*/summary.json")
    return json.loads(summary.read_text()), code, (tmp_path / "master.log").read_text()


def wait_for(condition, limit_s: float = PATIENCE_S) -> None:
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.mark.parametrize("blind", [False, True], ids=["one file system", "two file systems"])
def test_two_hosts_give_the_same_totals_as_one_process_would(hosts, tmp_path, server, blind):
    summary, code, log = distributed(hosts, tmp_path, server, blind=blind)
    assert "Traceback" not in log
    counts = summary["validity"]["checks"]["counts"]
    assert counts["state"] == "valid", counts
    assert len(set(counts["counts"].values())) == 1
    assert summary["validity"]["checks"]["workers"]["counts"] == {"workers": 2}
    assert summary["writes"]["acknowledged"] == summary["writes"]["stored"]
    assert code == (1 if disturbances(summary) else 0), summary["validity"]


def test_workers_on_other_hosts_have_the_kernels_stamps(hosts, tmp_path, server):
    path = f"{server.settings()['unix_socket_directories']}/.s.PGSQL.{server._port}"
    words = [sys.executable, "-c", SLOW_DOOR, path, str(DELAY_MS), f"{NETWORK}.1"]
    took = tmp_path / "took.txt"
    with took.open("wb") as out:
        door = subprocess.Popen(["ip", "netns", "exec", hosts[0], *words], stdout=out)
    wait_for(lambda: b"\n" in took.read_bytes())
    port = took.read_text().split()[0]
    summary, _, log = distributed(hosts, tmp_path, server, blind=True, place=f"{NETWORK}.1:{port}")
    door.kill()
    door.wait()
    assert "Traceback" not in log
    written = summary["measured"]["ops"]["write-1"]
    assert (written["read"], written["stepped"]) == (0, 0)
    assert written["count"] > 20
    own_ms = statistics.median(float(line) for line in took.read_text().split()[1:])
    assert written["service_ns"]["p50"] / 1e6 == pytest.approx(own_ms, rel=0.05, abs=2)


def test_a_worker_that_is_killed_is_reported_with_its_streams_and_the_rest_goes_on(hosts, tmp_path, server):
    summary, code, _ = distributed(hosts, tmp_path, server, blind=False, kill=1)
    workers = summary["validity"]["checks"]["workers"]
    assert workers["state"] == "invalid"
    assert "1 of 2 workers ended early" in workers["reason"]
    assert "with streams" in workers["reason"]
    assert summary["measured"]["duration_s"] >= SECONDS - 4  # from the end of the warm-up to the end of the run
    assert summary["writes"]["lost"] == 0
    assert summary["validity"]["checks"]["writes"]["state"] != "invalid"
    assert code == 1
