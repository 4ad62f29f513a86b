"""A small real server on loopback that answers HTTP requests as a test specifies, byte by byte if needed."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Peer:
    """One accepted connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self._rest = b""

    def request(self) -> bytes | None:
        """Return the next request, head and body; None at the connection's end."""
        data = self._rest
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            wanted = int(found[1]) if found else 0
            if end and len(body) >= wanted:
                self._rest = body[wanted:]
                return head + end + body[:wanted]
            more = self.socket.recv(65_536)
            if not more:
                return None
            data += more

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def reset(self) -> None:
        """End the connection with RST, as a killed process's kernel does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self.socket.close()


class Loopback:
    """Calls `act` for every request; `requests` has all requests, `connections` counts the connections."""

    def __init__(
        self, act: Callable[[Peer, bytes], None], wrap: Callable[[socket.socket], socket.socket] | None = None
    ):
        self._act, self._wrap = act, wrap
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.requests: list[bytes] = []
        self.connections = 0
        self._peers: list[Peer] = []
        self._ended = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # or it might accept once more, from the next listener that has this one's descriptor
        self._listener.close()
        for peer in self._peers:
            peer.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = Peer(self._wrap(accepted) if self._wrap else accepted)
            except OSError:
                if self._ended:
                    return
                continue
            self.connections += 1
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        with suppress(OSError):
            while (request := peer.request()) is not None:
                self.requests.append(request)
                self._act(peer, request)
            peer.close()
