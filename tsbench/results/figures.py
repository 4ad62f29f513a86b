"""Figures: the parts of a run's summary, what was measured, stored and checked; `summary` has the whole.

A part that a run did not reach is None in its summary. Units are in the names: times are in ns or s, rates per second.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from tsbench.results.json_files import STRICT, Count, Flag, Named, Number, Part, Several, Text
from tsbench.text import listed
from tsbench.units import NS_PER_S, format_count, format_duration

OpKind: TypeAlias = Literal["write", "query"]


# --- what was measured ------------------------------------------------------------------------------------------------


class OpFigures(Part):
    """Figures of an op in the measured window, or of all writes or queries together.

    - `count` ops were due in the window (open loop) or sent in it (closed loop) and have ended. Those that ended in it
      are `ok`, `failed`, `unknown` or `partial` (a write that was refused in part).
    - `read` of them ended when the client read the answer, since the kernel had no stamp for it; `stepped` did, too,
      since the wall clock was set meanwhile.
    - Times are by percentile (`p99`, `max`) and `mean`. `response_undelayed_ns` are response times less the lateness of
      the load processes. If `unsent` arrivals had not ended with the run, `response_at_least` names the percentiles
      that are lower bounds for that reason.
    - `first_bytes_ns` and `converted_ns` are of large answers, from their send: until they began to arrive (where the
      kernel knows), and until their values were Python's.
    - `margins` are the lowest and highest value that a figure may have by chance within this run (95 %): of percentiles
      and `mean` of the time that counts, `ops/s` and `points/s`. Those that are missing need a longer window.
    """

    kind: OpKind | None = None
    count: Count
    ok: Count
    failed: Count
    unknown: Count
    partial: Count
    read: Count
    stepped: Count
    points: Count
    rows: Count = 0
    """Rows of the answers to a query that was due in the window."""
    empty: Count = 0
    """Such answers without a row."""
    ops_per_s: Number
    points_per_s: Number
    unsent: Count
    response_ns: Named[Number]
    response_at_least: Several[Text]
    response_undelayed_ns: Named[Number]
    service_ns: Named[Number]
    first_bytes_ns: Named[Number] = Field(default_factory=dict)
    converted_ns: Named[Number] = Field(default_factory=dict)
    causes: Named[Count]
    margins: Named[tuple[Number, Number]] = Field(default_factory=dict)

    @property
    def stages_ns(self) -> tuple[dict[str, float], ...]:
        """Times of large answers, by percentile, until: first bytes, all arrived, converted; () if none was large."""
        return (self.first_bytes_ns, self.service_ns, self.converted_ns) if self.converted_ns else ()

    @property
    def bad(self) -> int:
        """Number of ops that failed, in whole or in part, or ended unknown."""
        return self.failed + self.unknown + self.partial

    @property
    def ended(self) -> int:
        """Number of ops that ended in the window; `count` is of ops that were due in it."""
        return self.ok + self.bad


class Window(Part):
    """The measured window in epoch seconds, and the duration of the warm-up before it."""

    start_s: Number
    duration_s: Number
    warmup_s: Number


class Tail(Part):
    """Number of ops at or beyond the limit of a gate on a percentile, of `ops`, as a test of the gate needs them.

    `slow_least` is their number without the lateness of the load processes, and `slow_most` that with arrivals that had
    not ended. `dependence` is the number of ops that tell as much as an independent one; None if it is not known.
    """

    ops: Count
    slow_least: Count
    slow_most: Count
    dependence: Number | None


class Measured(Part):
    """Figures of the measured window by op, and of all ops of a kind together; `tails` are by the text of a gate.

    `time_drifts` are how many times as long an op took at its end as at its beginning; `disk_read_bytes` is what the
    server's processes, if any, read from storage (not from the page cache) from its beginning until the load ended.
    """

    duration_s: Number
    window: Window
    ops: Named[OpFigures]
    write: OpFigures | None = None
    query: OpFigures | None = None
    tails: Named[Tail] = Field(default_factory=dict)
    time_drifts: Named[Number] = Field(default_factory=dict)
    disk_read_bytes: Count | None = None

    @property
    def ended(self) -> int:
        """Number of ops that ended in the window, however."""
        return sum(op.ended for op in (self.write, self.query) if op)

    def of_kind(self, kind: str) -> OpFigures | None:
        """Return the figures of all ops of a kind; None without such ops."""
        return self.write if kind == "write" else self.query if kind == "query" else None


class Limit(Part):
    """What the load processes and the host saw of themselves.

    `in_flight` is the mean number of ops between send and arrival, `in_time_per_s` the rate of a closed loop had every
    op been sent when it was due, `sent_in_bursts` a share of the ops (see `measure.latency`). Cores, other processes'
    cores and `steal_percent` are None if the host was not sampled; `disturbed` says what used it meanwhile.
    """

    hub_lag_p50_ns: Number
    hub_lag_p99_ns: Number
    hub_cpu_percent: Number
    pool_wait_p50_ns: Number
    in_flight: Number
    in_time_per_s: Number | None = None
    sent_in_bursts: Number
    cores: Count | None
    others_cores: Number | None
    steal_percent: Number | None
    disturbed: Text


@dataclass(frozen=True, slots=True, config=STRICT)
class CounterRise:
    """A counter that was high during a stall.

    `panel`, `label`, `unit` and `kind` are a `results.panels.Panel`'s. `usual` is the median of the other seconds, and
    `highest` is `deviations` robust standard deviations above it; both are per second if the kind is `rate`.
    """

    counter: Text
    panel: Text
    label: Text
    unit: Text
    kind: Text
    usual: Number
    highest: Number
    deviations: Number


@dataclass(frozen=True, slots=True, config=STRICT)
class Stall:
    """Consecutive stalled seconds from `start_s` on; the slowest had the share `lowest` of the usual rate.

    `counters` are the server's counters that were high meanwhile (see `measure.stall_counters`).
    """

    start_s: Count
    length_s: Count
    lowest: Number
    counters: Several[CounterRise] = ()

    @property
    def lost_s(self) -> float:
        """What it took, in seconds of the usual rate, at most."""
        return self.length_s * (1 - self.lowest)


@dataclass(frozen=True, slots=True, config=STRICT)
class Steadiness:
    """How a rate went on. Seconds count from the start of the measured window; those of the warm-up are negative.

    `settled_s` is the end of the start-up, None if the rate never settled. What follows is of the seconds from then on
    (else of all): `median_per_s`; `variation`, their coefficient of variation; `drift`, the change from first to last
    by the median, 0 if it may be chance; `stalls`, the worst first, of `stall_count` with `stalled_s` seconds.
    """

    settled_s: Count | None
    median_per_s: Number
    variation: Number
    drift: Number
    stalls: Several[Stall]
    stall_count: Count
    stalled_s: Count


# --- events -----------------------------------------------------------------------------------------------------------


class Span(Part):
    """Whole seconds around an event: the rate of ops that succeeded, the 99th percentile, and the ops that did not."""

    from_s: Count
    to_s: Count
    ops_per_s: Number
    p99_ns: Count | None
    failed: Count

    @property
    def text(self) -> str:
        """The figures on one line."""
        p99 = "none" if self.p99_ns is None else format_duration(self.p99_ns)
        length_s = self.to_s - self.from_s
        return f"{format_count(self.ops_per_s)} ops/s, p99 {p99}, {self.failed:,} did not succeed, in {length_s} s"


class Event(Part):
    """Something that was done in the measured window, `at_s` after its start, and the figures around it.

    The server was away for `away_s`; None if only the load changed. `recovered_s` is the time from the event until the
    rate was again what it was before; None if it was not, or there was no rate before. `during` ends then.
    """

    did: Text
    at_s: Number
    away_s: Number | None
    recovered_s: Number | None
    before: Span | None
    during: Span | None
    after: Span | None

    @property
    def _again(self) -> str:
        return "" if self.recovered_s is None else format_duration(self.recovered_s * NS_PER_S)

    @property
    def sentence(self) -> str:
        """The event and its cost in one sentence."""
        if self.away_s is None:
            before, after = (one.text if one else "no whole second" for one in (self.before, self.after))
            return f"{self.did} at {self.at_s:.1f} s: before {before}; after {after}"
        away = f"away for {format_duration(self.away_s * NS_PER_S)}"
        failed = f"{self.during.failed if self.during else 0:,} ops did not succeed"
        again = f"the rate was back after {self._again}" if self._again else "the rate did not come back in this run"
        return f"{self.did} at {self.at_s:.1f} s: {away}, {failed}, and {again}"

    @property
    def row(self) -> tuple[str, ...]:
        """The event's row in a table with the heads EVENT_HEADS."""
        spans = ("no whole second" if one is None else one.text for one in (self.before, self.during, self.after))
        away_s, again = self.away_s, self._again or "not in this run"
        server = ("", "") if away_s is None else (format_duration(away_s * NS_PER_S), again)
        return (f"{self.did} at {self.at_s:.1f} s", *server, *spans)


EVENT_HEADS = ("event", "away", "rate back after", "before", "until it was back", "after")


# --- what was stored and checked --------------------------------------------------------------------------------------


class Load(Part):
    """The load before the measurement: times are sums over workers, `cores_busy` the mean of cores at work here."""

    points: Count
    values: Count
    bytes: Count
    duration_s: Number
    encode_s: Number
    client_cpu_s: Number
    cores_busy: Number | None = None
    points_per_s: Number
    workers: Count
    batch: Count
    mode: Text


class Reused(Part):
    """What a run that shares its data with others found stored when it began: who had loaded it, and who had written.

    The run that loaded is the first of those that `wrote`, unless it only loaded; in its own record there are none.
    """

    points: Count
    loaded_by: Text
    wrote: Several[Text] = ()


class CapFigures(Part):
    """Caps on the server's resources, and what the kernel counted under them, as far as it did."""

    cpu: Number | None
    memory_bytes: Count | None
    cpu_s: Number | None
    throttled_percent: Number | None
    memory_peak_bytes: Count | None
    oom_kills: Count | None


class ColdStart(Part):
    """The pages of the server's files when it was stopped: in the page cache `before` and `after` they were dropped.

    `whole_cache` is True if the page cache of the whole machine was dropped, which only root may.
    """

    pages: Count
    before: Count
    after: Count
    whole_cache: Flag


class Size(Part):
    """Size of the data after it has settled, by part (table, index, log), and of the data directory."""

    bytes: Count
    points: Count
    bytes_per_point: Number | None
    parts: Named[Number]
    directory_bytes: Count


class FirstDifference(Part):
    """The first answer of a kind of query with a difference."""

    kind: Text
    statement: Text = ""
    """What the database was asked, with the parameters, if that is known."""
    difference: Text
    query: Text
    """The query as a line of a file of queries."""


class AnswersThatDiffer(Part):
    """Answers with one kind of difference."""

    count: Count
    first: FirstDifference


class TornRow(Part):
    """The first torn row, in an answer to a kind of query."""

    kind: Text
    row: Text


class Torn(Part):
    """Number of answers with torn rows, and of these rows."""

    answers: Count
    rows: Count
    first: TornRow | None


class LocatedFlaw(Part):
    """One difference between stored and written points, and its place."""

    measurement: Text
    series: Text | None
    time: Text
    stored: Text
    expected: Text


class StoredDifference(Part):
    """Stored points with one kind of difference: their number (or more), and the first of them."""

    count: Count
    at_least: Flag
    first: Several[LocatedFlaw]


READ_BACK = "read back"
"""Kind under which reading stored rows is counted among the answers."""


class KnownDifference(Part):
    """Answers to one kind of query that differ as its file says: their number, why, and the first of them."""

    count: Count
    reason: Text
    first: FirstDifference


class AnswerCounts(Part):
    """Answers that were compared with gold: `sampled` of the `given` ones under load, and those to new queries."""

    checked: Count
    wrong: Count
    rows_read_back: Count
    by_kind: Named[Count]
    unsupported: Named[Text]
    unchecked: Named[Text] = Field(default_factory=dict)
    repeated: Named[Count] = Field(default_factory=dict)
    unsteady: Named[Text] = Field(default_factory=dict)
    halved: Named[Count] = Field(default_factory=dict)
    empty: Named[Count] = Field(default_factory=dict)
    known: Named[KnownDifference] = Field(default_factory=dict)
    first_wrong: FirstDifference | None
    differences: Named[AnswersThatDiffer]
    torn_reads: Torn
    expired: Count | None = None
    stored_differences: Named[StoredDifference]
    sampled: Count
    given: Count


class Agreement(Part):
    """The answers of databases to one kind of query without gold: their number, and those in which they differ.

    `families` is the number of kinds of database that do not share their mistakes, `outliers` has the number of answers
    in which a database differs from most others.
    """

    kind: Text
    names: Several[Text]
    families: Count
    asked: Count
    differ: Count
    outliers: Named[Count] = Field(default_factory=dict)
    first: Text = ""
    against_gold: Flag = False
    """Whether these answers have gold, and all differ from it."""

    @property
    def is_proof(self) -> bool:
        """Whether databases that do not share their mistakes agree."""
        return self.families > 1 and not self.differ

    @property
    def sentence(self) -> str:
        """How far the databases agree, in one sentence."""
        if len(self.names) < 2:
            return f"'{self.kind}' has no gold: its {self.asked:,} answers are not checked; name a second database"
        of = f"'{self.kind}' has no gold: {self.asked - self.differ:,} of {self.asked:,} answers of"
        text = f"{of} {listed(self.names)} agree"
        text += "".join(f"; {name} differs from most others in {count:,}" for name, count in self.outliers.items())
        if self.first:
            text += f"; first {self.first}"
        alike = " (they are of one family, whose members may share a mistake)"
        return text + alike * (self.families < 2 and not self.differ)


class Writes(Part):
    """Points by outcome, as `check.audit.Account` has them."""

    acknowledged: Count
    expected: Count
    stored: Count
    unknown: Count
    refused: Count
    unrecorded: Count
    expirable: Count | None = None
    lost: Count
    unexpected: Count
    of_lost_processes: Count | None = None


class PlanFigures(Part):
    """How the database executed a query of a kind, as `targets.plans.Plan` has it, or why that is not known."""

    access: Text | None = None
    examined: Count | None = None
    returned: Count | None = None
    duration_ms: Number | None = None
    blocks: Count | None = None
    error: Text | None = None
