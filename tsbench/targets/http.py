"""The common part of databases that take line protocol over HTTP: endpoints, schemas, writes, log-ins, and errors."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import unquote, urlsplit

from tsbench.encode import line_protocol
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.net.http import HttpConnection, Place, Request
from tsbench.targets import credentials, endpoint
from tsbench.targets.base import Payload, Schema, Session, expressible
from tsbench.targets.endpoint import NAME_IT, open_or_name
from tsbench.targets.session import decoded
from tsbench.targets.target import Endpoint, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement
    from tsbench.net.http import Sent
    from tsbench.net.http_parser import Response
    from tsbench.targets.base import Command

S = TypeVar("S")

_QUIET_S = 0.2


@dataclass(frozen=True, slots=True)
class HttpEndpoint(Endpoint):
    """An endpoint over HTTP or HTTPS."""

    usual_port: ClassVar[int] = 8086

    @property
    def place(self) -> Place:
        """Where requests are sent."""
        tls = self.scheme == "https"
        return Place(self.host, self.port or (443 if tls else self.usual_port), tls)


H = TypeVar("H", bound=HttpEndpoint)


def parse(url: str, target: Target, kind: type[H]) -> H:
    """Parse an endpoint, whose path may have slashes around it."""
    found = endpoint.parse(url, target, kind)
    return replace(found, path=unquote(urlsplit(url).path.strip("/")))


class LineSchema(Schema):
    """Base of schemas with line protocol. Points of a series at the same time replace each other."""

    keeps_duplicates = False
    takes_lines = True
    request: ClassVar[str] = "POST /write"
    prefix: ClassVar[str] = ""
    """What the names of measurements begin with in the database."""

    def prefixed(self, measurement: Measurement) -> Measurement:
        """Return a measurement with its name in the database."""
        return replace(measurement, name=self.prefix + measurement.name)

    def encode_lines(self, lines: bytes, points: int) -> Payload:
        return Payload(WriteMode.BULK, "", self.request, lines, points, len(lines))

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        """Return no command: points carry their names and tags."""
        del measurements, tags, first
        return ()

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return the batch as lines, the same in all modes but that a single one has no line feed."""
        name = batch.measurement.name
        if self.prefix:
            batch = replace(batch, measurement=self.prefixed(batch.measurement))
        with expressible():
            if mode is WriteMode.SINGLE:
                single = line_protocol.encode_singles(batch)
                return (Payload(mode, name, self.request, line, 1, len(line)) for line in single)
            lines = line_protocol.lines(batch)
        cut = lines.cut(points)
        return (Payload(mode, name, self.request, one.data, len(one), len(one.data)) for one in cut)


class Writer:
    """Sends payloads on a connection, and raises `OpError` unless they are acknowledged.

    `refusal` returns the error for a response that does not acknowledge a write of so many points.
    """

    def __init__(
        self,
        connection: HttpConnection,
        path: str,
        headers: Mapping[str, str],
        refusal: Callable[[Response, int], OpError],
        *,
        compressed: bool,
    ) -> None:
        more = {"Content-Encoding": "gzip"} if compressed else {}
        self._request = Request(connection.place, "POST", path, {**headers, **more})
        self._connection = connection
        self._compressed, self._refusal = compressed, refusal

    def write(self, payload: Payload, timeout_s: float | None = None) -> int:
        """Send the payload's bytes; only status 204 acknowledges them."""
        return self.acknowledged(self.put(payload.data, timeout_s), payload.points)

    def put(self, lines: bytes | memoryview, timeout_s: float | None = None) -> Sent:
        """Send lines, for which `acknowledged` waits; meanwhile others may be sent over other connections."""
        data = gzip.compress(lines, 1) if self._compressed else lines
        return self._connection.put(self._request, data, timeout_s=timeout_s)

    def acknowledged(self, sent: Sent, points: int) -> int:
        """Return the number of points that were sent if they are acknowledged."""
        response = self._connection.answer(sent)
        if response.status == 204:
            return points
        raise self._refusal(response, points)


def basic_login(user: str, password: str) -> dict[str, str]:
    """Return the header that logs in; none without a user."""
    if not user:
        return {}
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


@contextmanager
def claiming(session: Session, of: Endpoint, *, login: str) -> Iterator[None]:
    """Verify in a `with` block that a new session can log in; on failure close it and raise a one-line error."""
    try:
        with decoded(of.target.product):
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


def opened(open_session: Callable[[float], S], limit_s: float, place: Place, product: str) -> S:
    """Return what `open_session` returns, called with its limit in seconds; see `endpoint.open_or_name`.

    `product` is the endpoint's, as `endpoint.product_at` names it.
    """
    shown = f"{'https' if place.tls else 'http'}://{place}"
    own = {"an HTTPS server"} if place.tls else {product, "an HTTP server", "an HTTPS server"}
    cure = "name its target, or write http:// for one without TLS" if place.tls else NAME_IT
    return open_or_name(open_session, limit_s, (place.host, place.port), own, shown, cure)


def settle(busy: Callable[[float], float], timeout_s: float, still: str) -> None:
    """Wait until `busy`, called with the seconds left, has found nothing to do twice in a row.

    Raises
    ------
    tsbench.model.OpError
        UNKNOWN `timeout` if some remains after `timeout_s`; `still` says what (`VictoriaMetrics still compacts`).
    """
    deadline = time.monotonic() + timeout_s
    quiet = 0
    while quiet < 2:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise OpError(Outcome.UNKNOWN, "timeout", f"{still} after {timeout_s:g} s")
        quiet = 0 if busy(left_s) else quiet + 1
        time.sleep(_QUIET_S)


BY_STATUS = {
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
"""Outcomes and causes that follow from a response's status alone."""


def error_text(response: Response) -> str:
    """Return the server's error message on one line."""
    return " ".join(message_of(response).split())[:500]


def message_of(response: Response) -> str:
    """Return the server's error message."""
    with suppress(ValueError, RecursionError):
        document = json.loads(response.body)
        if isinstance(document, dict) and (text := document.get("error") or document.get("message")):
            return str(text)
    return response.body[:2_000].decode(errors="replace")
