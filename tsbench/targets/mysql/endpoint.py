"""The parts of an endpoint of MySQL or MariaDB, and the password that belongs to it; read without the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tsbench.errors import UserMistake
from tsbench.targets import credentials
from tsbench.targets.endpoint import check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_FILE = "password_file"  # noqa: S105 - the name of an option
SSL_MODE, SSL_CA = "ssl-mode", "ssl-ca"
"""Options by MySQL's own names: whether the connection is encrypted, and the file with the certificates to trust."""
AUTH_PLUGINS, PUBLIC_KEY = "auth-plugins", "server-public-key"
"""Options for logging in: the ways that the server may ask for, and the file with the key that encrypts a password."""
DISABLED, REQUIRED, VERIFIED = "DISABLED", "REQUIRED", "VERIFY_IDENTITY"
_OPTIONS = (PASSWORD_FILE, SSL_MODE, SSL_CA, AUTH_PLUGINS, PUBLIC_KEY)
_SSL_MODES = (DISABLED, REQUIRED, VERIFIED)
_CHALLENGES = ("mysql_native_password", "client_ed25519", "parsec", "caching_sha2_password")
"""Plug-ins that prove to know the password; the last one sends it too, encrypted, only by a key that is known."""
_WITHIN_TLS = ("mysql_clear_password", "sha256_password")
"""Plug-ins that send it as it is, so only to a server that TLS shuts others out of."""
_DEFAULT_PORT = 3306


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint without secrets, of a server of that `product`."""

    url: str
    product: str
    host: str
    port: int
    user: str
    database: str
    password_file: str = ""
    ssl_mode: str = DISABLED
    ssl_ca: str = ""
    plugins: tuple[str, ...] = _CHALLENGES
    """Authentication plug-ins that the server may ask for."""
    public_key: str = ""
    """The file with the key that encrypts a password for the server; without it none is sent so."""

    def password(self) -> str:
        """Return the password of the endpoint's file, else the environment's if this endpoint may receive it, else "".

        Raises
        ------
        tsbench.errors.UserMistake
            If a file cannot be read, or the endpoint may not receive secrets and names no user: the client would send
            the name of whoever runs tsbench.
        """
        if not self.user and not credentials.is_entitled(self.url):
            raise UserMistake(f"{self.url}: name the user before the host, as in user@{self.host}")
        if self.password_file:
            return credentials.read_file(f"{PASSWORD_FILE}={self.password_file}", self.password_file)
        return credentials.read_for(self.url, "TSBENCH_PASSWORD") or ""


def parse(endpoint: str, scheme: str, product: str) -> Endpoint:
    """Parse an endpoint.

    Raises
    ------
    tsbench.errors.UserMistake
        If it is malformed, holds a password, or has an option that does not exist.
    """
    form = f"{scheme}://user@host:{_DEFAULT_PORT}/tsbench"
    shown = check_text(endpoint)
    if not endpoint.startswith(f"{scheme}://"):
        raise UserMistake(f"{shown} is not an endpoint of {product}; write {form}")
    try:
        parts = urlsplit(endpoint)
        port = _DEFAULT_PORT if parts.port is None else parts.port
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise UserMistake(f"{shown} is not an endpoint of {product} ({error}); write {form}") from None
    # The client library takes `a,b` for two hosts.
    if parts.fragment or not re.fullmatch(r"[^\s,;/\\]+", parts.hostname or ""):
        raise UserMistake(f"{shown} is not an endpoint of {product}; write {form}")
    if not 1 <= port <= 65_535:
        raise UserMistake(f"port {port} in the endpoint {shown} is out of range (1-65535)")
    database = unquote(parts.path.removeprefix("/"))
    if not database.startswith("tsbench") or "/" in database:
        raise UserMistake(f"{shown}: tsbench drops tables; name a database that begins with tsbench, as in {form}")
    if odd := sorted(given.keys() - {*_OPTIONS}):
        raise UserMistake(f"{shown}: the option '{odd[0]}' does not exist; there are {', '.join(_OPTIONS)}")
    plugins = tuple(given[AUTH_PLUGINS].split(",")) if AUTH_PLUGINS in given else ()
    if not all(re.fullmatch(r"[a-z0-9_]{1,64}", plugin) for plugin in plugins):
        raise UserMistake(f"{shown}: {AUTH_PLUGINS} is a list such as {','.join(_CHALLENGES[:2])}")
    user, (ssl_mode, ssl_ca) = unquote(parts.username or ""), _tls(given, shown)
    password_file = given.get(PASSWORD_FILE, "")
    plugins = plugins or (_CHALLENGES if ssl_mode == DISABLED else _CHALLENGES + _WITHIN_TLS)
    return Endpoint(
        endpoint, product, parts.hostname or "", port, user, database, password_file, ssl_mode, ssl_ca, plugins,
        given.get(PUBLIC_KEY, ""),
    )  # fmt: skip


def _tls(given: Mapping[str, str], shown: str) -> tuple[str, str]:
    """Return the options for TLS, checked; by default the connection is not encrypted."""
    mode, ca = given.get(SSL_MODE, DISABLED).upper(), given.get(SSL_CA, "")
    if mode not in _SSL_MODES:
        raise UserMistake(f"{shown}: {SSL_MODE}={given[SSL_MODE]} does not exist; there are {', '.join(_SSL_MODES)}")
    if SSL_CA in given and mode != VERIFIED:
        raise UserMistake(f"{shown}: {SSL_CA} needs {SSL_MODE}={VERIFIED}; no other mode verifies the server")
    if SSL_CA in given and not Path(ca).is_file():
        raise UserMistake(f"{shown}: {SSL_CA}={ca} is not a file")
    return mode, ca


def local(scheme: str, user: str, port: int, password_file: str, public_key: str = "") -> str:
    """Return the endpoint of a server on this machine."""
    key = f"&{PUBLIC_KEY}={quote(public_key)}" if public_key else ""
    return f"{scheme}://{user}@127.0.0.1:{port}/tsbench?{PASSWORD_FILE}={quote(password_file)}{key}"
