"""A server that is entered in the page's form gets neither password nor file nor environment, whatever it asks for."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import bson
import pytest

from tests.drive.webui.browser import wait_until
from tests.drive.webui.served import Served
from tests.hostile import http, mongodb, mysql, postgres
from tests.hostile.doors import SECRET, USER, Channel, FakeServer, holds_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Serve = Callable[[Channel], None]

ENVIRONMENT = dict.fromkeys(
    ("TSBENCH_PASSWORD", "TSBENCH_TOKEN", "PGPASSWORD", "PGAPPNAME", "PGOPTIONS", "AWS_SECRET_ACCESS_KEY", "USER"),
    SECRET,
)
FILE = "/proc/self/environ"


def of_postgres(_elsewhere: int) -> Iterator[tuple[str, Serve]]:
    """Ask for the password, an MD5 hash of it, a Kerberos ticket, SASL; and for nothing."""
    sasl = b"SCRAM-SHA-256\0OAUTHBEARER\0\0"
    for method, more in ((3, b""), (5, b"salt"), (7, b""), (10, sasl), (0, b"")):

        def serve(channel: Channel, method: int = method, more: bytes = more) -> None:
            postgres.begin(channel)
            if method:
                channel.send(b"R" + struct.pack(">ii", 8 + len(more), method) + more)
                postgres.read_message(channel)
            channel.send(postgres.WELCOME)
            while True:
                channel.send(postgres.ANSWERS.get(postgres.read_message(channel)[0], b""))

        yield f"postgresql://{USER}@127.0.0.1:{{port}}/tsbench", serve


class Greedy(mysql.Dialogue):
    """Asks for a file at each statement, and before that for the password."""

    plugins: tuple[str, ...] = ()

    def authenticate(self) -> bool:
        for plugin in self.plugins:
            self.switch(plugin)
        return super().authenticate()

    def answer(self, statement: bytes) -> None:
        del statement
        self.ask_for_file(FILE.encode())


def of_mysql(_elsewhere: int) -> Iterator[tuple[str, Serve]]:
    for plugins in ((), ("mysql_clear_password", "dialog", "auth_gssapi_client")):

        def serve(channel: Channel, plugins: tuple[str, ...] = plugins) -> None:
            channel.limit(2)  # else the client waits for 30 s for what comes after the file
            dialogue = Greedy(channel, random.Random(0))
            dialogue.plugins = plugins
            dialogue.serve()

        yield f"mariadb://{USER}@127.0.0.1:{{port}}/tsbench", serve


def of_mongodb(elsewhere: int) -> Iterator[tuple[str, Serve]]:
    """Name another host as the primary."""
    other = f"127.0.0.1:{elsewhere}"
    hello = {**mongodb.HELLO, "setName": "rs", "hosts": [other], "primary": other, "me": other, "setVersion": 1}

    def serve(channel: Channel) -> None:
        while True:
            number, kind, _ = mongodb.read_message(channel)
            channel.send(mongodb.answer(number, kind, bson.encode(hello)))

    for user in ("", f"{USER}@"):
        yield f"mongodb://{user}127.0.0.1:{{port}}/tsbench", serve


def of_influxdb(elsewhere: int) -> Iterator[tuple[str, Serve]]:
    """Ask for a log-in, and name another place."""
    fields = (b"WWW-Authenticate: Basic\r\n", b"Location: http://127.0.0.1:%d/\r\n" % elsewhere)
    for status, field in zip((b"401 No", b"307 Temporary"), fields, strict=True):

        def serve(channel: Channel, status: bytes = status, field: bytes = field) -> None:
            while True:
                http.read_request(channel)
                channel.send(http.response(status, b"", field))

        yield f"http://{USER}@127.0.0.1:{{port}}/tsbench", serve


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "own", "attacks"),
    [
        ("postgres", f"postgresql://{USER}@127.0.0.1:9/tsbench", of_postgres),
        ("mariadb", f"mariadb://{USER}@127.0.0.1:9/tsbench", of_mysql),
        ("mongodb", f"mongodb://{USER}@127.0.0.1:9/tsbench", of_mongodb),
        ("influxdb1", f"http://{USER}@127.0.0.1:9/tsbench", of_influxdb),
    ],
)
def test_a_server_of_the_form_gets_nothing(
    tmp_path: Path, target: str, own: str, attacks: Callable[[int], Iterator[tuple[str, Serve]]]
) -> None:
    if target == "mariadb":
        pytest.importorskip("MySQLdb", reason="mysqlclient is not installed; pip install 'tsbench[mysql]'")
    locust = Served(tmp_path, "--endpoint", own, target=target, TSBENCH_LOAD_WINDOW="6h", **ENVIRONMENT).ready()
    try:
        with FakeServer(lambda channel: channel.limit(1)) as elsewhere:
            for endpoint, serve in attacks(elsewhere.port):
                with FakeServer(serve) as server:
                    locust.start(1, endpoint=endpoint.format(port=server.port), host="")
                    wait_until(lambda: locust.live()["stage"] == "ended", "the test to end")
                    heard = b"\n".join(bytes(channel.heard) for channel in server.channels)
                assert locust.live()["trouble"]
                assert heard or f"{USER}@" in endpoint, locust.live()["trouble"]
                assert not holds_secret(heard)
                assert not mysql.got_file(heard)
            assert elsewhere.channels == []
    finally:
        locust.close()
    assert "Traceback" not in locust.log()
