"""The tables of one run: its ops, how its rates went on, its phases, and what its figures rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tsbench.report.evidence import evidence
from tsbench.report.metrics import METRICS, MISSING, believable, first_ops, page_caches, part_of, text_of
from tsbench.report.tables import Mark, Table
from tsbench.results.figures import EVENT_HEADS
from tsbench.results.rundir import WRONG
from tsbench.results.summary import PHASES
from tsbench.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from tsbench.report.cells import Cell
    from tsbench.report.tables import Entry, TableRows
    from tsbench.results.figures import CounterRise, OpFigures

MOST_STALLS = 10
"""Maximum number of stalls in the table of a run; the worst come first."""
RATES = {"write": "points/s written", "query": "queries/s"}
CHECKS = {
    "run": "the run came to its end",
    "workers": "every worker came to its end",
    "answers": "answers equal those computed from the simulated data",
    "writes": "acknowledged writes are stored",
    "counts": "histograms count what Locust counted, warm-up included",
    "limit": "the load generator was not the limit",
    "ops": "ops ended in the measured window",
    "asked": "all queries of the file were asked",
    "size": "the size of the data is known",
}
"""Statement that each check of a run's validity verifies."""
_LATENCIES = {"first": ("p50", "p90", "p99", "p99.9", "max", "mean"), "second": ("p50", "p99", "max")}
"""Figures of the main time, and of the service time beside a response time."""


def ops_table(cell: Cell) -> Table | None:
    """Return counts, rates and latencies: of all writes and all queries if several, then of each op."""
    measured = cell.summary.measured
    if measured is None or not measured.ops:
        return None
    ops = sorted(measured.ops.items(), key=lambda item: (item[1].kind != "write", item[0]))
    kinds = [str(op.kind) for _, op in ops]
    sums = (("all writes", "write", measured.write), ("all queries", "query", measured.query))
    totals = [(name, op) for name, kind, op in sums if op is not None and kinds.count(kind) > 1]
    partial = ("partial",) if any(op.partial for _, op in ops) else ()
    counted = ("ended", "ok", "failed", "unknown", *partial)
    times = [("service", _LATENCIES["first"])]
    if cell.loop == "open":
        times = [("response", _LATENCIES["first"]), ("service", _LATENCIES["second"])]

    def row(name: str, op: OpFigures) -> tuple[Entry, ...]:
        written = text_of(op.points_per_s) if op is measured.write or op.kind == "write" else ""
        texts = [*(text_of(getattr(op, key)) for key in counted), text_of(op.ops_per_s), written]
        shares = [believable(op, time, part) for time, parts in times for part in parts]
        texts += [MISSING if one is None else one.text for one in shares]
        return name, *_struck(texts, cell)

    titles = [key if key != "partial" else "refused in part" for key in counted]
    heads = ("op", *titles, "ops/s", "points/s", *(part for _, parts in times for part in parts))
    latencies = ((f"{time} time", len(parts)) for time, parts in times)
    groups = (("op", 1), ("ops", len(counted)), ("rate", 2), *latencies)
    return Table("", [row(name, op) for name, op in [*totals, *ops]], heads, groups, totals=len(totals))


def _struck(texts: Iterable[str], cell: Cell) -> Iterable[Entry]:
    """Return texts as entries, all of them struck out if the figures of their run do not stand."""
    return texts if cell.validity.stands else (Mark(text, "struck") for text in texts)


def steadiness_table(cell: Cell) -> Table:
    """Return how the rates went on: when settled, drift, variation, stalls, the worst stall."""
    rows: TableRows = []
    for kind, steady in cell.summary.steadiness.items():
        settled, number = steady.settled_s, steady.stall_count
        when = "never" if settled is None else "at once" if settled <= 0 else f"after {settled} s"
        worst = next(iter(steady.stalls), None)
        deepest = f"{worst.length_s} s down to {worst.lowest:.0%}, at {worst.start_s} s" if worst else ""
        stalled = f"{number} ({steady.stalled_s} s)" if number else "none"
        trend = f"{steady.drift:+.0%}" if steady.drift else "none"
        texts = (when, trend, f"{steady.variation:.1%}", stalled, deepest)
        rows.append((RATES.get(kind, kind), *_struck(texts, cell)))
    return Table(
        "Steadiness of the rates, from the end of the start-up on",
        rows,
        ("rate", "settled", "drift", "variation", "stalls", "worst stall"),
        note="Variation: standard deviation of the seconds by their mean. Drift: change over the window, where a trend "
        "is not chance. Stall: a sudden fall below half of the median rate (in an open loop, of what was to be done, "
        "if less).",
    )


def rate_stalls_table(cell: Cell) -> Table:
    """Return the stalls of the rates in order of time, with the counters that were high meanwhile."""
    stalls = [(stall, kind) for kind, steady in cell.summary.steadiness.items() for stall in steady.stalls]
    rows: TableRows = [
        (
            RATES.get(kind, kind),
            f"{stall.start_s} s",
            f"{stall.length_s} s",
            f"{stall.lowest:.0%}",
            "; ".join(map(_rise, stall.counters)) or "none",
        )
        for stall, kind in sorted(stalls, key=lambda item: (item[0].start_s, RATES.get(item[1], item[1])))
    ]
    return Table(
        "Stalls of the rates, and counters of the server that were high meanwhile",
        rows,
        ("rate", "at", "length", "slowest second", "high counters"),
        note="High: six or more robust standard deviations above the median of the run's other seconds, and above all "
        "but a twentieth of them. It came at the same time; whether it is the reason is for you to judge.",
    )


def _rise(rise: CounterRise) -> str:
    per_s = "/s" if rise.kind == "rate" else ""
    highest, usual = (
        text_of(value, "bytes" if rise.unit == "bytes" else "count") + per_s for value in (rise.highest, rise.usual)
    )
    return f"{rise.panel}, {rise.label}: {highest} (usually {usual})"


def stalls_table(frame: pd.DataFrame, factor: int) -> Table:
    """Return the worst of the stalls in the frame `frames.stalls`, over `factor` times the usual p99."""
    rows: TableRows = [
        (
            str(row["op"]),
            f"{row['start_s']} s",
            f"{row['length_s']} s",
            format_duration(row["max_ns"]),
            f"{row['factor']:,.0f}x",
        )
        for row in frame.head(MOST_STALLS).to_dict("records")
    ]
    return Table(
        f"Stalls: seconds whose slowest op took over {factor} times the op's usual p99",
        rows,
        ("op", "at", "length", "slowest op", "of the usual p99"),
        note=f"The {len(rows)} worst of {len(frame)}." if len(frame) > len(rows) else "",
    )


def durations_table(cell: Cell) -> Table | None:
    """Return how long the run took and each of its phases, with their shares; None if that is not known."""
    phases_s = {name: cell.summary.durations_s[name] for name in PHASES if name in cell.summary.durations_s}
    total_s = sum(phases_s.values())
    if not total_s:
        return None
    rows: TableRows = [
        (PHASES[name].label, text_of(taken_s, "s"), f"{taken_s / total_s:.0%}") for name, taken_s in phases_s.items()
    ]
    whole = ("the whole run, up to the end of its checks", text_of(total_s, "s"), "")
    return Table(f"How long it took: {whole[1]}", [whole, *rows])


def facts(cell: Cell, part: str) -> TableRows:
    """Return the existing figures of one part of a run's summary, with their labels."""
    return [
        (metric.label, metric.text(cell))
        for metric in METRICS
        if metric.path.startswith(f"{part}.") and metric.label and part_of(cell.summary, metric.path) is not None
    ]


def boxes(cell: Cell) -> list[Table]:
    """Return the tables of a run that say what its figures rest on and what was found beside them."""
    summary = cell.summary
    checks: TableRows = [
        (CHECKS.get(name, name), (Mark(check.state, "badge"), check.reason, Mark(_counts(check.counts), "small")))
        for name, check in summary.validity.checks.items()
    ]
    gates: TableRows = [(Mark(gate.gate, "code"), (Mark(gate.state, "badge"), gate.text)) for gate in summary.gates]
    large: TableRows = [
        (name, *(text_of(time.get("p50"), "ns") for time in op.stages_ns))
        for name, op in cell.ops.items()
        if op.stages_ns
    ]
    causes = [(f"{name}: {why}", text_of(count)) for name, op in cell.ops.items() for why, count in op.causes.items()]
    tables = [
        Table("What the validity rests on", checks, wide=True),
        Table("Gates", gates, wide=True),
        Table("Load before the measurement", [*facts(cell, "load"), *facts(cell, "reused")]),
        Table("Caps on the server", facts(cell, "caps")),
        Table("Warm-up until the rate settles", _warmup(cell)),
        Table("After the cold start", [*page_caches([cell]), *first_ops([cell])]),
        Table("Large answers (medians)", large, ("query", "first bytes", "all arrived", "converted"), wide=True),
        Table("Events", [one.row for one in summary.events], EVENT_HEADS, wide=True),
        Table("Schedule of the open loop", facts(cell, "schedule")),
        Table("Writes against what is stored, points", facts(cell, "writes")),
        Table("Answers", [*facts(cell, "answers"), *_answers(cell)]),
        Table("Ops that did not succeed, by cause", [*causes]),
        Table(
            "Size on disk",
            [
                *facts(cell, "size"),
                *_pieces(summary.size.parts if summary.size else {}, "bytes"),
                *facts(cell, "measured"),
            ],
        ),
        Table(f"Limited by: {cell.limit_text}", _limit(cell)),
        Table("What the errors said", [(text_of(count), text) for text, count in summary.failures.items()], wide=True),
        *_wrong_answers(cell),
        Table(
            "How the database executed one query of each kind (plans.json has all that it says)",
            _plans(cell),
            ("query", "access to the data", "examined", "returned", "blocks", "its own time"),
            wide=True,
        ),
        Table("Not supported by this schema", _unsupported(cell), wide=True),
        Table("Evidence for the answers", [*evidence(cell.summary, cell.agreements)], wide=True),
    ]
    return [table for table in tables if table.rows]


def _counts(counts: dict[str, int]) -> str:
    named = [(count, key.removesuffix("s") if count == 1 else key) for key, count in counts.items()]
    return ", ".join(f"{text_of(count)} {key}" for count, key in named)


def _pieces(parts: dict[str, float] | dict[str, int], unit: Literal["count", "bytes"]) -> TableRows:
    return [(f"of which {name}", text_of(value, unit)) for name, value in parts.items()]


def _warmup(cell: Cell) -> TableRows:
    """Return by which figures a warm-up ended that looked for a steady rate; none for a warm-up of fixed length."""
    warmup = cell.summary.warmup
    if warmup is None:
        return []
    after = text_of(warmup.duration_s, "s")
    rows: TableRows = [("the rate settled", f"after {after}" if warmup.settled else f"never, within {after}")]
    return [*rows, *(facts(cell, "warmup") if warmup.tested_s else [])]


def _answers(cell: Cell) -> TableRows:
    answers = cell.summary.answers
    if answers is None:
        return []
    sampled = f"{text_of(answers.sampled)} of {text_of(answers.given)}"
    empty = {kind: f", {text_of(count)} of them empty" for kind, count in answers.empty.items()}
    known = {kind: f", {text_of(one.count)} of them differ as is known" for kind, one in answers.known.items()}
    rows = [
        (f"of which {kind}", text_of(count) + empty.get(kind, "") + known.get(kind, ""))
        for kind, count in answers.by_kind.items()
    ]
    return [*rows, ("of the measured load", sampled)]


def _limit(cell: Cell) -> TableRows:
    rows, limit = facts(cell, "limit"), cell.summary.limit
    if cell.summary.encode_s is not None:
        rows.append(("encoding of writes", text_of(cell.summary.encode_s, "s")))
    if limit is not None and limit.sent_in_bursts:
        rows.append(("ops sent in bursts", text_of(100 * limit.sent_in_bursts, "percent")))
    if limit is not None and limit.disturbed:
        rows.append(("meanwhile", limit.disturbed))
    return rows


def _wrong_answers(cell: Cell) -> Iterable[Table]:
    """Yield what was wrong with answers and stored points, each kind with its first example."""
    answers = cell.summary.answers
    if answers is None:
        return
    wrong = answers.first_wrong.model_dump() if answers.first_wrong is not None else {}
    if wrong and cell.run.has(WRONG):
        target, place = cell.summary.target, f"{cell.run.path.parent.name}/{cell.run.path.name}/{WRONG}"
        words = (f"load {target} --scenario SCENARIO", f"validate {target} {place}")
        wrong["to ask again"] = "\n".join(f"tsbench {one} --endpoint URL" for one in words)
    marked: TableRows = [(key, Mark(text, "pre")) for key, text in wrong.items() if text]
    yield Table("First answer that differs", marked, wide=True)
    differences: TableRows = [
        (kind, text_of(one.count), f"first: {one.first.kind}: {one.first.difference}")
        for kind, one in answers.differences.items()
    ]
    yield Table("Answers that differ, by kind", differences, wide=True)
    torn = answers.torn_reads
    if torn.answers and torn.first is not None:
        counts = f"{text_of(torn.answers)} of {text_of(answers.checked)} answers, {text_of(torn.rows)} rows"
        what = "lacked fields while points were written, and were whole afterwards"
        yield Table("Torn reads", [(what, counts, f"first: {torn.first.kind}: {torn.first.row}")], wide=True)
    stored: TableRows = []
    for kind, verdicts in answers.stored_differences.items():
        first = next(iter(verdicts.first), None)
        place = " ".join(filter(None, (first.measurement, first.series, first.time))) if first else ""
        texts = [getattr(first, name, "") or "nothing" for name in ("stored", "expected")]
        shown = f"first: {place}: stored {texts[0]}, expected {texts[1]}"
        stored.append((kind, f"{text_of(verdicts.count)}{' or more' if verdicts.at_least else ''}", shown))
    yield Table("Stored points that differ from those written", stored, wide=True)


def _plans(cell: Cell) -> TableRows:
    """Return per kind of query how the database got at the data, rows examined and returned, and its own time."""
    rows: TableRows = []
    for kind, plan in cell.summary.plans.items():
        if plan.error:
            rows.append((kind, plan.error, *(MISSING,) * 4))
            continue
        told = (*map(text_of, (plan.examined, plan.returned, plan.blocks)), text_of(plan.duration_ms, "ms"))
        figures = ("this server does not tell" if text == MISSING else text for text in told)
        rows.append((kind, str(plan.access), *figures))
    return rows


def _unsupported(cell: Cell) -> TableRows:
    answers = cell.summary.answers
    return [*answers.unsupported.items()] if answers is not None else []
