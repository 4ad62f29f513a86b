"""The common part of both InfluxDB versions: their targets, sessions, payloads, and the meaning of responses."""

from __future__ import annotations

import gzip
import json
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from tsbench.encode import line_protocol
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome, PartialWrite, Stored, WriteMode
from tsbench.net.http import HttpConnection, Place, Request
from tsbench.targets import credentials, endpoint
from tsbench.targets.base import Operation, Payload, Schema, Session, expressible
from tsbench.targets.endpoint import NAME_IT, open_or_name
from tsbench.targets.session import decoded
from tsbench.targets.target import Endpoint, Option, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.model import Batch, Measurement, Query
    from tsbench.net.http_parser import Response
    from tsbench.targets.base import Command

S = TypeVar("S")

_QUIET_S = 0.2


@dataclass(frozen=True, slots=True)
class WaitForCompactions(Operation):
    """Wait until no compaction is active or queued; InfluxDB has no statement that asks for one."""

    text: str = "wait until no compaction is active or queued"


@dataclass(frozen=True, slots=True)
class HttpEndpoint(Endpoint):
    """An endpoint of either version."""

    @property
    def place(self) -> Place:
        """Where requests are sent."""
        tls = self.scheme == "https"
        return Place(self.host, self.port or (443 if tls else 8086), tls)


H = TypeVar("H", bound=HttpEndpoint)


def parse(url: str, target: Target, kind: type[H]) -> H:
    """Parse an endpoint, whose path may have slashes around it."""
    found = endpoint.parse(url, target, kind)
    return replace(found, path=unquote(urlsplit(url).path.strip("/")))


influxdb_target = partial(
    Target,
    product="InfluxDB",
    schemes=("http", "https"),
    acknowledges_in_part=True,
    has_counters=True,
    durability="write-ahead log synced at every write (`wal-fsync-delay = 0s`)",
)
"""Makes the target of a version."""
OPTIONS = {"gzip": Option.WITHIN}


def tags_of(query: Query) -> tuple[str, ...]:
    """Return the parameters of a query's statement: for `Stored` the names of the tags.

    The session must know them: somebody may have made a field with the name of a tag, or the other way round.
    """
    return (*query.measurement.tags, *query.measurement.own_tags) if isinstance(query, Stored) else ()


class LineSchema(Schema):
    """Base of schemas with line protocol. Points of a series at the same time replace each other."""

    keeps_duplicates = False
    request = "POST /write"

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Wait for the compactions that the load has caused."""
        del measurements
        return [WaitForCompactions()]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return the batch as lines, the same in all modes but that a single one has no line feed."""
        name = batch.measurement.name
        with expressible():
            if mode is WriteMode.SINGLE:
                single = line_protocol.encode_singles(batch)
                return (Payload(mode, name, self.request, line, 1, len(line)) for line in single)
            lines = line_protocol.lines(batch)
        cut = lines.cut(points)
        return (Payload(mode, name, self.request, one.data, len(one), len(one.data)) for one in cut)


class Writer:
    """Sends payloads on a connection, and raises `OpError` unless they are acknowledged."""

    def __init__(self, connection: HttpConnection, path: str, headers: Mapping[str, str], *, compressed: bool) -> None:
        more = {"Content-Encoding": "gzip"} if compressed else {}
        self._request = Request(connection.place, "POST", path, {**headers, **more})
        self._connection = connection
        self._compressed = compressed

    def write(self, payload: Payload) -> int:
        """Send the payload's bytes; only status 204 acknowledges them."""
        data = gzip.compress(payload.data, 1) if self._compressed else payload.data
        response = self._connection.send(self._request, data)
        if response.status == 204:
            return payload.points
        raise write_refusal(response, payload.points)


@contextmanager
def claiming(session: Session, of: Endpoint, *, login: str) -> Iterator[None]:
    """Verify in a `with` block that a new session can log in; on failure close it and raise a one-line error."""
    try:
        with decoded("InfluxDB"):
            yield
    except OpError as error:
        session.close()
        if error.cause == "permission":
            cure = credentials.cure(of.url, f"{of.target.secrets[0]}(_FILE)")
            raise UserMistake(f"{of.shown} refuses the {login}: {error}; {cure}") from error
        is_plain = "[SSL" in str(error) and "CERTIFICATE" not in str(error)
        cure = "does it speak TLS? Write http:// if not" if is_plain else f"is {of.target.label} running there?"
        raise Unreachable(f"cannot connect to {of.shown}: {error}; {cure}") from error
    except UserMistake:
        session.close()
        raise


def opened(open_session: Callable[[float], S], limit_s: float, place: Place) -> S:
    """Return what `open_session` returns, called with its limit in seconds; see `endpoint.open_or_name`."""
    shown = f"{'https' if place.tls else 'http'}://{place}"
    own = {"an HTTPS server"} if place.tls else {"an InfluxDB server", "an HTTP server", "an HTTPS server"}
    cure = "name its target, or write http:// for one without TLS" if place.tls else NAME_IT
    return open_or_name(open_session, limit_s, (place.host, place.port), own, shown, cure)


def settle(busy: Callable[[float], float], timeout_s: float) -> None:
    """Wait until `busy`, called with the seconds left, has found no compaction active or queued twice in a row.

    Raises
    ------
    tsbench.model.OpError
        UNKNOWN `timeout` if some remain after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    quiet = 0
    while quiet < 2:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise OpError(Outcome.UNKNOWN, "timeout", f"InfluxDB still compacts after {timeout_s:g} s")
        quiet = 0 if busy(left_s) else quiet + 1
        time.sleep(_QUIET_S)


def refusal(response: Response, *, write: bool) -> OpError:
    """Return the error for an unexpected response."""
    message = error_text(response)
    outcome, cause = meaning(response.status, message, write=write)
    return OpError(outcome, cause, f"InfluxDB: {response.status} {message}")


_DROPPED = re.compile(r"partial write: (.*) dropped=(\d+)(?: for database: .*)?", re.DOTALL)
_OF_ALL_SHARDS = re.compile(r"points (?:beyond|outside) retention policy")


def write_refusal(response: Response, points: int) -> OpError:
    """Return the error for a response that does not acknowledge a write of `points` points.

    InfluxDB splits a write by shards. It drops what is older than the retention policy first, and says so when all
    shards have stored the rest. Any other drop is one shard's: InfluxDB answers as soon as the first shard has dropped
    something, so that others may have dropped more, which is not in the count (`coordinator/points_writer.go` of 1.8
    and 2.7). Then nobody knows of the points that the answer does not count.
    """
    error = refusal(response, write=True)
    found = _DROPPED.search(_message(response))
    dropped = int(found[2]) if found else 0
    if found is None or not dropped:  # with dropped=0 lines could not be parsed, and it does not say how many
        return error
    if dropped >= points:
        return OpError(Outcome.FAILED, "data", str(error))
    acknowledged = points - dropped if _OF_ALL_SHARDS.search(found[1]) else 0
    return PartialWrite(str(error), acknowledged=acknowledged, refused=dropped)


def error_text(response: Response) -> str:
    """Return the server's error message on one line."""
    return " ".join(_message(response).split())[:500]


def _message(response: Response) -> str:
    with suppress(ValueError, RecursionError):
        document = json.loads(response.body)
        if isinstance(document, dict) and (text := document.get("error") or document.get("message")):
            return str(text)
    return response.body[:2_000].decode(errors="replace")


_BY_STATUS = {
    401: (Outcome.FAILED, "permission"),
    403: (Outcome.FAILED, "permission"),
    404: (Outcome.FAILED, "server"),  # no such path: another server, perhaps
    405: (Outcome.FAILED, "server"),
    408: (Outcome.UNKNOWN, "timeout"),
    413: (Outcome.FAILED, "too large"),
    429: (Outcome.FAILED, "busy"),
    503: (Outcome.FAILED, "busy"),
    504: (Outcome.UNKNOWN, "timeout"),
}
_BY_WORDS = (
    (re.compile("partial write"), Outcome.UNKNOWN, "partial write"),
    (re.compile("(database|retention policy|bucket).* not found|could not find bucket"), Outcome.FAILED, "no table"),
    (re.compile("timeout|timed out"), Outcome.UNKNOWN, "timeout"),
)
_RESOURCES = re.compile("memory|limit exceeded|^max-")


def meaning(status: int, message: str, *, write: bool) -> tuple[Outcome, str]:
    """Return the outcome of a refused op (FAILED or UNKNOWN) and its cause.

    A write that was refused with 4xx (or 429, 503: not now) left nothing behind. A partial one that does not count its
    points, and one that ended with another 5xx, may have stored some of them: InfluxDB has them in its cache before the
    log, and a batch in one shard before the next.
    """
    text = message.lower()
    for words, outcome, cause in _BY_WORDS:
        if words.search(text):
            return outcome, cause
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    outcome = Outcome.UNKNOWN if status < 400 or (write and status >= 500) else Outcome.FAILED
    if _RESOURCES.search(text):
        return outcome, "resources"
    if 400 <= status < 500:
        return outcome, "data" if write else "statement"
    return outcome, "server"
