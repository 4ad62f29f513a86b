"""The types of values in a scenario file: texts with units become numbers; numbers without units are refused."""

from __future__ import annotations

import time
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tsbench import units

if TYPE_CHECKING:
    from pydantic import ValidationInfo

FILE = "file"
"""Validation context for users' files, where a number without a unit is an error (spec.json has numbers in ns)."""


def _duration(value: Any, info: ValidationInfo) -> Any:
    if info.context == FILE and isinstance(value, int | float) and value != 0:
        raise ValueError(f"needs a unit; write for example '{value:g}s'")
    return units.parse_duration_ns(value) if isinstance(value, str) else value


def _time(value: Any, info: ValidationInfo) -> Any:
    if info.context == FILE and isinstance(value, int | float):
        raise ValueError("must be a time; write 2016-01-01T00:00:00Z, now or now-6h")
    text = value.isoformat() if isinstance(value, date) else value  # TOML also has times without quotes
    # Whole seconds: a database with microseconds could not store the points of a world that begins between two of them.
    return units.parse_time_ns(text, now_ns=int(time.time()) * units.NS_PER_S) if isinstance(text, str) else value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic needs a ValueError
    return value


def _whole_seconds(value: int) -> int:
    if value % units.NS_PER_S:
        raise ValueError("must be whole seconds, because results are kept per second")
    return value


def _size(value: Any, info: ValidationInfo) -> Any:
    if info.context == FILE and isinstance(value, int | float):
        raise ValueError(f"needs a unit; write for example '{value:g} MB'")
    return units.parse_size_bytes(value) if isinstance(value, str) else value


UNIT = "unit"
"""Keyword in the JSON Schemas below: the kind of text, so that defaults can be written as such texts too."""
_DURATION_TEXT = {"type": "string", "pattern": rf"^\s*({units.DURATION_PART.pattern})+$"}
_DURATION = {"anyOf": [_DURATION_TEXT, {"const": 0}]}
_TWO_DURATIONS = {"type": "array", "items": _DURATION, "minItems": 2, "maxItems": 2}
_SIZE = {"type": "string", "pattern": rf"^\s*{units.SIZE.pattern}\s*$"}

DurationNs = Annotated[int, BeforeValidator(_duration), Field(ge=0), WithJsonSchema({**_DURATION, UNIT: "duration"})]
SecondsNs = Annotated[DurationNs, AfterValidator(_whole_seconds), WithJsonSchema({**_DURATION, UNIT: "seconds"})]
TimeNs = Annotated[int, BeforeValidator(_time), WithJsonSchema({"type": "string", UNIT: "time"})]
Whole = Annotated[int, BeforeValidator(_number)]
SizeBytes = Annotated[int, BeforeValidator(_size), WithJsonSchema({**_SIZE, UNIT: "size"})]
Waits = Annotated[
    tuple[DurationNs, DurationNs],
    WithJsonSchema({"anyOf": [_DURATION_TEXT, _TWO_DURATIONS], UNIT: "wait"}),
]
"""Shortest and longest think time; a file may have one duration for both."""
