"""The one loader of secrets, and the rule to which endpoint they belong.

A secret comes from an environment variable (`TSBENCH_PASSWORD`) or from the file that `<variable>_FILE` names, never
from a URL. TSBENCH_CREDENTIALS_FOR stands beside it in the environment and says to whom it may be sent: `none`, or,
one a line, the endpoints that the user gave when the process was started. Child processes inherit both. Where it is not
set, the endpoints that a process is asked to connect to are its user's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from tsbench.errors import UserMistake

DATABASE = ("TSBENCH_PASSWORD", "TSBENCH_TOKEN")
"""The variables whose secrets are for databases."""
ENTITLED = "TSBENCH_CREDENTIALS_FOR"
_NOBODY = "none"

WITHIN = frozenset({"bucket", "consistency", "gzip", "org", "retention", "rp", "shard"})
"""Options that choose something within a server. Any other may lead to another server (`host`) or name a local file."""
_HARMLESS = WITHIN | {"application_name", "connect_timeout", "options", "sslmode"}

# Strict on purpose: what libpq and urllib may read differently (`@` or `#` behind the host, a backslash) does not fit.
_URL = re.compile(
    r"(?P<place>[a-z][a-z0-9+.-]*://(?:[^@/?#:\\\s]*@)?[a-z0-9._~%,:\[\]-]*)(?:/[^?#@\\\s]*)?(?:\?(?P<query>[^#@\\\s]*))?",
    re.IGNORECASE,
)

_KEYS = (
    "access_token|api_?key|auth|auth_token|client_secret|jwt|oauth_client_secret|p|pass|passphrase|passwd|password|pwd|"
    "scram_client_key|scram_server_key|secret|sslpassword|token"
)
_SECRETS = (
    re.compile(r"^[^/@?#]*//[^/@:]*:.*@", re.DOTALL),  # //user:password@; a password may itself hold `@`, `/` or `?`
    re.compile(r"^[^/@:=\s]+:(?!//)[^@]*@", re.DOTALL),  # the same without a scheme
    re.compile(rf"(?:^|[^a-z0-9_])(?:{_KEYS})\s*="),  # in a query, or in libpq's `key = value` form
)


# --- secrets ----------------------------------------------------------------------------------------------------------


def read(*names: str) -> str | None:
    """Return the secret of the first of these variables that is set, itself or as `<name>_FILE`; None if none is.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file cannot be read, is not text, or is empty.
    """
    for name in names:
        if text := os.environ.get(name):
            return text
        if path := os.environ.get(f"{name}_FILE"):
            return read_file(f"{name}_FILE={path}", path)
    return None


def read_file(label: str, path: str) -> str:
    """Return the secret in a file, without the line break at its end; `label` names the file in errors.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file cannot be read, is not text, or is empty.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise UserMistake(f"{label} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{label} is not a text file in UTF-8") from None
    if not text:
        raise UserMistake(f"{label} is empty; write the secret into it")
    return text


def is_set(*names: str) -> bool:
    """Return whether one of these variables is set, itself or as `<name>_FILE`."""
    return any(os.environ.get(name) or os.environ.get(f"{name}_FILE") for name in names)


def read_for(endpoint: str, *names: str) -> str | None:
    """Return the secret as `read` does if the endpoint is entitled to it, else None.

    Raises
    ------
    tsbench.errors.UserMistake
        As `read`.
    """
    return read(*names) if is_entitled(endpoint) else None


def cure(endpoint: str, variables: str) -> str:
    """Return what to do about a refused login: set the variables, or name the endpoint when tsbench is started."""
    if is_entitled(endpoint):
        return f"set {variables}"
    return "no secret was sent, since they belong to the endpoint given at the start; give this one there"


# --- whom they belong to ----------------------------------------------------------------------------------------------


def entitled() -> tuple[str, ...] | None:
    """Return the endpoints that the environment's secrets belong to; None where nothing was said."""
    text = os.environ.get(ENTITLED)
    return None if text is None else tuple(line for line in text.splitlines() if line != _NOBODY)


def entitle(*endpoints: str) -> None:
    """Say in the environment that secrets belong to these endpoints, and to those that it has already; to no others.

    Called once at the start of a process that later takes endpoints from elsewhere: a web form, a message.
    """
    known = [*(entitled() or ()), *(endpoint for endpoint in endpoints if endpoint)]
    os.environ[ENTITLED] = "\n".join(dict.fromkeys(known)) or _NOBODY


def is_entitled(endpoint: str) -> bool:
    """Return whether the environment's secrets may be sent to an endpoint."""
    known = entitled()
    return known is None or any(is_same_server(endpoint, own) for own in known)


def is_same_server(one: str, other: str) -> bool:
    """Return whether two endpoints lead the same user to the same server, whatever the database there.

    In doubt they do not: a host's other name or a default port written out counts as another server.
    """
    first, second = _place(one), _place(other)
    return one == other or (first is not None and first == second)


def _place(endpoint: str) -> tuple[str, tuple[str, ...]] | None:
    """Return scheme, user, host and port as written, and the options that do not stay within the server."""
    found = _URL.fullmatch(endpoint)
    if found is None:
        return None
    scheme, _, place = found["place"].rpartition("://")
    user, at, host = place.rpartition("@")
    parts = [part for part in (found["query"] or "").split("&") if part and _key(part) not in WITHIN]
    return f"{scheme.lower()}://{user}{at}{host.lower()}", tuple(sorted(parts))


def _key(part: str) -> str:
    return unquote(part.partition("=")[0])


def check_foreign(endpoint: str, place: str) -> None:
    """Refuse an endpoint of a web form that would be given what belongs to another.

    Raises
    ------
    tsbench.errors.UserMistake
        If secrets are set and belong to another server, or if the endpoint's options may name files of this machine.
    """
    known = entitled()
    if not endpoint or known is None or is_entitled(endpoint):
        return
    if known and is_set(*DATABASE):
        text = f"{' and '.join(name for name in DATABASE if is_set(name))} stay with {' and '.join(known)}"
        raise UserMistake(f"{place}: {text}; for another server start tsbench with that --endpoint")
    found = _URL.fullmatch(endpoint)
    query = endpoint.partition("?")[2] if found is None else found["query"] or ""
    odd = sorted({_key(part) for part in query.split("&") if part} - _HARMLESS)
    if odd:
        raise UserMistake(f"{place}: the option '{odd[0]}' cannot be given here; start tsbench with that --endpoint")


# --- where they may not be --------------------------------------------------------------------------------------------


def holds_secret(text: str) -> bool:
    """Return whether a URL or a libpq connection string holds a password or token, in any spelling."""
    seen = ""
    for _ in range(5):  # `pass%2577ord` is decoded to `pass%77ord` first
        if text == seen:
            break
        # Parsers drop tabs and line breaks (urllib) or take them for separators (libpq): both are tried.
        for form in (text.casefold().strip(), re.sub(r"[\x00-\x1f\x7f]", "", text.casefold())):
            if any(pattern.search(form) for pattern in _SECRETS):
                return True
        text, seen = unquote(text), text
    return False


def refuse_secrets(text: str, place: str) -> None:
    """Refuse an endpoint with a secret, without repeating it: endpoints are kept in results and shown in reports.

    Raises
    ------
    tsbench.errors.UserMistake
        If there is one.
    """
    if holds_secret(text):
        what = "holds a password or token, which would end up in results and process lists"
        raise UserMistake(
            f"{place}: {what}; take it out and set TSBENCH_PASSWORD or TSBENCH_TOKEN (or the same with _FILE)"
        )
