"""Signed messages between a Locust master and its workers: what is not signed with their secret is dropped unread.

Locust's own messages carry no proof of who sent them, and its master listens on all interfaces. Here every message has
an HMAC-SHA256 under a secret that master and workers share: TSBENCH_CLUSTER_SECRET, or, between a master and workers
that it forks (`--processes`), a random one that they inherit. It is checked before the message is decoded. Signed are:

- the message and its kind, so that none is taken for one of the other direction,
- the worker's name, so that none is taken for another worker's,
- a random number of the worker and one of the master, both made when they connect, so that nothing recorded on one
  connection, from an earlier test say, is taken on another,
- a serial number that must rise, so that none is taken twice or after a later one.

Not prevented: messages can be read on their way (nothing is encrypted), held back, or lost; and whoever knows the
secret can speak for any worker and for the master. `locust -f -`, which fetches the locustfile from a master before any
of this is loaded, does not work with a signing master.

All that depends on Locust's private side is `install` and the two classes above it: Locust keeps its socket in the
attribute `socket`, sends with `send` (worker) or `send_multipart` (master), receives with `recv` or `recv_multipart`.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq.green as zmq
from locust.rpc import zmqrpc

from tsbench import listening
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("tsbench")

VARIABLE = "TSBENCH_CLUSTER_SECRET"
SHORTEST = 16
"""Characters of a secret at least: whoever records a message can try secrets on it at leisure."""
MAX_BYTES = 16_000_000
"""A longer message ends its connection before it is read; pieces of files are 1 MB, reports a few kilobytes."""
WAITING = 1_000
"""Messages that a worker keeps until its master has answered; older ones are dropped."""
SILENCE_S = 10.0
WARN_EVERY_S = 60.0

_HEAD = struct.Struct("!4sB16s16sQ")
_MARK = b"tsb1"
_MAC_BYTES = 32
_NO_NONCE = bytes(16)
HELLO, WELCOME, TO_MASTER, TO_WORKER = range(4)


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """A message whose signature was right."""

    kind: int
    worker: bytes
    master: bytes
    number: int
    payload: bytes


class Seal:
    """Signs messages and checks signatures with one key."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.sha256(b"tsbench cluster\0" + secret).digest()

    def close(self, node: bytes, frame: Frame) -> bytes:
        """Return a message of or for the worker called `node` as bytes, signed."""
        head = _HEAD.pack(_MARK, frame.kind, frame.worker, frame.master, frame.number)
        return head + self._mac(head, node, frame.payload) + frame.payload

    def open(self, node: bytes, data: bytes) -> Frame | None:
        """Return the message if its signature is right, else None."""
        if len(data) < _HEAD.size + _MAC_BYTES:
            return None
        head, mac = data[: _HEAD.size], data[_HEAD.size : _HEAD.size + _MAC_BYTES]
        payload = data[_HEAD.size + _MAC_BYTES :]
        if not hmac.compare_digest(mac, self._mac(head, node, payload)):
            return None
        mark, kind, worker, master, number = _HEAD.unpack(head)
        return Frame(kind, worker, master, number, payload) if mark == _MARK else None

    def _mac(self, head: bytes, node: bytes, payload: bytes) -> bytes:
        return hmac.digest(self._key, head + struct.pack("!I", len(node)) + node + payload, "sha256")


class WorkerEnd:
    """A worker's end of its connection to the master: it says hello, and sends all else after the master's answer."""

    def __init__(self, seal: Seal, node: bytes) -> None:
        self._seal, self._node = seal, node
        self._own = secrets.token_bytes(16)
        self._master = _NO_NONCE
        self._earlier: set[bytes] = {_NO_NONCE}
        self._sent = self._received = 0
        self._waiting: deque[bytes] = deque(maxlen=WAITING)

    @property
    def is_connected(self) -> bool:
        """Whether the master has answered."""
        return self._master != _NO_NONCE

    def send(self, payload: bytes) -> list[bytes]:
        """Return what to put on the wire for a message."""
        if not self.is_connected:
            self._waiting.append(payload)
            return [self._seal.close(self._node, Frame(HELLO, self._own, _NO_NONCE, 0, b""))]
        self._sent += 1
        return [self._seal.close(self._node, Frame(TO_MASTER, self._own, self._master, self._sent, payload))]

    def receive(self, data: bytes) -> tuple[bool, bytes | None, list[bytes]]:
        """Return whether bytes are to be trusted, the message that they hold if any, and what to answer."""
        frame = self._seal.open(self._node, data)
        if frame is None or frame.worker != self._own:
            return False, None, []
        if frame.kind == WELCOME:
            if frame.master in self._earlier:  # the answer to a second hello, or a recorded one
                return True, None, []
            self._master, self._received = frame.master, 0
            self._earlier.add(frame.master)
            waiting = [*self._waiting]
            self._waiting.clear()
            return True, None, [answer for payload in waiting for answer in self.send(payload)]
        if frame.kind != TO_WORKER or frame.master != self._master or frame.number <= self._received:
            return False, None, []
        self._received = frame.number
        return True, frame.payload, []


class MasterEnd:
    """The master's end of the connections to all workers."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._own = secrets.token_bytes(16)
        self._sent = 0
        self._workers: dict[bytes, bytes] = {}
        self._received: dict[tuple[bytes, bytes], int] = {}

    def send(self, node: bytes, payload: bytes) -> list[bytes]:
        """Return what to put on the wire for a worker; nothing if it has not connected."""
        if node not in self._workers:
            return []
        self._sent += 1
        return [self._seal.close(node, Frame(TO_WORKER, self._workers[node], self._own, self._sent, payload))]

    def receive(self, node: bytes, data: bytes) -> tuple[bool, bytes | None, list[bytes]]:
        """Return whether bytes are to be trusted, the message that they hold if any, and what to answer."""
        frame = self._seal.open(node, data)
        if frame is None or frame.kind not in {HELLO, TO_MASTER}:
            return False, None, []
        if frame.kind == HELLO or frame.master != self._own:  # a worker of a master before this one must begin anew
            return True, None, [self._seal.close(node, Frame(WELCOME, frame.worker, self._own, 0, b""))]
        if frame.number <= self._received.get((node, frame.worker), 0):
            return False, None, []
        self._received[node, frame.worker] = frame.number
        self._workers[node] = frame.worker
        return True, frame.payload, []


# --- the secret -------------------------------------------------------------------------------------------------------


class _Family:
    """The processes that Locust forks (`--processes`), which share what this one had in memory."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.has_members = False
        os.register_at_fork(after_in_parent=self._join, after_in_child=self._join)

    def _join(self) -> None:
        self.has_members = True


_family = _Family()


def seal_for(host: str, option: str, *, family: _Family = _family) -> Seal:
    """Return the seal for messages through a master on this host.

    Raises
    ------
    UserMistake
        If there is no secret, or a short one.
    """
    given = listening.secret_for(host, VARIABLE, option)
    if given is not None:
        if len(given) < SHORTEST:
            raise UserMistake(f"{VARIABLE} has fewer than {SHORTEST} characters; make one with openssl rand -hex 32")
        return Seal(given.encode())
    if not family.has_members:
        raise UserMistake(f"set {VARIABLE} (or {VARIABLE}_FILE), the same for the master and each worker")
    return Seal(family.secret)


# --- Locust's sockets -------------------------------------------------------------------------------------------------


class _Signed:
    """Locust's socket with signatures; what is not overridden is the socket's own."""

    def __init__(self, socket: Any) -> None:
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        self._socket = socket
        self._warned = float("-inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _dropped(self, sender: str) -> None:
        if time.monotonic() - self._warned >= WARN_EVERY_S:
            self._warned = time.monotonic()
            logger.warning("dropped a message of %s that is not signed with this %s", sender, VARIABLE)


class _WorkerSocket(_Signed):
    def __init__(self, socket: Any, end: WorkerEnd) -> None:
        super().__init__(socket)
        self._end = end
        self._silent_since = time.monotonic()
        self._told = False

    def send(self, payload: bytes, flags: int = 0) -> None:
        for data in self._end.send(payload):
            self._socket.send(data, flags)
        if not (self._told or self._end.is_connected) and time.monotonic() - self._silent_since > SILENCE_S:
            self._told = True
            logger.warning("the master does not answer; does it run there, and with the same %s?", VARIABLE)

    def recv(self) -> bytes:
        while True:
            trusted, payload, answers = self._end.receive(self._socket.recv())
            for answer in answers:
                self._socket.send(answer)
            if payload is not None:
                return payload
            if not trusted:
                self._dropped("the master")


class _MasterSocket(_Signed):
    def __init__(self, socket: Any, end: MasterEnd) -> None:
        super().__init__(socket)
        self._end = end

    def send_multipart(self, parts: Sequence[bytes]) -> None:
        node, payload = parts
        for data in self._end.send(node, payload):
            self._socket.send_multipart([node, data])

    def recv_multipart(self) -> list[bytes]:
        while True:
            node, *rest = self._socket.recv_multipart()
            trusted, payload, answers = self._end.receive(node, rest[0]) if len(rest) == 1 else (False, None, [])
            for answer in answers:
                self._socket.send_multipart([node, answer])
            if payload is not None:
                return [node, payload]
            if not trusted:
                self._dropped(repr(node[:60]))


def _wrapped(wrap: str) -> property:
    """The attribute in which Locust puts its socket, once, before it binds or connects: it gets a signing one."""

    def put(self: Any, socket: Any) -> None:
        make: Callable[[Any], _Signed] = getattr(self, wrap)
        self.__dict__["socket"] = make(socket)

    return property(lambda self: self.__dict__["socket"], put)


class _Server(zmqrpc.Server):
    socket = _wrapped("_sign")

    def __init__(self, host: str, port: int) -> None:
        seal = _or_exit(lambda: seal_for(host, "--master-bind-host"))
        self._sign = lambda socket: _MasterSocket(socket, MasterEnd(seal))
        super().__init__(host, port)


class _Client(zmqrpc.Client):
    socket = _wrapped("_sign")

    def __init__(self, host: str, port: int, identity: str) -> None:
        seal = _or_exit(lambda: seal_for(host, "--master-host"))
        self._sign = lambda socket: _WorkerSocket(socket, WorkerEnd(seal, identity.encode()))
        super().__init__(host, port, identity)


def _or_exit(make: Callable[[], Seal]) -> Seal:
    try:
        return make()
    except UserMistake as error:
        logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
        sys.exit(2)


def install() -> None:
    """Let Locust's master and workers of this process, and of those that it forks, sign their messages."""
    zmqrpc.Server, zmqrpc.Client = _Server, _Client  # type: ignore[misc]
