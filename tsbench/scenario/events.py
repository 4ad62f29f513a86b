"""Events of a scenario: things that happen to the server and to the load in the measured window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from tsbench.scenario.parts import MAX_NODES, MAX_RATE, MAX_USERS
from tsbench.scenario.types import DurationNs, Part
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from tsbench.scenario.parts import DrivePart, ServerPart


class EventPart(Part):
    """[[event]]: a change in the measured window, to the server (only where tsbench starts it) or to the load."""

    at: DurationNs
    """When, from the start of the measured window."""
    do: Literal["kill", "stop", "restart", "pause"] | None = None
    """`kill` (SIGKILL) and `stop` (in order) take the server away until a `restart`, which stops a server that runs;
    `pause` holds it up for `length` (SIGSTOP). An event has one of `do`, `users` and `rate`."""
    node: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """The node that it is done to, from 1. Default: the whole server."""
    length: DurationNs = 0
    """How long a `pause` takes."""
    users: Annotated[int, Field(ge=1, le=MAX_USERS)] | None = None
    """Number of users from then on, in a closed loop."""
    rate: Annotated[float, Field(gt=0, le=MAX_RATE, allow_inf_nan=False)] | None = None
    """Ops per second of all processes together from then on, in an open loop."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [key]} for key in ("do", "users", "rate")]})

    @model_validator(mode="after")
    def _fitting(self) -> EventPart:
        if [self.do, self.users, self.rate].count(None) != 2:
            raise ValueError("needs one of do = 'restart' (or another), users = NUMBER and rate = OPS_PER_SECOND")
        if (self.do == "pause") != bool(self.length):
            raise ValueError("a pause needs a length, and nothing else has one")
        if self.node is not None and self.do is None:
            raise ValueError("node belongs to do; the load has none")
        return self

    @property
    def changes_load(self) -> bool:
        """True of an event that changes the load, and does nothing to the server."""
        return self.do is None

    @property
    def name(self) -> str:
        """Name in results, such as `kill` or `users = 50`."""
        if self.do is not None:
            return self.do if self.node is None else f"{self.do} node {self.node}"
        return f"users = {self.users:,}" if self.users is not None else f"rate = {self.rate:,g}"


def expect_sequence(events: tuple[EventPart, ...], drive: DrivePart, server: ServerPart) -> None:
    """Refuse events that do not fit load or nodes, or cannot be done one after the other within the measured window.

    Nodes may stay away, as many as other nodes have copies of.

    Raises
    ------
    ValueError
        One line with the event and the cure.
    """
    free_ns, duration_ns = 0, drive.duration
    away: set[int | None] = set()
    for event in events:
        name = f"event: {event.name} at {event.at / NS_PER_S:g}s"
        if event.rate is not None and drive.loop == "closed":
            raise ValueError(f"{name}: a rate belongs to loop = 'open'; set that, or give users")
        if event.users is not None and drive.loop == "open":
            raise ValueError(f"{name}: the load of an open loop is its rate; give rate")
        if event.users is not None and drive.steps:
            raise ValueError(f"{name}: drive.steps set the users; take steps or this out")
        if event.users is not None and event.users < drive.processes:
            raise ValueError(f"{name}: {event.users} users cannot be spread over {drive.processes} processes")
        if event.at < free_ns:
            raise ValueError(f"{name}: begins before the one above has ended; give them in order, one after the other")
        if event.at + event.length >= duration_ns:
            raise ValueError(f"{name}: ends after the measured window; raise drive.duration, or let it begin earlier")
        if event.node is not None and event.node > server.nodes:
            raise ValueError(f"{name}: there are {server.nodes} nodes; set server.nodes, or choose another one")
        if None in away and (event.do != "restart" or event.node is not None):
            raise ValueError(f"{name}: the server is away by then; restart it before")
        if event.node in away and event.do != "restart":
            raise ValueError(f"{name}: the node is away by then; restart it before")
        away = set() if event.node is None and event.do else away - {event.node}
        away |= {event.node} if event.do in {"kill", "stop"} else set()
        free_ns = event.at + event.length
    if None in away or len(away) >= server.replicas:
        last = next(event for event in reversed(events) if event.do in {"kill", "stop"})
        what = "the server" if last.node is None else "a node without copies"
        raise ValueError(f"event: {last.name} leaves {what} away, which checks need; add a restart after it")
