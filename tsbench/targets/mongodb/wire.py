"""A connection for messages whose documents are encoded already; the only module that uses pymongo's internals.

pymongo opens it: it finds the server that takes writes, sets up TLS and logs in. Then it leaves pymongo's pool, whose
`insert_many` would look at every document again: 2 us for each, even if it is encoded.

The message: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/#op_msg
"""

from __future__ import annotations

import struct
from itertools import count
from typing import TYPE_CHECKING, Any

import bson
import pymongo
from bson.codec_options import DEFAULT_CODEC_OPTIONS

from tsbench.errors import UserMistake
from tsbench.net import tcp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bson.codec_options import CodecOptions

    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter, Wire

_OP_MSG = 2013
_HEAD = struct.Struct("<iiiiIB")  # length, number, number that is answered, kind of message, flags, kind of section
_SECTION = struct.Struct("<Bi")  # kind of section, its length
_LONGEST = 48_000_000
"""Bytes of an answer, as MongoDB limits messages."""
_KNOWN = "4.10 to 4.20"


class Taken:
    """Stands in pymongo's connection for the socket that was taken out."""

    def close(self) -> None:
        """Do nothing: the socket lives on elsewhere."""


class Messages:
    """Sends commands over a connection of its own and waits for their answers; one at a time."""

    def __init__(self, client: pymongo.MongoClient[dict[str, Any]], arrival: Arrival, waiter: NewWaiter | None) -> None:
        self._wire = _taken(client, arrival, waiter)
        self._numbers = count(1)
        self.deadline = float("inf")
        """When waiting ends, on the monotonic clock."""

    def send(self, body: bytes, documents: bytes | memoryview, field: bytes) -> Mapping[str, Any]:
        """Send a command, its documents in the field of that name, and return the server's answer.

        Raises
        ------
        OSError
            If the connection breaks; TimeoutError, which is one, at the deadline. It can only be closed then.
        """
        section = _SECTION.size - 1 + len(field) + len(documents)
        return self._exchange(body + _SECTION.pack(1, section) + field, documents, DEFAULT_CODEC_OPTIONS)

    def ask(self, command: Mapping[str, Any], options: CodecOptions[Any]) -> Mapping[str, Any]:
        """Send a command without documents and return the server's answer, or raise as `send` does."""
        return self._exchange(bson.encode(command), b"", options)

    def _exchange(self, lead: bytes, rest: bytes | memoryview, options: CodecOptions[Any]) -> Mapping[str, Any]:
        number = next(self._numbers)
        length = _HEAD.size + len(lead) + len(rest)
        self._wire.put(_HEAD.pack(length, number, 0, _OP_MSG, 0, 0) + lead, rest, self.deadline)
        data = self._more()
        while len(data) < _HEAD.size:
            data += self._more()
        length, _, answered, kind, _, section = _HEAD.unpack_from(data)
        if answered != number or kind != _OP_MSG or section:
            raise ConnectionError("the server answered with another message than the protocol has here")
        if length > _LONGEST:
            raise ConnectionError(f"the server announced an answer of {length:,} bytes; at most {_LONGEST:,} are taken")
        while len(data) < length:
            data += self._more()
        return bson.decode(data[_HEAD.size :], options)

    def _more(self) -> bytes:
        data = self._wire.get(self.deadline)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


def _taken(client: pymongo.MongoClient[dict[str, Any]], arrival: Arrival, waiter: NewWaiter | None) -> Wire:
    try:
        with client._conn_for_writes(None, "insert") as made:  # noqa: SLF001
            connection: Any = made
            opened = getattr(connection.conn, "sock", connection.conn)  # the socket itself, before pymongo 4.11
            wire = tcp.taken_over(opened, arrival, waiter)
            connection.conn = Taken()
            connection.close_conn(None)  # the pool forgets it
            return wire
    except AttributeError as error:
        text = f"pymongo {pymongo.version} is not as tsbench knows it ({error}); install one of {_KNOWN}"
        raise UserMistake(text) from error
