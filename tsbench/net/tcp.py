"""TCP connections with less overhead per request than Python's sockets.

A plain connection is a non-blocking socket: a request is one send, one wait and one read, which is 12 us of client CPU
with Locust's event loop, and 24 with gevent's own sockets. The caller of `connect` says how to wait; without a waiter
the thread blocks. TLS uses Python's sockets, patched or not. An `Arrival` learns when requests are sent and answers
arrive.
"""

from __future__ import annotations

import _socket
import select
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

from tsbench.net.stamps import duplicate

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tsbench.net.stamps import Arrival

T = TypeVar("T")
A = TypeVarTuple("A")

_JOINED_BYTES = 65_536
"""Up to this size, head and body are copied into one buffer; larger ones are sent from where they are."""
_READ_BYTES = 65_536
_LONGEST_POLL_S = 1e6


class Waiter(Protocol):
    """Waits for one descriptor until a deadline.

    Raises
    ------
    TimeoutError
        At the deadline.
    """

    def readable(self, deadline: float) -> None:
        """Wait until the descriptor has data to read, or the connection has ended."""
        ...

    def writable(self, deadline: float) -> None:
        """Wait until the descriptor accepts data."""
        ...

    def readable_or_writable(self, deadline: float) -> None:
        """Wait until the descriptor has data to read or accepts data, whichever is first."""
        ...

    def close(self) -> None:
        """Release the waiter's resources; called before the descriptor is closed."""
        ...


class NewWaiter(Protocol):
    """Makes waiters, and calls what cannot wait by one."""

    def __call__(self, fd: int, /) -> Waiter:
        """Make a waiter for a descriptor."""
        ...

    def in_thread(self, function: Callable[[*A], T], /, *args: *A) -> T:
        """Call a function that blocks while other waiters go on, and return its result."""
        ...


class Wire(Protocol):
    """An open connection.

    Its methods raise OSError when it breaks, and TimeoutError (which is an OSError) at the deadline. Deadlines are
    moments of time.monotonic(), in seconds.
    """

    def is_quiet(self) -> bool:
        """Return True if the idle connection is open and has no unread data."""
        ...

    def put(self, head: bytes, body: bytes | memoryview, deadline: float) -> None:
        """Send the head and the body."""
        ...

    def get(self, deadline: float) -> bytes:
        """Wait for the next bytes and return them; b"" when the connection has ended."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def connect(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    deadline: float,
    arrival: Arrival,
    waiter: NewWaiter | None = None,
) -> Wire:
    """Open a connection, with TLS if `context` is not None.

    It waits for answers with `waiter`, by default by blocking the thread.

    Raises
    ------
    OSError
        If no server answers, the name is unknown, or the certificate is invalid.
    """
    opened = socket.create_connection((host, port), left(deadline))
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return _Plain(opened, waiter or Polling, arrival)
        opened.settimeout(left(deadline))
        # An end without TLS's closing message is an error: an answer without a length could be truncated.
        wrapped = context.wrap_socket(opened, server_hostname=host, suppress_ragged_eofs=False)
        return _Tls(wrapped, waiter or Polling, arrival)
    except BaseException:  # also a greenlet that is killed while it waits
        opened.close()
        raise


def taken_over(opened: Any, arrival: Arrival, waiter: NewWaiter | None = None) -> Wire:
    """Return a connection of a socket that something else has opened, with TLS or not, and does not use any more."""
    kind = _Tls if hasattr(opened, "pending") else _Plain
    return kind(opened, waiter or Polling, arrival)


def left(deadline: float) -> float:
    """Return the seconds until the deadline.

    Raises
    ------
    TimeoutError
        If the deadline has passed: 0 would mean not to wait at all.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class _Plain:
    """A connection without TLS."""

    __slots__ = ("_arrival", "_quiet", "_socket", "_waiter")

    def __init__(self, opened: socket.socket, waiter: NewWaiter, arrival: Arrival) -> None:
        family, kind, proto = opened.family, opened.type, opened.proto
        self._socket = _socket.socket(family, kind, proto, fileno=opened.detach())
        self._socket.setblocking(False)
        self._arrival = arrival
        arrival.watch(self._socket)
        self._quiet: Callable[[int], list[Any]] = _poll(self._socket.fileno(), select.POLLIN)
        self._waiter = waiter(self._socket.fileno())

    def is_quiet(self) -> bool:
        return not self._quiet(0)

    def put(self, head: bytes, body: bytes | memoryview, deadline: float) -> None:
        data = b"".join((head, body)) if len(body) <= _JOINED_BYTES else None
        is_first = self._arrival.sending()
        if data is not None:
            sent = self._socket.send(data)  # an idle connection has room for at least a byte
            if sent == len(data):
                if is_first:
                    self._arrival.sent()
                return
            self._put_rest(memoryview(data)[sent:], deadline)
        else:
            sent = self._socket.sendmsg([head, body])
            self._put_rest(memoryview(head)[sent:], deadline)
            self._put_rest(memoryview(body)[max(0, sent - len(head)) :], deadline)

    def _put_rest(self, rest: memoryview, deadline: float) -> None:
        while rest:
            self._waiter.writable(deadline)
            with suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]

    def get(self, deadline: float) -> bytes:
        while True:
            self._waiter.readable(deadline)
            try:  # `suppress` would take twice as long as the stamp
                return self._arrival.receive(self._socket, _READ_BYTES)
            except BlockingIOError:
                continue

    def close(self) -> None:
        self._arrival.forget()
        self._waiter.close()
        self._socket.close()


class _Tls:
    """A connection with TLS."""

    __slots__ = ("_arrival", "_quiet", "_raw", "_socket", "_waiter")

    def __init__(self, opened: ssl.SSLSocket, waiter: NewWaiter, arrival: Arrival) -> None:
        self._socket = opened
        self._raw = duplicate(opened.fileno())
        self._quiet: Callable[[int], list[Any]] = _poll(opened.fileno(), select.POLLIN)
        self._waiter = waiter(opened.fileno())
        self._arrival = arrival
        arrival.watch(self._raw)

    def is_quiet(self) -> bool:
        return not self._quiet(0) and not self._socket.pending()

    def put(self, head: bytes, body: bytes | memoryview, deadline: float) -> None:
        joined = len(body) <= _JOINED_BYTES
        self._arrival.sending()
        for piece in (b"".join((head, body)),) if joined else (head, body):
            self._socket.settimeout(left(deadline))
            self._socket.sendall(piece)

    def get(self, deadline: float) -> bytes:
        if not self._socket.pending():
            self._waiter.readable(deadline)
            self._arrival.look()  # at encrypted records, of which one is read at a time
        self._socket.settimeout(left(deadline))
        data = self._socket.recv(_READ_BYTES)
        self._arrival.confirm()
        return data

    def close(self) -> None:
        self._arrival.forget()
        self._waiter.close()
        self._raw.close()
        with suppress(OSError):
            self._socket.close()


# --- waiting ----------------------------------------------------------------------------------------------------------


class Polling:
    """A waiter that blocks the thread."""

    __slots__ = ("_either", "_read", "_write")

    def __init__(self, fd: int) -> None:
        self._read, self._write = _poll(fd, select.POLLIN), _poll(fd, select.POLLOUT)
        self._either = _poll(fd, select.POLLIN | select.POLLOUT)

    def readable(self, deadline: float) -> None:
        self._wait(self._read, deadline)

    def writable(self, deadline: float) -> None:
        self._wait(self._write, deadline)

    def readable_or_writable(self, deadline: float) -> None:
        self._wait(self._either, deadline)

    def _wait(self, poll: Callable[[int], list[Any]], deadline: float) -> None:
        while not poll(int(min(left(deadline), _LONGEST_POLL_S) * 1_000) + 1):
            pass

    @staticmethod
    def in_thread(function: Callable[[*A], T], *args: *A) -> T:
        return function(*args)

    def close(self) -> None:
        pass


def _poll(fd: int, events: int) -> Callable[[int], list[Any]]:
    """Return Python's own `poll` for one descriptor: where gevent has patched it, a poll would switch greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    made = monkey.get_original("select", "poll")() if monkey is not None else select.poll()
    made.register(fd, events)
    poll: Callable[[int], list[Any]] = made.poll
    return poll
