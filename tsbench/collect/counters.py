"""A collector for the server's own counters and those of its control group, once a second, in long form."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tsbench.collect.sampler import Sampler
from tsbench.errors import one_line
from tsbench.results.panels import write_panels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tsbench.collect.sampler import Row
    from tsbench.results.panels import Panel


class Source(Protocol):
    """An object with counters, such as a session of a database."""

    @property
    def panels(self) -> Sequence[Panel]:
        """How to plot them."""

    def counters(self) -> Mapping[str, float]:
        """Return the current value of every counter."""
        ...

    def close(self) -> None:
        """Release the source; its counters are not read any more."""
        ...


class CounterCollector(Sampler):
    """Reads sources' counters; rows as in `results.rundir.COUNTER_COLUMNS`, values as the server counts.

    `open_sources` is called at the start, when the server runs, and returns the sources. How to plot their counters is
    written to `panels_file`.
    """

    name, what = "counters", "the server's counters"

    def __init__(self, open_sources: Callable[[], Sequence[Source]], panels_file: Path) -> None:
        self._open, self._sources = open_sources, list[Source]()
        self._panels_file = panels_file
        self._unopened = ""
        super().__init__(self._sample)

    @property
    def trouble(self) -> str:
        """A message on samples that are missing, with the reason; "" if none are."""
        return "; ".join(filter(None, (self._unopened, super().trouble)))

    def _sample(self, passed_s: float) -> Sequence[Row]:  # totals are stored; readers compute rates
        return [
            {"name": name, "value": float(value)}
            for source in self._sources
            for name, value in source.counters().items()
        ]

    def start(self) -> None:
        """Open the sources and start sampling; an unreachable server is noted in `trouble`."""
        try:
            self._sources = list(self._open())
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: the figures do not depend on counters
            self._unopened = f"the server's counters could not be read: {one_line(error)}"
        if self._sources:
            write_panels(self._panels_file, [panel for source in self._sources for panel in source.panels])
            super().start()

    def stop(self) -> Sequence[Row]:
        """Stop sampling and return the rows. A total is the value at the end of its row's interval."""
        rows = super().stop()
        if self.is_running():  # libpq may crash if a session is closed during a query
            return rows
        for source in self._sources:
            with suppress(Exception):
                source.close()
        return rows
