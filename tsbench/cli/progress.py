"""Progress on standard error: bars in a terminal, a line per phase elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import TaskID


class CellProgress:
    """Shows the phases of one run (a `run.phases.Progress`); a context manager."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

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
        """Start a phase with `total` units of work (None: unknown)."""
        if not self._console.is_terminal:
            self._console.print(f"{self._title}: {name}", highlight=False, soft_wrap=True, markup=False)
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(f"{self._title}: {name}", total=None if total is None else round(total))

    def advance(self, amount: float) -> None:
        """Advance the bar of the current phase by `amount` units."""
        if self._task is not None:
            self._bars.advance(self._task, amount)
