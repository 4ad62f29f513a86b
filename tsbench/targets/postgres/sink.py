"""A stand-in for PostgreSQL that acknowledges every write at once: with it a client shows what it costs by itself.

The messages: https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tsbench.targets.base import Sink

if TYPE_CHECKING:
    import socket

_STARTUP = 196_608  # version 3.0 of the protocol; other numbers ask for encryption, which it does not have
_READ_BYTES = 1 << 20


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


_READY = _message(b"Z", b"I")
_DONE = _message(b"C", b"INSERT 0 1\0")
_WELCOME = b"".join((
    _message(b"R", bytes(4)),  # no password
    _message(b"S", b"server_version\x0018.0\0"),
    _message(b"S", b"client_encoding\0UTF8\0"),
    _message(b"S", b"TimeZone\0UTC\0"),
    _message(b"K", bytes(8)),
    _READY,
))  # fmt: skip
_ANSWERS = {
    ord("P"): _message(b"1"),  # parse
    ord("B"): _message(b"2"),  # bind
    ord("D"): _message(b"n"),  # describe: no rows will come
    ord("E"): _DONE,  # execute
    ord("S"): _READY,  # sync
    ord("c"): _DONE + _READY,  # the end of a COPY
}
_COPY = _message(b"G", b"\x01\0\0")  # binary, of no columns


def serve(peer: socket.socket) -> None:
    """Serve one client until its connection ends."""
    data = bytearray()

    def read(count: int) -> bool:
        while len(data) < count:
            more = peer.recv(_READ_BYTES)
            if not more:
                return False
            data.extend(more)
        return True

    while True:  # messages before the login have no letter
        if not read(8):
            return
        length, code = struct.unpack_from(">ii", data)
        if not read(length):
            return
        del data[:length]
        if code == _STARTUP:
            break
        peer.sendall(b"N")
    peer.sendall(_WELCOME)
    answer = bytearray()
    while read(5):
        kind, length = struct.unpack_from(">Bi", data)
        if kind == ord("X") or not read(1 + length):
            return
        answer += _query(data) if kind == ord("Q") else _ANSWERS.get(kind, b"")
        del data[: 1 + length]
        if not data and answer:
            peer.sendall(answer)
            answer.clear()


def _query(message: bytearray) -> bytes:
    return _COPY if message[5:10] == b"COPY " else _DONE + _READY


SINK = Sink("postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable", serve)
