"""METRICS: all figures of tables and axes, with unit and direction. No other module names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tsbench.measure.bottleneck import QUIET
from tsbench.measure.hist import values_needed
from tsbench.measure.latency import latency_of
from tsbench.measure.merge import PERCENTS
from tsbench.measure.settling import MOST_RANGE, MOST_RISE
from tsbench.measure.steadiness import TOLERATED_DRIFT
from tsbench.report.cells import Cell, lookup
from tsbench.units import NS_PER_S, format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Better = Literal["higher", "lower"]
MISSING = "\N{EN DASH}"
_TIME = "<time>"  # in a path: response_ns in an open loop, service_ns in a closed one


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: its path in the summary, its unit, and whether higher or lower is better."""

    key: str
    label: str
    unit: str
    better: Better | None
    path: tuple[str, ...]
    format: Callable[[float], str] = format_count

    def value(self, cell: Cell) -> float | None:
        """Return the figure; None if the run has none."""
        path = [f"{cell.time}_ns" if part == _TIME else part for part in self.path]
        found = lookup(cell.summary, path)
        if _TIME in self.path and not has_percentile(lookup(cell.summary, self.path[:-2]), self.path[-1]):
            return None
        return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None

    def stands(self, cell: Cell) -> bool:
        """Return True if the figure was measured validly; otherwise it is printed struck out."""
        return cell.validity.stands

    def text(self, cell: Cell) -> str:
        """Return the figure as it is printed."""
        found = self.value(cell)
        if found is None:
            return MISSING
        if _TIME in self.path:
            latency = latency_of(lookup(cell.summary, self.path[:-2]), cell.time, self.path[-1])
            return MISSING if latency is None else latency.text
        return self.format(found)

    @property
    def direction(self) -> str:
        """Text for axes: `higher is better`, `lower is better` or ""."""
        return f"{self.better} is better" if self.better else ""


def has_percentile(ops: object, part: str) -> bool:
    """Return True if the ops of a part of a summary are enough for a percentile such as `p99`, as far as is known."""
    count, unsent = (lookup(ops, (key,)) for key in ("count", "unsent"))
    return part not in PERCENTS or count is None or bool(count + (unsent or 0) >= values_needed(PERCENTS[part]))


def _latency(kind: str, part: str) -> Metric:
    path = ("measured", kind, _TIME, part)
    return Metric(f"{kind}_{part.replace('.', '_')}_ns", f"{kind} {part}", "ns", "lower", path, format_duration)


METRICS: dict[str, Metric] = {
    m.key: m
    for m in (
        Metric("load_points_per_s", "load rate", "points/s", "higher", ("load", "points_per_s")),
        Metric("load_duration_s", "load time", "s", "lower", ("load", "duration_s")),
        Metric("write_points_per_s", "write rate", "points/s", "higher", ("measured", "write", "points_per_s")),
        Metric("write_ops_per_s", "writes", "ops/s", "higher", ("measured", "write", "ops_per_s")),
        _latency("write", "p50"),
        _latency("write", "p90"),
        _latency("write", "p99"),
        _latency("write", "p99.9"),
        _latency("write", "max"),
        Metric("query_ops_per_s", "query rate", "queries/s", "higher", ("measured", "query", "ops_per_s")),
        _latency("query", "p50"),
        _latency("query", "p90"),
        _latency("query", "p99"),
        _latency("query", "p99.9"),
        _latency("query", "max"),
        Metric("size_bytes", "size on disk", "bytes", "lower", ("size", "bytes"), format_size),
        Metric("bytes_per_point", "size per point", "bytes", "lower", ("size", "bytes_per_point")),
        Metric("answers_checked", "answers checked", "answers", None, ("answers", "checked")),
        Metric("answers_wrong", "answers wrong", "answers", "lower", ("answers", "wrong")),
        Metric("writes_acknowledged", "acknowledged", "points", None, ("writes", "acknowledged")),
        Metric("writes_stored", "stored", "points", None, ("writes", "stored")),
        Metric("writes_lost", "lost", "points", "lower", ("writes", "lost")),
        Metric("settled_s", "settling time", "s", "lower", ("settled_s",)),
    )
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the summary table: one or more metrics, printed with a slash between them."""

    group: str
    title: str
    keys: tuple[str, ...]

    def text(self, cell: Cell) -> str:
        """Return the text of the column for a run."""
        texts = [METRICS[key].text(cell) for key in self.keys]
        return MISSING if all(text == MISSING for text in texts) else " / ".join(texts)

    def stands(self, cell: Cell) -> bool:
        """Return True if all of its figures were measured validly."""
        return all(METRICS[key].stands(cell) for key in self.keys)


COLUMNS: tuple[Column, ...] = (
    Column("load", "points/s", ("load_points_per_s",)),
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
    Column("writes", "acknowledged / stored", ("writes_acknowledged", "writes_stored")),
)
"""Columns of the summary table after validity, gates and limit; `time_label` names the time of p50, p99 and max."""


def used_columns(cells: Sequence[Cell]) -> list[Column]:
    """Return the columns in which at least one run has a figure."""
    return [column for column in COLUMNS if any(column.text(cell) != MISSING for cell in cells)]


def time_label(cells: Sequence[Cell]) -> str:
    """Return the kind of time of these runs' latencies: that of one loop, or both with their loops."""
    kinds = {cell.loop for cell in cells if cell.loop and cell.summary}  # runs without a summary have no figures
    if kinds == {"open"}:
        return "response time"
    return "response (open) / service (closed) time" if kinds == {"open", "closed"} else "service time"


def load_text(cell: Cell) -> str:
    """Return the load of a run, as printed with its figures: `closed, 10 users`, or `closed, 6 to 12 users`."""
    users = lookup(cell.summary, ("users",)) or lookup(cell.spec, ("drive", "users"))
    least = lookup(cell.summary, ("users_least",))
    number = users if least is None or least == users else f"{least} to {users}"
    parts = [cell.loop or "loop unknown", f"{number} user{'s' if users != 1 else ''}" if users is not None else ""]
    return ", ".join(part for part in parts if part)


def load_texts(cells: Sequence[Cell]) -> list[str]:
    """Return the distinct loads of runs; those that ended before their loop was known do not count."""
    return list(dict.fromkeys(load_text(cell) for cell in cells if cell.summary))


def remarks(cell: Cell) -> list[str]:
    """Return sentences that help to read a run: a rate that never settled, ops sent in bursts."""
    return [*unsettled_texts(cell), *burst_texts(cell)]


def unsettled_texts(cell: Cell) -> list[str]:
    """Return a sentence on a warm-up that reached its limit before the rate had settled, with its figures."""
    warmup = lookup(cell.summary, ("warmup",)) or {}
    if warmup.get("settled") is not False:
        return []
    limit = format_duration((warmup.get("limit_s") or 0.0) * NS_PER_S)
    never = f"the rate never settled within the warm-up's limit of {limit}"
    if not warmup.get("tested_s"):
        return [f"{never}: it had too few whole seconds to be judged"]
    if not warmup.get("ops_per_s"):
        return [f"{never}: no op succeeded in its last {warmup['tested_s']} s"]
    figures = (
        f"in its last {warmup['tested_s']} s five means differed by {warmup['range']:.0%} (at most {MOST_RANGE:.0%})",
        f"rose by {warmup['rise']:+.0%} (at most {MOST_RISE:.0%})",
        f"and the trend would come to {warmup['drift']:+.0%} in the measured window (at most {TOLERATED_DRIFT:.0%})",
    )
    return [f"{never}: {', '.join(figures)}; what follows was measured while it changed"]


def burst_texts(cell: Cell) -> list[str]:
    """Return a sentence on a run whose client sent its ops in bursts, with the cure."""
    share = lookup(cell.summary, ("limit", "sent_in_bursts"))
    if not share or not cell.validity.stands:
        return []
    disturbed = lookup(cell.summary, ("limit", "disturbed"))
    cure = f"{disturbed}: {QUIET}" if isinstance(disturbed, str) and disturbed else "use more processes or fewer users"
    why = "were sent later than the mean time between two, in bursts, which slow the server"
    return [f"{share:.0%} of the ops {why}; {cure}"]
