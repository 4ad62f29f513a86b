"""The parser for endpoints, the texts that none may hold, and the product that listens at a port."""

from __future__ import annotations

import re
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from tsbench.errors import Unreachable, UserMistake, expect_regular, too_many_files
from tsbench.targets import credentials
from tsbench.targets.registry import TARGETS
from tsbench.targets.target import Endpoint
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from urllib.parse import SplitResult

    from tsbench.targets.target import Target

S = TypeVar("S")
E = TypeVar("E", bound=Endpoint)

_MOST = 8_192
"""Characters of an endpoint, enough for the longest path that Linux takes with some escapes."""
NAME_IT = "name its target"
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_HOST = r"(?=.{1,253}$)(?!-)[\w-]{1,63}(?:\.[\w-]{1,63})*\.?|[0-9a-f.]*:[0-9a-f:.]*(?:%\w+)?"
"""Labels of 1 to 63 letters, digits, hyphens or underscores, as resolvers take them; or an address of IPv6."""


def check_text(endpoint: str) -> str:
    """Return the endpoint as messages may show it: without user and options, one of which may be a password.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint holds a password or token, a control character (also an escaped one, such as %00), or bytes
        that are not UTF-8; if it is too long, or an option names a FIFO.
    """
    credentials.refuse_secrets(endpoint, "the endpoint")
    shown = shortened(credentials.without_login(endpoint), 200)
    if len(endpoint) > _MOST:
        raise UserMistake(f"{shown}: the endpoint has {len(endpoint):,} characters; at most {_MOST:,} are taken")
    try:
        match = _CONTROL.search(unquote_to_bytes(endpoint))
    except UnicodeEncodeError:
        raise UserMistake(f"{shown}: the endpoint is not text in UTF-8; write other characters as %XX") from None
    if match:
        raise UserMistake(f"{shown}: the endpoint holds the control character %{match[0][0]:02X}; take it out")
    for name, value in parse_qsl(endpoint.partition("?")[2]):
        if _is_fifo(value):  # a driver would wait in it, without any time limit
            raise UserMistake(f"{shown}: {name}={shortened(value, 200)} is a FIFO; name a file")
    return shown


def _is_fifo(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    return False


def parse(
    endpoint: str, target: Target, kind: type[E], *, port: int = 0, hosts: str = _HOST, strict: bool = False
) -> E:
    """Return the parts of an endpoint of the form `target.form`, whose options are those that the target declares.

    `port` is the default; `hosts` is a pattern for the host, and an empty one permits any, or none. With `strict` an
    option needs a value.

    Raises
    ------
    tsbench.errors.UserMistake
        As `check_text`, or if the endpoint has another form, or an option that does not exist.
    """
    shown, cure = check_text(endpoint), f"write {target.form}"
    wrong = f"'{shown}' is not an endpoint of {target.product}"
    url = _split(endpoint, shown, cure)
    try:
        port = port if url.port is None else url.port
        options = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=strict and bool(url.query)))
    except ValueError as error:
        raise UserMistake(f"{wrong} ({error}); {cure}") from None
    if url.scheme not in target.schemes or url.fragment or (hosts and not url.hostname):
        raise UserMistake(f"{wrong}; {cure}")
    if url.port == 0:
        raise UserMistake(f"'{shown}': port 0 is out of range (1-65535)")
    if hosts and not re.fullmatch(hosts, url.hostname or "", re.IGNORECASE):
        raise UserMistake(f"{wrong}: '{url.hostname}' is no host name; {cure}")
    if odd := sorted(options.keys() - {*target.options}):
        known = f"there are {', '.join(target.options)}"
        raise UserMistake(f"'{shown}': the option '{shortened(odd[0])}' does not exist; {known}")
    if not re.fullmatch(r"(?:[\w.-]+:\d{1,5},?)*", options.get("nodes", "")):
        raise UserMistake(f"nodes={shortened(options['nodes'])}: write host:port of each, with commas between them")
    user, path = unquote(url.username or ""), unquote(url.path.removeprefix("/"))
    return kind(endpoint, target, url.hostname or "", port, user, path, options, url.scheme)


def _split(endpoint: str, shown: str, cure: str) -> SplitResult:
    try:
        return urlsplit(endpoint)
    except ValueError as error:
        raise UserMistake(f"'{shown}' is not a URL ({error}); {cure}") from None


def parse_file(endpoint: str, target: Target) -> Endpoint:
    """Return an endpoint of the form `scheme:///absolute/path`, with the path of the database's file.

    Raises
    ------
    tsbench.errors.UserMistake
        As `check_text`, or if the endpoint has another form, or the file's directory is missing.
    """
    shown, cure = check_text(endpoint), f"write {target.form}"
    url = _split(endpoint, shown, cure)
    path = Path(unquote(url.path))
    if url.scheme not in target.schemes or url.netloc or not path.is_absolute():
        raise UserMistake(f"'{endpoint}' is not an endpoint of {target.product}; {cure}")
    if url.query or url.fragment:
        raise UserMistake(f"'{endpoint}': in a path write %3F for a question mark and %23 for a number sign")
    if ":memory:" in url.path:
        text = "the load processes need a file, since a database in memory exists in one process only"
        raise UserMistake(f"'{endpoint}': {text}; {cure}")
    expect_regular(path, cure)
    if not path.parent.is_dir():
        raise UserMistake(f"the directory {path.parent} does not exist; create it first")
    return Endpoint(endpoint, target, path=str(path), scheme=url.scheme)


# --- what listens there -----------------------------------------------------------------------------------------------

_FIRST_S, _LOOK_S, _ANSWER_S = 2.0, 1.2, 0.4
"""Seconds until a silent server is looked at, for all looks at it, and for each of its answers."""
_LONGEST = 1_024
_HTTP = b"GET /ping HTTP/1.0\r\n\r\n"
_SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
"""PostgreSQL answers with one letter, S or N, before it knows anything of the client."""
_HELLO = (
    b"\x34\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0"  # a head, OP_MSG, no flags, one document
    b"\x1f\0\0\0\x10hello\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0"
)
_OTHERS = (
    (rb"HTTP/1\.\d 400 .*HTTPS (?:server|port)", "an HTTPS server"),
    (rb"HTTP/1\.\d \d\d\d", "an HTTP server"),
    (rb"SSH-", "an SSH server"),
    (rb"220[ -]", "a mail or FTP server"),
    (rb"-ERR|-DENIED", "a Redis server"),
)
"""Products that are no targets. Targets declare their `greetings`."""


def server_of(target: Target) -> str:
    """Return the name for a server of a target ("a MariaDB server")."""
    return f"{'an' if target.product[0] in 'AEIO' else 'a'} {target.product} server"


def open_or_name(
    open_session: Callable[[float], S],
    limit_s: float,
    place: tuple[str, int] | None,
    own: Collection[str],
    shown: str,
    cure: str = NAME_IT,
) -> S:
    """Return what `open_session` returns, called with its limit in seconds; if it fails, name what listens at `place`.

    A server that is silent is looked at after 2 s: another product may wait for its own clients' words. Then
    `open_session` is called again with the rest of `limit_s`. `own` are the endpoint's products, `shown`
    is the endpoint for messages.

    Raises
    ------
    tsbench.errors.Unreachable
        As `open_session`, or one line with the other product and the cure.
    """
    began = time.monotonic()
    first_s = min(limit_s, _FIRST_S)
    try:
        return open_session(first_s)
    except Unreachable as error:
        if few := too_many_files(str(error), look=True):
            raise Unreachable(f"cannot connect to {shown}: {few}") from error
        product = product_at(*place) if place else ""
        if product and product not in own:
            raise Unreachable(f"cannot connect to {shown}: {product} answers there; {cure}") from error
        if time.monotonic() - began < first_s or first_s == limit_s:
            raise
    return open_session(limit_s - first_s)


def product_at(host: str, port: int) -> str:
    """Return the product that answers at a port ("a MariaDB server"), or "" if its first bytes do not show it.

    It takes at most about a second. Nothing of the user's is sent.
    """
    deadline = time.monotonic() + _LOOK_S
    for request in (_HTTP, _SSL_REQUEST, _HELLO):
        try:
            first = _first_bytes(host, port, request, deadline)
        except (OSError, UnicodeError):  # nobody listens; and such a name
            return ""
        if not first:
            continue
        declared = [(greeting, server_of(target)) for target in TARGETS.values() for greeting in target.greetings]
        for pattern, product in (*declared, *_OTHERS):  # all targets are imported only where somebody answered
            if re.match(pattern, first, re.DOTALL):
                return product
    return ""


def _first_bytes(host: str, port: int, request: bytes, deadline: float) -> bytes:
    """Return what a server sends by itself, or else to a request; b"" if that is nothing. Raises OSError."""
    received = bytearray()
    until = min(deadline, time.monotonic() + _ANSWER_S)
    with socket.create_connection((host, port), max(0.01, until - time.monotonic())) as opened, suppress(OSError):
        opened.settimeout(_ANSWER_S / 3)
        with suppress(TimeoutError):
            return opened.recv(_LONGEST)
        opened.sendall(request)
        while len(received) < _LONGEST and (left_s := until - time.monotonic()) > 0:
            opened.settimeout(left_s)
            if not (more := opened.recv(_LONGEST)):
                break
            received += more
    return bytes(received)
