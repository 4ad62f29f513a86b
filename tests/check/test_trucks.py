"""The questions about trucks: gold against plain loops over the points, and databases against gold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.model import Analysis, Rows, Window
from tsbench.results.ledger import read_ledgers
from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import START_NS, Stand, world_of
from tsbench.units import NS_PER_S
from tsbench.workload.queries import HOUR_NS, QUERIES, make
from tsbench.workload.world import Disorder, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tsbench.check.comparison import Difference

KINDS = [name for name, kind in QUERIES.items() if kind.use_cases == ("iot",)]
BUCKET_NS, DAY_NS = 600 * NS_PER_S, 24 * HOUR_NS
INTERVAL_S = 52  # at the end, half of the trucks have a fuel_state of 0.1, the others 0
TICKS = 1_800
LOADED = Window(START_NS, START_NS + 26 * HOUR_NS)
WORLDS = {
    "orderly": world_of("iot", 12, interval_s=INTERVAL_S),
    "peer": world_of("iot", 12, interval_s=INTERVAL_S, form="peer"),
    "many nulls": world_of("iot", 12, interval_s=INTERVAL_S, disorder=Disorder(null=0.7, null_tags=0.7, duplicate=0.1)),
}


# --- the same answers by plain loops ----------------------------------------------------------------------------------

Point = dict[str, Any]


@cache
def stored_points(name: str, measurement: str, *, keeps: bool) -> list[Point]:
    """Return the points of a measurement, in the order of time, without the fields and tags that they lack."""
    world = WORLDS[name]
    tags = {name: codes.tolist() for name, codes in world.tags().items()}
    found: dict[tuple[int, int, int], Point] = {}
    for stream in range(world.spec.streams):
        for batch in world.batches(stream, points=500, last_tick=TICKS, only=[measurement]):
            for i in range(len(batch)):
                series, time_ns = int(batch.series[i]), int(batch.time_ns[i])
                fields = {name: float(column[i]) for name, column in batch.fields.items()}
                point = {"time": time_ns, **{name: texts[series] for name, texts in tags.items()}, **fields}
                there = {key: value for key, value in point.items() if value == value and value != ""}  # noqa: PLR0124
                found[series, time_ns, len(found) if keeps else 0] = there
    return sorted(found.values(), key=lambda point: point["time"])


def points_of(name: str, query: Analysis, *, keeps: bool) -> list[Point]:
    """Return the points of the query's measurement and window."""
    window = query.window
    some = stored_points(name, query.measurement.name, keeps=keeps)
    return [point for point in some if window.start_ns <= point["time"] < window.end_ns]


def by(points: Iterable[Point], *names: str) -> dict[Any, list[Point]]:
    groups: dict[Any, list[Point]] = defaultdict(list)
    for point in points:
        if all(name in point for name in names):
            groups[tuple(point[name] for name in names)].append(point)
    return groups


def buckets(points: Iterable[Point], field: str) -> dict[str, dict[int, list[float]]]:
    """Return the values of a field by truck and start of the bucket."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if field in point:
            found[point["name"]][point["time"] // BUCKET_NS * BUCKET_NS].append(point[field])
    return found


def newest(points: list[Point], of: Point, *fields: str) -> list[Point]:
    some = [p for p in points if of.items() <= p.items() and all(field in p for field in fields)]
    return list({p["name"]: p for p in some}.values())


def answer(query: Analysis, points: list[Point]) -> list[tuple[Any, ...]]:
    trucks = {p["name"]: p for p in points}
    fleet = [p for p in points if p.get("fleet") == query.of]
    answers: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
        "single-last-loc": lambda: places(newest(points, {"name": query.of}, "latitude", "longitude")),
        "last-loc": lambda: places(newest(fleet, {}, "latitude", "longitude")),
        "low-fuel": lambda: [
            (p["name"], p["fuel_state"]) for p in newest(fleet, {}, "fuel_state") if p["fuel_state"] < 0.1
        ],
        "high-load": lambda: [
            (p["name"], p["current_load"])
            for p in newest(fleet, {}, "current_load", "load_capacity")
            if p["current_load"] > 0.9 * int(p["load_capacity"])
        ],
        "stationary-trucks": lambda: [row for row in means(fleet, "velocity", "name") if row[1] < 1],
        "long-driving-sessions": lambda: long_ones(fleet, 22),
        "long-daily-sessions": lambda: long_ones(fleet, 60),
        "avg-vs-projected-fuel-consumption": lambda: consumption(points),
        "avg-load": lambda: loads(points, trucks),
        "avg-daily-driving-duration": lambda: durations(points),
        "avg-daily-driving-session": lambda: sessions(points),
        "daily-activity": lambda: activities(points, trucks),
        "breakdown-frequency": lambda: breakdowns(points, trucks),
    }
    return answers[query.name]()


def places(found: list[Point]) -> list[tuple[Any, ...]]:
    return [(p["time"], p["name"], p["latitude"], p["longitude"]) for p in found]


def means(points: Iterable[Point], field: str, *names: str) -> list[tuple[Any, ...]]:
    groups = by([p for p in points if field in p], *names)
    return [(*group, fmean(p[field] for p in of)) for group, of in groups.items()]


def long_ones(fleet: list[Point], above: int) -> list[tuple[Any, ...]]:
    counts = [(name, sum(fmean(v) > 1 for v in of.values())) for name, of in buckets(fleet, "velocity").items()]
    return [row for row in counts if row[1] > above]


def consumption(points: list[Point]) -> list[tuple[Any, ...]]:
    moving = [p for p in points if p.get("velocity", 0) > 1 and "fuel_consumption" in p]
    nominal = "nominal_fuel_consumption"
    some = [{**p, nominal: int(p[nominal])} for p in moving if nominal in p]
    both = zip(means(some, "fuel_consumption", "fleet"), means(some, nominal, "fleet"), strict=True)
    return [(*one, other[-1]) for one, other in both]


def loads(points: list[Point], trucks: dict[str, Point]) -> list[tuple[Any, ...]]:
    of_trucks = means(points, "current_load", "name", "load_capacity")
    return means([{**trucks[name], "share": mean / int(c)} for name, c, mean in of_trucks], "share", "fleet", "model")


def durations(points: list[Point]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for name, of in buckets(points, "velocity").items():
        days: dict[int, float] = defaultdict(float)
        for start, values in of.items():
            days[start // DAY_NS] += (fmean(values) > 1) / 6
        rows.append((name, fmean(days.values())))
    return rows


def sessions(points: list[Point]) -> list[tuple[Any, ...]]:
    rows: list[Point] = []
    for name, of in buckets(points, "velocity").items():
        states = [(start, fmean(values) > 5) for start, values in sorted(of.items())]
        changes = [start for (_, one), (start, other) in pairwise(states) if one != other]
        drives = dict(states)
        for start, end in pairwise(changes):
            if drives[start]:
                minutes = (end - start) / (60 * NS_PER_S)
                rows.append({"name": name, "day": start // DAY_NS * DAY_NS, "minutes": minutes})
    return means(rows, "minutes", "day", "name")


def activities(points: list[Point], trucks: dict[str, Point]) -> list[tuple[Any, ...]]:
    rows: list[Point] = []
    for name, of in buckets(points, "status").items():
        active: dict[int, int] = defaultdict(int)
        for start, values in of.items():
            active[start // DAY_NS * DAY_NS] += fmean(values) < 1
        rows += [{**trucks[name], "day": day, "share": count / 144} for day, count in active.items()]
    return means(rows, "share", "day", "fleet", "model")


def breakdowns(points: list[Point], trucks: dict[str, Point]) -> list[tuple[Any, ...]]:
    rows: list[Point] = []
    for name, of in buckets(points, "status").items():
        broken = [2 * sum(value > 0 for value in values) >= len(values) for _, values in sorted(of.items())]
        rows += [trucks[name] for one, other in pairwise(broken) if other and not one]
    return [(*model, len(found)) for model, found in by(rows, "model").items()]


def asked(kind: str, world: World, count: int) -> list[Analysis]:
    """Return queries of a kind, the first as a run has it, the others with windows that begin and end anywhere."""
    found: list[Analysis] = []
    draw = np.random.default_rng(7)
    for number in range(count):
        query = make(kind, world, LOADED, 5, number)
        assert isinstance(query, Analysis)
        if number:
            start, length = draw.integers(0, 20 * HOUR_NS), draw.integers(HOUR_NS // 6, 6 * HOUR_NS)
            query = replace(query, window=Window(START_NS + int(start), START_NS + int(start + length)))
        if number % 3 == 2:
            start_ns = query.window.start_ns // (INTERVAL_S * NS_PER_S) * INTERVAL_S * NS_PER_S  # a tick
            query = replace(query, window=Window(start_ns, query.window.end_ns // BUCKET_NS * BUCKET_NS + BUCKET_NS))
        found.append(query)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORLDS)
def test_gold_is_what_plain_loops_find(name: str, kind: str) -> None:
    world = WORLDS[name]
    for keeps in (True, False):
        gold = Gold(Feed(world, TICKS, 500), read_ledgers([]), keeps_duplicates=keeps)
        for query in asked(kind, world, 7):
            rows = Rows(query.columns, answer(query, points_of(name, query, keeps=keeps)))
            difference = gold.check(query, rows, quiet=True)
            assert difference is None, difference


# --- what must be found -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_wrong_value_missing_row_and_unexpected_row_is_found() -> None:
    world = WORLDS["peer"]
    gold = Gold(Feed(world, TICKS, 500), read_ledgers([]), keeps_duplicates=True)

    def found(query: Analysis, rows: list[tuple[Any, ...]]) -> Difference | None:
        return gold.check(query, Rows(query.columns, rows), quiet=True)

    for kind in KINDS:
        some = [(q, answer(q, points_of("peer", q, keeps=True))) for q in asked(kind, world, 9)]
        query, rows = max(some, key=lambda one: len(one[1]))
        if not rows:
            assert kind == "stationary-trucks"  # nobody stands still for ten minutes in so small a world
            rows = [("truck_1", 0.5)]
            assert found(query, rows) is not None
            continue
        assert found(query, rows[::-1]) is None
        assert found(query, rows[1:]) is not None
        assert found(query, [*rows, rows[0]]) is not None
        for place, value in enumerate(rows[0]):
            others = ["truck_99", None] if isinstance(value, str) else [value * (1 + 1e-9) + 1e-9, None, float("nan")]
            for other in others:
                changed = [(*rows[0][:place], other, *rows[0][place + 1 :]), *rows[1:]]
                assert found(query, changed) is not None, (kind, value, other)


Change = tuple[str, str]
CHANGES: dict[str, Change] = {
    "a value in place of none": (
        "UPDATE readings SET velocity = 90 WHERE velocity IS NULL",
        "avg-vs-projected-fuel-consumption",
    ),
    "none in place of a value": ("UPDATE diagnostics SET status = NULL WHERE tags_id < 6", "daily-activity"),
    "another fleet": ("UPDATE tags SET fleet = 'East'", "last-loc"),
    "a tag in place of none": ("UPDATE tags SET fleet = 'East' WHERE fleet IS NULL", "daily-activity"),
    "none in place of a tag": ("UPDATE tags SET load_capacity = NULL WHERE id > 4", "avg-load"),
    "a tag that is empty": ("UPDATE tags SET fleet = '' WHERE fleet IS NULL", "avg-vs-projected-fuel-consumption"),
}


def trucks(place: Path, number: int) -> Stand:
    disorder = Disorder(late=0.1, held=0.1, null=0.4, null_tags=0.3)
    world, target = world_of("iot", number, interval_s=INTERVAL_S, disorder=disorder), TARGETS["sqlite"]
    return Stand(world, target, target.schemas["wal"], f"sqlite://{place / 'trucks.db'}", TICKS).load()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    return trucks(tmp_path_factory.mktemp("trucks"), 40)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """Half of the trucks: of a change of many rows, each is compared by itself."""
    return trucks(tmp_path_factory.mktemp("few"), 20)


@pytest.mark.slow
def test_a_run_stores_trucks_with_lacking_fields_and_tags_as_they_are(stored: Stand) -> None:
    gold = stored.gold()
    assert stored.false_verdicts(gold) == set()
    answers = stored.asked(gold, [*KINDS, "raw-tenth"], 3 * (len(KINDS) + 1))
    assert (answers.wrong, answers.unsupported) == (0, {}), answers.first_wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_is_lacking_is_found(few: Stand, tmp_path: Path, name: str) -> None:
    statement, kind = CHANGES[name]
    changed = few.copy(tmp_path / "copy.db")
    changed.vandalise(statement)
    gold = changed.gold()
    assert changed.false_verdicts(gold) == {"rows"}
    assert changed.asked(gold, [kind], 8).wrong


DEFECTS: dict[str, tuple[str, str, str]] = {
    "the oldest place": ("last-loc", "max(x", "min(x"),
    "the newest row, whatever it lacks": ("last-loc", ' AND x."latitude" IS NOT NULL', ""),
    "at most a tenth": ("low-fuel", "< 0.1", "<= 0.1"),
    "half of the capacity": ("high-load", "0.9", "0.5"),
    "the end included": ("long-driving-sessions", 'm."time" < ?', 'm."time" < ? + 600000000000'),
    "without a condition": ("avg-daily-driving-duration", "> 1 THEN", ">= 0 THEN"),
    "the first run counts": ("avg-daily-driving-session", "s.state <> s.earlier", "s.state <> coalesce(s.earlier, -1)"),
    "points instead of trucks": ("avg-load", 'GROUP BY m."tags_id"', 'GROUP BY m."tags_id", m."time" / 7200000000000'),
    "a group without a fleet": ("daily-activity", 't."fleet" IS NOT NULL AND ', ""),
    "more than half": ("breakdown-frequency", ">= count(*)", "> count(*)"),
    "standing still counts": ("avg-vs-projected-fuel-consumption", '"velocity" > 1', '"velocity" >= 0'),
    "nearly all day": ("long-daily-sessions", "> 60", "> 143"),
    "slow ones, too": ("stationary-trucks", ") < 1", ") < 30"),
    "other trucks": ("single-last-loc", 't."name" =', 't."name" >'),
}


class Defective:
    """A layout whose compiled texts are changed."""

    def __init__(self, schema: Any, right: str, wrong: str) -> None:
        self._schema, self._right, self._wrong = schema, right, wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schema, name)

    def compile(self, query: Any) -> Any:
        statement = self._schema.compile(query)
        assert self._right in statement.text
        return replace(statement, text=statement.text.replace(self._right, self._wrong))


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.slow
def test_a_question_that_is_asked_in_a_wrong_way_is_found(stored: Stand, name: str) -> None:
    kind, right, wrong = DEFECTS[name]
    answers = stored.asked(stored.gold(), [kind], 12, Defective(stored.schema, right, wrong))
    assert answers.wrong
