"""Connection parameters of a PostgreSQL endpoint, the password that belongs to it, and the cures of refused log-ins."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from tsbench.errors import Unreachable, UserMistake
from tsbench.targets import credentials
from tsbench.targets.endpoint import check_text
from tsbench.targets.target import Endpoint
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tsbench.targets.target import Target

_UNREACHABLE = "is the server running there?"
_MOST = 300
_ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
"""Modes without which a connection may be unencrypted, as with libpq's default (`prefer`)."""
_PROOF_ONLY = "!password,!md5"
"""Methods that a server may ask for on such a connection: not the password, nor its MD5 hash, which can be cracked."""


def parse(url: str, target: Target) -> Endpoint:
    """Parse an endpoint, as `Target.parse` says: the host and port of its first server, "" for a Unix socket."""
    parts = parameters(url)
    host, port = (str(parts.get(name, "")).split(",")[0] for name in ("host", "port"))
    return Endpoint(url, target, "" if host.startswith(("/", "@")) else host, int(port or 5432))


def parameters(endpoint: str) -> dict[str, Any]:
    """Return an endpoint's connection parameters by libpq's names, with the environment's password for it if any.

    The password is taken from TSBENCH_PASSWORD, from the file in TSBENCH_PASSWORD_FILE, or from libpq's own sources
    (PGPASSWORD, PGPASSFILE). It is sent as it is, or as MD5 hash, only if `sslmode` demands TLS or `require_auth`
    allows that. For an endpoint with a `passfile` only that is used.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint is malformed or holds a password.
    """
    check_text(endpoint)
    if not endpoint.startswith(("postgresql://", "postgres://")):
        raise UserMistake(f"{_hidden(endpoint)} is not a PostgreSQL endpoint; write postgresql://user@host:port/db")
    try:
        given: dict[str, Any] = conninfo_to_dict(endpoint)
    except (psycopg.Error, UnicodeError) as error:
        text = shortened(str(error).strip(), _MOST)
        raise UserMistake(f"{_hidden(endpoint)} is not a PostgreSQL URL: {text}") from error
    for port in filter(None, str(given.get("port", "")).split(",")):
        if not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65_535):
            raise UserMistake(f"port {shortened(port)} in the endpoint {_hidden(endpoint)} is out of range (1-65535)")
    has_file = "passfile" in given
    password = _passfile_password(given) if has_file else credentials.read_for(endpoint, "TSBENCH_PASSWORD")
    for own in _of_libpq(given):
        credentials.conceal_login(str(given.get("user", "")), own)
    return _kept_from_listeners(given) | given | ({"password": password} if password is not None else {})


def _kept_from_listeners(given_parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the option that lets no server have the password without TLS, for a connection that may be without."""
    # What a service says of TLS is known only if the environment names it.
    known = () if "service" in given_parameters else Conninfo.get_defaults()
    given = {**{one.keyword.decode(): one.val.decode() for one in known if one.val is not None}, **given_parameters}
    return {} if "require_auth" in given or given.get("sslmode") in _ENCRYPTED else {"require_auth": _PROOF_ONLY}


def refused(endpoint: str, error: Exception) -> UserMistake | Unreachable:
    """Return the error for a connection that failed: one line with the cure."""
    # After the reason libpq may say where the password came from, which is in our cure; what begins with a tab asks
    # whether the server runs, as our cure does.
    lines = [line for line in str(error).strip().splitlines() if not line.startswith(("password retrieved", "\t"))]
    last = shortened(lines[-1], _MOST) if lines else type(error).__name__
    shown = shortened(endpoint, _MOST)
    if not isinstance(error, psycopg.Error):
        text = f"an answer cannot be decoded ({type(error).__name__}: {last})"
        return Unreachable(f"cannot connect to {shown}: {text}; is it PostgreSQL?")
    cure = _cure(last)
    kind = Unreachable if cure == _UNREACHABLE else UserMistake
    return kind(f"cannot connect to {shown}: {last}; {cure}")


def _cure(message: str) -> str:
    if "authentication method requirement" in message and _PROOF_ONLY in message:
        return "without TLS anybody on the way could read it: add sslmode=verify-full, or require_auth=password or md5"
    if "received" not in message and ("password" in message or "authentication" in message):
        return "set TSBENCH_PASSWORD, TSBENCH_PASSWORD_FILE or PGPASSFILE"
    if "does not exist" in message:
        return "create it, or name one that is there"
    if "does not support SSL" in message:
        return "the endpoint's sslmode asks for TLS, which has to be switched on there"
    if "certificate" in message:
        return "name the file of the authority's certificate with sslrootcert, and the server by the name in its own"
    return _UNREACHABLE


def _hidden(endpoint: str) -> str:
    """Return the endpoint without the part before the @: a mistyped URL may hold a password."""
    return shortened(endpoint.rpartition("@")[2], _MOST)


def _passfile_password(given: Mapping[str, Any]) -> str | None:
    """Return the password for these parameters in their passfile, which PGPASSWORD would override in libpq."""
    if not os.environ.get("PGPASSWORD") or not Path(given["passfile"]).is_file():  # libpq takes no FIFO either
        return None
    wanted = [str(given.get(name, "")) for name in ("host", "port", "dbname", "user")]
    for *match, password in _lines_of(given["passfile"]):
        if all(m in {"*", w} for m, w in zip(match, wanted, strict=True)):
            return password
    return None


def _of_libpq(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the passwords that libpq may take by itself, which a server could repeat."""
    if own := os.environ.get("PGPASSWORD"):
        yield own
    for path in (given.get("passfile"), os.environ.get("PGPASSFILE")):
        if path and Path(path).is_file():
            yield from (password for *_, password in _lines_of(path) if password)


def _lines_of(passfile: str) -> Iterator[list[str]]:
    with suppress(OSError, UnicodeError):
        for line in Path(passfile).read_text(encoding="utf-8").splitlines():
            if len(parts := line.split(":", 4)) == 5:
                yield parts
