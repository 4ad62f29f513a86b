"""One measurement's rows over time: stored as columns, and computed by its processes.

The streams that one worker loads are computed together: a tick costs one set of numpy calls, not one set per stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import Kind
from tsbench.workload.random_numbers import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Batch, Field
    from tsbench.workload.layout import Layout
    from tsbench.workload.processes import Process
    from tsbench.workload.random_numbers import Bits, Floats, Numbers


_NO_ROWS = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns:
    """Columns of equal length: `time_ns` (UTC), `series` (numbers of series in the world), and the fields by name."""

    time_ns: NDArray[np.int64]
    series: NDArray[np.int32]
    fields: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, chosen: slice | NDArray[Any]) -> PointColumns:
        """Return the rows that a slice, mask or array of indices selects."""
        columns = {name: column[chosen] for name, column in self.fields.items()}
        return PointColumns(self.time_ns[chosen], self.series[chosen], columns)


def join(tables: Sequence[PointColumns]) -> PointColumns:
    """Concatenate the rows of tables with equal columns; a single table is returned as it is."""
    if len(tables) == 1:
        return tables[0]
    return PointColumns(
        np.concatenate([table.time_ns for table in tables]),
        np.concatenate([table.series for table in tables]),
        {name: np.concatenate([table.fields[name] for table in tables]) for name in tables[0].fields},
    )


def merge_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches of one measurement and world, in their order; the result has the first one's number."""
    first = batches[0]
    return replace(
        first,
        time_ns=np.concatenate([batch.time_ns for batch in batches]),
        series=np.concatenate([batch.series for batch in batches]),
        fields={name: np.concatenate([b.fields[name] for b in batches]) for name in first.fields},
    )


def cut(tables: Iterator[PointColumns], rows: int) -> Iterator[PointColumns]:
    """Yield the same rows in tables of `rows` rows each; the last one may have fewer."""
    pending: list[PointColumns] = []
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


def _joined_out(tables: list[PointColumns]) -> PointColumns:
    """Join the tables of a list and empty the list."""
    whole = join(tables)
    tables.clear()
    return whole


class FieldSimulator:
    """The processes of one measurement, for the series of one or more streams.

    Parameters
    ----------
    layout
        The measurement.
    series
        Number of series in each stream.
    bits_of
        Function that returns a process's random numbers for each stream, from the name of its first quantity.
    interval_ns
        The time between ticks.
    decimals
        Decimals of float fields; None leaves them as they are.
    """

    def __init__(
        self,
        layout: Layout,
        series: Sequence[int],
        bits_of: Callable[[str], Sequence[Bits]],
        *,
        interval_ns: int,
        decimals: int | None,
    ) -> None:
        self._layout = layout
        self._series = series
        self._interval_ns = interval_ns
        self._decimals = decimals
        self._tick = 0
        self._running = [(process, *self._begin(process, bits_of(process.names[0]))) for process in layout.processes]

    def _begin(self, process: Process, bits: Sequence[Bits]) -> tuple[Numbers, Floats]:
        """Return a process's random numbers and its state: the streams' states one after the other."""
        states = [process.begin(own, series) for own, series in zip(bits, self._series, strict=True)]
        if len(bits) == 1:
            return bits[0], states[0]
        return Together(bits, self._series), np.concatenate(states)

    def skip(self, ticks: int) -> None:
        """Advance the state by `ticks` without keeping the values."""
        for process, bits, state in self._running:
            process.run(bits, state, self._tick, ticks)
        self._tick += ticks

    def advance(self, ticks: int) -> dict[str, NDArray[Any]]:
        """Return the fields of the next ticks, each of shape (ticks * series,): by tick, then by series."""
        quantities: dict[str, Floats] = {}
        for process, bits, state in self._running:
            values = process.run(bits, state, self._tick, ticks)
            for i, name in enumerate(process.names):
                quantities[name] = self._quantity(values, i, len(process.names))
        self._tick += ticks
        derive = self._layout.derive
        fields: Mapping[str, Floats] = quantities if derive is None else derive(quantities, self._interval_ns)
        return {field.name: self._column(fields[field.name], field) for field in self._layout.fields}

    def _quantity(self, values: Floats, i: int, count: int) -> Floats:
        """Return quantity i of `count`, of shape (ticks, all series)."""
        parts, start = [], 0
        for series in self._series:
            parts.append(values[:, start + i * series : start + (i + 1) * series])
            start += count * series
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _column(self, values: Floats, field: Field) -> NDArray[Any]:
        if not field.has_floats:
            return values.astype(np.int64, order="C").ravel()
        floats = values.astype(np.float64, order="C", copy=False)
        if self._decimals is None or field.kind is not Kind.FLOAT:
            return floats.ravel()
        return np.round(floats, self._decimals).ravel()
