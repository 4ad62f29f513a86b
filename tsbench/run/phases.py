"""The phases of a run: progress updates, and how long each phase took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self

from tsbench.results.summary import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.measure.live import Now
    from tsbench.results.figures import Measured


class Progress(Protocol):
    """Receives progress updates from a run (phase, amount done)."""

    def phase(self, name: str, total: float | None = None) -> None:
        """Start a phase; `total` is the sum of all `advance` calls in it, if known."""
        ...

    def expect(self, total: float) -> None:
        """Set the sum of all `advance` calls in the current phase, which was not known when it started."""
        ...

    def advance(self, amount: float) -> None:
        """Add an amount to the current phase."""
        ...

    def show(self, now: Callable[[], Now | None]) -> None:
        """Show the figures of the last seconds of a load, which `now` reads; None before a second is whole."""
        ...


class Quiet:
    """Shows no progress: a `Progress`, and what makes one for a title and an estimate."""

    def __init__(self, _title: str = "", _left_s: float | None = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, name: str, total: float | None = None) -> None:
        pass

    def expect(self, total: float) -> None:
        pass

    def advance(self, amount: float) -> None:
        pass

    def show(self, now: Callable[[], Now | None]) -> None:
        pass


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

    def expect(self, total: float) -> None:
        """Set the total of the current phase."""
        self._progress.expect(total)

    def advance(self, amount: float) -> None:
        """Add an amount to the current phase."""
        self._progress.advance(amount)

    def show(self, now: Callable[[], Now | None]) -> None:
        """Pass the figures' source on."""
        self._progress.show(now)

    def durations_s(self, measured: Measured | None = None) -> dict[str, float]:
        """Return how long the run took up to now (`total`), then its phases in order, in s to milliseconds.

        The phase in which the load processes ran is divided by the measured window into warm-up, window, and their
        start and end. A run that broke off may not have reached its window's end: then it is not divided.
        """
        self.time(self._timed)
        taken_s = dict(self._taken_s)
        if measured is not None:
            parts = {"warm-up": measured.window.warmup_s, "measured window": measured.window.duration_s}
            other_s = taken_s.get("measure", 0.0) - sum(parts.values())
            if other_s >= 0:
                del taken_s["measure"]
                taken_s |= {**parts, "load processes": other_s}
        in_order = {name: round(taken_s[name], 3) for name in PHASES if name in taken_s}
        return {"total": round(sum(taken_s.values()), 3), **in_order}
