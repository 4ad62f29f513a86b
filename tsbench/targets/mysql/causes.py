"""What errors of MySQL and MariaDB mean for an op, and the cures of refused log-ins.

Source: MySQL 8.4 Error Message Reference; codes from 1900 to 1999 and from 4000 are MariaDB's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.errors import Unreachable, UserMistake, is_disk_full, one_line
from tsbench.model import Outcome
from tsbench.targets.mysql.endpoint import AUTH_PLUGINS, DISABLED, PUBLIC_KEY, REQUIRED, SSL_MODE, VERIFIED

if TYPE_CHECKING:
    import MySQLdb

    from tsbench.targets.mysql.endpoint import MysqlEndpoint

_CLEARER = {
    "Load data local infile forbidden": "the server asked for a file of this machine, which it does not get; do you "
    "know that server?",
}
"""What the client library says, and what users read instead."""
PERMISSION = frozenset({1044, 1142, 1143, 1227, 1410, 4166})
_NEEDS_TLS = 3159
_UNKNOWN_ERROR, _PLUGIN_REFUSED = 2000, 5010
"""The client library's; the first one is also all that it says where it has no key to encrypt a password with."""
_TIMEOUT = (1969, 3024)
"""The server's own time limit for a statement."""
_CONNECTION = frozenset(
    {1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2000, 2006, 2013, 2014, 2027, 2055}
) | {3169, 4031}
_UNSURE = {
    **dict.fromkeys(_TIMEOUT, "timeout"),
    **dict.fromkeys(_CONNECTION, "connection"),
    1180: "commit",  # that failed: other nodes may have stored it all the same
}
NOT_READY = "not ready"
"""A node of Galera that is not in touch with most of the others refuses all statements."""
_CAUSES = {
    1047: NOT_READY,
    1040: "connections",
    1203: "connections",
    1226: "connections",
    1037: "resources",
    1038: "resources",
    1041: "resources",
    1021: "disk full",
    1114: "disk full",
    1205: "lock",
    1206: "lock",
    1213: "conflict",
    1020: "conflict",
    1048: "constraint",
    1062: "constraint",
    1364: "constraint",
    3819: "constraint",
    4025: "constraint",
    1264: "data",
    1265: "data",
    1292: "data",
    1366: "data",
    1367: "data",
    1406: "data",
    1153: "too large",
    1290: "read only",
    1836: "read only",
    1046: "no table",
    1049: "no table",
    1051: "no table",
    1146: "no table",
    1054: "statement",
    1064: "statement",
    1149: "statement",
    1286: "statement",
    1305: "statement",
}


def code_of(error: MySQLdb.Error) -> int:
    """Return the error's number; 0 for one of the driver itself."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def text_of(error: MySQLdb.Error) -> str:
    """Return the error's message as one line."""
    text = " ".join(str(error.args[1]).split()) if len(error.args) > 1 else one_line(error)
    return _CLEARER.get(text, text)


def meaning(error: MySQLdb.Error) -> tuple[Outcome, str]:
    """Return the outcome of a failed statement (FAILED or UNKNOWN) and its cause."""
    code = code_of(error)
    if code in _UNSURE:
        return Outcome.UNKNOWN, _UNSURE[code]
    if not code:
        return Outcome.FAILED, "driver"
    if code in PERMISSION:
        return Outcome.FAILED, "permission"
    if code not in _CAUSES and is_disk_full(text_of(error)):
        return Outcome.FAILED, "disk full"
    return Outcome.FAILED, _CAUSES.get(code, "server")


def refused(of: MysqlEndpoint, error: MySQLdb.Error) -> UserMistake | Unreachable:
    """Return the error for a connection that failed: one line with the cure."""
    code, text = code_of(error), text_of(error)
    shown = of.shown
    if code in {1045, 1698, 1862}:
        cure = "set TSBENCH_PASSWORD or TSBENCH_PASSWORD_FILE"
        return UserMistake(f"cannot connect to {shown}: {text}; {cure}")
    if code == _NEEDS_TLS:
        return UserMistake(
            f"cannot connect to {shown}: {text}; add {SSL_MODE}={REQUIRED} or {VERIFIED} to the endpoint"
        )
    if code == _PLUGIN_REFUSED or (code == _UNKNOWN_ERROR and text not in _CLEARER.values()):
        return UserMistake(f"cannot connect to {shown}: {_refused_plugin(of)}")
    if code in {1044, 1130, 2000, 2019, 2026, 2059, 2061}:
        return UserMistake(f"cannot connect to {shown}: {text}")
    return Unreachable(f"cannot connect to {shown}: {text}; is the server running there?")


def _refused_plugin(of: MysqlEndpoint) -> str:
    """Return why the password was not sent, and the cure."""
    if of.ssl_mode == DISABLED:
        return (
            "the server asks for the password itself, or in a way that gives it away, which it does not get without "
            f"TLS; add {SSL_MODE}={REQUIRED} or {VERIFIED} to the endpoint, or, for caching_sha2_password, "
            f"{PUBLIC_KEY}=FILE"
        )
    return f"the server asks for a login other than {', '.join(of.plugins)}; {AUTH_PLUGINS} of the endpoint allows more"
