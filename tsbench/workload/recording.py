"""The points of a recording: rows of a user's files, prepared once as columns sorted by time, by measurement."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.errors import require
from tsbench.model import Codes, Field, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    Rows = tuple[NDArray[np.int64], NDArray[np.int32], dict[str, NDArray[Any]]]
    """Columns of equal length: time (ns), number of the series, and the fields by name."""
    from pathlib import Path

__all__ = ["ABOUT", "SERIES", "Recorded", "RecordedPoints", "points_file", "presence", "recorded_at"]

ABOUT, SERIES = "about.json", "series.arrow"
"""Files of a prepared recording: what it has, and the tags of its series."""


def points_file(number: int) -> str:
    """Return the name of the file with the points (`time`, `series`, fields) of a recording's n-th measurement."""
    return f"points-{number}.arrow"


def presence(number: int) -> str:
    """Return the column, in the file of tags, that says of which series the n-th measurement has points."""
    return f"points {number}"


@dataclass(frozen=True, eq=False)
class RecordedPoints:
    """The points of one measurement of a prepared recording, or each of them `copies` times.

    `series` has the numbers of the series that it has points of. `begins_ns` has the first time of each part of the
    points, `firsts` the number of its first row.
    """

    path: Path
    name: str
    rows: int
    series: NDArray[np.int64]
    fields: tuple[Field, ...]
    begins_ns: tuple[int, ...]
    firsts: tuple[int, ...]
    skipped: int = 0
    """Rows that were left out, since they have no time, no key or no value."""
    replaced: int = 0
    """Rows that were left out, since another one of their series has their time."""
    copies: int = 1
    apart: int = 0
    """Difference between the numbers of a series and of its next copy."""

    def copied(self, copies: int, apart: int) -> RecordedPoints:
        """Return each point several times, of series whose numbers are so far apart."""
        series = np.concatenate([self.series + number * apart for number in range(copies)])
        return replace(self, rows=self.rows * copies, series=series, copies=copies, apart=apart)

    def rows_from(self, time_ns: int) -> int:
        """Return the number of points at a time and later."""
        number = max(0, int(np.searchsorted(self.begins_ns, time_ns)) - 1)
        before = self.firsts[number] + int(np.searchsorted(self._part(number)[0], time_ns))
        return self.rows - before * self.copies

    def times_ns(self, begin_ns: int, end_ns: int, *, every: float) -> NDArray[np.int64]:
        """Return the time of each `every`-th point of a time range: of the 0th, and then as many points later."""
        times, seen, number = [], 0, 0
        for part, _, _ in self.points(begin_ns, end_ns):
            last = -(-(seen + len(part)) // every)
            rows = np.floor(np.arange(number, last) * every).astype(np.int64) - seen
            times.append(part[rows[rows < len(part)]])
            number += len(times[-1])
            seen += len(part)
        return np.concatenate(times) if times else np.empty(0, dtype=np.int64)

    def _part(self, number: int) -> Rows:
        import pyarrow as pa  # noqa: PLC0415 - of an extra

        with pa.OSFile(str(self.path)) as file:
            return _columns(pa.ipc.open_file(file).get_batch(number))

    def points(self, begin_ns: int | None = None, end_ns: int | None = None) -> Iterator[Rows]:
        """Yield the points with begin_ns <= time < end_ns (None: without a limit), sorted by time, then by series."""
        import pyarrow as pa  # noqa: PLC0415 - of an extra

        first = 0 if begin_ns is None else max(0, int(np.searchsorted(self.begins_ns, begin_ns)) - 1)
        with pa.OSFile(str(self.path)) as file:
            parts = pa.ipc.open_file(file)
            for number in range(first, parts.num_record_batches):
                if end_ns is not None and self.begins_ns[number] >= end_ns:
                    return
                times, series, fields = _columns(parts.get_batch(number))
                low = 0 if begin_ns is None else int(np.searchsorted(times, begin_ns))
                high = len(times) if end_ns is None else int(np.searchsorted(times, end_ns))
                if low < high:
                    rows = times[low:high], series[low:high], {name: one[low:high] for name, one in fields.items()}
                    yield rows if self.copies == 1 else self._repeated(*rows)

    def _repeated(self, times: NDArray[np.int64], series: NDArray[np.int32], fields: dict[str, NDArray[Any]]) -> Rows:
        """Return points with their copies, sorted by time."""
        copies = np.arange(self.copies, dtype=np.int32) * np.int32(self.apart)
        every = {name: np.repeat(one, self.copies) for name, one in fields.items()}
        return np.repeat(times, self.copies), (series[:, None] + copies).ravel(), every


@dataclass(frozen=True, eq=False)
class Recorded:
    """A prepared recording.

    `interval_ns` is about the time between two points of a series (the shortest of those of its measurements),
    `start_ns` the time of the first point, rounded down to whole seconds and intervals. All times are multiples of
    `step_ns`. `tags` has the value of each tag in every series, the key first; "" stands for none.
    """

    digest: str
    series: int
    start_ns: int
    last_ns: int
    interval_ns: int
    step_ns: int
    tags: Mapping[str, Codes]
    measurements: tuple[RecordedPoints, ...]

    @property
    def rows(self) -> int:
        """Number of points of all measurements."""
        return sum(one.rows for one in self.measurements)

    @property
    def length_ns(self) -> int:
        """Time from the start to behind the last point."""
        return self.last_ns - self.start_ns + 1

    @property
    def ticks(self) -> int:
        """Number of intervals from the start to behind the last point."""
        return -(-self.length_ns // self.interval_ns)

    def copied(self, copies: int) -> Recorded:
        """Return the recording with several series in place of each; the keys of the copies end in `~1`, `~2`, ..."""
        return self if copies == 1 else _copied(self, copies)

    def of(self, measurement: str) -> RecordedPoints:
        """Return the points of a measurement."""
        return next(one for one in self.measurements if one.name == measurement)

    def ticks_of(self, share: float) -> int:
        """Return the number of intervals from the start that have about a share of the points; one at least."""
        left = self.rows - round(share * self.rows)
        behind = bisect_left(range(1, self.ticks), -left, key=lambda tick: -self.rows_from(self._time_ns(tick)))
        return behind + 1

    def _time_ns(self, tick: int) -> int:
        return self.start_ns + tick * self.interval_ns

    def rows_from(self, time_ns: int) -> int:
        """Return the number of points at a time and later."""
        return sum(one.rows_from(time_ns) for one in self.measurements)

    def times_ns(self, begin_ns: int, end_ns: int, *, every: float) -> NDArray[np.int64]:
        """Return the times of each measurement's `every`-th points of a time range, as the method of that name does."""
        times = [one.times_ns(begin_ns, end_ns, every=every) for one in self.measurements]
        return times[0] if len(times) == 1 else np.sort(np.concatenate(times))


@lru_cache(maxsize=16)  # a run makes its world many times
def _copied(of: Recorded, copies: int) -> Recorded:
    tags = {name: Codes(np.tile(one.codes, copies), one.values) for name, one in of.tags.items()}
    key = next(iter(tags))
    keys = [text if not copy else f"{text}~{copy}" for copy in range(copies) for text in of.tags[key].tolist()]
    tags[key] = Codes(np.arange(len(keys), dtype=np.int32), tuple(keys))
    points = tuple(one.copied(copies, of.series) for one in of.measurements)
    return replace(of, series=of.series * copies, tags=tags, measurements=points)


def _columns(batch: Any) -> Rows:
    names = batch.schema.names
    columns = {name: batch.column(at).to_numpy() for at, name in enumerate(names)}
    return columns.pop(names[0]), columns.pop(names[1]), columns


@lru_cache(maxsize=16)
def recorded_at(directory: Path) -> Recorded:
    """Return the prepared recording in a directory.

    Raises
    ------
    OSError
        If there is none, or not all of it.
    """
    require("pyarrow", "files")
    about = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
    series = _series(directory / SERIES)
    parts = about.pop("measurements")
    there = [np.flatnonzero(series.pop(presence(number))) for number in range(len(parts))]
    made = [_points(directory / points_file(n), one, there[n]) for n, one in enumerate(parts)]
    return Recorded(tags=series, measurements=tuple(made), **about)


def _points(path: Path, about: dict[str, Any], series: NDArray[np.int64]) -> RecordedPoints:
    path.stat()
    fields = tuple(
        Field(one["name"], Kind(one["kind"]), one["unit"], one["nullable"], tuple(one["texts"]))
        for one in about.pop("fields")
    )
    parts: dict[str, Any] = {key: tuple(about.pop(key)) for key in ("begins_ns", "firsts")}
    return RecordedPoints(path, series=series, fields=fields, **parts, **about)


def _series(path: Path) -> dict[str, Any]:
    """Return the columns of the file of tags: their codes, and whether measurements have points of a series."""
    import pyarrow as pa  # noqa: PLC0415 - of an extra

    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all().combine_chunks()
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).chunk(0)
        if pa.types.is_dictionary(column.type):
            columns[name] = Codes(column.indices.to_numpy(), tuple(column.dictionary.to_pylist()))
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns
