"""Endpoints that cannot be used: the cause is named at once, in one line."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import bson
import pytest

from tests.cli.support import TINY, complaint
from tests.hostile import http, mongodb, postgres
from tests.hostile.doors import Channel, FakeServer, environment
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.run.time_limits import Limits
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

GREETING = b"\x50\0\0\0\x0a5.5.5-10.11.6-MariaDB-0+deb12u1\0" + bytes(46)


def greets(channel: Channel) -> None:
    """Be MariaDB, for a moment."""
    channel.send(GREETING)
    channel.waited(1)


def web(channel: Channel) -> None:
    """Be InfluxDB for all, and silent to whoever does not speak HTTP."""
    while True:
        http.read_request(channel)
        channel.send(http.response(fields=b"X-Influxdb-Version: 1.8.10\r\n"))


def elephant(channel: Channel) -> None:
    postgres.begin(channel)
    channel.send(postgres.message(b"E", b"SFATAL\0C28000\0Mno\0\0"))


def leaf(channel: Channel) -> None:
    channel.begin()
    while True:
        number, kind, _ = mongodb.read_message(channel)
        channel.send(mongodb.answer(number, kind, bson.encode(mongodb.HELLO)))


OTHERS: Mapping[str, Callable[[Channel], None]] = {
    "a MariaDB server": greets,
    "an InfluxDB server": web,
    "a PostgreSQL server": elephant,
    "a MongoDB server": leaf,
    "": lambda channel: channel.close(),
}


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """Ports of products, by the name that a message must have."""
    servers = {name: FakeServer(serve) for name, serve in OTHERS.items()}
    for server in servers.values():
        server.__enter__()
    yield {name: server.port for name, server in servers.items()}
    for server in servers.values():
        server.__exit__(None, None, None)


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run only connect, as its first step does."""

    def connect(cell: Any, *_: object, **__: object) -> None:
        target = get(cell.target.name)
        limits = Limits(cell.timeout, cell.target.endpoint)
        limits.connect(target, next(iter(target.schemas.values()))).close()
        raise UserMistake("connected")

    monkeypatch.setattr("tsbench.study.campaign.run_job", connect)


ANSWERS = "answers there; name its target"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "endpoint", "words"),
    [
        ("mongodb", "mongodb://127.0.0.1:1/tsbench", "127.0.0.1:1: [Errno 111] Connection refused"),
        ("mongodb", "mongodb://a.invalid:1/tsbench", "a.invalid:1: [Errno -2] Name or service not known"),
        ("mongodb", "mongodb://127.0.0.1:{a MariaDB server}/tsbench", f"a MariaDB server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{a PostgreSQL server}/tsbench", f"a PostgreSQL server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{}/tsbench", "127.0.0.1:"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile=/nonexistent", "/nonexistent cannot be read: No such file"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile=/etc/passwd", "NO_CERTIFICATE_OR_CRL_FOUND"),
        ("mongodb", "mongodb://nobody@127.0.0.1:1/tsbench", "no password; set TSBENCH_PASSWORD"),
        ("mongodb", "mongodb://h/tsbench?authMechanism=X", "authmechanism must be in"),
        ("mongodb", "mongodb://u@h/tsbench?authMechanism=PLAIN", "sends the password as it is"),
        ("mongodb", "mongodb://h/tsbench%00", "holds the control character %00"),
        ("mongodb", "mongodb://h/tsbench?w=1&W=0", "the option w is given twice; keep one"),
        ("mongodb", "mongodb://h/tsbench?compressors=x", "Unsupported compressor: x"),
        ("mongodb", f"mongodb://h/tsbench?expireAfterSeconds={'9' * 5_000}", "is not a whole number of seconds"),
        ("postgres", "postgresql://u@127.0.0.1:{a MariaDB server}/tsbench", f"a MariaDB server {ANSWERS}"),
        ("postgres", "postgresql://u@127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("postgres", "postgresql://u@h/x%00", "holds the control character %00"),
        ("influxdb1", "http://127.0.0.1:{a PostgreSQL server}/x", f"a PostgreSQL server {ANSWERS}"),
        ("influxdb1", "http://127.0.0.1:{a MariaDB server}/x", f"a MariaDB server {ANSWERS}"),
        ("influxdb1", "http://127.0.0.1:{a MongoDB server}/x", f"a MongoDB server {ANSWERS}"),
        ("influxdb1", "https://127.0.0.1:{an InfluxDB server}/x", "or write http:// for one without TLS"),
        ("postgres", "postgresql://u@127.0.0.1:1/x", "Connection refused"),
        ("postgres", "postgresql://u@a.invalid/x", "Name or service not known"),
        ("influxdb2", "http://127.0.0.1:1/?org=o&bucket=b", "127.0.0.1:1: [Errno 111] Connection refused"),
        ("mysql", "mysql://u@127.0.0.1:1/tsbench", "Can't connect to server on '127.0.0.1'"),
        ("influxdb2", "http://127.0.0.1:{a MariaDB server}/?org=o&bucket=b", f"a MariaDB server {ANSWERS}"),
        ("mariadb", "mariadb://u@127.0.0.1:{a PostgreSQL server}/tsbench", f"a PostgreSQL server {ANSWERS}"),
        ("mysql", "mysql://u@127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile={fifo}", "/fifo is a FIFO; name a file"),
        ("mysql", "mysql://u@h/tsbench?server-public-key={fifo}", "/fifo is a FIFO; name a file"),
        ("postgres", "postgresql://u@h/x?sslrootcert={fifo}", "/fifo is a FIFO; name a file"),
        ("sqlite", "sqlite:///x%00.db", "holds the control character %00"),
        ("null", "memory://x", "is not an endpoint of the target null"),
        ("null", "null://[x", "is not a URL"),
    ],
)
@pytest.mark.filterwarnings("error")  # which would be more lines on the console
@pytest.mark.usefixtures("connecting")
def test_the_cause_is_named_in_one_line_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, int], name: str, endpoint: str, words: str
) -> None:
    pytest.importorskip(driver.module if (driver := get(name).driver) else "sys")
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    os.mkfifo(tmp_path / "fifo")
    endpoint = endpoint.replace("{fifo}", str(tmp_path / "fifo"))
    for product, port in ports.items():
        endpoint = endpoint.replace(f"{{{product}}}", str(port))
    began = time.monotonic()
    command = ["run", str(path), "--yes", "--out", str(tmp_path)]
    assert main([*command, "--set", f"target.name={name}", "--endpoint", endpoint]) == 2
    took_s = time.monotonic() - began
    line = complaint(capsys.readouterr().err)
    print(f"{took_s:.2f} s  {line}")
    assert words in line
    assert "Topology" not in line
    assert took_s < 20  # of a busy machine; 2 s for MongoDB, 4 for others, on an idle one


@pytest.mark.parametrize("token", ["a\r\nX-Other: y", "a\nb", "a\x00b"])
@pytest.mark.parametrize("name", ["influxdb1", "influxdb2", "postgres", "mongodb"])
def test_a_secret_that_no_header_may_hold_is_one_line_and_is_not_shown(tmp_path: Path, name: str, token: str) -> None:
    protocols = {**http.ENDPOINTS, **postgres.ENDPOINTS, **mongodb.ENDPOINTS}
    file = tmp_path / "secret"
    file.write_text(f"{token}x")
    schema = next(iter(get(name).schemas.values()))
    with (
        environment(TSBENCH_PASSWORD_FILE=str(file), TSBENCH_TOKEN_FILE=str(file)),
        pytest.raises(UserMistake, match="holds a line break or a NUL; write the secret alone, on one line") as caught,
    ):
        get(name).connect(protocols[name].format(port=1), schema, timeout_s=5)
    assert "X-Other" not in str(caught.value)
