"""Forms of the web UI cannot send secrets to other servers: real servers, and a proxy that records all bytes."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest

from tests.drive.webui.browser import wait_until
from tests.drive.webui.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2

SENTINEL = "sentinel-4711"
SPELLINGS = (SENTINEL.encode(), b64encode(f"me:{SENTINEL}".encode()))
FIRST_DATA = {"TSBENCH_SCALE": "10", "TSBENCH_LOAD_WINDOW": "6h"}


class Stranger:
    """A proxy that passes connections on to a server without a password, and records all bytes."""

    def __init__(self, port: int) -> None:
        self._port, self.received, self.connections = port, bytearray(), 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def was_told(self) -> bool:
        return any(spelling in self.received for spelling in SPELLINGS)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._pass, args=(client, server, self.received), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                kept += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def strangers(influxdb_server: Callable[[str], InfluxServer1 | InfluxServer2]) -> Iterator[Callable[[], Stranger]]:
    """Start servers of others, in front of a real InfluxDB."""
    made: list[Stranger] = []

    def make() -> Stranger:
        port = urlsplit(influxdb_server("1.8").endpoint).port
        assert port is not None
        made.append(Stranger(port))
        return made[-1]

    yield make
    for stranger in made:
        stranger.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts Locust for InfluxDB with a password in its environment; ended after the test."""
    started: list[Served] = []

    def start(*words: str, **variables: str) -> Served:
        variables = {**FIRST_DATA, "TSBENCH_PASSWORD": SENTINEL, **variables}
        started.append(Served(tmp_path, *words, target="influxdb1", **variables))
        return started[-1].ready()

    yield start
    for one in started:
        one.close()


@pytest.mark.slow
@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.parametrize("words", [(), ("--processes", "2")], ids=["one process", "a master with workers"])
def test_an_endpoint_of_the_form_is_used_without_a_password_where_none_was_given_at_the_start(
    served: Callable[..., Served], strangers: Callable[[], Stranger], words: tuple[str, ...]
) -> None:
    locust, stranger = served(*words), strangers()
    if words:
        wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start(4, endpoint=f"http://me@127.0.0.1:{stranger.port}/form")
    wait_until(lambda: locust.live()["trouble"] or locust.rows("writes"), "writes")
    assert locust.live()["trouble"] == ""
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")
    assert stranger.connections > 1
    assert not stranger.was_told()


@getattr(pytest.mark, "influxdb-1.8")
def test_the_password_goes_to_the_endpoint_of_the_start_and_another_one_of_the_form_is_used_without_it(
    served: Callable[..., Served], strangers: Callable[[], Stranger]
) -> None:
    own, other = strangers(), strangers()
    endpoint = f"http://me@127.0.0.1:{own.port}/start"
    locust = served("--endpoint", endpoint, "--processes", "2", AWS_SECRET_ACCESS_KEY=SENTINEL)
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    for form in (f"http://me@127.0.0.1:{other.port}/start", f"http://you@127.0.0.1:{own.port}/start"):
        locust.start(4, endpoint=form, host="")
        wait_until(lambda: locust.live()["trouble"] or (locust.live()["running"] and locust.rows("writes")), "writes")
        assert locust.live()["trouble"] == ""
        helpers = [c for c in psutil.Process(locust.child.pid).children() if "bare.helper" in " ".join(c.cmdline())]
        assert helpers
        assert SENTINEL not in str([helper.environ() for helper in helpers])
        locust.post("/stop")
        wait_until(lambda: not locust.live()["report"], "the checks")
        assert not own.was_told()
    assert other.connections > 1
    assert not other.was_told()
    locust.start(4, endpoint=endpoint.replace("/start", "/another"), host="")
    wait_until(lambda: locust.live()["running"] and locust.rows("writes"), "writes")
    assert own.was_told()
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")


@getattr(pytest.mark, "influxdb-1.8")
def test_workers_log_in_where_their_master_may(
    served: Callable[..., Served], strangers: Callable[[], Stranger], tmp_path: Path
) -> None:
    own = strangers()
    locust = served("--endpoint", f"http://me@127.0.0.1:{own.port}/start", "--processes", "2")
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start(4)
    wait_until(lambda: locust.rows("writes"), "writes")
    # The last write that came is a worker's; it may not have come whole.
    wait_until(lambda: SPELLINGS[1] in own.received.rpartition(b"POST /write")[2], "a write with the log-in")
    locust.post("/stop")


def test_a_form_cannot_have_a_file_of_this_machine_sent(tmp_path: Path) -> None:
    (tmp_path / "private").write_text(f"*:*:*:*:{SENTINEL}\n")
    (tmp_path / "private").chmod(0o600)
    locust = Served(tmp_path, target="postgres", **FIRST_DATA).ready()
    try:
        refusal = locust.refusal(endpoint=f"postgresql://me@127.0.0.1:9/x?passfile={tmp_path / 'private'}")
        assert "the option 'passfile' cannot be given here" in refusal
    finally:
        locust.close()
