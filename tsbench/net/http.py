"""A fast HTTP/1.1 client: one keep-alive connection, one request at a time, each with one deadline.

It exists because the client must not limit the measurement: Locust's FastHttpUser did 4,150 one-point writes a second
where wrk did 16,200 on the same server. A request here is a prebuilt head and the payload's own bytes in one send; an
answer is usually one read (see `tcp`).

No request is sent twice. If the server closed an idle connection, this is noticed before sending, and a new connection
is opened; once a request is being sent, any error makes its outcome UNKNOWN.
"""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tsbench.model import OpError, Outcome
from tsbench.net.http_parser import Malformed, Response, ResponseParser, parse_plain
from tsbench.net.stamps import Arrival
from tsbench.net.tcp import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter, Wire

_CLEAN = re.compile(r"[^\0-\x20\x7f]([^\0-\x08\x0a-\x1f\x7f]*[^\0-\x20\x7f])?")  # negated, it compiles 20 ms faster


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server; `tls` encrypts connections and verifies the server's certificate."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Request:
    """The head of a request, built once; only the content length differs between requests."""

    __slots__ = ("_lead",)

    def __init__(self, place: Address, method: str, path: str, headers: Mapping[str, str]) -> None:
        for value in (path, *headers.values()):
            if not _CLEAN.fullmatch(value):
                raise ValueError("the path and every header must not be empty and must not contain a line break")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {place}", "User-Agent: tsbench"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._lead = ("\r\n".join(lines) + "\r\nContent-Length: ").encode()

    def head(self, nbytes: int) -> bytes:
        """Return the head for a body of `nbytes` bytes."""
        return b"%s%d\r\n\r\n" % (self._lead, nbytes)


_Sent: TypeAlias = "tuple[Wire, float, float, OSError | None]"
"""A request that was sent: its connection, the deadline of its answer, the limit in seconds, and what broke."""


class HttpConnection:
    """One connection, opened when the first request needs it; it waits as `tcp.connect` says.

    `arrival` is when the last answer arrived, over whichever connection.

    Raises
    ------
    tsbench.model.OpError
        From `send`: FAILED `refused` if no connection could be opened, so that nothing was sent;
        UNKNOWN `timeout`, `connection` or `protocol` if something was sent and no complete answer came. The connection
        is closed then.
    """

    def __init__(self, place: Address, *, timeout_s: float, waiter: NewWaiter | None = None) -> None:
        self.place = place
        self._waiter = waiter
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context() if place.tls else None
        self._wire: Wire | None = None
        self.arrival = Arrival()

    def send(self, request: Request, body: bytes | memoryview = b"", *, timeout_s: float | None = None) -> Response:
        """Send a request and return its response, whatever its status; the deadline covers both.

        A `body` that is a memoryview must be one of bytes.
        """
        return self._answer(self._put(request, body, timeout_s=timeout_s))

    def _put(self, request: Request, body: bytes | memoryview, *, timeout_s: float | None) -> _Sent:
        limit_s = timeout_s or self._timeout_s
        deadline = time.monotonic() + limit_s
        wire = self._wire
        if wire is None or not wire.is_quiet():
            self.arrival.sending()  # connecting is a part of this op
            wire = self._connect(deadline)
        lost = None
        try:
            wire.put(request.head(len(body)), body, deadline)
        except TimeoutError:
            self.close()
            raise self._late(limit_s) from None
        except OSError as error:  # a server that refuses a request may answer before it has read all
            lost = error
        except BaseException:  # a greenlet that is killed while it waits
            self.close()
            raise
        return wire, deadline, limit_s, lost

    def _answer(self, sent: _Sent) -> Response:
        wire, deadline, limit_s, lost = sent
        keep = False
        try:
            if lost is not None:
                return _refused(wire, deadline, lost)
            data = wire.get(deadline)
            response = parse_plain(data) or _read(wire, data, deadline)
            keep = response.keep_alive
            return response
        except TimeoutError:
            raise self._late(limit_s) from None
        except Malformed as error:
            raise OpError(Outcome.UNKNOWN, "protocol", f"{self.place} does not speak HTTP/1.1: {error}") from error
        except OSError as error:
            raise OpError(Outcome.UNKNOWN, "connection", f"the connection to {self.place} broke: {error}") from error
        finally:  # also when a greenlet is killed while waiting: the next request would read this answer
            if not keep:
                self.close()

    def _late(self, limit_s: float) -> OpError:
        return OpError(Outcome.UNKNOWN, "timeout", f"no answer from {self.place} within {limit_s:g} s")

    def open(self) -> None:
        """Open the connection."""
        self._connect(time.monotonic() + self._timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _connect(self, deadline: float) -> Wire:
        self.close()
        try:
            host, port = self.place.host, self.place.port
            self._wire = connect(host, port, self._context, deadline, self.arrival, self._waiter)
        except OSError as error:  # includes time-outs, unknown names and invalid certificates
            raise OpError(Outcome.FAILED, "refused", f"cannot connect to {self.place}: {error}") from error
        return self._wire


def _refused(wire: Wire, deadline: float, lost: OSError) -> Response:
    """Return the response of a server that did not read the whole request; even a success counts as an error."""
    response = _read(wire, wire.get(deadline), deadline)
    if response.status < 400:
        raise lost
    return response


def _read(wire: Wire, data: bytes, deadline: float) -> Response:
    """Return the response that begins with `data`."""
    parser = ResponseParser()
    while True:
        response = parser.feed(data) if data else parser.end()
        if response is not None:
            return response
        data = wire.get(deadline)
