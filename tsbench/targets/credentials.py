"""The only loader of secrets, texts that must hold none, and the rule for ports that need one.

A secret comes from an environment variable (`TSBENCH_PASSWORD`) or from the file that `<variable>_FILE` names, never
from a URL. It is sent to the endpoints that the user gave: no form and no message can name another one. A port that
tsbench opens can only be reached from this machine, or requires a secret (`secret_for`).
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tsbench.errors import UserMistake, expect_regular
from tsbench.text import hide

DATABASE = ("TSBENCH_PASSWORD", "TSBENCH_TOKEN")
"""Environment variables with secrets for databases."""
WEB_PASSWORD = "TSBENCH_WEB_PASSWORD"  # noqa: S105 - the variable's name
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
    """Return the secret as `read` does, and conceal it with the endpoint's user from now on."""
    secret = read(*names)
    if secret:
        with suppress(ValueError):  # it is no URL, as its own parser says
            conceal_login(unquote(urlsplit(endpoint).username or ""), secret)
    return secret


def without_login(endpoint: str) -> str:
    """Return an endpoint as messages may show it: without user and options, one of which may be a password."""
    return endpoint.rpartition("@")[2].partition("?")[0]


def conceal_login(user: str, secret: str) -> None:
    """Remove a secret, also as a basic login has it, from all that is said from now on."""
    hide(secret)
    hide(b64encode(f"{user}:{secret}".encode()).decode())


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
    secret = read(variable)
    if secret is None and not is_loopback(host):
        where = f"{host} is" if host not in {"", "*"} else "all interfaces are"
        text = f"{where} open to other machines; set {variable} (or {variable}_FILE), or use 127.0.0.1"
        raise UserMistake(f"{option}: {text}")
    return secret


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
