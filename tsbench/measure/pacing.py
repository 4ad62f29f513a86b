"""The times at which ops are due in an open loop: a pure function of (rate, kind, seed, number), or as recorded.

Arrivals are distributed in stripes over the load processes. Latency is measured from these times and not from the
moment a session became free, so that an op which had to wait behind a stall shows the wait (Tene's coordinated
omission; wrk2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEVER_NS = 2**62
BLOCK = 1024
"""Arrivals computed at a time. It is part of the definition of a Poisson schedule: changing it changes schedules."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A schedule of `rate_per_s` ops per second: evenly spaced (`constant`), random (`poisson`), or `recorded`.

    The gaps of a `poisson` schedule are exponentially distributed. A recorded one has the times in `recorded_ns`,
    ascending, in ns from its start, and `rate_per_s` is their mean. Arrivals are due before `duration_ns`; None means
    that the schedule never ends. `changes` are later rates, each as (ns from the schedule's start, ops per second).
    """

    rate_per_s: float
    kind: Literal["constant", "poisson", "recorded"]
    seed: int
    duration_ns: int | None = None
    changes: tuple[tuple[int, float], ...] = ()
    recorded_ns: NDArray[np.int64] | None = None
    count: int | None = None
    """Number of arrivals; None: as many as are due before the end."""

    def __post_init__(self) -> None:
        for rate_per_s in (self.rate_per_s, *(rate for _, rate in self.changes)):
            if rate_per_s <= 0:
                raise ValueError(f"the rate must be above 0, not {rate_per_s}/s")

    def _changed(self, times_ns: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the due times of arrivals that would be due at these times if the rate never changed.

        Arrivals after a change are as many as its rate makes in the time since: that also keeps a Poisson process one.
        """
        due_ns, passed_ns, since_ns, rate_per_s = times_ns, 0.0, 0, self.rate_per_s
        for at_ns, next_per_s in self.changes:
            passed_ns += (at_ns - since_ns) * rate_per_s / self.rate_per_s
            later_ns = at_ns + (times_ns - passed_ns) * (self.rate_per_s / next_per_s)
            due_ns = np.where(times_ns >= passed_ns, later_ns, due_ns)
            since_ns, rate_per_s = at_ns, next_per_s
        return np.rint(due_ns).astype(np.int64)

    def _gaps(self, block: int) -> NDArray[np.float64]:
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(block,)))
        return generator.standard_exponential(BLOCK) * (NS_PER_S / self.rate_per_s)

    def block_ns(self, block: int, *, origin_ns: float | None = None) -> NDArray[np.int64]:
        """Return the due times of the BLOCK arrivals from block*BLOCK on, in ns from the schedule's start.

        `origin_ns` is the (unrounded) time of the last arrival before the block if the caller has it; without it a
        Poisson schedule adds up all earlier gaps. The shape is (BLOCK,).
        """
        if self.recorded_ns is not None:
            due_ns = np.full(BLOCK, self.duration_ns or _NEVER_NS, dtype=np.int64)
            known = self.recorded_ns[block * BLOCK : (block + 1) * BLOCK]
            due_ns[: len(known)] = known
            return due_ns
        if self.kind == "constant":
            numbers = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.float64)
            return self._changed(numbers * (NS_PER_S / self.rate_per_s))
        if origin_ns is None:
            origin_ns = sum(float(self._gaps(earlier).sum()) for earlier in range(block))
        return self._changed(origin_ns + np.cumsum(self._gaps(block)))

    def due_ns(self, number: int) -> int:
        """Return the due time of arrival `number` (0, 1, 2, ...), in ns from the schedule's start."""
        block, offset = divmod(number, BLOCK)
        return int(self.block_ns(block)[offset])


class Stripe:
    """The arrivals of one process among several: numbers index, index + of, index + 2 * of, ..."""

    def __init__(self, arrivals: Arrivals, *, index: int = 0, of: int = 1) -> None:
        if not 0 <= index < of:
            raise ValueError(f"process {index} does not exist among {of}; they count from 0")
        self.arrivals = arrivals
        self._next = index
        self._of = of
        self._block = -1
        self._origin_ns = 0.0
        self._due = np.zeros(0, dtype=np.int64)

    def take(self) -> int | None:
        """Return the due time of this process's next arrival, in ns from the schedule's start; None at its end."""
        if self.arrivals.count is not None and self._next >= self.arrivals.count:
            return None
        block, offset = divmod(self._next, BLOCK)
        while self._block < block:
            self._block += 1
            self._due = self.arrivals.block_ns(self._block, origin_ns=self._origin_ns)
            self._origin_ns += float(self.arrivals._gaps(self._block).sum())  # noqa: SLF001 - same schedule
        due_ns = int(self._due[offset])
        if self.arrivals.duration_ns is not None and due_ns >= self.arrivals.duration_ns:
            return None
        self._next += self._of
        return due_ns
