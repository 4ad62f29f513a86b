"""The n-th query of a kind, and which kinds fit a world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.test_world import spec
from tsbench.model import Aggregated, Condition, Latest, LatestBuckets, Raw, Text, Window
from tsbench.units import NS_PER_S
from tsbench.workload.queries import fit, kinds_of, make
from tsbench.workload.world import World

MINUTE_NS, HOUR_NS = 60 * NS_PER_S, 3_600 * NS_PER_S
WORLD = World(spec("cpu-only", scale=40))
LOADED = Window(WORLD.spec.start_ns, WORLD.spec.start_ns + 48 * HOUR_NS)
SENSORS = World(spec("sensors", scale=40))
STOCKS = World(spec("stocks", scale=3))
TRUCKS = World(spec("iot", scale=40, form="peer"))
STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000)

#                          by host, hours, bucket, aggregate, keys, fields: as the peers' code has them
CPU_KINDS = {
    "single-groupby-1-1-1": (False, 1, MINUTE_NS, "max", 1, 1),
    "single-groupby-1-1-12": (False, 12, MINUTE_NS, "max", 1, 1),
    "single-groupby-1-8-1": (False, 1, MINUTE_NS, "max", 8, 1),
    "single-groupby-5-1-1": (False, 1, MINUTE_NS, "max", 1, 5),
    "single-groupby-5-1-12": (False, 12, MINUTE_NS, "max", 1, 5),
    "single-groupby-5-8-1": (False, 1, MINUTE_NS, "max", 8, 5),
    "cpu-max-all-1": (False, 8, HOUR_NS, "max", 1, 10),
    "cpu-max-all-8": (False, 8, HOUR_NS, "max", 8, 10),
    "cpu-max-all-32-24": (False, 24, HOUR_NS, "max", 32, 10),
    "double-groupby-1": (True, 12, HOUR_NS, "mean", None, 1),
    "double-groupby-5": (True, 12, HOUR_NS, "mean", None, 5),
    "double-groupby-all": (True, 12, HOUR_NS, "mean", None, 10),
}


@pytest.mark.parametrize("name", sorted(CPU_KINDS))
@pytest.mark.parametrize("world", [WORLD, World(spec("devops", scale=40))], ids=["cpu-only", "devops"])
def test_aggregates_are_those_of_the_peers(name, world):
    by_key, hours, bucket_ns, aggregate, keys, fields = CPU_KINDS[name]
    query = make(name, world, LOADED, 1, 0)
    assert isinstance(query, Aggregated)
    assert query.by == (("hostname",) if by_key else ())
    assert query.measurement.name == "cpu"
    assert query.window.length_ns == hours * HOUR_NS
    assert query.bucket_ns == bucket_ns
    assert query.aggregates == {aggregate}
    assert (query.keys and len(query.keys)) == keys
    assert query.fields == query.measurement.field_names[:fields]


def test_the_other_kinds_of_the_peers():
    newest = make("groupby-orderby-limit", WORLD, LOADED, 1, 0)
    assert isinstance(newest, LatestBuckets)
    assert (newest.limit, newest.bucket_ns, newest.fields) == (5, MINUTE_NS, ("usage_user",))
    assert LOADED.start_ns + HOUR_NS <= newest.before_ns <= LOADED.end_ns
    for name, keys in (("high-cpu-1", 1), ("high-cpu-all", None)):
        above = make(name, WORLD, LOADED, 1, 0)
        assert isinstance(above, Raw)
        assert (above.where, len(above.fields)) == ((Condition("usage_user", ">", 90.0),), 10)
        assert (above.keys and len(above.keys)) == keys
    latest = make("lastpoint", WORLD, LOADED, 1, 0)
    assert latest == Latest(WORLD.measurements[0], WORLD.measurements[0].field_names, None, None)


def test_raw_kinds_cover_all_a_tenth_or_one_interval():
    for world in (WORLD, SENSORS, World(spec("replication"))):
        whole, tenth, one = (make(f"raw-{part}", world, LOADED, 1, 0) for part in ("all", "tenth", "one"))
        assert isinstance(whole, Raw)
        assert isinstance(tenth, Raw)
        assert isinstance(one, Raw)
        assert whole.window == LOADED
        assert tenth.window.length_ns == LOADED.length_ns // 10
        assert one.window.length_ns == world.spec.interval_ns


def test_sensors_have_the_studys_two_reads():
    six_hours = make("select-6h-5-devices", SENSORS, LOADED, 1, 0)
    assert isinstance(six_hours, Raw)
    assert six_hours.measurement.name == "temperature"
    assert six_hours.window.length_ns == 6 * HOUR_NS
    assert six_hours.keys is not None
    assert set(six_hours.keys) < set(SENSORS.keys())
    assert len(six_hours.keys) == 5
    asked = [make("last-value", SENSORS, LOADED, 1, number).measurement.name for number in range(7)]
    assert asked == [m.name for m in SENSORS.measurements]


def test_stocks_have_the_studys_day_and_daily_mean():
    day = make("prices-day", STOCKS, LOADED, 1, 0)
    assert isinstance(day, Raw)
    assert (day.window.length_ns, day.keys) == (24 * HOUR_NS, None)
    daily = make("prices-daily", STOCKS, LOADED, 1, 0)
    assert isinstance(daily, Aggregated)
    assert (daily.values, daily.bucket_ns, daily.window, daily.keys) == (
        (("mean", "price"),),
        24 * HOUR_NS,
        LOADED,
        None,
    )


#       hours (0: all that is loaded), and what it is about
TRUCK_KINDS = {
    "single-last-loc": (0, "name"),
    "last-loc": (0, "fleet"),
    "low-fuel": (0, "fleet"),
    "high-load": (0, "fleet"),
    "stationary-trucks": (1 / 6, "fleet"),
    "long-driving-sessions": (4, "fleet"),
    "long-daily-sessions": (24, "fleet"),
    "avg-vs-projected-fuel-consumption": (0, ""),
    "avg-daily-driving-duration": (0, ""),
    "avg-daily-driving-session": (0, ""),
    "avg-load": (0, ""),
    "daily-activity": (0, ""),
    "breakdown-frequency": (0, ""),
}


def test_trucks_have_the_thirteen_kinds_of_the_peers():
    assert [*TRUCKS.kinds] == [*TRUCK_KINDS]
    for name, (hours, about) in TRUCK_KINDS.items():
        asked = [make(name, TRUCKS, LOADED, 1, number) for number in range(60)]
        texts = [query for query in asked if isinstance(query, Text) and query.gold]
        assert len(texts) == 60
        assert {query.window.length_ns for query in texts} == {int(hours * HOUR_NS) or LOADED.length_ns}
        assert {tag for query in texts for tag, _ in query.values} == {about} - {""}
        of = {values for query in texts for _, values in query.values}
        known = {(text,) for text in TRUCKS.texts(about)} if about else set()
        assert of <= known
        assert len(of) >= len(known) / 2


ASKED = [(world, kind) for world in (WORLD, SENSORS, STOCKS) for kind in kinds_of(world)]


@settings(deadline=None)
@given(st.sampled_from(ASKED), st.integers(0, 2**32), st.integers(0, 10**9), st.sampled_from(STEPS_NS))
def test_a_query_is_a_function_of_its_number_and_lies_within_the_data(asked, seed, number, step_ns):
    world, name = asked
    world = World(replace(world.spec, resolution_ns=step_ns))
    query = make(name, world, LOADED, seed, number)
    assert query == make(name, world, LOADED, seed, number)
    if isinstance(query, Raw | Aggregated):
        window = query.window
        assert LOADED.start_ns <= window.start_ns < window.end_ns <= LOADED.end_ns
        assert window.start_ns % step_ns == window.end_ns % step_ns == 0
        assert query.keys is None or len(set(query.keys)) == len(query.keys)
        assert set(query.keys or ()) <= set(world.keys())


def test_windows_begin_finer_than_a_second_and_every_host_is_chosen():
    queries = [make("single-groupby-1-8-1", WORLD, LOADED, 1, number) for number in range(300)]
    found = [query for query in queries if isinstance(query, Aggregated)]
    assert len({query.window.start_ns % 10**9 for query in found}) > 290
    assert {key for query in found for key in query.keys or ()} == set(WORLD.keys())
    assert max(q.window.end_ns for q in found) > LOADED.end_ns - HOUR_NS
    assert min(q.window.start_ns for q in found) < LOADED.start_ns + HOUR_NS


def test_kinds_and_seeds_draw_apart():
    starts = {
        make(name, WORLD, LOADED, seed, 0).window.start_ns  # type: ignore[union-attr]
        for name in ("single-groupby-1-1-1", "single-groupby-5-1-1")
        for seed in range(5)
    }
    assert len(starts) == 10


@pytest.mark.parametrize(
    ("name", "world", "hours", "words"),
    [
        ("lastpont", WORLD, 48, "did you mean 'lastpoint'"),
        ("lastpoint", SENSORS, 48, "no query 'lastpoint' in the use case sensors"),
        ("single-groupby-1-1-12", WORLD, 3, "covers 12 h and 3 h are loaded: load 12 h or more"),
        ("cpu-max-all-8", World(spec("cpu-only", scale=5)), 48, "raise scale to 8"),
    ],
)
def test_a_kind_that_does_not_fit_says_what_it_needs(name, world, hours, words):
    loaded = Window(LOADED.start_ns, LOADED.start_ns + hours * HOUR_NS)
    with pytest.raises(ValueError, match=words):
        fit(name, world, loaded)
    with pytest.raises(ValueError, match=words):
        make(name, world, loaded, 1, 0)


def test_a_window_as_long_as_the_data_is_the_data():
    loaded = Window(LOADED.start_ns, LOADED.start_ns + 12 * HOUR_NS)
    query = make("high-cpu-all", WORLD, loaded, 1, 0)
    assert isinstance(query, Raw)
    assert query.window == loaded


def test_every_kind_says_in_a_sentence_what_it_asks():
    assert all(len(kind.doc) > 15 for world in (WORLD, SENSORS, STOCKS, TRUCKS) for kind in kinds_of(world).values())
