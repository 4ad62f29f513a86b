"""Recorded data, from CSV or Parquet, as a frame of times, series, tags and fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from tsbench.errors import UserMistake
from tsbench.scenario import recorded_files
from tsbench.text import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIME, SERIES = "time of tsbench", "series of tsbench"
"""Names of the columns with the time (ns since 1970) and the series (a text)."""
_TIMELIKE = re.compile(r"time|timestamp|ts|date|datetime|at|when|_time", re.IGNORECASE)
_THINGS = (
    "id|no|nr|number|dev|device|sensor|channel|symbol|host|machine|meter|station|node|unit|serial|asset|vehicle|truck"
    "|pump|probe|tag"
)
_IDLIKE = re.compile(rf"(?:.*[_ .-])?(?:{_THINGS})(?:[_ .-]?(?:id|no|nr|name))?", re.IGNORECASE)
_LACKING = re.compile(r"\W+|#?n/a|no ?data|missing|unknown|unavailable|undefined", re.IGNORECASE)
_MAY_DOUBLE = 0.01
"""Share of rows that may have the time of another one of their series."""
_STEADY = 0.995
"""Share of series in which a tag must have one value only."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Rows sorted by series and time, with the names of their tags (the same for all rows of a series) and fields.

    `time` is the column of times, `keys` are those that name the series, `key` the only one of them, "" for none or
    several; `dropped` the number of rows without a time or series.
    """

    frame: pl.DataFrame
    time: str
    keys: tuple[str, ...]
    key: str
    tags: tuple[str, ...]
    fields: tuple[str, ...]
    dropped: int
    measurement: str = ""
    """That of line protocol."""
    merged: bool = False
    """Whether several lines of one time and series were merged to a point each."""
    about_times: Mapping[str, str] = field(default_factory=dict)
    """What else `[recording] time` has to say beside the column, by its keys."""
    nulls: tuple[str, ...] = ()
    """Words among numbers that stand for none, beside the usual ones."""


def read(path: Path, rows: int, measurement: str = "") -> pl.DataFrame:
    """Return the first rows of a file, with the types that their values have; of line protocol those of a measurement.

    Raises
    ------
    UserMistake
        If it is of no form that is read, or damaged.
    """
    parts: list[pl.DataFrame] = []
    for frame in recorded_files.frames(path, measurement):
        parts.append(frame)  # of line protocol maybe with other columns
        if sum(map(len, parts)) >= rows:
            break
    if not parts:
        raise UserMistake(f"{path}: has no rows")
    whole = pl.concat(parts, how="diagonal_relaxed").head(rows)
    texts = [name for name, dtype in whole.schema.items() if dtype == pl.String]
    whole = whole.with_columns(pl.col(pl.Categorical).cast(pl.String))
    whole = whole.with_columns(
        pl.when(pl.col(name).is_in(recorded_files.NULLS)).then(None).otherwise(pl.col(name)).alias(name)
        for name in texts
    )
    return whole.with_columns(recorded_files.typed(whole[name]) for name in texts)


def recording(
    frame: pl.DataFrame,
    *,
    time: str | None = None,
    key: str | None = None,
    tags: Sequence[str] = (),
    zone: str = "UTC",
    form: str | None = None,
    lines: tuple[str, list[str]] | None = None,
) -> Recording:
    """Return the rows of a file as a recording; columns that are not named are guessed from names, types and values.

    Raises
    ------
    UserMistake
        If a column does not exist, none has times or numbers, or the times have a zone already.
    """
    for option, name in (("--time", time), ("--key", key), *(("--tag", tag) for tag in tags)):
        if name is not None and name not in frame.columns:
            raise UserMistake(f"{option}: there is no column '{name}'; {suggestion(name, frame.columns)}")
    time = time or _time_column(frame)
    if zone != "UTC" and (frame[time].dtype.is_numeric() or getattr(frame[time].dtype, "time_zone", None)):
        raise UserMistake(f"--zone {zone}: the times in '{time}' need none; leave it out")
    if form is not None and (lines is not None or not (_is_text(frame[time]) or frame[time].dtype.is_integer())):
        raise UserMistake(f"--time-format {form}: the times in '{time}' need none; leave it out")
    if lines is not None:
        return replace(_of_lines(frame, time, *lines), about_times={} if zone == "UTC" else {"zone": zone})
    count = len(frame)
    frame, nulls = _without_words(frame)
    clock = next(filter(partial(_has_clock, frame), frame.columns), None) if _has_days(frame[time]) else None
    moments = recorded_files.moments(frame[time], None if clock is None else frame[clock])
    form = form or recorded_files.form_of(moments)
    frame = frame.with_columns(_times(moments, zone, form).alias(TIME)).drop_nulls(TIME)
    if frame.is_empty():
        raise UserMistake(f"no row has a time in '{time}'")
    about_times = {"clock": clock, "zone": zone if zone != "UTC" else None, "format": form}
    frame = frame.drop([clock] if clock else [])
    columns = [name for name in frame.columns if name not in {time, TIME}]
    names = [key] if key is not None else _key_columns(frame, columns)
    series = pl.concat_str(names, separator=" ") if names else pl.lit("all")
    frame = frame.with_columns(series.alias(SERIES)).drop_nulls(SERIES).sort(SERIES, TIME)
    if frame.is_empty():
        raise UserMistake(f"no row has a time in '{time}' and a text in '{names[0]}'")
    others = [name for name in columns if [name] != names]
    several = bool(names) and frame[SERIES].n_unique() > 1
    kinds = {
        name
        for name in others
        if _is_text(frame[name]) or (several and frame[name].dtype.is_integer() and frame[name].n_unique() > 1)
    }
    steady = [name for name in others if name in tags or (name in kinds and _is_steady(frame, name))]
    fields = tuple(name for name in others if name not in steady and _has_values(frame[name]))
    if not fields:
        raise UserMistake("no column has values that change; fields are numbers, texts or booleans")
    return Recording(
        frame, time, (*names,), names[0] if len(names) == 1 else "", tuple(steady), fields, count - len(frame),
        about_times={key: said for key, said in about_times.items() if said is not None}, nulls=nulls,
    )  # fmt: skip


def _of_lines(frame: pl.DataFrame, time: str, measurement: str, tags: list[str]) -> Recording:
    """Return lines of a measurement as a recording: the key is the tag that determines the series, or all tags are.

    Fields of one point may stand in several lines.
    """
    frame = frame.rename({time: TIME})
    doubled = _doubled(frame, tags)
    whole = [name for name in tags if not frame[name].null_count() and _doubled(frame, [name]) <= doubled + _MAY_DOUBLE]
    names = whole[:1] or tags
    series = pl.concat_str(names, separator=" ", ignore_nulls=True) if names else pl.lit("all")
    frame = frame.with_columns(series.alias(SERIES)).sort(SERIES, TIME)
    if doubled:
        frame = recorded_files.merged(frame, [SERIES, TIME])
    fields = tuple(name for name in frame.columns if name not in {TIME, SERIES, *tags})
    others = tuple(name for name in tags if [name] != names)
    key = names[0] if len(names) == 1 else ""
    return Recording(frame, time, (*names,), key, others, fields, 0, measurement, doubled > 0)


def _is_text(column: pl.Series) -> bool:
    return column.dtype in {pl.String, pl.Categorical, pl.Boolean} or isinstance(column.dtype, pl.Enum)


def _has_values(column: pl.Series) -> bool:
    """Return whether a column has numbers, texts or booleans."""
    return column.null_count() < len(column) and not (column.dtype.is_temporal() or column.dtype.is_nested())


def _without_words(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return columns of numbers with null for words that say that one is lacking, or its unit; and these words."""
    words: dict[str, None] = {}
    texts = [frame[name] for name, dtype in frame.schema.items() if dtype == pl.String]
    for given in filter(recorded_files.are_mostly_numbers, texts):
        odd = given.filter(recorded_files.numbers(given, pl.Float64).is_null()).drop_nulls().to_list()
        is_unit = odd == [given[0]]  # a row of units below the names of columns
        if odd and (is_unit or all(map(_LACKING.fullmatch, odd))):
            words |= dict.fromkeys(odd)
            frame = frame.with_columns(recorded_files.typed(given.set(given.is_in(odd), None)))
    return frame, (*words,)


def _has_days(times: pl.Series) -> bool:
    """Return whether a column has days without times of day."""
    is_text = times.dtype == pl.String and times.count() > 0
    return times.dtype == pl.Date or (is_text and bool(times.drop_nulls().str.contains(r"^\d+([-/.]\d+){2}$").all()))


def _has_clock(frame: pl.DataFrame, name: str) -> bool:
    """Return whether a column has times of a day."""
    given = frame[name].drop_nulls()
    is_text = given.dtype == pl.String and not given.is_empty()
    return given.dtype == pl.Time or (is_text and bool(given.str.contains(r"^\d{1,2}:\d\d(:\d\d)?").all()))


def _is_steady(frame: pl.DataFrame, name: str) -> bool:
    """Return whether a column has one value in nearly each series."""
    values = frame.group_by(SERIES).agg(pl.col(name).n_unique().alias("n"))["n"]  # a null is one, too
    return len(values) > 0 and int((values == 1).sum()) >= _STEADY * len(values)


def _time_column(frame: pl.DataFrame) -> str:
    for name in frame.columns:
        if isinstance(frame[name].dtype, (pl.Datetime, pl.Date)):
            return name
    for name in frame.columns:
        if _TIMELIKE.fullmatch(name.strip()):
            return name
    for name, dtype in frame.schema.items():
        if dtype == pl.String and _are_times(frame[name].drop_nulls()):
            return name
    raise UserMistake(f"no column looks like a time; say --time COLUMN, one of {', '.join(frame.columns[:20])}")


def _are_times(texts: pl.Series) -> bool:
    try:
        some = recorded_files.times(texts.head(100), "UTC", recorded_files.form_of(texts))
        return not texts.is_empty() and some.null_count() == 0
    except (ValueError, pl.exceptions.PolarsError):
        return False


def _times(column: pl.Series, zone: str, form: str | None) -> pl.Series:
    """Return times as ns since 1970; those without a zone are of `zone`, and texts of this form."""
    column = column if form is None else column.cast(pl.String)  # 20261231 was taken for a number
    try:
        made = recorded_files.times(column, zone, form)
    except ValueError as error:
        raise UserMistake(f"--zone: {error}") from None
    if made.null_count() == len(column):
        said = f"'{column.name}' has no times that are understood" + f" as '{form}'" * (form is not None)
        raise UserMistake(f"{said}; write 2026-01-31T12:00:00Z, or say --time-format '%m/%d/%Y %H:%M:%S'")
    return made


def _key_columns(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the column whose values name the series, or two of them; none if all rows are of one series.

    A column with the name of a thing goes first, then the one with the fewest values whose series have each time once.
    """
    some = [
        name for name in may_name_series(frame.select(names)) if frame[name].dtype == pl.String or _names_thing(name)
    ]
    candidates = sorted(some, key=lambda name: (not _names_thing(name), frame[name].n_unique()))
    is_one = _doubled(frame, []) <= _MAY_DOUBLE
    for name in candidates:
        if (not is_one or _names_thing(name)) and _doubled(frame, [name]) <= _MAY_DOUBLE:
            return [name]
    if is_one:
        return []
    pairs = ([*pair] for pair in combinations(candidates, 2))
    return next((pair for pair in pairs if _doubled(frame, pair) <= _MAY_DOUBLE), candidates[-1:])


def may_name_series(frame: pl.DataFrame) -> list[str]:
    """Return the columns of texts or whole numbers that each row has, and several rows the same of."""
    kinds = [name for name, dtype in frame.schema.items() if dtype == pl.String or dtype.is_integer()]
    return [name for name in kinds if not frame[name].null_count() and 1 < frame[name].n_unique() < len(frame) / 2]


def _names_thing(name: str) -> bool:
    return _IDLIKE.fullmatch(name.strip()) is not None or name.endswith(("ID", "Id"))


def _doubled(frame: pl.DataFrame, names: list[str]) -> float:
    """Return the share of rows that have the time of another one with the same values in these columns."""
    return 1 - int(frame.select(pl.struct([TIME, *names]).n_unique()).item()) / len(frame)
