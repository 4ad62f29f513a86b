"""Who can reach a port that tsbench opens: this machine's users, or others who must know a secret."""

from __future__ import annotations

from ipaddress import ip_address

from tsbench.errors import UserMistake
from tsbench.targets import credentials

WEB_PASSWORD = "TSBENCH_WEB_PASSWORD"  # noqa: S105 - the variable's name


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; an empty one and `*` are all of its interfaces."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def secret_for(host: str, variable: str, option: str) -> str | None:
    """Return the secret that guards a port on this address; None where there is none and only this machine reaches it.

    Raises
    ------
    tsbench.errors.UserMistake
        If others reach it and there is none, or if its file cannot be read.
    """
    found = credentials.read(variable)
    if found is None and not is_loopback(host):
        where = f"{host} is" if host not in {"", "*"} else "all interfaces are"
        text = f"{where} open to other machines; set {variable} (or {variable}_FILE), or use 127.0.0.1"
        raise UserMistake(f"{option}: {text}")
    return found
