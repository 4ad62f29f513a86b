"""Updates of a running load process: the histograms and counters that it also writes to its files.

They are only for display: results are read from the files. A worker's updates travel to the master with Locust's own
reports, every 3 s; a single process passes them on once a second.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsbench.measure.hist import SparseHistogram
from tsbench.results.reading import Room

if TYPE_CHECKING:
    from collections.abc import Mapping


COUNTS = ("done", "failed", "unknown", "partial", "points")


@dataclass(slots=True)
class Tally:
    """Counts of ended ops of one kind: by outcome, with acknowledged points and causes of failures."""

    done: int = 0
    failed: int = 0
    unknown: int = 0
    partial: int = 0
    points: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add counters by name; those of other names are ignored."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + int(counts.get(name, 0)))
        self.causes.update(counts.get("causes", {}))

    def subtract(self, other: Tally) -> None:
        """Remove counters that were added."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) - getattr(other, name))
        self.causes -= other.causes


@dataclass(slots=True)
class News:
    """One update of a process: all data since its last one. Histograms by (tag, second), counters by (op, second)."""

    test: str
    process: str
    histograms: list[tuple[str, int, SparseHistogram]] = field(default_factory=list)
    counts: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    cpu: list[tuple[int, int, int]] = field(default_factory=list)

    def packed(self) -> dict[str, Any]:
        """Return the update as a message; histograms in HdrHistogram's compressed form."""
        texts = [(tag, second, sparse.whole().encode()) for tag, second, sparse in self.histograms]
        return {
            "test": self.test,
            "process": self.process,
            "histograms": texts,
            "counts": self.counts,
            "cpu": self.cpu,
        }

    @classmethod
    def unpacked(cls, message: Mapping[str, Any]) -> News:
        """Return the update in a message.

        Raises
        ------
        ValueError
            If a histogram is damaged, or all of them unpack to more than those of a log of their size.
        """
        texts = message["histograms"]
        room = Room(sum(len(text) for _, _, text in texts))
        histograms = [(tag, second, SparseHistogram.decode(text, room)) for tag, second, text in texts]
        counts = [(op, second, dict(counts)) for op, second, counts in message["counts"]]
        cpu = [(second, cpu_ns, wall_ns) for second, cpu_ns, wall_ns in message["cpu"]]
        return cls(message["test"], message["process"], histograms, counts, cpu)


class Outbox:
    """Collects a process's updates until they are taken; the observer of its recorder and loop monitor."""

    def __init__(self, test: str, process: str) -> None:
        self._news = News(test, process)

    def saw(self, tag: str, second: int, histogram: SparseHistogram) -> None:
        """Add the histogram of one second; `tag` is as in the log: `<op>|<time>`, `lag` or `wait`."""
        self._news.histograms.append((tag, second, histogram))

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Add an op's counters of one second."""
        self._news.counts.append((op, second, dict(counts)))

    def used(self, second: int, cpu_ns: int, wall_ns: int) -> None:
        """Add the CPU time of the event loop's thread, and the wall time in which it was used."""
        self._news.cpu.append((second, cpu_ns, wall_ns))

    def take(self) -> News:
        """Return the update since the last call."""
        news, self._news = self._news, News(self._news.test, self._news.process)
        return news
