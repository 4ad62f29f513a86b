"""The server's own counters, and the kernel's of its control group, once a second in long form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Protocol

from tsbench.collect.sampler import PERIOD_S, Sampler
from tsbench.errors import UserMistake
from tsbench.model import OpError
from tsbench.results.panels import write_panels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tsbench.collect.base import Row
    from tsbench.results.panels import Panel


class Source(Protocol):
    """Whoever has counters: a session that is `collect.counters.Counting`, for one."""

    @property
    def panels(self) -> Sequence[Panel]:
        """How to plot them."""

    def counters(self) -> Mapping[str, float]:
        """Every counter as it is now."""
        ...

    def close(self) -> None:
        """No more is asked."""
        ...


class CounterCollector:
    """Asks sources for their counters; rows as in `results.rundir.COUNTER_COLUMNS`, values as the server counts.

    `open_sources` is called at the start, when the server is there, and gives those that have counters. How to plot
    them is written to `panels_file`.
    """

    name = "counters"

    def __init__(
        self,
        open_sources: Callable[[], Sequence[Source]],
        panels_file: Path | None = None,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        self._open, self._sources = open_sources, list[Source]()
        self._panels_file = panels_file
        self._unopened = ""
        self._sampler = Sampler(self._sample, expected=(OpError, UserMistake, OSError), period_s=period_s)

    @property
    def trouble(self) -> str:
        """Samples that are missing, and why."""
        sampler = self._sampler
        texts = [
            self._unopened,
            f"the server's counters could not be read {sampler.missed} times: {sampler.error}"
            if sampler.missed
            else "",
            f"the server's counters: {sampler.hung}" if sampler.hung else "",
        ]
        return "; ".join(filter(None, texts))

    def _sample(self, passed_s: float) -> Sequence[Row]:
        del passed_s  # totals are kept as they are; rates are for who reads them
        return [
            {"name": name, "value": float(value)}
            for source in self._sources
            for name, value in source.counters().items()
        ]

    def start(self) -> None:
        """Open the sources and begin to ask; a server that cannot be reached is the load's to report."""
        try:
            self._sources = list(self._open())
        except (OpError, UserMistake, OSError) as error:
            self._unopened = f"the server's counters could not be read: {error}"
        if self._sources:
            if self._panels_file is not None:
                write_panels(self._panels_file, [panel for source in self._sources for panel in source.panels])
            self._sampler.start()

    def stop(self) -> Sequence[Row]:
        """Stop and give the rows. A total belongs to the moment it was read at: the end of the stretch before."""
        rows = self._sampler.stop()
        for source in self._sources if not self._sampler.is_running() else ():  # not while one is asked: see `bulk`
            with suppress(OpError, OSError):
                source.close()
        return rows


class Counting(ABC):
    """The ability of a session to tell the server's own counters; a session class declares it by inheriting from this.

    It is no method of `Session`, because most of what a database counts is of use to its own readers only: a target
    without it is complete.
    """

    panels: ClassVar[tuple[Panel, ...]] = ()
    """How the report plots the counters that mean something to its readers."""

    @abstractmethod
    def counters(self) -> Mapping[str, float]:
        """The server's counters as they are now, a few dozen at most: totals since it was started, and gauges.

        Names are the server's own, dotted where it has several tables of them (`database.xact_commit`). Asking once a
        second must not be felt. Raises `model.OpError`.
        """
