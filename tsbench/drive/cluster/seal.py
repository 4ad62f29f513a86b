"""Signatures of messages between a master and its workers: the two ends of a connection as values, without sockets.

Each message has an HMAC-SHA256 under a key that both ends know. Signed are:

- the message and its kind, so that it is not accepted in the other direction,
- the worker's name, so that it is not accepted as another worker's,
- a random number of the worker and one of the master, both made when they connect, so that a message recorded on one
  connection, for example of an earlier test, is not accepted on another,
- a serial number that must rise, so that it is not accepted twice or after a later one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections import deque
from dataclasses import dataclass

WAITING = 1_000
"""Maximum number of messages that a worker keeps until its master has answered; older ones are dropped."""

_HEAD = struct.Struct("!4sB16s16sQ")
_MARK = b"tsb1"
_MAC_BYTES = 32
_NO_NONCE = bytes(16)
HELLO, WELCOME, TO_MASTER, TO_WORKER = range(4)


@dataclass(frozen=True, slots=True)
class Frame:
    """A message with a valid signature."""

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
        """Return a message for the worker `node`, or from it, as signed bytes."""
        head = _HEAD.pack(_MARK, frame.kind, frame.worker, frame.master, frame.number)
        return head + self._mac(head, node, frame.payload) + frame.payload

    def open(self, node: bytes, data: bytes) -> Frame | None:
        """Return the message if its signature is valid, else None."""
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
    """A worker's end of its connection to the master: it sends hello, and other messages after the master's answer."""

    def __init__(self, seal: Seal, node: bytes) -> None:
        self._seal, self._node = seal, node
        self._own = secrets.token_bytes(16)
        self._master = _NO_NONCE
        self._earlier: set[bytes] = {_NO_NONCE}
        self._sent = self._received = 0
        self._waiting: deque[bytes] = deque(maxlen=WAITING)

    @property
    def is_connected(self) -> bool:
        """True if the master has answered."""
        return self._master != _NO_NONCE

    def send(self, payload: bytes) -> list[bytes]:
        """Return the bytes to send for a message."""
        if not self.is_connected:
            self._waiting.append(payload)
            return [self._seal.close(self._node, Frame(HELLO, self._own, _NO_NONCE, 0, b""))]
        self._sent += 1
        return [self._seal.close(self._node, Frame(TO_MASTER, self._own, self._master, self._sent, payload))]

    def receive(self, data: bytes) -> tuple[bool, bytes | None, list[bytes]]:
        """Return whether bytes are trusted, the message in them if any, and the bytes to answer."""
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
        """Return the bytes to send to a worker; empty if it has not connected."""
        if node not in self._workers:
            return []
        self._sent += 1
        return [self._seal.close(node, Frame(TO_WORKER, self._workers[node], self._own, self._sent, payload))]

    def receive(self, node: bytes, data: bytes) -> tuple[bool, bytes | None, list[bytes]]:
        """Return whether bytes are trusted, the message in them if any, and the bytes to answer."""
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
