"""Certificates made for a test, attacks on a connection, and a server on loopback that carries them out.

A probe connects a real client to such a server and returns its loot: what the attacker has then. The table of modes and
attacks in docs/security.md is made of probes, one for each mode of each protocol's encryption.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

SECRET = "an open-sesame/42"
"""The password or token of all probes; it looks different in base64 and in a URL."""
USER = "somebody"


class Attack(StrEnum):
    """What stands between client and server, or in the server's place."""

    PASSIVE = "passive listener"
    """The server is honest and offers TLS with a good certificate; somebody sees all bytes on the wire."""
    NO_TLS = "no TLS offered"
    """In the server's place, or in the middle: says that it does not speak TLS."""
    OTHER_CERTIFICATE = "other certificate"
    """In the server's place: speaks TLS, with a certificate for the right name by an authority of its own."""
    OTHER_NAME = "other name"
    """The same, with a certificate that the trusted authority gave to another server."""
    EXPIRED = "expired"
    """The same, with the server's own certificate that has expired."""


class Loot(Enum):
    """What the attacker has at the end, the least first."""

    NOTHING = "nothing"
    DATA = "data"
    """Statements and points, but nothing to log in with."""
    PASSWORD = "password"
    """The password or token, or what is as good; and the data."""

    def __or__(self, other: Loot) -> Loot:
        """Return the larger one."""
        return max(self, other, key=[*Loot].index)


# --- certificates -----------------------------------------------------------------------------------------------------

_SUBJECTS: Mapping[Attack, tuple[str, str]] = {
    Attack.PASSIVE: ("trusted", "IP:127.0.0.1,DNS:localhost"),
    Attack.OTHER_CERTIFICATE: ("other", "IP:127.0.0.1,DNS:localhost"),
    Attack.OTHER_NAME: ("trusted", "DNS:elsewhere.test"),
    Attack.EXPIRED: ("trusted", "IP:127.0.0.1,DNS:localhost"),
}
"""The authority that signs and the name, by the attack that shows the certificate."""
_CONFIGURATION = """
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
copy_extensions = copy
x509_extensions = server
[any]
commonName = optional
[server]
basicConstraints = CA:FALSE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of certificates and keys that only a test trusts, readable by any user of the machine."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The certificate of the trusted authority."""
        return self.directory / "trusted.pem"

    def certificate(self, attack: Attack) -> Path:
        """Return the certificate that is shown; its key is beside it (`.key`)."""
        return self.directory / f"{attack.name}.pem"

    def context(self, attack: Attack) -> ssl.SSLContext | None:
        """Return what the server of an attack wraps its connections with; None where it offers no TLS."""
        if attack is Attack.NO_TLS:
            return None
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        path = self.certificate(attack)
        made.load_cert_chain(path, path.with_suffix(".key"))
        return made


@contextmanager
def new_certificates() -> Iterator[Certificates]:
    """Make certificates with openssl, and remove them at the end.

    Raises
    ------
    FileNotFoundError
        If openssl is not installed.
    """
    place = Path(tempfile.mkdtemp(prefix="tsbench-test-"))
    place.chmod(0o755)
    try:
        (place / "index.txt").touch()
        (place / "ca.cnf").write_text(_CONFIGURATION)
        for name in {authority for authority, _ in _SUBJECTS.values()}:
            _openssl(
                place, "req", "-x509", *_new_key(name), "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"
            )
        for attack, (authority, names) in _SUBJECTS.items():
            _openssl(
                place, "req", *_new_key(attack.name), "-out", "request.csr", "-subj", "/CN=server",
                "-addext", f"subjectAltName={names}",
            )  # fmt: skip
            until = "20200102000000Z" if attack is Attack.EXPIRED else "20991231000000Z"
            _openssl(
                place, "ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", f"{authority}.pem",
                "-keyfile", f"{authority}.key", "-in", "request.csr", "-out", f"{attack.name}.pem",
                "-startdate", "20200101000000Z", "-enddate", until,
            )  # fmt: skip
        for key in place.glob("*.key"):
            key.chmod(0o644)
        yield Certificates(place)
    finally:
        shutil.rmtree(place)


def _new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]


def _openssl(place: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- servers ----------------------------------------------------------------------------------------------------------


_LONGEST_S = 10.0


class Ended(Exception):  # noqa: N818 - what the connection has
    """The client has ended the connection."""


class Channel:
    """A server's side of one connection: reads exact numbers of bytes, writes, changes to TLS, and remembers."""

    def __init__(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        self._socket, self.context = accepted, context
        self.clear = bytearray()
        """All that came unencrypted: what a listener on the wire sees."""
        self.heard = bytearray()
        """All that the client has said, unencrypted or not."""

    @property
    def is_encrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket)

    def limit(self, seconds: float) -> None:
        """Take a client that says nothing for so long for one that has gone."""
        self._socket.settimeout(seconds)

    def begin(self) -> None:
        """Change to TLS if the client begins with it, as all do that do not negotiate it first; raises as `read`."""
        if not self.is_encrypted and self.peek() == b"\x16":
            if self.context is None:
                raise Ended
            self.start_tls()

    def start_tls(self) -> None:
        """Change to TLS; the client may refuse the certificate, which ends the connection."""
        assert self.context is not None
        try:
            self._socket = self.context.wrap_socket(self._socket, server_side=True)
        except OSError as error:
            raise Ended from error

    def peek(self) -> bytes:
        """Return the first byte to come, which remains to be read; b"" at the end. Not under TLS."""
        with suppress(OSError):
            return self._socket.recv(1, socket.MSG_PEEK)
        return b""

    def read(self, count: int) -> bytes:
        """Return exactly so many bytes.

        Raises
        ------
        Ended
            If the client ended the connection before.
        """
        found = b""
        while len(found) < count:
            found += self.some(count - len(found))
        return found

    def some(self, most: int = 65_536) -> bytes:
        """Return the next bytes, at least one; raises as `read`."""
        try:
            found = self._socket.recv(most)
        except OSError as error:
            raise Ended from error
        if not found:
            raise Ended
        self.heard += found
        if not self.is_encrypted:
            self.clear += found
        return found

    def waited(self, seconds: float) -> bytes:
        """Return the next bytes; b"" if none came in time. Raises as `read`."""
        try:
            self._socket.settimeout(seconds)
            found = self.some()
            self._socket.settimeout(_LONGEST_S)
            return found
        except Ended as end:
            if isinstance(end.__cause__, TimeoutError):
                return b""
            raise
        except OSError as error:
            raise Ended from error

    def send(self, data: bytes) -> None:
        """Send all bytes; raises as `read`."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Ended from error

    def reset(self) -> None:
        """End the connection with RST."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class FakeServer:
    """Calls `serve` for every connection in a thread of its own; `channels` has all of them."""

    def __init__(self, serve: Callable[[Channel], None], context: ssl.SSLContext | None = None) -> None:
        self._serve, self._context = serve, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.channels: list[Channel] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for channel in self.channels:
            channel.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(accepted, self._context)
            self.channels.append(channel)
            self._threads.append(threading.Thread(target=self._answer, args=(channel,), daemon=True))
            self._threads[-1].start()

    def _answer(self, channel: Channel) -> None:
        with suppress(Ended):
            self._serve(channel)
        channel.close()

    def seen(self, attack: Attack) -> bytes:
        """Return all that the attacker has seen on all connections."""
        parts = (channel.clear if attack is Attack.PASSIVE else channel.heard for channel in self.channels)
        return b"\n".join(bytes(part) for part in parts)


def holds_secret(seen: bytes) -> bool:
    """Return True if the bytes hold the secret, as it is, in a URL, or in base64 behind a user's name."""
    plain = (SECRET, f"{USER}:{SECRET}", f"\0{USER}\0{SECRET}")
    forms = [SECRET.encode(), quote(SECRET).encode(), quote(SECRET, safe="").encode()]
    return any(form in seen for form in (*forms, *(base64.b64encode(text.encode()) for text in plain)))


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables of the environment, and put back what was there."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
