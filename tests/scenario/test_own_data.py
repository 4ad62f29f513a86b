"""Recordings: rows of CSV and Parquet as points, the same on every database, and what is refused with file and row."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import resource
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard

from tests.cli.support import complaint, says
from tests.scenario.test_own_words import EACH, each
from tests.scenario.test_use_case import world
from tsbench.check.audit import with_unrecorded
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.cli.main import main
from tsbench.encode import sql
from tsbench.errors import UserMistake
from tsbench.model import Kind, Latest, Outcome, Raw, Rows, Window
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.scenario import recorded_files
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.prepared import recorded
from tsbench.scenario.spec import RunSpec, Scenario
from tsbench.scenario.use_case import read_use_case, resolved
from tsbench.units import NS_PER_S
from tsbench.workload import queries
from tsbench.workload.recording import Recorded, recorded_at
from tsbench.workload.world import World

START = datetime(2026, 3, 28, tzinfo=UTC)
MAPPING = """
about = "meters of a town"
[recording]
file = "meters.csv"
measurement = "meter"
time = "ts"
tags = { meter = "meter_id", site = "site" }
[recording.fields]
kwh = "energy"
volts = "volts"
errors = "errors"
ok = { column = "status", true = ["OK"], false = ["ERR"] }
mode = "mode"
"""
QUERIES = """
[[query]]
name = "site-hour"
select = ["sum(errors)", "max(kwh)", "count(volts)"]
by = ["site"]
bucket = "30m"
window = "2h"
[[query]]
name = "one-meter"
select = ["kwh", "volts", "ok", "mode"]
series = 1
window = "1h"
[[query]]
name = "newest"
select = ["kwh", "mode"]
newest = true
[[query]]
name = "broken"
select = ["count(kwh)", "mean(kwh)"]
where = ["ok = false", "mode = 'run'"]
by = ["meter"]
window = "3h"
"""
SCENARIO = """
question = "Which database for these meters?"
world = { use_case = "town.toml" }
check = { answers = 40 }
drive = { users = 2, warmup = 0, duration = "2s", loop = "open", rate = 40 }
target = { name = "sqlite" }
[[op]]
write = 10
""" + "".join(f'[[op]]\nquery = "{kind}"\n' for kind in ("site-hour", "one-meter", "newest"))


def rows(series: int = 12, points: int = 500, seed: int = 4) -> pl.DataFrame:
    """Return rows of meters that begin and end at different times, in no order, with gaps and texts."""
    draw = random.Random(seed)
    made = []
    for meter in range(series):
        at = START + timedelta(seconds=draw.randint(0, 3_000))
        for number in range(draw.randint(points // 2, points)):
            at += timedelta(seconds=draw.randint(20, 100))
            made.append({
                "ts": at, "meter_id": f"M{meter:03}", "site": f"site {meter % 3}",
                "energy": round(number + draw.random(), 3),
                "volts": None if draw.random() < 0.1 else round(draw.gauss(230, 1), 1),
                "errors": draw.choice([0, 0, 0, 1, 2]), "status": draw.choice(["OK", "OK", "ERR"]),
                "mode": draw.choice(["run", "it's idle", 'say "x"']),
            })  # fmt: skip
    draw.shuffle(made)
    return pl.DataFrame(made)


WEATHER = """
[[recording]]
file = "weather.csv"
measurement = "weather"
time = "at"
tags = { meter = "station", height = "height" }
[recording.fields]
temp = "temp"
rain = "rain"
sky = "sky"
wet = "wet"
"""
OF_WEATHER = """
[[query]]
name = "weather-rows"
of = "weather"
select = ["temp", "rain", "sky", "wet"]
series = 1
window = "4h"
[[query]]
name = "weather-by-height"
of = "weather"
select = ["mean(temp)", "sum(rain)"]
by = ["height", "site"]
window = "4h"
"""


def weather(stations: int = 2, points: int = 50) -> pl.DataFrame:
    """Return rows of stations, one of which is where a meter is; there are few of them for each of the meters'."""
    draw = random.Random(2)
    made = []
    for number in range(points):
        at = START + timedelta(seconds=600 * number + 7)
        made += [
            {"at": at, "station": "M000" if not one else f"W{one}", "height": f"{one}00 m",
             "temp": round(draw.gauss(9, 3), 2), "rain": draw.randint(0, 4),
             "sky": draw.choice(["grey", "it's blue", None]), "wet": draw.choice(["true", "false", ""])}
            for one in range(stations)
        ]  # fmt: skip
    draw.shuffle(made)
    return pl.DataFrame(made)


def town_and_weather(place: Path) -> Path:
    """Write a recording of two measurements and its use case, and return the path of that."""
    weather().write_csv(place / "weather.csv")
    return town(place, MAPPING.replace("[recording]", "[[recording]]", 1) + WEATHER + QUERIES + OF_WEATHER)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path / "cache"))


def town(place: Path, text: str = MAPPING + QUERIES, frame: pl.DataFrame | None = None) -> Path:
    """Write a recording and its use case, and return the path of that."""
    (rows() if frame is None else frame).write_csv(place / "meters.csv")
    (place / "town.toml").write_text(text)
    return place / "town.toml"


def recording(path: Path) -> Recorded:
    """Return the prepared points of a use case."""
    return recorded(read_use_case(path).recording)


def recorded_world(path: Path, **keys: object) -> World:
    return world(path, **{"scale": recording(path).series, **keys})


def line(row: dict[str, Any]) -> str:
    """Return a row as line protocol, beside a line of another measurement."""
    volts = "" if row["volts"] is None else f"volts={row['volts']},"
    mode = row["mode"].replace('"', '\\"')
    site = row["site"].replace(" ", "\\ ")
    head = f"meter,meter_id={row['meter_id']},site={site}"
    fields = f'energy={row["energy"]},{volts}errors={row["errors"]}i,status="{row["status"]}",mode="{mode}"'
    time = f"{int(row['ts'].timestamp())}000000000"
    return f"{head} {fields} {time}\nother,meter_id={row['meter_id']},kind=x energy=1 {time}\n"


def forget(place: Path) -> None:
    """Take away what was prepared, as on another machine."""
    shutil.rmtree(place / "cache")
    recorded_at.cache_clear()


def stored(of: World, **where: Any) -> list[tuple[Any, ...]]:
    """Return all points of a world as (time, key, fields) with labels, None where one is lacking, sorted."""
    found: list[tuple[Any, ...]] = []
    for stream in range(of.spec.streams):
        for batch in of.batches(
            stream, points=777, last_tick=where.get("last", 10**7), first_tick=where.get("first", 0)
        ):
            times, series, *columns = sql.columns(batch, batch.time_ns.tolist(), extra_json=False)
            found += zip(times, [of.keys()[one] for one in series], *columns, strict=True)
    return sorted(found, key=lambda row: row[:2])


def expected(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (
                int(row["ts"].timestamp()) * NS_PER_S, row["meter_id"], row["energy"], row["volts"], row["errors"],
                row["status"] == "OK", row["mode"],
            )
            for row in frame.to_dicts()
        ),
        key=lambda row: row[:2],
    )  # fmt: skip


# --- points -----------------------------------------------------------------------------------------------------------


def test_every_row_is_a_point_whatever_the_form_of_the_file(tmp_path: Path) -> None:
    frame, path = rows(), town(tmp_path)
    of = recorded_world(path)
    assert stored(of) == expected(frame)
    assert of.tags()["site"].tolist() == [f"site {int(key[1:]) % 3}" for key in of.keys()]  # noqa: SIM118 - no dictionary
    assert [(f.name, f.kind, f.nullable) for f in of.measurements[0].fields] == [
        ("kwh", Kind.FLOAT, False), ("volts", Kind.FLOAT, True), ("errors", Kind.INT, False), ("ok", Kind.BOOL, False),
        ("mode", Kind.TEXT, False),
    ]  # fmt: skip
    (tmp_path / "meters.lp.gz").write_bytes(gzip.compress("".join(map(line, frame.to_dicts())).encode()))
    (tmp_path / "more.csv.gz").write_bytes(gzip.compress((tmp_path / "meters.csv").read_bytes()))
    (tmp_path / "more.csv.zst").write_bytes(zstandard.compress((tmp_path / "meters.csv").read_bytes()))
    frame.write_parquet(tmp_path / "more.parquet")
    local = frame.with_columns(pl.col("ts").dt.convert_time_zone("Europe/Berlin").dt.strftime("%d.%m.%Y %H:%M:%S"))
    local.with_columns(pl.col("energy").cast(pl.String).str.replace(".", ",", literal=True)).write_csv(
        tmp_path / "local.csv", separator=";"
    )
    frame.with_columns(pl.col("ts").dt.epoch("ms")).write_csv(tmp_path / "numbers.csv")
    for name, time in (
        ("more.csv.gz", '"ts"'),
        ("more.csv.zst", '"ts"'),
        ("more.parquet", '"ts"'),
        ("meters.lp.gz", '"time"'),
        ("numbers.csv", '"ts"'),
        ("numbers.csv", '{ column = "ts", unit = "ms" }'),
        ("local.csv", '{ column = "ts", zone = "Europe/Berlin", repeated = "earliest" }'),
    ):
        path.write_text(MAPPING.replace("meters.csv", name).replace('"ts"', time))
        if name == "local.csv":  # its night of 29 March has no hour from 2 to 3, and nothing twice
            assert stored(recorded_world(path)) == expected(frame)
        else:
            assert stored(recorded_world(path)) == expected(frame), name


def test_points_do_not_depend_on_streams_blocks_or_where_one_begins(tmp_path: Path) -> None:
    path = town(tmp_path)
    whole = stored(recorded_world(path, streams=1))
    assert stored(recorded_world(path, streams=5)) == whole
    of = recorded_world(path, streams=2)
    middle = of.time_ns(100)
    assert stored(of, last=100) == [row for row in whole if row[0] < middle]
    assert stored(of, first=100) == [row for row in whole if row[0] >= middle]
    assert all(
        (np.diff(batch.time_ns) >= 0).all()
        for batch in of.batches(1, points=100_000, last_tick=of.recorded.ticks)  # type: ignore[union-attr]
    )


def test_measurements_are_read_each_with_its_rows_and_written_in_the_order_of_time(tmp_path: Path) -> None:
    path = town_and_weather(tmp_path)
    for streams in (1, 3):
        of = recorded_world(path, streams=streams)
        assert (of.recorded.rows, of.series) == (len(rows()) + 100, 13)  # type: ignore[union-attr]
        for stream in range(streams):
            batches = [*of.batches(stream, points=40, last_tick=10**7)]
            firsts = [int(batch.time_ns[0]) for batch in batches]
            assert firsts == sorted(firsts)
            assert [batch.number for batch in batches] == [*range(len(batches))]
        made = stored_by_measurement(of)
        assert len(made["meter"]) == len(rows())
        assert sorted(row[:4] for row in made["weather"]) == sorted(
            (int(row["at"].timestamp()) * NS_PER_S, row["station"], repr(row["temp"]), repr(row["rain"]))
            for row in weather().to_dicts()
        )
    tags = {name: codes.tolist() for name, codes in of.tags().items()}
    assert dict(zip(tags["meter"], tags["height"], strict=True)) == {
        **{f"M{n:03}": "" for n in range(12)}, "M000": "000 m", "W1": "100 m",
    }  # fmt: skip
    assert tags["site"][tags["meter"].index("W1")] == ""
    assert [*of.places_of("weather")] == sorted(map(tags["meter"].index, ("M000", "W1")))
    asked = [queries.make("weather-rows", of, Window(of.time_ns(0), of.time_ns(300)), 1, n) for n in range(40)]
    assert {one.keys for one in asked} == {("M000",), ("W1",)}  # type: ignore[union-attr]


def test_gold_of_several_measurements_knows_what_was_written_and_what_may_be(tmp_path: Path) -> None:
    of = recorded_world(town_and_weather(tmp_path), streams=2)
    assert of.recorded is not None
    feed = Feed(of, of.recorded.ticks_of(0.5), 8, of.recorded.ticks)
    everything = with_unrecorded(feed, np.zeros(0, dtype=LEDGER_DTYPE), range(2), of.recorded.last_ns)
    assert {int(one) for one in everything["outcome"]} == {Outcome.UNKNOWN}
    written = {"meter": 0, "weather": 0}
    for batch in feed.written(everything):
        written[batch.measurement.name] += len(batch)
    begin_ns = of.time_ns(feed.loaded_ticks)
    assert written == {one.name: one.rows_from(begin_ns) for one in of.recorded.measurements}
    everything["outcome"] = Outcome.OK
    gold = Gold(feed, everything, keeps_duplicates=False)
    assert gold.count() == of.recorded.rows
    measurement = of.measurements[1]
    raw = Raw(measurement, ("temp",), Window(of.time_ns(0), of.time_ns(of.recorded.ticks)), None)
    right = [(int(row["at"].timestamp()) * NS_PER_S, row["station"], row["temp"]) for row in weather().to_dicts()]
    assert gold.check(raw, Rows(raw.columns, sorted(right)), quiet=True) is None
    assert gold.check(raw, Rows(raw.columns, sorted(right)[1:]), quiet=True) is not None


def test_a_world_that_begins_later_has_all_points_as_much_later(tmp_path: Path) -> None:
    path = town(tmp_path)
    whole, later = stored(recorded_world(path)), stored(recorded_world(path, start="2026-11-28T00:00:00Z"))
    (by,) = {two[0] - one[0] for one, two in zip(whole, later, strict=True)}
    assert by > 240 * 86_400 * NS_PER_S
    assert [row[1:] for row in later] == [row[1:] for row in whole]


def test_a_recording_may_have_several_copies_of_each_series(tmp_path: Path) -> None:
    path = town_and_weather(tmp_path)
    one = stored_by_measurement(recorded_world(path, streams=2))
    of = World(WorldPart.model_validate(resolved({"use_case": path.name, "copies": 3, "streams": 4}, tmp_path)).spec())
    assert (of.series, of.recorded.rows, of.spec.scale) == (39, 3 * (len(rows()) + 100), 39)  # type: ignore[union-attr]
    three = stored_by_measurement(of)
    for name, points in one.items():
        keys = lambda key: (key, f"{key}~1", f"{key}~2")  # noqa: E731
        assert three[name] == sorted((time, key, *rest) for time, own, *rest in points for key in keys(own))
    sites = dict(zip(of.tags()["meter"].tolist(), of.tags()["site"].tolist(), strict=True))
    assert sites["M004~2"] == sites["M004"] == "site 1"
    middle = of.time_ns(300)
    left = sum(time >= middle for points in three.values() for time, *_ in points)
    assert of.recorded.rows_from(middle) == left  # type: ignore[union-attr]
    for keys_of_world, why in (
        ({"use_case": "town.toml", "scale": 26}, "13 series, not 26; take it out, or say copies = 10"),
        ({"use_case": "devops", "copies": 2}, "world.copies: belongs to recorded data"),
    ):
        with pytest.raises(UserMistake, match=re.escape(why)):
            resolved(keys_of_world, tmp_path)


def stored_by_measurement(of: World) -> dict[str, list[tuple[Any, ...]]]:
    """Return the points of each measurement as (time, key, values), sorted."""
    made: dict[str, list[tuple[Any, ...]]] = {}
    for stream in range(of.spec.streams):
        for batch in of.batches(stream, points=40, last_tick=10**7):
            keys = [of.keys()[series] for series in batch.series.tolist()]
            columns = [[repr(value) for value in column.tolist()] for column in batch.fields.values()]
            made.setdefault(batch.measurement.name, []).extend(zip(batch.time_ns.tolist(), keys, *columns, strict=True))
    return {name: sorted(points) for name, points in made.items()}


@pytest.mark.parametrize(
    ("given", "expected_ns"),
    [
        (["1700000000.135", "1700000000"], [1700000000135 * 10**6, 17 * 10**17]),
        (["1700000000,123456789", "-1.5"], [1700000000123456789, -1500000000]),
        (["1700000000135.25", "1700000000136.0"], [1700000000135250000, 1700000000136 * 10**6]),
        ([1700000000.135, 1700000000.123457], [1700000000135 * 10**6, 1700000000123457 * 10**3]),
        ([1700000000.5, math.nan, math.inf], [17 * 10**17 + 5 * 10**8, None, None]),
        (["1.7e9", "1700000000.5", "soon"], [17 * 10**17, 17 * 10**17 + 5 * 10**8, None]),
    ],
)
def test_times_with_decimals_are_what_their_decimals_say(given: list[Any], expected_ns: list[int | None]) -> None:
    assert recorded_files.times(pl.Series(given), "UTC").to_list() == expected_ns


def test_many_rows_are_sorted_a_range_of_time_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsbench.scenario.time_order._SORTED_ROWS", 300)
    monkeypatch.setattr("tsbench.scenario.time_order._SAMPLED", 4)
    monkeypatch.setattr("tsbench.scenario.time_order._PART_ROWS", 70)
    of = recorded_world(town(tmp_path))
    assert len(of.recorded.measurements[0].begins_ns) > 60  # type: ignore[union-attr]
    assert stored(of) == expected(rows())


def test_a_share_of_the_points_is_loaded(tmp_path: Path) -> None:
    made = recording(town(tmp_path))
    for share in (0.01, 0.25, 0.8, 1.0):
        end_ns = made.start_ns + made.ticks_of(share) * made.interval_ns
        left = made.rows_from(end_ns)
        assert left == sum(row[0] >= end_ns for row in expected(rows()))
        assert abs(made.rows - left - share * made.rows) <= 12 + share, share


def test_rows_that_have_one_time_and_key_count_once_if_the_file_says_which(tmp_path: Path) -> None:
    frame = rows(3, 50)
    again = frame.head(20).with_columns(pl.col("energy") + 1_000)
    path = town(tmp_path, frame=pl.concat([frame, again]))
    with pytest.raises(UserMistake, match=r"two rows of one series have the time 2026-03-28T.*; say duplicates"):
        read_use_case(path)
    for which, kept in (("first", frame), ("last", pl.concat([frame.tail(-20), again]))):
        path.write_text(MAPPING.replace("[recording]", f'[recording]\nduplicates = "{which}"'))
        of = recorded_world(path)
        assert (stored(of), of.recorded.measurements[0].replaced) == (expected(kept), 20)  # type: ignore[union-attr]


PARTS = """about = "hosts"
[recording]
file = "x.lp"
measurement = "system"
duplicates = "merge"
time = "time"
tags = { host = "host" }
fields = { load1 = "load1", series = "users", up = "up", text = "text", idle = { column = "idle", default = true } }
"""


def test_lines_of_one_time_and_series_are_one_point_if_they_are_to_be_merged(tmp_path: Path) -> None:
    path, lines = town(tmp_path, PARTS), []
    for number in range(300):
        for host in "ab":
            fields = [f"load1={number}.5,users={number}i", f"up={2**60 + number}i", f'text="{number % 7} days"']
            fields += ["idle=false"] * (number % 2) + ["load1=0.25"] * (number % 3 == 0)
            lines += [f"system,host={host} {one} {number}000000000" for one in fields]
    (tmp_path / "x.lp").write_text("\n".join(lines))
    of = recorded_world(path, streams=2)
    assert stored(of) == [
        (number * NS_PER_S, host, number + 0.5 if number % 3 else 0.25, number, 2**60 + number, f"{number % 7} days",
         not number % 2)
        for number in range(300) for host in "ab"
    ]  # fmt: skip
    assert of.recorded.measurements[0].replaced == len(lines) - 600  # type: ignore[union-attr]
    (tmp_path / "x.lp").write_text("\n".join([*lines, "system,host=a load1=1 300000000000"]))
    with pytest.raises(UserMistake) as refused:
        read_use_case(path)
    says(
        str(refused.value),
        "x.lp: the point of 1970-01-01T00:00:01.000000000Z: up is 1152921504606846977, which no float",
    )
    path.write_text(PARTS.replace('up = "up", ', "").replace(", default = true", ""))
    of = recorded_world(path)
    assert [(one.kind, one.nullable) for one in of.measurements[0].fields] == [
        (Kind.FLOAT, False), (Kind.INT, True), (Kind.TEXT, True), (Kind.BOOL, True),
    ]  # fmt: skip
    assert stored(of)[-1] == (300 * NS_PER_S, "a", 1.0, None, None, None)
    assert stored(of)[-3:-1] == [(299 * NS_PER_S, host, 299.5, 299.0, "5 days", False) for host in "ab"]


def test_rows_without_time_key_or_value_are_left_out_and_counted_if_the_file_says_so(tmp_path: Path) -> None:
    bare = "[recording.fields]\n" + 'kwh = "energy"\nerrors = { column = "errors", default = -1.0 }\n'
    text = MAPPING[: MAPPING.index("[recording.fields]")] + bare
    csv = "ts,meter_id,site,energy,errors\n2026-01-01,a,x,1.5,\n,a,x,1,1\n2026-01-02,,x,1,1\n2026-01-03,a,x,2.5,7\n"
    path = town(tmp_path, text)
    (tmp_path / "meters.csv").write_text(csv)
    with pytest.raises(UserMistake, match=r"meters.csv: row 2: has no time; .*incomplete = 'skip'"):
        read_use_case(path)
    path.write_text(text.replace("[recording]", '[recording]\nincomplete = "skip"'))
    of = recorded_world(path)
    assert of.recorded.measurements[0].skipped == 2  # type: ignore[union-attr]
    assert [row[1:] for row in stored(of)] == [("a", 1.5, -1), ("a", 2.5, 7)]


def test_whole_numbers_become_floats_where_one_has_a_fraction_and_may_lack_values(tmp_path: Path) -> None:
    text = MAPPING[: MAPPING.index("kwh =")] + 'a = "a"\nb = "b"\nc = "c"\n'
    head = "ts,meter_id,site,a,b,c\n"
    lines = [f"{1_700_000_000 + number},m,s,{number},{number},{2**60 + number}\n" for number in range(300_000)]
    lines[299_000] = "1700299000,m,s,1.5,,7\n"  # behind the rows by which kinds are guessed
    path = town(tmp_path, text)
    (tmp_path / "meters.csv").write_text(head + "".join(lines))
    of = recorded_world(path)
    assert [(f.kind, f.nullable) for f in of.measurements[0].fields] == [
        (Kind.FLOAT, False), (Kind.INT, True), (Kind.INT, False),
    ]  # fmt: skip
    made = stored(of)
    assert made[299_000][2:] == (1.5, None, 7)
    assert repr(made[299_999][2:]) == f"(299999.0, 299999, {2**60 + 299_999})"
    lines[299_000] = "1700299000,m,s,1.5,,\n"
    (tmp_path / "meters.csv").write_text(head + "".join(lines))
    with pytest.raises(UserMistake, match=f"row 2: c is {2**60 + 1}, which no float holds, .*; give it a default"):
        read_use_case(path)


# --- gold -------------------------------------------------------------------------------------------------------------


def test_gold_finds_a_wrong_answer_about_recorded_points_and_accuses_no_right_one(tmp_path: Path) -> None:
    of = recorded_world(town(tmp_path), streams=3)
    whole = stored(of)
    (measurement,) = of.measurements
    feed = Feed(of, of.recorded.ticks_of(0.7), 64, of.recorded.ticks)  # type: ignore[union-attr]
    gold = Gold(feed, np.zeros(0, dtype=LEDGER_DTYPE), keeps_duplicates=False)
    end_ns = of.time_ns(feed.loaded_ticks)
    assert gold.count() == sum(row[0] < end_ns for row in whole)
    window = Window(of.time_ns(20), of.time_ns(60))
    raw = Raw(measurement, ("kwh", "mode"), window, None)
    right = [(row[0], row[1], row[2], row[6]) for row in whole if window.start_ns <= row[0] < window.end_ns]
    assert len(right) > 100
    columns = raw.columns
    assert columns == ("time", "meter", "kwh", "mode")
    assert gold.check(raw, Rows(columns, right), quiet=True) is None
    for wrong in (
        right[1:], right[:-1], [*right, right[0]],
        [(right[0][0] + 1, *right[0][1:]), *right[1:]],
        [(*right[0][:2], right[0][2] + 0.001, right[0][3]), *right[1:]],
        [(*right[0][:3], "other"), *right[1:]],
    ):  # fmt: skip
        assert gold.check(raw, Rows(columns, wrong), quiet=True) is not None
    newest: dict[str, tuple[Any, ...]] = {}
    for row in whole:
        if row[0] < end_ns:
            newest[row[1]] = row
    latest = Latest(measurement, ("kwh",))
    answer = [(row[0], key, row[2]) for key, row in newest.items()]
    assert gold.check(latest, Rows(latest.columns, answer), quiet=True) is None
    assert gold.check(latest, Rows(latest.columns, answer[1:]), quiet=True) is not None


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH)
def test_recorded_points_are_stored_and_asked_right_or_refused_on_every_database(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = town_and_weather(tmp_path)
    asked = "".join(f'[[op]]\nquery = "weather-{kind}"\n' for kind in ("rows", "by-height"))
    (tmp_path / "s.toml").write_text(
        SCENARIO.replace('"sqlite"', f'"{target}"').replace('"town.toml"', '"town.toml", copies = 2') + asked
    )
    if target in {"victoriametrics", "questdb"}:
        assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 2
        says(complaint(capsys.readouterr().err), "world.use_case: ", "'wet'" if target == "questdb" else "numbers only")
    if target == "questdb":
        path.write_text(path.read_text().replace('wet = "wet"', 'wet = { column = "wet", default = false }'))
    if target == "victoriametrics":
        texts = {"ok =", "mode", "sky ", "wet "}
        path.write_text("".join(line for line in path.read_text().splitlines(True) if line[:4] not in texts)
                        .replace(', "sky", "wet"', "")
                        .replace(', "ok", "mode"', "").replace(', "mode"', "")
                        .replace('"ok = false", "mode = \'run\'"', '"errors = 1"'))  # fmt: skip
    code = main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")])
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    made = json.loads(summary.read_text())
    checks = made["validity"]["checks"]
    assert (checks["answers"]["state"], checks["answers"]["counts"]["wrong"]) == ("valid", 0), (code, checks)
    assert checks["answers"]["counts"]["checked"] >= 40
    assert checks["writes"]["state"] == "valid", checks["writes"]


SPARSE = """
about = "devices that each tell some of it"
[recording]
file = "sparse.csv"
measurement = "device"
time = "ts"
tags = { device = "id", site = "site" }
[recording.fields]
temp = "temp"
steps = "steps"
state = "state"
ok = "ok"
[[query]]
name = "temps"
select = ["temp"]
series = 1
window = "2h"
[[query]]
name = "while-ok"
select = ["temp", "state"]
where = ["ok = true"]
window = "1h"
[[query]]
name = "by-site"
select = ["count(temp)", "max(steps)", "count(state)"]
by = ["site"]
bucket = "30m"
window = "2h"
"""


def sparse_rows(devices: int = 6, points: int = 300, seed: int = 5) -> pl.DataFrame:
    """Return rows of which each field is in some, and some have none."""
    draw = random.Random(seed)

    def maybe(value: object, share: float) -> object:
        return value if draw.random() < share else None

    return pl.DataFrame([
        {
            "ts": START + timedelta(seconds=60 * number), "id": f"d{device}", "site": f"s{device % 2}",
            "temp": maybe(round(draw.gauss(20, 3), 2), 0.5), "steps": maybe(draw.randint(0, 9), 0.4),
            "state": maybe(draw.choice(["on", "off"]), 0.3), "ok": maybe(draw.random() < 0.7, 0.6),
        }
        for number in range(points) for device in range(devices)
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("target", each("sqlite", "influxdb2"))
def test_points_of_which_no_field_is_in_all_are_counted_asked_and_checked_or_refused(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse_rows().write_csv(tmp_path / "sparse.csv")
    (tmp_path / "town.toml").write_text(SPARSE)
    asked = "".join(f'[[op]]\nquery = "{kind}"\n' for kind in ("temps", "while-ok", "by-site"))
    text = SCENARIO.partition("[[op]]\nquery")[0].replace('"sqlite"', f'"{target}"') + asked
    (tmp_path / "s.toml").write_text(text)
    ask = ["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]
    assert main(ask) == 2
    says(complaint(capsys.readouterr().err), "has no value; mend it, or say incomplete = 'skip' in [recording]")
    skipping = SPARSE.replace('time = "ts"', 'time = "ts"\nincomplete = "skip"')
    if target == "questdb":
        skipping = skipping.replace('ok = "ok"', 'ok = { column = "ok", type = "text" }').replace(
            "ok = true", "ok = 'true'"
        )
    (tmp_path / "town.toml").write_text(skipping)
    if target in {"influxdb1", "victoriametrics"}:
        assert main(ask) == 2
        cure = "give a default to" if target == "influxdb1" else "a number or a tag"
        says(complaint(capsys.readouterr().err), "world.use_case: ", cure, "or take another target")
        return
    assert main(ask) == 0, capsys.readouterr()
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    checks = json.loads(summary.read_text())["validity"]["checks"]
    assert (checks["answers"]["state"], checks["answers"]["counts"]["wrong"]) == ("valid", 0), checks
    assert checks["answers"]["counts"]["checked"] >= 60
    assert checks["writes"]["state"] == "valid", checks["writes"]


@pytest.mark.slow
def test_what_is_proposed_for_such_rows_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pl.any_horizontal(pl.col("temp", "steps", "state", "ok").is_not_null())
    sparse_rows().filter(whole).write_csv(tmp_path / "sparse.csv")
    assert main(["check", str(tmp_path / "sparse.csv"), "--out", str(tmp_path / "town.toml")]) == 0
    text = (tmp_path / "town.toml").read_text()
    assert "default" not in text
    says(text, 'select = ["last(temp)", "last(steps)"]')
    assert main(["check", str(tmp_path / "town.toml")]) == 0
    says(capsys.readouterr().out, "influxdb1 counts points by a field that each has")
    asked = "".join(f'[[op]]\nquery = "{kind}"\n' for kind in ("rows-of-one", "last-of-each", "by-site"))
    (tmp_path / "s.toml").write_text(SCENARIO.partition("[[op]]\nquery")[0] + asked)
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 0, capsys.readouterr()


def test_gold_has_rows_only_of_points_with_one_of_the_fields_that_are_asked(tmp_path: Path) -> None:
    sparse_rows().write_csv(tmp_path / "sparse.csv")
    (tmp_path / "town.toml").write_text(SPARSE.replace('time = "ts"', 'time = "ts"\nincomplete = "skip"'))
    of = recorded_world(tmp_path / "town.toml")
    (measurement,) = of.measurements
    assert measurement.sparse
    gold = Gold(Feed(of, of.ticks(10**15), 64, None), np.zeros(0, dtype=LEDGER_DTYPE), keeps_duplicates=False)
    window = Window(of.time_ns(20), of.time_ns(60))
    inside = [row for row in stored(of) if window.start_ns <= row[0] < window.end_ns]
    raw = Raw(measurement, ("temp", "state"), window, None)
    answer = [(row[0], row[1], row[2], row[4]) for row in inside]
    right = [row for row in answer if row[2:] != (None, None)]
    assert 50 < len(right) < len(answer)
    assert gold.check(raw, Rows(raw.columns, right), quiet=True) is None
    for wrong in (answer, right[1:], [*right[1:], next(row for row in answer if row not in right)]):
        assert gold.check(raw, Rows(raw.columns, wrong), quiet=True) is not None


@pytest.mark.slow
def test_a_run_has_all_of_the_recording_and_ends_when_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    town(tmp_path)
    closed = SCENARIO.replace('loop = "open", rate = 40', 'wait = "40ms"').replace('"2s"', '"60s"')
    (tmp_path / "s.toml").write_text(closed)
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 0, capsys.readouterr()
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    made = json.loads(summary.read_text())
    took_s = made["measured"]["duration_s"]
    assert took_s < 30
    says(
        capsys.readouterr().out,
        "sqlite wrote every point before the time was over",
        f"every point was written after {took_s} s of 60 s",
    )
    assert made["validity"]["checks"]["writes"]["counts"]["stored"] == len(rows())


def test_a_specification_needs_the_points_and_finds_them_again(tmp_path: Path) -> None:
    town(tmp_path)
    (tmp_path / "s.toml").write_text(SCENARIO)
    (cell,) = Scenario.load(tmp_path / "s.toml").expand()
    assert (cell.world.scale, cell.load.share) == (12, 0.8)
    text = json.loads(cell.model_dump_json(by_alias=True))
    forget(tmp_path)  # another machine, which has the file
    assert RunSpec.model_validate(text) == cell
    forget(tmp_path)
    frame = rows().with_columns(pl.col("errors") + 1)
    frame.write_csv(tmp_path / "meters.csv")
    with pytest.raises(UserMistake, match="is not the recording that the run was planned with"):
        RunSpec.model_validate(text)
    (tmp_path / "meters.csv").unlink()
    with pytest.raises(UserMistake, match="this machine has no copy of the recording"):
        RunSpec.model_validate(text)


def test_files_are_read_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = town(tmp_path)
    first = read_use_case(path).recording
    monkeypatch.setattr("tsbench.scenario.preparing.prepared", None)
    path.write_text(path.read_text() + "\n")
    assert read_use_case(path).recording == first
    monkeypatch.undo()
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path / "cache"))
    rows(seed=5).write_csv(tmp_path / "meters.csv")
    path.write_text(path.read_text() + "\n")
    assert read_use_case(path).recording != first


def test_a_cache_that_lost_a_part_is_made_again_and_one_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = town(tmp_path)
    whole = stored(recorded_world(path))
    (points,) = (tmp_path / "cache").glob("recordings/*/points-0.arrow")
    points.unlink()
    recorded_at.cache_clear()
    assert stored(recorded_world(path)) == whole
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path / "file"))
    recorded_at.cache_clear()
    with pytest.raises(UserMistake, match=r"cannot keep the recording's points: .*; set TSBENCH_CACHE"):
        read_use_case(path)


def test_a_recording_is_generated_loaded_and_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, place = town(tmp_path), f"sqlite:///{tmp_path / 'x.db'}"
    assert main(["generate", "--use-case", str(path), "--out", str(tmp_path / "x.lp")]) == 0
    assert len((tmp_path / "x.lp").read_text().splitlines()) == len(rows())
    table = str(tmp_path / "x.csv")
    assert main(["generate", "--use-case", str(path), "--out", table, "--format", "csv"]) == 0
    assert len(pl.read_csv(table)) == len(rows())
    assert main(["generate", "--use-case", str(path), "--out", table, "--form", "peer", "--force"]) == 2
    results = ["--out", str(tmp_path / "results")]
    assert main(["load", "sqlite", "--use-case", str(path), "--endpoint", place, *results]) == 0
    assert main(["queries", "--type", "site-hour", "--use-case", str(path), "--count", "20",
                 "--out", str(tmp_path / "q.jsonl")]) == 0  # fmt: skip
    assert main(["query", "sqlite", str(tmp_path / "q.jsonl"), "--endpoint", place, *results]) == 0
    says(capsys.readouterr().out, "count: 20")


# --- mistakes ---------------------------------------------------------------------------------------------------------


TWO = WEATHER + "[[recording]]"
MISTAKES = [
    ('file = "meters.csv"', 'file = "other*.csv"', "recording.file: there is no other*.csv in "),
    ('file = "meters.csv"', 'file = "meters.xls"', "recording.file: there is no meters.xls"),
    ('file = "meters.csv"\n', "", "recording.file: is missing"),
    ('measurement = "meter"\n', "", "recording.measurement: is missing"),
    ('measurement = "meter"', 'measurement = "a b"', "measurement: 'a b' is no name"),
    ('time = "ts"\n', "", "recording.time: is missing"),
    ('time = "ts"', 'time = "tss"', "recording.time: there is no column 'tss'; did you mean 'ts'?"),
    ('time = "ts"', 'time = 5', "recording.time: "),
    ('time = "ts"', 'time = { column = "ts", zoen = "UTC" }', "recording.time.zoen: unknown key; did you mean 'zone'?"),
    ('time = "ts"', 'time = { column = "ts", unit = "m" }', "recording.time.unit"),
    ('time = "ts"', 'time = "mode"', "row 1: mode is '"),
    ('meter = "meter_id"', 'meter = "meter"', "recording.tags.meter: there is no column 'meter'; "),
    ('meter = "meter_id"', 'meter = "site"', "say duplicates = 'first', 'last' or 'merge'"),
    ('site = "site"', 'site = "mode"', "and was '"),
    ('site = "site"', 'Meter = "site"', "'Meter' stands twice"),
    ('site = "site"', 'time = "site"', "'time' is a name that databases use"),
    ('kwh = "energy"', 'kwh = "energi"', "recording.fields.kwh: there is no column 'energi'; did you mean 'energy'?"),
    ('kwh = "energy"', 'meter = "energy"', "'meter' stands twice"),
    ('kwh = "energy"', 'kwh = { column = "mode", type = "float" }', "which is not a number; name it in null"),
    ('kwh = "energy"', 'kwh = { column = "energy", type = "real" }', "recording.fields.kwh.type"),
    ('kwh = "energy"', 'kwh = { type = "float" }', "recording.fields.kwh.column: is missing"),
    ('kwh = "energy"', 'kwh = { column = "energy", default = "x" }', "kwh.default: 'x' is no float value"),
    ('true = ["OK"], false = ["ERR"]', 'true = ["OK"], false = ["BAD"]', "status is 'ERR', which is not true or false"),
    ('true = ["OK"], false = ["ERR"]', 'true = ["OK"]', "recording.fields.ok: true: needs false"),
    ("[recording]", '[recording]\nduplicates = "some"', "recording.duplicates"),
    ("[recording]", '[recording]\ndigest = "some"', "recording.digest"),
    ("[recording]", "[recording]\nrows = 5", "recording.rows: unknown key"),
    ("[recording]", TWO, "recording.file: there is no weather.csv"),
    ("[recording]", TWO.replace("weather", "meter"), "recording.measurement: 'meter' stands twice"),
    ("[recording]", TWO.replace("meter =", "place ="), "the first one names the series, and is 'meter' and 'place'"),
    ("[recording]", re.sub("{ meter.* }", "{}", TWO), "and is none and 'meter'; name it alike"),
    ("[recording]", TWO.replace("temp =", "site ="), "fields.site: is a tag of another measurement"),
    ("[recording]", TWO.replace("rain =", "rain = 5 #"), "recording.0.fields.rain"),
    ("[recording]", '[tags]\nx = { number = "x-{}" }\n[recording]', "tags: belongs to simulated data"),
    ('by = ["site"]', 'by = ["town"]', "query.site-hour.by: there is no tag 'town'"),
    ('"max(kwh)"', '"max(mode)"', "query.site-hour.select: 'mode' holds no numbers"),
    ('"max(kwh)"', '"max(kw)"', "has no field 'kw'; did you mean 'kwh'?"),
    ("mode = 'run'", "mode = 'idle'", "is never 'idle'"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "why"), MISTAKES)
def test_a_mistake_in_a_mapping_is_one_line_with_key_and_cure(old: str, new: str, why: str, tmp_path: Path) -> None:
    text = MAPPING + QUERIES
    assert old in text
    path = town(tmp_path, text.replace(old, new, 1), rows(4, 60))
    with pytest.raises(UserMistake) as refused:
        read_use_case(path)
    says(str(refused.value), why)
    assert "\n" not in str(refused.value)
    assert str(path.parent) in str(refused.value)


GOOD = "2026-01-01T00:00:{},m,s,1.5,230,0,OK,run"
ODD = [
    ("2026-01-01T00:00:10Z,m,s,x,230,0,OK,run", "row 3: energy is 'x', which is not a number; name it in null"),
    ("2026-01-01T00:00:10Z,m,s,inf,230,0,OK,run", "row 3: energy is infinite"),
    ("2026-01-01T00:00:10Z,m,s,1,230,0,OK", "line 4: Expected 8 columns, got 7"),
    ("2026-01-01T00:00:10Z,m,s,1,230,0,OK,run,x", "line 4: Expected 8 columns, got 9"),
    ("yesterday,m,s,1,230,0,OK,run", "row 3: ts is 'yesterday', which is no time"),
    ("1700-01-01T00:00:10Z,m,s,1,230,0,OK,run", "row 3: ts is 1700-01-01T00:00:10Z, before 1823 or after 2116"),
    (",m,s,1,230,0,OK,run", "row 3: has no time"),
    ("2026-01-01T00:00:10Z,,s,1,230,0,OK,run", "row 3: has no key"),
    ("2026-01-01T00:00:10Z,m,,1,230,0,OK,run", "row 3: site is '', and was 's' for the meter 'm' before"),
    ("2026-01-01T00:00:10Z,m,s,1,230,0,MAYBE,run", "row 3: status is 'MAYBE', which is not true or false"),
    (f"2026-01-01T00:00:10Z,m,s,1,230,0,OK,{'x' * 201}", "row 3: mode: the text 'xxx"),
    ("2026-01-01T00:00:10Z,m,s,1,230,0,OK,a\x07b", "row 3: mode: the text 'a"),
    ("2026-01-01T00:00:10Z,m\x00x,s,1,230,0,OK,run", "row 3: the tag meter: the text 'm"),
    ('2026-01-01T00:00:10Z,m,s,1,230,0,OK,"a', "row 3: mode: the text 'a"),
    ("2026-01-01T00:00:10Z,m,s,1,230,99999999999999999999,OK,run", ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "why"), ODD)
def test_an_odd_row_is_one_line_with_file_row_and_cure(line: str, why: str, tmp_path: Path) -> None:
    path = town(tmp_path)
    head = "ts,meter_id,site,energy,volts,errors,status,mode\n"
    lines = [GOOD.format("00Z"), GOOD.format("05Z"), line, GOOD.format("20Z")]
    (tmp_path / "meters.csv").write_text(head + "\n".join(lines) + "\n")
    if not why:  # a whole number that only floats hold
        read_use_case(path)
        return
    with pytest.raises(UserMistake) as refused:
        read_use_case(path)
    says(str(refused.value), str(tmp_path / "meters.csv"), why)
    assert "\n" not in str(refused.value)


def test_an_hour_that_clocks_show_twice_or_never_is_refused_or_chosen(tmp_path: Path) -> None:
    text = MAPPING[: MAPPING.index("volts =")].replace('"ts"', '{ column = "ts", zone = "Europe/Berlin" }')
    head = "ts,meter_id,site,energy\n2026-10-25 01:59:00,m,s,1\n"
    path = town(tmp_path, text)
    (tmp_path / "meters.csv").write_text(head + "2026-10-25 02:30:00,m,s,2\n")
    with pytest.raises(UserMistake, match="row 2: ts is '2026-10-25 02:30:00', which clocks in Europe/Berlin showed"):
        read_use_case(path)
    for which, hour in (("earliest", 0), ("latest", 1)):
        path.write_text(text.replace('Berlin"', f'Berlin", repeated = "{which}"'))
        when = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
        assert stored(recorded_world(path))[1][0] == int(when.timestamp()) * NS_PER_S
    (tmp_path / "meters.csv").write_text(head + "2026-03-29 02:30:00,m,s,2\n")
    with pytest.raises(UserMistake, match="no clock in Europe/Berlin showed"):
        read_use_case(path)
    path.write_text(text.replace("Europe/Berlin", "Europe/Berlyn"))
    with pytest.raises(UserMistake, match=r"recording\.time\.zone: "):
        read_use_case(path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"town.toml"', '"town.toml", scale = 5', "world.scale: the recording has 12 series, not 5; take it out"),
        ('"town.toml"', '"town.toml", interval = "10s"', "world.interval: belongs to simulated data"),
        ('"town.toml"', '"town.toml", late = 0.1', "world.late: belongs to simulated data"),
        ("check =", "load = { share = 1.0 }\ncheck =", "nothing is left to write; load less"),
        ("check =", "load = { share = 1.5 }\ncheck =", "load.share: must be at most 1"),
        ("check =", 'load = { window = "100d" }\ncheck =', "nothing is left to write; load less"),
        ("rate = 40", "rate = 4_000", "of the recording are left after the load; lower it"),
        ("rate = 40", 'arrivals = "recorded", speed = 60_000', "left after the load, enough for a speed of 6,356 in"),
        ("rate = 40", 'arrivals = "recorded", rate = 40', "drive.arrivals: 'recorded' needs no rate"),
        ("rate = 40", "rate = 40, speed = 2", "speed belongs to arrivals = 'recorded'"),
        ('loop = "open", rate = 40', 'arrivals = "recorded"', "arrivals = 'recorded' needs loop = 'open'"),
        ("rate = 40", 'arrivals = "recorded", speed = 0', "drive.speed: must be above 0"),
        ('"town.toml"', '"cpu-only"\nload = { share = 0.5 }', ""),
    ],
)
def test_a_scenario_that_a_recording_does_not_fit_is_refused(
    old: str, new: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    town(tmp_path)
    assert old in SCENARIO
    text = SCENARIO.replace(old, new, 1)
    if not why:
        text = SCENARIO.replace("check =", "load = { share = 0.5 }\ncheck =").replace("town.toml", "cpu-only")
        text, why = text.replace("site-hour", "raw-one").replace("one-meter", "raw-tenth"), "load.share: belongs to rec"
        text = text.replace("newest", "lastpoint")
    (tmp_path / "s.toml").write_text(text)
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 2
    says(complaint(capsys.readouterr().err), "s.toml: ", why)


def test_times_that_a_database_would_cut_are_refused_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = rows().with_columns(pl.col("ts").dt.epoch("ns") + 1_001)
    path = town(tmp_path, frame=frame)
    (tmp_path / "s.toml").write_text(SCENARIO.replace('"sqlite"', '"duckdb"'))
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 2
    says(complaint(capsys.readouterr().err), "world.use_case: duckdb stores times to 1,000 ns; cut them with round in")
    path.write_text(path.read_text().replace('"ts"', '{ column = "ts", round = "us" }'))
    assert recorded_world(path).recorded.step_ns == 1_000  # type: ignore[union-attr]
    assert {row[0] % 1_000_000 for row in stored(recorded_world(path))} == {1_000}


REPLAY = SCENARIO.replace("rate = 40", 'arrivals = "recorded", speed = 1_500')


def test_ops_are_due_when_the_recording_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsbench.scenario.time_order._PART_ROWS", 70)
    town(tmp_path)
    (tmp_path / "s.toml").write_text(REPLAY.replace("write = 10", "write = 1\nweight = 7"))
    (cell,) = Scenario.load(tmp_path / "s.toml").expand()
    assert (cell.points_of_an_op, cell.seconds) == (0.7, 2.0)
    begin_ns = cell.loaded(cell.world_at()).end_ns
    times = [row[0] for row in expected(rows()) if begin_ns <= row[0] < begin_ns + 2 * 1_500 * NS_PER_S]
    assert len(times) > 50
    numbers = [int(number * 0.7) for number in range(10_000) if int(number * 0.7) < len(times)]
    assert cell.recorded_due_ns().tolist() == [round((times[number] - begin_ns) / 1_500) for number in numbers]
    assert cell.drive.rate == len(numbers) / 2


@pytest.mark.slow
def test_a_recording_is_replayed_in_its_own_rhythm(tmp_path: Path) -> None:
    made = [
        {"ts": START + timedelta(seconds=second + number), "meter_id": f"M{meter:03}", "site": "s", "energy": 1.5,
         "volts": 230.0, "errors": 0, "status": "OK", "mode": "run"}
        for second in range(0, 2_000, 100) for number in range(10) for meter in range(12)
    ]  # fmt: skip
    town(tmp_path, MAPPING, pl.DataFrame(made))
    text = REPLAY[: REPLAY.index("[[op]]\nquery")].replace("write = 10", "write = 5").replace("1_500", "100")
    (tmp_path / "s.toml").write_text(text.replace("check =", "load = { share = 0.5 }\ncheck ="))
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 0
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    seconds = pl.read_parquet(summary.parent / "ops.parquet")
    counts = json.loads(summary.read_text())
    assert counts["schedule"]["scheduled"] == 48  # of each 100 s, which are one, 120 points
    assert counts["schedule"]["done"] + counts["schedule"]["late"] == 48
    assert len(seconds) > 0
    assert counts["measured"]["duration_s"] == 2, "nothing is due in most of its second half"


@pytest.mark.slow
def test_an_open_loop_ends_early_if_its_writes_happen_to_be_more(tmp_path: Path) -> None:
    town(tmp_path)
    left = len(rows()) - 10 * len(rows()) // 16
    text = SCENARIO[: SCENARIO.index('[[op]]\nquery = "one')].replace("check =", "load = { share = 0.625 }\ncheck =")
    text = text.replace("write = 10", "write = 10\nweight = 3").replace('"2s"', '"4s"')  # 7.5 points an op
    (tmp_path / "s.toml").write_text(text.replace("rate = 40", f"rate = {left / 7.5 / 4 * 0.99}"))
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 0
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    made = json.loads(summary.read_text())
    schedule = made["schedule"]
    assert schedule["scheduled"] == schedule["done"] + schedule["late"]  # without those that had nothing to write
    assert "overload" not in made["limited_by"]
    assert 3 <= made["measured"]["duration_s"] <= 4


LOCUSTFILE = """
from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class Meters(TimeSeriesUser):
    target = "sqlite"
    use_case = "town.toml"
    wait_time = between(0.04, 0.06)

    @task(3)
    def readings(self):
        self.write(8)

    @task
    def sites(self):
        self.query("site-hour")
"""


@pytest.mark.slow
def test_a_locustfile_writes_on_where_the_load_ended_and_stops_with_the_recording(tmp_path: Path) -> None:
    town(tmp_path)
    (tmp_path / "mine.py").write_text(LOCUSTFILE)
    words = "-f mine.py --headless -u 2 -r 2 -t 100s --warmup 0s --results results"
    made = subprocess.run(
        [sys.executable, "-m", "locust", *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "all points of the recording are written, so the test ends" in made.stderr, made.stderr[-2_000:]
    assert "result: valid" in made.stderr, made.stderr[-2_000:]
    (summary,) = (tmp_path / "results").glob("*/*/summary.json")
    checks = json.loads(summary.read_text())["validity"]["checks"]
    assert checks["writes"]["counts"]["stored"] == len(rows())
    made = subprocess.run(
        [sys.executable, "-m", "locust", *words.split(), "--scale", "7"],
        cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert "--scale: the recording has 12 series, not 7; take it out" in made.stderr


def test_lines_may_lack_fields_and_are_named_if_they_are_none(tmp_path: Path) -> None:
    text = MAPPING[: MAPPING.index("site =") - 2].replace("meters.csv", "x.lp").replace('"ts"', '"time"') + " }\n"
    path = town(tmp_path, text + '[recording.fields]\na = "a"\nb = "b"\nc = { column = "c", default = "none" }\n')
    good = [
        "meter,meter_id=m a=1 1000000000",
        "meter,meter_id=m a=2.5,b=3i 2000000000",
        'meter,meter_id=m a=3,c="x" 3000000000',
    ]
    (tmp_path / "x.lp").write_text("# DDL\n" + "\n".join(good))
    of = recorded_world(path)
    assert [row[1:] for row in stored(of)] == [("m", 1.0, None, "none"), ("m", 2.5, 3.0, "none"), ("m", 3.0, None, "x")]
    for odd, why in (
        ("meter,meter_id=m a=1", "x.lp: line 5: it has no time"),
        ("meter,meter_id=m a=abc 4000000000", "x.lp: line 5: a is abc, which is no number"),
        ("meter,meter_id=m,a=1 a=1 4000000000", "line 5: 'a' is a tag and a field"),
        ('meter,meter_id=m a="1" 4000000000', "x.lp: a has values of several types (float and str)"),
    ):
        (tmp_path / "x.lp").write_text("# DDL\n" + "\n".join([*good, odd, ""]))
        with pytest.raises(UserMistake) as refused:
            read_use_case(path)
        says(str(refused.value), why)
    (tmp_path / "x.lp").write_text("other a=1 1\n")
    with pytest.raises(UserMistake, match="has no lines of the measurement 'meter'"):
        read_use_case(path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "csv.gz", "csv.zst", "parquet", "lp"])
def test_damaged_files_are_read_or_named_and_never_more(form: str, tmp_path: Path) -> None:
    frame, draw = rows(3, 100), random.Random(7)
    csv = frame.write_csv().encode()
    frame.write_parquet(tmp_path / "x.parquet")
    whole = {
        "csv": csv, "csv.gz": gzip.compress(csv), "csv.zst": zstandard.compress(csv),
        "parquet": (tmp_path / "x.parquet").read_bytes(), "lp": "".join(map(line, frame.to_dicts())).encode(),
    }[form]  # fmt: skip
    text = MAPPING.replace("meters.csv", f"m.{form}").replace("[recording]", '[recording]\nincomplete = "skip"')
    (tmp_path / "town.toml").write_text(text.replace('"ts"', '"time"') if form == "lp" else text)
    said = []
    for _ in range(100):
        damaged, at = bytearray(whole), draw.randrange(len(whole))
        how = draw.random()
        if how < 0.5:
            damaged[at : at + draw.randint(0, 3)] = bytes(draw.choices(b',;"\n\r\t 0123abz-.=\xff\x00', k=3))
        elif how < 0.75:
            del damaged[at : at + draw.randint(1, 2_000)]
        else:
            damaged = damaged[: at + 1]
        (tmp_path / f"m.{form}").write_bytes(damaged)
        try:
            read_use_case(tmp_path / "town.toml")
        except UserMistake as error:
            said.append(str(error))
    assert len(said) > 40
    assert not any("\n" in one for one in said)


def test_what_expands_without_end_is_refused_in_little_memory(tmp_path: Path) -> None:
    path = town(tmp_path, MAPPING.replace("meters.csv", "m.csv.zst"))
    head = (tmp_path / "meters.csv").read_bytes()[:300].rpartition(b"\n")[0] + b"\n"
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(head), *(packer.compress(bytes(1 << 20)) for _ in range(1_000)), packer.flush()]
    (tmp_path / "m.csv.zst").write_bytes(b"".join(parts))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserMistake, match=r"m\.csv\.zst: a row is longer than 4,194,304 bytes"):
        read_use_case(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB, of 1,000 MiB


def test_a_generated_file_is_the_recording_of_another_world(tmp_path: Path) -> None:
    states = Path(__file__).parent / "data" / "states.toml"
    words = ["--scale", "20", "--end", "2016-01-01T01:00:00Z", "--measurement", "pump", "--format", "parquet"]
    assert main(["generate", "--use-case", str(states), *words, "--out", str(tmp_path / "pumps.parquet")]) == 0
    assert main(["check", str(tmp_path / "pumps.parquet"), "--out", str(tmp_path / "own.toml")]) == 0
    of, simulated = recorded_world(tmp_path / "own.toml"), world(states, scale=20, streams=1)
    fields = [field.name for field in of.measurements[0].fields]
    assert fields == [field.name for field in simulated.measurements[0].fields]
    (batch,) = simulated.batches(0, points=7_200, last_tick=360, only=["pump"])
    made = {}
    for name in fields:
        labels = {field.name: field.labels for field in batch.measurement.fields}[name]
        made[name] = [labels[value] if labels else value for value in batch.fields[name].tolist()]
    keys = [simulated.keys()[series] for series in batch.series.tolist()]
    assert stored(of) == sorted(zip(batch.time_ns.tolist(), keys, *made.values(), strict=True), key=lambda row: row[:2])
    assert of.tags()[of.key or ""].tolist() == list(simulated.keys())
