"""The phases of a run: progress updates, and how long each phase took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from tsbench.results.durations import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Progress(Protocol):
    """Receives progress updates from a run (phase, amount done)."""

    def phase(self, name: str, total: float | None = None) -> None:
        """Start a phase; `total` is the sum of all `advance` calls in it, if known."""
        ...

    def advance(self, amount: float) -> None:
        """Add an amount to the current phase."""
        ...


class Phases:
    """Passes progress on, keeps the name of the current phase, and measures how long each one takes.

    `clock` returns seconds.
    """

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self.current = "start"
        self._timed, self._since_s = self.current, clock()
        self._taken_s: dict[str, float] = {}

    def phase(self, name: str, total: float | None = None) -> None:
        """Start a phase."""
        self.time(name)
        self.current = name
        self._progress.phase(name, total)

    def time(self, name: str) -> None:
        """Count the time from now on under another name, without a progress update."""
        now_s = self._clock()
        self._taken_s[self._timed] = self._taken_s.get(self._timed, 0.0) + now_s - self._since_s
        self._timed, self._since_s = name, now_s

    def advance(self, amount: float) -> None:
        """Add an amount to the current phase."""
        self._progress.advance(amount)

    def durations(self, measured: Mapping[str, Any] | None = None) -> Durations:
        """Return how long the phases took up to now.

        `measured` is that part of the run's summary, if it has one; the phase in which the load processes ran is
        divided by it into warm-up, measured window, and their start and end.
        """
        self.time(self._timed)
        return Durations(dict(self._taken_s)).divided((measured or {}).get("window") or {})
