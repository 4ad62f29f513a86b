"""Small worlds made by hand, so that these tests lean on nothing but the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.aggregates import comparable
from tsbench.check.comparison import Computed, Difference, canonical, compare, compare_answers, compare_rows, forms_of
from tsbench.model import (
    Aggregate,
    Aggregated,
    Batch,
    Codes,
    Condition,
    Count,
    Field,
    Kind,
    Latest,
    LatestBuckets,
    Measurement,
    Query,
    Raw,
    Rows,
    Stored,
    Tagged,
    Top,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

S = 1_000_000_000
START_NS = 1_451_606_400 * S  # 2016-01-01T00:00:00Z

CPU = Measurement("cpu", ("host", "region"), (Field("busy"), Field("load"), Field("count", Kind.INT)))
DISK = Measurement("disk", ("host", "region"), (Field("free", Kind.INT),), own_tags=("path", "fs"))
LAG = Measurement("lag", (), (Field("kb", Kind.INT), Field("seconds")))
STATES = Measurement(
    "states",
    ("host", "region"),
    (
        Field("busy"),
        Field(
            "state", Kind.TEXT, texts=("run", "it's", 'a "quote", x=null', "naïve ☃", "100% $1 ? :x", "semi;colon--")
        ),
        Field("open", Kind.BOOL),
    ),
)
WIDE = Measurement("wide", ("host", "region"), tuple(Field(f"f{i}") for i in range(11)))

ODD = ("it's", 'a "quote"', "naïve ☃", "back\\slash", "100% $1 ? :x", "semi;colon--", "")
"""Tag values that break whoever pastes them into a text."""


def codes(values: list[str]) -> Codes:
    """A text column."""
    distinct = tuple(dict.fromkeys(values))
    return Codes(np.array([distinct.index(v) for v in values], dtype=np.int32), distinct)


def shared_tags(hosts: int = 5, names: tuple[str, ...] | None = None) -> dict[str, Codes]:
    """The shared tags of that many hosts, with their names if given."""
    host = list(names) if names else [f"host_{i}" for i in range(hosts)]
    return {"host": codes(host), "region": codes([f"r{i % 2}" for i in range(len(host))])}


def tags_of(measurement: Measurement, shared: Mapping[str, Codes]) -> dict[str, Codes]:
    """All tags of a measurement's series: the shared ones and its own."""
    if not measurement.tags:
        return {}
    size = len(next(iter(shared.values())))
    own = {tag: codes([f"{tag} '{i}' é" for i in range(size)]) for tag in measurement.own_tags}
    return {**shared, **own}


def batch(
    measurement: Measurement,
    shared: Mapping[str, Codes],
    *,
    time_ns: list[int],
    series: list[int] | None = None,
    seed: int = 0,
    number: int = 0,
) -> Batch:
    """A batch with those times (and series, else all 0) and random values."""
    draw = np.random.default_rng(seed)
    fields = {
        f.name: draw.integers(0, len(f.labels), len(time_ns))
        if f.labels
        else draw.integers(-(2**53), 2**53, len(time_ns))
        if f.kind is Kind.INT
        else np.round(draw.uniform(-100, 100, len(time_ns)), 3)
        for f in measurement.fields
    }
    of = np.array(series if series is not None else [0] * len(time_ns), dtype=np.int32)
    return Batch(measurement, 0, number, np.array(time_ns, dtype=np.int64), of, tags_of(measurement, shared), fields)


def scattered(
    measurement: Measurement, shared: Mapping[str, Codes], points: int, seed: int, *, step_ns: int = 1_000
) -> list[Batch]:
    """Batches of points at random multiples of `step_ns` in ten minutes, no two at the same one, out of order."""
    draw = np.random.default_rng(seed)
    size = len(next(iter(shared.values()))) if measurement.tags else 1
    times = START_NS + draw.choice(600 * S // step_ns, points, replace=False) * step_ns
    series = draw.integers(0, size, points)
    pieces = np.array_split(np.arange(points), 3)
    return [
        batch(measurement, shared, time_ns=times[p].tolist(), series=series[p].tolist(), seed=seed + i, number=i)
        for i, p in enumerate(pieces)
    ]


def join(batches: list[Batch]) -> Batch:
    """Batches of one measurement as one."""
    first = batches[0]
    return Batch(
        first.measurement,
        first.stream,
        first.number,
        np.concatenate([b.time_ns for b in batches]),
        np.concatenate([b.series for b in batches]),
        first.tags,
        {name: np.concatenate([b.fields[name] for b in batches]) for name in first.fields},
    )


@dataclass(frozen=True)
class Asked:
    """A query with a name for people."""

    name: str
    query: Query


def queries(m: Measurement, keys: tuple[str, ...], seed: int = 0) -> list[Asked]:
    """Every kind of query, with and without keys, over windows whose ends may be any ns."""
    draw = np.random.default_rng(seed)
    start, end = sorted((START_NS + draw.integers(-60 * S, 660 * S, 2)).tolist())
    window, names = Window(start, end + 1), m.field_names
    minute = 60 * S
    chosen, by = (keys[:2], m.tags[:1]) if m.key else (None, ())
    aggregates: tuple[Aggregate, ...] = ("max", "min", "mean", "sum", "count")
    twice = Raw(m, names[:1], window, chosen, (), (Tagged(m.key or "", keys[1:3]),))
    newest = Raw(m, names, window, keys[:1] if m.key else None)
    between = Condition(names[-1], ">=", -20.0), Condition(names[-1], "<", 20.0), Condition(names[-1], "<", 90.0)
    return [
        Asked("raw rows", Raw(m, names, window)),
        Asked("raw rows of some keys", Raw(m, names[:1], window, chosen)),
        *(Asked(f"{a} by minute", Aggregated.of(m, names, a, minute, window)) for a in aggregates),
        Asked("maximum by half a second, of some keys", Aggregated.of(m, names, "max", S // 2, window, chosen)),
        *(Asked(f"{a} by minute and key", Aggregated.of(m, names, a, minute, window, None, by)) for a in aggregates),
        Asked(
            "mean by seven seconds and key, of some keys", Aggregated.of(m, names, "mean", 7 * S, window, chosen, by)
        ),
        Asked("newest row of each", Latest(m, names)),
        Asked("newest row of each before a time", Latest(m, names[-1:], start)),
        Asked("newest row of some keys before a time", Latest(m, names, start, chosen)),
        Asked("rows above a threshold", Raw(m, names, window, None, (Condition(names[0], ">", 12.5),))),
        Asked("rows above a threshold of some keys", Raw(m, names, window, chosen, (Condition(names[0], ">", -1.0),))),
        *(
            Asked(f"first rows by time, {few}", replace(newest, top=few))
            for few in (Top("time", 7), Top("time", 3, True))
        ),
        *([Asked("raw rows of a key that is named twice", twice)] if m.key else []),
        Asked("rows between two values", Raw(m, names[:1], window, None, between)),
        Asked("newest three buckets", LatestBuckets(m, names, "max", minute, end, 3)),
        *(_aggregates(m, window, chosen, between) if m.key else ()),
        Asked("count", Count(m)),
        Asked("stored points", Stored(m, start, end + 1)),
        Asked("stored points before a time", Stored(m, end_ns=start)),
        Asked("stored points from a time on", Stored(m, start)),
        Asked("all stored points", Stored(m)),
    ]


def queries_of_states(keys: tuple[str, ...]) -> list[Asked]:
    """Queries for rows with texts and booleans, chosen by them, and for their numbers."""
    m, window = STATES, Window(START_NS, START_NS + 600 * S)
    odd = [Condition("state", "=", float(code), text) for code, text in enumerate(m.fields[1].texts)]
    flag, no = Condition("open", "=", 1.0, label=True), Condition("open", "=", 0.0, label=False)
    names = ("open", "busy", "state")
    counts: tuple[tuple[Aggregate, str], ...] = (("count", "state"), ("count", "open"), ("max", "busy"))
    return [
        Asked("raw rows", Raw(m, names, window)),
        *(Asked(f"rows of the text {one.label}", Raw(m, names, window, None, (one,))) for one in odd),
        Asked("rows of true and a text", Raw(m, names, window, keys, (flag, odd[0]))),
        Asked("rows of false and a number", Raw(m, names[:1], window, None, (no, Condition("busy", ">", 5.0)))),
        Asked("newest rows", Latest(m, names)),
        Asked("counts by minute", Aggregated.of(m, names[::2], "count", 60 * S, window)),
        Asked("counts by minute and key", Aggregated.of(m, names[::2], "count", 60 * S, window, keys, m.tags[:1])),
        Asked("several aggregates by tag", Aggregated(m, counts, window, None, m.tags[1:])),
        Asked("aggregates of rows of a text", Aggregated(m, counts, window, 60 * S, m.tags[:1], None, (odd[1], flag))),
        Asked("stored points", Stored(m)),
        Asked("some stored points", Stored(m, limit=1_000)),
    ]


def _aggregates(
    m: Measurement, window: Window, chosen: tuple[str, ...] | None, where: tuple[Condition, ...]
) -> list[Asked]:
    """Aggregates of several kinds, by other tags than the key, of series chosen by their tags, under conditions."""
    one, other = m.field_names[0], m.field_names[-1]
    several: tuple[tuple[Aggregate, str], ...] = (("max", one), ("mean", one), ("count", other), ("min", other))
    sums: tuple[tuple[Aggregate, str], ...] = (("sum", one), ("min", other))
    ends: tuple[tuple[Aggregate, str], ...] = (("last", one), ("first", one), ("first", other))[: 2 + (one != other)]
    spread: tuple[tuple[Aggregate, str], ...] = (("p50", one), ("p95", one), ("p99", other))
    by, minute = m.tags[-1:], 60 * S
    tagged = (Tagged(by[0], ("r1", "elsewhere")),)
    return [
        Asked("several aggregates by minute", Aggregated(m, several, window, minute)),
        Asked("several aggregates of all", Aggregated(m, several, window)),
        Asked("several aggregates by minute and key", Aggregated(m, several, window, minute, m.tags[:1], chosen)),
        Asked("several aggregates by another tag", Aggregated(m, several, window, None, by)),
        Asked("one aggregate by another tag", Aggregated(m, several[:1], window, None, by)),
        Asked("aggregates by minute and all tags", Aggregated(m, sums, window, minute, m.tags)),
        Asked("maximum by minute and another tag", Aggregated(m, several[:1], window, minute, by)),
        Asked(
            "mean of rows between two values by minute", Aggregated(m, several[1:2], window, minute, (), None, where)
        ),
        Asked("aggregates under conditions by a tag", Aggregated(m, several, window, minute, by, chosen, where)),
        Asked("aggregates under conditions of all", Aggregated(m, sums, window, None, (), None, where)),
        Asked("the highest two by a tag", Aggregated(m, several, window, None, m.tags[:1], top=Top(f"max_{one}", 2))),
        Asked(
            "the lowest of all tags",
            Aggregated(
                m,
                sums,
                window,
                None,
                m.tags,
                None,
                where,
                top=Top(Aggregated(m, sums, window).value_names[1], 1, lowest=True),
            ),
        ),
        Asked("first and last by key", Aggregated(m, ends, window, None, m.tags[:1])),
        Asked("last by minute and key", Aggregated(m, ends[:1], window, minute, m.tags[:1], chosen)),
        Asked("first and last by minute and key", Aggregated(m, ends[1:], window, minute, m.tags[:1], None, where)),
        Asked("percentiles of all", Aggregated(m, spread, window)),
        Asked("a percentile by minute", Aggregated(m, spread[1:2], window, minute)),
        Asked("percentiles by minute and a tag", Aggregated(m, spread, window, minute, by, None, where)),
        Asked("percentiles and others by key", Aggregated(m, (*spread, *several), window, minute, m.tags[:1])),
        Asked("maximum of a tag's series by minute", Aggregated(m, several[:1], window, minute, tagged=tagged)),
        Asked("aggregates of a tag's series by key", Aggregated(m, several, window, minute, m.tags[:1], tagged=tagged)),
        Asked("raw rows of a tag's series", Raw(m, m.field_names, window, tagged=tagged)),
        Asked("raw rows of a tag's series among some keys", Raw(m, m.field_names, window, chosen, where, tagged)),
        Asked("newest rows of a tag's series", Latest(m, m.field_names, tagged=tagged)),
    ]


def difference(query: Query, expected: Rows, actual: Rows) -> Difference | None:
    """The first difference between an answer key's answer and another one."""
    forms, wanted = forms_of(query), rounded(query, expected)
    if forms.labels:  # of which the answer key has the numbers
        return compare_answers(query, canonical(wanted, replace(forms, labels={})), canonical(actual, forms))
    if not isinstance(query, Aggregated):
        return compare(wanted, actual, forms)
    return compare_rows(
        comparable(query, canonical(wanted, forms)), comparable(query, canonical(actual, forms)), query.columns
    )


def rounded(query: Query, rows: Rows) -> Rows:
    """Sums, means and percentiles of an answer key as values from which other orders of addition may differ."""
    if {how for how, _ in getattr(query, "values", ())} <= {"max", "min", "count", "first", "last"}:
        return rows
    time = rows.columns.index("time") if "time" in rows.columns else -1
    return Rows(
        rows.columns,
        [
            tuple(
                Computed.of(v, abs(v) * 1e-9) if i != time and isinstance(v, int | float) else v
                for i, v in enumerate(row)
            )
            for row in canonical(rows)
        ],
    )
