"""A TCP proxy between tsbench and a real server that delays, drops, cuts, corrupts and lies when a test says so."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_READ_BYTES = 1 << 20
_CONNECT_S = 5.0


class Link:
    """One client's connection and its counterpart at the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.answer = b""
        """All that the server has sent since the last request."""
        self.statements: set[bytes] = set()
        """Names of prepared statements of PostgreSQL's that write."""
        self.kept: bytes | None = None
        """The answer that `Replay` repeats."""
        self.skipped = 0

    def reset(self) -> None:
        """End the client's connection with RST, as a killed process's kernel does."""
        with suppress(OSError):
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close()

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # a thread that reads it ends
            end.close()


class Behaviour:
    """Passes everything on; its subclasses do not."""

    def request(self, link: Link, data: bytes) -> bytes:
        """Return the bytes for the server."""
        return data

    def answer(self, link: Link, data: bytes) -> bytes:
        """Return the bytes for the client."""
        return data


class Proxy:
    """A proxy for a port of 127.0.0.1; `behaviour` may be changed at any time."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.behaviour = Behaviour()
        self._links: list[Link] = []
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()

    def refuse(self) -> None:
        """End all connections and refuse new ones."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.reset()

    def accept(self) -> None:
        """Pass everything on again, and take new connections at the same port."""
        self.behaviour = Behaviour()
        if not self._accepting.is_alive():
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
            self._accepting.start()

    def reset(self) -> None:
        """End all connections with RST."""
        links, self._links = self._links, []
        for link in links:
            link.reset()

    def reset_often(self) -> None:
        """End all connections 40 times within a second: a client may open an idle one anew and lose nothing."""
        for _ in range(40):
            self.reset()
            time.sleep(0.025)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), _CONNECT_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server)
            self._links.append(link)
            threading.Thread(target=self._pump, args=(link, client), daemon=True).start()
            threading.Thread(target=self._pump, args=(link, server), daemon=True).start()

    def _pump(self, link: Link, source: socket.socket) -> None:
        is_client = source is link.client
        with suppress(OSError):
            while data := source.recv(_READ_BYTES):
                if is_client:
                    _note_statements(link, data)
                    passed = self.behaviour.request(link, data)
                    link.answer = b""
                    link.server.sendall(passed)
                else:
                    passed = self.behaviour.answer(link, data)
                    link.answer += data
                    link.client.sendall(passed)
        link.close()


# --- what a request is ------------------------------------------------------------------------------------------------

_PREPARED = re.compile(rb"P....(tsbench_\d+)\0\s*INSERT ", re.DOTALL)
_BOUND = re.compile(rb"B....\0(tsbench_\d+)\0", re.DOTALL)
_SELECTED = re.compile(rb'P....\0\s*SELECT (?!\S*\*)[^\0]* "cpu"', re.DOTALL)
"""Of points by columns: with all of their columns they are read back."""


def _note_statements(link: Link, data: bytes) -> None:
    link.statements.update(_PREPARED.findall(data))


def writes(link: Link, data: bytes) -> bool:
    """Return True for a write of the measured load: of one point, which comes in one piece."""
    bound = _BOUND.match(data)
    return data.startswith((b"POST /write", b"POST /api/v2/write")) or bool(bound and bound[1] in link.statements)


def queries(link: Link, data: bytes) -> bool:
    """Return True for a query of data: a SELECT of points, or a prepared statement that is no INSERT."""
    bound = _BOUND.match(data)
    selects = data.startswith(b"POST /query") and b"q=SELECT" in data
    selects |= data.startswith((b"POST /api/v1/query", b"POST /api/v1/export")) and b"cpu" in data
    return selects or bool(_SELECTED.match(data)) or bool(bound and bound[1] not in link.statements)


# --- behaviours -------------------------------------------------------------------------------------------------------


class Silence(Behaviour):
    """Swallows everything and keeps the connections open."""

    def request(self, link: Link, data: bytes) -> bytes:
        return b""

    def answer(self, link: Link, data: bytes) -> bytes:
        return b""


class Delay(Behaviour):
    """Holds back every answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def answer(self, link: Link, data: bytes) -> bytes:
        time.sleep(self._seconds)
        return data


class Cut(Behaviour):
    """Passes on half of an answer and ends the connection."""

    def answer(self, link: Link, data: bytes) -> bytes:
        link.client.sendall(data[: len(data) // 2])
        link.close()
        return b""


class Replace(Behaviour):
    """Puts `by` in the place of every answer."""

    def __init__(self, by: bytes) -> None:
        self._by = by

    def answer(self, link: Link, data: bytes) -> bytes:
        return self._by


class Change(Behaviour):
    """Changes the bytes of the answers to some requests; the number of bytes must remain."""

    def __init__(self, matches: Callable[[Link, bytes], bool], change: Callable[[bytes], bytes]) -> None:
        self._matches, self._change = matches, change
        self._changing: set[int] = set()

    def request(self, link: Link, data: bytes) -> bytes:
        (self._changing.add if self._matches(link, data) else self._changing.discard)(id(link))
        return data

    def answer(self, link: Link, data: bytes) -> bytes:
        return self._change(data) if id(link) in self._changing else data


class Answer(Behaviour):
    """Answers some HTTP requests itself, with a status and a body; the server never sees them."""

    def __init__(self, matches: Callable[[Link, bytes], bool], status: str, body: bytes) -> None:
        self._matches = matches
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._answer = head.encode() + body

    def request(self, link: Link, data: bytes) -> bytes:
        if not self._matches(link, data):
            return data
        link.client.sendall(self._answer)
        return b""


class Replay(Behaviour):
    """Answers some requests with the answer to the first of them, every so often; the server never sees those."""

    def __init__(self, matches: Callable[[Link, bytes], bool], *, every: int = 1) -> None:
        self._matches, self._every = matches, every
        self._watched: set[int] = set()
        self._count = 0

    def request(self, link: Link, data: bytes) -> bytes:
        if id(link) in self._watched and link.kept is None:
            link.kept = link.answer
        self._watched.discard(id(link))
        if not self._matches(link, data):
            return data
        self._count += 1
        if link.kept is None:
            self._watched.add(id(link))
        elif self._count % self._every == 0:
            link.client.sendall(link.kept)
            return b""
        return data


class Twice(Behaviour):
    """Sends some requests twice, and passes on the second answer, which is as long as the first."""

    def __init__(self, matches: Callable[[Link, bytes], bool]) -> None:
        self._matches = matches

    def request(self, link: Link, data: bytes) -> bytes:
        if not self._matches(link, data):
            link.kept = None
            return data
        if link.kept is None:  # the first shows how long an answer is
            link.kept = b""
            return data
        link.kept = link.kept or link.answer
        link.skipped = len(link.kept)
        return data + data

    def answer(self, link: Link, data: bytes) -> bytes:
        skipped = min(len(data), link.skipped)
        link.skipped -= skipped
        return data[skipped:]
