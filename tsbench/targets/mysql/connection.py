"""One mysqlclient connection that is never closed while a thread uses it, and that another thread can interrupt.

mysqlclient's calls block. Given a waiter, a statement is sent, its answer is awaited by the waiter, and read when it is
there as a whole; what would block all the same, a long statement or answer, is done in a thread. 20 users of 5 ms
queries reached 0.95 of the ideal rate so on a fast machine and 0.77 on a slow one, calls in threads 0.93 and 0.50.
"""

from __future__ import annotations

import _socket
import re
import socket
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import MySQLdb
from MySQLdb.constants import CLIENT
from MySQLdb.constants import FIELD_TYPE as TYPE

from tsbench.net.stamps import PEEKED_BYTES, duplicate
from tsbench.targets.mysql import login
from tsbench.targets.mysql.packets import is_end, is_whole
from tsbench.targets.session import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter, Waiter
    from tsbench.targets.mysql.endpoint import MysqlEndpoint

T = TypeVar("T")
A = TypeVarTuple("A")

_UNKNOWN_ERROR, _LOST = 2000, 2013
_QUERY, _OK, _LOCAL_FILE, _ERROR = 0x03, 0x00, 0xFB, 0xFF
"""First bytes of a client's and of a server's packets."""
_PROGRESS = b"\xff\xff\xff"
"""Begins what MariaDB says of its progress: an error by its form."""
_FILE = b"rows of tsbench"
"""What LOAD DATA names, and the only name that a server may ask for; no file is opened for it."""
_PACKET_BYTES = 65_536
"""Of LOAD DATA's rows; smaller if the server takes only smaller ones."""
_LONGEST_ANSWER_BYTES = 4_096
_NEVER = float("inf")


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

    def __init__(self, of: MysqlEndpoint, password: str, connect_timeout_s: float, arrival: Arrival) -> None:
        self._lock = new_lock()
        self._closing = False
        self.is_interrupted = False
        self.max_packet_bytes = 1 << 24
        """Largest statement that the server takes, set by the session."""
        self._raw: Any = login.connect(of, password, connect_timeout_s, _CONVERSIONS)
        self._socket = duplicate(self._raw.fileno())
        self._arrival = arrival
        self._new_waiter: NewWaiter | None = None
        self._waiter: Waiter | None = None
        self._is_waiting = False
        self._sent_at_once = 0

    @property
    def is_encrypted(self) -> bool:
        """True if the client library has started TLS."""
        return bool(self._raw.client_flag & CLIENT.SSL)

    @property
    def server(self) -> str:
        """The version that the server sent when the connection was opened."""
        return str(self._raw.get_server_info())

    def set_charset(self) -> None:
        """Send and receive UTF-8."""
        self._alone(self._raw.set_character_set, "utf8mb4")

    def wait_by(self, new_waiter: NewWaiter) -> None:
        """Wait by a waiter from now on; statements and answers too long for that are sent and read in a thread."""
        self._new_waiter = new_waiter
        self._waiter = new_waiter(self._socket.fileno())
        self._arrival.watch(self._socket)
        # The kernel counts its own overhead too, and doubles what is asked for because of it.
        self._sent_at_once = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF) // 2

    def execute(self, text: bytes) -> list[tuple[Any, ...]]:
        """Execute one statement; return its rows, if it has any. Raises mysqlclient's errors."""
        return self.fetch(text)[1]

    def fetch(self, text: bytes) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Execute one statement; return the names of its answer's columns, and its rows."""
        waiter = self._waiter
        if waiter is None:
            return self._alone(self._ask_and_answer, text)
        if len(text) > self._sent_at_once:
            return self.in_thread(self._alone, self._ask_and_answer, text)
        is_first = self._arrival.sending()
        self._alone(self._raw.send_query, text)
        if is_first:
            self._arrival.sent()
        if self._is_answered(waiter):
            return self._alone(self._answer)
        return self.in_thread(self._alone, self._answer, self._arrival.confirm)

    def _alone(self, function: Callable[[*A], T], *args: *A) -> T:
        """Call a function while no other thread closes the connection, and close it then if that was asked for."""
        with self._lock:
            try:
                return login.called(function, *args)
            finally:
                if self._closing:
                    self._close()

    def _ask_and_answer(self, text: bytes) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._arrival.sending()
        self._raw.send_query(text)
        return self._answer(self._arrival.read_by_client)

    def _answer(self, is_read: Callable[[], None] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Read the answer; call `is_read` before its rows are converted."""
        try:
            self._raw.read_query_result()
        except MySQLdb.Error as error:
            if error.args[0] == _UNKNOWN_ERROR:  # the server asked for a file, which the library refused
                self._break_off()
            raise
        result = self._raw.store_result()
        if is_read is not None:
            is_read()
        if result is None:
            return [], []
        return [column[0] for column in result.describe()], list(result.fetch_row(0))

    def _is_answered(self, waiter: Waiter) -> bool:
        """Wait for an answer, which the watchdog ends; return whether the socket holds the whole answer."""
        self._is_waiting = True
        try:
            waiter.readable(_NEVER)
        except BaseException:  # the user is killed; the connection is of no use any more
            self.interrupt()
            raise
        finally:
            self._is_waiting = False
        arrival = self._arrival
        if arrival.is_watching:
            if is_end(arrival.peeked, arrival.peek()):
                return True
            arrival.look()
            return False
        try:
            return is_whole(self._socket.recv(PEEKED_BYTES, _socket.MSG_PEEK | _socket.MSG_DONTWAIT), PEEKED_BYTES)
        except OSError:
            return False

    def in_thread(self, function: Callable[[*A], T], *args: *A) -> T:
        """Call a function that uses this connection; in a thread if others would have to wait for it."""
        new_waiter, waiter = self._new_waiter, self._waiter
        if new_waiter is None or waiter is None:
            return function(*args)
        # It belongs to the event loop's thread, and would be woken by what the other thread is to read.
        waiter.close()
        self._waiter = None
        try:
            return new_waiter.in_thread(function, *args)
        except Exception:
            raise
        except BaseException:  # the user is killed; the thread goes on until it is interrupted, and closes
            self._closing = True
            self.interrupt()
            raise
        finally:
            if not self._closing:
                self._waiter = new_waiter(self._socket.fileno())

    def load(self, options: bytes, rows: bytes | memoryview) -> bytes:
        """Execute a LOAD DATA statement on these rows; return the server's summary (`Records: 3  Deleted: 0 ...`).

        The library is not asked, since it sends any file that a server names: the rows are sent from memory, once, and
        only if the server asks for them by our name. Not for an encrypted connection.
        """
        return self._alone(self._load, b"LOAD DATA LOCAL INFILE '%b' %b" % (_FILE, options), memoryview(rows))

    def _load(self, statement: bytes, rows: memoryview) -> bytes:
        self._arrival.sending()
        try:
            self._send(0, bytes((_QUERY,)) + statement)
            answer, number = self._receive()
            if answer[0] == _LOCAL_FILE:
                if answer[1:] != _FILE:
                    text = f"the server asked for the file {answer[1:]!r} in place of the rows to load"
                    raise MySQLdb.OperationalError(_UNKNOWN_ERROR, text)
                size = min(_PACKET_BYTES, self.max_packet_bytes - 1)
                for start in range(0, len(rows), size):
                    self._send(number, rows[start : start + size])
                    number += 1
                self._send(number, b"")
                answer, _ = self._receive()
        except OSError as error:
            self._break_off()
            raise MySQLdb.OperationalError(_LOST, f"lost connection to the server during LOAD DATA: {error}") from error
        except MySQLdb.Error:
            self._break_off()
            raise
        if answer[0] == _ERROR:
            text = answer[3:].decode(errors="replace")
            raise MySQLdb.OperationalError(int.from_bytes(answer[1:3], "little"), re.sub(r"^#.{5}", "", text))
        if answer[0] != _OK:
            self._break_off()
            asked = "asked for a second file" if answer[0] == _LOCAL_FILE else "sent what is no answer to LOAD DATA"
            raise MySQLdb.OperationalError(_UNKNOWN_ERROR, f"the server {asked}")
        return answer

    def _send(self, number: int, payload: bytes | memoryview) -> None:
        header = len(payload).to_bytes(3, "little") + bytes((number & 0xFF,))
        self._socket.sendall(b"".join((header, payload)))

    def _receive(self) -> tuple[bytes, int]:
        """Return the payload of the server's next packet, and the number of the packet after it."""
        while True:
            header = self._receive_bytes(4)
            length = int.from_bytes(header[:3], "little")
            if not 0 < length <= _LONGEST_ANSWER_BYTES:
                raise OSError(f"an answer of {length:,} bytes")
            payload = self._receive_bytes(length)
            if not payload.startswith(_PROGRESS):
                return payload, header[3] + 1

    def _receive_bytes(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            more = self._arrival.receive(self._socket, count - len(received))
            if not more:
                raise OSError("the server ended it")
            received += more
        return received

    def _break_off(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def interrupt(self) -> None:
        """End a running query with the error of a lost connection."""
        self.is_interrupted = True
        self._break_off()

    def close(self) -> None:
        """Close the connection, or let the thread do it that uses it; closing twice is harmless."""
        self._closing = True
        if not self._acquire():
            self.interrupt()
            if not self._acquire():
                return
        try:
            self._close()
        finally:
            self._lock.release()

    def _acquire(self) -> bool:
        """Reserve the connection unless somebody uses it; return True if it is locked for us."""
        return not self._is_waiting and self._lock.acquire(False)

    def _close(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.close()
        with suppress(MySQLdb.Error):
            self._raw.close()
        self._socket.close()
