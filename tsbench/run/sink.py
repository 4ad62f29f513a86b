"""The process of a sink: `python -m tsbench.run.sink TARGET DESCRIPTOR` serves a listening socket until killed."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress

from tsbench.targets.registry import SINKS


def main(target: str, descriptor: str) -> None:
    """Serve each connection of the inherited listening socket in a thread."""
    serve = SINKS[target].serve
    listener = socket.socket(fileno=int(descriptor))

    def answer(peer: socket.socket) -> None:
        with suppress(OSError), peer:
            serve(peer)

    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(peer,), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
