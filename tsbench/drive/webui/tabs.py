"""The tables of the web UI's tabs, as Locust takes them: columns by key, and rows of numbers and short texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.measure.merge import PERCENTS
from tsbench.measure.recorder import LATENESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsbench.drive.webui.live_figures import Figures
    from tsbench.measure.merge import OpCounts

Row = dict[str, Any]
MS = 1_000_000
MB = 1_000_000
KEYS = [name.replace(".", "") for name in PERCENTS]


@dataclass(frozen=True, slots=True)
class TabTable:
    """The table of one tab; `rows` takes the figures and the number of users."""

    key: str
    title: str
    columns: Mapping[str, str]
    rows: Callable[[Figures, int], list[Row]]


def latency_rows(figures: Figures, _users: int) -> list[Row]:
    """Return percentiles in ms since the end of the warm-up, per op: how late it was sent, response and service."""
    rows = []
    for op, kind, count, percentiles in figures.latency():
        values = dict(zip(KEYS, ("" if ns is None else _digits(ns / MS) for ns in percentiles), strict=True))
        rows.append({"op": op, "kind": "sent late" if kind == LATENESS else kind, "count": count, **values})
    return rows


def write_rows(figures: Figures, _users: int) -> list[Row]:
    """Return the rate, the acknowledged points, and the causes of failures, per write op."""
    rows = [_write_row(op, counts, rate) for op, counts, rate in figures.writes()]
    if len(rows) > 1:
        summed = ("rate", "points", "ok", "failed", "unknown", "partial")
        rows.append({"op": "all", **{key: sum(row[key] for row in rows) for key in summed}, "causes": ""})
    return rows


def _write_row(op: str, counts: OpCounts, rate: float) -> Row:
    return {
        "op": op,
        "rate": round(rate),
        "points": counts.points,
        "ok": counts.done - counts.failed - counts.unknown - counts.partial,
        "failed": counts.failed,
        "unknown": counts.unknown,
        "partial": counts.partial,
        "causes": ", ".join(f"{cause} {count}" for cause, count in counts.causes.most_common(5)),
    }


def host_rows(figures: Figures, users: int) -> list[Row]:
    """Return the host, the load generator and the server in the last second, and the limit of the test.

    The limit and the event loop's figures are those of the last seconds, and after the checks those of the summary.
    """
    if not figures.host:
        return []
    last = figures.host[-1]
    late_ns: list[float]
    if figures.verdict is None:
        lag, busy = figures.itself()
        late_ns = [lag[list(PERCENTS).index(name)] for name in ("p50", "p99")]
        limited, verb = f"the test is limited by: {figures.limit(users)[0]}" if users else "", ("runs", "uses")
    else:
        name, seen = figures.verdict
        late_ns = [seen.hub_lag_p50_ns, seen.hub_lag_p99_ns] if seen else [0, 0]
        busy = seen.hub_cpu_percent / 100 if seen else 0.0
        limited, verb = f"the test was limited by: {name}", ("ran", "used")
    p50, p99 = (_digits(ns / MS) for ns in late_ns)
    loop = f"its event loop {verb[0]} {p50} ms late (p50), {p99} ms (p99), and {verb[1]} {busy:.0%} of a core"
    embedded = "no process of its own here: embedded in the load generator, or on another host"
    return [
        _host_row("this host", last, "", limited),
        _host_row("load generator", last, "client_", loop),
        _host_row("server", last, "server_", "" if "server_cpu_percent" in last else embedded),
    ]


def _host_row(who: str, row: Mapping[str, float], prefix: str, note: str) -> Row:
    def value(name: str, unit: float) -> float | str:
        figure = row.get(prefix + name)
        return "" if figure is None else _digits(figure / unit)

    return {
        "who": who,
        "cpu": value("cpu_percent", 1),
        "memory": value("memory_bytes" if not prefix else "rss_bytes", MB),
        "read": value("read_bytes" if prefix else "disk_read_bytes", MB),
        "write": value("write_bytes" if prefix else "disk_write_bytes", MB),
        "note": note,
    }


def _digits(number: float) -> float:
    """Return the number with three significant digits, whole from a hundred on."""
    if number >= 100:
        return round(number)
    return float(f"{number:.3g}")


TABLES = (
    TabTable(
        "latency",
        "Latency",
        {"op": "Op", "kind": "Time", "count": "# Ops", **{k: f"{n} (ms)" for k, n in zip(KEYS, PERCENTS, strict=True)}},
        latency_rows,
    ),
    TabTable(
        "writes",
        "Writes",
        {
            "op": "Op",
            "rate": "Points/s now",
            "points": "Points acknowledged",
            "ok": "Ops ok",
            "failed": "Failed",
            "unknown": "Unknown",
            "partial": "Refused in part",
            "causes": "By cause",
        },
        write_rows,
    ),
    TabTable(
        "host",
        "Host",
        {
            "who": "Who",
            "cpu": "CPU %",
            "memory": "Memory (MB)",
            "read": "Disk read (MB/s)",
            "write": "Disk written (MB/s)",
            "note": "Note",
        },
        host_rows,
    ),
)
