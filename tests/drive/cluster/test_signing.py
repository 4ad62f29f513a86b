"""Real masters and workers, and strangers on the same port who use Locust's protocol without the secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import psutil
import pytest
import zmq

from tests.cli.support import PATIENCE_S, Command, complaint, content, only, says
from tsbench.drive.cluster.seal import Seal, WorkerEnd
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.warm import WarmLocust

LOCUSTFILE = str(Path(__file__).parents[3] / "locustfiles" / "sqlite.py")
SECRET = "0123456789abcdef0123456789abcdef"
FIRST_DATA = {
    "TSBENCH_SCALE": "10",
    "TSBENCH_LOAD_WINDOW": "2h",
    "TSBENCH_WARMUP": "0s",
    "TSBENCH_CLUSTER_SECRET": None,
}
WITH_SECRET = {**FIRST_DATA, "TSBENCH_CLUSTER_SECRET": SECRET}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts `locust -f` in a directory of its own, with these variables; ended after the test."""
    started: list[Command] = []

    def make(*words: str, env: dict[str, str | None]) -> Command:
        place = tmp_path / f"{len(started)}"
        place.mkdir()
        started.append(Command(place, "locust", "-f", LOCUSTFILE, "--only-summary", *words, env=env))
        return started[-1]

    yield make
    for command in started:
        command.end()


def expect_workers(command: Command, count: int) -> None:
    """Verify that `count` workers wrote results and finished."""
    summary = content(only(command.place, "results/*/*/summary.json"))
    assert summary["validity"]["checks"]["workers"]["state"] == "valid"
    assert summary["validity"]["checks"]["workers"]["counts"] == {"workers": count}
    assert summary["writes"]["acknowledged"] == summary["writes"]["stored"] > 0


def master(port: str, *words: str) -> list[str]:
    return ["--master", "--master-bind-port", port, "--headless", "-u", "2", "-r", "2", "-t", "600s", *words]


def worker(port: str) -> list[str]:
    return ["--worker", "--master-host", "127.0.0.1", "--master-port", port]


class Stranger:
    """A socket that sends as a worker, used by an attacker."""

    def __init__(self, port: str, name: bytes = b"stranger") -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, name)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def says(self, kind: str, data: Any) -> None:
        self.socket.send(msgpack.dumps((kind, data, "stranger")))

    def hears(self, within_s: float) -> bytes | None:
        return self.socket.recv() if self.socket.poll(round(within_s * 1_000)) else None

    def close(self) -> None:
        self.socket.close()


def test_a_worker_without_the_secret_is_not_heard_and_one_with_it_is(start: Callable[..., Command]) -> None:
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "1"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    stranger = Stranger(port)
    try:
        stranger.says("client_ready", "2.47.0")
        stranger.socket.send(b"\xc1 no msgpack at all")
        stranger.socket.send(b"\xdd\xff\xff\xff\xff")  # an array of four billion elements
        command.wait_until(lambda: "dropped a message of b'stranger' that is not signed" in command.stderr)
        assert stranger.hears(within_s=1) is None
        assert "stranger (index" not in command.stderr
        assert "1 of 1" not in command.stderr
        started = start(*worker(port), env=WITH_SECRET)
        command.interrupt_once_recorded()
        assert command.wait() in {0, 1}, command.stderr
        assert started.wait() == 0, started.stderr
        expect_workers(command, 1)
        assert "Traceback" not in command.stderr + started.stderr
    finally:
        stranger.close()


def test_bytes_that_were_recorded_on_the_wire_make_no_worker(start: Callable[..., Command]) -> None:
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "2"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    own, recorded = WorkerEnd(Seal(SECRET.encode()), b"worker"), []
    honest = Stranger(port, b"worker")
    recorded += own.send(msgpack.dumps(("client_ready", "2.47.0", "worker")))
    honest.socket.send(recorded[0])
    welcome = honest.hears(within_s=PATIENCE_S)
    assert welcome is not None
    recorded += own.receive(welcome)[2]
    honest.socket.send(recorded[1])
    command.wait_until(lambda: "worker (index 0) reported as ready" in command.stderr)
    honest.close()
    thief = Stranger(port, b"thief")
    for data in recorded:
        thief.socket.send(data)
    command.wait_until(lambda: "dropped a message of b'thief'" in command.stderr)
    assert "thief (index" not in command.stderr
    thief.close()


def test_a_worker_does_nothing_for_a_master_without_the_secret(start: Callable[..., Command]) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as impostor:
        impostor.setsockopt(zmq.LINGER, 0)
        port = str(impostor.bind_to_random_port("tcp://127.0.0.1"))
        command = start(*worker(port), env={**WITH_SECRET, "TSBENCH_PASSWORD": "sentinel-4711"})
        assert impostor.poll(round(PATIENCE_S * 1_000))
        name, first = impostor.recv_multipart()
        assert b"client_ready" not in first, "what a worker says is said to its master alone"
        for kind, data in (("ack", {"index": 0}), ("quit", None), ("tsbench-share", {"endpoint": "http://me@evil/x"})):
            impostor.send_multipart([name, msgpack.dumps((kind, data, name.decode()))])
        command.wait_until(lambda: "dropped a message of the master that is not signed" in command.stderr)
        command.wait_until(lambda: "the master does not answer; does it run there, and with the same" in command.stderr)
        assert command.process.poll() is None


@pytest.mark.parametrize(
    ("words", "variables", "answer"),
    [
        (["--master"], {}, "set TSBENCH_CLUSTER_SECRET (or TSBENCH_CLUSTER_SECRET_FILE), the same for the master and"),
        (["--worker"], {}, "set TSBENCH_CLUSTER_SECRET (or TSBENCH_CLUSTER_SECRET_FILE), the same for the master and"),
        (
            ["--worker", "--master-host", "db.example"],
            {},
            "--master-host: db.example is open to other machines; set TS",
        ),
        (["--master", "--master-bind-host", "*"], {}, "--master-bind-host: all interfaces are open to other machines"),
        (
            ["--master", "--master-bind-host", "0.0.0.0"],
            {},
            "--master-bind-host: 0.0.0.0 is open to other machines; set",
        ),
        (["--processes", "2", "--master-bind-host", "*"], {}, "--master-bind-host: all interfaces are open to other"),
        (["--master"], {"TSBENCH_CLUSTER_SECRET": "short"}, "TSBENCH_CLUSTER_SECRET has fewer than 16 characters"),
        (["--master"], {"TSBENCH_CLUSTER_SECRET_FILE": "/no"}, "TSBENCH_CLUSTER_SECRET_FILE=/no cannot be read"),
    ],
)
def test_a_master_or_worker_without_a_secret_ends_before_it_listens(
    warm_locust: WarmLocust, tmp_path: Path, words: list[str], variables: dict[str, str], answer: str
) -> None:
    port = str(free_port())
    ports = ["--master-bind-port", port, "--master-port", port]
    done = warm_locust.run(tmp_path, "-f", LOCUSTFILE, "--headless", *ports, *words, env={**FIRST_DATA, **variables})
    assert done.code == 2
    errors = "\n".join(re.sub(r"^\[.*?tsbench: ", "", line) for line in done.stderr.splitlines() if "ERROR" in line)
    says(complaint(errors), answer)


def test_processes_share_a_secret_of_their_own_and_listen_on_this_machine_alone(start: Callable[..., Command]) -> None:
    port = str(free_port())
    command = start("--headless", "-u", "4", "-r", "4", "-t", "600s", "--processes", "2", "--master-bind-port", port,
                    "--master-port", port, env=FIRST_DATA)  # fmt: skip
    command.wait_until(lambda: "2 workers connected" in command.stderr)
    listening = [c for c in psutil.Process(command.process.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip for c in listening if c.laddr.port == int(port)} == {"127.0.0.1"}
    stranger = Stranger(port)
    try:
        stranger.says("client_ready", "2.47.0")
        command.wait_until(lambda: "dropped a message of b'stranger' that is not signed" in command.stderr)
        assert stranger.hears(within_s=0.5) is None
    finally:
        stranger.close()
    command.interrupt_once_recorded()
    assert command.wait() in {0, 1}, command.stderr
    expect_workers(command, 2)


def test_signing_costs_next_to_nothing() -> None:
    text = "import time; from tsbench.drive.cluster.seal import *\n"
    text += "w, m = WorkerEnd(s := Seal(b'x' * 32), b'n'), MasterEnd(s)\n"
    text += "for a in w.receive(m.receive(b'n', w.send(b'x')[0])[2][0])[2]: m.receive(b'n', a)\n"
    text += "b = bytes(5_000); t = time.process_time()\n"
    text += "for _ in range(1_000): m.receive(b'n', w.send(b)[0])\n"
    text += "print((time.process_time() - t) / 1_000)"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert float(done.stdout) < 0.001, "a worker sends a report every 3 s"
