"""The live figures of a test: updates of all load processes, merged exactly, and samples of the host, by second."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from tsbench.drive.webui.live_updates import COUNTS, Tally
from tsbench.measure.bottleneck import Evidence, LoadProfile, limited_by
from tsbench.measure.hist import Histogram, SparseHistogram, values_needed
from tsbench.measure.merge import PERCENTS
from tsbench.measure.recorder import TIMES
from tsbench.results.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tsbench.drive.webui.live_updates import News

KEEP_S = 900
"""Length of the charts' history in seconds."""
NOW_S = 10
"""Length of "now": the mean of this many seconds, before the last ones that all workers have reported."""
WRITE = "write-"
"""Prefix of the names of write ops."""


@dataclass(slots=True)
class _Second:
    """One op (or the monitor's lag) in one second."""

    changed: int = 0
    seen: dict[str, list[SparseHistogram]] = field(default_factory=lambda: defaultdict(list))
    percentiles: dict[str, list[int | None]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def add(self, kind: str, sparse: SparseHistogram) -> None:
        self.seen[kind].append(sparse)
        self.percentiles[kind] = supported_percentiles(_sum(self.seen[kind]))


def supported_percentiles(histogram: Histogram) -> list[int | None]:
    """Return the percentiles of PERCENTS in ns, None for those that need more values."""
    values, total = histogram.percentiles_ns(PERCENTS.values()), len(histogram)
    return [
        value if total >= values_needed(percent) else None
        for percent, value in zip(PERCENTS.values(), values, strict=True)
    ]


def _sum(parts: list[SparseHistogram]) -> Histogram:
    whole = Histogram()
    for part in parts:
        part.add_to(whole)
    return whole


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
        self.test = ""
        self.start_s: int | None = None
        self._end_s: int | None = None
        self.host: deque[dict[str, float]] = deque(maxlen=KEEP_S)
        self.verdict: tuple[str, Mapping[str, float]] | None = None
        """The limit of a test that was checked, and the part `limit` of its summary: of the whole measured window."""
        self._revision = 0
        self._clear()

    def _clear(self) -> None:
        self._seconds: dict[tuple[int, str], _Second] = {}
        self._totals: dict[str, Histogram] = defaultdict(Histogram)
        self._tallies: dict[str, Tally] = defaultdict(Tally)
        self._self_seen: dict[str, dict[tuple[int, str], list[SparseHistogram]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._cpu: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._names: set[str] = set()

    def begin(self, test: str) -> None:
        """Start a new test; updates of other tests are ignored from now on."""
        self.test, self.start_s, self._end_s, self.verdict = test, None, None, None
        self.host.clear()
        self._clear()

    def end(self, end_s: int) -> None:
        """End the measured window, as the results have it: what came later does not count, here either."""
        self._end_s = end_s
        for (second, op), row in self._seconds.items():
            if second < end_s or not op or (self.start_s is not None and second < self.start_s):
                continue
            self._tallies[op].subtract(row.tally)
            for kind, parts in row.seen.items():
                for part in parts:
                    self._totals[f"{op}|{kind}"].counts[part.index] -= part.count

    def take(self, news: News) -> None:
        """Merge an update of a process; raises ValueError for more ops than a run has."""
        if news.test != self.test:
            return
        self._names |= {tag for tag, _, _ in news.histograms} | {op for op, _, _ in news.counts}
        if len(self._names) > LIMITS.tags + LIMITS.ops:
            raise ValueError(f"live updates of more than {LIMITS.ops} ops")
        self._revision += 1
        for tag, second, sparse in news.histograms:
            self._see(news.process, tag, second, sparse)
        for op, second, counts in news.counts:
            self._row(second, op).tally.add(counts)
            if self._counts(second):
                self._tallies[op].add(counts)
        for second, cpu_ns, wall_ns in news.cpu:
            self._cpu[news.process][second] = (cpu_ns, wall_ns)
        self._forget()

    def _see(self, process: str, tag: str, second: int, sparse: SparseHistogram) -> None:
        op, _, kind = tag.rpartition("|")
        self._row(second, op).add(kind, sparse)
        if not op:
            self._self_seen[process][second, kind].append(sparse)
        elif self._counts(second):
            sparse.add_to(self._totals[tag])

    def _row(self, second: int, op: str) -> _Second:
        row = self._seconds.setdefault((second, op), _Second())
        row.changed = self._revision
        return row

    def _counts(self, second: int) -> bool:
        """Return True if a second is in the measured window: others are shown in charts, but are not in totals."""
        return (self.start_s is None or second >= self.start_s) and (self._end_s is None or second < self._end_s)

    def _forget(self) -> None:
        newest = max((second for second, _ in self._seconds), default=0)
        for key in [key for key in self._seconds if key[0] <= newest - KEEP_S]:
            del self._seconds[key]
        for seen in self._self_seen.values():
            for place in [place for place in seen if place[0] <= newest - 3 * NOW_S]:
                del seen[place]
        for used in self._cpu.values():
            for second in [second for second in used if second <= newest - 3 * NOW_S]:
                del used[second]

    # --- what is shown ------------------------------------------------------------------------------------------------

    def since(self, revision: int, *, ended: bool = False) -> dict[str, Any]:
        """Return the charts' data: the rows that changed after a revision, and the whole seconds, [`from`, `until`).

        The seconds in which the load began and ended are not whole; when it has `ended`, no late updates are expected.
        """
        rows = [
            {
                "second": second,
                "op": op,
                **{kind: values for kind, values in row.percentiles.items() if not kind.endswith("-undelayed")},
                **{name: getattr(row.tally, name) for name in COUNTS},
            }
            for (second, op), row in sorted(self._seconds.items())
            if row.changed > revision
        ]
        until = self._span()[1] + (self._delay_s if ended else 0)
        return {"revision": self._revision, "seconds": rows, "from": self._first_whole(), "until": until}

    def _first_whole(self) -> int:
        return min((second for second, op in self._seconds if op), default=0) + 1

    def latency(self) -> Iterator[tuple[str, str, int, list[int | None]]]:
        """Yield for each op and kind after the warm-up: count, and its percentiles as `supported_percentiles`."""
        for tag, histogram in sorted(self._totals.items()):
            op, _, kind = tag.rpartition("|")
            if kind not in TIMES or not len(histogram):
                continue
            yield op, kind, len(histogram), supported_percentiles(histogram)

    def writes(self) -> Iterator[tuple[str, Tally, float]]:
        """Yield for each write op: its tally after the warm-up, and the points acknowledged per second now."""
        for op, tally in sorted(self._tallies.items()):
            if op.startswith(WRITE):
                points = sum(row.tally.points for (_, name), row in self._recent() if name == op)
                yield op, tally, points / max(1, self._recent_s())

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
        seen = self._evidence()
        lag = _sum([part for _, row in self._recent() for part in row.seen.get("lag", ())])
        return lag.percentiles_ns(PERCENTS.values()), max((one.hub_cpu_share for one in seen), default=0.0)

    def limit(self, users: int) -> tuple[str, str]:
        """Return what limits the test now, and the reason if that is the load generator or unknown."""
        rows = [(op, row) for (_, op), row in self._recent()]
        done = sum(row.tally.done for op, row in rows if op)
        if not done:
            return "unknown", "no op has ended in the last seconds"
        each_ns = users * self._recent_s() * 1e9 / done
        mean_ns = _sum([part for op, row in rows if op for part in row.seen["response"]]).mean_ns
        profile = LoadProfile(think_ns=max(0.0, each_ns - mean_ns), response_ns=mean_ns)
        name, verdict = limited_by(self._evidence(), profile)
        return name, verdict.reason

    def _evidence(self) -> list[Evidence]:
        first, end = self._span()
        found = []
        for process, seen in self._self_seen.items():
            kinds = {
                kind: _sum(
                    [part for (at, of), parts in seen.items() if of == kind and first <= at < end for part in parts]
                )
                for kind in ("lag", "wait")
            }
            used = [pair for second, pair in self._cpu[process].items() if first <= second < end]
            wall_ns = sum(wall for _, wall in used)
            share = sum(cpu for cpu, _ in used) / wall_ns if wall_ns else 0.0
            lag_p50, lag_p99 = kinds["lag"].percentiles_ns((50, 99))
            found.append(Evidence(share, lag_p50, lag_p99, kinds["wait"].percentile_ns(50)))
        return found

    def host_since(self, second: float) -> list[Mapping[str, float]]:
        """Return the host's samples after a moment (epoch s)."""
        behind = sum(1 for row in self.host if row["second"] <= second)
        return list(islice(self.host, behind, None))
