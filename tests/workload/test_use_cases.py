"""The tables of the use cases agree with TSBS and with the studies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.workload.test_world import CASES, spec
from tsbench.model import Kind
from tsbench.workload.world import World

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_TICKS = 8_640


def day(form: str, scale: int = 4) -> dict[str, NDArray[Any]]:
    """Return every field of a day: (ticks, scale) by name."""
    world = World(spec("devops", scale=scale, form=form))
    found = {}
    for batch in world.batches(0, points=DAY_TICKS * scale, last_tick=DAY_TICKS):
        for name, column in batch.fields.items():
            found[f"{batch.measurement.name}.{name}"] = column.reshape(DAY_TICKS, scale)
    return found


def commonest_share(column: NDArray[Any]) -> float:
    """Return the largest share of a single value in one host's points, averaged over hosts."""
    shares = [np.unique(host, return_counts=True)[1].max() / len(host) for host in column.T]
    return float(np.mean(shares))


def test_devops_has_nine_measurements_and_101_fields():
    counts = {m.name: len(m.fields) for m in World(spec("devops")).measurements}
    assert counts == {
        "cpu": 10,
        "diskio": 7,
        "disk": 7,
        "kernel": 6,
        "mem": 9,
        "net": 8,
        "nginx": 7,
        "postgresl": 16,
        "redis": 31,
    }
    assert sum(counts.values()) == 101
    kinds = [f.kind for m in World(spec("devops")).measurements for f in m.fields]
    assert kinds.count(Kind.FLOAT) == 3


def test_devops_measurements_have_their_own_tags():
    own = {m.name: m.own_tags for m in World(spec("devops")).measurements if m.own_tags}
    assert own == {
        "diskio": ("serial",),
        "disk": ("path", "fstype"),
        "net": ("interface",),
        "nginx": ("port", "server"),
        "redis": ("port", "server"),
    }


def test_cpu_only_is_the_cpu_measurement_of_devops():
    (cpu,) = World(spec("cpu-only")).measurements
    assert cpu == World(spec("devops")).measurements[0]


def test_hosts_have_ten_tags_that_agree_with_each_other():
    world = World(spec("cpu-only", scale=200))
    tags = {name: codes.tolist() for name, codes in world.tags().items()}
    assert tags["hostname"] == [f"host_{i}" for i in range(200)] == list(world.keys())
    for region, datacenter in zip(tags["region"], tags["datacenter"], strict=True):
        assert re.fullmatch(re.escape(region) + "[abce]", datacenter)
    assert len(set(tags["region"])) == 9
    assert set(tags["rack"]) <= {str(n) for n in range(100)}
    assert len(tags) == 10


def test_own_tags_have_the_peers_forms():
    world = World(spec("devops", scale=50))
    forms = {
        "serial": r"\d{3}-\d{3}-\d{3}",
        "path": r"/dev/sda\d",
        "fstype": r"ext3|ext4|btrfs",
        "interface": r"eth[0-3]",
        "port": r"\d{4,5}",
        "server": r"(nginx|redis)_\d{1,5}",
    }
    for batch in world.batches(0, points=50, last_tick=1):
        for tag in batch.measurement.own_tags:
            assert all(re.fullmatch(forms[tag], text) for text in batch.tags[tag].tolist())


def test_a_tag_of_a_host_does_not_depend_on_how_many_hosts_there_are():
    few, many = (World(spec("devops", scale=n)).tags() for n in (5, 500))
    for name, codes in few.items():
        assert codes.tolist() == many[name].tolist()[:5]


@pytest.mark.parametrize("form", ["bounded", "peer"])
def test_memory_used_and_available_add_up_to_the_total_and_percentages_are_those_of_the_whole_bytes(form):
    of = day(form)
    total, used, available, buffered = (of[f"mem.{name}"] for name in ("total", "used", "available", "buffered"))
    assert (used + available == total).all()
    assert (of["mem.free"] == available).all()
    for name, part in (("used", used), ("available", available), ("buffered", buffered)):
        np.testing.assert_allclose(of[f"mem.{name}_percent"], 100.0 * part / total, rtol=1e-15, atol=0)


def test_42_fields_of_the_peer_form_hold_one_value_almost_all_day():
    shares = {name: commonest_share(column) for name, column in day("peer").items()}
    # Most stick within minutes. Those that reach 1000 in steps of five take 200 ticks (2.3 %), and a gauge at its
    # ceiling still comes down by 1 now and then where its steps can be negative, which N(5, 1) steps cannot.
    stuck = {name for name, share in shares.items() if share > 0.97}
    assert len(stuck) == 42, sorted(stuck)


CONSTANT = {"mem.total", "kernel.boot_time", "disk.total", "disk.inodes_total"}


def test_no_field_of_the_bounded_form_sticks():
    for name, column in day("bounded").items():
        second_half = column[DAY_TICKS // 2 :]
        share = max(np.unique(host, return_counts=True)[1].max() / len(host) for host in second_half.T)
        assert (share == 1) if name in CONSTANT else (share <= 0.5), (name, share)


def test_gauges_stay_within_their_limits_in_both_forms():
    for form in ("peer", "bounded"):
        for name, column in day(form, scale=2).items():
            assert column.min() >= 0, name
            if name.startswith("cpu.") or name.endswith("percent"):
                assert column.max() <= 100, name


def test_mem_and_disk_add_up():
    for form in ("peer", "bounded"):
        fields = day(form, scale=2)
        assert np.array_equal(fields["disk.used"] + fields["disk.free"], fields["disk.total"])
        assert np.array_equal(fields["mem.available"], fields["mem.free"])
        total = fields["mem.used"] + fields["mem.available"]
        assert np.abs(total - fields["mem.total"]).max() <= 1  # both are truncated
        percent = 100 * fields["mem.used"] / fields["mem.total"]
        assert np.allclose(fields["mem.used_percent"], percent, atol=1e-6)


def test_sensors_report_seven_readings_with_two_decimals():
    world = World(spec("sensors", scale=3))
    names = ["temperature", "humidity", "co", "co2", "motor", "airflow", "pressure"]
    assert [m.name for m in world.measurements] == names
    assert world.keys() == ("10001", "10002", "10003")
    for batch in world.batches(0, points=3_000, last_tick=1_000):
        values = batch.fields["value"]
        assert np.array_equal(values, np.round(values, 2))
        assert len(np.unique(values)) > 50


def test_replication_is_one_series_without_tags():
    world = World(spec("replication"))
    (measurement,) = world.measurements
    assert (measurement.tags, measurement.own_tags, world.key, world.keys()) == ((), (), None, ())
    (batch,) = world.batches(0, points=10_000, last_tick=10_000)
    assert all(column.min() >= 0 for column in batch.fields.values())
    assert measurement.field_names == ("receive_lag_kb", "replay_lag_kb", "seconds_since_last_commit")


def test_stocks_have_a_symbol_and_a_currency_and_prices_that_rise_by_less_than_one_a_minute():
    world = World(spec("stocks", scale=3))
    (measurement,) = world.measurements
    assert (measurement.tags, world.key, measurement.field_names) == (("symbol", "currency"), "symbol", ("price",))
    assert world.keys() == ("Apple", "Orange", "Banana")
    assert set(world.tags()["currency"].tolist()) <= {"dollar", "euro", "yen"}
    price: dict[int, list[float]] = {s: [] for s in range(3)}
    for stream in range(world.spec.streams):
        for batch in world.batches(stream, points=3_000, last_tick=1_000):
            for series, value in zip(batch.series.tolist(), batch.fields["price"].tolist(), strict=True):
                price[series].append(value)
    for values in price.values():
        steps = np.diff(values)
        assert len(values) == 1_000
        assert (steps >= 0).all()
        assert (steps < 1).all()
        assert 0.4 < steps.mean() < 0.6


def sensordata(form: str, seed: int = 1) -> dict[str, NDArray[Any]]:
    """Return every field of 500 ticks of 40 sensors, by name: (ticks, sensors)."""
    world = World(spec("sensordata", scale=40, seed=seed, form=form, streams=1))
    (batch,) = world.batches(0, points=20_000, last_tick=500)
    assert set(batch.fields) == {"data1", "data2", "data3", "data4", "data5", "cnt"}
    return {name: column.reshape(500, 40) for name, column in batch.fields.items()}


def test_sensordata_has_the_studys_columns_and_numbers_its_sensors_from_one():
    world = World(spec("sensordata", scale=1_000))
    (measurement,) = world.measurements
    assert (measurement.tags, world.key) == (("sensor_id",), "sensor_id")
    assert world.keys() == tuple(str(number) for number in range(1, 1_001))
    assert [(f.name, f.kind) for f in measurement.fields] == [
        *((f"data{number}", Kind.FLOAT) for number in range(1, 6)),
        ("cnt", Kind.INT),
    ]


@pytest.mark.parametrize("form", ["uniform", "pareto"])
def test_sensordata_is_a_function_of_its_seed_and_its_counter_never_falls(form):
    fields = sensordata(form)
    assert all(np.array_equal(column, fields[name]) for name, column in sensordata(form).items())
    assert not np.array_equal(fields["data1"], sensordata(form, seed=2)["data1"])
    assert fields["cnt"].dtype == np.int64
    steps = np.diff(fields["cnt"], axis=0)
    assert steps.min() >= 0
    assert steps.mean() == pytest.approx(5, abs=0.1)


def test_sensordata_has_uniform_values_that_fill_the_unit_interval_and_never_repeat():
    values = np.concatenate([sensordata("uniform")[f"data{number}"].ravel() for number in range(1, 6)])
    assert len(np.unique(values)) == len(values) == 100_000
    assert np.histogram(values, bins=10, range=(0, 1))[0] == pytest.approx(np.full(10, 10_000), abs=400)
    assert np.array_equal(sensordata("bounded")["data1"], sensordata("uniform")["data1"])


def test_sensordata_has_pareto_values_that_are_few_whole_numbers_with_a_long_tail():
    values = np.concatenate([sensordata("pareto")[f"data{number}"].ravel() for number in range(1, 6)])
    assert np.array_equal(values, np.round(values))
    assert (values.min(), values.max() <= 1e6) == (1, True)
    for x in (1.5, 10.5, 100.5):  # P(X > x) of a Pareto distribution of shape 1.16
        assert np.mean(values > x) == pytest.approx(x**-1.16, rel=0.1, abs=5e-4)
    assert len(np.unique(values)) < 0.02 * len(values)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_use_case_says_in_a_sentence_what_it_is(name):
    assert CASES[name].name == name
    assert len(CASES[name].doc) > 20
