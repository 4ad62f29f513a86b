"""A thread that calls a function once a second without drift."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tsbench.measure.epoch import epoch_ns
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.collect.base import Row

PERIOD_S = 1.0
STOP_S = 12.0
"""Time limit for the last sample in seconds: a server's counters have 10 s."""


class Sampler:
    """Calls `sample(seconds since the last call)` every period until it is stopped, and keeps the rows.

    Each row gets its `second`, the beginning of its interval. A sample that fails with one of the `expected` errors
    yields no rows and is counted; the sampler continues.
    """

    def __init__(
        self,
        sample: Callable[[float], Sequence[Row]],
        *,
        expected: tuple[type[Exception], ...] = (),
        period_s: float = PERIOD_S,
        stop_s: float = STOP_S,
    ) -> None:
        self._sample, self._expected, self._period_s, self._stop_s = sample, expected, period_s, stop_s
        self._rows: list[Row] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._begun = 0.0
        self.missed = 0
        """Number of samples that failed."""
        self.error = ""
        """Text of the last of these errors."""
        self.hung = ""
        """A message if the last sample did not end, else ""."""
        self.spent_s = 0.0
        """Seconds spent in `sample`."""

    def start(self) -> None:
        """Start sampling; the first row is the difference to this moment."""
        self._begun = time.monotonic()
        self._once(0.0)
        self._thread.start()

    def stop(self) -> list[Row]:
        """Stop sampling and return the rows; a sample that does not end is abandoned and noted in `hung`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._stop_s)
        if self._thread.is_alive():
            self.hung = f"the last sample did not end within {self._stop_s:g} s"
        return list(self._rows)

    def is_running(self) -> bool:
        """Return True while a sample is being taken, also after `stop` has abandoned it."""
        return self._thread.is_alive()

    def _work(self) -> None:
        last = self._begun
        due = last + self._period_s
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            second = epoch_ns() / NS_PER_S - (now - last)
            rows = self._once(now - last)
            self._rows += [{"second": second, **row} for row in rows]
            last = now
            due = max(due + self._period_s, time.monotonic())

    def _once(self, passed_s: float) -> Sequence[Row]:
        started = time.monotonic()
        try:
            return self._sample(passed_s)
        except self._expected as error:
            self.missed += 1
            self.error = str(error)
            return ()
        finally:
            self.spent_s += time.monotonic() - started
