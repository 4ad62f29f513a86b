"""Clients against servers that send them elsewhere, answer what cannot be decoded, or never end."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import bson
import pytest

from tests.hostile import http, mongodb, mysql, postgres
from tests.hostile.doors import SECRET, Channel, FakeServer, environment, holds_secret
from tsbench.errors import Unreachable
from tsbench.model import Count, OpError, Outcome
from tsbench.targets.registry import get
from tsbench.testing.data import CPU, shared_tags

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"])
def test_a_redirect_is_an_error_and_carries_no_secret_elsewhere(status: bytes) -> None:
    def accept(channel: Channel) -> None:
        http.read_request(channel)
        channel.send(http.response())

    with FakeServer(accept) as trap:
        place = b"Location: http://127.0.0.1:%d/api/v2/x\r\n" % trap.port
        for name, url in http.ENDPOINTS.items():
            asked: list[bytes] = []

            def serve(channel: Channel, asked: list[bytes] = asked, name: str = name) -> None:
                while True:
                    asked.append(http.read_request(channel))
                    is_login = len(asked) == 1  # or no session would be opened
                    is_look = name == "influxdb2" and asked[-1].startswith(b"GET /api/v2/buckets")
                    channel.send(http.response() if is_login or is_look else http.response(status, b"", place))

            with FakeServer(serve) as server, environment(TSBENCH_PASSWORD=SECRET):
                target, schema = get(name), next(iter(get(name).schemas.values()))
                if name == "questdb":  # its login is a write, which 200 does not acknowledge
                    with pytest.raises(Unreachable):
                        target.connect(url.format(port=server.port), schema, timeout_s=5)
                    continue
                session = target.connect(url.format(port=server.port), schema, timeout_s=5)
                with pytest.raises(OpError):
                    session.run(schema.create([CPU], shared_tags()))
                with pytest.raises(OpError):
                    session.query(schema.compile(Count(CPU)), ("points",))
                session.close()
                assert len(asked) > 2
                assert holds_secret(b"".join(asked[1:]))
    assert trap.channels == []


# --- answers that cannot be decoded -----------------------------------------------------------------------------------


def _no_json(channel: Channel) -> None:
    while True:
        asked = http.read_request(channel)
        channel.send(http.response(body=b"\xff\xfe{") if b"count" in asked.lower() else http.response())


def _no_text(channel: Channel) -> None:
    document = bson.encode({"ok": 1.0, "cursor": {"id": 0, "ns": "x.y", "firstBatch": [{"points": "AAAA"}]}})
    while True:
        number, kind, body = mongodb.read_message(channel)
        broken = any(word in body for word in (b"\0aggregate\0", b"\2find\0", b"\2aggregate\0"))
        found = document.replace(b"AAAA", b"\xff\xff\xff\xff") if broken else bson.encode(mongodb.HELLO)
        channel.send(mongodb.answer(number, kind, found))


def _no_number(channel: Channel) -> None:
    postgres.begin(channel)
    channel.send(postgres.WELCOME)
    column = b"points\0" + struct.pack(">ihihih", 0, 0, 20, 8, -1, 0)
    rows = {
        b"D": postgres.message(b"T", struct.pack(">h", 1) + column),
        b"E": postgres.message(b"D", struct.pack(">hi", 1, 1) + b"x") + postgres.message(b"C", b"SELECT 1\0"),
    }
    asks = False
    while True:
        kind, body = postgres.read_message(channel)
        asks = b"count(*)" in body if kind == b"P" else asks
        channel.send((asks and rows.get(kind)) or postgres.ANSWERS.get(kind, b""))


def _no_rows(channel: Channel) -> None:
    class NoRows(mysql.Dialogue):
        def answer(self, statement: bytes) -> None:
            if b"cpu" in statement:
                self.send(mysql.ok())
            else:
                super().answer(statement)

    NoRows(channel).serve()


@pytest.mark.parametrize(
    ("name", "serve", "url"),
    [
        ("influxdb1", _no_json, http.ENDPOINTS["influxdb1"]),
        ("influxdb2", _no_json, http.ENDPOINTS["influxdb2"]),
        ("victoriametrics", _no_json, http.ENDPOINTS["victoriametrics"]),
        ("mongodb", _no_text, "mongodb://127.0.0.1:{port}/tsbench"),
        ("postgres", _no_number, postgres.ENDPOINTS["postgres"]),
        ("mariadb", _no_rows, "mariadb://somebody@127.0.0.1:{port}/tsbench"),
    ],
)
def test_an_answer_that_cannot_be_decoded_is_that_ops_error(
    name: str, serve: Callable[[Channel], None], url: str
) -> None:
    target = get(name)
    pytest.importorskip(target.driver.module if target.driver else "sys")
    schema = next(iter(target.schemas.values()))
    with FakeServer(serve) as server, environment(TSBENCH_PASSWORD=SECRET):
        session = target.connect(url.format(port=server.port), schema, timeout_s=20)
        with pytest.raises(OpError) as caught:
            session.query(schema.compile(Count(CPU)), ("points",))
        session.close()
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "protocol"), caught.value


@pytest.mark.slow
def test_a_malformed_head_is_an_error_and_prints_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def serve(channel: Channel) -> None:
        while request := http.read_request(channel):
            is_for_urllib3 = request.startswith((b"GET /api/v2/orgs", b"POST /api/v2/buckets"))
            channel.send(http.response(fields=b"\0: 5\r\n" if is_for_urllib3 else b""))

    with FakeServer(serve) as server, environment(TSBENCH_PASSWORD=SECRET):
        target, schema = get("influxdb2"), get("influxdb2").schemas["tags"]
        session = target.connect(http.ENDPOINTS["influxdb2"].format(port=server.port), schema, timeout_s=2)
        with pytest.raises(OpError):
            session.run(schema.create([CPU], shared_tags()))
        session.close()
    assert caplog.text == ""


# --- memory -----------------------------------------------------------------------------------------------------------

MOST_BYTES = 400_000_000


def _flood(channel: Channel, lead: bytes, piece: bytes) -> None:
    channel.send(lead)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        channel.send(piece)


def _postgres(lead: bytes, piece: bytes) -> Callable[[Channel], None]:
    def serve(channel: Channel) -> None:
        postgres.begin(channel)
        _flood(channel, lead, piece)

    return serve


def _mongodb(channel: Channel) -> None:
    number, _, _ = mongodb.read_message(channel)
    _flood(channel, mongodb._HEAD.pack(2**31 - 1, 0, number, mongodb.OP_MSG), bytes(65_536))


def _http(head: bytes, piece: bytes) -> Callable[[Channel], None]:
    def serve(channel: Channel) -> None:
        http.read_request(channel)
        _flood(channel, head, piece)

    return serve


FLOODS: dict[str, tuple[str, Callable[[Channel], None]]] = {
    "a message of 2 GB before the login": ("postgres", _postgres(b"R\x7f\xff\xff\xff", bytes(65_536))),
    "an error of 1 GB": ("postgres", _postgres(b"E\x3f\xff\xff\xff", b"S" * 65_536)),
    "parameters without end": ("postgres", _postgres(b"", postgres.message(b"S", b"a\0b\0") * 5_000)),
    "an answer of 2 GB": ("mongodb", _mongodb),
    "a head without end": ("influxdb1", _http(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 1_000 + b"\r\n")),
    "interim answers without end": ("influxdb1", _http(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500)),
    "chunks of nothing without end": (
        "influxdb2",
        _http(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 5_000),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_at_the_greeting_ends_in_time_and_in_bounds(what: str) -> None:
    name, serve = FLOODS[what]
    protocols = {**http.ENDPOINTS, **postgres.ENDPOINTS, **mongodb.ENDPOINTS}
    with FakeServer(serve) as server, environment(TSBENCH_PASSWORD=SECRET):
        program = f"""
import re, time
from pathlib import Path
from tsbench.errors import UserMistake
from tsbench.targets.registry import get
began = time.monotonic()
target = get({name!r})
try:
    target.connect({protocols[name].format(port=server.port)!r}, next(iter(target.schemas.values())), timeout_s=2)
except UserMistake as mistake:
    print(mistake)
peak_kb = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]  # ru_maxrss has that of pytest, too
print(time.monotonic() - began, int(peak_kb) * 1024)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    *said, figures = done.stdout.splitlines()
    print(what, said, figures)
    assert done.returncode == 0, done.stderr
    assert len(said) == 1
    took_s, nbytes = map(float, figures.split())
    assert took_s < 30
    assert nbytes < MOST_BYTES
