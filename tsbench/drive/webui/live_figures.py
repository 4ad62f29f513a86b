"""The live figures of a test, by second: what its load processes report meanwhile, and samples of the host.

They are merged as the report's are (`measure.merge`), from the histograms and counters that the processes also write to
their files. A worker's updates travel to the master with Locust's own reports, every 3 s; a single process passes them
on once a second.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from tsbench.measure.bottleneck import LoadProfile, limited_by
from tsbench.measure.hist import Histogram, SparseHistogram, values_needed
from tsbench.measure.live import gates_now
from tsbench.measure.merge import PERCENTS, OpCounts, SelfObservation, WindowTotals
from tsbench.measure.recorder import LATENESS, TIMES
from tsbench.measure.seconds import COUNTS
from tsbench.results.limits import LIMITS
from tsbench.results.reading import Room

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.measure.gates import Gate
    from tsbench.measure.live import GateNow
    from tsbench.results.figures import Limit


KEEP_S = 900
"""Length of the charts' history in seconds."""
NOW_S = 10
"""Length of "now": the mean of this many seconds, before the last ones that all workers have reported."""
MOST_KEPT = 10_000_000
"""Used counters of histograms in the history, 16 bytes each; beyond it is shorter than KEEP_S."""
WRITE = "write-"
"""Prefix of the names of write ops."""


@dataclass(slots=True)
class Updates:
    """What a process has reported since `take`: the observer of its recorder and loop monitor.

    Histograms are by (tag, second), counters by (op, second).
    """

    test: str
    process: str
    histograms: list[tuple[str, int, SparseHistogram]] = field(default_factory=list)
    counts: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    cpu: list[tuple[int, int, int]] = field(default_factory=list)

    def saw(self, tag: str, second: int, histogram: SparseHistogram) -> None:
        """Add the histogram of one second; `tag` is as in the log: `<op>|<time>`, `lag` or `wait`."""
        self.histograms.append((tag, second, histogram))

    def counted(self, op: str, second: int, counts: Mapping[str, Any]) -> None:
        """Add an op's counters of one second."""
        self.counts.append((op, second, dict(counts)))

    def used(self, second: int, cpu_ns: int, wall_ns: int) -> None:
        """Add the CPU time of the event loop's thread, and the wall time in which it was used."""
        self.cpu.append((second, cpu_ns, wall_ns))

    def take(self) -> Updates:
        """Return the updates since the last call."""
        taken = Updates(self.test, self.process, self.histograms, self.counts, self.cpu)
        self.histograms, self.counts, self.cpu = [], [], []
        return taken

    def packed(self) -> dict[str, Any]:
        """Return them as a message; histograms in HdrHistogram's compressed form."""
        texts = [(tag, second, sparse.encode()) for tag, second, sparse in self.histograms]
        return {"test": self.test, "process": self.process, "histograms": texts, "counts": self.counts, "cpu": self.cpu}

    @classmethod
    def unpacked(cls, message: Mapping[str, Any]) -> Updates:
        """Return the updates in a message.

        Raises
        ------
        ValueError
            If a histogram is damaged, or all of them unpack to more than those of a log of their size.
        """
        texts = message["histograms"]
        room = Room(sum(len(text) for _, _, text in texts))
        histograms = [(tag, second, SparseHistogram.decode(text, room)) for tag, second, text in texts]
        counts = [(op, second, dict(counts)) for op, second, counts in message["counts"]]
        return cls(message["test"], message["process"], histograms, counts, [tuple(used) for used in message["cpu"]])


@dataclass(slots=True)
class _Second:
    """One op (or the monitor's lag) in one second."""

    changed: int = 0
    times: dict[str, SparseHistogram] = field(default_factory=dict)
    percentiles: dict[str, list[int | None]] = field(default_factory=dict)
    counts: OpCounts = field(default_factory=OpCounts)

    def see(self, kind: str, sparse: SparseHistogram) -> None:
        before = self.times.get(kind)
        self.times[kind] = sparse if before is None else SparseHistogram.sum([before, sparse])
        self.percentiles[kind] = supported_percentiles(self.times[kind])

    @property
    def size(self) -> int:
        """Memory that the row takes, in counters of histograms."""
        texts = sum(10 + len(cause) // 8 for cause in self.counts.causes)
        return 100 + texts + sum(50 + sparse.index.size for sparse in self.times.values())


def supported_percentiles(histogram: Histogram | SparseHistogram) -> list[int | None]:
    """Return the percentiles of PERCENTS in ns, None for those that need more values."""
    values, total = histogram.percentiles_ns([*PERCENTS.values()]), len(histogram)
    return [
        value if total >= values_needed(percent) else None
        for percent, value in zip(PERCENTS.values(), values, strict=True)
    ]


class Figures:
    """Figures of the current test, or of the last one.

    A response belongs to the second in which its op was due, so an update may change a second that was already shown:
    every row has the revision of its last change, and `since` returns only later ones.

    Parameters
    ----------
    delay_s
        Maximum delay of updates after their second: workers report every 3 s, and not all at once.
    """

    def __init__(self, *, delay_s: int = 0) -> None:
        self._delay_s = delay_s
        self.host: deque[dict[str, float]] = deque(maxlen=KEEP_S)
        self._revision = 0
        self.begin("")

    def begin(self, test: str) -> None:
        """Start a new test; updates of other tests are ignored from now on."""
        self.test = test
        self.window = WindowTotals()
        """The measured window, whose start is set once it is known; before, all seconds are in it."""
        self.verdict: tuple[str, Limit | None] | None = None
        """The limit of a test that was checked, and the part `limit` of its summary: of the whole measured window."""
        self.host.clear()
        self._seconds: dict[tuple[int, str], _Second] = {}
        self._kept = 0
        """Sum of the sizes of all rows."""
        self._own: dict[str, dict[int, _Second]] = defaultdict(lambda: defaultdict(_Second))
        """What each process has seen of itself, by second."""
        self._cpu: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._names: set[str] = set()

    def end(self, end_s: int) -> None:
        """End the measured window, as the results have it: what came later does not count, here either."""
        for (second, op), row in self._seconds.items():
            if op and second >= end_s and self.window.includes(second):
                totals = self.window.totals[op]
                totals.remove(row.counts)
                for kind, sparse in row.times.items():
                    SparseHistogram(sparse.index, -sparse.count).add_to(getattr(totals, kind))
        self.window.end_s = end_s

    def take(self, updates: Updates) -> None:
        """Merge the updates of a process; raises ValueError for more ops or processes than a run has."""
        if updates.test != self.test:
            return
        names = self._names.union((tag for tag, _, _ in updates.histograms), (op for op, _, _ in updates.counts))
        if len(names) > LIMITS.tags + LIMITS.ops:
            raise ValueError(f"live updates of more than {LIMITS.ops} ops")
        if len(self._cpu.keys() | {updates.process}) > LIMITS.entries:
            raise ValueError(f"live updates of more than {LIMITS.entries:,} processes")
        self._names = names
        self._revision += 1
        own, used = self._own[updates.process], self._cpu[updates.process]
        touched = {(second, tag.rpartition("|")[0]) for tag, second, _ in updates.histograms}
        touched |= {(second, op) for op, second, _ in updates.counts}
        before = sum(row.size for row in [*filter(None, map(self._seconds.get, touched)), *own.values()])
        rows = [self._row(*key) for key in touched]
        try:
            for tag, second, sparse in updates.histograms:
                op, _, kind = tag.rpartition("|")
                self._seconds[second, op].see(kind, sparse)
                if op:
                    self.window.see(second, op, kind, sparse)
                else:
                    own[second].see(kind, sparse)
            for op, second, counts in updates.counts:
                self._seconds[second, op].counts.count(counts)
                self.window.count(second, op, counts)
        finally:
            self._kept += sum(row.size for row in [*rows, *own.values()]) - before
        used.update({second: (cpu_ns, wall_ns) for second, cpu_ns, wall_ns in updates.cpu})
        self._forget()

    def _row(self, second: int, op: str) -> _Second:
        row = self._seconds.setdefault((second, op), _Second())
        row.changed = self._revision
        return row

    def _forget(self) -> None:
        newest = max(chain((second for second, _ in self._seconds), *self._cpu.values()), default=0)
        for key in [key for key in self._seconds if key[0] <= newest - KEEP_S]:
            self._kept -= self._seconds.pop(key).size
        for process, used in self._cpu.items():
            own = self._own[process]
            for second in [second for second in own if second <= newest - 3 * NOW_S]:
                self._kept -= own.pop(second).size
            for second in [second for second in used if second <= newest - 3 * NOW_S]:
                del used[second]
        if self._kept > MOST_KEPT:
            self._shorten()

    def _shorten(self) -> None:
        """Forget the oldest rows until a quarter of MOST_KEPT is free."""
        histories: list[dict[Any, _Second]] = [self._seconds, *self._own.values()]
        for history in histories:
            for key in sorted(history):
                if self._kept <= MOST_KEPT * 3 // 4:
                    return
                self._kept -= history.pop(key).size

    # --- what is shown ------------------------------------------------------------------------------------------------

    def since(self, revision: int, *, ended: bool = False) -> dict[str, Any]:
        """Return the charts' data: the rows that changed after a revision, and the whole seconds, [`from`, `until`).

        The seconds in which the load began and ended are not whole; when it has `ended`, no late updates are expected.
        """
        rows = [
            {
                "second": second,
                "op": op,
                **row.percentiles,
                **{name: getattr(row.counts, name) for name in COUNTS[1:]},
            }
            for (second, op), row in sorted(self._seconds.items())
            if row.changed > revision
        ]
        until = self._span()[1] + (self._delay_s if ended else 0)
        return {"revision": self._revision, "seconds": rows, "from": self._first_whole(), "until": until}

    def _first_whole(self) -> int:
        return min((second for second, op in self._seconds if op), default=0) + 1

    def latency(self) -> Iterator[tuple[str, str, int, list[int | None]]]:
        """Yield for each op and kind after the warm-up: count, and its percentiles as `supported_percentiles`.

        The kind `lateness` is how late ops were sent, of those that the load generator sent noticeably late.
        """
        for op, totals in sorted(self.window.totals.items()):
            for kind in (LATENESS, *TIMES):
                histogram = getattr(totals, kind)
                if len(histogram):
                    yield op, kind, len(histogram), supported_percentiles(histogram)

    def writes(self) -> Iterator[tuple[str, OpCounts, float]]:
        """Yield for each write op: its counts after the warm-up, and the points acknowledged per second now."""
        for op, totals in sorted(self.window.totals.items()):
            if op.startswith(WRITE):
                points = sum(row.counts.points for (_, name), row in self._recent() if name == op)
                yield op, totals, points / max(1, self._recent_s())

    def gates(self, gates: Sequence[Gate], time: str) -> list[GateNow]:
        """Return whether gates hold on all ops after the warm-up so far."""
        newest = max((second for second, op in self._seconds if op), default=0)
        start_s = self.window.start_s
        return gates_now(gates, self.window.totals, 0 if start_s is None else newest + 1 - start_s, time)

    def _span(self) -> tuple[int, int]:
        """Return the seconds that are "now", without those that may still change."""
        newest = max((second for second, _ in self._seconds), default=0) - self._delay_s
        return min(max(newest - NOW_S, self._first_whole()), newest), newest

    def _recent(self) -> Iterator[tuple[tuple[int, str], _Second]]:
        first, end = self._span()
        return (item for item in self._seconds.items() if first <= item[0][0] < end)

    def _recent_s(self) -> int:
        first, end = self._span()
        return end - first

    def itself(self) -> tuple[list[int], float]:
        """Return the generator's state now: its event loops' lag at PERCENTS (ns), and the CPU share of the busiest."""
        own, together = self._observations(), SelfObservation()
        for one in own:
            together.lag.add(one.lag)
        return together.lag.percentiles_ns(PERCENTS.values()), max((o.evidence.hub_cpu_share for o in own), default=0.0)

    def limit(self, users: int) -> tuple[str, str]:
        """Return what limits the test now, and the reason if that is the load generator or unknown."""
        rows = [row for (_, op), row in self._recent() if op]
        done = sum(row.counts.done for row in rows)
        if not done:
            return "unknown", "no op has ended in the last seconds"
        responses, late = Histogram(), Histogram()
        for row in rows:
            for kind, histogram in (("response", responses), (LATENESS, late)):
                if kind in row.times:
                    row.times[kind].add_to(histogram)
        delayed_ns = late.mean_ns * len(late) / max(1, len(responses))
        profile = LoadProfile.of_users(users, self._recent_s(), done, responses.mean_ns, delayed_ns=delayed_ns)
        name, verdict = limited_by([one.evidence for one in self._observations()], profile, users=users)
        return name, verdict.reason

    def _observations(self) -> list[SelfObservation]:
        """Return what each process has seen of itself in the last seconds."""
        first, end = self._span()
        observations = []
        for process, seen in self._own.items():
            own = SelfObservation()
            for second, row in seen.items():
                for kind, sparse in row.times.items() if first <= second < end else ():
                    own.see(kind, sparse)
            for second, (cpu_ns, wall_ns) in self._cpu[process].items():
                if first <= second < end:
                    own.used(cpu_ns, wall_ns)
            observations.append(own)
        return observations

    def host_since(self, second: float) -> list[Mapping[str, float]]:
        """Return the host's samples after a moment (epoch s)."""
        return [row for row in self.host if row["second"] > second]
