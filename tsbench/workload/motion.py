"""The fields of one measurement over time: its processes, advanced together and turned into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tsbench.workload.layout import Layout
    from tsbench.workload.walks import Bits, Floats


class Motion:
    """The processes of one measurement for the series of one stream.

    Parameters
    ----------
    layout
        The measurement.
    series
        How many series move.
    bits_of
        The random numbers of a process, given the name of its first quantity.
    interval_ns
        The time between ticks.
    decimals
        To round float fields to; None leaves them to the layout.
    """

    def __init__(
        self,
        layout: Layout,
        series: int,
        bits_of: Callable[[str], Bits],
        *,
        interval_ns: int,
        decimals: int | None,
    ) -> None:
        self._layout = layout
        self._series = series
        self._interval_ns = interval_ns
        self._decimals = layout.decimals if decimals is None else decimals
        self._tick = 0
        bits = [bits_of(process.names[0]) for process in layout.processes]
        self._moving = [
            (process, stream, process.begin(stream, series))
            for process, stream in zip(layout.processes, bits, strict=True)
        ]

    def skip(self, ticks: int) -> None:
        """Move on without looking."""
        for process, bits, state in self._moving:
            process.run(bits, state, self._tick, ticks)
        self._tick += ticks

    def advance(self, ticks: int) -> dict[str, NDArray[Any]]:
        """The fields of the next ticks, each of shape (ticks * series,): tick by tick, and within one by series."""
        quantities: dict[str, Floats] = {}
        for process, bits, state in self._moving:
            values = process.run(bits, state, self._tick, ticks)
            for i, name in enumerate(process.names):
                quantities[name] = values[:, i * self._series : (i + 1) * self._series]
        self._tick += ticks
        derive = self._layout.derive
        fields: Mapping[str, Floats] = quantities if derive is None else derive(quantities, self._interval_ns)
        return {field.name: self._column(fields[field.name], field.kind) for field in self._layout.fields}

    def _column(self, values: Floats, kind: Kind) -> NDArray[Any]:
        if kind is Kind.INT:
            return values.astype(np.int64, order="C").ravel()
        if self._decimals is None:
            return values.astype(np.float64, order="C").ravel()
        return np.round(values.astype(np.float64, order="C"), self._decimals).ravel()
