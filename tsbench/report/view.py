"""Texts of the page about one run; the template only lays them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.measure.latency import latency_of
from tsbench.report.cells import Cell, lookup
from tsbench.report.metrics import MISSING, has_percentile
from tsbench.units import NS_PER_S, format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from tsbench.model import Verdict

Format = str
_FORMATS: dict[Format, Callable[[Any], str]] = {
    "count": format_count,
    "ns": format_duration,
    "ms": lambda ms: format_duration(ms * 1e6),
    "s": lambda seconds: format_duration(seconds * NS_PER_S),
    "bytes": format_size,
    "percent": lambda percent: f"{percent:.1f} %",
    "text": str,
}

FACTS: dict[str, tuple[tuple[str, str, Format], ...]] = {
    "load": (
        ("points", "points", "count"),
        ("values", "values", "count"),
        ("duration_s", "took", "s"),
        ("points_per_s", "points/s", "count"),
        ("bytes", "sent", "bytes"),
        ("mode", "mode", "text"),
        ("workers", "workers", "count"),
        ("batch", "points per batch", "count"),
        ("encode_s", "encoding, not in the time", "s"),
        ("client_cpu_s", "CPU time of the client", "s"),
    ),
    "caps": (
        ("cpu", "cores", "count"),
        ("memory_bytes", "memory", "bytes"),
        ("cpu_s", "CPU time in the measured window", "s"),
        ("throttled_percent", "periods in which it was held back", "percent"),
        ("memory_peak_bytes", "most memory, page cache included", "bytes"),
        ("oom_kills", "killed for lack of memory", "count"),
    ),
    "schedule": (
        ("scheduled", "arrivals scheduled", "count"),
        ("done", "done on time", "count"),
        ("late", "done, but had to wait", "count"),
        ("generator_late", "of these, woken late by the load process", "count"),
        ("dropped", "dropped", "count"),
        ("unfinished", "unfinished at the end", "count"),
    ),
    "size": (
        ("bytes", "size on disk", "bytes"),
        ("points", "points stored", "count"),
        ("bytes_per_point", "bytes per point", "count"),
    ),
    "answers": (
        ("checked", "answers checked", "count"),
        ("wrong", "wrong", "count"),
        ("expired", "not compared: about expired points", "count"),
        ("rows_read_back", "rows read back", "count"),
    ),
    "writes": (
        ("acknowledged", "points acknowledged", "count"),
        ("stored", "points stored", "count"),
        ("expirable", "may have expired", "count"),
        ("lost", "lost", "count"),
        ("unexpected", "unexpected", "count"),
        ("unknown", "outcome unknown", "count"),
        ("refused", "refused", "count"),
        ("failed", "refused", "count"),  # its name in formats 1 and 2
    ),
    "limit": (
        ("hub_cpu_percent", "CPU of the event loop's process", "percent"),
        ("hub_lag_p50_ns", "event loop late, median", "ns"),
        ("hub_lag_p99_ns", "event loop late, p99", "ns"),
        ("pool_wait_p50_ns", "waited for a thread, median", "ns"),
        ("in_flight", "ops between send and arrival, mean", "count"),
        ("in_time_per_s", "ops/s had every op been sent when it was due", "count"),
    ),
}
"""Figures in each part of a run's summary: key, label and format."""

CHECKS = {
    "run": "the run came to its end",
    "workers": "every worker came to its end",
    "answers": "answers equal the in-memory database's",
    "writes": "acknowledged writes are stored",
    "counts": "histograms count what Locust counted, warm-up included",
    "limit": "the load generator was not the limit",
    "ops": "ops ended in the measured window",
    "size": "the size of the data is known",
}
"""Statement that each check of a run's validity verifies."""
LATENCIES = {"first": ("p50", "p90", "p99", "p99.9", "max", "mean"), "second": ("p50", "p99", "max")}
"""Figures of the main time, and of the service time beside a response time."""


_RATES = {"write": "points/s written", "query": "queries/s"}
_COUNTS = (
    ("ended", "ended"),
    ("ok", "ok"),
    ("failed", "failed"),
    ("unknown", "unknown"),
    ("partial", "refused in part"),
)


@dataclass(frozen=True, slots=True)
class OpRow:
    """A line of a run's ops table, as printed."""

    name: str
    kind: str
    counts: tuple[str, ...]
    times: tuple[tuple[str, ...], ...]
    total: bool = False


def facts(cell: Cell, part: str) -> list[tuple[str, str]]:
    """Return the existing figures of one part of a run's summary, with their labels."""
    found = []
    for key, label, form in FACTS[part]:
        value = lookup(cell.summary, (part, key))
        if value is not None:
            found.append((label, text_of(value, form)))
    for owner, key, form in (("size", "parts", "bytes"), ("answers", "by_kind", "count")):
        if part == owner:
            pieces = _items(lookup(cell.summary, (part, key)))
            found.extend((f"of which {name}", text_of(value, form)) for name, value in pieces if value is not None)
    if part == "answers" and (given := lookup(cell.summary, (part, "given"))) is not None:
        sampled = text_of(lookup(cell.summary, (part, "sampled")), "count")
        found.append(("of the measured load", f"{sampled} of {text_of(given, 'count')}"))
    for owner, key, label in (
        ("load", "settled_s", "settling afterwards"),
        ("limit", "encode_s", "encoding of writes"),
    ):
        value = cell.summary.get(key)
        if part == owner and value is not None:
            found.append((label, text_of(value, "s")))
    if part == "limit":
        if share := lookup(cell.summary, ("limit", "sent_in_bursts")):
            found.append(("ops sent in bursts", text_of(100 * share, "percent")))
        if disturbed := lookup(cell.summary, ("limit", "disturbed")):
            found.append(("meanwhile", str(disturbed)))
    return found


def text_of(value: object, form: Format) -> str:
    """Return a figure as printed; a value of an unexpected type is printed as it is."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _FORMATS[form](value) if number or form == "text" else MISSING if value is None else str(value)


def checks(cell: Cell) -> list[tuple[str, Verdict, str]]:
    """Return the checks behind the run's validity: the statement, the verdict, its counts as text."""
    found = []
    for name, check in cell.validity.checks.items():
        named = [(count, key.removesuffix("s") if count == 1 else key) for key, count in check.counts.items()]
        counts = ", ".join(f"{text_of(count, 'count')} {key}" for count, key in named)
        found.append((CHECKS.get(name, name), check, counts))
    return found


def times_shown(cell: Cell) -> list[tuple[str, tuple[str, ...]]]:
    """Return the kinds of time in the ops table with the figures of each; a closed loop has no response time."""
    both = [("response", LATENCIES["first"]), ("service", LATENCIES["second"])]
    return both if cell.loop == "open" else [("service", LATENCIES["first"])]


def counts_shown(cell: Cell) -> list[tuple[str, str]]:
    """Return the counts in the ops table, by key and title; writes refused in part only if the run has some."""
    ops = [op for _, op in _items(lookup(cell.summary, ("measured", "ops"))) if isinstance(op, dict)]
    has_partial = any(op.get("partial") for op in ops)
    return [item for item in _COUNTS if item[0] != "partial" or has_partial]


def op_rows(cell: Cell) -> list[OpRow]:
    """Return the rows of the ops table: all writes and all queries if several, then each op."""
    ops = [(name, op) for name, op in _items(lookup(cell.summary, ("measured", "ops"))) if isinstance(op, dict)]
    ops.sort(key=lambda item: (item[1].get("kind") != "write", item[0]))
    shown = [key for key, _ in counts_shown(cell)]
    rows = [_op_row(name, op, times_shown(cell), shown) for name, op in ops]
    for kind, label in (("query", "all queries"), ("write", "all writes")):
        merged = lookup(cell.summary, ("measured", kind))
        several = sum(op.get("kind") == kind for _, op in ops) > 1
        if isinstance(merged, dict) and (several or not ops):
            rows.insert(0, _op_row(label, {"kind": kind, **merged}, times_shown(cell), shown, total=True))
    return rows


def _op_row(
    name: str,
    op: dict[str, Any],
    times: Iterable[tuple[str, tuple[str, ...]]],
    shown: Iterable[str],
    *,
    total: bool = False,
) -> OpRow:
    # Not `count`, which is of ops that were due in the window: some of them ended after it, others were due before it.
    ended = [op[key] for key, _ in _COUNTS if isinstance(op.get(key), int)]
    op = {**op, "ended": sum(ended) if ended else None}
    counts = [text_of(op.get(key), "count") for key in (*shown, "ops_per_s", "points_per_s")]
    if op.get("kind") != "write":
        counts[-1] = ""
    latencies = tuple(tuple(_latency(op, time, part) for part in parts) for time, parts in times)
    return OpRow(name, str(op.get("kind", "")), tuple(counts), latencies, total)


def _latency(op: dict[str, Any], time: str, part: str) -> str:
    found = latency_of(op, time, part) if has_percentile(op, part) else None
    return MISSING if found is None else found.text


def causes(cell: Cell) -> list[tuple[str, str]]:
    """Return the number of failed ops by op and cause."""
    return [
        (f"{name}: {cause}", text_of(count, "count"))
        for name, op in _items(lookup(cell.summary, ("measured", "ops")))
        for cause, count in _items(lookup(op, ("causes",)))
    ]


def failures(cell: Cell) -> list[tuple[str, str]]:
    """Return the number of failed ops by error message."""
    return [(text, text_of(count, "count")) for text, count in _items(cell.summary.get("failures"))]


def stall_rows(found: pd.DataFrame, most: int = 10) -> list[tuple[str, ...]]:
    """Return the worst stalls: op, start, length, the slowest op, its ratio to the usual p99."""
    rows: list[tuple[str, ...]] = []
    for row in found.head(most).to_dict("records"):
        length = int(row["length_s"])
        texts = (f"{row['start_s']} s", f"{length} s", format_duration(row["max_ns"]), f"{row['factor']:,.0f}x")
        rows.append((str(row["op"]), *texts))
    return rows


def steadiness_rows(cell: Cell) -> list[tuple[str, ...]]:
    """Return how the rates went on: what, when settled, drift, variation, stalls, the worst stall."""
    rows: list[tuple[str, ...]] = []
    for kind, steady in _items(cell.summary.get("steadiness")):
        if not isinstance(steady, dict):
            continue
        settled, drift, number = steady.get("settled_s"), steady.get("drift") or 0.0, steady.get("stall_count") or 0
        when = "never" if settled is None else "at once" if settled <= 0 else f"after {settled} s"
        worst = next(iter(steady.get("stalls") or ()), None)
        deepest = f"{worst['length_s']} s down to {worst['lowest']:.0%}, at {worst['start_s']} s" if worst else ""
        stalled = f"{number} ({steady.get('stalled_s')} s)" if number else "none"
        trend = f"{drift:+.0%}" if drift else "none"
        rows.append((_RATES.get(kind, kind), when, trend, f"{steady.get('variation', 0.0):.1%}", stalled, deepest))
    return rows


def rate_stall_rows(cell: Cell) -> list[tuple[str, ...]]:
    """Return the stalls of the rates in order of time: rate, start, length, slowest second, counters that were high."""
    rows: list[tuple[int, tuple[str, ...]]] = []
    for kind, steady in _items(cell.summary.get("steadiness")):
        for stall in lookup(steady, ("stalls",)) or ():
            start, length = stall["start_s"], stall["length_s"]
            rises = "; ".join(map(_rise, stall.get("counters") or ())) or "none"
            rows.append((start, (_RATES.get(kind, kind), f"{start} s", f"{length} s", f"{stall['lowest']:.0%}", rises)))
    return [texts for _, texts in sorted(rows)]


def _rise(rise: dict[str, Any]) -> str:
    form, per_s = "bytes" if rise["unit"] == "bytes" else "count", "/s" if rise["kind"] == "rate" else ""
    highest, usual = (text_of(rise[key], form) + per_s for key in ("highest", "usual"))
    return f"{rise['panel']}, {rise['label']}: {highest} (usually {usual})"


def first_ops(cell: Cell) -> list[tuple[str, str]]:
    """Return the response time of a cold run's first op of each name, and its service time."""
    found = []
    for name, first in _items(cell.summary.get("firsts")):
        response, service = (lookup(first, (key,)) for key in ("response_ns", "service_ns"))
        outcome = lookup(first, ("outcome",))
        word = "" if outcome == "ok" else f"{outcome} after "
        found.append((f"first {name}", f"{word}{text_of(response, 'ns')} (service {text_of(service, 'ns')})"))
    return found


def unsupported(cell: Cell) -> list[tuple[str, str]]:
    """Return the kinds of query that the schema cannot answer, with the reasons."""
    return [(kind, str(why)) for kind, why in _items(lookup(cell.summary, ("answers", "unsupported")))]


_UNTOLD = "this server does not tell"
_PLAN_FIGURES: tuple[tuple[str, Format], ...] = (("examined", "count"), ("returned", "count"), ("duration_ms", "ms"))


def plans(cell: Cell) -> list[tuple[str, ...]]:
    """Return per kind of query how the database got at the data, rows examined and returned, and its own time."""
    found: list[tuple[str, ...]] = []
    for kind, plan in _items(cell.summary.get("plans")):
        if error := lookup(plan, ("error",)):
            found.append((kind, str(error), MISSING, MISSING, MISSING))
            continue
        figures = [(lookup(plan, (key,)), form) for key, form in _PLAN_FIGURES]
        told = [_UNTOLD if value is None else text_of(value, form) for value, form in figures]
        found.append((kind, str(lookup(plan, ("access",))), *told))
    return found


def first_wrong(cell: Cell) -> Sequence[tuple[str, str]]:
    """Return the first wrong answer: its query and the difference."""
    return [(key, str(value)) for key, value in _items(lookup(cell.summary, ("answers", "first_wrong")))]


def differences(cell: Cell) -> list[tuple[str, str, str]]:
    """Return the wrong answers by kind of difference: the kind, how many answers, the first one."""
    found = _items(lookup(cell.summary, ("answers", "differences")))
    return [
        (kind, text_of(lookup(one, ("count",)), "count"), _example(lookup(one, ("first",)), "difference"))
        for kind, one in found
    ]


def torn_reads(cell: Cell) -> tuple[str, str] | None:
    """Return how many answers had torn rows, and the first of them; None if no answer had."""
    torn = dict(_items(lookup(cell.summary, ("answers", "torn_reads"))))
    if not torn.get("answers"):
        return None
    checked = text_of(lookup(cell.summary, ("answers", "checked")), "count")
    counts = f"{text_of(torn['answers'], 'count')} of {checked} answers, {text_of(torn.get('rows'), 'count')} rows"
    return counts, _example(torn.get("first"), "row")


def _example(first: object, what: str) -> str:
    return f"{lookup(first, ('kind',))}: {lookup(first, (what,))}"


def stored_differences(cell: Cell) -> list[tuple[str, str, str]]:
    """Return the differences between stored and written points by kind: the kind, how many, where the first one is."""
    rows = []
    for kind, found in _items(lookup(cell.summary, ("answers", "stored_differences"))):
        first: dict[str, Any] = next(iter(lookup(found, ("first",)) or ()), {})
        place = " ".join(str(first[part]) for part in ("measurement", "series", "time") if first.get(part))
        shown = f"{place}: stored {first.get('stored') or 'nothing'}, expected {first.get('expected') or 'nothing'}"
        count = text_of(lookup(found, ("count",)), "count")
        rows.append((kind, f"{count}{' or more' if lookup(found, ('at_least',)) else ''}", shown))
    return rows


def _items(content: object) -> list[tuple[str, Any]]:
    return [(str(key), value) for key, value in content.items()] if isinstance(content, dict) else []
