"""What a collector must offer: start, stop, and rows on the epoch's time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Collector(Protocol):
    """Watches something once a second while a run goes on."""

    @property
    def name(self) -> str:
        """The file that its rows go to (`host` -> host.parquet)."""

    def start(self) -> None:
        """Begin to watch."""
        ...

    def stop(self) -> Sequence[Mapping[str, float]]:
        """Stop, and give one row per second, `second` in epoch seconds."""
        ...
