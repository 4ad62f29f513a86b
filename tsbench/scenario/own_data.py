"""[recording] of use-case files: a user's own rows as points, prepared once and kept."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from tsbench.errors import Broken, UserMistake, advise, is_disk_full, require
from tsbench.scenario.own_queries import expect_names
from tsbench.scenario.types import Part
from tsbench.workload.layout import Layout, Tag
from tsbench.workload.recording import ABOUT, Recorded, recorded_at

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORM = 2
"""Version of the form of prepared recordings."""
MOST_TEXTS = 10_000
"""Number of different texts that a field may have."""
Texts = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=100)]


class TimeColumn(Part):
    """[recording] time: the column of times, or a table with more about it."""

    column: str
    zone: str = "UTC"
    """Zone of times that have none, such as `Europe/Berlin`."""
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
    """Default: what the first 131,072 values are; whole numbers become floats where one is none, or lacks."""
    true: Texts | None = None
    """Texts that stand for true."""
    false: Texts | None = None
    """Texts that stand for false."""
    default: str | bool | float | None = None
    """What is stored where a row has no value. Default: nothing, which texts and booleans have no room for."""
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
    given = document.get("recording")
    if isinstance(given, dict) and (key := next((key for key in HIDDEN if key in given), None)):
        raise UserMistake(f"recording.{key}: unknown key; take it out")


def _column(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


def _columns(value: Any) -> Any:
    return {name: _column(one) for name, one in value.items()} if isinstance(value, dict) else value


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: [one] if isinstance(one, str) else one for name, one in value.items()}


class RecordingPart(Part):
    """[recording]: the files with the rows, and which columns are what."""

    file: str
    """CSV (.gz or .zst, too) or Parquet, beside the use case: `meters.csv`; with * several, in the order of names."""
    measurement: str
    """What one row is: the name of the measurement."""
    time: Annotated[TimeColumn, BeforeValidator(_column)]
    tags: Annotated[dict[str, Texts], BeforeValidator(_lists), Field(max_length=100)] = Field(default_factory=dict)
    """Tags and their columns, the key first: `{ meter = "meter_id", site = "site" }`; several are joined by /."""
    fields: Annotated[dict[str, FieldColumn], BeforeValidator(_columns), Field(min_length=1, max_length=1_000)]
    """Fields and their columns: `{ kwh = "energy", ok = { column = "status", true = ["OK"], false = ["ERR"] } }`."""
    null: Annotated[tuple[str | float, ...], Field(strict=False, max_length=100)] | None = None
    """Values that stand for none. Default: empty, NA, NaN, null and None."""
    duplicates: Literal["refuse", "first", "last"] = "refuse"
    """Which row counts of several with one time and one key."""
    incomplete: Literal["refuse", "skip"] = "refuse"
    """What becomes of rows without a time, a key or any value."""
    files: SkipJsonSchema[tuple[str, ...]] = Field(default=(), strict=False)
    """The files that were there, as absolute paths."""
    digest: SkipJsonSchema[str] = ""
    """SHA-256 of the points, once they are prepared."""

    @model_validator(mode="after")
    def _consistent(self) -> RecordingPart:
        expect_names("measurement", [self.measurement])
        expect_names("tags and fields", [*self.tags, *self.fields])
        return self

    def columns(self) -> list[tuple[str, str]]:
        """Return the columns that are read, each with the key that names it."""
        tags = [(f"tags.{name}", column) for name, columns in self.tags.items() for column in columns]
        return [("time", self.time.column), *tags, *((f"fields.{n}", f.column) for n, f in self.fields.items())]

    def prepared(self, place: Path) -> RecordingPart:
        """Return this with the files below `place` and their digest; they are read unless they were before.

        Raises
        ------
        UserMistake
            If there are none, or they do not have what this says: one line with file and row.
        Broken
            If the prepared points cannot be written.
        """
        require("polars", "files")
        require("pyarrow", "files")
        files = tuple(sorted(os.path.abspath(path) for path in glob.glob(str(place / self.file), recursive=True)))  # noqa: PTH100, PTH207
        if not files:
            raise UserMistake(f"recording.file: there is no {self.file} in {place.absolute()}")
        found = self.model_copy(update={"files": files, "digest": ""})
        known = _cache() / f"{found.identity()}.txt"
        try:
            digest = known.read_text(encoding="utf-8")
            recorded_at(_cache() / digest)
        except (OSError, ValueError, TypeError):
            digest = found.prepare(known)
        return found.model_copy(update={"digest": digest})

    def identity(self) -> str:
        """Return a text that is another one after a change of the mapping, or of one of the files."""
        status = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in self.files]  # noqa: PTH116
        said = json.dumps([_FORM, status, self.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def prepare(self, known: Path) -> str:
        """Read the files, keep their points, and return the digest of these; `known` becomes a file with it."""
        from tsbench.scenario.preparing import prepared  # noqa: PLC0415 - of an extra

        try:
            known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=known.parent) as scratch:
                made, about = prepared(self, Path(scratch))
                target = known.parent / about["digest"]
                (made / ABOUT).write_text(json.dumps(about), encoding="utf-8")
                shutil.rmtree(target, ignore_errors=True)
                made.rename(target)
            known.write_text(about["digest"], encoding="utf-8")
        except OSError as error:
            said = advise(str(error), str(known.parent))
            kind = Broken if is_disk_full(said) else UserMistake
            raise kind(f"{known.parent}: cannot keep the recording's points: {said}; set TSBENCH_CACHE") from None
        return str(about["digest"])

    def recorded(self) -> Recorded:
        """Return the prepared points, of this machine's copy of the files if another one prepared them.

        Raises
        ------
        UserMistake
            If this machine has no copy, or another one.
        """
        try:
            return recorded_at(_cache() / self.digest)
        except OSError:
            pass
        absent = next((path for path in self.files if not Path(path).is_file()), None)
        if absent is not None:
            raise UserMistake(f"{absent}: this machine has no copy of the recording; put one there")
        bare = self.model_copy(update={"digest": ""})
        if (digest := bare.prepare(_cache() / f"{bare.identity()}.txt")) != self.digest:
            raise UserMistake(
                f"{self.files[0]}: is not the recording that the run was planned with; copy that one here"
            )
        return recorded_at(_cache() / digest)

    def tag_list(self, recorded: Recorded) -> tuple[Tag, ...]:
        """Return the tags with the values that they have."""
        return tuple(Tag(name, choices=codes.values) for name, codes in recorded.tags.items())

    def layouts(self, recorded: Recorded) -> tuple[Layout, ...]:
        """Return the measurement."""
        return (Layout(self.measurement, recorded.fields, ()),)


def _cache() -> Path:
    """Return the directory of prepared recordings."""
    given = os.environ.get("TSBENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(given or f"{base}/tsbench").absolute() / "recordings"
