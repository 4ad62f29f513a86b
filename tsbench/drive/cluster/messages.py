"""The messages of a worker, tsbench's own and Locust's, as its master takes them: with shapes and limits.

A worker that has the secret may still be damaged or hostile. A message of another shape never reaches a handler: an
error in one of Locust's would end the master.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from tsbench.clock import epoch_ns
from tsbench.results.limits import LARGEST, LAST_S, LIMITS
from tsbench.text import shortened
from tsbench.units import NS_PER_S

PING, PONG, SHARE, READY, USER, GO, RATE, DRAINED, STOP, FILE, STOPPED = (
    f"tsbench-{word}"
    for word in ("ping", "pong", "share", "ready", "user", "go", "rate", "drained", "stop", "file", "stopped")
)
AHEAD_S = 600
"""How far ahead of the master's clock a worker's seconds may be; workers correct theirs by its pings."""
UPDATES = 100_000
"""Rows of a live update: those of 100 ops in each of a few hundred seconds that waited for late answers."""
ERRORS = 20_000
"""Different errors in a report of 3 s, whose texts a server may have made."""


def _near(second: int) -> int:
    now_s = epoch_ns() // NS_PER_S
    if not now_s - LIMITS.span_s <= second <= now_s + AHEAD_S:
        raise ValueError(f"{second} is {second - now_s:,} s from the master's time")
    return second


_Count = Annotated[int, Field(strict=True, ge=0, le=LIMITS.counted)]
_Number = Annotated[float, Field(strict=True, gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)]
_Second = Annotated[int, Field(strict=True), AfterValidator(_near)]
_Name = Annotated[str, Field(strict=True, max_length=LIMITS.name)]
_Key = Annotated[str, Field(strict=True, max_length=LIMITS.error_text)]
_Text = Annotated[str, Field(strict=True, max_length=LIMITS.text_bytes)]
_Users = Annotated[dict[_Name, _Count], Field(max_length=LIMITS.entries)]
_Numbers = Annotated[dict[_Number, _Number], Field(max_length=LIMITS.entries)]


class _Shape(BaseModel):
    model_config = ConfigDict(defer_build=True)


class _Pong(_Shape):
    time_ns: Annotated[int, Field(strict=True, ge=0, le=LAST_S * NS_PER_S)]


class _Ready(_Shape):
    error: _Text
    machine: _Name
    pid: Annotated[int, Field(strict=True, gt=0, lt=2**31)]


class _Rate(_Shape):
    counts: Annotated[list[tuple[_Second, _Count]], Field(max_length=UPDATES), FailFast()]
    through_s: _Second


class _Piece(_Shape):
    name: _Name
    data: Annotated[bytes, Field(strict=True)]


class _Counts(_Shape):
    done: _Count = 0
    failed: _Count = 0
    unknown: _Count = 0
    partial: _Count = 0
    points: _Count = 0
    causes: Annotated[dict[_Key, _Count], Field(max_length=LIMITS.causes)] = {}


class _Update(_Shape):
    test: _Text
    process: _Name
    histograms: Annotated[
        list[tuple[_Name, _Second, Annotated[str, Field(strict=True)]]], Field(max_length=UPDATES), FailFast()
    ]
    counts: Annotated[list[tuple[_Name, _Second, _Counts]], Field(max_length=UPDATES), FailFast()]
    cpu: Annotated[list[tuple[_Second, _Count, _Count]], Field(max_length=UPDATES), FailFast()]


class _Heartbeat(_Shape):
    state: _Name
    current_cpu_usage: _Number
    current_memory_usage: _Number = 0


class _Spawned(_Shape):
    user_classes_count: _Users
    user_count: _Count = 0


class _Entry(_Shape):
    name: _Text
    method: _Text | None  # of all ops together; the oldest Locust sends none
    last_request_timestamp: _Number | None
    start_time: _Number
    num_requests: _Count
    num_none_requests: _Count
    num_failures: _Count
    total_response_time: _Number
    max_response_time: _Number
    min_response_time: _Number | None
    total_content_length: _Number
    response_times: _Numbers
    num_reqs_per_sec: _Numbers
    num_fail_per_sec: _Numbers


class _Error(_Shape):
    method: _Text
    name: _Text
    error: _Text
    occurrences: _Count
    first_seen: _Number | None = None
    last_seen: _Number | None = None


class _Report(_Spawned):
    stats: Annotated[list[_Entry], Field(max_length=LIMITS.entries)]
    stats_total: _Entry
    errors: Annotated[dict[_Text, _Error], Field(max_length=ERRORS)]
    tsbench: _Update | None = None


class _Exception(_Shape):
    msg: _Text
    traceback: _Text


class _Version(_Shape):
    version: _Name


class _Logs(_Shape):
    worker_id: _Name
    logs: Annotated[list[_Text], Field(max_length=LIMITS.entries)]


@cache
def shapes() -> dict[str, TypeAdapter[Any]]:
    """Return the shapes by kind; messages of other kinds have no content that is read, or are those of a locustfile.

    The first call takes 0.1 s, which a process without workers need not spend.
    """
    adapters: dict[str, TypeAdapter[Any]] = {
        PONG: TypeAdapter(_Pong),
        READY: TypeAdapter(_Ready),
        RATE: TypeAdapter(_Rate),
        FILE: TypeAdapter(_Piece),
        "client_ready": TypeAdapter(_Name | Annotated[int, Field(strict=True)]),
        "exception": TypeAdapter(_Exception),
        "heartbeat": TypeAdapter(_Heartbeat),
        "locustfile": TypeAdapter(_Version),
        "logs": TypeAdapter(_Logs),
        "spawning_complete": TypeAdapter(_Spawned),
        "stats": TypeAdapter(_Report),
    }
    for shape in adapters.values():
        shape.rebuild()
    return adapters


def check(kind: object, data: object) -> None:
    """Raise ValueError, with one line, if a message is not of the shape of its kind."""
    if not isinstance(kind, str):
        raise ValueError("its kind is no text")  # noqa: TRY004 - a value of somebody else
    try:
        if (shape := shapes().get(kind)) is not None:
            shape.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, (kind, *first["loc"])))
        raise ValueError(f"{shortened(place, 100)}: {shortened(first['msg'], 100)}") from None
