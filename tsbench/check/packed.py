"""Rows of an answer as columns of numbers, in which millions of values are compared at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row

_INT64 = range(-(2**63), 2**63)


@dataclass(slots=True, eq=False)
class Packed:
    """Canonical rows, sorted by time and series: `values` is of shape (rows, fields).

    `series` are numbers of the world's series, all 0 where answers have no key. `odd` has the rows that no right answer
    can contain: without a time, of an unknown series, or with a value that is no number.
    """

    time_ns: NDArray[np.int64]
    series: NDArray[np.int64]
    values: NDArray[np.float64]
    odd: list[Row] = field(default_factory=list)

    @classmethod
    def empty(cls, fields: int) -> Packed:
        """Return no rows."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, fields)))

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, chosen: slice | NDArray[Any]) -> Packed:
        """Return some rows, without the odd ones."""
        return Packed(self.time_ns[chosen], self.series[chosen], self.values[chosen])

    def sorted(self) -> Packed:
        """Return the rows sorted by time and series."""
        return self.take(np.lexsort((self.series, self.time_ns)))

    def same_places(self, other: Packed) -> bool:
        """Return True if both have rows of the same times and series."""
        return np.array_equal(self.time_ns, other.time_ns) and np.array_equal(self.series, other.series)

    def agrees(self, other: Packed, allowed: float) -> bool:
        """Return True if all rows are equal, numbers within a relative tolerance, and none are odd."""
        return not self.odd and not other.odd and self.same_places(other) and bool(self.equal(other, allowed).all())

    def equal(self, other: Packed, allowed: float) -> NDArray[np.bool_]:
        """Return for each value whether it equals the one in the same place, of shape (rows, fields)."""
        one, two = self.values, other.values
        equal: NDArray[np.bool_] = one == two
        if not equal.all():
            with np.errstate(invalid="ignore"):
                near = np.abs(one - two) <= allowed * np.maximum(np.abs(one), np.abs(two))
            equal |= (near & np.isfinite(one) & np.isfinite(two)) | (np.isnan(one) & np.isnan(two))
        return equal

    def rows(self, keys: Sequence[str] | None) -> list[Row]:
        """Return the rows in canonical form, sorted; `keys` are the names of the series, None where rows have none."""
        times, values = self.time_ns.tolist(), self.values.tolist()
        if keys is None:
            return sorted((time_ns, *row) for time_ns, row in zip(times, values, strict=True))
        names = [keys[series] for series in self.series.tolist()]
        return sorted((time_ns, name, *row) for time_ns, name, row in zip(times, names, values, strict=True))


def join_packed(tables: Sequence[Packed]) -> Packed:
    """Concatenate rows in their order, without the odd ones."""
    return Packed(
        np.concatenate([table.time_ns for table in tables]),
        np.concatenate([table.series for table in tables]),
        np.concatenate([table.values for table in tables]),
    )


def pack(rows: Sequence[Row], series_of: Mapping[str, int] | None, fields: int) -> Packed:
    """Return canonical rows as columns; `series_of` has the number of each key, None where rows have none."""
    width = fields + (1 if series_of is None else 2)
    found = _columns(rows, series_of, width)
    if found is not None:
        return found.sorted()
    plain = [_is_plain(row, series_of, width) for row in rows]
    good = _columns([row for row, is_plain in zip(rows, plain, strict=True) if is_plain], series_of, width)
    packed = Packed.empty(fields) if good is None else good.sorted()
    packed.odd = [tuple(row) for row, is_plain in zip(rows, plain, strict=True) if not is_plain]
    return packed


def _columns(rows: Sequence[Row], series_of: Mapping[str, int] | None, width: int) -> Packed | None:
    """Return the rows as columns in their order; None if one of them is odd."""
    if not rows:
        return Packed.empty(width - 1 - (series_of is not None))
    if set(map(len, rows)) != {width}:
        return None
    times, *columns = zip(*rows, strict=True)
    series = [0] * len(rows)
    if series_of is not None:
        keys, *columns = columns
        series = [series_of.get(key, -1) if type(key) is str else -1 for key in keys]
    are_numbers = set(map(type, times)) == {int} and all(set(map(type, column)) == {float} for column in columns)
    if not are_numbers or min(series) < 0 or min(times) not in _INT64 or max(times) not in _INT64:
        return None
    values = np.array(columns, dtype=np.float64).T if columns else np.empty((len(rows), 0))
    return Packed(np.array(times, dtype=np.int64), np.array(series, dtype=np.int64), values)


def _is_plain(row: Row, series_of: Mapping[str, int] | None, width: int) -> bool:
    if len(row) != width or type(row[0]) is not int or row[0] not in _INT64:
        return False
    if series_of is not None and (type(row[1]) is not str or row[1] not in series_of):
        return False
    return all(type(value) is float for value in row[1 if series_of is None else 2 :])
