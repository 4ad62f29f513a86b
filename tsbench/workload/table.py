"""Tables of one measurement's rows, stored as columns: select, join and cut rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_NO_ROWS = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of equal length: `time_ns` (UTC), `series` (numbers of series in the world), and the fields by name."""

    time_ns: NDArray[np.int64]
    series: NDArray[np.int32]
    fields: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, chosen: slice | NDArray[Any]) -> Table:
        """Return the rows that a slice, mask or array of indices selects."""
        columns = {name: column[chosen] for name, column in self.fields.items()}
        return Table(self.time_ns[chosen], self.series[chosen], columns)


def join(tables: Sequence[Table]) -> Table:
    """Concatenate the rows of tables with equal columns; a single table is returned as it is."""
    if len(tables) == 1:
        return tables[0]
    return Table(
        np.concatenate([table.time_ns for table in tables]),
        np.concatenate([table.series for table in tables]),
        {name: np.concatenate([table.fields[name] for table in tables]) for name in tables[0].fields},
    )


def cut(tables: Iterator[Table], rows: int) -> Iterator[Table]:
    """Yield the same rows in tables of `rows` rows each; the last one may have fewer."""
    pending: list[Table] = []
    missing = rows
    for table in tables:
        start = 0
        while len(table) - start >= missing:
            pending.append(table.take(slice(start, start + missing)))
            start += missing
            missing = rows
            if start == len(table):
                table = table.take(_NO_ROWS)  # noqa: PLW2901 - nothing is held while others have their turn
                start = 0
            yield _joined_out(pending)
        if start < len(table):
            pending.append(table.take(slice(start, None)))
            missing -= len(table) - start
    if pending:
        yield join(pending)


def _joined_out(tables: list[Table]) -> Table:
    """Join the tables of a list and empty the list."""
    whole = join(tables)
    tables.clear()
    return whole
