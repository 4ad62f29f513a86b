"""The streaming gold against the answer key, on random worlds with disorder and every outcome of a write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.check.questions import Question
from tsbench.model import Aggregated, Condition, Latest, LatestBuckets, Raw, Rows, Tagged, Window
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.scenario.use_case import built_in_spec
from tsbench.testing.oracle import Oracle
from tsbench.testing.stand import START_NS
from tsbench.units import NS_PER_S
from tsbench.workload.disorder import Disorder
from tsbench.workload.world import World

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tsbench.model import Query

MINUTE_NS = 60 * NS_PER_S
AGGREGATES = ("max", "min", "mean", "sum", "count")
disorders = st.one_of(
    st.just(Disorder()),
    st.builds(
        Disorder,
        late=st.sampled_from([0.0, 0.1, 0.5]),
        out_of_order=st.sampled_from([0.0, 0.2, 0.5]),
        duplicate=st.sampled_from([0.0, 0.3, 1.0]),
        missing=st.sampled_from([0.0, 0.2, 0.9]),
        late_by=st.sampled_from([1, 3, 40]),
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    use_case = draw(st.sampled_from(["cpu-only", "sensors", "replication", "devops"]))
    scale = 1 if use_case == "replication" else draw(st.integers(1, 7))
    streams = draw(st.integers(1, 4))
    seed, interval_s = draw(st.integers(0, 99)), draw(st.sampled_from([7, 60]))
    disorder = draw(disorders)
    return World(built_in_spec(use_case, scale, seed, START_NS, interval_s * NS_PER_S, streams, disorder=disorder))


@st.composite
def ledgers(draw: st.DrawFn, world: World, *, loaded: int, block: int, last: int | None) -> NDArray[np.void]:
    """Draw writes of some rows of the first blocks of every stream, with every outcome."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    entries = []
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    for stream in range(world.spec.streams):
        for number, batch in enumerate(world.batches(stream, points=block, first_tick=loaded, last_tick=last)):
            if number >= 12:
                break
            for offset in range(0, len(batch), 4):
                if rng.random() < share:
                    points = min(4, len(batch) - offset)
                    outcome = int(rng.choice([0, 0, 0, 1, 2, 3]))
                    fates = (points, 0) if outcome == 0 else (0, points) if outcome == 1 else (0, 0)
                    entries.append((stream, number, offset, points, *fates, outcome, 0, 0))
    rng.shuffle(entries)
    return np.array([tuple(entry) for entry in entries], dtype=LEDGER_DTYPE)


def queries_of(world: World, rng: np.random.Generator, loaded: int) -> list[Query]:
    """Return queries of every form about any time, some with windows on ticks and buckets."""
    interval_ns = world.spec.interval_ns
    found: list[Query] = []
    for _ in range(3):
        measurement = world.measurements[int(rng.integers(len(world.measurements)))]
        fields = measurement.field_names[: int(rng.integers(1, len(measurement.field_names) + 1))]
        aggregate: Any = AGGREGATES[int(rng.integers(5))]
        bucket_ns = int(rng.choice([1, 3, 7, 60])) * interval_ns
        start_ns = START_NS + int(rng.integers(-3, loaded + 10)) * interval_ns + int(rng.integers(0, 2))
        window = Window(start_ns, start_ns + int(rng.integers(1, loaded + 20)) * interval_ns)
        keys = None
        if measurement.key is not None and rng.random() < 0.5:
            known = world.keys()
            keys = tuple(known[i] for i in rng.choice(len(known), int(rng.integers(1, len(known) + 1)), replace=False))
        before_ns = None if rng.random() < 0.3 else window.end_ns
        field = measurement.fields[0]
        comparison: Any = rng.choice([">", ">=", "<", "<=", "="])
        where = (Condition(field.name, comparison, float(rng.choice([0.0, 20.0, 60.0]))),)
        found += [
            Raw(measurement, fields, window, keys),
            Raw(measurement, fields, window, keys, where),
            Aggregated.of(measurement, fields, aggregate, bucket_ns, window, keys),
            Aggregated.of(measurement, fields, aggregate, bucket_ns, window, keys, measurement.tags[:1]),
            LatestBuckets(measurement, fields, aggregate, bucket_ns, window.end_ns, int(rng.integers(1, 6))),
        ]
        values = tuple((how, name) for how, name in zip(rng.permutation(AGGREGATES).tolist(), fields, strict=False))
        by = tuple(rng.permutation(measurement.tags).tolist()[: int(rng.integers(0, 3))])
        tagged: tuple[Tagged, ...] = ()
        if len(measurement.tags) > 1:
            texts = world.texts(measurement.tags[-1])
            tagged = (Tagged(measurement.tags[-1], tuple(rng.choice(texts, min(2, len(texts)), replace=False))),)
        found += [
            Aggregated(measurement, values, window, bucket_ns, by, keys),
            Aggregated(measurement, values, window, None, by, keys, where),
            Aggregated(
                measurement,
                tuple(dict.fromkeys((*values, ("max", fields[-1])))),
                window,
                bucket_ns,
                by,
                None,
                where,
                tagged,
            ),
            Raw(measurement, fields, window, keys, where, tagged),
        ]
        if before_ns is not None:
            found += [
                Latest(measurement, fields, before_ns, keys),
                Latest(measurement, fields, before_ns, None, tagged),
            ]
    return found


def spoilt(rows: Rows, rng: np.random.Generator) -> list[Rows]:
    """Return answers that are wrong: a row too few, one too many, another value, time, tag or key."""
    records = list(rows.records)
    if not records:
        return []
    i = int(rng.integers(len(records)))
    row = records[i]
    others = [
        [*records[:i], *records[i + 1 :]],
        [*records, row],
        [*records[:i], (*row[:-1], row[-1] * 1.001 + 1), *records[i + 1 :]],
        [*records[:i], (row[0] + ("x" if isinstance(row[0], str) else 1), *row[1:]), *records[i + 1 :]],
        [*records[:i], (*row[:-1], None), *records[i + 1 :]],
        [*records[:i], (*row[:-1], str(row[-1])), *records[i + 1 :]],
        [],
    ]
    return [Rows(rows.columns, other) for other in others]


@pytest.mark.slow
@examples(20)
@given(data=st.data())
def test_the_streaming_gold_accepts_the_answer_keys_answers_and_no_others(data: st.DataObject) -> None:
    world = data.draw(worlds())
    loaded, block = data.draw(st.sampled_from([1, 5, 30])), data.draw(st.sampled_from([4, 12, 64]))
    last = data.draw(st.sampled_from([None, loaded + 6, loaded + 40]))
    ledger = data.draw(ledgers(world, loaded=loaded, block=block, last=last))
    keeps = data.draw(st.booleans())
    feed = Feed(world, loaded, block, last)
    oracle, gold = Oracle(feed, ledger, keeps_duplicates=keeps), Gold(feed, ledger, keeps_duplicates=keeps)
    assert gold.count() == oracle.count()
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    answers: list[tuple[Query, Rows, bool]] = []
    for query in queries_of(world, rng, loaded):
        right = oracle.answer(query)
        shuffled = [right.records[i] for i in rng.permutation(len(right.records))]
        answers += [(query, right, True), (query, Rows(right.columns, shuffled), True)]
        wrong = spoilt(right, rng)
        if wrong:
            answers.append((query, wrong[int(rng.integers(len(wrong)))], False))
    asked = [Question("", query, partial(gold.packed, query, rows)) for query, rows, _ in answers]
    differences = {id(question): difference for question, difference in gold.compare(asked)}
    assert len(differences) == len(asked)
    for question, (query, rows, is_right) in zip(asked, answers, strict=True):
        assert (differences[id(question)] is None) == is_right, (query, rows)
