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
ENDPOINTS = {"postgres": f"postgresql://{USER}@127.0.0.1:{{port}}/tsbench"}
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
