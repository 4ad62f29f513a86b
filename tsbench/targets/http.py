"""A lean HTTP/1.1 client: one keep-alive connection, one request at a time, each under one deadline.

It exists because the client must not be what is measured: Locust's FastHttpUser did 4,150 one-point writes a second
where wrk did 16,200 on the same server. A request here is a prebuilt head and the payload's own bytes in one send; an
answer is usually one read. Sockets are Python's own, so they yield to gevent when Locust has patched it.

Nothing is sent twice. A connection that the server closed while it was idle is noticed before anything is sent and
opened again; once a request is on its way, whatever goes wrong makes its outcome UNKNOWN.
"""

from __future__ import annotations

import _socket  # not patched by gevent: looking whether a socket is readable must not wait
import re
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.model import OpError, Outcome
from tsbench.targets.httpparse import Malformed, Response, ResponseParser, at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

_JOINED_BYTES = 65_536
"""Up to this size head and body go out in one piece; copying larger bodies costs more than another send."""
_READ_BYTES = 65_536
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
_CLEAN = re.compile(r"[\x21-\x7e\u0080-\U0010ffff]([\x20-\x7e\t\u0080-\U0010ffff]*[\x21-\x7e\u0080-\U0010ffff])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is; `tls` wraps connections and verifies the server's certificate."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Request:
    """A request's head, built once; only its length changes from body to body."""

    __slots__ = ("_lead",)

    def __init__(self, place: Place, method: str, path: str, headers: Mapping[str, str]) -> None:
        for value in (path, *headers.values()):
            if not _CLEAN.fullmatch(value):
                raise ValueError("a header may not be empty or hold a line break")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {place}", "User-Agent: tsbench"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._lead = ("\r\n".join(lines) + "\r\nContent-Length: ").encode()

    def head(self, nbytes: int) -> bytes:
        """The head of a request with a body of that many bytes."""
        return b"%s%d\r\n\r\n" % (self._lead, nbytes)


class HttpConnection:
    """One connection, opened when it is needed.

    Raises
    ------
    tsbench.model.OpError
        From `send`: FAILED `refused` when no connection could be opened, so that nothing was sent; UNKNOWN `timeout`,
        `connection` or `protocol` when something was sent and no complete answer came. The connection is closed then.
    """

    def __init__(self, place: Place, *, timeout_s: float) -> None:
        self.place = place
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context() if place.tls else None
        self._socket: socket.socket | None = None
        self._raw: _socket.socket | None = None

    def send(self, request: Request, body: bytes = b"", *, timeout_s: float | None = None) -> Response:
        """Send a request and read its answer, whatever its status; the deadline is for both together."""
        limit_s = timeout_s or self._timeout_s
        deadline = time.monotonic() + limit_s
        connected = self._socket
        if connected is None or not self._is_quiet():
            connected = self._connect(deadline)
        keep = False
        try:
            lost = _put(connected, request.head(len(body)), body, deadline)
            response = _get(connected, deadline)
            if lost is not None and response.status < 400:  # it accepts what it did not read
                raise lost
            keep = response.keep_alive and lost is None
            return response
        except TimeoutError:
            raise OpError(Outcome.UNKNOWN, "timeout", f"no answer from {self.place} within {limit_s:g} s") from None
        except Malformed as error:
            raise OpError(Outcome.UNKNOWN, "protocol", f"{self.place} does not speak HTTP/1.1: {error}") from error
        except OSError as error:
            raise OpError(Outcome.UNKNOWN, "connection", f"the connection to {self.place} broke: {error}") from error
        finally:  # also when a greenlet is killed while it waits: the answer would be taken for the next one's
            if not keep:
                self.close()

    def open(self) -> None:
        """Open the connection now."""
        self._connect(time.monotonic() + self._timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.detach()
        opened, self._socket = self._socket, None
        if opened is not None:
            with suppress(OSError):
                opened.close()

    def _connect(self, deadline: float) -> socket.socket:
        self.close()
        opened = None
        try:
            opened = socket.create_connection((self.place.host, self.place.port), _left(deadline))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                opened.settimeout(_left(deadline))
                opened = self._context.wrap_socket(
                    opened,
                    server_hostname=self.place.host,
                    suppress_ragged_eofs=False,  # or an answer without a length could be cut unnoticed
                )
        except OSError as error:  # time-outs, names that are not known and certificates that do not fit are OSErrors
            if opened is not None:
                opened.close()
            raise OpError(Outcome.FAILED, "refused", f"cannot connect to {self.place}: {error}") from error
        except BaseException:  # a greenlet killed while it waits
            if opened is not None:
                opened.close()
            raise
        self._raw = _socket.socket(fileno=opened.fileno())
        self._socket = opened
        return opened

    def _is_quiet(self) -> bool:
        """Whether nothing has come on the idle connection: neither its end nor bytes that nobody asked for."""
        if self._raw is None or (self.place.tls and self._pending()):
            return False
        try:
            self._raw.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0


def _put(connected: socket.socket, head: bytes, body: bytes, deadline: float) -> OSError | None:
    """Send everything, or as much as the server takes: one that refuses a request may answer before it is whole."""
    first = head + body if len(body) <= _JOINED_BYTES else head
    try:
        connected.settimeout(_left(deadline))
        sent = connected.send(first)
        if sent < len(first):
            connected.settimeout(_left(deadline))
            connected.sendall(first[sent:])
        if first is head and body:
            connected.settimeout(_left(deadline))
            connected.sendall(body)
    except TimeoutError:
        raise
    except OSError as error:
        return error
    return None


def _get(connected: socket.socket, deadline: float) -> Response:
    connected.settimeout(_left(deadline))
    data = connected.recv(_READ_BYTES)
    response = at_once(data)
    if response is not None:
        return response
    parser = ResponseParser()
    while True:
        response = parser.feed(data) if data else parser.end()
        if response is not None:
            return response
        connected.settimeout(_left(deadline))
        data = connected.recv(_READ_BYTES)


def _left(deadline: float) -> float:
    """Seconds until the deadline; 0 would mean not to wait at all, in which case sockets raise another error."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
