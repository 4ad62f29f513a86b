"""Rules for ports that tsbench opens: only this machine can reach them, or a secret is required."""

from __future__ import annotations

from ipaddress import ip_address

from tsbench.errors import UserMistake
from tsbench.targets import credentials

WEB_PASSWORD = "TSBENCH_WEB_PASSWORD"  # noqa: S105 - the variable's name


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
    found = credentials.read(variable)
    if found is None and not is_loopback(host):
        where = f"{host} is" if host not in {"", "*"} else "all interfaces are"
        text = f"{where} open to other machines; set {variable} (or {variable}_FILE), or use 127.0.0.1"
        raise UserMistake(f"{option}: {text}")
    return found
