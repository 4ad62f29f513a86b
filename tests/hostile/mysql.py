"""A server that speaks MySQL's protocol by hand and attacks its client.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.hostile.doors import (
    SECRET,
    USER,
    Attack,
    Certificates,
    Channel,
    Ended,
    FakeServer,
    Loot,
    environment,
    holds_secret,
)
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import Count, OpError, WriteMode
from tsbench.targets.mysql import MARIADB
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

LONG_PASSWORD, SSL, LOCAL_FILES, TRACK = 1, 1 << 11, 1 << 7, 1 << 23
_CAPABILITIES = 0x0008_F7DF | LOCAL_FILES | LONG_PASSWORD  # protocol 4.1, plug-ins; neither SSL nor compression
_CAPABILITIES &= ~(SSL | 1 << 5)
_LONGLONG, _STRING = 8, 253
NATIVE = "mysql_native_password"
SCRAMBLE = bytes(range(1, 21))
STEP_S = 0.5
"""Longest wait for a client, in seconds, which may wait for the server itself."""


def integer(number: int) -> bytes:
    """Return an integer with its length (`lenenc`)."""
    return bytes((number,)) if number < 251 else b"\xfc" + number.to_bytes(2, "little")


def text(value: bytes) -> bytes:
    """Return a text with its length."""
    return integer(len(value)) + value


def ok(info: bytes = b"") -> bytes:
    """Return an OK packet."""
    return b"\x00\x00\x00\x02\x00\x00\x00" + (text(info) if info else b"")


def error(code: int = 1064, said: bytes = b"You have an error in your SQL syntax") -> bytes:
    """Return an error packet."""
    return b"\xff" + code.to_bytes(2, "little") + b"#42000" + said


END = b"\xfe\x00\x00\x02\x00"


def table(names: Sequence[bytes], rows: Sequence[Sequence[bytes | None]], kind: int = _STRING) -> list[bytes]:
    """Return the packets of an answer with rows."""
    columns = [
        b"".join(map(text, (b"def", b"", b"", b"", name, name)))
        + b"\x0c\x2d\x00\xff\xff\x00\x00" + bytes((kind,)) + b"\x00\x00\x00\x00\x00"
        for name in names
    ]  # fmt: skip
    cells = [b"".join(b"\xfb" if cell is None else text(cell) for cell in row) for row in rows]
    return [integer(len(names)), *columns, END, *cells, END]


class Dialogue:
    """A server's side of one connection; honest unless a subclass is not."""

    capabilities = _CAPABILITIES
    plugin = NATIVE
    version = b"11.4.2-MariaDB"

    def __init__(self, channel: Channel) -> None:
        self.channel, self.number = channel, 0
        self.requests: list[bytes] = []
        """All packets of the client."""
        self.statements: list[bytes] = []
        self.took_password = False

    def read(self) -> bytes:
        """Return the payload of the client's next packet."""
        header = self.channel.read(4)
        self.number = header[3] + 1
        self.requests.append(self.channel.read(int.from_bytes(header[:3], "little")))
        return self.requests[-1]

    def send(self, *payloads: bytes) -> None:
        """Send packets."""
        for payload in payloads:
            self.channel.send(len(payload).to_bytes(3, "little") + bytes((self.number & 0xFF,)) + payload)
            self.number += 1

    def serve(self) -> None:
        self.greet()
        if self.log_in():
            while True:
                request = self.read()
                if request[:1] == b"\x01":
                    return
                self.statements.append(request[1:])
                self.answer(request[1:])

    def greet(self) -> None:
        """Send the first packet."""
        offered = self.capabilities | (SSL if self.channel.context else 0)
        low, high = (offered & 0xFFFF).to_bytes(2, "little"), (offered >> 16).to_bytes(2, "little")
        self.send(
            b"\x0a" + self.version + b"\0\x01\0\0\0" + SCRAMBLE[:8] + b"\0" + low + b"\x2d\x02\x00" + high
            + b"\x15" + bytes(10) + SCRAMBLE[8:] + b"\0" + self.plugin.encode() + b"\0"
        )  # fmt: skip

    def log_in(self) -> bool:
        """Read the client's answer to the greeting, and let it in; False for a client that goes."""
        response = self.read()
        if len(response) == 32:  # it asks for TLS
            if self.channel.context is None:
                raise Ended
            self.channel.start_tls()
            self.read()
        return self.authenticate()

    def authenticate(self) -> bool:
        """Ask what is to be asked of a client that wants to log in."""
        self.send(ok())
        return True

    def switch(self, plugin: str) -> bytes:
        """Ask the client to log in by another plug-in; return its answer."""
        self.send(b"\xfe" + plugin.encode() + b"\0" + SCRAMBLE + b"\0")
        return self.read()

    def ask_for_file(self, name: bytes) -> bytes:
        """Ask for a file, and return what comes."""
        self.send(b"\xfb" + name)
        found = b""
        while piece := self.read():
            found += piece
        return found

    def answer(self, statement: bytes) -> None:
        """Answer a statement as a server does in whose tables is nothing."""
        if statement.startswith(b"LOAD"):
            name = re.match(rb"LOAD DATA LOCAL INFILE '([^']*)'", statement)
            assert name is not None
            rows = self.ask_for_file(name[1]).count(b"\n")
            self.send(ok(b"Records: %d  Deleted: 0  Skipped: 0  Warnings: 0" % rows))
        elif statement.startswith(b"SELECT @@max_allowed_packet"):
            self.send(*table([b"packet", b"engines"], [(b"16777216", b"0")], _LONGLONG))
        elif statement.startswith((b"SELECT", b"SHOW")):
            self.send(*table([b"points"], [], _LONGLONG))
        else:
            self.send(ok())


class Greedy(Dialogue):
    """Asks for the password: in the greeting, by a change of the plug-in, or encrypted with a key of its own."""

    ask = ""
    key = b""

    def greet(self) -> None:
        if self.ask.startswith("greet "):
            self.plugin = self.ask.removeprefix("greet ")
        super().greet()

    def authenticate(self) -> bool:
        if self.ask == "a byte":  # which was the change to mysql_old_password
            self.send(b"\xfe")
            self.read()
        elif self.ask.startswith("RSA "):
            self.switch(self.ask.removeprefix("RSA "))
            if "caching" in self.ask:
                self.send(b"\x01\x04")
                self.read()
            self.send(b"\x01" + self.key)
            self.took_password = len(self.read()) == 256
        elif self.ask and not self.ask.startswith("greet "):
            self.switch(self.ask)
        return super().authenticate()


WAYS = (
    "", "greet mysql_clear_password", "mysql_clear_password", "greet dialog", "dialog", "mysql_old_password", "a byte",
    "RSA caching_sha2_password", "RSA sha256_password", "../dialog",
)  # fmt: skip
"""Ways to ask for a password; the first one is the usual challenge."""


# --- a client, and what the server got of it --------------------------------------------------------------------------


def use(endpoint: str, timeout_s: float = 3.0) -> list[str]:
    """Do with a session what runs do: connect, write, load, ask, look at counters; return the errors as users see them.

    Raises
    ------
    Exception
        If there is an error that no command would show in one line.
    """
    said: list[str] = []
    schema = MARIADB.schemas["innodb"]
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS])
    try:
        session = MARIADB.connect(endpoint, schema, timeout_s=timeout_s)
    except (UserMistake, Unreachable) as failed:
        return [str(failed)]
    steps: tuple[Callable[[], Any], ...] = (
        lambda: session.write(schema.encode(batch, WriteMode.SINGLE)),
        lambda: session.write(schema.encode(batch, WriteMode.BULK)),
        lambda: session.query(schema.compile(Count(CPU)), ("points",)),
        session.counters,
        session.facts,
        lambda: session.sizes([CPU]),
        lambda: session.objects([CPU]),
    )
    for step in steps:
        try:
            step()
        except OpError as failed:
            said.append(str(failed))
    session.close()
    return said


@contextmanager
def attacker(
    make: Callable[[Channel], Dialogue], context: ssl.SSLContext | None = None
) -> Iterator[tuple[FakeServer, str, list[Dialogue]]]:
    """Yield a server that talks as `make` says, its endpoint, and the dialogues as they come."""
    dialogues: list[Dialogue] = []

    def serve(channel: Channel) -> None:
        channel.limit(STEP_S)
        dialogues.append(make(channel))
        dialogues[-1].serve()

    with FakeServer(serve, context) as server, environment(TSBENCH_PASSWORD=SECRET):
        yield server, f"mariadb://{USER}@127.0.0.1:{server.port}/tsbench", dialogues


def rsa_key(place: Path) -> bytes:
    """Make a pair of keys for caching_sha2_password, `rsa.key` being the private one, and return the public one."""
    if (place / "rsa.pub").exists():
        return (place / "rsa.pub").read_bytes()
    command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "rsa.key"]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    command = ["openssl", "pkey", "-in", "rsa.key", "-pubout", "-out", "rsa.pub"]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    return (place / "rsa.pub").read_bytes()


TITLE = "MariaDB, MySQL"
MODES = (
    "",
    "auth-plugins=mysql_clear_password",
    "ssl-mode=REQUIRED",
    "ssl-mode=REQUIRED&auth-plugins=mysql_native_password",
    "ssl-mode=VERIFY_IDENTITY",
    "ssl-mode=VERIFY_IDENTITY&ssl-ca=CA",
)


def probe(mode: str, attack: Attack, certificates: Certificates) -> Loot:
    """Connect to servers that ask for the password in every way, one after the other."""
    loot, key = Loot.NOTHING, rsa_key(certificates.directory)
    options = mode.replace("=CA", f"={certificates.authority}")
    for way in WAYS:

        def make(channel: Channel, way: str = way) -> Greedy:
            made = Greedy(channel)
            made.ask, made.key = way, key
            return made

        with attacker(make, certificates.context(attack)) as (server, endpoint, dialogues):
            use(f"{endpoint}?{options}")
            seen = server.seen(attack)
        if holds_secret(seen) or any(one.took_password for one in dialogues):
            loot |= Loot.PASSWORD
        elif b"REPLACE INTO" in seen:
            loot |= Loot.DATA
    return loot


class Watch:
    """Notes which files are opened: by this thread in Python, and the bait by anybody, a library in C too."""

    def __init__(self, place: Path) -> None:
        self.bait = place / "bait"
        self.bait.write_bytes(BAIT)
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(os.O_NONBLOCK)
        assert libc.inotify_add_watch(self._inotify, bytes(self.bait), 0x20) >= 0  # IN_OPEN
        self._opened: list[str] = []
        self._thread = 0
        sys.addaudithook(self._hook)
        with attacker(Dialogue) as (_, endpoint, _):
            # Modules are imported before anybody is watched.
            assert use(endpoint) == []
            use(f"{endpoint}?ssl-mode=REQUIRED")
        tuple(TARGETS.values())  # a server that is none of ours is compared with what each target says of its own

    @property
    def files(self) -> tuple[bytes, ...]:
        """Names of files to ask for."""
        return (b"/proc/self/environ", bytes(self.bait), b"", b"../x", os.path.relpath(self.bait).encode())

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and threading.get_ident() == self._thread:
            self._opened.append(str(arguments[0]))

    def bait_was_opened(self) -> bool:
        """Return whether anybody has opened the bait since the last call."""
        with suppress(BlockingIOError):
            return bool(os.read(self._inotify, 65_536))
        return False

    @contextmanager
    def opened(self) -> Iterator[list[str]]:
        """Yield a list that holds, at the end, the files that were opened within."""
        found: list[str] = []
        self._thread = threading.get_ident()
        try:
            yield found
        finally:
            self._thread = 0
            if self.bait_was_opened():
                self._opened.append(str(self.bait))
            found += self._opened
            self._opened.clear()


BAIT = b"the contents of a file of this machine"


def got_file(seen: bytes) -> bool:
    """Return True if the bytes hold what was in one of the files."""
    return BAIT in seen or b"PATH=" in seen
