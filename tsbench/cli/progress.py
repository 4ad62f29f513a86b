"""Progress on standard error: bars in a terminal; elsewhere a line per phase, and every few seconds of a long one."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tsbench.units import format_rough_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.progress import TaskID

    from tsbench.measure.live import Now

EVERY_S = 5.0
"""Seconds between two lines of a phase where standard error is no terminal."""


class _Bars(Progress):
    """A bar, and below it the figures of the last seconds."""

    figures = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.figures:
            yield Text(f"  {self.figures}")


class CellProgress:
    """Shows the phases of one run (a `run.phases.Progress`); a context manager.

    `left_s` is the estimated time of this run and those after it, shown behind the title's number ("[2/12] a") and
    counted down. `unit` is what its phases count, but for the measuring of points, which counts seconds; `clock`
    returns seconds.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        left_s: float | None = None,
        *,
        unit: str = "points",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._plain_title, self._unit, self._clock = console, title, unit, clock
        self._ends_s = clock() + left_s if left_s is not None else None
        self._bars = _Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._begin("", None)

    def _begin(self, name: str, total: float | None) -> None:
        self._name, self._total, self._done = name, total, 0.0
        self._began_s = self._said_s = self._moved_s = self._clock()
        self._bars.figures = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def phase(self, name: str, total: float | None = None) -> None:
        """Start a phase of `total` units, or of seconds if its name is `measure` (None: unknown)."""
        self._begin(name, total)
        if not self._console.is_terminal:
            self._say(name)
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(f"{self._title}: {name}", total=total, amount="")

    def expect(self, total: float) -> None:
        """Set the number of units of the current phase, counted from now on."""
        self._total, self._began_s = total, self._clock()
        if self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, amount: float) -> None:
        """Add units or seconds to the current phase."""
        with self._lock:  # the workers of a bulk load call it from threads of their own
            self._done += amount
            if amount:
                self._moved_s = self._clock()
            self._advanced(amount)

    def _advanced(self, amount: float) -> None:
        if self._task is not None:
            about = f"{self._title}: {self._name}"
            self._bars.update(self._task, advance=amount, amount=self._amount(), description=about)
        elif self._clock() - self._said_s >= EVERY_S:
            self._said_s = self._clock()
            figures = f"; {self._bars.figures}" if self._bars.figures else ""
            self._say(f"{self._name}: {self._amount()}{figures}")

    def show(self, now: Callable[[], Now | None]) -> None:
        """Show the figures of the last seconds, below the bar or in the next line."""
        with suppress(OSError, ValueError):  # a damaged file is named when the run's files are merged
            if figures := now():
                self._bars.figures = str(figures)

    def _say(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True, markup=False)

    @property
    def _title(self) -> str:
        """The title with the time that is left of all runs; without it once the estimate is over."""
        left_s = self._ends_s - self._clock() if self._ends_s is not None else 0.0
        number, bracket, name = self._plain_title.partition("] ")
        if left_s < 1 or not bracket:
            return self._plain_title
        return f"{number}, {format_rough_duration(left_s)} left{bracket}{name}"

    def _amount(self) -> str:
        """Return how much of the phase is done, and how long the rest takes."""
        if self._name == "measure" and self._total and self._unit == "points":
            if self._done >= self._total + 1:
                over_s = self._done - self._total
                return f"{self._total:.0f} s are over, waited {over_s:.0f} s for the load processes to end"
            yet = "" if self._bars.figures or self._console.is_terminal else "; no figures yet"
            return f"{min(self._done, self._total):.0f} of {self._total:.0f} s{yet}"
        rate = self._done / max(1e-3, self._clock() - self._began_s)
        left = f", {format_rough_duration((self._total - self._done) / rate)} left" if self._total and rate else ""
        idle_s = self._clock() - self._moved_s
        note = f"; has waited {idle_s:.0f} s for the server to answer" if idle_s >= EVERY_S else ""
        of = f" of {self._total:,.0f}" if self._total else ""
        unit = "queries" if self._name == "check" else self._unit
        return f"{self._done:,.0f}{of} {unit}, {rate:,.{0 if rate >= 10 else 1}f}/s{left}{note}"
