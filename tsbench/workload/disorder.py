"""Defects of real data: points that arrive late, out of order, twice, never, or in part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.workload.series import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tsbench.workload.random_numbers import Bits
    from tsbench.workload.series import PointColumns


@dataclass(frozen=True, slots=True)
class Disorder:
    """Shares (0..1) of the points with a defect; the world's seed determines which points.

    Parameters
    ----------
    late
        Sent 1 .. `late_by` ticks after their place (uniformly distributed): after as many newer points of their series.
    out_of_order
        Sent after the next point of their own series.
    duplicate
        Sent a second time, with identical time, series and values, 0 .. `late_by` - 1 ticks later.
    missing
        Never sent.
    lost
        Never sent, in runs: ten neighbouring series of a tick at once.
    held
        Sent 1 .. `late_by` ticks after their place, in such runs.
    null
        Sent without one of the fields that points may lack.
    null_tags
        Share of the series, not of the points: these lack one of their tags, never the key.
    late_by
        Largest delay of a point or its copy, in ticks.
    """

    late: float = 0.0
    out_of_order: float = 0.0
    duplicate: float = 0.0
    missing: float = 0.0
    lost: float = 0.0
    held: float = 0.0
    null: float = 0.0
    null_tags: float = 0.0
    late_by: int = 10

    def __post_init__(self) -> None:
        for name in ("late", "out_of_order", "duplicate", "missing", "lost", "held", "null", "null_tags"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ValueError(f"disorder.{name} must be between 0 and 1, not {share}")
        if self.late + self.out_of_order > 1:
            raise ValueError("disorder.late + disorder.out_of_order must not exceed 1")
        if self.lost + self.held > 1:
            raise ValueError("disorder.lost + disorder.held must not exceed 1")
        if self.late_by < 1:
            raise ValueError(f"disorder.late_by must be at least 1 (tick), not {self.late_by}")

    def __bool__(self) -> bool:
        return any((self.late, self.out_of_order, self.duplicate, self.missing, self.lost, self.held, self.null))

    @property
    def in_runs_or_part(self) -> bool:
        """Whether some defects are of runs of points, or of fields."""
        return any((self.lost, self.held, self.null))


_RUN = 10
"""Series of one tick that are lost or held back together."""


class Shuffler:
    """Delays, duplicates, drops and empties rows of one measurement and stream, in the order in which they are sent.

    Every row has a place in the order of sending: a whole number for punctual rows, a number between two whole ones for
    the others. A row is released when no later input can come before it, so the order does not depend on how the rows
    are divided into calls.

    `more_bits` are random numbers for defects of runs and fields; fields in `nullable` can be lacking.
    """

    def __init__(
        self, disorder: Disorder, bits: Bits, series: int, more_bits: Bits, nullable: Sequence[str] = ()
    ) -> None:
        self._disorder = disorder
        self._bits, self._more_bits = bits, more_bits
        self._series, self._nullable = series, nullable
        self._rows = 0
        self._held: PointColumns | None = None
        self._place: NDArray[np.float64] = np.empty(0)
        self._origin: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def skip(self, ticks: int) -> None:
        """Advance the random numbers by `ticks` without producing rows."""
        self._bits.words(ticks * self._series * 4)
        if self._disorder.in_runs_or_part:
            self._more_bits.words(ticks * self._series * 3)

    def push(self, table: PointColumns) -> PointColumns:
        """Add the rows of some whole ticks and return the rows that are due for sending."""
        disorder, series = self._disorder, self._series
        # Four numbers per row: whether it is missing, how and by how much it is displaced, whether it is sent twice.
        drawn = self._bits.uniform(len(table) // series, 4 * series)
        missing, how, far, copy = (drawn[:, i * series : (i + 1) * series].ravel() for i in range(4))
        origin = np.arange(self._rows, self._rows + len(table))
        place = origin.astype(np.float64)
        late = how < disorder.late
        place[late] += series * (1 + np.floor(far[late] * disorder.late_by)) + 0.5
        swapped = ~late & (how < disorder.late + disorder.out_of_order)
        place[swapped] += series + 0.5
        keeps = missing >= disorder.missing
        if disorder.in_runs_or_part:
            keeps &= self._in_runs_or_part(table, place, origin)
        sent = np.flatnonzero(keeps)
        twice = sent[copy[sent] < disorder.duplicate]
        lag = np.floor(copy[twice] * (disorder.late_by / max(disorder.duplicate, 1e-300)))
        chosen = np.concatenate([sent, twice])
        self._rows += len(table)
        return self._release(
            table.take(chosen),
            np.concatenate([place[sent], origin[twice] + series * lag + 0.75]),
            origin[chosen],
            before=self._rows,
        )

    def _in_runs_or_part(
        self, table: PointColumns, place: NDArray[np.float64], origin: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Move the places of runs that are held back, empty fields, and return a mask of the rows that are not lost."""
        disorder, series = self._disorder, self._series
        drawn = self._more_bits.uniform(len(table) // series, 3 * series)
        first = np.arange(series) // _RUN * _RUN  # whose numbers are those of its run
        how, far = drawn[:, first].ravel(), drawn[:, series + first].ravel()
        held = (how >= disorder.lost) & (how < disorder.lost + disorder.held)
        # Not later still where a point is late by itself: nothing is sent more than `late_by` ticks after its place.
        place[held] = origin[held] + series * (1 + np.floor(far[held] * disorder.late_by)) + 0.5
        if self._nullable and disorder.null:
            null = drawn[:, 2 * series :].ravel() / disorder.null  # uniform in 0..1 where it is below 1
            for at, name in enumerate(self._nullable):
                lacks = (null * len(self._nullable) >= at) & (null * len(self._nullable) < at + 1)
                table.fields[name] = np.where(lacks, np.nan, table.fields[name])
        return how >= disorder.lost

    def flush(self) -> PointColumns | None:
        """Return the rows that are still held back; None if no row was ever added."""
        if self._held is None:
            return None
        nothing = self._held.take(slice(0, 0))
        return self._release(nothing, np.empty(0), np.empty(0, dtype=np.int64), before=np.inf)

    def _release(
        self,
        table: PointColumns,
        place: NDArray[np.float64],
        origin: NDArray[np.int64],
        *,
        before: float,
    ) -> PointColumns:
        if self._held is not None:
            table = join([self._held, table])
            place = np.concatenate([self._place, place])
            origin = np.concatenate([self._origin, origin])
        order = np.lexsort((origin, place))
        due = int(np.searchsorted(place[order], before))
        later = order[due:]
        self._held, self._place, self._origin = table.take(later), place[later], origin[later]
        return table.take(order[:due])
