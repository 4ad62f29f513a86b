"""A PostgreSQL server that attacks its client: asks for the password in every form, and says anything at each step.

The messages: https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.hostile.doors import SECRET, USER, Attack, Ended, FakeServer, Loot, environment, holds_secret
from tsbench.errors import UserMistake
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from random import Random

    from tests.hostile.doors import Certificates, Channel

TITLE = "PostgreSQL"
MODES = (
    "sslmode=disable",
    "sslmode=disable&require_auth=password",
    "sslmode=disable&require_auth=md5",
    "sslmode=allow",
    "sslmode=prefer",
    "",
    "sslmode=require",
    "sslmode=require&require_auth=scram-sha-256",
    "sslmode=verify-ca",
    "sslmode=verify-full",
)
HASHED = re.compile(rb"md5[0-9a-f]{32}")
"""The password's MD5 hash, as it is sent."""
_SSL, _GSS, _CANCEL = 80_877_103, 80_877_104, 80_877_102
_CLEARTEXT, _MD5 = 3, 5


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", 4 + len(body)) + body


def asks(method: int, body: bytes = b"") -> bytes:
    """Return the request for an authentication; 0: none is needed."""
    return message(b"R", struct.pack(">i", method) + body)


READY = message(b"Z", b"I")
WELCOME = b"".join([
    asks(0),
    *(message(b"S", text) for text in (b"server_version\x0018.0\0", b"client_encoding\0UTF8\0", b"TimeZone\0UTC\0")),
    message(b"K", bytes(8)),
    READY,
])  # fmt: skip
DONE = message(b"C", b"SET\0")
ANSWERS = {
    b"Q": DONE + READY,
    b"P": message(b"1"),
    b"B": message(b"2"),
    b"D": message(b"n"),
    b"E": DONE,
    b"S": READY,
}
"""What an honest server says to each message, where nothing is stored."""


def begin(channel: Channel) -> bytes:
    """Read a client's first messages, change to TLS if both want it; return the parameters that it sent."""
    while True:
        channel.begin()
        length, code = struct.unpack(">ii", channel.read(8))
        if code == _CANCEL or not 8 <= length <= 10_000:
            raise Ended
        if code == _SSL and channel.context is not None:
            channel.send(b"S")
            channel.start_tls()
        elif code in {_SSL, _GSS}:
            channel.send(b"N")
        else:
            return channel.read(length - 8)


def read_message(channel: Channel) -> tuple[bytes, bytes]:
    kind = channel.read(1)
    (length,) = struct.unpack(">i", channel.read(4))
    return kind, channel.read(length - 4)


def _demanding(method: int) -> bytes:
    return asks(method, b"salt" if method == _MD5 else b"")


def probe(mode: str, attack: Attack, certificates: Certificates) -> Loot:
    """Connect to servers that ask for the password, for an MD5 hash of it, and for nothing."""
    loot = Loot.NOTHING
    root = f"&sslrootcert={certificates.authority}" if "verify" in mode else ""
    for method in (_CLEARTEXT, _MD5, 0):

        def serve(channel: Channel, method: int = method) -> None:
            begin(channel)
            if method:
                channel.send(_demanding(method))
                read_message(channel)
            channel.send(WELCOME)
            while True:
                channel.send(ANSWERS.get(read_message(channel)[0], b""))

        offered = certificates.context(attack)
        with FakeServer(serve, offered) as server, environment(TSBENCH_PASSWORD=SECRET):
            url = f"postgresql://{USER}@127.0.0.1:{server.port}/tsbench?{mode}{root}"
            with suppress(UserMistake):
                get("postgres").connect(url, get("postgres").schemas["btree"], timeout_s=2).close()
            seen = server.seen(attack)
        if holds_secret(seen) or HASHED.search(seen):
            loot |= Loot.PASSWORD
        elif b"TimeZone" in seen:
            loot |= Loot.DATA
    return loot


# --- dialogues --------------------------------------------------------------------------------------------------------

ENDPOINTS = {"postgres": f"postgresql://{USER}@127.0.0.1:{{port}}/tsbench"}
_KINDS = b"RSKZCEDTINt123nsGHWAVvcd"


def betrayed(seen: bytes) -> bool:
    """Return True if a client sent its password, or the hash of it."""
    return holds_secret(seen) or bool(HASHED.search(seen))


def honest(request: bytes, random: Random) -> bytes:
    """Return what a server says that takes everything, without or with a login."""
    found = b""
    while request:
        if request[0] == 0 and len(request) >= 8:
            length, code = struct.unpack_from(">ii", request)
            login = random.choice((WELCOME, WELCOME, WELCOME, asks(_CLEARTEXT), asks(_MD5, b"salt"), asks(10, _SCRAM)))
            found += b"N" if code in {_SSL, _GSS} else login
        else:
            length = struct.unpack_from(">i", request, 1)[0] + 1 if len(request) >= 5 else 1
            found += ANSWERS.get(request[:1], WELCOME if request[:1] == b"p" else b"")
        request = request[max(1, length) :]
    return found


_SCRAM = b"SCRAM-SHA-256\0\0"


def anything(random: Random) -> bytes:
    """Return a message that a server may send at some step, or that no server may."""
    body = random.choice((
        b"",
        random.randbytes(random.randrange(40)),
        struct.pack(">i", random.randrange(14)) + random.randbytes(random.randrange(20)),
        b"SERROR\0C%05d\0M%s\0\0" % (random.randrange(99_999), random.choice((b"no", b"x" * 9_000, b"\xff\n\x1b[2J"))),
        _columns(random),
        _row(random),
        b"SELECT %d\0" % random.randrange(10**9),
        b"I",
        b"client_encoding\0LATIN1\0",
        struct.pack(">i", 11) + b"r=x,s=c2FsdA==,i=4096",
    ))  # fmt: skip
    kind = bytes((random.choice(_KINDS),)) if random.random() < 0.9 else random.randbytes(1)
    if random.random() < 0.1:
        return kind + struct.pack(">i", random.choice((-1, 0, 3, 2**31 - 1, 2**30, 70_000))) + body
    return message(kind, body)


def _columns(random: Random) -> bytes:
    count = random.randrange(12)
    types = (16, 20, 23, 25, 700, 701, 1184, 1009, 99_999)
    columns = [b"c%d\0" % i + struct.pack(">ihihih", 0, 0, random.choice(types), 8, -1, 1) for i in range(count)]
    return struct.pack(">h", count) + b"".join(columns)


def _row(random: Random) -> bytes:
    values = [random.randbytes(random.choice((0, 1, 4, 8, 30))) for _ in range(random.randrange(12))]
    cells = [struct.pack(">i", -1) if not value else struct.pack(">i", len(value)) + value for value in values]
    return struct.pack(">h", len(values)) + b"".join(cells)
