"""METRICS: all figures of tables and axes, with their place in a summary, unit and direction; no other module has them.

A figure whose run is not valid is struck out where runs are compared (metrics with a `key`); beside the checks that say
what is wrong with the run it is printed as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tsbench.measure.bottleneck import QUIET, more_load
from tsbench.measure.hist import values_needed
from tsbench.measure.latency import AT_LEAST, latency_of
from tsbench.measure.merge import PERCENTS
from tsbench.measure.settling import MOST_RANGE, MOST_RISE
from tsbench.measure.steadiness import TOLERATED_DRIFT
from tsbench.report.evidence import unproven_remarks, weakest
from tsbench.text import listed
from tsbench.units import NS_PER_S, format_count, format_duration, format_factor, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.measure.latency import Latency
    from tsbench.report.cells import Cell
    from tsbench.results.figures import OpFigures
    from tsbench.results.process import FirstOp
    from tsbench.results.summary import Summary

Unit: TypeAlias = Literal["count", "ns", "ms", "s", "bytes", "percent", "share", "change", "text"]
FORMATS: dict[Unit, Callable[[Any], str]] = {
    "count": format_count,
    "ns": format_duration,
    "ms": lambda ms: format_duration(ms * 1e6),
    "s": lambda seconds: format_duration(seconds * NS_PER_S),
    "bytes": format_size,
    "percent": lambda percent: f"{percent:.1f} %",
    "share": lambda share: f"{share:.1%}",
    "change": lambda share: f"{share:+.1%}",
    "text": str,
}
MISSING = "\N{EN DASH}"
ALL_BUSY = 0.85
"""Share of a machine's cores from which on they limit a load: the rest goes to waiting for each other."""


def text_of(value: Any, unit: Unit = "count") -> str:
    """Return a figure as it is printed."""
    return MISSING if value is None else FORMATS[unit](value)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run.

    Parameters
    ----------
    path
        Its place in `results.summary.Summary`.
    label
        Its name in the box of its part; "" if it stands in no box.
    unit
        How it is printed.
    key
        Its name in frames, with the unit; "" if runs are not compared by it.
    title, axis
        Its name and its unit on axes.
    better
        Which direction is better; None if neither is.
    percentile
        Of a latency: `p50` and so on, or `mean`, of the kind of time that counts in the run's loop.
    """

    path: str
    label: str
    unit: Unit = "count"
    key: str = ""
    title: str = ""
    axis: str = ""
    better: Literal["higher", "lower"] | None = None
    percentile: str = ""

    def value(self, cell: Cell) -> float | None:
        """Return the figure; None if the run has none."""
        if self.percentile:
            estimate = self.latency(cell)
            return None if estimate is None else estimate.most_ns
        value: float | None = part_of(cell.summary, self.path)
        return value

    def latency(self, cell: Cell) -> Latency | None:
        """Return a latency with both its ends; None if the run has none, or too few ops for the percentile."""
        ops: OpFigures | None = part_of(cell.summary, self.path)
        return None if ops is None else believable(ops, cell.time, self.percentile)

    def text(self, cell: Cell) -> str:
        """Return the figure as it is printed."""
        if self.percentile:
            estimate = self.latency(cell)
            return MISSING if estimate is None else estimate.text
        text = text_of(self.value(cell), self.unit)
        return f"{AT_LEAST}{text}" if self.is_least(cell) and text != MISSING else text

    def is_least(self, cell: Cell) -> bool:
        """Return True for a rate of ops that the load generator held back."""
        return self.better == "higher" and cell.summary.rates_are_least and self.path.startswith("measured.")

    @property
    def direction(self) -> str:
        """Text for axes: `higher is better`, `lower is better` or ""."""
        return f"{self.better} is better" if self.better else ""


def part_of(summary: Summary, path: str) -> Any:
    """Return the part of a summary at a dotted path of attributes; None if a part on the way is."""
    return reduce(lambda part, name: None if part is None else getattr(part, name), path.split("."), summary)


def believable(ops: OpFigures, time: str, part: str) -> Latency | None:
    """Return a latency such as `p99`; None if the ops are too few for it."""
    enough = part not in PERCENTS or ops.count + ops.unsent >= values_needed(PERCENTS[part])
    return latency_of(ops, time, part) if enough else None


def _latencies(kind: str) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            f"measured.{kind}",
            "",
            "ns",
            f"{kind}_{part.replace('.', '_')}_ns",
            f"{kind} {part}",
            "ns",
            "lower",
            percentile=part,
        )
        for part in (*PERCENTS, "mean")
    )


METRICS: tuple[Metric, ...] = (
    Metric("load.points", "points"),
    Metric("load.values", "values"),
    Metric("load.duration_s", "took", "s", "load_duration_s", "load time", "s", "lower"),
    Metric("load.points_per_s", "points/s", "count", "load_points_per_s", "load rate", "points/s", "higher"),
    Metric("load.bytes", "sent", "bytes"),
    Metric("load.mode", "mode", "text"),
    Metric("load.workers", "workers"),
    Metric("load.batch", "points per batch"),
    Metric("load.encode_s", "encoding, not in the time", "s"),
    Metric("load.client_cpu_s", "CPU time of the client", "s"),
    Metric("load.cores_busy", "cores of this machine at work, mean"),
    Metric("reused.points", "points stored when it began"),
    Metric("caps.cpu", "cores"),
    Metric("caps.memory_bytes", "memory", "bytes"),
    Metric("caps.cpu_s", "CPU time in the measured window", "s"),
    Metric("caps.throttled_percent", "periods in which it was held back", "percent"),
    Metric("caps.memory_peak_bytes", "most memory, page cache included", "bytes"),
    Metric("caps.oom_kills", "killed for lack of memory"),
    Metric("asked_ops_per_s", "", "count", "asked_ops_per_s", "rate asked for", "ops/s"),
    Metric("done_ops_per_s", "", "count", "done_ops_per_s", "rate done", "ops/s", "higher"),
    Metric("measured.write.points_per_s", "", "count", "write_points_per_s", "write rate", "points/s", "higher"),
    Metric("measured.write.ops_per_s", "", "count", "write_ops_per_s", "writes", "ops/s", "higher"),
    *_latencies("write"),
    Metric("measured.query.ops_per_s", "", "count", "query_ops_per_s", "query rate", "queries/s", "higher"),
    *_latencies("query"),
    Metric("schedule.scheduled", "arrivals scheduled"),
    Metric("schedule.done", "done on time"),
    Metric("schedule.late", "done, but had to wait"),
    Metric("schedule.generator_late", "of these, woken late by the load process"),
    Metric("schedule.dropped", "dropped"),
    Metric("schedule.unfinished", "unfinished at the end"),
    Metric("warmup.tested_s", "judged by its last", "s"),
    Metric("warmup.ops_per_s", "ops/s in these"),
    Metric("warmup.range", f"highest less lowest of five rounds (at most {MOST_RANGE:.0%})", "share"),
    Metric("warmup.rise", f"rise over the rounds (at most {MOST_RISE:.0%})", "change"),
    Metric("warmup.drift", f"drift in the measured window, by the trend (at most {TOLERATED_DRIFT:.0%})", "change"),
    Metric("measured.disk_read_bytes", "read from disk while measured", "bytes"),
    Metric("size.bytes", "size on disk", "bytes", "size_bytes", "size on disk", "bytes", "lower"),
    Metric("size.points", "points stored"),
    Metric("size.bytes_per_point", "bytes per point", "count", "bytes_per_point", "size per point", "bytes", "lower"),
    Metric("answers.checked", "answers checked", "count", "answers_checked"),
    Metric("answers.wrong", "wrong", "count", "answers_wrong", better="lower"),
    Metric("answers.expired", "not compared: about expired points"),
    Metric("answers.rows_read_back", "rows read back"),
    Metric("writes.acknowledged", "points acknowledged", "count", "writes_acknowledged"),
    Metric("writes.stored", "points stored", "count", "writes_stored"),
    Metric("writes.expirable", "may have expired"),
    Metric("writes.lost", "lost", "count", "writes_lost", better="lower"),
    Metric("writes.unexpected", "unexpected"),
    Metric("writes.unknown", "outcome unknown"),
    Metric("writes.refused", "refused"),
    Metric("limit.hub_cpu_percent", "CPU of the event loop's process", "percent"),
    Metric("limit.hub_lag_p50_ns", "event loop late, median", "ns"),
    Metric("limit.hub_lag_p99_ns", "event loop late, p99", "ns"),
    Metric("limit.pool_wait_p50_ns", "waited for a thread, median", "ns"),
    Metric("limit.in_flight", "ops between send and arrival, mean"),
    Metric("limit.in_time_per_s", "ops/s had every op been sent when it was due"),
)
"""All figures of a run; those of its ops, phases and stalls, which differ in number, are in tables of their own."""
COMPARED: dict[str, Metric] = {metric.key: metric for metric in METRICS if metric.key}
"""The figures by which runs are compared, by their names in frames."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the summary table: one or more metrics, printed with a slash between them; of none the evidence."""

    group: str
    title: str
    keys: tuple[str, ...]

    def text(self, cell: Cell) -> str:
        """Return the text of the column for a run."""
        if not self.keys:
            return weakest(cell) or MISSING
        texts = [COMPARED[key].text(cell) for key in self.keys]
        return MISSING if all(text == MISSING for text in texts) else " / ".join(texts)


COLUMNS: tuple[Column, ...] = (
    Column("load", "points/s", ("load_points_per_s",)),
    Column("ops/s", "asked", ("asked_ops_per_s",)),
    Column("ops/s", "done", ("done_ops_per_s",)),
    Column("write", "points/s", ("write_points_per_s",)),
    Column("write", "p50", ("write_p50_ns",)),
    Column("write", "p99", ("write_p99_ns",)),
    Column("write", "max", ("write_max_ns",)),
    Column("query", "queries/s", ("query_ops_per_s",)),
    Column("query", "p50", ("query_p50_ns",)),
    Column("query", "p99", ("query_p99_ns",)),
    Column("query", "max", ("query_max_ns",)),
    Column("disk", "bytes / point", ("bytes_per_point",)),
    Column("answers", "checked / wrong", ("answers_checked", "answers_wrong")),
    Column("answers", "evidence", ()),
    Column("writes", "acknowledged / stored", ("writes_acknowledged", "writes_stored")),
)
"""Columns of the summary table after validity, gates and limit; `time_label` names the time of p50, p99 and max."""


def used_columns(cells: Sequence[Cell]) -> list[Column]:
    """Return the columns in which at least one run has a figure."""
    return [column for column in COLUMNS if any(column.text(cell) != MISSING for cell in cells)]


def time_label(cells: Sequence[Cell]) -> str:
    """Return the kind of time of these runs' latencies: that of one loop, or both with their loops."""
    kinds = {cell.summary.loop for cell in cells if cell.summary.loop}  # runs without a summary have no figures
    if kinds == {"open"}:
        return "response time"
    return "response (open) / service (closed) time" if kinds == {"open", "closed"} else "service time"


def load_text(cell: Cell) -> str:
    """Return the load of a run, as printed with its figures: `closed, 10 users`, or `closed, 6 to 12 users`."""
    users, least = cell.summary.users or cell.asked.drive.users, cell.summary.users_least
    number = users if least is None or least == users else f"{least} to {users}"
    parts = [cell.loop or "loop unknown", f"{number} user{'s' if users != 1 else ''}" if users is not None else ""]
    return ", ".join(part for part in parts if part)


def load_texts(cells: Sequence[Cell]) -> list[str]:
    """Return the distinct loads of runs; those that ended before their loop was known do not count."""
    return list(dict.fromkeys(load_text(cell) for cell in cells if cell.summary.loop))


def _nodes(cell: Cell) -> int:
    """Return the number of nodes that a run asked for; its specification may come from anybody."""
    server = cell.spec.get("server")
    nodes = server.get("nodes") if isinstance(server, dict) else None
    return nodes if isinstance(nodes, int) else 1


def remarks(cell: Cell) -> list[str]:
    """Return sentences that help to read a run: a rate that never settled, ops sent in bursts with the cure."""
    texts = []
    warmup, limit = cell.summary.warmup, cell.summary.limit
    if warmup is not None and not warmup.settled:
        never = f"the rate never settled within the warm-up's limit of {text_of(warmup.limit_s, 's')}"
        if not warmup.tested_s:
            texts.append(f"{never}: it had too few whole seconds to be judged")
        elif not warmup.ops_per_s:
            texts.append(f"{never}: no op succeeded in its last {warmup.tested_s} s")
        else:
            five = f"five means differed by {warmup.range:.0%} (at most {MOST_RANGE:.0%})"
            rise = f"rose by {warmup.rise:+.0%} (at most {MOST_RISE:.0%})"
            trend = f"the trend would come to {warmup.drift:+.0%} in the measured window"
            texts.append(
                f"{never}: in its last {warmup.tested_s} s {five}, {rise}, and {trend} "
                f"(at most {TOLERATED_DRIFT:.0%}); what follows was measured while it changed"
            )
    if (reused := cell.summary.reused) is not None and (reused.wrote or reused.loaded_by != cell.summary.cell):
        runs = reused.wrote[0] if len(reused.wrote) == 1 else f"{len(reused.wrote)} runs"
        wrote = f" and what {runs} wrote" if reused.wrote else ""
        texts.append(f"it began with {reused.points:,} points: the load of {reused.loaded_by}{wrote}")
    texts += [cell.ended_early] if cell.ended_early else []
    texts += [event.sentence for event in cell.summary.events]
    if cell.summary.measured is not None and (drifts := cell.summary.measured.time_drifts):
        named = ", ".join(f"{op} {format_factor(factor)}" for op, factor in sorted(drifts.items()))
        texts.append(f"times changed within the window; those at its end by those at its beginning: {named}")
    if cell.manifest and (by := cell.manifest.server.get("acknowledged by")):
        texts.append(f"acknowledged is what was acknowledged by {by}")
    texts += _on_answers(cell)
    busy = (cell.summary.load.cores_busy if cell.summary.load else None) or 0.0
    cores = cell.manifest.host.cores if cell.manifest and cell.manifest.host else 0
    if _nodes(cell) > 1 and cores and busy >= ALL_BUSY * cores:
        text = f"{busy:.1f} of this machine's {cores} cores were at work during the load, which all nodes share"
        texts.append(f"{text}: they, and not the number of nodes, were the limit")
    held_back = cell.summary.rates_are_least and cell.validity.checks.get("limit")
    if held_back and held_back.state == "valid" and held_back.reason:
        texts.append(f"rates are at least these: {held_back.reason}")
    if limit is not None and limit.sent_in_bursts and cell.validity.stands and cell.overload is None:
        summary = cell.summary
        cure = more_load(summary.users or 0, summary.processes or 1, is_open=summary.loop == "open")
        cure = f"{limit.disturbed}: {QUIET}" if limit.disturbed else cure
        why = "were sent later than the mean time between two, in bursts, which slow the server"
        advice = "" if any(cure in said for said in (cell.validity.reason, *texts)) else f"; {cure}"  # one advice once
        texts.append(f"{limit.sent_in_bursts:.0%} of the ops {why}{advice}")
    return texts


def _on_answers(cell: Cell) -> list[str]:
    """Return sentences on the queries whose answers say little: those that nobody could check, and empty ones."""
    answers = cell.summary.answers
    asked = cell.summary.measured.ops if cell.summary.measured is not None else {}
    texts = []
    if void := [f"'{kind}'" for kind, op in asked.items() if op.kind == "query" and op.empty and not op.rows]:
        texts.append(f"every answer to {listed(void)} was empty: other data or a longer window would test more")
    if answers is None:
        return texts
    texts += [
        f"'{kind}' was not asked, which counts as failed: {why}"
        for kind, why in answers.unsupported.items()
        if kind in asked and "unsupported" in asked[kind].causes
    ]
    texts += unproven_remarks(cell)
    for kind, known in answers.known.items():
        of = f"{known.count:,} of {answers.by_kind.get(kind, known.count):,} answers to '{kind}'"
        texts.append(f"{of} differ from gold, which is known: {known.reason}")
    return texts


def page_caches(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Return what the page cache held of the servers' files around cold starts, by how they left it; or its range."""
    caches = []
    for whole in (True, False):
        colds = [cold for cell in cells if (cold := cell.summary.cold) is not None and cold.whole_cache == whole]
        if colds:
            how = "the machine's page cache dropped" if whole else "files evicted from the page cache"
            after, pages, before = (
                _range([getattr(cold, name) for cold in colds]) for name in ("after", "pages", "before")
            )
            caches.append(("pages of its files in the page cache", f"{after} (of {pages}; {before} before), {how}"))
    return caches


def first_ops(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Return the times of the first op of each name after a cold start; of several runs the range."""
    times: dict[tuple[str, str], list[FirstOp]] = {}
    for name, first in (item for cell in cells for item in cell.summary.firsts.items()):
        times.setdefault((name, first.outcome), []).append(first)
    ops = []
    for (name, outcome), firsts in times.items():
        word = "" if outcome == "ok" else f"{outcome} after "
        response, service = (
            _range([getattr(first, f"{kind}_ns") for first in firsts], "ns") for kind in ("response", "service")
        )
        ops.append((f"first {name}", f"{word}{response} (service {service})"))
    return ops


def _range(values: Sequence[float], unit: Unit = "count") -> str:
    """Return the least and the most of some figures as text."""
    least, most = text_of(min(values), unit), text_of(max(values), unit)
    return least if least == most else f"{least} to {most}"
