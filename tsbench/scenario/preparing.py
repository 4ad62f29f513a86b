"""Preparing a recording: rows of files as points, sorted by time, in a file of columns for each measurement."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from tsbench.encode.file_letters import EXACT
from tsbench.errors import UserMistake
from tsbench.model import Field, Kind
from tsbench.scenario import recorded_files
from tsbench.scenario.own_data import MOST_TEXTS
from tsbench.scenario.time_order import SortedPoints, UnsortedRows, write_sorted
from tsbench.text import CONTROL, printable_line, suggestion
from tsbench.units import NS_PER_S, UNITS_NS
from tsbench.workload.recording import SERIES, points_file, presence

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tsbench.scenario.own_data import FieldColumn, RecordingPart

_SPAN = (-(2**63) // 2, 2**63 // 2)
"""Times in ns that databases and the arithmetic of windows have room for: the years 1823 to 2116."""
_TIME, _SERIES = "time", "series"


def prepared(parts: Sequence[RecordingPart], scratch: Path) -> tuple[Path, dict[str, Any]]:
    """Read the files of a recording; return the directory with its points below `scratch`, and what they are.

    `parts` are its measurements, each with its files; their series are those of all of them together.

    Raises
    ------
    UserMistake
        If a row or a column does not fit: one line with file, row and cure.
    OSError
        If the points cannot be written.
    """
    directory = scratch / "points"
    directory.mkdir()
    series = _Series()
    made = [
        _Points.of(part, series, scratch / "rows.arrow", directory / points_file(number))
        for number, part in enumerate(parts)
    ]
    _write_series(series, made, directory / SERIES)
    step_ns = math.gcd(*(one.rows.step_ns for one in made))
    interval_ns = min(_interval_ns(step_ns, one) for one in made)
    unit_ns = interval_ns if interval_ns % NS_PER_S == 0 else NS_PER_S
    about = {
        "series": series.count,
        "start_ns": min(one.sorted.begins_ns[0] for one in made) // unit_ns * unit_ns,
        "last_ns": max(one.sorted.last_ns for one in made),
        "interval_ns": interval_ns,
        "step_ns": step_ns,
        "measurements": [one.about() for one in made],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return directory, {"digest": digest.hexdigest(), **about}


@dataclass
class _Points:
    """The points of a measurement that were written, and what its columns have turned out to have."""

    columns: _Columns
    rows: UnsortedRows
    sorted: SortedPoints

    @classmethod
    def of(cls, part: RecordingPart, series: _Series, rows_file: Path, out: Path) -> _Points:
        """Write the points of a measurement into `out`, its rows in the files' order into `rows_file` before."""
        columns = _Columns.of(part, series)
        while True:
            try:
                rows = _rows(part, columns, rows_file)
                break
            except _WidenedError as error:
                columns = columns.widened(error.name)
        if not rows.times:
            lines = f"lines of the measurement '{part.measurement}'"
            what = lines if recorded_files.is_lines(Path(part.files[0])) else "rows"
            raise UserMistake(f"{part.files[0]}: has no {what}")
        if all(one.lacks for one in columns.fields):
            raise UserMistake(
                f"{part.files[0]}: each field of {part.measurement} lacks a value somewhere; one has to be in each "
                "row: give it a default"
            )
        return cls(columns, rows, write_sorted(part, rows, rows_file, out))

    def about(self) -> dict[str, Any]:
        """Return what they are."""
        return {
            "name": self.columns.part.measurement,
            "rows": self.sorted.rows,
            "fields": [asdict(one.field()) for one in self.columns.fields],
            "begins_ns": self.sorted.begins_ns,
            "firsts": self.sorted.firsts,
            "skipped": self.rows.skipped,
            "replaced": self.rows.rows - self.sorted.rows,
        }


class _WidenedError(Exception):
    """A column of whole numbers has one that is none, or lacks one: it is read once more, as floats."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


# --- values -----------------------------------------------------------------------------------------------------------


class _Codes:
    """Different texts, numbered in the order in which they come."""

    def __init__(self) -> None:
        self._known = pl.DataFrame(schema={"text": pl.String, "code": pl.Int32})

    def __len__(self) -> int:
        return len(self._known)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._known["text"].to_list())

    def of(self, column: pl.Series, name: str, where: _Where, *, may_lack: bool = False) -> NDArray[np.int32]:
        """Return the numbers of texts; an empty one stands for none, where that may be.

        Raises
        ------
        UserMistake
            If a new one cannot be stored by every database.
        """
        codes = self._codes(column)
        if codes.null_count():
            new = column.filter(codes.is_null()).unique(maintain_order=True)
            for text in new.to_list():
                if (text or not may_lack) and (why := _unfit(text)):
                    at = int((column == text).arg_true()[0])
                    raise UserMistake(f"{where(at)}: {name}: the text '{printable_line(text[:80])}' {why}")
            numbers = pl.Series("code", range(len(self), len(self) + len(new)), pl.Int32)
            self._known = self._known.vstack(pl.DataFrame({"text": new, "code": numbers}))
            codes = self._codes(column)
        return codes.to_numpy()

    def _codes(self, column: pl.Series) -> pl.Series:
        asked = column.alias("text").to_frame()
        return asked.join(self._known, on="text", how="left", maintain_order="left")["code"]


@dataclass
class _FieldColumn:
    """A field, and what its column has turned out to have."""

    name: str
    part: FieldColumn
    kind: Kind | None
    lacks: bool = False
    codes: _Codes = field(default_factory=_Codes)

    def field(self) -> Field:
        return Field(self.name, self.kind or Kind.FLOAT, self.part.unit, self.lacks, self.codes.texts)

    def values(self, given: pl.Series, where: _Where) -> NDArray[Any]:
        """Return the values of a column, null where a row has none, as floats or integers, NaN for those.

        Raises
        ------
        UserMistake
            If a value is not of the field's kind.
        _WidenedError
            If integers have to be floats.
        """
        if given.dtype.is_nested() or given.dtype.is_temporal():
            kind = "a list or a structure" if given.dtype.is_nested() else "a time"
            raise UserMistake(f"recording.fields.{self.name}: column '{self.part.column}' is {kind}; take it out")
        if self.kind is None:
            self.kind = _kind_of(given, self.part)
        if isinstance(given.dtype, (pl.Categorical, pl.Enum)):
            given = given.cast(pl.String)
        if self.kind is Kind.BOOL:
            made = self._flags(given)
        elif self.kind is Kind.TEXT:
            made = given.cast(pl.String)
        else:
            made = recorded_files.numbers(given, pl.Int64 if self.kind is Kind.INT else pl.Float64)
        if (at := recorded_files.first_odd(given, made)) is not None:
            self._refuse(given, at, where)
        if self.part.default is not None:
            made = made.fill_null(self._default())
        lacking = made.null_count() > 0
        if self.kind is Kind.TEXT:
            return self._coded(made, where)
        if self.kind is Kind.FLOAT:
            return self._floats(made, where)
        if lacking and self.kind is Kind.INT:
            raise _WidenedError(self.name)
        if lacking:
            self._refuse_none(made, where)
        return made.cast(pl.Int64).to_numpy()

    def _default(self) -> Any:
        default = self.part.default
        fits = {
            Kind.TEXT: isinstance(default, str),
            Kind.BOOL: isinstance(default, bool),
        }.get(self.kind or Kind.FLOAT, isinstance(default, float) and not isinstance(default, bool))
        if not fits:
            raise UserMistake(f"recording.fields.{self.name}.default: {default!r} is no {self.kind} value")
        if self.kind is Kind.INT and isinstance(default, float):
            return int(default)
        return default

    def _flags(self, given: pl.Series) -> pl.Series:
        if given.dtype == pl.Boolean:
            return given
        texts = given.cast(pl.String)
        true, false = self.part.true or ("true", "True", "TRUE"), self.part.false or ("false", "False", "FALSE")
        said = dict.fromkeys(true, True) | dict.fromkeys(false, False)
        return texts.replace_strict(said, default=None, return_dtype=pl.Boolean)

    def _floats(self, made: pl.Series, where: _Where) -> NDArray[np.float64]:
        values: NDArray[np.float64] = made.to_numpy().astype(np.float64)
        if made.dtype.is_integer() and (np.abs(values) > EXACT).any():
            at = int(np.argmax(np.abs(values) > EXACT))
            raise UserMistake(
                f"{where(at)}: {self.part.column} is {made[at]}, which no float holds, and the column lacks values; "
                "give it a default"
            )
        if np.isinf(values).any():
            at = int(np.argmax(np.isinf(values)))
            raise UserMistake(f"{where(at)}: {self.part.column} is infinite; put such values into null, or mend them")
        self.lacks = self.lacks or bool(np.isnan(values).any())
        return values

    def _coded(self, made: pl.Series, where: _Where) -> NDArray[np.int64]:
        if made.null_count():
            self._refuse_none(made, where)
        codes = self.codes.of(made, self.part.column, where)
        if len(self.codes) > MOST_TEXTS:
            raise UserMistake(
                f"{where(0)}: '{self.part.column}' has more than {MOST_TEXTS:,} different texts; take the field out, "
                "or make it a tag"
            )
        return codes.astype(np.int64)

    def _refuse(self, given: pl.Series, at: int, where: _Where) -> None:
        if self.kind is Kind.INT and recorded_files.numbers(given, pl.Float64)[at] is not None:
            raise _WidenedError(self.name)
        known = "true or false" if self.kind is Kind.BOOL else "a number"
        cure = "true and false" if self.kind is Kind.BOOL else "null"
        raise UserMistake(
            f"{where(at)}: {self.part.column} is '{printable_line(str(given[at])[:80])}', which is not {known}; "
            f"name it in {cure}, or say type = 'text'"
        )

    def _refuse_none(self, made: pl.Series, where: _Where) -> None:
        at = int(made.is_null().arg_true()[0])
        raise UserMistake(
            f"{where(at)}: {self.part.column} has no value, and only numbers may lack; give it a default, "
            "such as default = " + ("false" if self.kind is Kind.BOOL else "'none'")
        )


def _kind_of(given: pl.Series, part: FieldColumn) -> Kind:
    """Return the kind of a field: as its keys say, else that of its first values."""
    if part.type is not None:
        return Kind(part.type)
    if part.true is not None:
        return Kind.BOOL
    if not given.count():
        given = pl.Series([part.default])
    made = recorded_files.typed(given)
    if made.dtype == pl.String:  # a text among numbers is a mistake, a number among texts is none
        are_numbers = recorded_files.numbers(given, pl.Float64).count() > given.count() / 2
        return Kind.FLOAT if are_numbers or not given.count() else Kind.TEXT
    if isinstance(made.dtype, (pl.Categorical, pl.Enum)):
        return Kind.TEXT
    return Kind.BOOL if made.dtype == pl.Boolean else Kind.INT if made.dtype.is_integer() else Kind.FLOAT


def _unfit(text: str) -> str:
    """Return why a text cannot be stored by every database; "" if it can."""
    if len(text) > 200:
        return f"has {len(text)} letters, more than 200; take the column out"
    if text.strip() != text or not text:
        return "begins or ends with a space, which not all databases tell apart; mend it"
    return "has a line end, or another character that cannot be shown; mend it" if CONTROL.search(text) else ""


@dataclass(frozen=True)
class _Nulls:
    """What stands for none."""

    texts: tuple[str, ...]
    numbers: tuple[float, ...]
    is_said: bool
    """Whether the use case says so; else texts of files with types, which have a null of their own, are as they are."""

    @classmethod
    def of(cls, part: RecordingPart) -> _Nulls:
        given = recorded_files.NULLS if part.null is None else ("", *part.null)
        numbers = tuple(float(one) for one in given if not isinstance(one, str))
        return cls(tuple(one for one in given if isinstance(one, str)), numbers, part.null is not None)

    def without(self, column: pl.Series) -> pl.Series:
        """Return the column with nulls in place of these values."""
        if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
            if not self.is_said:
                return column
            return column.set(column.cast(pl.String).is_in(self.texts).fill_null(value=False), None)
        if column.dtype == pl.String:
            lacking = column.is_in(self.texts)
            if self.numbers:
                lacking |= recorded_files.numbers(column, pl.Float64).is_in(self.numbers).fill_null(value=False)
        elif column.dtype.is_numeric():
            lacking = column.cast(pl.Float64, strict=False).is_in([*self.numbers])
            if column.dtype.is_float():
                lacking |= column.is_nan()
        else:
            return column
        if not lacking.any():
            return column
        return column.set(lacking.fill_null(value=False), None)


@dataclass(frozen=True)
class _Where:
    """The place of a row: its file, and its number in it, from 1."""

    path: str
    before: int
    rows: NDArray[Any] | None = None
    """Numbers of the rows that are left, if some were left out."""

    def __call__(self, row: int) -> str:
        number = row if self.rows is None else int(self.rows[row])
        return f"{self.path}: row {self.before + number + 1:,}"


# --- series -----------------------------------------------------------------------------------------------------------


@dataclass
class _Series:
    """The series of all measurements, and their tags: a tag is a series', whatever measurement says it."""

    texts: dict[str, _Codes] = field(default_factory=dict)
    """The values of each tag, the key first; empty without tags."""
    of_series: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """For each further tag the value of each series; -1 of those that no row has had."""

    def add(self, names: Sequence[str]) -> None:
        """Make room for tags."""
        for name in names:
            self.texts.setdefault(name, _Codes())
        for name in names[1:]:
            self.of_series.setdefault(name, np.empty(0, dtype=np.int32))

    @property
    def count(self) -> int:
        """Number of series: the values of the key."""
        return len(self.key) if self.texts else 1

    @property
    def key(self) -> _Codes:
        """The key's values."""
        return next(iter(self.texts.values()))

    def tag(self, name: str) -> NDArray[np.int32]:
        """Return the value of a further tag of all series so far."""
        known = self.of_series[name]
        if (more := self.count - len(known)) > 0:
            known = self.of_series[name] = np.concatenate([known, np.full(more, -1, dtype=np.int32)])
        return known


@dataclass
class _Columns:
    """What the columns of a measurement have turned out to have, row by row: keys, tags and texts."""

    part: RecordingPart
    series: _Series
    fields: list[_FieldColumn]
    nulls: _Nulls
    seen: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether there was a row of each series."""
    unit_ns: int = 0

    @classmethod
    def of(cls, part: RecordingPart, series: _Series) -> _Columns:
        series.add([*part.tags])
        fields = [_FieldColumn(name, one, None) for name, one in part.fields.items()]
        return cls(part, series, fields, _Nulls.of(part))

    def widened(self, name: str) -> _Columns:
        """Return this before the first row, with a field that holds floats, and the kinds that the others have."""
        new = _Columns.of(self.part, self.series)
        for one, known in zip(new.fields, self.fields, strict=True):
            one.kind = Kind.FLOAT if one.name == name else known.kind
        return new

    def series_of(self, frame: pl.DataFrame, where: _Where) -> NDArray[np.int32]:
        """Return the number of each row's series.

        Raises
        ------
        UserMistake
            If a tag has another value than before in a series.
        """
        tags = [*self.part.tags]
        series = self._coded(tags[0], frame, where) if tags else np.zeros(len(frame), dtype=np.int32)
        self.seen = np.pad(self.seen, (0, self.series.count - len(self.seen)))
        self.seen[series] = True
        for tag in tags[1:]:
            codes, known = self._coded(tag, frame, where), self.series.tag(tag)
            new = known[series] < 0
            known[series[new]] = codes[new]
            if (known[series] != codes).any():
                self._refuse_change(tag, int(np.argmax(known[series] != codes)), series, codes, where)
        return series

    def _coded(self, name: str, frame: pl.DataFrame, where: _Where) -> NDArray[np.int32]:
        columns = [frame[column].cast(pl.String).fill_null("") for column in self.part.tags[name]]
        joined = columns[0]
        for column in columns[1:]:
            joined = joined + "/" + column
        return self.series.texts[name].of(joined, f"the tag {name}", where, may_lack=True)

    def _refuse_change(
        self, name: str, row: int, series: NDArray[np.int32], codes: NDArray[np.int32], where: _Where
    ) -> None:
        key, texts = next(iter(self.part.tags)), self.series.texts[name].texts
        whose = self.series.key.texts[int(series[row])]
        was = texts[int(self.series.of_series[name][series[row]])]
        raise UserMistake(
            f"{where(row)}: {name} is '{texts[int(codes[row])]}', and was '{was}' for the {key} '{whose}' before; a "
            f"tag is the same for a series' life, so make {name} a field, or a part of the key"
        )


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(part: RecordingPart, columns: _Columns, out: Path) -> UnsortedRows:
    """Write the rows of all files as points, in the order of the files, and return what they are."""
    rows, writer = UnsortedRows(), None
    with pa.OSFile(str(out), "wb") as file:
        for path in part.files:
            before = 0
            known: set[str] = set()
            for given in recorded_files.frames(Path(path), part.measurement):
                known |= {*given.columns}
                frame = given
                if recorded_files.is_lines(Path(path)):  # in which not every line has every field
                    lacking = {column for _, column in part.columns()} - {*given.columns}
                    frame = given.with_columns(pl.lit(None).alias(column) for column in lacking)
                _expect_columns(part, frame.columns, path)
                batch, skipped = _batch(part, columns, frame, _Where(path, before))
                before += len(frame)
                rows.skipped += skipped
                if batch is None:
                    continue
                if writer is None:
                    writer = pa.ipc.new_file(file, batch.schema)
                rows.add(batch.column(0).to_numpy())
                writer.write_batch(batch)
            _expect_columns(part, known, path)
        if writer is not None:
            writer.close()
    return rows


def _expect_columns(part: RecordingPart, known: Collection[str], path: str) -> None:
    for key, column in part.columns():
        if column not in known and known:
            raise UserMistake(f"{path}: recording.{key}: there is no column '{column}'; {suggestion(column, known)}")


def _batch(part: RecordingPart, columns: _Columns, frame: pl.DataFrame, where: _Where) -> tuple[Any, int]:
    """Return rows as points (None without any), and how many were left out."""
    times = _times(part, columns, frame[part.time.column], where)
    whole = ~times.is_null()
    if part.tags:
        for name in next(iter(part.tags.values())):
            whole &= columns.nulls.without(frame[name]).is_not_null()
    given = pl.DataFrame([columns.nulls.without(frame[one.part.column]).alias(one.name) for one in columns.fields])
    has_value = pl.repeat(any(one.part.default is not None for one in columns.fields), len(frame), eager=True)
    for column in given:
        has_value |= column.is_not_null()
    whole &= has_value
    if part.incomplete == "refuse" and not whole.all():
        at = int((~whole).arg_true()[0])
        lacks = "time" if times[at] is None else "key" if has_value[at] else "value"
        raise UserMistake(f"{where(at)}: has no {lacks}; mend it, or say incomplete = 'skip' in [recording]")
    if not whole.all():
        frame, given, times = frame.filter(whole), given.filter(whole), times.filter(whole)
        where = _Where(where.path, where.before, whole.arg_true().to_numpy())
    if not len(frame):
        return None, int((~whole).sum())
    arrays = {_TIME: times.to_numpy(), _SERIES: columns.series_of(frame, where)}
    for one in columns.fields:
        arrays[one.name] = one.values(given[one.name], where)
    return pa.record_batch(arrays), int((~whole).sum())


def _times(part: RecordingPart, columns: _Columns, column: pl.Series, where: _Where) -> pl.Series:
    """Return times in ns, null where a row has none."""
    given = columns.nulls.without(column)
    asked, repeated = part.time, "null" if part.time.repeated == "refuse" else part.time.repeated
    is_lines = recorded_files.is_lines(Path(where.path))
    columns.unit_ns = columns.unit_ns or (UNITS_NS[asked.unit] if asked.unit else int(is_lines))
    try:
        made = recorded_files.times(given, asked.zone, unit_ns=columns.unit_ns, repeated=repeated)
        if (at := recorded_files.first_odd(given, made)) is not None:
            said = f"{where(at)}: {asked.column} is '{printable_line(str(given[at])[:80])}', which"
            if recorded_files.times(given, asked.zone)[at] is not None:
                cure = "say repeated = 'earliest' or 'latest' in recording.time, or record in UTC"
                raise UserMistake(f"{said} clocks in {asked.zone} showed twice; {cure}")
            if recorded_files.times(given, "UTC")[at] is not None:
                raise UserMistake(f"{said} no clock in {asked.zone} showed; is the zone right?")
            raise UserMistake(f"{said} is no time; write 2026-01-31T12:00:00Z, or numbers with a unit")
    except ValueError as error:
        raise UserMistake(f"recording.time.zone: {error}") from None
    if not columns.unit_ns and made.len() and given.drop_nulls().len():
        columns.unit_ns = _unit_of(given)
    if asked.round is not None:
        unit_ns = UNITS_NS[asked.round]
        made = made // unit_ns * unit_ns
    if ((made < _SPAN[0]) | (made >= _SPAN[1])).any():
        at = int(((made < _SPAN[0]) | (made >= _SPAN[1])).arg_true()[0])
        raise UserMistake(f"{where(at)}: {asked.column} is {given[at]}, before 1823 or after 2116; is the unit right?")
    return made


def _unit_of(given: pl.Series) -> int:
    """Return the unit of times that are numbers, so that all rows have that of the first ones; 0 for others."""
    made = recorded_files.typed(given)
    return recorded_files.unit_of(made) if made.dtype.is_numeric() else 0


# --- what they are ---------------------------------------------------------------------------------------------------


def _interval_ns(step_ns: int, points: _Points) -> int:
    """Return about the time between two points of a series: a multiple of `step_ns`, of which all times are."""
    written = points.sorted
    each = max(1.0, written.rows / max(1, int(points.columns.seen.sum())))
    mean_ns = (written.last_ns - written.begins_ns[0]) / max(1.0, each - 1)
    for unit_ns in (60 * NS_PER_S, NS_PER_S, 1_000_000, 1_000):
        if mean_ns >= 20 * unit_ns and unit_ns % step_ns == 0:
            return round(mean_ns / unit_ns) * unit_ns
    return max(1, round(mean_ns / step_ns)) * step_ns


def _write_series(series: _Series, made: Sequence[_Points], out: Path) -> None:
    """Write the tags of every series, "" where it has none, and whether measurements have points of it."""
    arrays: dict[str, Any] = {}
    for at, (name, codes) in enumerate(series.texts.items()):
        texts, numbers = codes.texts, np.arange(series.count, dtype=np.int32) if at == 0 else series.tag(name).copy()
        if (numbers < 0).any():
            numbers[numbers < 0] = texts.index("") if "" in texts else len(texts)
            texts = texts if "" in texts else (*texts, "")
        arrays[name] = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(texts, pa.string()))
    for number, one in enumerate(made):
        seen = one.columns.seen
        arrays[presence(number)] = pa.array(np.pad(seen, (0, series.count - len(seen))))
    table = pa.table(arrays)
    with pa.OSFile(str(out), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
