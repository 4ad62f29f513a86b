"""Points of a recording in the order of time: sorted a range of time after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tsbench.errors import UserMistake
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.scenario.own_data import RecordingPart

_PART_ROWS = 65_536
"""Rows of a part of the file of points."""
_SORTED_ROWS = 1_000_000
"""Rows that are sorted at a time, about."""
_SAMPLED = 64
"""Every 64th time is kept, to cut the time into ranges of about `_SORTED_ROWS` rows."""


@dataclass
class UnsortedRows:
    """What the rows of the files are, in their order."""

    rows: int = 0
    skipped: int = 0
    step_ns: int = NS_PER_S
    times: list[tuple[int, int]] = field(default_factory=list)
    """The first and the last time of each part of the file of rows."""
    sample: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, times: NDArray[np.int64]) -> None:
        """Take note of the times of the next part."""
        while (times % self.step_ns).any():
            self.step_ns //= 1_000
        self.times.append((int(times.min()), int(times.max())))
        self.sample.append(times[::_SAMPLED].copy())
        self.rows += len(times)


@dataclass
class SortedPoints:
    """Points that were written, in the order of time."""

    rows: int = 0
    last_ns: int = 0
    begins_ns: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)


class MergeRows(Protocol):
    """Turns a table of rows, sorted by time and series, into points; some have several rows if `doubled`."""

    def __call__(self, table: Any, *, doubled: bool) -> Any: ...


def write_sorted(part: RecordingPart, rows: UnsortedRows, source: Path, out: Path, merged: MergeRows) -> SortedPoints:
    """Write the rows sorted by time and series, of several with both alike the one that counts, or `merged`."""
    written, writer = SortedPoints(), None
    with pa.OSFile(str(source)) as file, pa.OSFile(str(out), "wb") as sink:
        reader = pa.ipc.open_file(file)
        for low, high in _edges(rows):
            tables = [
                _within(reader.get_batch(number), low, high)
                for number, (first, last) in enumerate(rows.times)
                if first < high and last >= low
            ]
            table = _ordered(part, pa.Table.from_batches(tables), merged)
            if writer is None:
                writer = pa.ipc.new_file(sink, table.schema)
            for begin in range(0, len(table), _PART_ROWS):
                piece = table.slice(begin, _PART_ROWS).combine_chunks()
                written.begins_ns.append(piece.column(0)[0].as_py())
                written.firsts.append(written.rows)
                writer.write_table(piece)
                written.rows += len(piece)
            written.last_ns = table.column(0)[-1].as_py()
        assert writer is not None  # noqa: S101 - there are rows
        writer.close()
    return written


def _edges(rows: UnsortedRows) -> Iterator[tuple[int, int]]:
    """Yield ranges of time that have about `_SORTED_ROWS` rows, in order; each has one at least."""
    sample = np.sort(np.concatenate(rows.sample))
    chosen = np.unique(sample[:: max(1, _SORTED_ROWS // _SAMPLED)]).tolist()
    first, last = min(low for low, _ in rows.times), max(high for _, high in rows.times)
    yield from pairwise([first, *(time for time in chosen if first < time <= last), last + 1])


def _within(batch: Any, low: int, high: int) -> Any:
    times = batch.column(0).to_numpy()
    inside = (times >= low) & (times < high)
    return batch if inside.all() else batch.filter(pa.array(inside))


def _ordered(part: RecordingPart, table: Any, merged: MergeRows) -> Any:
    """Return a table sorted by time and series; of several rows with both alike the one that counts, or all merged."""
    times, series = (table.column(at).combine_chunks().to_numpy() for at in (0, 1))
    order = np.lexsort((series, times))
    times, series = times[order], series[order]
    again = (np.diff(times) == 0) & (np.diff(series) == 0)
    if again.any() and part.duplicates == "refuse":
        at = int(np.argmax(again))
        when = np.datetime_as_string(times[at].astype("datetime64[ns]"))
        raise UserMistake(
            f"{part.files[0]}: two rows of one series have the time {when}Z; say duplicates = 'first', 'last' or "
            "'merge' in [recording], or give more columns to the key"
        )
    if part.duplicates == "first":
        order = order[np.concatenate([[True], ~again])]
    elif part.duplicates == "last":
        order = order[np.concatenate([~again, [True]])]
    ordered = table.take(pa.array(order))
    return merged(ordered, doubled=bool(again.any())) if part.duplicates == "merge" else ordered
