"""A database that stores nothing and answers after a known time: for finding the load generator's own limits.

The endpoint sets its behaviour, for example `null://?service=1ms&stall_at=3s&stall=2s`: every op takes 1 ms, and from
3 to 5 s after the first op all ops wait until the stall is over, as behind a lock or a checkpoint. The right figures of
such a run can be computed, so it shows the accuracy of the measurement.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tsbench.errors import UserMistake
from tsbench.model import Batch, Codes, Measurement, OpError, Outcome, Query, Rows, WriteMode
from tsbench.servers.embedded import InMemoryServer
from tsbench.targets import endpoint
from tsbench.targets.base import NothingKept, Payload, Schema, Session, Statement
from tsbench.targets.target import Endpoint, Target
from tsbench.text import shortened
from tsbench.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group
    from tsbench.targets.base import Command

NOTHING = "it keeps nothing, so there is no answer to check"


@dataclass(frozen=True, slots=True)
class NullSchema(Schema):
    """A schema without tables."""

    name: str = "none"
    keeps_duplicates: bool = True

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        return ()

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        return ()

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        return ()

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        return Payload(mode, batch.measurement.name, "", None, len(batch), 0)

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        whole, rest = divmod(len(batch), points)
        name = batch.measurement.name
        yield from repeat(Payload(mode, name, "", None, points, 0), whole)
        if rest:
            yield Payload(mode, name, "", None, rest, 0)

    def compile(self, query: Query) -> Statement:
        """Raise `NothingKept`: nothing is stored, so no query has an answer."""
        raise NothingKept(NOTHING)


@dataclass(slots=True)
class _Behaviour:
    service_s: float
    stall_at_s: float
    stall_s: float
    first: float | None = None


_behaviours: dict[str, _Behaviour] = {}
_lock = threading.Lock()


class NullSession(Session):
    """A session that sleeps instead of sending ops."""

    def __init__(self, behaviour: _Behaviour) -> None:
        self._behaviour = behaviour

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        pass

    def write(self, payload: Payload) -> int:
        """Sleep for the service time; if the stall begins in it, sleep until the stall is over."""
        behaviour = self._behaviour
        begun = time.perf_counter()
        if behaviour.first is None:
            behaviour.first = begun
        ended = begun + behaviour.service_s
        stall_from = behaviour.first + behaviour.stall_at_s
        stall_to = stall_from + behaviour.stall_s
        if begun < stall_to and ended > stall_from:
            ended = stall_to + behaviour.service_s
        if ended > begun:
            time.sleep(max(0.0, ended - time.perf_counter()))
        return payload.points

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Raise `OpError`: nothing is stored, so no query has an answer."""
        raise OpError(Outcome.FAILED, "unsupported", NOTHING)

    def facts(self) -> Mapping[str, str]:
        behaviour = self._behaviour
        return {
            "service_s": str(behaviour.service_s),
            "stall_at_s": str(behaviour.stall_at_s),
            "stall_s": str(behaviour.stall_s),
        }

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        pass


def connect(of: Endpoint, *_: object, **__: object) -> NullSession:
    """Return a session, whose behaviour those of one endpoint share."""
    with _lock:
        if of.url not in _behaviours:
            _behaviours[of.url] = _behaviour(of)
        return NullSession(_behaviours[of.url])


def parse(url: str, target: Target) -> Endpoint:
    """Parse an endpoint whose options are durations."""
    parts = endpoint.parse(url, target, Endpoint, hosts="")
    try:
        _behaviour(parts)
    except ValueError as error:
        raise UserMistake(f"{shortened(url)}: {error}") from None
    return parts


def _behaviour(of: Endpoint) -> _Behaviour:
    return _Behaviour(*(parse_duration_ns(of.options.get(name, "0s")) / 1e9 for name in _OPTIONS))


_OPTIONS = ("service", "stall_at", "stall")
TARGET = Target(
    name="null",
    product="the target null",
    form="null://?service=1ms",
    schemes=("null",),
    schemas={"none": NullSchema()},
    options=(*_OPTIONS,),
    parser="tsbench.targets.null:parse",
    opener="tsbench.targets.null:connect",
    server="tsbench.targets.null:NullServer",
    durable=False,
    embedded=True,
)
"""Its sessions yield to gevent, since they only sleep."""


class NullServer(InMemoryServer):
    """No server at all; the settings say how the sessions behave (see `targets.null`)."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        super().__init__(directory, None, group)
        self._settings = dict(settings or {})

    @property
    def endpoint(self) -> str:
        return f"null://?{urlencode(self._settings)}"

    def settings(self) -> Mapping[str, str]:
        return self._settings
