"""One mysqlclient connection that is never closed while a thread uses it, and that another thread can interrupt."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import MySQLdb
from MySQLdb import _mysql
from MySQLdb.constants import FIELD_TYPE as TYPE

from tsbench.targets.watchdog import new_lock

if TYPE_CHECKING:
    from tsbench.targets.mysql.endpoint import Endpoint

_UNKNOWN_DATABASE = 1049


def _number(text: str) -> int | float:
    """Return a DECIMAL, such as the sum of a BIGINT column."""
    return float(text) if "." in text else int(text)


_CONVERSIONS: dict[int, Any] = {
    **dict.fromkeys((TYPE.TINY, TYPE.SHORT, TYPE.INT24, TYPE.LONG, TYPE.LONGLONG), int),
    **dict.fromkeys((TYPE.FLOAT, TYPE.DOUBLE), float),
    **dict.fromkeys((TYPE.DECIMAL, TYPE.NEWDECIMAL), _number),
    **dict.fromkeys((TYPE.VARCHAR, TYPE.VAR_STRING, TYPE.STRING, TYPE.BLOB), str),
    **dict.fromkeys((TYPE.DATETIME, TYPE.TIMESTAMP), datetime.fromisoformat),
}
"""How values of the text protocol become Python's, by the type of their column; others remain bytes."""


class Connection:
    """One connection for one thread at a time; `interrupt` and `close` may come from any thread.

    A C client whose connection is closed in the middle of its query takes the process with it. So `close` only
    interrupts a query that runs, and the thread that runs it closes the connection.
    """

    def __init__(self, of: Endpoint, password: str, connect_timeout_s: float) -> None:
        self._lock = new_lock()
        self._closing = False
        self.is_interrupted = False
        self.max_packet_bytes = 1 << 24
        """Largest statement that the server takes, set by the session."""
        self._raw: Any = _open(of, password, connect_timeout_s)
        with socket.socket(fileno=os.dup(self._raw.fileno())) as own:
            self._socket = own.dup()

    @property
    def server(self) -> str:
        """The version that the server sent when the connection was opened."""
        return str(self._raw.get_server_info())

    def set_charset(self) -> None:
        """Send and receive UTF-8."""
        with self._lock:
            self._raw.set_character_set("utf8mb4")

    def execute(self, text: bytes) -> list[tuple[Any, ...]]:
        """Execute one statement; return its rows, if it has any. Raises mysqlclient's errors."""
        return self.fetch(text)[1]

    def fetch(self, text: bytes) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Execute one statement; return the names of its answer's columns, and its rows."""
        with self._lock:
            try:
                self._raw.query(text)
                result = self._raw.store_result()
                if result is None:
                    return [], []
                return [column[0] for column in result.describe()], list(result.fetch_row(0))
            finally:
                if self._closing:
                    self._close()

    def load(self, text: bytes) -> str:
        """Execute a LOAD DATA statement; return the server's summary (`Records: 3  Deleted: 0 ...`)."""
        self.execute(text)
        return str(self._raw.info() or "")

    def interrupt(self) -> None:
        """End a running query with the error of a lost connection."""
        self.is_interrupted = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, or let the thread do it that uses it; closing twice is harmless."""
        self._closing = True
        if not self._lock.acquire(False):
            self.interrupt()
            if not self._lock.acquire(False):
                return
        try:
            self._close()
        finally:
            self._lock.release()

    def _close(self) -> None:
        with suppress(MySQLdb.Error):
            self._raw.close()
        self._socket.close()


def _open(of: Endpoint, password: str, timeout_s: float) -> Any:
    """Connect; without the database if it does not exist, which `CreateDatabase` then makes."""
    arguments: dict[str, Any] = {
        "host": of.host,
        "port": of.port,
        "user": of.user,
        "password": password,
        "conv": _CONVERSIONS,
        "connect_timeout": max(1, round(timeout_s)),
        "local_infile": 1,
    }
    try:
        return _mysql.connect(database=of.database, **arguments)
    except MySQLdb.OperationalError as error:
        if error.args[0] != _UNKNOWN_DATABASE:
            raise
        return _mysql.connect(**arguments)
