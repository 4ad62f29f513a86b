"""The start form takes the endpoints of the start and no others: real servers, and a proxy that records all bytes."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.slow
def test_the_form_offers_the_endpoints_of_the_start_and_takes_no_other(
    served: Callable[..., Served], strangers: Callable[[], Stranger]
) -> None:
    first, second, other = (strangers() for _ in range(3))
    given = [f"http://me@127.0.0.1:{one.port}/start" for one in (first, second)]
    locust = served(*(word for endpoint in given for word in ("--endpoint", endpoint)))
    page = locust.get("/").text
    assert all(endpoint in page for endpoint in (*given, "a server that tsbench starts"))
    for form in (f"http://me@127.0.0.1:{other.port}/start", f"http://you@127.0.0.1:{first.port}/start", "file:///x"):
        assert "was not given at the start" in locust.refusal(endpoint=form, host="")
        assert "was not given at the start" in locust.refusal(endpoint="", host=form)
    assert other.connections == 0
    locust.start(4, endpoint=given[1], host="")
    wait_until(lambda: locust.live()["trouble"] or locust.rows("writes"), "writes")
    assert locust.live()["trouble"] == ""
    assert (first.was_told(), second.was_told()) == (False, True)
    locust.post("/stop")
    wait_until(lambda: not locust.live()["report"], "the checks")


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.nightly
@pytest.mark.slow
def test_workers_log_in_as_their_master_does(
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
