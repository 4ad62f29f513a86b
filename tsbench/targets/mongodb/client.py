"""pymongo's clients, one for each endpoint, and the meaning of their errors: refused log-ins, and ops that failed."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager
from ssl import SSLError
from typing import TYPE_CHECKING, Any

import pymongo
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome
from tsbench.targets.endpoint import NAME_IT, product_at
from tsbench.targets.mongodb.commands import failed
from tsbench.targets.session import decoded
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.mongodb.endpoint import MongodbEndpoint

_LOOKED_S = 0.01
_SILENT_S = 1.0
"""Seconds until a silent port is looked at: another product may wait for its own clients' words."""
_MOST = 300
_KNOWN = re.compile(r"\[Errno (?:111|113|101|-\d+)\]|CERTIFICATE")
"""Causes that need no look at the port: refused, no route, a name that nobody knows, or a certificate."""
_LONG = re.compile(r" \(configured timeouts: [^)]*\)|, Timeout: .*|, full error: .*", re.DOTALL)
"""Parts of pymongo's messages that say nothing of the cause."""


_lock = threading.Lock()
_open: dict[tuple[Any, ...], tuple[pymongo.MongoClient[dict[str, Any]], int]] = {}
"""The clients of this process, and the number of each one's sessions."""


class SharedClient:
    """A session's share of its endpoint's client, of which the process has one however many sessions use it."""

    def __init__(self, endpoint: MongodbEndpoint, password: str | None) -> None:
        # A child of a fork has the same objects, but pymongo's threads do not live there.
        self._key = (os.getpid(), endpoint.for_driver, endpoint.user, password)
        with _lock:
            self.client, users = _open.get(self._key) or (_client(endpoint, password), 0)
            _open[self._key] = self.client, users + 1
        self._is_open = True

    def close(self) -> None:
        """Close the client if no other session uses it; closing twice is harmless."""
        if not self._is_open:
            return
        self._is_open = False
        with _lock:
            client, users = _open.pop(self._key)
            if users > 1:
                _open[self._key] = client, users - 1
        if users == 1:
            client.close()


def _client(endpoint: MongodbEndpoint, password: str | None) -> pymongo.MongoClient[dict[str, Any]]:
    login: dict[str, Any] = {}
    if endpoint.user:
        login = {"username": endpoint.user, **({"password": password} if password is not None else {})}
    return pymongo.MongoClient(
        endpoint.for_driver,
        connect=True,  # it looks for its servers in the background
        appname="tsbench",
        maxPoolSize=0,  # no limit: every user has a connection of its own, as with other databases
        retryWrites=False,  # an op is one attempt; a second one could store its points twice
        retryReads=False,
        **login,
    )


def await_server(client: pymongo.MongoClient[dict[str, Any]], timeout_s: float) -> None:
    """Wait until a server has answered a client, for at most `timeout_s`; pymongo would go on where none can.

    Raises
    ------
    pymongo.errors.ConnectionFailure
        If no server can be reached, or another product listens there; the text has host, port and cause.
    """
    began = time.monotonic()
    silent_at = began + _SILENT_S
    while time.monotonic() - began < timeout_s:
        servers = client.topology_description.server_descriptions()
        failures = [(*place, server.error) for place, server in servers.items() if server.error is not None]
        if any(server.is_server_type_known for server in servers.values()):
            return
        for host, port, error in failures[: len(failures) == len(servers)]:
            product = "" if _KNOWN.search(str(error)) else _other_product(host, port)
            text = f"{product} answers there; {NAME_IT}" if product else _reason(error)
            raise ConnectionFailure(text if f"{host}:{port}" in text else f"{host}:{port}: {text}") from error
        if servers and time.monotonic() >= silent_at:
            silent_at = float("inf")
            host, port = next(iter(servers))
            if product := _other_product(host, port):
                raise ConnectionFailure(f"{host}:{port}: {product} answers there; {NAME_IT}")
        time.sleep(_LOOKED_S)
    raise ConnectionFailure(f"no answer within {timeout_s:g} s")


def _other_product(host: str, port: int | None) -> str:
    product = "" if port is None else product_at(host, port)  # without a port it is a Unix socket
    return "" if product == "a MongoDB server" else product


@contextmanager
def connecting(endpoint: str) -> Iterator[None]:
    """Convert whatever pymongo raises while a connection is opened to one line with the cure."""
    try:
        yield
    except UserMistake:
        raise
    except Exception as error:
        raise _refused(endpoint, error) from error


def _refused(endpoint: str, error: Exception) -> UserMistake | Unreachable:
    """Return the error for a connection that failed."""
    last, shown = _reason(error), f"cannot connect to {shortened(endpoint, _MOST)}"
    if isinstance(error, ConfigurationError) and "password is required" in last:
        return UserMistake(
            f"{shown}: the endpoint has a user, and there is no password; set TSBENCH_PASSWORD or TSBENCH_PASSWORD_FILE"
        )
    if isinstance(error, OperationFailure):
        return UserMistake(f"{shown}: {last}; set TSBENCH_PASSWORD or TSBENCH_PASSWORD_FILE")
    if isinstance(error, ConnectionFailure) and "certificate" in last:
        cure = "name the file of the authority's certificate with tlsCAFile, and the server by the name in its own"
        return UserMistake(f"{shown}: {last}; {cure}")
    if isinstance(error, ConnectionFailure):
        cure = "" if "answers there" in last else "; is the server running there?"
        return Unreachable(f"{shown}: {last}{cure}")
    if isinstance(error, (PyMongoError, OSError)):
        return UserMistake(f"{shown}: {last}{'; look at the files in its options' * isinstance(error, SSLError)}")
    return Unreachable(f"{shown}: an answer cannot be decoded ({type(error).__name__}: {last}); is it MongoDB?")


def _reason(error: BaseException) -> str:
    return shortened(_LONG.sub("", str(error)), _MOST) or type(error).__name__


# --- errors of ops ----------------------------------------------------------------------------------------------------


@contextmanager
def answering(timeout_s: float) -> Iterator[None]:
    """Limit pymongo's calls in time, and raise an `OpError` for each of its errors."""
    try:
        with pymongo.timeout(timeout_s), decoded("MongoDB", but=PyMongoError):
            yield
    except (NetworkTimeout, ExecutionTimeout) as error:
        raise OpError(Outcome.UNKNOWN, "timeout", f"no answer within {timeout_s:g} s") from error
    except ServerSelectionTimeoutError as error:
        raise OpError(Outcome.FAILED, "refused", f"cannot connect again: {str(error)[:200]}") from error
    except NotPrimaryError as error:
        raise OpError(Outcome.FAILED, "read only", f"MongoDB: {str(error)[:200]}") from error
    except ConnectionFailure as error:
        raise OpError(Outcome.UNKNOWN, "connection", f"MongoDB: {str(error)[:200]}") from error
    except OperationFailure as error:
        raise failed(error.code or 0, str(error.details or error)[:300]) from error
    except PyMongoError as error:  # raised by pymongo before anything was sent
        raise OpError(Outcome.FAILED, "driver", f"MongoDB: {str(error)[:200]}") from error
