"""The parts of a MongoDB endpoint, the client that belongs to it, and the cures of refused log-ins."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pymongo
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidURI, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from tsbench.errors import Unreachable, UserMistake
from tsbench.targets import credentials
from tsbench.targets.mongodb import options

if TYPE_CHECKING:
    from collections.abc import Mapping

FORM = "mongodb://user@host:27017/tsbench"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint without secrets. `url` is for the driver; `options` are tsbench's own."""

    url: str
    user: str
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ordered(self) -> bool:
        """True if the server stops a write at the first document that it refuses."""
        return self.options.get("ordered", "true") == "true"

    def timeseries(self, *, has_tags: bool) -> dict[str, Any]:
        """Return the options of a time-series collection."""
        found: dict[str, Any] = {"timeField": "time", **({"metaField": "tags"} if has_tags else {})}
        if "granularity" in self.options:
            found["granularity"] = self.options["granularity"]
        if "bucketMaxSpanSeconds" in self.options:
            span = int(self.options["bucketMaxSpanSeconds"])
            found |= {"bucketMaxSpanSeconds": span, "bucketRoundingSeconds": span}
        return found

    @property
    def expire_after_s(self) -> int | None:
        """Seconds after which the server deletes a point; None if it keeps all."""
        return int(self.options["expireAfterSeconds"]) if "expireAfterSeconds" in self.options else None


def parse(endpoint: str) -> Endpoint:
    """Parse an endpoint.

    Raises
    ------
    tsbench.errors.UserMistake
        If it is malformed, holds a password, or has an option that does not exist.
    """
    credentials.refuse_secrets(endpoint, "the endpoint")
    shown = endpoint.rpartition("@")[2].partition("?")[0]  # a mistyped URL may hold a password
    if not endpoint.startswith(("mongodb://", "mongodb+srv://")):
        raise UserMistake(f"{shown} is not a MongoDB endpoint; write {FORM}")
    try:
        parts = urlsplit(endpoint)
        given = parse_qsl(parts.query, keep_blank_values=True)
        user = parts.username or ""
        bare = parts.netloc.rpartition("@")[2]
        if parts.scheme == "mongodb" and "," not in bare and not credentials.is_entitled(endpoint):
            given.append(("directConnection", "true"))  # or the driver would connect to all hosts that the server names
        url = urlunsplit(
            (parts.scheme, bare, parts.path or "/", urlencode([g for g in given if g[0] not in options.OURS]), "")
        )
        # A service record would be looked up in the domain name system: it is, when a session is opened.
        known = parse_uri(url.replace("mongodb+srv://", "mongodb://"), warn=False)
    except (ValueError, InvalidURI, ConfigurationError) as error:
        raise UserMistake(f"{shown} is not a MongoDB endpoint ({error}); write {FORM}") from None
    database = known["database"] or ""
    if not database.startswith("tsbench"):
        raise UserMistake(f"{shown}: tsbench drops collections; name a database that begins with tsbench, as in {FORM}")
    options.check(shown, dict(given))
    return Endpoint(url, user, database, {name: value for name, value in given if name in options.OURS})


# --- clients ----------------------------------------------------------------------------------------------------------


class Clients:
    """The clients of this process, one for each endpoint, however many sessions share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[Any, ...], tuple[pymongo.MongoClient[dict[str, Any]], int]] = {}

    def take(self, endpoint: Endpoint, password: str | None) -> Shared:
        """Return a share of the endpoint's client, to be closed by the session."""
        # A child of a fork has the same objects, but pymongo's threads do not live there.
        key = (os.getpid(), endpoint.url, endpoint.user, password)
        with self._lock:
            client, users = self._open.get(key) or (_client(endpoint, password), 0)
            self._open[key] = client, users + 1
        return Shared(self, key, client)

    def release(self, key: tuple[Any, ...]) -> None:
        """Close the client after its last session."""
        with self._lock:
            client, users = self._open.pop(key)
            if users > 1:
                self._open[key] = client, users - 1
        if users == 1:
            client.close()


@dataclass(slots=True)
class Shared:
    """A session's share of a client."""

    clients: Clients
    key: tuple[Any, ...]
    client: pymongo.MongoClient[dict[str, Any]]
    is_open: bool = True

    def close(self) -> None:
        """Close the client if no other session uses it; closing twice is harmless."""
        if self.is_open:
            self.is_open = False
            self.clients.release(self.key)


CLIENTS = Clients()


def _client(endpoint: Endpoint, password: str | None) -> pymongo.MongoClient[dict[str, Any]]:
    login: dict[str, Any] = {}
    if endpoint.user:
        login = {"username": endpoint.user, **({"password": password} if password is not None else {})}
    return pymongo.MongoClient(
        endpoint.url,
        connect=False,
        appname="tsbench",
        maxPoolSize=0,  # no limit: every user has a connection of its own, as with other databases
        retryWrites=False,  # an op is one attempt; a second one could store its points twice
        retryReads=False,
        **login,
    )


def refused(shown: str, error: PyMongoError) -> UserMistake | Unreachable:
    """Return the error for a connection that failed: one line with the cure."""
    last = " ".join(str(error).split())[:200]
    if isinstance(error, OperationFailure):
        cure = credentials.cure(shown, "TSBENCH_PASSWORD or TSBENCH_PASSWORD_FILE")
        return UserMistake(f"cannot connect to {shown}: {last}; {cure}")
    if isinstance(error, ConnectionFailure):
        return Unreachable(f"cannot connect to {shown}: {last}; is the server running there?")
    return UserMistake(f"cannot connect to {shown}: {last}")
