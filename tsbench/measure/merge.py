"""Merge the files of all load processes: exact histograms over all of them, and one row per second and op."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tsbench.measure.bottleneck import Evidence
from tsbench.measure.hist import Histogram, SparseHistogram, rank_of, scan_log
from tsbench.measure.margins import Batches, above
from tsbench.measure.recorder import TIMES, UNSENT
from tsbench.measure.seconds import COUNTS, LATENCIES, LogIndex, SecondTable, read_counters, read_objects, whole
from tsbench.results.figures import OpFigures, Tail
from tsbench.results.limits import LIMITS
from tsbench.results.reading import files_of, keeps_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import polars as pl

    from tsbench.results.figures import OpKind

_COUNTED = (*COUNTS[1:], "read", "stepped")
"""Counters of ops that ended, as the recorder names them."""
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(slots=True, kw_only=True)
class OpCounts:
    """Counts of the ops of one name that ended: by outcome, with acknowledged points and causes of failures."""

    done: int = 0
    failed: int = 0
    unknown: int = 0
    points: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    partial: int = 0
    read: int = 0
    """Ops whose answers had no stamp of the kernel: they count as ended when the answer was read."""
    stepped: int = 0
    """Ops during which the wall clock was set; they count so, too."""

    def count(self, line: Mapping[str, Any]) -> None:
        """Add the counters of one op and second, by name."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + whole(line, name))
        self.causes.update(line.get("causes", {}))
        if len(self.causes) > LIMITS.causes:
            raise ValueError(f"an op has more than {LIMITS.causes:,} causes of errors")

    def remove(self, other: OpCounts) -> None:
        """Take away counts that were added."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) - getattr(other, name))
        self.causes -= other.causes


@dataclass(slots=True)
class OpTotals(OpCounts):
    """Histograms and counts of one op over the measured window."""

    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    response_undelayed: Histogram = field(default_factory=Histogram)
    """Response times less how late the load processes sent, op by op."""
    lateness: Histogram = field(default_factory=Histogram)
    """How late ops were sent, of those that the load processes sent noticeably late."""
    first_bytes: Histogram = field(default_factory=Histogram)
    """Times until large answers began to arrive."""
    converted: Histogram = field(default_factory=Histogram)
    """Times until the client had their values."""
    unsent: Histogram = field(default_factory=Histogram)
    """Waiting times of arrivals whose ops had not ended when the run did; their response times would be longer."""
    batches: Batches = field(default_factory=Batches)
    """The same ops in stretches of the window, which show how much its figures are by chance."""

    def add(self, other: OpTotals) -> None:
        """Add another op's histograms and counts."""
        for name in HISTOGRAMS:
            getattr(self, name).add(getattr(other, name))
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.causes.update(other.causes)
        self.batches.add(other.batches)

    def tail(self, time: str, percent: float, limit_ns: float, *, certain_ns: float | None) -> Tail:
        """Return how many ops were not below a limit.

        Those beyond `certain_ns` without the client's lateness are the least number; None if the client had no part.
        The dependence is the larger one of the ops beyond the limit and of those beyond the percentile, because stalls
        make ops dependent also where none of them reached the limit.
        """
        ops: Histogram = getattr(self, time)
        undelayed = self.response_undelayed if time == "response" and len(self.response_undelayed) else ops
        waiting = self.unsent if time == "response" else Histogram()
        dependences = [self.batches.dependence(time, limit) for limit in (limit_ns, ops.percentile_ns(percent))]
        most = above(ops, limit_ns) + len(waiting)
        least = most if certain_ns is None else above(undelayed, certain_ns) + above(waiting, certain_ns)
        return Tail(
            ops=len(ops) + len(waiting),
            slow_least=min(least, most),
            slow_most=most,
            dependence=max((one for one in dependences if one is not None), default=None),
        )

    def figures(
        self,
        duration_s: float,
        percents: Mapping[str, float] | None = None,
        kind: OpKind | None = None,
        time: str | None = None,
    ) -> OpFigures:
        """Return the op's figures in a summary, with margins of the kind of time that counts.

        `percents` are percentiles in addition to PERCENTS.
        """
        wanted = PERCENTS | dict(percents or {})
        response_ns, at_least = self._response(wanted)
        undelayed_ns = _percentiles(_joined(self.response_undelayed, self.unsent), wanted)
        return OpFigures(
            kind=kind,
            count=len(self.response),
            ok=self.done - self.failed - self.unknown - self.partial,
            failed=self.failed,
            unknown=self.unknown,
            partial=self.partial,
            read=self.read,
            stepped=self.stepped,
            points=self.points,
            ops_per_s=self.done / duration_s,
            points_per_s=self.points / duration_s,
            unsent=len(self.unsent),
            response_ns=response_ns,
            response_at_least=at_least,
            response_undelayed_ns=undelayed_ns,
            service_ns=_percentiles(self.service, wanted),
            first_bytes_ns=_percentiles(self.first_bytes, wanted) if len(self.first_bytes) else {},
            converted_ns=_percentiles(self.converted, wanted) if len(self.converted) else {},
            causes=dict(self.causes.most_common()),
            margins=self._margins(time, wanted, at_least) if time else {},
        )

    def _margins(
        self, time: str, wanted: Mapping[str, float], at_least: Collection[str]
    ) -> dict[str, tuple[float, float]]:
        margins = self.batches.margins(time, getattr(self, time), wanted)
        return {name: ends for name, ends in margins.items() if name not in at_least}

    def _response(self, wanted: Mapping[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
        """Return the response percentiles of all arrivals, and the names of those that are lower bounds.

        An arrival whose op had not ended counts with the time that it had waited. A percentile is exact if it would be
        the same however much longer these arrivals took.
        """
        if not len(self.unsent):
            return _percentiles(self.response, wanted), ()
        due = _joined(self.response, self.unsent)
        shortest, total = _percentiles(due, wanted), len(due)
        longest = self.response.percentiles_ns(
            [100 * rank_of(p, total) / max(1, len(self.response)) for p in wanted.values()]
        )
        at_least = [
            name
            for (name, percent), value in zip(wanted.items(), longest, strict=True)
            if rank_of(percent, total) > len(self.response) or value > shortest[name]
        ]
        return shortest, (*at_least, "mean")


HISTOGRAMS = tuple(each.name for each in fields(OpTotals) if each.default_factory is Histogram)


class WindowTotals:
    """Totals by op of the measured window [start_s, end_s), from the seconds of all load processes in any order.

    The report's are fed from their files, the live page's from their messages. An end that is None is open.
    """

    def __init__(self, start_s: int | None = None, end_s: int | None = None) -> None:
        self.start_s, self.end_s = start_s, end_s
        window_s = 0 if start_s is None or end_s is None else end_s - start_s
        self.totals: dict[str, OpTotals] = defaultdict(lambda: OpTotals(batches=Batches(window_s)))

    def includes(self, second: int) -> bool:
        """Return True if a second of the epoch is in the window."""
        return (self.start_s is None or second >= self.start_s) and (self.end_s is None or second < self.end_s)

    def see(self, second: int, op: str, kind: str, histogram: SparseHistogram) -> None:
        """Add the times of one op in one second, if it is in the window and a summary has times of that kind."""
        name = kind.replace("-", "_")
        if name in HISTOGRAMS and self.includes(second):
            totals = self.totals[op]
            histogram.add_to(getattr(totals, name))
            if kind in TIMES:
                totals.batches.see(kind, second - (self.start_s or 0), histogram)

    def count(self, second: int, op: str, line: Mapping[str, Any]) -> None:
        """Add the counters of one op in one second, if it is in the window."""
        if self.includes(second):
            totals = self.totals[op]
            totals.count(line)
            totals.batches.count(second - (self.start_s or 0), whole(line, "done"), whole(line, "points"))


@dataclass(slots=True)
class Merged:
    """The merged result of all processes.

    `totals` covers the measured window, by op; `per_second` holds the rows of ops.parquet, None without polars;
    `recorded` and `counted` count every op, with warm-up. `unsent` counts the arrivals whose ops never ended by the
    second of the window in which they were due.
    """

    totals: dict[str, OpTotals]
    per_second: pl.DataFrame | None
    recorded: int
    counted: int
    unsent: Mapping[int, int]


def merge(directory: Path, *, start_s: int, end_s: int) -> Merged:
    """Merge the files of a run directory; the measured window is [start_s, end_s) in epoch seconds.

    `recorded` is the number of ops in the histograms, `counted` in the counters, both with warm-up: they must agree.
    Logs are read twice, first to index the seconds, so that only one second's histograms are in memory at a time. The
    index is needed because a process may write a second again much later, when an op ends that was due then.

    Raises
    ------
    ValueError
        If a histogram log is damaged.
    """
    window = WindowTotals(start_s, end_s)
    counters = [read_counters(path, window.count) for path in files_of(directory / "process", "*.ops.jsonl")]
    logs = LogIndex(files_of(directory / "latency", "*.hlog"))
    table = SecondTable([logs, *counters])
    for part in counters:
        table.add_counters(part)
    recorded, unsent = 0, Histogram()
    unsent_per_s = Counter[int]()
    for second, op, kind, histogram in logs.histograms():
        if f"{op}|{kind}" == UNSENT:
            if window.includes(second):
                histogram.add_to(unsent)
                unsent_per_s[second - start_s] += len(histogram)
            continue
        if kind in TIMES:
            table.set_latencies(second, op, kind, histogram.percentiles_ns(tuple(LATENCIES.values())))
        window.see(second, op, kind, histogram)
        recorded += len(histogram) if kind == "response" else 0
    _distribute(unsent, window.totals)
    counted = sum(int(part.numbers[:, COUNTS.index("done")].sum()) for part in counters)
    per_second = table.frame(start_s) if keeps_tables() else None
    return Merged(dict(window.totals), per_second, recorded, counted, unsent_per_s)


def _distribute(unsent: Histogram, totals: Mapping[str, OpTotals]) -> None:
    """Add unsent arrivals to the ops that they would have become, in proportion to those that were sent."""
    counts = {op: len(totals[op].response) for op in sorted(totals)}
    whole = SparseHistogram.of(unsent)
    before, given = 0, whole.count * 0
    for op, count in counts.items():
        before += count
        so_far = whole.count * before // max(1, sum(counts.values()))
        SparseHistogram(whole.index, so_far - given).add_to(totals[op].unsent)
        given = so_far


@dataclass(slots=True, eq=False)
class SelfObservation:
    """A load process's own delays, and the CPU time of its event loop, in the seconds that were added."""

    lag: Histogram = field(default_factory=Histogram)
    wait: Histogram = field(default_factory=Histogram)
    cpu_ns: int = 0
    wall_ns: int = 0

    def see(self, kind: str, histogram: SparseHistogram) -> None:
        """Add the delays of one second: `lag` of the event loop, or `wait` for a thread."""
        if kind in {"lag", "wait"}:
            histogram.add_to(getattr(self, kind))

    def used(self, cpu_ns: int, wall_ns: int) -> None:
        """Add the CPU time of one second, and its length."""
        self.cpu_ns += cpu_ns
        self.wall_ns += wall_ns

    @property
    def evidence(self) -> Evidence:
        """The figures by which the process is judged."""
        lag_p50, lag_p99 = self.lag.percentiles_ns((50, 99))
        share = self.cpu_ns / self.wall_ns if self.wall_ns else 0.0
        return Evidence(share, lag_p50, lag_p99, self.wait.percentile_ns(50))


def observation(directory: Path, process: str, *, start_s: int, end_s: int) -> SelfObservation:
    """Return the delays and the CPU use of a load process in the measured window."""
    total = SelfObservation()
    for line in scan_log(directory / "process" / f"{process}.self.hlog"):
        if line.tag in {"lag", "wait"} and start_s <= int(line.start_s) < end_s:
            total.see(line.tag, line.decode())
    for _, usage in read_objects(directory / "process" / f"{process}.cpu.jsonl"):
        if start_s <= usage["second"] < end_s:
            total.used(whole(usage, "cpu_ns"), whole(usage, "wall_ns"))
    return total


def _joined(one: Histogram, other: Histogram) -> Histogram:
    both = Histogram()
    both.add(one)
    both.add(other)
    return both


def _percentiles(histogram: Histogram, percents: Mapping[str, float]) -> dict[str, float]:
    values = histogram.percentiles_ns(percents.values())
    return {**dict(zip(percents, values, strict=True)), "mean": histogram.mean_ns}
