"""Locust's connections between a master and its workers, encrypted by ZeroMQ's CURVE with keys of their shared secret.

Locust's own messages are plain and carry no proof of who sent them, and its master listens on all interfaces. Here
nothing is sent or read before both ends have shown that they know the secret (see `keys`), and a master takes only
messages of the shape of their kind (see `messages`).

Not prevented: connections can be held back or cut, and whoever knows the secret can speak for any worker and for the
master. `locust -f -`, which fetches the locustfile from a master before any of this is loaded, does not work with such
a master. How this gets at Locust's sockets is in `locust_internals`.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
import zmq.green as zmq
from locust.exception import RPCError
from locust.rpc import Message
from zmq.utils.monitor import parse_monitor_message

from tsbench.drive import locust_internals
from tsbench.drive.cluster import messages
from tsbench.drive.cluster.keys import VARIABLE, keys_for
from tsbench.errors import exit_at_mistake
from tsbench.text import MARK, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("tsbench")

MAX_BYTES = 16_000_000
"""Maximum length of a message; a longer one ends its connection unread. Pieces of files are 1 MB, reports a few kB."""
REFUSED_S = 3.0
"""Seconds after a refusal until a worker ends; ZeroMQ itself reports nothing."""
WARN_EVERY_S = 60.0


# --- Locust's sockets -------------------------------------------------------------------------------------------------


class _Monitor:
    """Reads ZeroMQ's events of a socket until `close`; `heard` is called with each event and its value."""

    def __init__(self, socket: Any, heard: Callable[[int, int], None]) -> None:
        self._socket, self._heard = socket, heard
        self._events = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | _REFUSALS)
        self._reader = gevent.spawn(self._read)

    def _read(self) -> None:
        while True:
            event = parse_monitor_message(self._events.recv_multipart())
            self._heard(event["event"], event["value"])

    def close(self) -> None:
        """Stop reading; before the socket is closed, or ZeroMQ would wait for the monitor for ever."""
        self._reader.kill()
        self._socket.disable_monitor()
        self._events.close(linger=0)


_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_WRONG_KEY = 0x11000001
"""ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC of zmq.h."""
_OTHER_PORT = "choose another with --master-bind-port and --master-port"


class _Secured:
    """One end of the connections: encrypts Locust's socket before its use, and reads ZeroMQ's events."""

    socket = locust_internals.prepared_socket("_secure")
    _secure_end: Callable[[Any], None]
    """Sets the end's keys on its socket."""
    _heard: Callable[[int, int], None]

    def _secure(self, socket: Any) -> None:
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        self._secure_end(socket)
        self._monitor = _Monitor(socket, self._heard)

    def close(self, linger: int | None = None) -> None:
        self._monitor.close()
        super().close(linger)  # type: ignore[misc]  # Locust's

    def expect_secured(self) -> None:
        """Exit with 2 if Locust keeps its socket where it cannot be prepared: nothing may be sent in the clear."""
        if not locust_internals.is_prepared(self):
            logger.error("tsbench: this version of Locust cannot encrypt its messages; install one that tsbench allows")
            sys.exit(2)


class _Server(_Secured, locust_internals.RpcServer):
    has_listened: ClassVar[bool] = False

    def __init__(self, host: str, port: int) -> None:
        with exit_at_mistake():
            self._secure_end = keys_for(host, "--master-bind-host").secure_master
        self._warned: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        """The workers that are not heard any more, and why."""
        messages.shapes()  # or the first message of a worker would wait for them
        try:
            super().__init__(host, port)
        except RPCError as error:  # Locust compares the error's text, which newer versions of ZeroMQ have extended
            if _Server.has_listened:  # Locust tries again by itself
                raise
            logger.error("tsbench: the master cannot listen on port %d: %s; %s", port, error, _OTHER_PORT)  # noqa: TRY400
            sys.exit(2)
        self.expect_secured()
        _Server.has_listened = True

    def _heard(self, event: int, value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return
        what = f"a process was refused that is not a worker of tsbench with {VARIABLE}"
        if value == _WRONG_KEY:
            what = f"a worker was refused: its {VARIABLE} is another one"
        if time.monotonic() - self._warned.get(what, float("-inf")) >= WARN_EVERY_S:
            self._warned[what] = time.monotonic()
            logger.warning("tsbench: %s", what)

    def recv_from_client(self) -> tuple[str, Message]:
        """Return the id of the next worker that sent something, and its message; one of another shape ends its part."""
        while True:
            try:
                sender, *content = self.socket.recv_multipart()
            except zmq.ZMQError as error:
                raise RPCError("ZMQ network broken") from error
            worker = sender.decode(errors="replace")
            if worker not in self.refused:
                try:
                    return worker, _read(worker, content)
                except ValueError as error:
                    self.refuse(worker, str(error))
            gevent.sleep(0)

    def refuse(self, worker: str, why: str) -> None:
        """Ignore all further messages of a worker, and ask it to end."""
        self.refused[worker] = why
        logger.error(
            "tsbench: worker %s sent a message that no worker sends (%s); its part ends", shortened(worker, 100), why
        )
        with suppress(RPCError):
            self.send_to_client(Message("quit", None, worker))


def _read(worker: str, content: list[bytes]) -> Message:
    """Return the message in the frames of a worker, in its name; raises ValueError for what no worker sends."""
    try:
        (packed,) = content
        message: Message = Message.unserialize(packed)
    except Exception as error:  # noqa: BLE001 - whatever Locust's decoder raises for such bytes
        raise ValueError(f"no message of Locust: {shortened(str(error))}") from None
    if not worker.isprintable() or MARK in worker:
        raise ValueError("its name is no text")
    messages.check(message.type, message.data)
    message.node_id = worker
    return message


class _Client(_Secured, locust_internals.RpcClient):
    def __init__(self, host: str, port: int, identity: str) -> None:
        with exit_at_mistake():
            self._secure_end = keys_for(host, "--master-host").secure_worker
        self._place = f"{host}:{port}"
        self._refusals = 0
        super().__init__(host, port, identity)
        self.expect_secured()

    def _heard(self, event: int, _: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._refusals = -1  # from now on a refusal is not the end: the master may be starting again
        elif self._refusals >= 0:
            if not self._refusals:
                gevent.spawn_later(REFUSED_S, self._expect_success)
            # A master that ends in the middle of a handshake looks like one refusal without a reason.
            self._refusals += 2 if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL else 1

    def _expect_success(self) -> None:
        """End the process with the reason if the master has refused this worker, not just ended."""
        if self._refusals > 1:
            what = f"has another {VARIABLE}, or is not a master of tsbench"
            logger.error("tsbench: what answers at %s %s", self._place, what)
            sys.exit(2)
        self._refusals = min(self._refusals, 0)


def install() -> None:
    """Make Locust's master and workers of this process, and of those that it forks, encrypt their messages."""
    locust_internals.replace_rpc(_Server, _Client)
