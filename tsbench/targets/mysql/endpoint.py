"""The parts of an endpoint of MySQL or MariaDB, and the password that belongs to it; read without the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tsbench.errors import UserMistake
from tsbench.targets import credentials, endpoint
from tsbench.targets.endpoint import check_text
from tsbench.targets.target import Endpoint

if TYPE_CHECKING:
    from tsbench.targets.target import Target

PASSWORD_FILE = "password_file"  # noqa: S105 - the name of an option
SSL_MODE, SSL_CA = "ssl-mode", "ssl-ca"
"""Options by MySQL's own names: whether the connection is encrypted, and the file with the certificates to trust."""
AUTH_PLUGINS, PUBLIC_KEY = "auth-plugins", "server-public-key"
"""Options for logging in: the ways that the server may ask for, and the file with the key that encrypts a password."""
DISABLED, REQUIRED, VERIFIED = "DISABLED", "REQUIRED", "VERIFY_IDENTITY"
OPTIONS = (PASSWORD_FILE, SSL_MODE, SSL_CA, AUTH_PLUGINS, PUBLIC_KEY, "nodes")
_SSL_MODES = (DISABLED, REQUIRED, VERIFIED)
_CHALLENGES = ("mysql_native_password", "client_ed25519", "parsec", "caching_sha2_password")
"""Plug-ins that prove to know the password; the last one sends it too, encrypted, only by a key that is known."""
_WITHIN_TLS = ("mysql_clear_password", "sha256_password")
"""Plug-ins that send it as it is, so only to a server that TLS shuts others out of."""
_DEFAULT_PORT = 3306


@dataclass(frozen=True, slots=True)
class MysqlEndpoint(Endpoint):
    """An endpoint whose path is a database."""

    @property
    def password_file(self) -> str:
        """File with the password."""
        return self.options.get(PASSWORD_FILE, "")

    @property
    def ssl_mode(self) -> str:
        """Whether the connection is encrypted; by default it is not."""
        return self.options.get(SSL_MODE, DISABLED).upper()

    @property
    def ssl_ca(self) -> str:
        """File with the certificates to trust."""
        return self.options.get(SSL_CA, "")

    @property
    def public_key(self) -> str:
        """File with the key that encrypts a password for the server; without it none is sent so."""
        return self.options.get(PUBLIC_KEY, "")

    @property
    def plugins(self) -> tuple[str, ...]:
        """Authentication plug-ins that the server may ask for."""
        if AUTH_PLUGINS in self.options:
            return tuple(self.options[AUTH_PLUGINS].split(","))
        return _CHALLENGES if self.ssl_mode == DISABLED else _CHALLENGES + _WITHIN_TLS

    def password(self) -> str:
        """Return the password of the endpoint's file, else the environment's, else "".

        Raises
        ------
        tsbench.errors.UserMistake
            If a file cannot be read.
        """
        if self.password_file:
            return credentials.read_file(f"{PASSWORD_FILE}={self.password_file}", self.password_file)
        return credentials.read_for(self.url, "TSBENCH_PASSWORD") or ""


def parse(url: str, target: Target) -> MysqlEndpoint:
    """Parse an endpoint, as `Target.parse` says."""
    # The client library takes `a,b` for two hosts.
    of = endpoint.parse(url, target, MysqlEndpoint, port=_DEFAULT_PORT, hosts=r"[^\s,;/\\]+", strict=True)
    shown, given = check_text(url), of.options
    if not of.path.startswith("tsbench") or "/" in of.path:
        text = f"tsbench drops tables; name a database that begins with tsbench, as in {target.form}"
        raise UserMistake(f"{shown}: {text}")
    if not all(re.fullmatch(r"[a-z0-9_]{1,64}", plugin) for plugin in of.plugins):
        raise UserMistake(f"{shown}: {AUTH_PLUGINS} is a list such as {','.join(_CHALLENGES[:2])}")
    if of.ssl_mode not in _SSL_MODES:
        raise UserMistake(f"{shown}: {SSL_MODE}={given[SSL_MODE]} does not exist; there are {', '.join(_SSL_MODES)}")
    if SSL_CA in given and of.ssl_mode != VERIFIED:
        raise UserMistake(f"{shown}: {SSL_CA} needs {SSL_MODE}={VERIFIED}; no other mode verifies the server")
    if SSL_CA in given and not Path(of.ssl_ca).is_file():
        raise UserMistake(f"{shown}: {SSL_CA}={of.ssl_ca} is not a file")
    return of


def local(scheme: str, user: str, port: int, password_file: str, public_key: str = "") -> str:
    """Return the endpoint of a server on this machine."""
    key = f"&{PUBLIC_KEY}={quote(public_key)}" if public_key else ""
    return f"{scheme}://{user}@127.0.0.1:{port}/tsbench?{PASSWORD_FILE}={quote(password_file)}{key}"
