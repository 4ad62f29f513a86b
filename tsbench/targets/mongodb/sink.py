"""A stand-in for MongoDB that acknowledges every write at once: with it a client shows what it costs by itself.

The messages: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tsbench.targets.base import Sink

if TYPE_CHECKING:
    import socket

_READ_BYTES = 1 << 20
_HEAD = struct.Struct("<iiii")  # length, number, number that is answered, kind of message
_LENGTH = struct.Struct("<i")
_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_DOCUMENTS = b"documents\0"
_HELLO: dict[str, Any] = {
    "isWritablePrimary": True, "ismaster": True, "helloOk": True, "maxBsonObjectSize": 16_777_216,
    "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 21,
    "readOnly": False, "version": "7.0.0", "ok": 1.0,
}  # fmt: skip
"""The answer to everything but writes: what a client asks when it connects."""


def serve(peer: socket.socket) -> None:
    """Serve one client until its connection ends."""
    import bson  # noqa: PLC0415 - the driver's

    hello = bson.encode(_HELLO)
    data = bytearray()
    while True:
        while len(data) < _HEAD.size or len(data) < _HEAD.unpack_from(data)[0]:
            more = peer.recv(_READ_BYTES)
            if not more:
                return
            data += more
        length, number, _, kind = _HEAD.unpack_from(data)
        if kind == _OP_QUERY:  # a client's first message may be of the old kind
            body = struct.pack("<iqii", 8, 0, 0, 1) + hello
        else:
            count = _documents(data, length)
            body = bytes(5) + (hello if count is None else bson.encode({"n": count, "ok": 1.0}))
        answer = _OP_REPLY if kind == _OP_QUERY else _OP_MSG
        peer.sendall(_HEAD.pack(_HEAD.size + len(body), 0, number, answer) + body)
        del data[:length]


def _documents(message: bytearray, length: int) -> int | None:
    """Return the number of documents of an `insert`; None if the message is another one."""
    at = _HEAD.size + 5
    at += _LENGTH.unpack_from(message, at)[0] + 5  # the command, the kind of the next section and its length
    if at >= length or message[at : at + len(_DOCUMENTS)] != _DOCUMENTS:
        return None
    at, count = at + len(_DOCUMENTS), 0
    while at < length:
        at += _LENGTH.unpack_from(message, at)[0]
        count += 1
    return count


SINK = Sink("mongodb://127.0.0.1:{port}/tsbench_sink", serve)
