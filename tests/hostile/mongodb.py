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
    from random import Random

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


# --- dialogues --------------------------------------------------------------------------------------------------------

ENDPOINTS = {"mongodb": f"mongodb://{USER}@127.0.0.1:{{port}}/tsbench"}


betrayed = holds_secret


def honest(request: bytes, random: Random) -> bytes:
    """Return the answer of a server that takes every command, and logins until it has to prove that it knows them."""
    if len(request) < _HEAD.size:
        return b""
    _, number, _, kind = _HEAD.unpack_from(request)
    document = dict(HELLO)
    if b"saslStart" in request or b"speculativeAuthenticate" in request:
        nonce = request.partition(b"r=")[2][:32].split(b"\0")[0]
        rounds = random.choice((b"4096", b"4096", b"1", b"-5", b"9" * 5_000, b"x"))
        payload = b"r=" + nonce + b"more,s=c2FsdA==,i=" + rounds
        started = {"conversationId": 1, "done": random.random() < 0.1, "payload": payload, "ok": 1.0}
        document |= {"speculativeAuthenticate": started, **started}
    if b"saslContinue" in request:
        document |= {"conversationId": 1, "done": True, "payload": b"v=" + b"A" * 43 + b"="}
    if b"listDatabases" in request or b"aggregate" in request:
        document["cursor"] = {"id": 0, "ns": "x.y", "firstBatch": [value(random) for _ in range(3)]}
    return answer(number, kind, bson.encode(document))


def anything(random: Random) -> bytes:
    """Return a message that a server may send at some step, or that no server may."""
    document = bson.encode({"ok": random.choice((0, 1, 1.0, "x", None)), **value(random), **more_of_a_greeting(random)})
    if random.random() < 0.3:
        changed = bytearray(document)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        document = bytes(changed)
    made = answer(random.choice((0, 1, 2**31 - 1)), random.choice((OP_MSG, OP_QUERY)), document)
    if random.random() < 0.2:
        length = random.choice((-1, 0, 15, 17, 2**31 - 1, 48_000_000))
        made = _HEAD.pack(length, 0, 1, random.choice((OP_MSG, OP_REPLY, 2012, 0, -1))) + made[_HEAD.size :]
    return made if random.random() < 0.95 else random.randbytes(random.randrange(1, 60))


def value(random: Random, depth: int = 2) -> dict[str, Any]:
    """Return a document of values of any type, under names that answers have."""
    names = (
        "n",
        "cursor",
        "firstBatch",
        "writeErrors",
        "errmsg",
        "code",
        "version",
        "ferretdb",
        "storageEngine",
        "time",
    )
    values: tuple[Any, ...] = (
        0,
        -1,
        2.5,
        "text",
        None,
        True,
        [],
        [1, "x"],
        b"bytes",
        bson.ObjectId(),
        bson.DatetimeMS(2**62),
        {},
    )
    found = {random.choice(names): random.choice(values) for _ in range(random.randrange(4))}
    return {**found, random.choice(names): value(random, depth - 1)} if depth else found


def more_of_a_greeting(random: Random) -> dict[str, Any]:
    """Return what else the answer to a greeting may say: other hosts, versions, compressors."""
    parts = (
        {"setName": "rs", "hosts": ["127.0.0.1:1"], "me": "127.0.0.1:1"},
        {"maxWireVersion": -1},
        {"maxMessageSizeBytes": 2**31 - 1},
        {"compression": ["zlib"]},
        {"saslSupportedMechs": ["PLAIN"]},
        {"msg": "isdbgrid"},
        {"isWritablePrimary": False},
    )
    return dict(random.choice(parts)) if random.random() < 0.5 else {}
