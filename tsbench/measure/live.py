"""Figures of the last seconds of a run, from the files of its load processes; and gates on figures so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.measure.gates import KINDS, figure_text, parse_figure, parse_gate
from tsbench.measure.hist import Histogram, scan_log, values_needed
from tsbench.measure.merge import OpTotals, WindowTotals
from tsbench.measure.recorder import TIMES
from tsbench.measure.seconds import read_objects, whole
from tsbench.results.reading import files_of
from tsbench.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.measure.gates import Gate
    from tsbench.measure.hist import SparseHistogram

NOW_S = 5
"""Length of "now": the last seconds that all load processes have written."""


@dataclass(frozen=True, slots=True)
class GateNow:
    """A gate on figures so far, which decide nothing; `holds` is None without a figure, or with too few ops for it."""

    gate: str
    holds: bool | None
    figure: str = ""

    def __str__(self) -> str:
        if self.holds is None:
            return f"{self.gate} not known yet"
        return f"{self.gate} {'holds' if self.holds else 'BROKEN'} ({self.figure})"


def gates_now(gates: Sequence[Gate], totals: Mapping[str, OpTotals], length_s: float, time: str) -> list[GateNow]:
    """Return whether gates hold on the ops of `length_s` seconds, by op; `time` is the one that counts."""
    results = []
    for gate in gates:
        value = _so_far(gate, totals, length_s, gate.time or time)
        name = gate.text.partition(gate.sign)[0]
        known = (gate.holds(value), figure_text(name, value)) if value is not None else (None, "")
        results.append(GateNow(gate.text, *known))
    return results


def _so_far(gate: Gate, totals: Mapping[str, OpTotals], length_s: float, time: str) -> float | None:
    """Return a gate's figure of the ops so far; None for too few, and for figures that only a whole run has."""
    ops = [one for op, one in totals.items() if gate.of in {None, op, _kind(op)}]
    done = sum(one.done for one in ops)
    if not done or length_s <= 0 or gate.figure == "first":
        return None
    if gate.is_latency:
        times = Histogram()
        for one in ops:
            times.add(getattr(one, time))
        if gate.percent is None:
            return None if not len(times) else times.max_ns if gate.figure == "max" else times.mean_ns
        return times.percentile_ns(gate.percent) if len(times) >= values_needed(gate.percent) else None
    amounts = {
        "failures": sum(one.failed + one.unknown + one.partial for one in ops) / done,
        "points/s": sum(one.points for one in ops) / length_s,
        "ops/s": done / length_s,
    }
    return amounts.get(gate.figure)


def _kind(op: str) -> str:
    return "write" if op.startswith("write") else "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Figures of the last seconds; `failed` counts ops since the load began, those that ended unknown among them."""

    ops_per_s: float
    points_per_s: float
    failed: int
    p99_ns: Mapping[str, float]
    """By kind of op; kinds with too few ended ops are missing."""
    gates: Sequence[GateNow] = ()

    def __str__(self) -> str:
        times = ", ".join(f"{kind} {format_duration(p99_ns)}" for kind, p99_ns in self.p99_ns.items())
        points = f", {self.points_per_s:,.0f} points/s" if self.points_per_s else ""
        parts = [
            f"{self.ops_per_s:,.0f} ops/s{points}",
            *([f"p99 {times}"] if times else []),
            f"{self.failed:,} failed",
        ]
        return "; ".join([*parts, *map(str, self.gates)])


class LiveFigures:
    """Reads the load processes' files while they grow, each byte once.

    Parameters
    ----------
    directory
        The run directory.
    time
        The time of an op that counts: "response" in an open loop, "service" in a closed one.
    gates
        The run's gates, which are shown as far as the last seconds have their figures.
    """

    def __init__(self, directory: Path, time: str, gates: Sequence[str] = ()) -> None:
        self._directory, self._time = directory, time
        self._gates = [parse_gate(text) for text in gates]
        self._ends: dict[Path, int] = defaultdict(int)
        """The offset in each file up to which it was read."""
        self._counts: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
        """The counters of the last seconds by op, and below its histograms by kind of time, too."""
        self._histograms: dict[tuple[int, str, str], list[SparseHistogram]] = defaultdict(list)
        self._newest: dict[Path, int] = {}
        self._first_s: int | None = None
        """The second in which the load began: only a part of that second has ops, so its rate is too low."""
        self._failed = 0
        self.done = 0
        """Ops that have ended since the load began."""

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
                self._counts[counts["second"], str(counts["op"])].append(counts)
                self._first_s = min(counts["second"], self._first_s or counts["second"])
                self._newest[path] = max(counts["second"], self._newest.get(path, 0))
                self.done += whole(counts, "done")
                self._failed += whole(counts, "failed") + whole(counts, "unknown")
        for path in files_of(self._directory / "latency", "*.hlog"):
            for line in scan_log(path, start=self._ends[path]):
                self._ends[path] = line.offset + line.size + 1
                op, _, time = line.tag.rpartition("|")
                if op and time in TIMES:
                    self._histograms[int(line.start_s), op, time].append(line.decode())
        if not self._newest:
            return None
        return self._figures(min(self._newest.values()))

    def _figures(self, end_s: int) -> Now | None:
        """Return the figures of the last seconds before `end_s`, and forget those before them.

        The first second of the load counts only as long as there is no other.
        """
        histories: list[dict[Any, Any]] = [self._counts, self._histograms]
        for history in histories:
            others = any(self._first_s != second < end_s for second, *_ in history)
            for key in [key for key in history if key[0] < end_s - NOW_S or (others and key[0] == self._first_s)]:
                del history[key]
        window = WindowTotals(end_s=end_s)
        for (second, op), lines in self._counts.items():
            for counts in lines:
                window.count(second, op, counts)
        for (second, op, time), parts in self._histograms.items():
            for part in parts:
                window.see(second, op, time, part)
        totals = window.totals
        seconds = [second for second, _ in self._counts if second < end_s]
        if not seconds:
            return None
        length_s = end_s - min(seconds)
        p99s = {kind: _so_far(parse_figure(f"{kind}:p99"), totals, length_s, self._time) for kind in KINDS}
        return Now(
            ops_per_s=sum(one.done for one in totals.values()) / length_s,
            points_per_s=sum(one.points for one in totals.values()) / length_s,
            failed=self._failed,
            p99_ns={kind: p99_ns for kind, p99_ns in p99s.items() if p99_ns is not None},
            gates=gates_now(self._gates, totals, length_s, self._time),
        )
