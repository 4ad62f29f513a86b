"""Collectors: their interface, and the one that calls a function once a second, without drift, in a thread."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Sequence
from sys import intern
from typing import TYPE_CHECKING, Any, Protocol

from tsbench.clock import epoch_ns
from tsbench.errors import UserMistake, one_line
from tsbench.model import OpError
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PERIOD_S = 1.0
STOP_S = 12.0
"""Time limit for the last sample in seconds: a server's counters have 10 s."""
Row = dict[str, float | str]
"""One line of a collector's file. `second` is the beginning of its interval, in epoch seconds."""


class Samples(Sequence[Row]):
    """Rows kept as columns, in a tenth of the memory: a run may last a day, and a server have a hundred counters."""

    def __init__(self) -> None:
        self._parts: list[tuple[tuple[tuple[str, type], ...], tuple[list[str] | array[float], ...]]] = []

    def add(self, row: Row) -> None:
        """Append a row; those with the same keys and types one after the other share their columns."""
        kind = tuple((key, type(value)) for key, value in row.items())
        if not self._parts or self._parts[-1][0] != kind:
            self._parts.append((kind, tuple([] if of is str else array("d") for _, of in kind)))
        for column, value in zip(self._parts[-1][1], row.values(), strict=True):
            column.append(intern(value) if isinstance(value, str) else value)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return sum(len(columns[-1]) for _, columns in self._parts)

    def __iter__(self) -> Iterator[Row]:
        for kind, columns in self._parts:
            for values in zip(*columns, strict=False):  # one may just be appended to
                yield {key: of(value) for (key, of), value in zip(kind, values, strict=True)}

    def __getitem__(self, place: Any) -> Any:
        return [*self][place]


class Collector(Protocol):
    """Samples something once a second during a run."""

    @property
    def name(self) -> str:
        """Name of the file for the rows (`host` -> host.parquet)."""

    @property
    def trouble(self) -> str:
        """A message on data that could not be collected, with the reason; "" if all went well."""

    def start(self) -> None:
        """Start sampling in a thread or process of its own, and return at once."""
        ...

    def stop(self) -> Sequence[Mapping[str, float | str]]:
        """Stop sampling and return one row per second, `second` in epoch seconds."""
        ...


class Sampler:
    """A collector that calls `sample(seconds since the last call)` every period until it is stopped.

    Each row gets its `second`, the beginning of its interval. A sample that fails yields no rows and is counted,
    whatever the error; the sampler continues.
    """

    name = ""
    what = "the figures"
    """Name of the sampled figures, for messages."""
    period_s, stop_s = PERIOD_S, STOP_S

    def __init__(self, sample: Callable[[float], Sequence[Row]]) -> None:
        self._take = sample
        self._rows, self._closed = Samples(), False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._begun = 0.0
        self._missed, self._error, self._hung = 0, "", ""
        """Number of samples that failed, the text of the last error, and that the last sample did not end, if so."""

    def start(self) -> None:
        """Start sampling; the first row is the difference to this moment."""
        self._begun = time.monotonic()
        self._once(0.0)
        self._thread.start()

    def stop(self) -> Sequence[Row]:
        """Stop sampling and return the rows; a sample that does not end is abandoned."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self.stop_s)
        self._closed = True
        if self.is_running():
            self._hung = f"{self.what}: the last sample did not end within {self.stop_s:g} s"
        return self._rows

    @property
    def trouble(self) -> str:
        """A message on samples that are missing, with the reason; "" if none are."""
        missed = f"{self.what} could not be read {self._missed} times: {self._error}" if self._missed else ""
        return "; ".join(filter(None, (missed, self._hung)))

    def is_running(self) -> bool:
        """Return True while a sample is being taken, also after `stop` has abandoned it."""
        return self._thread.is_alive()

    def _work(self) -> None:
        last = self._begun
        due = last + self.period_s
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            second = epoch_ns() / NS_PER_S - (now - last)
            rows = self._once(now - last)
            for row in () if self._closed else rows:
                self._rows.add({"second": second, **row})
            last = now
            due = max(due + self.period_s, time.monotonic())

    def _once(self, passed_s: float) -> Sequence[Row]:
        try:
            return self._take(passed_s)
        except Exception as error:  # noqa: BLE001 - it would end the thread, and nobody would know why rows are missing
            self._missed += 1
            ours = isinstance(error, (OpError, UserMistake, OSError))
            self._error = one_line(error) if ours else f"{type(error).__name__}: {one_line(error)}"
            return ()
