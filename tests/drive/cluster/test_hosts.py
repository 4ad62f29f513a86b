"""Master and workers on hosts of their own: network namespaces that see neither each other's loopback nor results."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import PATIENCE_S, disturbances
from tests.namespaces import NETWORK
from tests.targets.postgres.test_server import socket_directory
from tsbench.measure.hist import Histogram
from tsbench.measure.seconds import LogIndex
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCUSTFILE = Path(__file__).parents[3] / "locustfiles" / "postgres.py"
SECONDS = 8

DELAY_MS = 50
FINE_DELAY_MS = 5.0
PORT = 15_432
SLOW_DOOR = """
import os, socket, sys, threading, time

path, delay_s, host, wanted = sys.argv[1], float(sys.argv[2]) / 1e3, sys.argv[3], int(sys.argv[4])

def received(source):
    try:
        return source.recv(65_536)
    except ConnectionResetError:
        return b""

def passed(source, sink, is_answer, asked):
    while data := received(source):
        if not is_answer:
            asked[0] = time.perf_counter_ns()
        elif b"INSERT 0 1\\0" in data:  # not of the checks, which read many rows
            time.sleep(delay_s)
            os.write(1, b"%f\\n" % ((time.perf_counter_ns() - asked[0]) / 1e6))  # one thread's line at a time
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)

door = socket.create_server((host, wanted))
print(door.getsockname()[1], flush=True)
while True:
    client, _ = door.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    asked = [0]
    for way in ((client, server, False), (server, client, True)):
        threading.Thread(target=passed, args=(*way, asked), daemon=True).start()
"""
"""A way to the server's socket by TCP; it prints its port, and then of each INSERT of a row for how many ms it took."""

pytestmark = pytest.mark.netns


@pytest.fixture
def server(own_server: Callable[[PostgresServer], PostgresServer], tmp_path: Path) -> Iterator[PostgresServer]:
    """A server with a socket."""
    with socket_directory() as sockets:
        settings = {"shared_buffers": "16MB", "unix_socket_directories": sockets}
        server = own_server(PostgresServer(tmp_path / "pg", settings))
        yield server
        server.kill()


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


def distributed(hosts, tmp_path, server, *, blind, kill="", place=None, more=()):
    """Run on the hosts, and kill the second worker in the phase `kill`; return the summary, the exit code and the log.

    The server is at its socket, or at `place` (host and port). Locust gets `more` options.
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
    options += ["--load-window", "2h", "--warmup", "1s", "--stop-timeout", "10", "--only-summary", *more]
    master = start(hosts[0], results, tmp_path / "master.log", *options, blind=False)
    member = ["--worker", "--master-host", f"{NETWORK}.1"]
    workers = [start(h, results, tmp_path / f"{h}.log", *member, blind=blind) for h in hosts[1:]]
    if kill:

        def recorded() -> list[int]:
            return [path.stat().st_size for path in results.rglob("*.ops.jsonl")]

        if kill != "start":
            wait_for(lambda: len(recorded()) == 2 and all(recorded()))
        if kill == "checks":  # which begin when the seconds of the whole run are in a table
            wait_for(lambda: any(results.rglob("ops.parquet")))
        time.sleep({"start": 0.5, "warm-up": 0.5, "middle": 3, "checks": 0}[kill])
        assert (master.poll(), workers[1].poll()) == (None, None), "nobody has ended yet"
        subprocess.run(["pkill", "-KILL", "-P", str(workers[1].pid)], check=False)
        workers[1].kill()
    code = master.wait(timeout=PATIENCE_S)
    summary = next(results.glob("*/*/summary.json"), None)
    return json.loads(summary.read_text()) if summary else {}, code, (tmp_path / "master.log").read_text()


def wait_for(condition, limit_s: float = PATIENCE_S) -> None:
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.mark.parametrize(
    "blind", [pytest.param(False, id="one file system"), pytest.param(True, id="two file systems")]
)
@pytest.mark.nightly
@pytest.mark.slow
def test_two_hosts_give_the_same_totals_as_one_process_would(hosts, tmp_path, server, blind):
    summary, code, log = distributed(hosts, tmp_path, server, blind=blind)
    assert "Traceback" not in log
    counts = summary["validity"]["checks"]["counts"]
    assert counts["state"] == "valid", counts
    assert len(set(counts["counts"].values())) == 1
    assert summary["validity"]["checks"]["workers"]["counts"] == {"workers": 2}
    assert summary["writes"]["acknowledged"] == summary["writes"]["stored"]
    assert code == (1 if disturbances(summary) else 0), summary["validity"]


@contextmanager
def door(host: str, server: PostgresServer, took: Path, delay_ms: float, address: str, port: int = 0) -> Iterator[int]:
    """A way to the server by TCP on a host, which holds up the answer to each INSERT of a row; yields its port."""
    path = f"{server.settings()['unix_socket_directories']}/.s.PGSQL.{server._port}"
    words = [sys.executable, "-c", SLOW_DOOR, path, str(delay_ms), address, str(port)]
    with took.open("wb") as out:
        process = subprocess.Popen(["ip", "netns", "exec", host, *words], stdout=out)
    try:
        wait_for(lambda: b"\n" in took.read_bytes())
        yield int(took.read_text().split()[0])
    finally:
        process.kill()
        process.wait()


def median_ms(took: Path) -> float:
    """The median of what a door itself measured."""
    return statistics.median(float(line) for line in took.read_text().split()[1:])


def medians_ms(results: Path) -> dict[str, float]:
    """The median service time of each worker's writes."""
    found = {}
    for log in results.glob("*/*/latency/*.hlog"):
        whole = Histogram()
        for _, op, kind, part in LogIndex([log]).histograms():
            if (op, kind) == ("write-1", "service"):
                part.add_to(whole)
        found[log.name] = whole.percentile_ns(50) / 1e6
    return found


@pytest.mark.slow
def test_workers_on_other_hosts_have_the_kernels_stamps(hosts, tmp_path, server):
    took = tmp_path / "took.txt"
    with door(hosts[0], server, took, DELAY_MS, f"{NETWORK}.1") as port:
        summary, _, log = distributed(hosts, tmp_path, server, blind=True, place=f"{NETWORK}.1:{port}")
    assert "Traceback" not in log
    written = summary["measured"]["ops"]["write-1"]
    assert (written["read"], written["stepped"]) == (0, 0)
    assert written["count"] > 20
    own_ms = median_ms(took)
    assert written["service_ns"]["p50"] / 1e6 == pytest.approx(own_ms, rel=0.05, abs=2)


@pytest.mark.nightly
def test_a_worker_whose_way_to_the_server_is_longer_has_longer_times_by_just_that(hosts, tmp_path, server):
    """Each host has a door at the same address of its own loopback; that of the second worker is slow."""
    with ExitStack() as stack:
        for host, delay_ms in zip(hosts, (0, 0, FINE_DELAY_MS), strict=True):
            stack.enter_context(door(host, server, tmp_path / f"{host}.took", delay_ms, "127.0.0.1", PORT))
        _, _, log = distributed(hosts, tmp_path, server, blind=True, place=f"127.0.0.1:{PORT}", more=["SingleWriter"])
    assert "Traceback" not in log
    quick_ms, slow_ms = sorted(medians_ms(tmp_path / "results").values())
    print(f"p50 of the workers: {quick_ms:.3f} and {slow_ms:.3f} ms")
    # On an idle machine the doors differ by just their delay; on a busy one each also waited for a core.
    doors_ms = sorted(median_ms(tmp_path / f"{host}.took") for host in hosts[1:])
    assert slow_ms - quick_ms == pytest.approx(doors_ms[1] - doors_ms[0], abs=0.3, rel=0.1)
    assert slow_ms - quick_ms > FINE_DELAY_MS - 0.3


@pytest.mark.nightly
@pytest.mark.parametrize("phase", ["warm-up", "middle"])
def test_a_worker_that_is_killed_is_reported_with_its_streams_and_the_rest_goes_on(hosts, tmp_path, server, phase):
    more = ["--warmup", "5s"] if phase == "warm-up" else []
    summary, code, _ = distributed(hosts, tmp_path, server, blind=False, kill=phase, more=more)
    workers = summary["validity"]["checks"]["workers"]
    assert workers["state"] == "invalid"
    assert "1 of 2 workers ended early" in workers["reason"]
    assert "with streams" in workers["reason"]
    assert summary["measured"]["duration_s"] >= SECONDS - 4 - 4 * (phase == "warm-up")  # after the warm-up
    assert summary["writes"]["lost"] == 0
    assert summary["validity"]["checks"]["writes"]["state"] != "invalid"
    assert code == 1


@pytest.mark.nightly
def test_a_worker_that_is_killed_while_the_checks_run_has_told_all_before(hosts, tmp_path, server):
    summary, code, log = distributed(hosts, tmp_path, server, blind=True, kill="checks")
    assert "Traceback" not in log
    assert summary["validity"]["checks"]["workers"]["state"] == "valid"
    assert len({*summary["validity"]["checks"]["counts"]["counts"].values()}) == 1
    assert summary["writes"]["acknowledged"] == summary["writes"]["stored"]
    assert code == (1 if disturbances(summary) else 0), summary["validity"]


@pytest.mark.nightly
def test_a_master_does_not_wait_for_a_worker_that_is_lost_before_it_came(hosts, tmp_path, server):
    more = ["--expect-workers-max-wait", "20"]
    _, code, log = distributed(hosts, tmp_path, server, blind=False, kill="start", more=more)
    assert code != 0
    assert "Traceback" not in log
    assert "only 1 of 2 workers connected within 20 s" in log
