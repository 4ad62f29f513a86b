"""Figures of the last seconds of a run, from the files of its load processes while these grow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.measure.hist import Histogram, scan_log, values_needed
from tsbench.measure.merge import OpCounts
from tsbench.measure.seconds import read_objects, whole
from tsbench.results.reading import files_of
from tsbench.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.measure.hist import SparseHistogram

NOW_S = 5
"""Length of "now": the last seconds that all load processes have written."""
KINDS = ("write", "query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Figures of the last seconds; `failed` counts ops since the load began, those that ended unknown among them."""

    ops_per_s: float
    points_per_s: float
    failed: int
    p99_ns: Mapping[str, int]
    """By kind of op; a kind of which too few ops have ended is missing."""

    def __str__(self) -> str:
        times = ", ".join(f"{kind} {format_duration(p99_ns)}" for kind, p99_ns in self.p99_ns.items())
        points = f", {self.points_per_s:,.0f} points/s" if self.points_per_s else ""
        return (
            f"{self.ops_per_s:,.0f} ops/s{points}" + (f"; p99 {times}" if times else "") + f"; {self.failed:,} failed"
        )


class LiveFigures:
    """Reads the load processes' files while they grow, each byte once.

    Parameters
    ----------
    directory
        The run directory.
    time
        The time of an op that counts: "response" in an open loop, "service" in a closed one.
    """

    def __init__(self, directory: Path, time: str) -> None:
        self._directory, self._time = directory, time
        self._ends: dict[Path, int] = defaultdict(int)
        """The offset in each file up to which it was read."""
        self._counts: dict[int, OpCounts] = defaultdict(OpCounts)
        self._histograms: dict[tuple[int, str], list[SparseHistogram]] = defaultdict(list)
        self._newest: dict[Path, int] = {}
        self._failed = 0

    def now(self) -> Now | None:
        """Read the files' new lines; return the figures of the last seconds, None before a second is whole.

        Raises
        ------
        OSError, ValueError
            If a file cannot be read, or is damaged: the text names file and line.
        """
        for path in files_of(self._directory / "process", "*.ops.jsonl"):
            for end, counts in read_objects(path, start=self._ends[path]):
                self._ends[path] = end
                self._counts[counts["second"]].count(counts)
                self._newest[path] = max(counts["second"], self._newest.get(path, 0))
                self._failed += whole(counts, "failed") + whole(counts, "unknown")
        for path in files_of(self._directory / "latency", "*.hlog"):
            for line in scan_log(path, start=self._ends[path]):
                self._ends[path] = line.offset + line.size + 1
                op, _, time = line.tag.rpartition("|")
                if time == self._time:
                    kind = "write" if op.startswith("write") else "query"
                    self._histograms[int(line.start_s), kind].append(line.decode())
        if not self._newest:
            return None
        return self._figures(min(self._newest.values()))

    def _figures(self, end_s: int) -> Now | None:
        """Return the figures of the last seconds before `end_s`, and forget those before them."""
        for second in [second for second in self._counts if second < end_s - NOW_S]:
            del self._counts[second]
        for key in [key for key in self._histograms if key[0] < end_s - NOW_S]:
            del self._histograms[key]
        seconds = [second for second in self._counts if second < end_s]
        if not seconds:
            return None
        length_s = end_s - min(seconds)
        p99_ns = {}
        for kind in KINDS:
            times = Histogram()
            for (second, of), parts in self._histograms.items():
                for part in parts if of == kind and second < end_s else ():
                    part.add_to(times)
            if len(times) >= values_needed(99):
                p99_ns[kind] = times.percentile_ns(99)
        return Now(
            ops_per_s=sum(self._counts[second].done for second in seconds) / length_s,
            points_per_s=sum(self._counts[second].points for second in seconds) / length_s,
            failed=self._failed,
            p99_ns=p99_ns,
        )
