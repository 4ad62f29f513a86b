"""The files of a run that say what its load processes did, with one type for each, of which it is written and read.

A process's report may have come from another machine: whatever lacks or exceeds the fields' types is damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from tsbench.results.limits import FIRST_S, LARGEST, LAST_S, LIMITS
from tsbench.results.reading import damaged, read_json
from tsbench.results.shapes import layers

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Number = Annotated[float, Field(strict=True, gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, max_length=LIMITS.name)]
Text = Annotated[str, Field(strict=True, max_length=LIMITS.text_bytes)]
Time = Annotated[float, Field(strict=True, ge=FIRST_S, le=LAST_S)]
Second = Annotated[int, Field(strict=True, ge=FIRST_S, le=LAST_S)]
_Positive = Annotated[int, Field(strict=True, gt=0, le=LIMITS.streams)]

TIMES, MASTER, WARMUP = "process/clock.json", "process/locust.json", "process/warmup.json"


@dataclass(frozen=True, slots=True)
class Times:
    """`clock.json`: the first op's time, the measured window, and the end of the test, in epoch seconds."""

    go_s: Time
    start_s: Second
    end_s: Second
    stopped_s: Time | None = None
    """None in results of formats 1 and 2."""

    def __post_init__(self) -> None:
        if not self.go_s <= self.start_s < self.end_s <= self.start_s + LIMITS.span_s:
            raise ValueError("start_s is before go_s, or end_s not after it, or by more than a week")


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
    workers: list[Worker]


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


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """`<process>.json`: the counts of a load process that ended by itself, over the whole test."""

    share: Share
    ops: Count
    answers: dict[Name, Count]
    """Measured answers by kind of query."""
    firsts: dict[Name, FirstOp]
    encode_ns: Count
    payload_wait_ns: Count
    clock_offset_ns: Number
    schedule: Schedule | None
    unconnected: dict[Text, Count]
    failures: dict[Text, Count] = field(default_factory=dict)
    """Errors by text."""


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


def read_as(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file as a type whose fields say all that may be in it.

    Raises
    ------
    UserMistake
        If the file is missing or damaged; the text names it and the part.
    """
    content = read_json(path)
    if any(len(one) > LIMITS.entries for layer in layers(content) for one in layer):
        raise damaged(path, f"an object or a list has more than {LIMITS.entries:,} entries")
    try:
        return _adapter(kind).validate_python(content)  # type: ignore[no-any-return,arg-type] # a type is hashable
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise damaged(path, f"{place}: {first['msg']}".removeprefix(": Value error, ")) from None


@lru_cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
