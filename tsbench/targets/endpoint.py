"""Checks of the endpoints of all targets: texts that none may hold, and the product that listens at a port."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from urllib.parse import unquote_to_bytes

from tsbench.errors import UserMistake
from tsbench.targets import credentials
from tsbench.text import shortened

_MOST = 8_192
"""Characters of an endpoint, enough for the longest path that Linux takes with some escapes."""
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def check_text(endpoint: str) -> str:
    """Return how messages may show an endpoint: its place, without user and options, since one may be a password.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint holds a password or token, a control character (also one that is escaped, such as %00), or what
        is no text; or if it is too long.
    """
    credentials.refuse_secrets(endpoint, "the endpoint")
    shown = shortened(endpoint.rpartition("@")[2].partition("?")[0], 200)
    if len(endpoint) > _MOST:
        raise UserMistake(f"{shown}: the endpoint has {len(endpoint):,} characters; at most {_MOST:,} are taken")
    try:
        found = _CONTROL.search(unquote_to_bytes(endpoint))
    except UnicodeEncodeError:
        raise UserMistake(f"{shown}: the endpoint is not text in UTF-8; write other characters as %XX") from None
    if found:
        raise UserMistake(f"{shown}: the endpoint holds the control character %{found[0][0]:02X}; take it out")
    return shown


# --- what listens there -----------------------------------------------------------------------------------------------

_ANSWER_S = 0.3
"""Seconds to wait for each answer: this runs on a connection that has failed already."""
_HTTP = b"GET /ping HTTP/1.0\r\n\r\n"
_SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
"""PostgreSQL answers with one letter, S or N, before it knows anything of the client."""
_HELLO = (
    b"\x34\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0"  # a head, OP_MSG, no flags, one document
    b"\x1f\0\0\0\x10hello\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0"
)
_PRODUCTS = (
    (re.compile(rb"...\0\x0a[^\0]*MariaDB", re.DOTALL | re.IGNORECASE), "a MariaDB server"),
    (re.compile(rb"...\0\x0a\d+\.\d", re.DOTALL), "a MySQL server"),
    (re.compile(rb"...\0\xff[\s\S]*MariaDB", re.DOTALL), "a MariaDB server"),
    (re.compile(rb"...\0\xff..(?:Host|#\d)", re.DOTALL), "a MySQL server"),
    (re.compile(rb"HTTP/1\.\d [\s\S]*MongoDB", re.DOTALL), "a MongoDB server"),
    (re.compile(rb"HTTP/1\.\d [\s\S]*?\r\nX-Influxdb-", re.DOTALL | re.IGNORECASE), "an InfluxDB server"),
    (re.compile(rb"HTTP/1\.\d 400 [\s\S]*HTTPS server", re.DOTALL), "an HTTPS server"),
    (re.compile(rb"HTTP/1\.\d \d\d\d"), "an HTTP server"),
    (re.compile(rb"SSH-"), "an SSH server"),
    (re.compile(rb"220[ -]"), "a mail or FTP server"),
    (re.compile(rb"-ERR|-DENIED"), "a Redis server"),
    (re.compile(rb"[SN]\Z"), "a PostgreSQL server"),
    (re.compile(rb".{12}\xdd\x07\0\0", re.DOTALL), "a MongoDB server"),
)


def product_at(host: str, port: int) -> str:
    """Return the product that answers at a port ("a MariaDB server"), or "" if its first bytes do not show it.

    It takes at most about a second. Nothing of the user's is sent.
    """
    deadline = time.monotonic() + 1.0
    for request in (_HTTP, _SSL_REQUEST, _HELLO):
        found = _first_bytes(host, port, request, deadline)
        for pattern, product in _PRODUCTS:
            if pattern.match(found):
                return product
    return ""


def _first_bytes(host: str, port: int, request: bytes, deadline: float) -> bytes:
    """Return what a server sends by itself, or else to a request; b"" if that is nothing."""
    found = b""
    with suppress(OSError):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return b""
        with socket.create_connection((host, port), min(_ANSWER_S, left_s)) as opened:
            opened.settimeout(_ANSWER_S / 3)
            with suppress(TimeoutError):
                return opened.recv(1_024)
            opened.settimeout(_ANSWER_S)
            opened.sendall(request)
            while len(found) < 1_024 and (more := opened.recv(1_024)):
                found += more
    return found
