"""A MongoDB server that attacks its client: takes any login, and says anything at each step.

The messages: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import bson

from tests.hostile.doors import SECRET, USER, Attack, Ended, FakeServer, Loot, environment, holds_secret
from tsbench.errors import UserMistake
from tsbench.model import OpError
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from tests.hostile.doors import Certificates, Channel

TITLE = "MongoDB"
_CA = "tls=true&tlsCAFile=CA"
MODES = (
    "",
    "authMechanism=PLAIN",
    "authMechanism=PLAIN&tls=false",
    "tls=true&tlsInsecure=true",
    "tls=true&tlsInsecure=true&authMechanism=PLAIN",
    f"{_CA}&tlsAllowInvalidCertificates=true",
    f"{_CA}&tlsAllowInvalidHostnames=true",
    f"{_CA}&tlsAllowInvalidHostnames=true&authMechanism=PLAIN",
    "tls=true",
    _CA,
    f"{_CA}&authMechanism=PLAIN",
)
ENDPOINTS = {"mongodb": f"mongodb://{USER}@127.0.0.1:{{port}}/tsbench"}
_HEAD = struct.Struct("<iiii")  # length, number, number that is answered, kind of message
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
HELLO: dict[str, Any] = {
    "isWritablePrimary": True, "ismaster": True, "helloOk": True, "maxBsonObjectSize": 16_777_216,
    "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 21,
    "readOnly": False, "version": "7.0.0", "ok": 1.0,
}  # fmt: skip
"""The answer to everything: what a client asks when it connects, and commands that succeed."""


def read_message(channel: Channel) -> tuple[int, int, bytes]:
    """Return the number, the kind and the body of a client's next message."""
    length, number, _, kind = _HEAD.unpack(channel.read(_HEAD.size))
    if not _HEAD.size <= length <= 50_000_000:
        raise Ended
    return number, kind, channel.read(length - _HEAD.size)


def answer(number: int, kind: int, document: bytes) -> bytes:
    """Return the message that answers one of that number and kind with an encoded document."""
    if kind == OP_QUERY:
        body = struct.pack("<iqii", 8, 0, 0, 1) + document
        return _HEAD.pack(_HEAD.size + len(body), 0, number, OP_REPLY) + body
    body = bytes(5) + document
    return _HEAD.pack(_HEAD.size + len(body), 0, number, OP_MSG) + body


def probe(mode: str, attack: Attack, certificates: Certificates) -> Loot:
    """Connect to a server that takes every login with PLAIN, and none with SCRAM; and without a login."""
    loot = Loot.NOTHING
    login = bson.encode({"ok": 1.0, "done": True, "conversationId": 1, "payload": b""})

    def serve(channel: Channel) -> None:
        channel.begin()
        while True:
            number, kind, body = read_message(channel)
            channel.send(answer(number, kind, login if b"saslStart" in body else bson.encode(HELLO)))

    schema = next(iter(get("mongodb").schemas.values()))
    options = mode.replace("=CA", f"={certificates.authority}")
    for user in (f"{USER}@",) if "PLAIN" in mode else (f"{USER}@", ""):
        with FakeServer(serve, certificates.context(attack)) as server, environment(TSBENCH_PASSWORD=SECRET):
            with suppress(UserMistake, OpError):
                get("mongodb").connect(
                    f"mongodb://{user}127.0.0.1:{server.port}/tsbench?{options}", schema, timeout_s=2
                ).close()
            seen = server.seen(attack)
        if holds_secret(seen):
            loot |= Loot.PASSWORD
        elif b"buildInfo" in seen:
            loot |= Loot.DATA
    return loot
