from __future__ import annotations

import gzip
import json
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import self_signed
from tests.examples import examples
from tests.net.loopback import Loopback, Peer
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import Count, OpError, Outcome, WriteMode
from tsbench.net.http import Address, HttpConnection, Request
from tsbench.net.http_parser import MAX_HEAD_BYTES, Malformed, Response, ResponseParser, Truncated, parse_plain
from tsbench.servers.process import free_port
from tsbench.targets.influxdb.v1 import TAGS, TARGET
from tsbench.targets.registry import get
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NO_CONTENT = b"HTTP/1.1 204 No Content\r\nX-Influxdb-Version: 1.8.10\r\n\r\n"
LINE = TAGS.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.SINGLE)


# --- the parser -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Framing:
    """A response's bytes and content; `closes` means that the end of the connection ends it."""

    wire: bytes
    status: int
    body: bytes
    keep_alive: bool
    closes: bool


def framing(seed: int) -> Framing:
    """Draw any correct response: interim ones before it, chunks with extensions and trailers, odd spellings."""
    draw = random.Random(seed)
    minor = draw.choice((0, 1, 1, 1))
    status = draw.choice((200, 200, 204, 204, 304, 400, 404, 500, 503))
    body = draw.randbytes(draw.choice((0, 1, 2, 17, 300, 5_000))) if status not in {204, 304} else b""
    fields = [
        f"{draw.choice(('X-A', 'x-request-ID', 'Date'))}:{draw.choice(('', ' ', '  '))}{'v' * draw.randrange(9)}"
        for _ in range(draw.randrange(5))
    ]
    connection = draw.choice((None, None, "close", "keep-alive", "Keep-Alive, x"))
    if connection:
        fields.append(f"{draw.choice(('Connection', 'connection'))}: {connection}")
    keep_alive = connection != "close" and (minor == 1 or "keep-alive" in (connection or "").lower())
    how = draw.choice(("length", "chunked", "close")) if minor else draw.choice(("length", "close"))
    if status in {204, 304}:
        how = "none"
    if how == "length":
        fields.append(f"{draw.choice(('Content-Length', 'content-length', 'CONTENT-LENGTH'))}:  {len(body)} ")
    if how == "chunked":
        fields.append(f"Transfer-Encoding: {draw.choice(('chunked', 'Chunked'))}")
    draw.shuffle(fields)
    head = f"HTTP/1.{minor} {status}{draw.choice(('', ' ', ' Reason of it'))}\r\n" + "".join(f"{f}\r\n" for f in fields)
    interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" if draw.random() < 0.2 else ""
    wire = (interim + head + "\r\n").encode() + (chunked(draw, body) if how == "chunked" else body)
    return Framing(wire, status, body, keep_alive and how != "close", how == "close")


def chunked(draw: random.Random, body: bytes) -> bytes:
    wire = b""
    while body:
        size = draw.randrange(1, len(body) + 1)
        extension = draw.choice(("", ";a=b", ' ; q="x"'))
        wire += f"{draw.choice(('', '0'))}{draw.choice((f'{size:x}', f'{size:X}'))}{extension}\r\n".encode()
        wire += body[:size] + b"\r\n"
        body = body[size:]
    trailers = draw.choice((b"", b"X-Sum: 7\r\n", b"A: 1\r\nB:\r\n"))
    return wire + draw.choice((b"0", b"000", b"0;end")) + b"\r\n" + trailers + b"\r\n"


def parse(pieces: list[bytes]) -> Response:
    """Return the response that a connection reads from these pieces."""
    parser = ResponseParser()
    for number, piece in enumerate(pieces):
        response = parser.feed(piece)
        if response is not None:
            rest = b"".join(pieces[number + 1 :])
            return response._replace(keep_alive=response.keep_alive and not rest)
    return parser.end()


def cut(draw: random.Random, wire: bytes) -> list[bytes]:
    places = sorted(draw.randrange(len(wire) + 1) for _ in range(draw.choice((0, 1, 2, 5))))
    found = [wire[a:b] for a, b in zip([0, *places], [*places, len(wire)], strict=True)]
    return [piece for piece in found if piece]


@examples(1_000)
@given(st.integers(0, 2**64 - 1))
def test_any_framing_split_anywhere_is_read_right(seed: int) -> None:
    made = framing(seed)
    found = parse(cut(random.Random(seed), made.wire))
    assert (found.status, found.body, found.keep_alive) == (made.status, made.body, made.keep_alive)
    fast = parse_plain(made.wire)
    assert fast is None or fast == found


@examples(300)
@given(st.integers(0, 2**64 - 1))
def test_an_early_end_is_never_taken_for_a_response(seed: int) -> None:
    made, draw = framing(seed), random.Random(seed)
    wire = made.wire[: draw.randrange(len(made.wire))]
    if made.closes and len(wire) >= len(made.wire) - len(made.body):
        return  # without a length, nobody can tell
    with pytest.raises(Truncated):
        parse(cut(draw, wire))
    assert parse_plain(wire) is None


@examples(1_000)
@given(st.integers(0, 2**64 - 1))
def test_damage_is_read_the_same_in_any_pieces_or_refused(seed: int) -> None:
    made, draw = framing(seed), random.Random(seed)
    wire = bytearray(made.wire)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(wire))
        match draw.randrange(4):
            case 0:
                wire[place] = draw.randrange(256)
            case 1:
                del wire[place]
            case 2:
                wire[place:place] = draw.choice((b"\n", b"\r\n", b"\0", b":", b"0", b"HTTP/1.1 204\r\n\r\n"))
            case _:
                wire += draw.randbytes(3)
    results: list[object] = []
    for pieces in ([bytes(wire)], cut(draw, bytes(wire)), [bytes((b,)) for b in wire[:600]] + [bytes(wire[600:])]):
        try:
            results.append(parse([p for p in pieces if p]))
        except (Malformed, Truncated) as error:
            results.append(type(error))
    assert results[0] == results[1] == results[2]
    fast = parse_plain(bytes(wire))
    assert fast is None or fast == results[0]


@pytest.mark.parametrize(
    "wire",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n folded\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno header\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"y" * 5_000,
    ],
)
def test_what_is_no_response_is_refused(wire: bytes) -> None:
    for pieces in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
        with pytest.raises(Malformed):
            parse(pieces)


def test_headers_are_found_whatever_their_spelling() -> None:
    (response,) = [ResponseParser().feed(NO_CONTENT)]
    assert response is not None
    assert (response.header("x-influxdb-VERSION"), response.header("Influxdb-Version")) == ("1.8.10", None)


# --- the connection ---------------------------------------------------------------------------------------------------


def connection(server: Loopback, timeout_s: float = 60.0) -> HttpConnection:
    return HttpConnection(Address("127.0.0.1", server.port), timeout_s=timeout_s)


def request(server: Loopback) -> Request:
    return Request(Address("127.0.0.1", server.port), "POST", "/write", {})


def fails(act: Callable[[Peer, bytes], None], *, timeout_s: float = 60.0) -> tuple[Outcome, str]:
    """Return the error of a request that this server answers; the next request finds a correct server."""
    broken = [True]

    def once(peer: Peer, asked: bytes) -> None:
        if broken.pop() if broken else False:
            act(peer, asked)
        else:
            peer.send(NO_CONTENT)

    with Loopback(once) as server:
        client = connection(server, timeout_s)
        with pytest.raises(OpError) as caught:
            client.send(request(server), b"x")
        assert client.send(request(server), b"y").status == 204
        assert [r[-1:] for r in server.requests] == [b"x", b"y"]  # nothing was sent twice
        client.close()
    return caught.value.outcome, caught.value.cause


def test_fifty_framings_come_over_a_real_connection() -> None:
    made = [framing(seed) for seed in range(50)]
    left = list(made)

    def act(peer: Peer, asked: bytes) -> None:
        answer = left.pop(0)
        for piece in cut(random.Random(len(left)), answer.wire):
            peer.send(piece)
            time.sleep(0.001)
        if answer.closes or not answer.keep_alive:
            peer.close()

    with Loopback(act) as server:
        client = connection(server)
        for answer in made:
            found = client.send(request(server), b"x" * 10)
            assert (found.status, found.body) == (answer.status, answer.body)
        assert server.connections == 1 + sum(not a.keep_alive for a in made[:-1])
        client.close()


def test_a_request_is_its_head_and_the_bodys_own_bytes() -> None:
    with Loopback(lambda peer, asked: peer.send(NO_CONTENT)) as server:
        client = connection(server)
        made = Request(client.place, "POST", "/write?db=x", {"Content-Type": "text/plain"})
        bodies = [b"", b"one line", b"z" * 3_000_000]
        for body in bodies:
            client.send(made, body)
        for got, body in zip(server.requests, bodies, strict=True):
            head, _, rest = got.partition(b"\r\n\r\n")
            assert rest == body
            assert head.split(b"\r\n") == [
                b"POST /write?db=x HTTP/1.1", f"Host: 127.0.0.1:{server.port}".encode(), b"User-Agent: tsbench",
                b"Content-Type: text/plain", f"Content-Length: {len(body)}".encode(),
            ]  # fmt: skip
        assert server.connections == 1
        client.close()


def test_a_header_cannot_smuggle_another() -> None:
    for value in ("x\r\nY: z", "x\n", "", "x\0"):
        with pytest.raises(ValueError, match="line break"):
            Request(Address("h", 1), "GET", "/", {"Authorization": value})


@pytest.mark.parametrize("close", [Peer.close, Peer.reset])
def test_a_connection_that_was_closed_while_idle_is_opened_again(close: Callable[[Peer], None]) -> None:
    def act(peer: Peer, asked: bytes) -> None:
        peer.send(NO_CONTENT)
        close(peer)

    with Loopback(act) as server:
        client = connection(server)
        for _ in range(5):
            assert client.send(request(server), b"x").status == 204
            time.sleep(0.02)
        assert (server.connections, len(server.requests)) == (5, 5)
        client.close()


@pytest.mark.parametrize("pieces", [(NO_CONTENT + b"more",), (NO_CONTENT, NO_CONTENT)])
def test_bytes_that_nobody_asked_for_end_the_connection(pieces: tuple[bytes, ...]) -> None:
    with Loopback(lambda peer, asked: peer.send(*pieces)) as server:
        client = connection(server)
        for _ in range(3):
            assert client.send(request(server), b"x").status == 204
            time.sleep(0.02)
        assert server.connections == 3
        client.close()


def test_a_port_where_nobody_listens_is_refused_and_nothing_was_sent() -> None:
    client = HttpConnection(Address("127.0.0.1", free_port()), timeout_s=60)
    with pytest.raises(OpError) as caught:
        client.send(Request(client.place, "POST", "/", {}), b"x")
    assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "refused")


@pytest.mark.slow
def test_faults_have_their_causes() -> None:
    unknown = Outcome.UNKNOWN
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"
    assert fails(lambda peer, asked: peer.reset()) == (unknown, "connection")
    assert fails(lambda peer, asked: peer.close()) == (unknown, "connection")

    def breaks(peer: Peer, asked: bytes) -> None:
        peer.send(half)
        peer.close()

    assert fails(breaks) == (unknown, "connection")
    assert fails(lambda peer, asked: peer.send(b"SSH-2.0-x\r\n")) == (unknown, "protocol")
    assert fails(lambda peer, asked: None, timeout_s=1.0) == (unknown, "timeout")
    assert fails(lambda peer, asked: peer.send(half), timeout_s=1.0) == (unknown, "timeout")


def test_a_slow_drip_ends_at_the_one_deadline() -> None:
    def drip(peer: Peer, asked: bytes) -> None:
        for byte in NO_CONTENT:  # each comes within the limit, all of them do not
            peer.send(bytes((byte,)))
            time.sleep(0.1)

    assert fails(drip, timeout_s=1.0) == (Outcome.UNKNOWN, "timeout")


def test_a_body_that_nobody_reads_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # the kernel accepts, and takes what its buffers hold
        client = HttpConnection(Address("127.0.0.1", deaf.getsockname()[1]), timeout_s=0.2)
        with pytest.raises(OpError) as caught:
            client.send(Request(client.place, "POST", "/", {}), b"x" * 50_000_000)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")


def test_an_answer_before_the_whole_request_was_read_counts() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            peer, _ = listener.accept()
            peer.recv(1_000)
            peer.sendall(refusal)
            peer.shutdown(socket.SHUT_WR)
            time.sleep(0.2)
            peer.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        client = HttpConnection(Address("127.0.0.1", listener.getsockname()[1]), timeout_s=60)
        try:
            found: object = client.send(Request(client.place, "POST", "/", {}), b"x" * 30_000_000).status
        except OpError as error:
            found = error.outcome, error.cause
        thread.join()
    assert found in {413, (Outcome.UNKNOWN, "connection")}  # the kernel may throw the answer away with the connection


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path)


def test_tls_is_verified(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with Loopback(
        lambda peer, asked: peer.send(NO_CONTENT), wrap=lambda s: context.wrap_socket(s, server_side=True)
    ) as server:
        place = Address("127.0.0.1", server.port, tls=True)
        with pytest.raises(OpError, match="certificate") as caught:
            HttpConnection(place, timeout_s=60).send(Request(place, "POST", "/", {}), b"x")
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "refused")
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = HttpConnection(place, timeout_s=60)
        for size in (1, 100_000, 10):
            assert client.send(Request(place, "POST", "/", {}), b"x" * size).status == 204
        assert [len(r.partition(b"\r\n\r\n")[2]) for r in server.requests] == [1, 100_000, 10]
        client.close()


# --- what InfluxDB's answers mean -------------------------------------------------------------------------------------


def answered(status: str, body: bytes) -> Callable[[Peer, bytes], None]:
    """Return the action of a server that accepts sessions and sends one answer to all other requests."""
    wire = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    hello = b'{"results":[{}]}'

    def act(peer: Peer, asked: bytes) -> None:
        if b"SHOW%20DATABASES" in asked:
            peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(hello)}\r\n\r\n".encode() + hello)
        else:
            peer.send(wire)

    return act


@pytest.mark.parametrize(
    ("status", "body", "outcome", "cause"),
    [
        ("200 OK", b"", Outcome.UNKNOWN, "server"),
        ("400 Bad Request", b'{"error":"partial write: type conflict dropped=1"}', Outcome.FAILED, "data"),  # all of it
        ("400 Bad Request", b'{"error":"unable to parse \'x\'"}', Outcome.FAILED, "data"),
        ("401 Unauthorized", b'{"error":"authorization failed"}', Outcome.FAILED, "permission"),
        ("404 Not Found", b'{"error":"database not found: \\"x\\""}', Outcome.FAILED, "no table"),
        ("404 Not Found", b"404 page not found", Outcome.FAILED, "server"),
        ("413 Too Large", b'{"error":"Request Entity Too Large"}', Outcome.FAILED, "too large"),
        ("500 Internal Server Error", b'{"error":"timeout"}', Outcome.UNKNOWN, "timeout"),
        ("500 Internal Server Error", b'{"error":"engine is closed"}', Outcome.UNKNOWN, "server"),
        ("500 Error", b'{"error":"cache-max-memory-size exceeded: (9/8)"}', Outcome.UNKNOWN, "resources"),
        ("503 Service Unavailable", b"", Outcome.FAILED, "busy"),
        ("504 Gateway Timeout", b"", Outcome.UNKNOWN, "timeout"),
    ],
)
def test_a_write_that_is_not_acknowledged_is_no_success(status: str, body: bytes, outcome: Outcome, cause: str) -> None:
    with Loopback(answered(status, body)) as server:
        session = TARGET.connect(f"http://127.0.0.1:{server.port}/x", TAGS)
        with pytest.raises(OpError) as caught:
            session.write(LINE)
        assert (caught.value.outcome, caught.value.cause) == (outcome, cause)
        session.close()


@pytest.mark.parametrize(
    ("status", "body", "outcome", "cause"),
    [
        ("200 OK", b'{"results":[{"statement_id":0,"error":"database not found: x"}]}', Outcome.FAILED, "no table"),
        ("200 OK", b'{"results":[{"error":"invalid operation"}]}', Outcome.FAILED, "statement"),
        ("200 OK", b'{"results":[{"error":"query-timeout limit exceeded"}]}', Outcome.UNKNOWN, "timeout"),
        ("200 OK", b'{"results":[{"error":"max-select-series limit exceeded: (9/8)"}]}', Outcome.FAILED, "resources"),
        ("200 OK", b'{"results":[{"series":[{"values":[[1,2]],"partial":true}]}]}', Outcome.FAILED, "truncated"),
        ("200 OK", b'{"results":[{"ser', Outcome.UNKNOWN, "protocol"),
        ("400 Bad Request", b'{"error":"error parsing query: found x"}', Outcome.FAILED, "statement"),
        ("500 Internal Server Error", b"", Outcome.FAILED, "server"),
    ],
)
def test_a_query_that_failed_is_no_answer(status: str, body: bytes, outcome: Outcome, cause: str) -> None:
    with Loopback(answered(status, body)) as server:
        session = TARGET.connect(f"http://127.0.0.1:{server.port}/x", TAGS)
        with pytest.raises(OpError) as caught:
            session.query(TAGS.compile(Count(CPU)), ("points",))
        assert (caught.value.outcome, caught.value.cause) == (outcome, cause)
        session.close()


def settled(column: str, cold: str) -> None:
    """Settle on a server whose shard always has one in a column of its statistics, with that setting."""
    tags = {"database": "x", "retentionPolicy": "tsbench"}
    cache = {"tsmLevel1CompactionsActive": 0, "memBytes": 0, column: 1}
    shard = {"name": "shard", "tags": tags, "columns": [*cache], "values": [[*cache.values()]]}
    setting = {"name": "config-data", "columns": ["cache-snapshot-write-cold-duration"], "values": [[cold]]}
    body = json.dumps({"results": [{"series": [shard, setting]}]}).encode()
    with Loopback(answered("200 OK", body)) as server:
        session = TARGET.connect(f"http://127.0.0.1:{server.port}/x", TAGS)
        try:
            session.run(TAGS.settle([CPU]), timeout_s=0.5)
        finally:
            session.close()


@pytest.mark.parametrize(
    ("column", "cold", "still"),
    [("tsmLevel1CompactionsActive", "10m0s", "compacts"), ("memBytes", "3s", "compacts or has a cache to write out")],
)
def test_settling_ends_at_its_limit_where_compactions_and_caches_do_not(column: str, cold: str, still: str) -> None:
    with pytest.raises(OpError, match=rf"InfluxDB still {still} after 0\.\d+ s") as caught:
        settled(column, cold)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")


def test_a_cache_that_is_written_out_much_later_is_not_waited_for() -> None:
    settled("memBytes", "10m0s")


def test_connecting_has_a_limit_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, nobody answers
        began = time.monotonic()
        with pytest.raises(Unreachable, match="no answer from"):
            TARGET.connect(f"http://127.0.0.1:{silent.getsockname()[1]}/x", TAGS, timeout_s=60, connect_timeout_s=0.2)
        assert time.monotonic() - began < 10


def test_the_payloads_bytes_are_what_is_sent() -> None:
    with Loopback(answered("204 No Content", b"")) as server:
        for option, unpack in (("", bytes), ("?gzip=1", gzip.decompress)):
            session = TARGET.connect(f"http://127.0.0.1:{server.port}/x{option}", TAGS)
            assert session.write(LINE) == 1
            assert unpack(server.requests[-1].partition(b"\r\n\r\n")[2]) == LINE.data
            session.close()


# --- endpoints --------------------------------------------------------------------------------------------------------


def test_secrets_are_refused_in_a_url_and_not_repeated() -> None:
    for name, url in {
        "influxdb1": "http://me:secret@127.0.0.1:1/x",
        "influxdb2": "http://127.0.0.1:1/?org=o&bucket=b&token=secret",
    }.items():
        with pytest.raises(UserMistake, match="TSBENCH_PASSWORD") as caught:
            get(name).connect(url, next(iter(get(name).schemas.values())))
        assert "secret" not in str(caught.value).replace("a secret in a URL", "")


def test_connections_with_a_waiter_of_gevent_yield_to_other_greenlets() -> None:
    program = """
from gevent import monkey; monkey.patch_all()
import sys, time, gevent
from tests.net.loopback import Loopback
from tsbench.drive.session_calls import GreenletWaiter
from tsbench.net.http import (HttpConnection, Address, Request)
def act(peer, asked):
    time.sleep(0.2)
    peer.send(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
with Loopback(act) as server:
    place = Address("127.0.0.1", server.port)
    clients = [HttpConnection(place, timeout_s=5, waiter=GreenletWaiter) for _ in range(5)]
    began = time.monotonic()
    gevent.joinall([gevent.spawn(c.send, Request(place, "POST", "/", {}), b"x") for c in clients], raise_error=True)
    assert time.monotonic() - began < 0.8, time.monotonic() - began
    killed = gevent.spawn(clients[0].send, Request(place, "POST", "/", {}), b"x")
    gevent.sleep(0.05)
    killed.kill()
    assert clients[0]._wire is None  # its answer must not be read as the next one's
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_how_a_connection_waits_is_its_openers_choice_and_nobody_elses() -> None:
    program = """
from gevent import monkey; monkey.patch_all()
from tests.net.loopback import Loopback
import tsbench.drive.load_process  # must not decide how the connections of others wait
from tsbench.net.http import HttpConnection, Address, Request
class Noted:
    def __init__(self, fd): opened.append(self)
    def close(self): pass
opened = []
with Loopback(lambda peer, asked: None) as server:
    place = Address("127.0.0.1", server.port)
    connection = HttpConnection(place, timeout_s=60)
    connection.open()
    assert type(connection._wire._waiter).__module__ == "tsbench.net.tcp", connection._wire._waiter
    connection.close()
    noted = HttpConnection(place, timeout_s=5, waiter=Noted)
    noted.open()
    assert opened == [noted._wire._waiter]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_nul_in_the_value_of_a_header_is_a_blank_and_in_a_name_or_a_length_no_http() -> None:
    def read(head: bytes) -> Response | None:
        return ResponseParser().feed(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n\r\nno")

    found = read(b"X-Influxdb-Error: unable to parse 'cpu v=a\0b'\r\nContent-Length: 2")
    assert found is not None
    assert (found.header("X-Influxdb-Error"), found.body) == ("unable to parse 'cpu v=a b'", b"no")
    for head in (b"X-Na\0me: x\r\nContent-Length: 2", b"Content-Length: 1\0002"):
        with pytest.raises(Malformed):
            read(head)
