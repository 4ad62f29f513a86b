"""Signed messages between a Locust master and its workers: messages without a valid signature are dropped unread.

Locust's own messages carry no proof of who sent them, and its master listens on all interfaces. Here every message has
an HMAC-SHA256 under a secret that master and workers share: TSBENCH_CLUSTER_SECRET, or, between a master and workers
that it forks (`--processes`), a random one that they inherit. It is checked before the message is decoded; `seal`
has the details, and the protection against recorded messages.

Not prevented: messages can be read on their way (nothing is encrypted), held back, or lost; and whoever knows the
secret can speak for any worker and for the master. `locust -f -`, which fetches the locustfile from a master before any
of this is loaded, does not work with a signing master.

How it gets at Locust's sockets is in `locust_internals`.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import zmq.green as zmq
from locust.exception import RPCError

from tsbench.drive import locust_internals
from tsbench.drive.cluster.seal import MasterEnd, Seal, WorkerEnd
from tsbench.errors import UserMistake
from tsbench.run import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("tsbench")

VARIABLE = "TSBENCH_CLUSTER_SECRET"
SHORTEST = 16
"""Minimum length of a secret in characters: an attacker who records a message can test secrets on it offline."""
MAX_BYTES = 16_000_000
"""Maximum length of a message; a longer one ends its connection unread. Pieces of files are 1 MB, reports a few kB."""
SILENCE_S = 8.0
WARN_EVERY_S = 60.0


# --- the secret -------------------------------------------------------------------------------------------------------


class _Family:
    """The processes that Locust forks (`--processes`), which share this process's memory at the fork."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.has_members = False
        os.register_at_fork(after_in_parent=self._join, after_in_child=self._join)

    def _join(self) -> None:
        self.has_members = True


_family = _Family()


def seal_for(host: str, option: str) -> Seal:
    """Return the seal for messages through a master on this host.

    Raises
    ------
    UserMistake
        If no secret is set, or a short one.
    """
    given = listening.secret_for(host, VARIABLE, option)
    if given is not None:
        if len(given) < SHORTEST:
            raise UserMistake(f"{VARIABLE} has fewer than {SHORTEST} characters; make one with openssl rand -hex 32")
        return Seal(given.encode())
    if not _family.has_members:
        raise UserMistake(f"set {VARIABLE} (or {VARIABLE}_FILE), the same for the master and each worker")
    return Seal(_family.secret)


# --- Locust's sockets -------------------------------------------------------------------------------------------------


class _Signed:
    """Locust's socket with signatures; other attributes are the socket's own."""

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


_OTHER_PORT = "choose another with --master-bind-port and --master-port"


class _Server(locust_internals.RpcServer):
    socket = locust_internals.wrapped_socket("_sign")
    has_listened: ClassVar[bool] = False

    def __init__(self, host: str, port: int) -> None:
        seal = _or_exit(lambda: seal_for(host, "--master-bind-host"))
        self._sign = lambda socket: _MasterSocket(socket, MasterEnd(seal))
        try:
            super().__init__(host, port)
        except RPCError as error:  # Locust compares the error's text, which newer versions of ZeroMQ have extended
            if _Server.has_listened:  # Locust tries again by itself
                raise
            logger.error("tsbench: the master cannot listen on port %d: %s; %s", port, error, _OTHER_PORT)  # noqa: TRY400
            sys.exit(2)
        _expect_signing(self)
        _Server.has_listened = True


class _Client(locust_internals.RpcClient):
    socket = locust_internals.wrapped_socket("_sign")

    def __init__(self, host: str, port: int, identity: str) -> None:
        seal = _or_exit(lambda: seal_for(host, "--master-host"))
        self._sign = lambda socket: _WorkerSocket(socket, WorkerEnd(seal, identity.encode()))
        super().__init__(host, port, identity)
        _expect_signing(self)


def _expect_signing(end: object) -> None:
    """Exit with 2 if Locust keeps its socket where it cannot be wrapped: nothing may be sent unsigned."""
    if not locust_internals.is_wrapped(end):
        logger.error("tsbench: messages cannot be signed with this version of Locust; install one that tsbench allows")
        sys.exit(2)


def _or_exit(make: Callable[[], Seal]) -> Seal:
    try:
        return make()
    except UserMistake as error:
        logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback
        sys.exit(2)


def install() -> None:
    """Make Locust's master and workers of this process, and of those that it forks, sign their messages."""
    locust_internals.replace_rpc(_Server, _Client)
