"""The parts of an endpoint of MySQL or MariaDB, and the password that belongs to it; read without the driver."""

from __future__ import annotations

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
DISABLED, REQUIRED, VERIFIED = "DISABLED", "REQUIRED", "VERIFY_IDENTITY"
_OPTIONS = (PASSWORD_FILE, SSL_MODE, SSL_CA)
_SSL_MODES = (DISABLED, REQUIRED, VERIFIED)
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

    def password(self) -> str:
        """Return the password of the endpoint's file, else the environment's if this endpoint may receive it, else "".

        Raises
        ------
        tsbench.errors.UserMistake
            If a file cannot be read.
        """
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
    if not parts.hostname or parts.fragment:
        raise UserMistake(f"{shown} is not an endpoint of {product}; write {form}")
    if not 1 <= port <= 65_535:
        raise UserMistake(f"port {port} in the endpoint {shown} is out of range (1-65535)")
    database = unquote(parts.path.removeprefix("/"))
    if not database.startswith("tsbench") or "/" in database:
        raise UserMistake(f"{shown}: tsbench drops tables; name a database that begins with tsbench, as in {form}")
    if odd := sorted(given.keys() - {*_OPTIONS}):
        raise UserMistake(f"{shown}: the option '{odd[0]}' does not exist; there are {', '.join(_OPTIONS)}")
    user, (ssl_mode, ssl_ca) = unquote(parts.username or ""), _tls(given, shown)
    password_file = given.get(PASSWORD_FILE, "")
    return Endpoint(endpoint, product, parts.hostname, port, user, database, password_file, ssl_mode, ssl_ca)


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


def local(scheme: str, user: str, port: int, password_file: str) -> str:
    """Return the endpoint of a server on this machine."""
    return f"{scheme}://{user}@127.0.0.1:{port}/tsbench?{PASSWORD_FILE}={quote(password_file)}"
