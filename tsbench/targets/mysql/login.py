"""Connections that are opened without trusting whoever answers: checked before the password is sent, or refused.

libmariadb by itself gives the password away. Asked for TLS without verification, it connects unencrypted if the server
offers no TLS, and reports success. A server that asks for the plug-in `mysql_clear_password` gets the password as it
is, and one that sends a public key of its own gets it encrypted with that. libmariadb has options against this, for
which mysqlclient has no arguments: they are passed in an option file that exists in memory only.
"""

from __future__ import annotations

import _socket
import gc
import hashlib
import os
import ssl
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import MySQLdb
from MySQLdb import _mysql
from MySQLdb.constants import CLIENT

from tsbench.errors import UserMistake, one_line
from tsbench.net.tcp import left
from tsbench.targets.mysql.endpoint import DISABLED, PUBLIC_KEY, REQUIRED, SSL_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.targets.mysql.endpoint import MysqlEndpoint

T = TypeVar("T")
A = TypeVarTuple("A")

_UNKNOWN_DATABASE, _UNREACHABLE, _TLS_ERROR, _MALFORMED = 1049, 2002, 2026, 2027
_PROTOCOL_41, _SECURE_CONNECTION = 1 << 9, 1 << 15
_SHA256_SINCE = (3, 4)
"""The first libmariadb whose fingerprints may be of SHA-256; before, they are of SHA-1."""


def connect(of: MysqlEndpoint, password: str, timeout_s: float, conversions: dict[int, Any] | None = None) -> Any:
    """Log in, and return mysqlclient's connection; without the database if that does not exist.

    Raises
    ------
    MySQLdb.Error
        If that fails.
    tsbench.errors.UserMistake
        If the endpoint asks for TLS and there is none, or the server's public key cannot be read.
    """
    # With the name `localhost` the library would use a socket file, whatever the port.
    host = "127.0.0.1" if of.host == "localhost" else of.host
    fingerprint = _fingerprint(of, host, time.monotonic() + timeout_s) if of.ssl_mode == REQUIRED else ""
    with _in_memory(_key(of)) as key, _in_memory(_options(of, fingerprint, key)) as options:
        log_in = partial(
            _mysql.connect,
            host=host,
            port=of.port,
            user=of.user,
            password=password,
            conv=conversions or {},
            connect_timeout=max(1, round(timeout_s)),
            read_default_file=options,
            # Servers may ask for rows, which `Connection.load` sends; the library itself sends no file.
            local_infile=0,
            client_flag=CLIENT.LOCAL_FILES,
            ssl_mode=of.ssl_mode,
            **({"ssl": {"ca": of.ssl_ca}} if of.ssl_ca else {}),
        )
        try:
            opened = called(partial(log_in, database=of.path))
        except MySQLdb.OperationalError as error:
            if error.args[0] != _UNKNOWN_DATABASE:
                raise
            opened = called(log_in)
    if of.ssl_mode != DISABLED and not opened.client_flag & CLIENT.SSL:
        opened.close()
        raise _without_tls(of)
    return opened


def called(function: Callable[[*A], T], *args: *A) -> T:
    """Call a function of mysqlclient; errors for answers that it cannot read are errors of the database too.

    Raises
    ------
    MySQLdb.Error
        For any error. Its text is one that can be looked at: where a server's is not UTF-8, mysqlclient leaves a null
        pointer in its place, which ends the process. So that error is not kept either, not even as a context.
    """
    text = "its message is not UTF-8"
    try:
        return function(*args)
    except MySQLdb.Error as raised:
        if len(gc.get_referents(raised.args)) == len(raised.args):
            raise
        kind, code = type(raised), raised.args[0]
    except (LookupError, TypeError, ValueError, SystemError) as raised:
        kind, code, text = MySQLdb.InterfaceError, _MALFORMED, f"the server's answer makes no sense: {one_line(raised)}"
    raise kind(code, text)


# --- the option file --------------------------------------------------------------------------------------------------


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the name of a file in memory that has this content."""
    file = os.memfd_create("tsbench")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _options(of: MysqlEndpoint, fingerprint: str, key: str) -> bytes:
    lines = ["[client]", f"restricted-auth={','.join(of.plugins)}", f"server-public-key={key}"]
    lines += [f"tls-fp={fingerprint}"] if fingerprint else []
    return ("\n".join(lines) + "\n").encode()


def _key(of: MysqlEndpoint) -> bytes:
    """Return the server's public key; without one a text that is no key, since the library would ask the server."""
    if not of.public_key:
        return b"no key\n"
    try:
        key = Path(of.public_key).read_bytes()[:65_536]
    except OSError as error:
        raise UserMistake(f"{PUBLIC_KEY}={of.public_key} cannot be read: {error.strerror}") from None
    if b"-----BEGIN PUBLIC KEY-----" not in key:
        raise UserMistake(
            f"{PUBLIC_KEY}={of.public_key} is not a public key in PEM form (public_key.pem of MySQL's data)"
        )
    return key


# --- looking before logging in ----------------------------------------------------------------------------------------


def _without_tls(of: MysqlEndpoint) -> UserMistake:
    shown = of.shown
    return UserMistake(f"{shown}: the server offers no TLS, which {SSL_MODE}={of.ssl_mode} asks for")


def _fingerprint(of: MysqlEndpoint, host: str, deadline: float) -> str:
    """Return the fingerprint of the certificate that the server shows, on a connection that is given up then.

    With it, the library refuses any other server, and one that offers no TLS a moment later.

    Raises
    ------
    tsbench.errors.UserMistake
        If the server offers no TLS.
    MySQLdb.OperationalError
        If it cannot be reached, or refuses connections.
    """
    try:
        with _dialled(host, of.port, deadline) as opened:
            greeting = _packet(opened, deadline)
            if greeting[0] == 0xFF:
                text = greeting[3:].decode(errors="replace").removeprefix("#08004")
                raise MySQLdb.OperationalError(int.from_bytes(greeting[1:3], "little"), text)
            # Protocol, version, number of the connection, 8 bytes of the challenge, 0.
            at = greeting.index(0, 1) + 1 + 4 + 8 + 1
            if not int.from_bytes(greeting[at : at + 2], "little") & CLIENT.SSL:
                raise _without_tls(of)
            asked = CLIENT.SSL | _PROTOCOL_41 | _SECURE_CONNECTION
            opened.sendall(b"\x20\0\0\1" + asked.to_bytes(4, "little") + (1 << 24).to_bytes(4, "little") + bytes(24))
            certificate = _certificate(opened, deadline)
    except ssl.SSLError as error:
        raise MySQLdb.OperationalError(_TLS_ERROR, f"TLS/SSL error: {one_line(error)}") from None
    except (OSError, ValueError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else one_line(error)
        text = f"Can't connect to server on '{host}' ({why})"
        raise MySQLdb.OperationalError(_UNREACHABLE, text) from None
    version = tuple(int(part) for part in _mysql.get_client_info().split(".")[:2])
    made = hashlib.sha256(certificate) if version >= _SHA256_SINCE else hashlib.sha1(certificate, usedforsecurity=False)
    return made.hexdigest()


@contextmanager
def _dialled(host: str, port: int, deadline: float) -> Iterator[_socket.socket]:
    """Yield a connection. Not by Python's own class, which gevent replaces, since this may be another thread."""
    failed: OSError | None = None
    for family, kind, protocol, _, address in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
        opened = _socket.socket(family, kind, protocol)
        try:
            opened.settimeout(left(deadline))
            opened.connect(address)
        except OSError as error:
            opened.close()
            failed = error
            continue
        try:
            yield opened
        finally:
            opened.close()
        return
    raise failed or OSError("the host has no address")


def _packet(opened: _socket.socket, deadline: float) -> bytes:
    """Return the payload of the first packet."""
    received = b""
    while len(received) < 5 or len(received) < 4 + int.from_bytes(received[:3], "little"):
        if len(received) > 4_096:
            raise OSError("another product answers there")
        received += _some(opened, deadline)
    return received[4:]


def _certificate(opened: _socket.socket, deadline: float) -> bytes:
    """Return the certificate that a server shows, which is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            opened.sendall(sent.read())
            received.write(_some(opened, deadline))
    with suppress(OSError):
        opened.sendall(sent.read())
    return tls.getpeercert(binary_form=True) or b""


def _some(opened: _socket.socket, deadline: float) -> bytes:
    opened.settimeout(left(deadline))
    received = opened.recv(16_384)
    if not received:
        raise OSError("the server ended the connection")
    return received
