"""The only loader of secrets, and the rules for the endpoints to which they may be sent and for ports that need one.

A secret comes from an environment variable (`TSBENCH_PASSWORD`) or from the file that `<variable>_FILE` names, never
from a URL. The environment variable TSBENCH_CREDENTIALS_FOR lists the endpoints to which it may be sent: `none`, or,
one per line, those that the user passed when the process was started. Child processes inherit both. Without that
variable, a process may send secrets to all endpoints that it connects to: its user chose them. While a process
connects to an endpoint that may receive none, its environment holds none (`shed`). A port that tsbench opens can only
be reached from this machine, or requires a secret (`secret_for`).
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tsbench.errors import UserMistake, expect_regular
from tsbench.targets.registry import TARGETS
from tsbench.targets.target import Option
from tsbench.text import hide

DATABASE = ("TSBENCH_PASSWORD", "TSBENCH_TOKEN")
"""Environment variables with secrets for databases."""
WEB_PASSWORD = "TSBENCH_WEB_PASSWORD"  # noqa: S105 - the variable's name
ENTITLED = "TSBENCH_CREDENTIALS_FOR"
_NOBODY = "none"

NOWHERE = "/nonexistent"
"""Home directory of a process that connects to an endpoint which may receive no secrets."""
_PUBLIC = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TERM|LD_LIBRARY_PATH|VIRTUAL_ENV|(?:COVERAGE|GEVENT|PYTHON|SSL_CERT)_?\w*"
    r"|TSBENCH_(?:CREDENTIALS_FOR|SERVERS)"
)
"""Environment variables that say nothing about the user: all that remain while another server is tested."""
_removed: dict[str, str] = {}
"""Variables that `shed` has removed: like the environment, one for the whole process."""

# Strict on purpose: URLs that libpq and urllib may parse differently (`@` or `#` after the host) do not match.
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
        If the file cannot be read, is not text, or is empty, or the secret has more than one line.
    """
    for name in names:
        if text := os.environ.get(name):
            return _known(_one_line(name, text))
        if path := os.environ.get(f"{name}_FILE"):
            return read_file(f"{name}_FILE={path}", path)
    return None


def read_file(label: str, path: str) -> str:
    """Return the secret in a file, without the line break at its end; `label` names the file in errors.

    Raises
    ------
    tsbench.errors.UserMistake
        If it is no file, cannot be read, is not text, or is empty.
    """
    try:
        expect_regular(Path(path), "write the secret into a file: it is read several times", label)
        text = Path(path).read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise UserMistake(f"{label} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{label} is not a text file in UTF-8") from None
    if not text:
        raise UserMistake(f"{label} is empty; write the secret into it")
    return _known(_one_line(label, text))


def _known(secret: str) -> str:
    hide(secret)
    return secret


def _one_line(label: str, text: str) -> str:
    """Return the secret, which no protocol could send with what this refuses; a header would end at a line break."""
    if any(character in text for character in "\0\r\n"):
        raise UserMistake(f"{label} holds a line break or a NUL; write the secret alone, on one line")
    return text


def is_set(*names: str) -> bool:
    """Return True if one of these variables is set, itself or as `<name>_FILE`."""
    return any(os.environ.get(name) or os.environ.get(f"{name}_FILE") for name in names)


def read_for(endpoint: str, *names: str) -> str | None:
    """Return the secret as `read` does if it may be sent to the endpoint, else None."""
    secret = read(*names) if is_entitled(endpoint) else None
    if secret:
        conceal_login(unquote(urlsplit(endpoint).username or ""), secret)
    return secret


def conceal_login(user: str, secret: str) -> None:
    """Remove a secret, also as a basic login has it, from all that is said from now on."""
    hide(secret)
    hide(b64encode(f"{user}:{secret}".encode()).decode())


def cure(endpoint: str, variables: str) -> str:
    """Return the cure for a refused login: set the variables, or pass the endpoint when tsbench is started."""
    if is_entitled(endpoint):
        return f"set {variables}"
    return "no secret was sent, since secrets are for the endpoint given at the start; start tsbench with this one"


# --- ports that tsbench opens -----------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address; an empty one and `*` mean all interfaces."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def secret_for(host: str, variable: str, option: str) -> str | None:
    """Return the secret for a port on this address; None if no secret is set and only this machine can reach it.

    Raises
    ------
    tsbench.errors.UserMistake
        If other machines can reach it and no secret is set, or if the secret's file cannot be read.
    """
    found = read(variable)
    if found is None and not is_loopback(host):
        where = f"{host} is" if host not in {"", "*"} else "all interfaces are"
        text = f"{where} open to other machines; set {variable} (or {variable}_FILE), or use 127.0.0.1"
        raise UserMistake(f"{option}: {text}")
    return found


# --- endpoints that may receive secrets -------------------------------------------------------------------------------


def entitled() -> tuple[str, ...] | None:
    """Return the endpoints that the environment's secrets may be sent to; None if the variable is not set."""
    text = os.environ.get(ENTITLED)
    return None if text is None else tuple(line for line in text.splitlines() if line != _NOBODY)


def entitle(*endpoints: str) -> None:
    """Allow secrets to be sent to these endpoints, in addition to those in the environment, and to no others.

    Called once at the start of a process that later takes endpoints from elsewhere: a web form, a message.
    """
    known = [*(entitled() or ()), *(endpoint for endpoint in endpoints if endpoint)]
    os.environ[ENTITLED] = "\n".join(dict.fromkeys(known)) or _NOBODY


def is_entitled(endpoint: str) -> bool:
    """Return True if the environment's secrets may be sent to an endpoint."""
    known = entitled()
    return known is None or any(is_same_server(endpoint, own) for own in known)


def is_same_server(one: str, other: str) -> bool:
    """Return True if two endpoints are the same user on the same server, with any databases.

    In doubt they are not: another name of the host, or a default port that is written out, counts as another server.
    """
    if one == other:
        return True
    first, second = _place(one), _place(other)
    return first is not None and first == second


@cache
def _options(*meanings: Option) -> frozenset[str]:
    """Return the options with one of these meanings, of all targets."""
    declared = (option for target in TARGETS.values() for option in target.options.items())
    return frozenset(name for name, meaning in declared if meaning in meanings)


def _place(endpoint: str) -> tuple[str, tuple[str, ...]] | None:
    """Return scheme, user, host and port as written, and the options that may lead outside the server."""
    found = _URL.fullmatch(endpoint)
    if found is None:
        return None
    scheme, _, place = found["place"].rpartition("://")
    user, at, host = place.rpartition("@")
    parts = [part for part in (found["query"] or "").split("&") if part and _key(part) not in _options(Option.WITHIN)]
    return f"{scheme.lower()}://{user}{at}{host.lower()}", tuple(sorted(parts))


def _key(part: str) -> str:
    return unquote(part.partition("=")[0])


def check_foreign(endpoint: str, place: str) -> None:
    """Refuse an endpoint from a web form that may receive no secrets and names files of this machine in its options.

    Raises
    ------
    tsbench.errors.UserMistake
        If the endpoint has any option but those known to be harmless.
    """
    if not endpoint or is_entitled(endpoint):
        return
    found = _URL.fullmatch(endpoint)
    query = endpoint.partition("?")[2] if found is None else found["query"] or ""
    odd = sorted({_key(part) for part in query.split("&") if part} - _options(Option.WITHIN, Option.HARMLESS))
    if odd:
        raise UserMistake(f"{place}: the option '{odd[0]}' cannot be given here; start tsbench with that --endpoint")


def shed(endpoint: str) -> None:
    """Remove from this process's environment what an endpoint may not receive; put back what an earlier call removed.

    For an endpoint that may receive no secrets only harmless variables stay, so that no driver finds anything to send,
    here or in a child process that is started from now on, and no home directory with files of its own.
    """
    os.environ.update(_removed)
    _removed.clear()
    if endpoint and not is_entitled(endpoint):
        _removed.update({name: text for name, text in os.environ.items() if not _PUBLIC.fullmatch(name)})
        for name in _removed:
            del os.environ[name]
        os.environ["HOME"] = NOWHERE


def whole_environment() -> dict[str, str]:
    """Return this process's environment with what `shed` has removed, for a child that connects to no server."""
    return {**os.environ, **_removed}


# --- texts that must hold no secret -----------------------------------------------------------------------------------


def holds_secret(text: str) -> bool:
    """Return True if a URL or a libpq connection string holds a password or token, in any spelling."""
    seen = ""
    for _ in range(5):  # `pass%2577ord` is decoded to `pass%77ord` first
        if text == seen:
            break
        # Parsers drop tabs and line breaks (urllib) or treat them as separators (libpq): both are tried.
        for form in (text.casefold().strip(), re.sub(r"[\x00-\x1f\x7f]", "", text.casefold())):
            if any(pattern.search(form) for pattern in _SECRETS):
                return True
        text, seen = unquote(text), text
    return False


def refuse_secrets(text: str, place: str) -> None:
    """Refuse an endpoint with a secret, without repeating it: endpoints appear in results and reports.

    Raises
    ------
    tsbench.errors.UserMistake
        If the text holds a secret.
    """
    if holds_secret(text):
        what = "holds a password or token, which would end up in results and process lists"
        raise UserMistake(
            f"{place}: {what}; take it out and set TSBENCH_PASSWORD or TSBENCH_TOKEN (or the same with _FILE)"
        )
