"""The keys of a Locust master and its workers, which follow from a secret that they share.

That is TSBENCH_CLUSTER_SECRET, or, between a master and workers that it forks (`--processes`), a random one that they
inherit. The master's public key is as secret as that: without it nobody can begin a connection, and nobody else can
answer one. Messages are encrypted with keys of the connection alone (https://rfc.zeromq.org/spec/26/), and can be
neither read, changed nor sent again on their way. Guesses at the secret can be tested on a recorded handshake, which is
why short ones are refused.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any

import zmq
from zmq.utils import z85

from tsbench.errors import UserMistake
from tsbench.targets import credentials

VARIABLE = "TSBENCH_CLUSTER_SECRET"
RANDOM_BYTES = 16
"""A secret has at least as many random bytes."""
_LEAST_CHARACTERS = 8
"""A random secret has more different characters."""


class _Family:
    """The processes that Locust forks (`--processes`), which share this process's memory at the fork."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(32)
        self.has_forks = False
        os.register_at_fork(after_in_parent=self._join, after_in_child=self._join)

    def _join(self) -> None:
        self.has_forks = True


_family = _Family()


@dataclass(frozen=True, slots=True)
class Keys:
    """The secret keys of a master and of its workers, as CURVE has them in text."""

    master: bytes
    worker: bytes

    @classmethod
    @cache
    def of(cls, secret: str) -> Keys:
        """Return the keys that follow from a secret; this takes 50 ms of CPU, and as long for each guess at it."""
        raw = hashlib.scrypt(secret.encode(), salt=b"tsbench cluster", n=2**14, r=8, p=1, dklen=64)
        return cls(z85.encode(raw[:32]), z85.encode(raw[32:]))

    def secure_master(self, socket: Any) -> None:
        """Let a socket accept only workers with the same keys."""
        socket.curve_server = True
        socket.curve_secretkey, socket.curve_publickey = self.master, zmq.curve_public(self.master)

    def secure_worker(self, socket: Any) -> None:
        """Let a socket connect only to a master with the same keys."""
        socket.curve_serverkey = zmq.curve_public(self.master)
        socket.curve_secretkey, socket.curve_publickey = self.worker, zmq.curve_public(self.worker)


def keys_for(host: str, option: str) -> Keys:
    """Return the keys for messages through a master on this host.

    Raises
    ------
    UserMistake
        If no secret is set, or one that could be guessed, or if the installed ZeroMQ cannot encrypt.
    """
    given = credentials.secret_for(host, VARIABLE, option)
    if not zmq.has("curve"):
        raise UserMistake("the installed ZeroMQ has no CURVE encryption; pip install --force-reinstall pyzmq has")
    if given is not None:
        if is_guessable(given):
            raise UserMistake(f"{VARIABLE} could be guessed; make one with openssl rand -hex 32")
        return Keys.of(given)
    if not _family.has_forks:
        raise UserMistake(f"set {VARIABLE} (or {VARIABLE}_FILE), the same for the master and each worker")
    return Keys.of(_family.secret)


def is_guessable(secret: str) -> bool:
    """Return True if a secret is shorter than RANDOM_BYTES in hex or base64, or has few different characters."""
    is_hex = not set(secret.lower()) - set("0123456789abcdef")
    return len(secret) < (2 if is_hex else 4 / 3) * RANDOM_BYTES or len(set(secret)) < _LEAST_CHARACTERS
