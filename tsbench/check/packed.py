"""Rows of an answer as columns of numbers, in which millions of values are compared at once; in memory or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from tempfile import TemporaryFile
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.comparison import Computed, canonical_column, canonical_columns, forms_of, in_order
from tsbench.model import ByColumn, Codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.model import Rows, Stored

_INT64 = range(-(2**63), 2**63)
_NUMBERS = {float, int}
_PIECE = 65_536
"""Number of series whose names are made at a time."""
_IN_A_FLOAT = 2**53
"""Integers up to this magnitude are exact as floats."""


class SeriesNames(Sequence[Any]):
    """The names of all series, and the number of each by its hash, in 12 bytes a series where a dict takes 70 to 140.

    A name is a key, or all tags of a series, of which some may be None.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self._names = names
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes = hashes[self._order]

    @classmethod
    def of_tags(cls, tags: Sequence[Codes], series: int) -> SeriesNames:
        """Return the names of series by all their tags."""
        return cls(_Tags(tags, series) if tags else [()] * series)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: Any) -> Any:
        return self._names[number]

    def numbers_of(self, names: Sequence[Any]) -> NDArray[np.int64]:
        """Return the number of each series by its name, -1 for unknown names.

        Raises
        ------
        TypeError
            If a name is of a type that none can have.
        """
        place_of: dict[Any, int] = {}  # of a stretch of rows few are different, and tuples are hashed each time
        places_of_names = np.array([place_of.setdefault(name, len(place_of)) for name in names], dtype=np.intp)
        distinct = [*place_of]
        numbers = np.full(len(distinct), -1, dtype=np.int64)
        if len(self._names) and distinct:
            hashes = np.fromiter(map(hash, distinct), np.int64, len(distinct))
            places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._names) - 1)
            known = [self._names[number] for number in self._order[places].tolist()]
            same = [one == other for one, other in zip(known, distinct, strict=True)]
            numbers = np.where(same, self._order[places], -1).astype(np.int64)
        return numbers[places_of_names]


class _Tags(Sequence[tuple[Any, ...]]):
    """All tags of each series, None where one is lacking."""

    def __init__(self, tags: Sequence[Codes], series: int) -> None:
        self._columns = [(one.codes, tuple(value or None for value in one.values)) for one in tags]
        self._series = series

    def __len__(self) -> int:
        return self._series

    def __getitem__(self, number: Any) -> Any:
        return tuple(values[int(codes[number])] for codes, values in self._columns)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for start in range(0, self._series, _PIECE):
            part = slice(start, start + _PIECE)
            yield from zip(
                *([values[code] for code in codes[part].tolist()] for codes, values in self._columns), strict=True
            )


@dataclass(slots=True, eq=False)
class Packed:
    """Canonical rows, sorted by time and series: `values` is of shape (rows, fields).

    Of the same shape are `rest`, what the floats in `values` lack of large integers (None: nothing), and `within`, by
    how much an answer may differ from gold values that were computed (None: not at all).

    `series` are numbers of the world's series, all 0 where answers have no key. `odd` has the rows that no right answer
    can contain: without a time, of an unknown series, or with a value that is no number.
    """

    time_ns: NDArray[np.int64]
    series: NDArray[np.int64]
    values: NDArray[np.float64]
    odd: list[Row] = field(default_factory=list)
    rest: NDArray[np.float64] | None = None
    within: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, time_ns: NDArray[np.int64], series: NDArray[np.int64], columns: Sequence[NDArray[Any]]) -> Packed:
        """Return rows with columns of floats or integers as their values."""
        values = np.empty((len(time_ns), len(columns)))
        rest = None
        for place, column in enumerate(columns):
            values[:, place] = column
            if is_beyond_floats(column):
                rest = np.zeros_like(values) if rest is None else rest
                rest[:, place] = _rest(column.tolist(), values[:, place])
        return cls(time_ns, series, values, rest=rest)

    @classmethod
    def empty(cls, fields: int) -> Packed:
        """Return no rows."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, fields)))

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, chosen: slice | NDArray[Any]) -> Packed:
        """Return some rows, without the odd ones."""
        rest, within = (None if more is None else more[chosen] for more in (self.rest, self.within))
        return Packed(self.time_ns[chosen], self.series[chosen], self.values[chosen], rest=rest, within=within)

    def sorted(self) -> Packed:
        """Return the rows sorted by time and series."""
        return self.take(np.lexsort((self.series, self.time_ns)))

    def same_places(self, other: Packed) -> bool:
        """Return True if both have rows of the same times and series."""
        return np.array_equal(self.time_ns, other.time_ns) and np.array_equal(self.series, other.series)

    def agrees(self, other: Packed) -> bool:
        """Return True if all rows of an answer equal these of gold, and none are odd."""
        return not self.odd and not other.odd and self.same_places(other) and bool(self.equal(other).all())

    def equal(self, other: Packed) -> NDArray[np.bool_]:
        """Return for each value whether an answer's in the same place equals it, of shape (rows, fields)."""
        one, two = self.values, other.values
        equal: NDArray[np.bool_] = one == two
        if self.within is None and not (self.rest is None and other.rest is None):
            rests = (np.zeros_like(one) if rest is None else rest for rest in (self.rest, other.rest))
            equal &= np.equal(*rests)
        if not equal.all():
            equal |= np.isnan(one) & np.isnan(two)
            if self.within is not None:
                with np.errstate(invalid="ignore"):
                    equal |= np.abs(one - two) <= self.within
        return equal

    def rows(self, keys: Sequence[Any] | None) -> list[Row]:
        """Return the rows in canonical form, sorted; `keys` are the names of the series, None where rows have none."""
        times, values = self.time_ns.tolist(), self._numbers()
        if keys is None:
            return in_order([(time_ns, *row) for time_ns, row in zip(times, values, strict=True)])
        names = [keys[series] for series in self.series.tolist()]
        return in_order([(time_ns, name, *row) for time_ns, name, row in zip(times, names, values, strict=True)])

    def _numbers(self) -> list[list[float]]:
        """Return the values of every row."""
        numbers: list[list[float]] = self.values.tolist()
        if self.within is not None:
            return [[*map(Computed.of, *both)] for both in zip(numbers, self.within.tolist(), strict=True)]
        if self.rest is None:
            return numbers
        return [
            [int(value) + int(more) if more else value for value, more in zip(*both, strict=True)]
            for both in zip(numbers, self.rest.tolist(), strict=True)
        ]


def is_beyond_floats(column: NDArray[Any]) -> bool:
    """Return True if a column has integers that may not be exact as floats."""
    return column.dtype.kind == "i" and len(column) > 0 and max(column.max(), -int(column.min())) > _IN_A_FLOAT


def _rest(exact: Sequence[float], rounded: NDArray[np.float64]) -> list[float]:
    """Return what floats lack of integers."""
    pairs = zip(exact, rounded.tolist(), strict=True)
    return [float(one - int(other)) if type(one) is int else 0.0 for one, other in pairs]


def join_packed(tables: Sequence[Packed]) -> Packed:
    """Concatenate rows in their order, without the odd ones."""
    rest = None
    if any(table.rest is not None for table in tables):
        rest = np.concatenate([np.zeros_like(table.values) if table.rest is None else table.rest for table in tables])
    return Packed(
        np.concatenate([table.time_ns for table in tables]),
        np.concatenate([table.series for table in tables]),
        np.concatenate([table.values for table in tables]),
        rest=rest,
    )


def pack(rows: Sequence[Row], names: SeriesNames | None, fields: int, *, nullable: bool = False) -> Packed:
    """Return canonical rows as columns; `names` are the keys of the series, None where rows have none.

    If rows are `nullable`, None is NaN in the columns, and a NaN that an answer has makes its row an odd one.
    """
    width = fields + (1 if names is None else 2)
    kinds = {*_NUMBERS, NoneType} if nullable else _NUMBERS
    columns = _columns(rows, names, width, kinds)
    if columns is not None:
        return columns.sorted()
    plain = _plain(rows, names, width, kinds)
    good = _columns([row for row, is_plain in zip(rows, plain, strict=True) if is_plain], names, width, kinds)
    packed = Packed.empty(fields) if good is None else good.sorted()
    packed.odd = [tuple(row) for row, is_plain in zip(rows, plain, strict=True) if not is_plain]
    return packed


def pack_stored(query: Stored, rows: Rows, names: SeriesNames) -> Packed:
    """Return stored rows as columns; `names` are all tags of each series.

    A row that no point of the world makes is an odd one, in canonical form with all its columns: one of other tags,
    with a field or tag more, or with a value that is no number.
    """
    fields, forms = len(query.measurement.fields), forms_of(query)
    if not len(rows):
        return Packed.empty(fields)
    are_floats = [name in forms.floats for name in query.measurement.field_names]
    columns = rows.records.columns if isinstance(rows.records, ByColumn) else rows.by_column()
    packed = None if forms.labels else _stored_numbers(columns, names, are_floats)
    if packed is not None:
        return packed.sorted()
    kinds = {*_NUMBERS, NoneType}
    times, *named, others = canonical_columns(rows, forms, odd_as_text=True)
    tags, values = named[: len(named) - fields], named[len(named) - fields :]
    keys = _joined(tags, len(times))
    given = [*zip(times, keys, *values, strict=True)]
    of_names = _plain(given, names, fields + 2, kinds)
    plain = [other is None and is_plain for is_plain, other in zip(of_names, others, strict=True)]
    good = _columns([row for row, is_plain in zip(given, plain, strict=True) if is_plain], names, fields + 2, kinds)
    packed = Packed.empty(fields) if good is None else good.sorted()
    whole = zip(times, *named, others, strict=True)
    packed.odd = [row for row, is_plain in zip(whole, plain, strict=True) if not is_plain]
    return packed


def _stored_numbers(columns: Sequence[Any], names: SeriesNames, are_floats: Sequence[bool]) -> Packed | None:
    """Return stored rows as columns in their order, as most are; None if a row is odd or a value of another type.

    `are_floats` says of each field whether it holds floats: a whole one may come as an integer.
    """
    times, *named, others = columns
    fields, is_array = len(are_floats), isinstance(times, np.ndarray) and times.dtype.kind == "i"
    if others.count(None) < len(others) or (not is_array and {*map(type, times)} - {int, datetime}):
        return None
    try:
        series = _series_of(named[: len(named) - fields], names, len(times))
        time_ns = times if is_array else np.array(canonical_column(times, of_time=True), dtype=np.int64)
        values = [*map(_of_one_type, named[len(named) - fields :], are_floats)]
    except (TypeError, OverflowError):  # a tag of a strange type, a number too large
        return None
    if series.min() < 0 or any(column is None for column in values):
        return None
    return Packed.of(time_ns, series, [column for column in values if column is not None])


def _series_of(tags: Sequence[Any], names: SeriesNames, rows: int) -> NDArray[np.int64]:
    """Return the numbers of the series by all their tags, -1 where these are of none; of tags apart, once a series."""
    codes = [column.codes for column in tags if isinstance(column, Codes)]
    if codes and len(codes) == len(tags) and all(one is codes[0] for one in codes):
        used, which = np.unique(codes[0], return_inverse=True)  # of a million series few have points in a stretch
        texts = [column.values for column in tags]
        pieces = (used[start : start + _PIECE].tolist() for start in range(0, len(used), _PIECE))
        of_each = [names.numbers_of([tuple(column[one] for column in texts) for one in piece]) for piece in pieces]
        return np.concatenate(of_each)[which]
    return names.numbers_of(
        _joined([column.tolist() if isinstance(column, Codes) else column for column in tags], rows)
    )


def _of_one_type(column: Sequence[Any] | NDArray[Any], is_float: bool) -> NDArray[Any] | None:
    """Return numbers, of which some may be None, as an array; None for any others."""
    if isinstance(column, np.ndarray):
        return column if is_float or column.dtype.kind == "i" else None
    kinds = {*map(type, column)}
    if kinds == {int} and not is_float:
        return np.array(column, dtype=np.int64)
    numbers = {float, int, NoneType} if is_float else {float, NoneType}
    values = np.array(column, dtype=np.float64) if kinds <= numbers else None
    return None if values is None or np.isnan(values).sum() > column.count(None) else values


def _joined(columns: Sequence[Sequence[Any]], rows: int) -> Sequence[tuple[Any, ...]]:
    return [*zip(*columns, strict=True)] if columns else [()] * rows


def _columns(rows: Sequence[Row], names: SeriesNames | None, width: int, numbers: set[type]) -> Packed | None:
    """Return the rows as columns in their order; None if one of them is odd."""
    if not rows:
        return Packed.empty(width - 1 - (names is not None))
    if set(map(len, rows)) != {width}:
        return None
    times, *columns = zip(*rows, strict=True)
    keys: Sequence[Any] = ()
    if names is not None:
        keys, *columns = columns
    return _numbers_of(times, keys, columns, names, numbers)


def _numbers_of(
    times: Sequence[Any],
    keys: Sequence[Any],
    columns: Sequence[Sequence[Any]],
    names: SeriesNames | None,
    numbers: set[type],
) -> Packed | None:
    """Return columns of canonical values as those of numbers, in their order; None if a row is odd."""
    series = np.zeros(len(times), dtype=np.int64) if names is None else names.numbers_of(keys)
    kinds = [set(map(type, column)) for column in columns]
    are_numbers = set(map(type, times)) == {int} and all(kind <= numbers for kind in kinds)
    if not are_numbers or series.min() < 0 or min(times) not in _INT64 or max(times) not in _INT64:
        return None
    values = np.array(columns, dtype=np.float64).T if columns else np.empty((len(times), 0))
    if NoneType in numbers and np.isnan(values).sum() != sum(column.count(None) for column in columns):
        return None
    rest = None
    if any(int in kind for kind in kinds):
        rest = np.array([_rest(column, one) for column, one in zip(columns, values.T, strict=True)]).T
    return Packed(np.array(times, dtype=np.int64), series, values, rest=rest)


def _plain(rows: Sequence[Row], names: SeriesNames | None, width: int, numbers: set[type]) -> list[bool]:
    """Return for each row whether columns hold it: of a known series, with a time and numbers."""
    plain = [_is_of_numbers(row, width, 1 if names is None else 2, numbers) for row in rows]
    if names is None:
        return plain
    known = iter(names.numbers_of([row[1] for row, is_plain in zip(rows, plain, strict=True) if is_plain]).tolist())
    return [is_plain and next(known) >= 0 for is_plain in plain]


def _is_of_numbers(row: Row, width: int, first: int, numbers: set[type]) -> bool:
    if len(row) != width or type(row[0]) is not int or row[0] not in _INT64:
        return False
    values = row[first:]
    return all(type(value) in numbers and (value == value or NoneType not in numbers) for value in values)  # noqa: PLR0124


class SpoolFile:
    """A temporary file, in which answers wait until they are compared and occupy no memory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - `close` closes it

    def keep(self, answer: Packed) -> Callable[[], Packed]:
        """Write an answer to the file, and return a function that reads it.

        Raises
        ------
        OSError
            If the disk is full.
        """
        shape, odd = answer.values.shape, answer.odd
        start = self._file.seek(0, 2)
        rest = answer.rest is not None
        for column in (
            answer.time_ns,
            answer.series,
            answer.values,
            *([answer.rest] if answer.rest is not None else []),
        ):
            np.ascontiguousarray(column).tofile(self._file)

        def read() -> Packed:
            self._file.seek(start)
            time_ns, series = (np.fromfile(self._file, np.int64, shape[0]) for _ in range(2))
            values, *more = (
                np.fromfile(self._file, np.float64, shape[0] * shape[1]).reshape(shape) for _ in range(1 + rest)
            )
            return Packed(time_ns, series, values, [*odd], *more)

        return read

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
