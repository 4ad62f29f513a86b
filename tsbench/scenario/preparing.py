"""Preparing a recording: rows of files as points, sorted by time, in a file of columns for each measurement."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa

from tsbench.errors import UserMistake
from tsbench.scenario import recorded_files
from tsbench.scenario.recorded_values import NullValues, RowPlace, TextCodes, ValueColumn, WidenedError
from tsbench.scenario.time_order import SortedPoints, UnsortedRows, write_sorted
from tsbench.text import printable_line, suggestion
from tsbench.units import NS_PER_S, UNITS_NS
from tsbench.workload.recording import SERIES, points_file, presence

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tsbench.scenario.own_data import RecordingPart

_SPAN = (-(2**63) // 2, 2**63 // 2)
"""Times in ns that databases and the arithmetic of windows have room for: the years 1823 to 2116."""
_TIME, _SERIES = "time of the point", "series of the point"
"""Columns of points before their fields, which have no such names."""


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
                if not rows.times:
                    lines = f"lines of the measurement '{part.measurement}'"
                    what = lines if recorded_files.is_lines(Path(part.files[0])) else "rows"
                    raise UserMistake(f"{part.files[0]}: has no {what}")
                written = write_sorted(part, rows, rows_file, out, columns.merged)
                break
            except WidenedError as error:
                columns = columns.widened(error)
        return cls(columns, rows, written)

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


# --- series -----------------------------------------------------------------------------------------------------------


@dataclass
class _Series:
    """The series of all measurements, and their tags: a tag is a series', whatever measurement says it."""

    texts: dict[str, TextCodes] = field(default_factory=dict)
    """The values of each tag, the key first; empty without tags."""
    of_series: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """For each further tag the value of each series; -1 of those that no row has had."""

    def add(self, names: Sequence[str]) -> None:
        """Make room for tags."""
        for name in names:
            self.texts.setdefault(name, TextCodes())
        for name in names[1:]:
            self.of_series.setdefault(name, np.empty(0, dtype=np.int32))

    @property
    def count(self) -> int:
        """Number of series: the values of the key."""
        return len(self.key) if self.texts else 1

    @property
    def key(self) -> TextCodes:
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
    fields: list[ValueColumn]
    nulls: NullValues
    seen: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether a row of each series has come."""
    unit_ns: int = 0

    @classmethod
    def of(cls, part: RecordingPart, series: _Series) -> _Columns:
        series.add([*part.tags])
        merges = part.duplicates == "merge"
        fields = [ValueColumn(name, one, None, merges) for name, one in part.fields.items()]
        return cls(part, series, fields, NullValues.of(part))

    def widened(self, error: WidenedError) -> _Columns:
        """Return this before the first row, with room in a field's column, and the types that the others have."""
        fields = [one.again(error) for one in self.fields]
        return _Columns(self.part, self.series, fields, self.nulls)

    def merged(self, table: Any, *, doubled: bool) -> Any:
        """Return sorted parts of points as points, of which some have several parts if `doubled`."""
        frame = cast("pl.DataFrame", pl.from_arrow(table))
        if doubled:
            frame = recorded_files.merged(frame, [_TIME, _SERIES])

        def where(row: int) -> str:
            when = np.datetime_as_string(np.datetime64(frame[_TIME][row], "ns"))
            return f"{self.part.files[0]}: the point of {when}Z"

        return frame.with_columns(one.whole(frame[one.name], where).alias(one.name) for one in self.fields).to_arrow()

    def series_of(self, frame: pl.DataFrame, where: RowPlace) -> NDArray[np.int32]:
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

    def _coded(self, name: str, frame: pl.DataFrame, where: RowPlace) -> NDArray[np.int32]:
        columns = [frame[column].cast(pl.String).fill_null("") for column in self.part.tags[name]]
        joined = columns[0]
        for column in columns[1:]:
            joined = joined + "/" + column
        return self.series.texts[name].of(joined, f"the tag {name}", where, may_lack=True).to_numpy().astype(np.int32)

    def _refuse_change(
        self, name: str, row: int, series: NDArray[np.int32], codes: NDArray[np.int32], where: RowPlace
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
                batch, skipped = _batch(part, columns, frame, RowPlace(path, before))
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


def _batch(part: RecordingPart, columns: _Columns, frame: pl.DataFrame, where: RowPlace) -> tuple[Any, int]:
    """Return rows as points (None without any), and how many were left out."""
    clocks = None if part.time.clock is None else columns.nulls.without(frame[part.time.clock])
    moments = recorded_files.moments(columns.nulls.without(frame[part.time.column]), clocks)
    times = _times(part, columns, moments, where)
    whole = ~times.is_null()
    if part.tags:
        for name in next(iter(part.tags.values())):
            whole &= columns.nulls.without(frame[name]).is_not_null()
    given = pl.DataFrame([columns.nulls.without(frame[one.part.column]).alias(one.name) for one in columns.fields])
    merges = part.duplicates == "merge"  # a part of a point may have other fields only
    has_default = any(one.part.default is not None for one in columns.fields) and not merges
    has_value = pl.repeat(has_default, len(frame), eager=True)
    for column in given:
        has_value |= column.is_not_null()
    incomplete = ~whole & has_value if merges else ~(whole & has_value)
    whole &= has_value
    if part.incomplete == "refuse" and incomplete.any():
        at = int(incomplete.arg_true()[0])
        lacks = "time" if times[at] is None else "key" if has_value[at] else "value"
        raise UserMistake(f"{where(at)}: has no {lacks}; mend it, or say incomplete = 'skip' in [recording]")
    if not whole.all():
        frame, given, times = frame.filter(whole), given.filter(whole), times.filter(whole)
        where = RowPlace(where.path, where.before, whole.arg_true().to_numpy())
    if not len(frame):
        return None, int((~whole).sum())
    arrays: dict[str, Any] = {_TIME: times.to_numpy(), _SERIES: columns.series_of(frame, where)}
    for one in columns.fields:
        arrays[one.name] = one.values(given[one.name], where).to_arrow()
    return pa.record_batch(arrays), int((~whole).sum())


def _times(part: RecordingPart, columns: _Columns, given: pl.Series, where: RowPlace) -> pl.Series:
    """Return times in ns, null where a row has none."""
    asked, repeated = part.time, "null" if part.time.repeated == "refuse" else part.time.repeated
    is_lines = recorded_files.is_lines(Path(where.path))
    columns.unit_ns = columns.unit_ns or (UNITS_NS[asked.unit] if asked.unit else int(is_lines))
    try:
        made = recorded_files.times(given, asked.zone, asked.format, unit_ns=columns.unit_ns, repeated=repeated)
        if (at := recorded_files.first_odd(given, made)) is not None:
            said = f"{where(at)}: {asked.column} is '{printable_line(str(given[at])[:80])}', which"
            if recorded_files.times(given, asked.zone, asked.format)[at] is not None:
                cure = "say repeated = 'earliest' or 'latest' in recording.time, or record in UTC"
                raise UserMistake(f"{said} clocks in {asked.zone} showed twice; {cure}")
            if recorded_files.times(given, "UTC", asked.format)[at] is not None:
                raise UserMistake(f"{said} no clock in {asked.zone} showed; is the zone right?")
            raise UserMistake(
                f"{said} is no time; write 2026-01-31T12:00:00Z, or numbers, or say format in recording.time"
            )
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
    """Write the tags of every series, "" for none, and of which series measurements have points."""
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
