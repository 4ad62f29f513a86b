"""Stand-ins for InfluxDB that acknowledge every write at once: with them a client shows what it costs by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tsbench.targets.base import Sink

if TYPE_CHECKING:
    import socket

_READ_BYTES = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_WRITES = (b"POST /write?", b"POST /api/v2/write?")
_WRITTEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_NOTHING = b'{"results": [], "buckets": []}'
_FOUND = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_NOTHING),
    _NOTHING,
)
"""The answer to what a session asks when it connects: a query of version 1, the buckets of version 2."""


def serve(peer: socket.socket) -> None:
    """Serve one client until its connection ends."""
    data = bytearray()
    while True:
        while (end := data.find(b"\r\n\r\n")) < 0:
            if not _read(peer, data):
                return
        found = _LENGTH.search(data, 0, end)
        length = end + 4 + (int(found[1]) if found else 0)
        while len(data) < length:
            if not _read(peer, data):
                return
        peer.sendall(_WRITTEN if data.startswith(_WRITES) else _FOUND)
        del data[:length]


def _read(peer: socket.socket, data: bytearray) -> bool:
    more = peer.recv(_READ_BYTES)
    data.extend(more)
    return bool(more)


SINK1 = Sink("http://127.0.0.1:{port}/sink", serve)
SINK2 = Sink("http://127.0.0.1:{port}/?org=sink&bucket=sink", serve)
