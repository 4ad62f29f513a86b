"""What a collector must offer: start, stop, and rows on the epoch's time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, float | str]
"""One line of a collector's file. `second` is when its second began, in epoch seconds."""


class Collector(Protocol):
    """Watches something once a second while a run goes on."""

    @property
    def name(self) -> str:
        """The file that its rows go to (`host` -> host.parquet)."""

    @property
    def trouble(self) -> str:
        """What it could not see and why, one sentence; empty where all went well."""

    def start(self) -> None:
        """Begin to watch."""
        ...

    def stop(self) -> Sequence[Mapping[str, float | str]]:
        """Stop, and give one row per second, `second` in epoch seconds."""
        ...
