"""The common part of databases that take line protocol over HTTP: endpoints, schemas, writes, log-ins, and errors."""

from __future__ import annotations

import gzip
import json
import time
from abc import abstractmethod
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from tsbench.encode import line_protocol
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.net.http import Address, HttpConnection, Request
from tsbench.targets import credentials, endpoint
from tsbench.targets.base import Payload, Schema, expressible
from tsbench.targets.endpoint import NAME_IT, open_or_name, server_of
from tsbench.targets.session import Closable, CommandSession, decoded
from tsbench.targets.target import Endpoint, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement
    from tsbench.net.http_parser import Response
    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command

_QUIET_S = 0.2


@dataclass(frozen=True, slots=True)
class HttpEndpoint(Endpoint):
    """An endpoint over HTTP or HTTPS."""

    usual_port: ClassVar[int] = 8086

    @property
    def place(self) -> Address:
        """Where requests are sent."""
        tls = self.scheme == "https"
        return Address(self.host, self.port or (443 if tls else self.usual_port), tls)


H = TypeVar("H", bound=HttpEndpoint)


def parse(url: str, target: Target, kind: type[H]) -> H:
    """Parse an endpoint, whose path may have slashes around it."""
    parts = endpoint.parse(url, target, kind)
    path = unquote(urlsplit(url).path.strip("/"))
    if "/" in path:
        raise unsent(parts, f"/{path.rpartition('/')[0]} before the database")
    return replace(parts, path=path)


def unsent(endpoint: HttpEndpoint, path: str) -> UserMistake:
    """Return the error for an endpoint with a path that no request would have."""
    text = f"the path {path} is not sent on; give the server's own host and port"
    return UserMistake(f"'{endpoint.shown}': {text}: {endpoint.target.form}")


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

    They are compressed if the endpoint says so. `refusal` returns the error for a response that does not acknowledge a
    write of so many points.
    """

    def __init__(
        self,
        connection: HttpConnection,
        of: HttpEndpoint,
        path: str,
        headers: Mapping[str, str],
        refusal: Callable[[Response, int], OpError],
    ) -> None:
        self._compressed = of.options.get("gzip") == "1"
        more = {"Content-Encoding": "gzip"} if self._compressed else {}
        self._request = Request(of.place, "POST", path, {**headers, **more})
        self._connection, self._refusal = connection, refusal

    def write(self, payload: Payload, timeout_s: float | None = None) -> int:
        """Send the payload's bytes; only status 204 acknowledges them."""
        data = gzip.compress(payload.data, 1) if self._compressed else payload.data
        response = self._connection.send(self._request, data, timeout_s=timeout_s)
        if response.status == 204:
            return payload.points
        raise self._refusal(response, payload.points)


class HttpSession(CommandSession):
    """Base of sessions over one keep-alive connection. The next op reopens a broken one."""

    arrival: Arrival
    writer: Writer
    expected: ClassVar[Collection[int]] = {200}
    """Statuses of responses to anything but a write."""

    def __init__(
        self, of: HttpEndpoint, headers: Mapping[str, str], timeout_s: float, waiter: NewWaiter | None
    ) -> None:
        super().__init__(timeout_s)
        self._of, self._headers = of, headers
        self._connection = HttpConnection(of.place, timeout_s=timeout_s, waiter=waiter)
        self.arrival = self._connection.arrival

    @abstractmethod
    def ping(self, timeout_s: float) -> None:
        """Verify that the server accepts our credentials."""

    @abstractmethod
    def refused(self, response: Response) -> OpError:
        """Return the error for an unexpected response to anything but a write."""

    def write(self, payload: Payload) -> int:
        return self.writer.write(payload)

    def _request(self, method: str, path: str, **headers: str) -> Request:
        """Return a request with our credentials and further headers, whose names have _ in place of hyphens."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return Request(self._of.place, method, path, {**self._headers, **more})

    def _send(self, request: Request, body: bytes = b"", *, timeout_s: float | None = None) -> Response:
        """Return the response to a request if it has an expected status."""
        response = self._connection.send(request, body, timeout_s=timeout_s)
        if response.status not in self.expected:
            raise self.refused(response)
        return response

    def close(self) -> None:
        self._connection.close()


# --- opening ----------------------------------------------------------------------------------------------------------


def basic_login(user: str, password: str | None) -> dict[str, str]:
    """Return the header that logs in; none without a user."""
    if not user:
        return {}
    login = f"{user}:{password or ''}".encode()
    return {"Authorization": f"Basic {b64encode(login).decode()}"}


def environment_secret(of: Endpoint) -> str | None:
    """Return the secret of the environment if it may be sent to this endpoint."""
    return credentials.read_for(of.url, *of.target.secrets)


class Openable(Closable, Protocol):
    """A session that can verify its log-in."""

    def ping(self, timeout_s: float) -> None:
        """Verify that the server accepts our credentials."""


def opener(
    new: Callable[[H, str | None, float, NewWaiter | None], Openable],
    *,
    login: str = "login",
    secret: Callable[[H], str | None] = environment_secret,
) -> Callable[..., Openable]:
    """Return a target's function that opens sessions, as `Target.opener` names it.

    It makes them by `new(endpoint, secret, timeout_s, waiter)` and verifies that the server accepts our credentials.
    """

    def connect(
        of: H, schema: Schema, *, timeout_s: float, connect_timeout_s: float, waiter: NewWaiter | None = None
    ) -> Openable:
        known = secret(of)

        def opened(limit_s: float) -> Openable:
            session = new(of, known, timeout_s, waiter)
            with _claiming(session, of, login):
                session.ping(limit_s)
            return session

        place = of.place
        shown = f"{'https' if place.tls else 'http'}://{place}"
        own = {"an HTTPS server"} if place.tls else {server_of(of.target), "an HTTP server", "an HTTPS server"}
        cure = "name its target, or write http:// for one without TLS" if place.tls else NAME_IT
        return open_or_name(opened, connect_timeout_s, (place.host, place.port), own, shown, cure)

    return connect


@contextmanager
def _claiming(session: Openable, of: Endpoint, login: str) -> Iterator[None]:
    """Close a new session that cannot log in, and raise a one-line error."""
    try:
        with decoded(of.target.product):
            yield
    except OpError as error:
        session.close()
        if error.cause == "permission":
            cure = f"set {of.target.secrets[0]}(_FILE)"
            raise UserMistake(f"{of.shown} refuses the {login}: {error}; {cure}") from error
        is_plain = "[SSL" in str(error) and "CERTIFICATE" not in str(error)
        cure = "does it speak TLS? Write http:// if not" if is_plain else f"is {of.target.label} running there?"
        raise Unreachable(f"cannot connect to {of.shown}: {error}; {cure}") from error
    except UserMistake:
        session.close()
        raise


# --- answers ----------------------------------------------------------------------------------------------------------


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
    return message_in(response.body)


def message_in(body: bytes) -> str:
    """Return the error message in the body of a response, in JSON or as text."""
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        if isinstance(document, dict) and (text := document.get("error") or document.get("message")):
            return str(text)
    return body[:2_000].decode(errors="replace")
