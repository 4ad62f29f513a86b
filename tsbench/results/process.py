"""The files in which load processes report what they did: one type per file, used by its writer and its readers.

A process's report may have come from another machine: whatever lacks or exceeds the fields' types is damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from tsbench.results.json_files import Named, Several  # noqa: TC001 - types of fields
from tsbench.results.limits import FIRST_S, LARGEST, LAST_S, LIMITS

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, max_length=LIMITS.name)]
Text = Annotated[str, Field(strict=True, max_length=LIMITS.text_bytes)]
Time = Annotated[float, Field(strict=True, ge=FIRST_S, le=LAST_S)]
Second = Annotated[int, Field(strict=True, ge=FIRST_S, le=LAST_S)]
_Positive = Annotated[int, Field(strict=True, gt=0, le=LIMITS.streams)]

TIMES, MASTER, WARMUP = "process/clock.json", "process/locust.json", "process/warmup.json"
WINDOW, EVENTS, CHANGES = "process/window.json", "process/events.json", "process/changes.json"


@dataclass(frozen=True, slots=True)
class Times:
    """`clock.json`: the first op's time, the measured window, and the end of the test, in epoch seconds."""

    go_s: Time
    start_s: Second
    end_s: Second
    stopped_s: Time | None = None
    """None if it was not written; then the window's end counts."""

    def __post_init__(self) -> None:
        if not self.go_s <= self.start_s < self.end_s:
            raise ValueError("go_s, start_s and end_s are not in this order")


@dataclass(frozen=True, slots=True)
class MeasuredFrom:
    """`window.json`: the start of the measured window in epoch seconds, for events, as soon as it is known."""

    start_s: Second


@dataclass(frozen=True, slots=True)
class Done:
    """One event: what was done, from and to in seconds since the start of the measured window."""

    do: Name
    began_s: Number
    ended_s: Number
    changes_load: bool = False
    """True if the load changed and nothing was done to the server."""
    node: Count | None = None
    """The node, if it was done to one."""
    note: Text = ""
    """What the other nodes did about it, such as `node 2 took over`."""


@dataclass(frozen=True, slots=True)
class DoneEvents:
    """`events.json`: what was done to the server, in order; `changes.json`: what was done to the load."""

    done: Several[Done]


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a run that a load process does: it is process `index` of `of`, and the only writer of its streams."""

    name: Name
    index: Count
    of: _Positive
    world_streams: _Positive

    @property
    def streams(self) -> range:
        """The process's streams, of all `world_streams`."""
        return range(self.index, self.world_streams, self.of)


@dataclass(slots=True)
class Worker:
    """A load process as its master knows it; `client` is Locust's name for it."""

    share: Share
    client: Text
    ended: Text = ""
    """How its process ended, if it was lost."""
    refused: Text = ""
    """Why it was not heard any more."""


@dataclass(frozen=True, slots=True)
class MasterReport:
    """`locust.json`: what Locust counted, the highest, lowest and mean number of users, and the workers, if any."""

    requests: Count
    failures: Count
    users: Count
    users_least: Count
    users_mean: Number
    workers: Several[Worker]


@dataclass(slots=True)
class Schedule:
    """Counts of an open loop's measured arrivals by how they ended; `scheduled` = done + late + dropped + unfinished.

    `generator_late` counts late ones that had a session in time: the load process itself woke up late.
    """

    scheduled: Count = 0
    done: Count = 0
    late: Count = 0
    generator_late: Count = 0
    dropped: Count = 0
    unfinished: Count = 0


@dataclass(frozen=True, slots=True)
class FirstOp:
    """The op of a name that began first, at `began_ns` (epoch ns)."""

    began_ns: Count
    response_ns: Count
    service_ns: Count
    outcome: Name


@dataclass(slots=True)
class GivenAnswers:
    """Measured answers to one kind of query: their number, their rows together, and how many had none."""

    count: Count = 0
    rows: Count = 0
    empty: Count = 0

    def add(self, count: int, rows: int, empty: int) -> None:
        """Add the counts of other answers to the same kind."""
        self.count += count
        self.rows += rows
        self.empty += empty


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """`<process>.json`: the counts of a load process that ended by itself, over the whole test."""

    share: Share
    ops: Count
    answers: Named[GivenAnswers]
    firsts: Named[FirstOp]
    encode_ns: Count
    payload_wait_ns: Count
    clock_offset_ns: Number
    schedule: Schedule | None
    unconnected: Named[Count]
    failures: Named[Count] = field(default_factory=dict)
    """Errors by text."""
    ended_ns: Count = 0
    """End of the last op, epoch ns; 0 without one."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """`warmup.json`: by which figures a warm-up ended that looked for a steady rate (`measure.settling.Settling`)."""

    settled: Annotated[bool, Field(strict=True)]
    duration_s: Number
    limit_s: Number
    tested_s: Count | None = None
    ops_per_s: Number | None = None
    range: Number | None = None
    rise: Number | None = None
    drift: Number | None = None
