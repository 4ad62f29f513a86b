"""Collectors: their interface, and those that call a function once a second, without drift, in a thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
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
        """Start sampling."""
        ...

    def stop(self) -> Sequence[Mapping[str, float | str]]:
        """Stop sampling and return one row per second, `second` in epoch seconds."""
        ...


class Sampler:
    """Calls `sample(seconds since the last call)` every period until it is stopped, and keeps the rows.

    Each row gets its `second`, the beginning of its interval. A sample that fails yields no rows and is counted,
    whatever the error; the sampler continues.
    """

    def __init__(
        self,
        sample: Callable[[float], Sequence[Row]],
        *,
        period_s: float = PERIOD_S,
        stop_s: float = STOP_S,
    ) -> None:
        self._sample, self._period_s, self._stop_s = sample, period_s, stop_s
        self._rows, self._closed = Samples(), False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._begun = 0.0
        self.missed = 0
        """Number of samples that failed."""
        self.error = ""
        """Text of the last of these errors, with its type if it is none of ours."""
        self.hung = ""
        """A message if the last sample did not end, else ""."""

    def start(self) -> None:
        """Start sampling; the first row is the difference to this moment."""
        self._begun = time.monotonic()
        self._once(0.0)
        self._thread.start()

    def stop(self) -> Samples:
        """Stop sampling and return the rows; a sample that does not end is abandoned and noted in `hung`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._stop_s)
        self._closed = True
        if self._thread.is_alive():
            self.hung = f"the last sample did not end within {self._stop_s:g} s"
        return self._rows

    def trouble(self, what: str) -> str:
        """Return a message about missing samples of `what` with the reason, "" if none are missing."""
        missed = f"{what} could not be read {self.missed} times: {self.error}" if self.missed else ""
        return "; ".join(filter(None, (missed, f"{what}: {self.hung}" if self.hung else "")))

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
            for row in () if self._closed else rows:
                self._rows.add({"second": second, **row})
            last = now
            due = max(due + self._period_s, time.monotonic())

    def _once(self, passed_s: float) -> Sequence[Row]:
        try:
            return self._sample(passed_s)
        except Exception as error:  # noqa: BLE001 - it would end the thread, and nobody would know why rows are missing
            self.missed += 1
            ours = isinstance(error, (OpError, UserMistake, OSError))
            self.error = one_line(error) if ours else f"{type(error).__name__}: {one_line(error)}"
            return ()


class SamplingCollector(ABC):
    """A collector that samples every period; `what` names its figures in messages."""

    name = ""
    what = ""

    def __init__(self, *, period_s: float = PERIOD_S) -> None:
        self._sampler = Sampler(self._sample, period_s=period_s)

    @abstractmethod
    def _sample(self, passed_s: float) -> Sequence[Row]:
        """Return rows for the `passed_s` seconds since the last call."""

    @property
    def trouble(self) -> str:
        """A message on samples that are missing, with the reason; "" if none are."""
        return self._sampler.trouble(self.what)

    def start(self) -> None:
        """Start sampling."""
        self._sampler.start()

    def stop(self) -> Sequence[Row]:
        """Stop sampling and return the rows."""
        return self._sampler.stop()
