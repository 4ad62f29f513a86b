"""The answer key against loops that anybody can check by reading."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tsbench.model import (
    Aggregated,
    Count,
    Latest,
    LatestBuckets,
    Measurement,
    Query,
    Raw,
    Rows,
    Stored,
    Text,
)
from tsbench.testing import data
from tsbench.testing.answer_key import AnswerKey
from tsbench.testing.data import CPU, LAG, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tsbench.model import Batch

Point: TypeAlias = tuple[int, str | None, dict[str, float]]
"""Time, key and fields of a point."""


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.sampled_from([CPU, LAG]))
def test_every_answer_is_that_of_a_plain_loop(seed: int, points: int, keeps: bool, measurement: Measurement) -> None:
    draw = np.random.default_rng(seed)
    shared = data.shared_tags(4)
    # Few distinct times, so that points meet; the newest row of a series is then not unique, see below.
    times = START_NS + draw.integers(0, 120, points) * 5 * S
    batch = data.batch(
        measurement, shared, time_ns=times.tolist(),
        series=draw.integers(0, 4 if measurement.tags else 1, points).tolist(), seed=seed,
    )  # fmt: skip
    answer_key = AnswerKey(keeps)
    for i in range(0, points, 7):
        answer_key.add(batch.rows(i, i + 7))
        answer_key.answer(Count(measurement))
    for asked in data.queries(measurement, ("host_0", "host_2"), seed):
        expected = Rows(asked.query.columns, _answer(asked.query, batch, keeps=keeps))
        assert data.difference(asked.query, expected, answer_key.answer(asked.query)) is None, asked.name


def _answer(query: Query, batch: Batch, *, keeps: bool) -> list[tuple[Any, ...]]:
    key = batch.measurement.key
    hosts = batch.tags[key].tolist() if key else [None]
    found: list[Point] = [
        (int(batch.time_ns[i]), hosts[batch.series[i]], {n: c[i].item() for n, c in batch.fields.items()})
        for i in range(len(batch))
    ]
    tags = {host: {tag: codes[i] for tag, codes in batch.tags.items()} for i, host in enumerate(hosts)}
    if not keeps:
        found = list({point[:2]: point for point in found}.values())
    if isinstance(query, Count | Stored):
        return _whole(query, batch, found)
    keys = getattr(query, "keys", None)
    if keys is not None and key:
        found = [p for p in found if p[1] in keys]
    if isinstance(query, Raw | Aggregated):
        found = [p for p in found if query.window.start_ns <= p[0] < query.window.end_ns]
    elif isinstance(query, Latest | LatestBuckets) and query.before_ns is not None:
        found = [p for p in found if p[0] < query.before_ns]
    found = [p for p in found if all(one.holds(p[2][one.field]) for one in getattr(query, "where", ()))]
    found = [p for p in found if all(tags[p[1]][one.tag] in one.values for one in getattr(query, "tagged", ()))]
    if isinstance(query, Latest):
        newest: dict[str | None, tuple[int, str | None, dict[str, float]]] = {}
        for point in found:  # of several at the newest time, the one written last
            if point[1] not in newest or point[0] >= newest[point[1]][0]:
                newest[point[1]] = point
        found = list(newest.values())
    if isinstance(query, Raw | Latest):
        return [(t, *([h] if key else []), *(f[n] for n in query.fields)) for t, h, f in _first(query, found)]
    assert not isinstance(query, Text), "the key in memory knows none"
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = defaultdict(list)
    for t, host, f in sorted(found, key=lambda point: point[0]):
        time = [] if query.bucket_ns is None else [t - t % query.bucket_ns]
        groups[*time, *(tags[host][tag] for tag in getattr(query, "by", ()))].append(f)
    rows = [(*g, *(_FUNCTIONS[how]([f[n] for f in fs]) for how, n in query.values)) for g, fs in groups.items()]
    if isinstance(query, Aggregated) and query.top is not None:
        place, top = query.columns.index(query.top.column), query.top
        return sorted(rows, key=lambda row: row[place], reverse=not top.lowest)[: top.limit]
    return sorted(rows)[-query.limit :] if isinstance(query, LatestBuckets) else rows


def _first(query: Raw | Latest, found: list[Point]) -> list[Point]:
    top = query.top if isinstance(query, Raw) else None
    return found if top is None else sorted(found, key=lambda one: one[0], reverse=not top.lowest)[: top.limit]


def _whole(query: Count | Stored, batch: Batch, found: list[Point]) -> list[tuple[Any, ...]]:
    if isinstance(query, Count):
        return [(len(found),)]
    m = batch.measurement
    hosts = batch.tags[m.key].tolist() if m.key else []
    inside = [p for p in found if (query.start_ns or -(2**63)) <= p[0] < (query.end_ns or 2**63)]
    tags = [[batch.tags[tag][hosts.index(h)] for tag in (*m.tags, *m.own_tags)] if h else [] for _, h, _ in inside]
    return [(t, *own, *f.values(), None) for (t, _, f), own in zip(inside, tags, strict=True)]


_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "count": len,
    "mean": lambda values: sum(values) / len(values),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    **{f"p{percent}": partial(np.quantile, q=percent / 100) for percent in (50, 95, 99)},
}


def test_the_order_of_writes_and_queries_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsbench.testing.answer_key._MERGE_ABOVE_ROWS", 50)
    shared = data.shared_tags()
    batches = data.scattered(CPU, shared, 999, 3)
    for keeps in (True, False):
        at_once, bit_by_bit = AnswerKey(keeps), AnswerKey(keeps)
        for batch in batches:
            at_once.add(batch)
            for i in range(0, len(batch), 40):
                bit_by_bit.add(batch.rows(i, i + 40))
                bit_by_bit.answer(Count(CPU))
        for asked in data.queries(CPU, ("host_0", "host_2"), 4):
            difference = data.difference(asked.query, at_once.answer(asked.query), bit_by_bit.answer(asked.query))
            assert difference is None, asked.name
