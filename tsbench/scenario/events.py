"""Events of a scenario: things that happen to the server and to the load in the measured window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from tsbench.scenario.parts import MAX_RATE, MAX_USERS, Part
from tsbench.scenario.types import DurationNs
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from tsbench.scenario.parts import DrivePart


class EventPart(Part):
    """[[event]]: a change in the measured window, to the server (only where tsbench starts it) or to the load."""

    at: DurationNs
    """When, from the start of the measured window."""
    do: Literal["kill", "stop", "restart", "pause"] | None = None
    """`kill` (SIGKILL) and `stop` (in order) take the server away until a `restart`, which stops a server that runs;
    `pause` holds it up for `length` (SIGSTOP). An event has one of `do`, `users` and `rate`."""
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
        return self

    @property
    def changes_load(self) -> bool:
        """True of an event that changes the load, and does nothing to the server."""
        return self.do is None

    @property
    def name(self) -> str:
        """Name in results, such as `kill` or `users = 50`."""
        return self.do or (f"users = {self.users:,}" if self.users is not None else f"rate = {self.rate:,g}")


def expect_sequence(events: tuple[EventPart, ...], drive: DrivePart) -> None:
    """Refuse events that do not fit the load, or cannot be done one after the other within the measured window.

    Raises
    ------
    ValueError
        One line with the event and the cure.
    """
    free_ns, is_down, duration_ns = 0, False, drive.duration
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
        if is_down and event.do != "restart":
            raise ValueError(f"{name}: the server is away by then; restart it before")
        is_down = event.do in {"kill", "stop"}
        free_ns = event.at + event.length
    if is_down:
        raise ValueError(f"event: {events[-1].name} leaves the server away, which checks need; add a restart after it")
