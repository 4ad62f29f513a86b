"""[recording] of use-case files: which files have a user's own rows, and which columns are what, as pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from tsbench.errors import UserMistake
from tsbench.scenario.own_queries import expect_names
from tsbench.scenario.types import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_TEXTS = 10_000
"""Number of different texts that a field may have."""
Texts = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=100)]


class TimeColumn(Part):
    """[recording] time: the column of times, or a table with more about it."""

    column: str
    clock: str | None = None
    """A further column with the times of day, where `column` has days alone."""
    zone: str = "UTC"
    """Zone of times that have none, such as `Europe/Berlin`."""
    format: Annotated[str, Field(min_length=2, max_length=100)] | None = None
    """Form of times that are written in another way than ISO 8601, such as `%m/%d/%Y %I:%M:%S %p`."""
    unit: Literal["s", "ms", "us", "ns"] | None = None
    """Unit of times that are numbers. Default: guessed from the first ones."""
    repeated: Literal["refuse", "earliest", "latest"] = "refuse"
    """What a local time stands for that a clock showed twice, when it was set back."""
    round: Literal["s", "ms", "us"] | None = None
    """Unit that times are cut to, for databases that have no finer ones."""


class FieldColumn(Part):
    """[recording] fields: the column of a field, or a table with more about it."""

    column: str
    type: Literal["float", "int", "bool", "text"] | None = None
    """Default: what the first 131,072 values are; whole numbers become floats where one is none."""
    true: Texts | None = None
    """Texts that stand for true."""
    false: Texts | None = None
    """Texts that stand for false."""
    default: str | bool | float | None = None
    """The value of rows that have none. Default: none, which some databases have no room for."""
    unit: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> FieldColumn:
        if (self.true is None) != (self.false is None):
            raise ValueError("true: needs false, too, and false needs true")
        if self.true and self.type not in {None, "bool"}:
            raise ValueError("type: with true and false it is 'bool'; take it out")
        return self


HIDDEN = ("files", "digest")
"""Keys of [recording] that files cannot set."""


def expect_no_hidden(document: Mapping[str, Any]) -> None:
    """Verify that [recording] of a file has none of the keys that only specifications have."""
    given = listed_tables(document.get("recording"))
    for part in given if isinstance(given, list) else ():
        if isinstance(part, dict) and (key := next((key for key in HIDDEN if key in part), None)):
            raise UserMistake(f"recording.{key}: unknown key; take it out")


def listed_tables(value: Any) -> Any:
    """Return the tables of [[recording]]; of [recording] a list with that one."""
    return [value] if isinstance(value, dict) else value


def expect_alike(parts: Sequence[RecordingPart]) -> None:
    """Verify that the measurements of a recording are several ones, of the same series.

    Raises
    ------
    ValueError
        If two have one name, or their series have different keys.
    """
    expect_names("recording.measurement", [part.measurement for part in parts])
    keys = {next(iter(part.tags), "") for part in parts}
    tags = {tag for part in parts for tag in part.tags}
    if len(keys) > 1:
        said = " and ".join(f"'{key}'" if key else "none" for key in sorted(keys))
        raise ValueError(
            f"recording.tags: the first one names the series, and is {said}; name it alike in each measurement"
        )
    for part in parts:
        if twice := next((name for name in part.fields if name in tags), None):
            raise ValueError(f"recording.fields.{twice}: is a tag of another measurement; rename one")


def _column(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


def _columns(value: Any) -> Any:
    return {name: _column(one) for name, one in value.items()} if isinstance(value, dict) else value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: [one] if isinstance(one, str) else one for name, one in value.items()}


class RecordingPart(Part):
    """[recording], or [[recording]] for each of several measurements: files with rows, and which columns are what."""

    file: str
    """CSV, line protocol (.gz or .zst, too) or Parquet, beside the use case; with * several, in the order of names."""
    measurement: str
    """The name of the measurement that a row is one of; of line protocol, lines of others are not read."""
    time: Annotated[TimeColumn, BeforeValidator(_column)]
    tags: Annotated[dict[str, Texts], BeforeValidator(_lists), Field(max_length=100)] = Field(default_factory=dict)
    """Tags and their columns, the key first: `{ meter = "meter_id", site = "site" }`; several are joined by /.

    A tag is a series': one that two measurements have points of has it in both.
    """
    fields: Annotated[dict[str, FieldColumn], BeforeValidator(_columns), Field(min_length=1, max_length=1_000)]
    """Fields and their columns: `{ kwh = "energy", ok = { column = "status", true = ["OK"], false = ["ERR"] } }`."""
    null: Annotated[tuple[str | float, ...], Field(strict=False, max_length=100)] | None = None
    """Values that stand for none. Default: empty, NA, NaN, null and None."""
    duplicates: Literal["refuse", "first", "last", "merge"] = "refuse"
    """Which row counts of several with one time and key; `merge`: they are one point, with each field's last value."""
    incomplete: Literal["refuse", "skip"] = "refuse"
    """What becomes of rows without a time, a key or any value."""
    files: SkipJsonSchema[tuple[str, ...]] = Field(default=(), strict=False)
    """The files by that name, as absolute paths."""
    digest: SkipJsonSchema[str] = ""
    """SHA-256 of the points of all measurements, once they are prepared."""

    @model_validator(mode="after")
    def _consistent(self) -> RecordingPart:
        expect_names("measurement", [self.measurement])
        expect_names("tags and fields", [*self.tags, *self.fields])
        return self

    def columns(self) -> list[tuple[str, str]]:
        """Return the columns that are read, each with the key that names it."""
        tags = [(f"tags.{name}", column) for name, columns in self.tags.items() for column in columns]
        times = [("time", self.time.column), *([("time.clock", self.time.clock)] if self.time.clock else [])]
        return [*times, *tags, *((f"fields.{n}", f.column) for n, f in self.fields.items())]
