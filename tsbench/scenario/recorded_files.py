"""Rows of recorded data from CSV, Parquet and line protocol, as frames, and their times."""

from __future__ import annotations

import csv
import io
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tsbench.encode import line_grammar
from tsbench.encode.file_columns import Points, read_points
from tsbench.encode.point_files import opened
from tsbench.errors import Broken, UserMistake, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from tsbench.encode.file_columns import PointTable
    from tsbench.encode.point_files import Lines

T = TypeVar("T")
NULLS = ("", "NA", "NaN", "nan", "null", "NULL", "None")
"""Texts that stand for a value that is lacking."""
ROWS = 131_072
"""Rows of a frame, about."""
_BLOCK = 1 << 22
"""Bytes of CSV that are read at a time; a row is not longer."""
_COMPRESSED = (".gz", ".zst")
_NAMELESS = "without a name, "
"""Begin of the names of columns that have none and are left out: a counter of rows, or a comma too many."""
_CSV, _LINES = {".csv", ".tsv", ".txt"}, {".lp", ".line"}
_NUMBER = r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?"
_UNITS = ((1e11, 10**9), (1e14, 10**6), (1e17, 10**3), (float("inf"), 1))
"""Numbers below which a time is in seconds, ms, us or ns: the years 1973 to 5138 in each."""


def frames(path: Path, measurement: str = "") -> Iterator[pl.DataFrame]:
    """Yield the rows of a file, some at a time.

    Columns of CSV are texts, without spaces around values; in files whose values have types, texts are categories.
    Of line protocol only the lines of one `measurement` are rows, without a name those of the first one.

    Raises
    ------
    UserMistake
        If it is of no form that is read, or damaged.
    """
    kind = _kind(path)
    with _refusing(path):
        if kind != ".parquet" and kind not in _CSV | _LINES:
            said = "is neither .csv, .lp (line protocol; both with .gz or .zst, too) nor .parquet"
            made = f"polars.read_ndjson('{path.name}').write_parquet('{path.stem}.parquet')"
            cure = f'; convert it, such as by python -c "import polars; {made}"' * (kind in {".jsonl", ".ndjson"})
            raise UserMistake(f"{path}: {said}; it is '{kind or path.name}'{cure}")
        if kind in _CSV:
            yield from _csv(path)
        else:
            yield from _parquet(path) if kind == ".parquet" else _lines(path, measurement)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Raise UserMistake for a file that is absent, or damaged, in a `with` block that reads it."""
    if not path.is_file():
        raise UserMistake(f"{path}: there is no such file")
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, csv.Error, OSError, EOFError, ValueError) as error:
        raise UserMistake(f"{path}: {one_line(error)[:200]}") from None
    except Broken as error:  # of line protocol, whose reader speaks of what was stored
        said = str(error).removeprefix(f"'{path}' ").partition("; ")[0]
        raise UserMistake(f"{path}: {said}") from None


def _parquet(path: Path) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            yield cast("pl.DataFrame", pl.from_arrow(batch)).with_columns(pl.col(pl.String).cast(pl.Categorical))


def _kind(path: Path) -> str:
    """Return the suffix of a file's name that says its form."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in _COMPRESSED), "")


def is_lines(path: Path) -> bool:
    """Return whether a file has line protocol, whose times are in ns."""
    return _kind(path) in _LINES


def measurements_and_tags(path: Path, lines: int) -> dict[str, list[str]]:
    """Return the measurements of the first lines of line protocol, each with the tags that it has in these.

    Raises
    ------
    UserMistake
        If the file is damaged, or has no lines.
    """
    made: dict[str, dict[str, None]] = {}
    with _refusing(path), opened(str(path)) as blocks:
        for part in read_points(blocks, ROWS, lines, columns=True):
            heads = part.heads if isinstance(part, Points) else _each(path, part, _head)
            for name, tags in map(line_grammar.parsed_head, dict.fromkeys(heads)):
                made.setdefault(name, {}).update(dict.fromkeys(tags))
    if not made:
        raise UserMistake(f"{path}: has no rows")
    return {name: [*tags] for name, tags in made.items()}


def _head(line: bytes) -> bytes:
    return line_grammar.parts_of(line).head


def _lines(path: Path, measurement: str) -> Iterator[pl.DataFrame]:
    """Yield the lines of a measurement: `time`, its tags, and its fields."""
    with opened(str(path)) as blocks:
        for part in read_points(blocks, ROWS, columns=True):
            if isinstance(part, Points):
                heads = [line_grammar.parsed_head(head) for head in part.heads]
                measurement = measurement or heads[0][0]
                for table in part.tables:
                    if table.name == measurement:
                        yield _table(path, part, table, [tags for _, tags in heads])
                continue
            rows = []
            for name, row in _each(path, part, _row):
                measurement = measurement or name
                if name == measurement:
                    rows.append(row)
            if rows:
                yield _frame(path, rows)


def _each(path: Path, lines: Lines, read: Callable[[bytes], T]) -> Iterator[T]:
    """Yield what `read` makes of each line, but for those to skip; raises UserMistake for one that is none."""
    for number, line in enumerate(lines.split(), lines.first):
        if line_grammar.is_skipped(line):
            continue
        try:
            made = read(line)
        except line_grammar.NotALine as why:
            raise UserMistake(f"{path}: line {number:,}: {why}") from None
        yield made


def _table(path: Path, points: Points, table: PointTable, heads: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    """Return points that were read by columns, whose tags `heads` have."""
    of_row = pl.Series(points.head_of[table.rows])
    own = [heads[number] for number in of_row.unique()]
    tags = dict.fromkeys(tag for one in own for tag in one)
    if twice := next((name for name in ("time", *tags) if name in table.columns), None):
        raise UserMistake(f"{path}: '{twice}' is a tag and a field, or called as the time; rename one")
    texts = {name: pl.Series([one.get(name) for one in heads], dtype=pl.Categorical).gather(of_row) for name in tags}
    columns = {name: pl.Series(values, nan_to_null=True) for name, values in table.columns.items()}
    return pl.DataFrame({"time": table.time_ns, **texts, **columns})


def _row(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return a line's measurement, and its time, tags and fields by name."""
    parts = line_grammar.parts_of(line)
    name, tags = line_grammar.parsed_head(parts.head)
    row: dict[str, Any] = {"time": parts.time_ns, **tags}
    for own, value in zip(parts.names, parts.values, strict=True):
        if own in row:
            raise line_grammar.NotALine(f"'{own}' is a tag and a field, or called as the time; rename one")
        row[own] = line_grammar.value_of(own, value)
    return name, row


def _frame(path: Path, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as columns; whole numbers are floats in a column that has others, too."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            values = [None if value is None else float(value) for value in values]
        elif len(kinds) > 1:
            said = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise UserMistake(f"{path}: {name} has values of several types ({said}); a field of a database has one")
        column = pl.Series(name, values)
        columns.append(column.cast(pl.Categorical) if column.dtype == pl.String else column)
    return pl.DataFrame(columns)


def _csv_head(path: Path) -> tuple[list[str], str, int]:
    """Return the names of a file's columns, their separator, and the number of lines before the rows."""
    with _opened(path) as file:
        head, skipped = file.readline(1_000_000), 1
        if re.fullmatch(rb"(\xef\xbb\xbf)?sep=.\s*", head, re.IGNORECASE):  # which spreadsheets write
            head, skipped = file.readline(1_000_000), 2
    try:
        line = head.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise _not_unicode(path, 1) from None
    if not line.strip():
        raise UserMistake(f"{path}: has no rows, or an empty first line")
    if line.startswith(("#group", "#datatype", "#default")):
        cure = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value") in the query, and no annotations'
        raise UserMistake(f"{path}: is annotated CSV, a row for each field; export it with {cure}")
    separator = max(",;\t|", key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=separator))]
    if len(names) == 1:
        raise UserMistake(f"{path}: its first line has one name; put the names of its columns there: {line[:80]}")
    names = [name or f"{_NAMELESS}{number}" for number, name in enumerate(names)]
    if any(re.fullmatch(_NUMBER, name) for name in names):
        raise UserMistake(f"{path}: its first line has no names of columns: {line[:80]}")
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise UserMistake(f"{path}: two columns are called '{twice}'; rename one")
    return names, separator, skipped


def _csv(path: Path) -> Iterator[pl.DataFrame]:
    names, separator, skipped = _csv_head(path)
    nameless = [name for name in names if name.startswith(_NAMELESS)]
    with _opened(path) as file:
        try:
            reader = pa_csv.open_csv(
                file,
                read_options=pa_csv.ReadOptions(
                    column_names=names, skip_rows=skipped, use_threads=False, block_size=_BLOCK
                ),
                parse_options=pa_csv.ParseOptions(delimiter=separator),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            )
            for batch in reader:
                frame = cast("pl.DataFrame", pl.from_arrow(batch))
                yield frame.drop(nameless).with_columns(pl.all().str.strip_chars())
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                raise _not_unicode(path, _first_odd_line(path)) from None
            if "Empty CSV file" in str(error):
                return
            if "straddl" in str(error):
                raise UserMistake(f"{path}: a row is longer than {_BLOCK:,} bytes: is this CSV?") from None
            said = one_line(error).removeprefix("CSV parse error: ").replace("Row #", "line ", 1)
            raise UserMistake(f"{path}: {said[:200]}") from None


def _not_unicode(path: Path, line: int) -> UserMistake:
    cure = "convert the file, such as by iconv -f WINDOWS-1252 -t UTF-8"
    return UserMistake(f"{path}: line {line:,}: is no UTF-8; {cure}")


def _first_odd_line(path: Path) -> int:
    """Return the number of the first line that is no UTF-8."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except ValueError:
                return number
    return 0


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        count = min(len(room), len(self._rest))
        room[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; a compressed one is decompressed a piece at a time."""
    with opened(str(path)) as blocks:
        yield cast("BinaryIO", io.BufferedReader(_Blocks(blocks)))


def merged(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return a row for each time and series (`by`), with the last value that its rows have of each column."""
    return frame.group_by(by, maintain_order=True).agg(pl.all().drop_nulls().last())


# --- texts as values --------------------------------------------------------------------------------------------------


def typed(column: pl.Series) -> pl.Series:
    """Return a column of texts as booleans, integers, floats or texts: the first that all of its values can be."""
    if column.dtype != pl.String:
        return column
    present = column.drop_nulls()
    if present.is_empty():
        return column
    if present.str.to_lowercase().is_in(["true", "false"]).all():
        return column.str.to_lowercase() == "true"
    for kind in (pl.Int64, pl.Float64):
        made = numbers(column, kind)
        if made.null_count() == column.null_count():
            return made
    return column


def numbers(column: pl.Series, kind: type[pl.Int64 | pl.Float64]) -> pl.Series:
    """Return a column as numbers, null where a value is none; floats may have a decimal comma."""
    if column.dtype != pl.String:
        return column.cast(kind, strict=False)
    if kind is pl.Float64 and column.head(1_000).str.contains(r"^[+-]?\d+,\d+$").any():
        column = column.str.replace(",", ".", literal=True)
    return column.cast(kind, strict=False)


def are_mostly_numbers(column: pl.Series) -> bool:
    """Return whether a column is of numbers, so that texts among them are mistakes, or stand for none."""
    return numbers(column, pl.Float64).count() > column.count() / 2


def moments(days: pl.Series, clocks: pl.Series | None) -> pl.Series:
    """Return a column of times; of days and of times of day, one of both."""
    return days if clocks is None else days.cast(pl.String) + " " + clocks.cast(pl.String)


def form_of(texts: pl.Series) -> str | None:
    """Return the form of times whose days are as 31/12/2026 or 12/31/2026; None of others, and if both may be meant."""
    first = next(iter(texts.drop_nulls().head(1)), "") if texts.dtype == pl.String else ""
    if (seen := re.fullmatch(r"\d{1,2}([-/])\d{1,2}\1\d{4}(?: \d{1,2}:\d\d(:\d\d)?(\.\d+)?( [AP]M)?)?", first)) is None:
        return None
    mark, seconds, fraction, half = seen.groups()
    parts = texts.str.split_exact(mark, 1).struct.unnest().cast(pl.Int64, strict=False).max().row(0)
    if (parts[0] > 12) == (parts[1] > 12):
        return None
    day = f"%d{mark}%m{mark}%Y" if parts[0] > 12 else f"%m{mark}%d{mark}%Y"
    clock = f" {'%I' if half else '%H'}:%M{':%S' if seconds else ''}{'.%f' if fraction else ''}{' %p' if half else ''}"
    return day + clock * (":" in first)


def unit_of(times: pl.Series) -> int:
    """Return the likely unit of numbers that are times, in ns."""
    floats = times.cast(pl.Float64)
    middle = abs(cast("float", floats.filter(floats.is_finite()).median() or 0.0))
    return next(unit for below, unit in _UNITS if middle < below or below == float("inf"))


def times(
    column: pl.Series, zone: str, form: str | None = None, *, unit_ns: int = 0, repeated: str = "earliest"
) -> pl.Series:
    """Return times as ns since 1970, null where a value is none; those without a zone are of `zone`.

    Texts have this form (as of strftime; digits of a second without a point are `%3f`), or ISO 8601, or a day before a
    month and a year between points. What other forms mean differs from country to country.

    Parameters
    ----------
    unit_ns
        Length of the unit of numbers; 0 guesses it.
    repeated
        Which of two moments a local time stands for that a clock showed twice: `earliest`, `latest`, or `null`.

    Raises
    ------
    ValueError
        If the zone is unknown.
    """
    if isinstance(column.dtype, pl.Categorical):
        column = column.cast(pl.String)
    first = next(iter(column.drop_nulls().head(1)), "") if column.dtype == pl.String and form is None else ""
    are_texts = re.fullmatch(_NUMBER, first) is not None
    if are_texts and (whole := numbers(column, pl.Int64)).null_count() == column.null_count():
        column = whole
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False) * (unit_ns or unit_of(column))
    if are_texts or column.dtype.is_float():  # by their decimals: a float has a fourth of a microsecond at best
        texts = column.cast(pl.String).str.replace(",", ".", literal=True)
        digits = len(str(unit_ns or unit_of(numbers(texts, pl.Float64)))) - 1
        return texts.cast(pl.Decimal(38, digits), strict=False).to_physical().cast(pl.Int64, strict=False)
    is_unsure = re.match(r"\d{1,2}[-/]\d{1,2}[-/]\d", first)  # of which one is the month
    if column.dtype == pl.String and not is_unsure:
        if form is not None:  # else %f would be a number of nanoseconds
            form = form.replace(".%f", "%.f").replace("%f", "%9f")
        with suppress(pl.exceptions.PolarsError):  # of no form that it knows
            column = column.str.to_datetime(form, strict=False, time_unit="ns")
    if not isinstance(column.dtype, (pl.Datetime, pl.Date)):
        return pl.Series(column.name, [None] * len(column), pl.Int64)
    column = column.cast(pl.Datetime("ns", getattr(column.dtype, "time_zone", None)))
    if column.dtype.time_zone is None:  # type: ignore[attr-defined]  # it is a Datetime
        try:
            column = column.dt.replace_time_zone(zone, ambiguous=cast("Any", repeated), non_existent="null")
        except pl.exceptions.PolarsError as error:
            raise ValueError(one_line(error)[:100]) from None
    return column.dt.epoch("ns")


def first_odd(before: pl.Series, after: pl.Series) -> int | None:
    """Return the first row that had a value and has none any more."""
    odd = (before.is_not_null() & after.is_null()).arg_true()
    return None if odd.is_empty() else int(odd[0])
