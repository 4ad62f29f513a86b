"""Servers that acknowledge writes after a known time and log it: HTTP, PostgreSQL's, MySQL's and MongoDB's protocol.

`python stub_servers.py PROTOCOL DISTRIBUTION MEAN_US LOG DESCRIPTOR` serves a listening socket until it is killed. It
knows as much of a protocol as a session needs to connect and to write. The log has the service time of each write but a
connection's first, in ns as 8-byte integers: from the kernel's stamp of the request to right before its answer is sent.
"""

from __future__ import annotations

import heapq
import random
import re
import select
import socket
import struct
import subprocess
import sys
import time
from array import array
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ_BYTES = 1 << 20
ENDPOINTS = {
    "influxdb1": "http://127.0.0.1:{port}/stub",
    "postgres": "postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable",
    "mariadb": "mariadb://root@127.0.0.1:{port}/tsbench_stub",
    "mongodb": "mongodb://127.0.0.1:{port}/tsbench_stub",
}


class Speaker(Protocol):
    """One connection's side of a protocol; no I/O."""

    greeting: bytes

    def answers(self, data: bytearray) -> Iterator[tuple[bytes, bool]]:
        """Remove whole requests from `data`; yield the answer to each, and whether it is a write."""
        ...


# --- HTTP: InfluxDB ---------------------------------------------------------------------------------------------------

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NOTHING = b'{"results": [], "buckets": []}'


class Http:
    """Answers writes with 204, and what a session asks when it connects with nothing."""

    greeting = b""

    def answers(self, data: bytearray) -> Iterator[tuple[bytes, bool]]:
        while (end := data.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(data, 0, end)
            length = end + 4 + (int(found[1]) if found else 0)
            if len(data) < length:
                return
            is_write = data.startswith((b"POST /write?", b"POST /api/v2/write?"))
            del data[:length]
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_NOTHING)
            yield (b"HTTP/1.1 204 No Content\r\n\r\n" if is_write else head + _NOTHING), is_write


# --- PostgreSQL: https://www.postgresql.org/docs/current/protocol-message-formats.html --------------------------------


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


_READY, _DONE = _message(b"Z", b"I"), _message(b"C", b"INSERT 0 1\0")
_WELCOME = b"".join((
    _message(b"R", bytes(4)),  # no password
    _message(b"S", b"server_version\x0018.0\0"),
    _message(b"S", b"client_encoding\0UTF8\0"),
    _message(b"S", b"TimeZone\0UTC\0"),
    _message(b"K", bytes(8)),
    _READY,
))  # fmt: skip
_PARTS = {
    ord("P"): _message(b"1"),  # parse
    ord("B"): _message(b"2"),  # bind
    ord("D"): _message(b"n"),  # describe: no rows will come
    ord("E"): _DONE,  # execute
    ord("S"): _READY,  # sync
    ord("c"): _DONE + _READY,  # the end of a COPY
}


class Postgres:
    """Answers executed statements as INSERTs of one row."""

    greeting = b""

    def __init__(self) -> None:
        self._is_open = self._is_write = False
        self._answer = b""

    def answers(self, data: bytearray) -> Iterator[tuple[bytes, bool]]:
        while not self._is_open:  # messages before the login have no letter
            if len(data) < 8 or len(data) < struct.unpack_from(">i", data)[0]:
                return
            length, code = struct.unpack_from(">ii", data)
            del data[:length]
            self._is_open = code == 196_608  # version 3.0; other numbers ask for encryption
            yield (_WELCOME if self._is_open else b"N"), False
        while len(data) >= 5 and len(data) > (length := struct.unpack_from(">i", data, 1)[0]):
            kind = data[0]
            if kind == ord("Q"):
                is_copy = data[5:10] == b"COPY "
                self._answer += _message(b"G", b"\x01\0\0") if is_copy else _DONE + _READY
            self._answer += _PARTS.get(kind, b"")
            self._is_write |= kind == ord("E")
            del data[: 1 + length]
            if kind in b"SQc":
                answer, self._answer = self._answer, b""
                is_write, self._is_write = self._is_write, False
                yield answer, is_write


# --- MySQL: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basics.html -------------------------------


def _packets(*payloads: bytes, first: int = 1) -> bytes:
    return b"".join(
        len(payload).to_bytes(3, "little") + bytes([first + number]) + payload
        for number, payload in enumerate(payloads)
    )


_CAPABLE = 0x000F_F7DF & ~0x0000_0820 & ~0x0100_0000  # neither TLS nor compression, and packets that end columns
_OK = b"\0\0\0\2\0\0\0"
_EOF = b"\xfe\0\0\2\0"


def _column(name: bytes) -> bytes:
    texts = (b"def", b"", b"", b"", name, b"")
    return b"".join(bytes([len(text)]) + text for text in texts) + b"\x0c" + struct.pack("<HIBHB2x", 63, 20, 8, 0, 0)


def _rows(*values: bytes) -> bytes:
    row = b"".join(bytes([len(value)]) + value for value in values)
    return _packets(bytes([len(values)]), *(_column(b"c") for _ in values), _EOF, row, _EOF)


class Mysql:
    """Answers REPLACE statements, and the questions that a session asks when it connects."""

    greeting = _packets(
        b"\x0a5.5.5-10.11.0-MariaDB\0"
        + struct.pack("<I8sBHBHHB10x", 1, b"abcdefgh", 0, _CAPABLE & 0xFFFF, 45, 2, _CAPABLE >> 16, 21)
        + b"ijklmnopqrst\0mysql_native_password\0",
        first=0,
    )

    def __init__(self) -> None:
        self._is_open = False

    def answers(self, data: bytearray) -> Iterator[tuple[bytes, bool]]:
        while len(data) >= 4 and len(data) >= (length := 4 + int.from_bytes(data[:3], "little")):
            number, payload = data[3], bytes(data[4:length])
            del data[:length]
            if not self._is_open:
                self._is_open = True
                yield _packets(_OK, first=number + 1), False
            elif payload[1:].startswith(b"SELECT @@max_allowed_packet"):
                yield _rows(b"16777216", b"0"), False
            elif payload[1:].startswith(b"SELECT"):
                yield _rows(b"0"), False
            else:
                yield _packets(_OK), payload[1:].startswith(b"REPLACE")


# --- MongoDB: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/ ------------------------------------

_HEAD = struct.Struct("<iiii")  # length, number, number that is answered, kind of message
_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_HELLO = {
    "isWritablePrimary": True, "ismaster": True, "helloOk": True, "maxBsonObjectSize": 16_777_216,
    "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 21,
    "readOnly": False, "version": "7.0.0", "ok": 1.0,
}  # fmt: skip


class Mongo:
    """Answers inserts, and anything else with what a client asks when it connects."""

    greeting = b""

    def __init__(self) -> None:
        import bson

        self._hello, self._encode = bson.encode(_HELLO), bson.encode

    def answers(self, data: bytearray) -> Iterator[tuple[bytes, bool]]:
        while len(data) >= _HEAD.size and len(data) >= _HEAD.unpack_from(data)[0]:
            length, number, _, kind = _HEAD.unpack_from(data)
            count = None
            if kind == _OP_QUERY:  # a client's first message may be of the old kind
                body = struct.pack("<iqii", 8, 0, 0, 1) + self._hello
            else:
                count = self._documents(data, length)
                body = bytes(5) + (self._hello if count is None else self._encode({"n": count, "ok": 1.0}))
            del data[:length]
            answer = _OP_REPLY if kind == _OP_QUERY else _OP_MSG
            yield _HEAD.pack(_HEAD.size + len(body), 0, number, answer) + body, count is not None

    @staticmethod
    def _documents(message: bytearray, length: int) -> int | None:
        """Return the number of documents of an `insert`; None if the message is another one."""
        at = _HEAD.size + 5
        at += int.from_bytes(message[at : at + 4], "little") + 5  # the command, the next section's kind and length
        if at >= length or message[at : at + 10] != b"documents\0":
            return None
        at, count = at + 10, 0
        while at < length:
            at += int.from_bytes(message[at : at + 4], "little")
            count += 1
        return count


SPEAKERS: dict[str, Callable[[], Speaker]] = {
    "influxdb1": Http,
    "postgres": Postgres,
    "mariadb": Mysql,
    "mongodb": Mongo,
}


# --- the server -------------------------------------------------------------------------------------------------------


def drawing(distribution: str, mean_us: float) -> Callable[[], int]:
    """Return a function that draws service times in ns."""
    mean_ns, draws = mean_us * 1e3, random.Random(7)
    return {
        "fixed": lambda: int(mean_ns),
        "exponential": lambda: int(draws.expovariate(1 / mean_ns)),
        "two peaks": lambda: int(mean_ns * (draws.gauss(0.5, 0.05) if draws.random() < 0.8 else draws.gauss(3, 0.2))),
    }[distribution]


class Peer:
    """One client."""

    def __init__(self, accepted: socket.socket, speaker: Speaker) -> None:
        self.socket, self.speaker, self.data = accepted, speaker, bytearray()
        self.writes = 0
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        accepted.sendall(speaker.greeting)

    def read(self) -> int:
        """Read what has come; return when it came, ns since 1970; 0 at the end."""
        found, stamps, _, _ = self.socket.recvmsg(READ_BYTES, 64)
        self.data += found
        seconds, ns = struct.unpack("@ll", stamps[0][2]) if stamps else divmod(time.time_ns(), 10**9)
        return seconds * 10**9 + ns if found else 0


def serve(listener: socket.socket, speaker: Callable[[], Speaker], draw: Callable[[], int], log: Path) -> None:
    """Serve all clients in one thread until the process is killed."""
    loop, peers = select.epoll(), dict[int, Peer]()
    loop.register(listener, select.EPOLLIN)
    due: list[tuple[int, int, Peer, bytes, int]] = []
    number, took_ns = 0, array("q")

    def answer(until_ns: int) -> None:
        while due and due[0][0] <= until_ns:
            _, _, peer, text, came_ns = heapq.heappop(due)
            now_ns = time.time_ns()
            with suppress(OSError):
                peer.socket.sendall(text)
            peer.writes += 1
            if peer.writes > 1:
                took_ns.append(now_ns - came_ns)
        if len(took_ns) >= 256 or (took_ns and not due):
            with log.open("ab") as file:
                file.write(took_ns.tobytes())
            del took_ns[:]

    while True:
        left_ns = due[0][0] - time.time_ns() if due else 10**9
        # The last 0.2 ms are spun: a kernel wakes a sleeper later than asked for.
        for descriptor, _ in loop.poll(max(0.0, (left_ns - 200_000) / 1e9)):
            if descriptor == listener.fileno():
                accepted, _ = listener.accept()
                peers[accepted.fileno()] = Peer(accepted, speaker())
                loop.register(accepted, select.EPOLLIN)
                continue
            peer = peers[descriptor]
            try:
                came_ns = peer.read()
            except OSError:
                came_ns = 0
            if not came_ns:
                loop.unregister(descriptor)
                peers.pop(descriptor).socket.close()
                continue
            for text, is_write in peer.speaker.answers(peer.data):
                if is_write:
                    number += 1
                    heapq.heappush(due, (came_ns + draw(), number, peer, text, came_ns))
                else:
                    peer.socket.sendall(text)
        answer(time.time_ns())


@contextmanager
def serving(
    protocol: str, distribution: str = "fixed", mean_us: float = 0.0, log: Path = Path("/dev/null")
) -> Iterator[str]:
    """Start a server in a process of its own; yield its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, __file__, protocol, distribution, str(mean_us), str(log), str(listener.fileno())]
        process = subprocess.Popen(words, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
        try:
            yield ENDPOINTS[protocol].format(port=listener.getsockname()[1])
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    _, name, kind, mean, place, given = sys.argv
    serve(socket.socket(fileno=int(given)), SPEAKERS[name], drawing(kind, float(mean)), Path(place))
