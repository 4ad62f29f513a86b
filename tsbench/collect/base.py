"""The interface of a collector: start, stop, and rows on the epoch's time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, float | str]
"""One line of a collector's file. `second` is the beginning of its interval, in epoch seconds."""


class Collector(Protocol):
    """Samples something once a second during a run."""

    @property
    def name(self) -> str:
        """Name of the file for the rows (`host` -> host.parquet)."""

    @property
    def trouble(self) -> str:
        """A message on data that could not be collected, with the reason; "" if all went well."""

    def start(self) -> None:
        """Start sampling."""
        ...

    def stop(self) -> Sequence[Mapping[str, float | str]]:
        """Stop sampling and return one row per second, `second` in epoch seconds."""
        ...
