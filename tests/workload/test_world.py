"""The points of a world do not depend on the calls that generate them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.scenario.use_case import built_in_cases, built_in_spec
from tsbench.workload.layout import Churn
from tsbench.workload.world import Disorder, World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tsbench.model import Batch

CASES = built_in_cases()
START_NS = 1_451_606_400 * 10**9
TEN_S = 10 * 10**9


def churning(of: WorldSpec, lifetime_s: int, generations: int) -> WorldSpec:
    """Return the parameters of a world whose series end."""
    assert of.case is not None
    return replace(of, case=replace(of.case, churn=Churn(lifetime_s * 10**9, generations)))


def spec(use_case: str = "devops", scale: int = 7, seed: int = 1, **more: Any) -> WorldSpec:
    scale = 1 if use_case == "replication" else scale
    return built_in_spec(use_case, scale, seed, START_NS, TEN_S, **more)


def rows(batches: Iterable[Batch]) -> list[str]:
    """Return every point as one line of text."""
    found = []
    for batch in batches:
        fields = zip(*(column.tolist() for column in batch.fields.values()), strict=True)
        for time_ns, series, values in zip(batch.time_ns.tolist(), batch.series.tolist(), fields, strict=True):
            found.append(f"{batch.measurement.name} {time_ns} {series} {values}")
    return found


def fingerprint(points: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(points)).encode()).hexdigest()


DISORDERS = st.sampled_from(
    [
        Disorder(),
        Disorder(late=0.1, out_of_order=0.2, duplicate=0.1, missing=0.1, late_by=4),
        Disorder(late=0.1, duplicate=0.1, lost=0.1, held=0.1, null=0.2, null_tags=0.3, late_by=4),
    ]
)
LASTING = st.builds(
    spec,
    use_case=st.sampled_from(sorted(CASES)),
    scale=st.integers(1, 12),
    seed=st.integers(0, 2**64),
    form=st.sampled_from(["peer", "bounded"]),
    disorder=DISORDERS,
)
WORLDS = st.one_of(LASTING, st.builds(churning, LASTING, st.integers(10, 300), st.integers(2, 5)))


@examples(40)
@given(WORLDS, st.integers(1, 400), st.integers(1, 400), st.integers(1, 60))
def test_the_points_do_not_depend_on_the_size_of_batches(spec, points, other_points, ticks):
    world = World(spec)
    one = rows(world.batches(0, points=points, last_tick=ticks))
    other = rows(World(spec).batches(0, points=other_points, last_tick=ticks))
    assert fingerprint(one) == fingerprint(other)


@examples(40)
@given(WORLDS, st.integers(1, 300), st.lists(st.integers(0, 150), min_size=3, max_size=3))
def test_the_points_do_not_depend_on_where_the_ticks_are_split(spec, points, cuts):
    world, (first, middle, last) = World(spec), sorted(cuts)
    whole = rows(world.batches(0, points=points, first_tick=first, last_tick=last))
    parts = [
        *rows(world.batches(0, points=points, first_tick=first, last_tick=middle)),
        *rows(world.batches(0, points=points, first_tick=middle, last_tick=last)),
    ]
    assert fingerprint(whole) == fingerprint(parts)


@examples(30)
@given(st.sampled_from(["cpu-only", "sensors"]), st.integers(1, 30), st.integers(1, 8), st.integers(1, 20))
def test_streams_are_disjoint_and_complete(use_case, scale, streams, ticks):
    world = World(spec(use_case, scale, streams=streams))
    seen = []
    for stream in range(streams):
        batches = list(world.batches(stream, points=64, last_tick=ticks))
        assert sum(map(len, batches)) == world.count(stream, 0, ticks)
        seen += [
            (batch.measurement.name, time_ns, series)
            for batch in batches
            for time_ns, series in zip(batch.time_ns.tolist(), batch.series.tolist(), strict=True)
        ]
    assert sorted(seen) == sorted(
        (measurement.name, world.time_ns(tick), series)
        for measurement in world.measurements
        for tick in range(ticks)
        for series in range(scale)
    )
    assert len(seen) == world.count(None, 0, ticks)


@examples(40)
@given(
    st.sampled_from(["cpu-only", "sensors", "devops", "replication"]),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 300),
    st.data(),
)
def test_mixed_streams_give_the_points_of_each(use_case, scale, streams, points, data):
    scale = 1 if use_case == "replication" else max(scale, streams)
    streams = min(streams, scale)
    world = World(spec(use_case, scale, streams=streams))
    chosen = data.draw(st.permutations(range(streams)))[: data.draw(st.integers(1, streams))]
    first = data.draw(st.integers(0, 9))
    mixed = list(world.mixed(chosen, points=points, first_tick=first, last_tick=20))
    alone = [batch for s in chosen for batch in world.batches(s, points=99, first_tick=first, last_tick=20)]
    assert sorted(rows(mixed)) == sorted(rows(alone))
    assert all(len(batch) <= points for batch in mixed)
    for measurement in world.measurements:
        times = [t for b in mixed if b.measurement is measurement for t in b.time_ns.tolist()]
        assert times == sorted(times)


def test_streams_with_disorder_are_not_mixed_tick_by_tick():
    world = World(spec("cpu-only", 4, streams=2, disorder=Disorder(late=0.1)))
    with pytest.raises(ValueError, match="disorder"):
        world.mixed((0, 1), points=10)


def test_other_seeds_streams_and_use_cases_give_other_values():
    prints = {
        fingerprint(rows(World(spec(seed=seed, streams=streams)).batches(0, points=99, last_tick=20)))
        for seed in range(3)
        for streams in (1, 2)
    }
    assert len(prints) == 6


def test_the_points_of_a_seed_are_these_on_every_machine():
    """Goldens: the data of a published result must stay the same in later versions."""
    found = {
        name: fingerprint(rows(World(spec(name, seed=123, decimals=6)).batches(0, points=100, last_tick=30)))[:16]
        for name in CASES
    }
    assert found == GOLDEN


GOLDEN = {
    "cpu-only": "c7abe7cae871b41d",
    "devops": "f4a285476dc6d369",
    "iot": "a22296eb4307fcb2",
    "replication": "a318c145a7a3fda7",
    "sensordata": "871a13899b47ce83",
    "sensors": "5906639022dd20e0",
    "stocks": "a560169bf0ba19d8",
}


def test_batches_have_the_asked_size_and_measurements_take_turns():
    world = World(spec(scale=100))
    names = [m.name for m in world.measurements]
    batches = list(islice(world.batches(0, points=252), 2 * len(names)))
    assert [batch.measurement.name for batch in batches] == names * 2
    assert {len(batch) for batch in batches} == {252}
    assert [batch.number for batch in batches] == list(range(2 * len(names)))


def test_rows_run_tick_by_tick_and_within_a_tick_by_series():
    world = World(spec("cpu-only", scale=5, streams=2))
    (batch,) = world.batches(0, points=100, last_tick=3)
    assert batch.series.tolist() == [0, 2, 4] * 3
    assert batch.time_ns.tolist() == [world.time_ns(tick) for tick in (0, 1, 2) for _ in range(3)]


def test_a_small_batch_of_a_large_world_computes_no_more_than_one_tick():
    world = World(spec("cpu-only", scale=50))
    batch = next(world.batches(0, points=1))
    root = batch.time_ns.base if batch.time_ns.base is not None else batch.time_ns
    assert root.size <= 600


def test_only_the_chosen_measurements_are_given():
    world = World(spec())
    names = {batch.measurement.name for batch in world.batches(0, points=50, last_tick=9, only=["mem", "net"])}
    assert names == {"mem", "net"}


def test_columns_have_the_declared_types_and_every_tag_covers_every_series():
    for name in CASES:
        world = World(spec(name))
        for batch in world.batches(0, points=64, last_tick=9):
            assert batch.time_ns.dtype == np.int64
            assert batch.series.dtype == np.int32
            assert tuple(batch.fields) == batch.measurement.field_names
            for field in batch.measurement.fields:
                column = batch.fields[field.name]
                assert column.dtype == (np.int64 if field.kind == "int" else np.float64)
                assert column.flags.c_contiguous
            assert tuple(batch.tags) == (*batch.measurement.tags, *batch.measurement.own_tags)
            assert {len(codes) for codes in batch.tags.values()} <= {world.spec.scale}


def test_floats_are_rounded_on_demand():
    world = World(spec(decimals=1))
    for batch in world.batches(0, points=99, last_tick=5):
        for column in batch.fields.values():
            assert np.array_equal(column, np.round(column, 1))


def test_the_count_of_an_untidy_world_is_unknown():
    assert World(spec(disorder=Disorder(missing=0.1))).count(0, 0, 9) is None
    assert World(spec(disorder=Disorder(duplicate=0.1))).count(0, 0, 9) is None
    assert World(spec(disorder=Disorder(late=0.1))).count(0, 0, 9) == 9 * 7 * 9


def test_ticks_fill_a_window_whose_end_is_excluded():
    world = World(spec())
    assert [world.ticks(n) for n in (1, TEN_S, TEN_S + 1, 3600 * 10**9)] == [1, 1, 2, 360]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_case": "devop", "case": None}, "did you mean 'devops'"),
        ({"form": "square"}, "no form 'square'"),
        ({"scale": 0}, "scale must be at least 1"),
        ({"streams": 0}, "streams must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"decimals": -1}, "decimals"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_with_a_reason(change, words):
    with pytest.raises(ValueError, match=words):
        World(spec(**change))


def test_a_single_series_cannot_be_scaled():
    with pytest.raises(ValueError, match="single series"):
        World(replace(spec("replication"), scale=2))


def test_a_stream_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no stream 1"):
        World(spec()).batches(1, points=9)
