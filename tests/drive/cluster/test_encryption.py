"""Real masters and workers, and strangers on the same port who use Locust's protocol without the secret."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import psutil
import pytest
import zmq

from tests.cli.support import Command, complaint, content, only, says
from tsbench.drive.cluster.keys import Keys, is_guessable
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.warm import WarmLocust

LOCUSTFILE = str(Path(__file__).parents[3] / "locustfiles" / "sqlite.py")
SECRET, OTHER_SECRET = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
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
    """A socket that sends as a worker, used by an attacker; with a secret it encrypts."""

    def __init__(self, port: str, secret: str = "", name: bytes = b"stranger") -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        if secret:
            Keys.of(secret).secure_worker(self.socket)
        self.socket.setsockopt(zmq.IDENTITY, name)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, 5_000)
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def says(self, kind: str, data: Any) -> None:
        self.sends(msgpack.dumps((kind, data, "stranger")))

    def sends(self, content: bytes) -> None:
        """Send, or give up if the master has refused the connection meanwhile."""
        with suppress(zmq.Again):
            self.socket.send(content)

    def hears(self, within_s: float) -> bytes | None:
        return self.socket.recv() if self.socket.poll(round(within_s * 1_000)) else None

    def close(self) -> None:
        self.socket.close()


@pytest.mark.slow
def test_a_worker_without_the_secret_is_not_heard_and_one_with_it_is(start: Callable[..., Command]) -> None:
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "1"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    plain, wrong = Stranger(port), Stranger(port, OTHER_SECRET)
    try:
        for stranger in (plain, wrong):
            stranger.says("client_ready", "2.47.0")
            stranger.sends(b"\xdd\xff\xff\xff\xff")  # an array of four billion elements
        with socket.create_connection(("127.0.0.1", int(port))) as scanner:
            scanner.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        command.wait_until(lambda: "a process was refused that is not a worker of tsbench" in command.stderr)
        command.wait_until(lambda: "its TSBENCH_CLUSTER_SECRET is another one" in command.stderr)
        assert plain.hears(within_s=1) is None
        assert wrong.hears(within_s=0.1) is None
        assert "stranger (index" not in command.stderr
        started = start(*worker(port), env=WITH_SECRET)
        command.interrupt_once_recorded()
        assert command.wait() in {0, 1}, command.stderr
        assert started.wait() == 0, started.stderr
        expect_workers(command, 1)
        assert "Traceback" not in command.stderr + started.stderr
    finally:
        plain.close()
        wrong.close()


class Wire:
    """A proxy that records what clients send through it, and can send that again."""

    def __init__(self, port: str) -> None:
        self._to = ("127.0.0.1", int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._listener.getsockname()[1])
        self.recorded = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
                threading.Thread(target=self._copy, args=(client, server, self.recorded), daemon=True).start()
                threading.Thread(target=self._copy, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                record += data
                sink.sendall(data)
        sink.close()

    def replay(self) -> None:
        with socket.create_connection(self._to) as thief, suppress(OSError):
            thief.sendall(self.recorded)
            thief.settimeout(1)
            while thief.recv(65_536):
                pass

    def close(self) -> None:
        self._listener.close()


def test_bytes_on_the_wire_say_nothing_and_make_no_worker_when_they_are_sent_again(
    start: Callable[..., Command],
) -> None:
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "2"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    wire = Wire(port)
    honest = Stranger(wire.port, SECRET, b"honest-worker")
    try:
        honest.says("client_ready", "2.47.0")
        command.wait_until(lambda: "honest-worker (index 0) reported as ready" in command.stderr)
        assert len(wire.recorded) > 200
        assert not any(word in wire.recorded for word in (b"honest", b"client_ready", SECRET.encode()))
        wire.replay()
        assert command.stderr.count("reported as ready") == 1
    finally:
        honest.close()
        wire.close()


@pytest.mark.slow
@pytest.mark.parametrize("impostor", ["plain", "another secret"])
def test_a_worker_does_nothing_for_a_master_without_the_secret_and_ends(
    start: Callable[..., Command], impostor: str
) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as listener:
        listener.setsockopt(zmq.LINGER, 0)
        if impostor != "plain":
            Keys.of(OTHER_SECRET).secure_master(listener)
        port = str(listener.bind_to_random_port("tcp://127.0.0.1"))
        command = start(*worker(port), env={**WITH_SECRET, "TSBENCH_PASSWORD": "sentinel-4711"})
        assert command.wait() == 2, command.stderr
        assert not listener.poll(0), "what a worker says is said to its master alone"
        answer = f"what answers at 127.0.0.1:{port} has another TSBENCH_CLUSTER_SECRET, or is not a master"
        assert command.stderr.count(answer) == 1, command.stderr
        assert "Traceback" not in command.stderr


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    for weak in ("short", "a" * 64, "0123456789abcdef" * 1 + "0" * 15, "correct horse battery", "abab" * 20):
        assert is_guessable(weak), weak
    for strong in (secrets.token_hex(16), secrets.token_urlsafe(16), SECRET, "correct horse battery staple!"):
        assert not is_guessable(strong), strong


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
        (
            ["--master"],
            {"TSBENCH_CLUSTER_SECRET": "short"},
            "TSBENCH_CLUSTER_SECRET could be guessed; make one with open",
        ),
        (["--master"], {"TSBENCH_CLUSTER_SECRET_FILE": "/no"}, "TSBENCH_CLUSTER_SECRET_FILE=/no cannot be read"),
    ],
)
@pytest.mark.slow
def test_a_master_or_worker_without_a_secret_ends_before_it_listens(
    warm_locust: WarmLocust, tmp_path: Path, words: list[str], variables: dict[str, str], answer: str
) -> None:
    port = str(free_port())
    ports = ["--master-bind-port", port, "--master-port", port]
    done = warm_locust.run(tmp_path, "-f", LOCUSTFILE, "--headless", *ports, *words, env={**FIRST_DATA, **variables})
    assert done.code == 2
    errors = "\n".join(re.sub(r"^\[.*?tsbench: ", "", line) for line in done.stderr.splitlines() if "ERROR" in line)
    says(complaint(errors), answer)


@pytest.mark.slow
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
        command.wait_until(lambda: "a process was refused that is not a worker of tsbench" in command.stderr)
        assert stranger.hears(within_s=0.5) is None
    finally:
        stranger.close()
    command.interrupt_once_recorded()
    assert command.wait() in {0, 1}, command.stderr
    expect_workers(command, 2)
