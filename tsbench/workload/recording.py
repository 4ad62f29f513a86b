"""The points of a recording: rows of a user's files, prepared once as columns sorted by time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
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

__all__ = ["ABOUT", "POINTS", "SERIES", "Recorded", "recorded_at"]

ABOUT, POINTS, SERIES = "about.json", "points.arrow", "series.arrow"
"""Files of a prepared recording: what it has, its points (`time`, `series`, fields), and the tags of its series."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A prepared recording.

    `interval_ns` is about the time between two points of a series, `start_ns` the time of the first point, rounded down
    to whole seconds and intervals. All times are multiples of `step_ns`. `begins_ns` has the first time of each part of
    the points, `firsts` the number of its first row.
    """

    directory: Path
    digest: str
    rows: int
    series: int
    start_ns: int
    last_ns: int
    interval_ns: int
    step_ns: int
    fields: tuple[Field, ...]
    begins_ns: tuple[int, ...]
    firsts: tuple[int, ...]
    skipped: int = 0
    """Rows that were left out, since they have no time, no key or no value."""
    replaced: int = 0
    """Rows that were left out, since another one of their series has their time."""

    @property
    def length_ns(self) -> int:
        """Time from the start to behind the last point."""
        return self.last_ns - self.start_ns + 1

    @property
    def ticks(self) -> int:
        """Number of intervals from the start to behind the last point."""
        return -(-self.length_ns // self.interval_ns)

    def ticks_of(self, share: float) -> int:
        """Return the number of intervals from the start that have about a share of the points; one at least."""
        row = round(share * self.rows)
        if row >= self.rows:
            return self.ticks
        number = int(np.searchsorted(self.firsts, row, side="right")) - 1
        time_ns = int(self._part(number)[0][row - self.firsts[number]])
        return max(1, round((time_ns - self.start_ns) / self.interval_ns))

    def rows_from(self, time_ns: int) -> int:
        """Return the number of points at a time and later."""
        number = max(0, int(np.searchsorted(self.begins_ns, time_ns)) - 1)
        return self.rows - self.firsts[number] - int(np.searchsorted(self._part(number)[0], time_ns))

    @cached_property
    def tags(self) -> Mapping[str, Codes]:
        """The tags of every series, the key first."""
        import pyarrow as pa  # noqa: PLC0415 - of an extra

        with pa.OSFile(str(self.directory / SERIES)) as file:
            table = pa.ipc.open_file(file).read_all().combine_chunks()
        columns = {name: table.column(name).chunk(0) for name in table.column_names}
        return {
            name: Codes(column.indices.to_numpy(), tuple(column.dictionary.to_pylist()))
            for name, column in columns.items()
        }

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

        with pa.OSFile(str(self.directory / POINTS)) as file:
            return _columns(pa.ipc.open_file(file).get_batch(number))

    def points(self, begin_ns: int | None = None, end_ns: int | None = None) -> Iterator[Rows]:
        """Yield the points with begin_ns <= time < end_ns (None: without a limit), sorted by time, then by series."""
        import pyarrow as pa  # noqa: PLC0415 - of an extra

        first = 0 if begin_ns is None else max(0, int(np.searchsorted(self.begins_ns, begin_ns)) - 1)
        with pa.OSFile(str(self.directory / POINTS)) as file:
            parts = pa.ipc.open_file(file)
            for number in range(first, parts.num_record_batches):
                if end_ns is not None and self.begins_ns[number] >= end_ns:
                    return
                times, series, fields = _columns(parts.get_batch(number))
                low = 0 if begin_ns is None else int(np.searchsorted(times, begin_ns))
                high = len(times) if end_ns is None else int(np.searchsorted(times, end_ns))
                if low < high:
                    yield times[low:high], series[low:high], {name: one[low:high] for name, one in fields.items()}


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
    for name in (POINTS, SERIES):
        (directory / name).stat()
    fields = tuple(
        Field(one["name"], Kind(one["kind"]), one["unit"], one["nullable"], tuple(one["texts"]))
        for one in about.pop("fields")
    )
    parts: dict[str, Any] = {key: tuple(about.pop(key)) for key in ("begins_ns", "firsts")}
    return Recorded(directory, fields=fields, **parts, **about)
