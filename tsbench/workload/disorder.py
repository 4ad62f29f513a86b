"""Data as it comes from the field: late, out of order, sent twice, or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.workload.table import join

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tsbench.workload.random_numbers import Bits
    from tsbench.workload.table import Table


@dataclass(frozen=True, slots=True)
class Disorder:
    """Shares (0..1) of the points that do not come as they should; which ones follows from the world's seed.

    Parameters
    ----------
    late
        Sent 1 .. `late_by` ticks after their place, evenly: so many newer points of the same series come before.
    out_of_order
        Changing places in time with the next point of their own series.
    duplicate
        Sent a second time, with identical time, series and values, 0 .. `late_by` - 1 ticks later.
    missing
        Never sent.
    late_by
        The most ticks by which a point or its copy is late.
    """

    late: float = 0.0
    out_of_order: float = 0.0
    duplicate: float = 0.0
    missing: float = 0.0
    late_by: int = 10

    def __post_init__(self) -> None:
        for name in ("late", "out_of_order", "duplicate", "missing"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ValueError(f"disorder.{name} is a share between 0 and 1, not {share}")
        if self.late + self.out_of_order > 1:
            raise ValueError("disorder.late and disorder.out_of_order are more than 1 together")
        if self.late_by < 1:
            raise ValueError(f"disorder.late_by is at least one tick, not {self.late_by}")

    def __bool__(self) -> bool:
        return any((self.late, self.out_of_order, self.duplicate, self.missing))


class Shuffler:
    """Rearranges one measurement's rows of one stream as they pass.

    Every row has a place in the order of sending, a multiple of one for punctual ones and something between two for
    the others; a row goes out once no row still to come can be before it. So the order does not depend on how the rows
    are cut into calls.
    """

    def __init__(self, disorder: Disorder, bits: Bits, series: int) -> None:
        self._disorder = disorder
        self._bits = bits
        self._series = series
        self._rows = 0
        self._held: Table | None = None
        self._place: NDArray[np.float64] = np.empty(0)
        self._origin: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def skip(self, ticks: int) -> None:
        """Pass over rows that nobody wants."""
        self._bits.words(ticks * self._series * 4)

    def push(self, table: Table) -> Table:
        """Take the rows of some whole ticks; give those whose turn has come."""
        disorder, series = self._disorder, self._series
        # Four numbers for each row of a tick: is it missing, how is it displaced, by how much, and is there a copy.
        drawn = self._bits.uniform(len(table) // series, 4 * series)
        missing, how, far, copy = (drawn[:, i * series : (i + 1) * series].ravel() for i in range(4))
        origin = np.arange(self._rows, self._rows + len(table))
        place = origin.astype(np.float64)
        late = how < disorder.late
        place[late] += series * (1 + np.floor(far[late] * disorder.late_by)) + 0.5
        swapped = ~late & (how < disorder.late + disorder.out_of_order)
        place[swapped] += series + 0.5
        sent = np.flatnonzero(missing >= disorder.missing)
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

    def flush(self) -> Table | None:
        """The rows that are still held."""
        if self._held is None:
            return None
        nothing = self._held.take(slice(0, 0))
        return self._release(nothing, np.empty(0), np.empty(0, dtype=np.int64), before=np.inf)

    def _release(
        self,
        table: Table,
        place: NDArray[np.float64],
        origin: NDArray[np.int64],
        *,
        before: float,
    ) -> Table:
        if self._held is not None:
            table = join([self._held, table])
            place = np.concatenate([self._place, place])
            origin = np.concatenate([self._origin, origin])
        order = np.lexsort((origin, place))
        due = int(np.searchsorted(place[order], before))
        later = order[due:]
        self._held, self._place, self._origin = table.take(later), place[later], origin[later]
        return table.take(order[:due])
