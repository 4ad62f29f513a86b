"""The types of values in a scenario file: texts with units become numbers; numbers without units are refused."""

from __future__ import annotations

import time
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from tsbench import units
from tsbench.model import WriteMode
from tsbench.text import printable

if TYPE_CHECKING:
    from pydantic import ValidationInfo

FILE = "file"
"""Validation context for users' files, where a number without a unit is an error (spec.json has numbers in ns)."""


class Part(BaseModel):
    """Base of the tables of a scenario file: unknown keys and values of another type are errors; values are immutable.

    `true` is no number, `"4"` no whole number and `"yes"` no boolean; a whole number will do where a number is wanted.
    """

    # Each table is built as a part of the whole scenario anyway; alone as well would take every process 0.1 s.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    @field_validator("*", mode="after")
    @classmethod
    def _printable(cls, value: Any) -> Any:
        texts = [value] if isinstance(value, str) else [*value, *value.values()] if isinstance(value, dict) else []
        if any(printable(text) != text for text in texts if isinstance(text, str)):
            raise ValueError("has a character that cannot be shown, such as a control character; take it out")
        return value


def _duration(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a duration; write for example '10s'")  # noqa: TRY004 - pydantic needs a ValueError
    if info.context == FILE and not isinstance(value, str) and value != 0:
        raise ValueError(f"needs a unit; write for example '{_example(value)}s'")
    return units.parse_duration_ns(value) if isinstance(value, str) else value


def _time(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, bool) or (info.context == FILE and isinstance(value, int | float)):
        raise ValueError("must be a time; write 2016-01-01T00:00:00Z, now or now-6h")
    text = value.isoformat() if isinstance(value, date) else value  # TOML also has times without quotes
    # Whole seconds: a database with microseconds could not store the points of a world that begins between two of them.
    return (
        units.parse_storable_time_ns(text, now_ns=int(time.time()) * units.NS_PER_S) if isinstance(text, str) else value
    )


def _example(value: float) -> str:
    """Return a number for an example with a unit; 10 in place of one that nobody would write."""
    return f"{value:g}" if 0 <= value < 1e9 else "10"


def _whole_seconds(value: int) -> int:
    if value % units.NS_PER_S:
        raise ValueError("must be whole seconds, because results are kept per second")
    return value


def _not_negative(value: int) -> int:
    if value < 0:
        raise ValueError("must be at least 0")
    return value


def _size(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a size; write for example '512 MB'")  # noqa: TRY004 - pydantic needs a ValueError
    if info.context == FILE and not isinstance(value, str):
        raise ValueError(f"needs a unit; write for example '{_example(value)} MB'")
    return units.parse_size_bytes(value) if isinstance(value, str) else value


UNIT = "unit"
"""Keyword in the JSON Schemas below: the kind of text, so that defaults can be written as such texts too."""
_DURATION_TEXT = {"type": "string", "pattern": rf"^\s*({units.DURATION_PART.pattern})+$"}
_DURATION = {"anyOf": [_DURATION_TEXT, {"const": 0}]}
_TWO_DURATIONS = {"type": "array", "items": _DURATION, "minItems": 2, "maxItems": 2}
_SIZE = {"type": "string", "pattern": rf"^\s*{units.SIZE.pattern}\s*$"}

DurationNs = Annotated[int, BeforeValidator(_duration), Field(ge=0), WithJsonSchema({**_DURATION, UNIT: "duration"})]
SecondsNs = Annotated[DurationNs, AfterValidator(_whole_seconds), WithJsonSchema({**_DURATION, UNIT: "seconds"})]
STEADY = "steady"
"""Value of `drive.warmup`: until the rate has settled."""


def _warmup(value: Any, info: ValidationInfo) -> Any:
    return value if value == STEADY else _duration(value, info)


WarmupNs = Annotated[
    int | Literal["steady"],
    BeforeValidator(_warmup),
    AfterValidator(lambda value: value if value == STEADY else _whole_seconds(_not_negative(value))),
    WithJsonSchema({"anyOf": [_DURATION_TEXT, {"const": 0}, {"const": STEADY}], UNIT: "warmup"}),
]
"""A whole number of seconds, or `STEADY`."""
TimeNs = Annotated[int, BeforeValidator(_time), WithJsonSchema({"type": "string", UNIT: "time"})]
Mode = Annotated[WriteMode, Field(strict=False)]
SizeBytes = Annotated[int, BeforeValidator(_size), WithJsonSchema({**_SIZE, UNIT: "size"})]
Waits = Annotated[
    tuple[DurationNs, DurationNs],
    Field(strict=False),
    WithJsonSchema({"anyOf": [_DURATION_TEXT, _TWO_DURATIONS], UNIT: "wait"}),
]
"""Shortest and longest think time; a file may have one duration for both."""
