"""Use cases that users describe in files: their points, their queries on real databases, and mistakes in them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cli.support import complaint, says
from tests.validation import serving
from tsbench.check.comparison import Difference, canonical, labelled
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.model import Aggregated, Comparator, Kind, Latest, Raw, Rows, Stored, Top, Window
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.spec import RunSpec, Scenario
from tsbench.scenario.use_case import UseCaseFile, read_use_case, resolved
from tsbench.scenario.validation import check_spec, expect_room_for
from tsbench.targets.registry import TARGETS as TARGETS_BY_NAME
from tsbench.testing.schemas import KEEP
from tsbench.testing.session import MemorySession
from tsbench.testing.stand import Stand, fitting
from tsbench.units import NS_PER_S
from tsbench.workload import queries
from tsbench.workload.world import World

if TYPE_CHECKING:
    from tsbench.model import Batch, Query
    from tsbench.targets.target import Target

PUMPS = Path(__file__).parent / "data" / "pumps.toml"
TEXT = PUMPS.read_text(encoding="utf-8")


def world(path: Path = PUMPS, **keys: object) -> World:
    table = resolved({"use_case": path.name, "scale": 40, "streams": 2, **keys}, path.parent)
    return World(WorldPart.model_validate(table).spec())


def points(of: World, ticks: int = 200) -> dict[str, Batch]:
    """Return the first ticks of stream 0, by measurement."""
    return {batch.measurement.name: batch for batch in of.batches(0, points=1_000_000, last_tick=ticks)}


# --- the points -------------------------------------------------------------------------------------------------------


def test_points_lack_fields_as_often_as_the_file_says() -> None:
    fields = points(world(PUMPS.parent / "gaps.toml"), 500)["pump"].fields
    assert np.isnan(fields["gap"]).mean() == pytest.approx(0.4, abs=0.02)
    assert np.isnan(fields["vib"]).mean() == pytest.approx(0.9, abs=0.02)
    assert not np.isnan(fields["twice"]).any(), "an expression uses the value that is not stored"
    there = ~np.isnan(fields["gap"])
    assert np.array_equal(fields["twice"][there], np.round(fields["gap"][there] * 2, 2))


def test_fields_are_what_the_file_says() -> None:
    made = points(world())
    fields = made["pump"].fields
    assert [(field.name, field.kind, field.unit) for field in made["pump"].measurement.fields] == [
        ("temp", Kind.FLOAT, "degC"), ("rpm", Kind.INT, ""), ("energy", Kind.INT, ""), ("state", Kind.INT, ""),
        ("noise", Kind.FLOAT, ""), ("power", Kind.FLOAT, ""),
    ]  # fmt: skip
    assert np.array_equal(fields["power"], np.round(fields["rpm"] * 0.12 + fields["temp"], 2))
    assert abs(fields["rpm"].mean() - 1450) < 2
    assert abs(fields["rpm"].std() - 20) < 2
    energy = fields["energy"].reshape(200, 20)
    assert (np.diff(energy, axis=0) >= 0).all()
    assert abs(energy[-1].mean() - 3.0 * 199) < 60
    assert {*np.unique(fields["state"]).tolist()} == {0, 1, 2}
    assert np.array_equal(fields["noise"] * 4096, np.floor(fields["noise"] * 4096))
    state = fields["state"].reshape(200, 20)
    assert 0 < (np.diff(state, axis=0) != 0).mean() < 2 / 120  # 20 minutes are 120 intervals
    assert made["valve"].fields["open"].max() <= 100


def test_tags_are_what_the_file_says() -> None:
    of = world(scale=2_000)
    tags = of.tags()
    assert of.key == "pump"
    assert of.keys()[:2] == ("p-00000", "p-00001")
    assert set(of.texts("site")) <= {f"s-{n}" for n in range(40)}
    by_site: dict[str, set[str]] = {}
    for site, model in zip(tags["site"].tolist(), tags["model"].tolist(), strict=True):
        by_site.setdefault(site, set()).add(model)
    assert all(len(models) == 1 for models in by_site.values())
    counts = [sum(models == {name} for models in by_site.values()) for name in ("A7", "B2", "C")]
    assert counts[0] > counts[1] + counts[2]


def test_a_day_has_a_curve_and_walks_stay_within_their_limits(tmp_path: Path) -> None:
    text = TEXT.replace("walk = 0.1, first = 40", "constant = 40")
    (tmp_path / "days.toml").write_text(text)
    temp = points(world(tmp_path / "days.toml", interval="1h"), 48)["pump"].fields["temp"].reshape(48, 20)[:, 0]
    assert temp == pytest.approx([round(40 + 8 * math.sin(2 * math.pi * hour / 24), 1) for hour in range(48)])
    (tmp_path / "walks.toml").write_text(TEXT.replace("walk = 0.1, first = 40, min = -20", "walk = 9, min = 100"))
    temp = points(world(tmp_path / "walks.toml"))["pump"].fields["temp"]
    assert (temp.min(), temp.max()) > (99, 119)
    assert temp.max() <= 120


def test_points_depend_on_seed_and_name_and_not_on_the_cut(tmp_path: Path) -> None:
    whole = points(world())["pump"].fields["temp"]
    parts = [batch for batch in world().batches(0, points=33, last_tick=200) if batch.measurement.name == "pump"]
    assert np.array_equal(np.concatenate([part.fields["temp"] for part in parts]), whole)
    assert not np.array_equal(points(world(seed=2))["pump"].fields["temp"], whole)


def test_a_specification_is_complete_without_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(TEXT)
    (tmp_path / "s.toml").write_text(SCENARIO.replace("pumps.toml", "own.toml"))
    (cell,) = Scenario.load(tmp_path / "s.toml").expand()
    (tmp_path / "own.toml").unlink()
    again = RunSpec.model_validate(json.loads(cell.model_dump_json(by_alias=True)))
    assert again == cell
    loaded = Window(cell.world.start, cell.world.start + cell.load.window)
    for kind in KINDS:
        first, second = (queries.make(kind, one.world_at(), loaded, 1, 3) for one in (cell, again))
        assert first == second


def test_a_measurement_may_have_expressions_only(tmp_path: Path) -> None:
    text = TEXT.replace("open = { uniform = [0, 100], decimals = 1 }", 'open = { is = "2 * 3" }')
    (tmp_path / "own.toml").write_text(text)
    assert points(world(tmp_path / "own.toml"), 3)["valve"].fields["open"].tolist() == [6.0] * 60


def test_popular_series_are_asked_about_as_often_as_zipf_says(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(TEXT.replace("series = 5", 'series = 1\npopularity = "zipf"'))
    of = world(tmp_path / "own.toml", scale=100)
    loaded = Window(of.spec.start_ns, of.spec.start_ns + 3_600 * NS_PER_S)
    counts = Counter(queries.make("hot-pumps", of, loaded, 1, number).keys[0] for number in range(20_000))  # type: ignore[union-attr, index]
    for rank in (1, 2, 10, 50):
        expected = 20_000 * math.log((rank + 1) / rank) / math.log(101)
        assert counts[f"p-{rank - 1:05}"] == pytest.approx(expected, abs=5 * math.sqrt(expected))
    (tmp_path / "all.toml").write_text(TEXT.replace("series = 5", 'series = 40\npopularity = "zipf"'))
    every = queries.make("hot-pumps", world(tmp_path / "all.toml"), loaded, 1, 0)
    assert len({*every.keys}) == 40  # type: ignore[union-attr, misc]


# --- on databases -----------------------------------------------------------------------------------------------------

SCENARIO = """
question = "Which database serves our pumps?"
[world]
use_case = "pumps.toml"
scale = 20
[load]
window = "30m"
[drive]
users = 2
warmup = "1s"
duration = "2s"
[target]
name = "sqlite"
[check]
answers = 100
[[op]]
write = 50
weight = 10
[[op]]
query = "hot-pumps"
[[op]]
query = "hourly"
[[op]]
query = "newest"
[[op]]
query = "open-valves"
[[op]]
query = "last-buckets"
[[op]]
query = "site-load"
[[op]]
query = "models"
[[op]]
query = "site-now"
[[op]]
query = "common"
"""
KINDS = [*re.findall(r'query = "(.*)"', SCENARIO)]
COMPARISONS = get_args(Comparator)
MARKS = {
    "postgres": "postgres", "influxdb1": "influxdb-1.8", "influxdb2": "influxdb-2", "mongodb": "mongodb",
    "mariadb": "mariadb", "victoriametrics": "victoria", "questdb": "questdb",
}  # fmt: skip
AT_ONCE = {
    ("sqlite", "gaps"),
    ("postgres", "states"),
    ("duckdb", "pods"),
    ("mongodb", "gaps"),
}
"""What is run at each submission; all other pairs of a database and a use case nightly."""
EACH = [
    pytest.param(name, case, marks=[*([getattr(pytest.mark, MARKS[name])] if name in MARKS else []),
                                    *([] if (name, case) in AT_ONCE else [pytest.mark.nightly])])
    for name in ("sqlite", "duckdb", *MARKS) for case in ("pumps", "gaps", "states", "pods")
]  # fmt: skip
REFUSED = {
    ("victoriametrics", "gaps"): ("layout fields holds numbers only", "'state'"),
    ("questdb", "gaps"): ("holds no points that lack a field of the kind bool", "'open'"),
    ("victoriametrics", "states"): ("layout fields holds numbers only", "'state'"),
}


def answers_of_a_run(text: str, place: Path, said: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run a scenario beside the use cases, and return what its answers' check says."""
    for path in PUMPS.parent.glob("*.toml"):
        (place / path.name).write_text(path.read_text())
    (place / "s.toml").write_text(text)
    code = main(["run", str(place / "s.toml"), "--out", str(place / "results")])
    (path,) = (place / "results").glob("*/*/summary.json")
    answers: dict[str, Any] = json.loads(path.read_text())["validity"]["checks"]["answers"]
    assert (answers["state"], answers["counts"]["wrong"]) == ("valid", 0), (code, answers, said.readouterr())
    return answers


@pytest.mark.slow
@pytest.mark.parametrize(("target", "case"), EACH)
def test_own_data_and_own_queries_are_right_or_refused_on_every_database(
    target: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = re.findall(r'\[\[query\]\]\s+name = "(.*)"', (PUMPS.parent / f"{case}.toml").read_text(encoding="utf-8"))
    text = SCENARIO.replace("pumps.toml", f"{case}.toml").replace('"sqlite"', f'"{target}"')
    text = text[: text.index('[[op]]\nquery = "hot-pumps"')] + "".join(f'[[op]]\nquery = "{kind}"\n' for kind in kinds)
    if target == "victoriametrics":  # which has no floats of so many digits, and says so
        text = text.replace("scale = 20", "scale = 20\ndecimals = 4")
    if (target, case) not in REFUSED:
        assert answers_of_a_run(text, tmp_path, capsys)["counts"]["checked"] >= len(kinds)
        return
    (tmp_path / f"{case}.toml").write_text((PUMPS.parent / f"{case}.toml").read_text())
    (tmp_path / "s.toml").write_text(text)
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 2
    says(complaint(capsys.readouterr().err), "s.toml: world.use_case", *REFUSED[target, case])


def expect_one_line(text: str, change: tuple[str, str], why: str, place: Path) -> None:
    """Verify that a file in which one text is another has a mistake of one line."""
    assert change[0] in text
    (place / "own.toml").write_text(text.replace(*change, 1), encoding="utf-8")
    with pytest.raises(UserMistake) as caught:
        read_use_case(place / "own.toml")
    says(str(caught.value), str(place / "own.toml"), why)
    assert "\n" not in str(caught.value)


MODEL = 'of = ["A7", "B2", "C"], weights = [8, 1, 1], per = "site"'
MORE = ' }\nmore = { within = "model", of = { A7 = ["a"], '
STATES = (PUMPS.parent / "states.toml").read_text(encoding="utf-8")


def test_texts_and_booleans_are_drawn_as_the_file_says() -> None:
    made = points(world(PUMPS.parent / "states.toml"), 500)
    state, flags = made["pump"].measurement.fields[0], made["pump"].fields
    shares = np.bincount(flags["state"], minlength=5) / len(flags["state"])
    assert (state.kind, len(state.texts)) == (Kind.TEXT, 5)
    assert shares == pytest.approx([0.5, 0.2, 0.1, 0.1, 0.1], abs=0.1)
    assert flags["open"].mean() == pytest.approx(0.25, abs=0.02)
    assert flags["alarm"].mean() == pytest.approx(0.01, abs=0.005)
    assert (flags["power"][flags["open"] == 0] == 0).all(), "an expression has 0 and 1 for false and true"


def test_the_value_of_any_point_at_the_last_time_is_right_and_a_percentile_of_one_definition() -> None:
    of = world(PUMPS, scale=6)
    gold = Gold(Feed(of, 200, 100), np.zeros(0, LEDGER_DTYPE), keeps_duplicates=True)
    pump, streams = of.measurements[0], range(of.spec.streams)
    made = [one for s in streams for one in of.batches(s, points=10_000, last_tick=200, only=["pump"])]
    temp, time_ns = (np.concatenate(each) for each in zip(*((b.fields["temp"], b.time_ns) for b in made), strict=True))
    has = ~np.isnan(temp)
    last, first = (set(temp[has & (time_ns == end(time_ns[has]))].tolist()) for end in (np.max, np.min))
    linear, nearest = (np.quantile(temp[has], np.arange(1, 100) / 100, method=how) for how in ("linear", "nearest"))
    place = int(np.argmax(np.abs(linear - nearest)))
    right, other = float(linear[place]), float(nearest[place])
    asked = Aggregated(pump, (("last", "temp"), ("first", "temp"), (f"p{place + 1}", "temp")), gold.loaded)
    assert len(last) > 1
    assert right != other

    def difference(*row: float | None) -> Difference | None:
        return gold.check(asked, Rows(asked.columns, [row]), quiet=True)

    for ends in product(last, first):
        assert difference(*ends, right) is None
    odd = next(value for value in temp[has].tolist() if value not in last | first)
    for row in ((odd, min(first), right), (min(last), odd, right), (min(last), min(first), other), (None, None, right)):
        assert difference(*row) is not None, row


def test_of_rows_that_are_equal_at_the_limit_any_is_right_and_no_other() -> None:
    of = world(PUMPS.parent / "states.toml", scale=6)
    pump = of.measurements[0]
    gold = Gold(Feed(of, 200, 100), np.zeros(0, LEDGER_DTYPE), keeps_duplicates=True)
    key = MemorySession(KEEP)
    for stream in range(2):
        for batch in of.batches(stream, points=10_000, last_tick=200, only=["pump"]):
            key.add(batch)
    for how, field in (("count", "state"), ("max", "open"), ("mean", "temp"), ("max", "temp")):
        asked = Aggregated(pump, ((how, field),), gold.loaded, None, ("pump",))
        every = sorted(key.answer(asked).records, key=lambda row: -row[1])
        for limit in (1, 3, 5, 9):
            top = replace(asked, top=Top(field, limit))
            last = every[min(limit, len(every)) - 1][1]
            tied = [row for row in every if row[1] == last]
            sure = [row for row in every if row[1] > last]
            for ties in combinations(tied, min(limit, len(every)) - len(sure)):
                assert gold.check(top, Rows(top.columns, [*sure, *ties]), quiet=True) is None
            right = [*sure, *tied][:limit]
            others = [row for row in every if row[1] < last][:1]
            *before, (name, value) = right
            wrong = [before, [*right, *every[:1]], [*before, (name, value + 1)], [*before, ("p-99", value)]]
            wrong += [[*before, *others]] if others else []
            for rows in wrong:
                assert gold.check(top, Rows(top.columns, rows), quiet=True) is not None, (how, field, limit, rows)


@pytest.mark.parametrize("query", ["rows", "newest", "stored"])
def test_a_text_or_boolean_that_is_another_is_found_and_named(query: str) -> None:
    of = world(PUMPS.parent / "states.toml", scale=4)
    pump = of.measurements[0]
    gold = Gold(Feed(of, 10, 100), np.zeros(0, LEDGER_DTYPE), keeps_duplicates=True)
    names = ("state", "open", "temp")
    asked: Query = {"rows": Raw(pump, names, gold.loaded), "newest": Latest(pump, names), "stored": Stored(pump)}[query]  # type: ignore[assignment]  # of three types
    key = MemorySession(KEEP)
    for stream in range(2):
        for batch in of.batches(stream, points=1_000, last_tick=10, only=["pump"]):
            key.add(batch)
    right = labelled(asked, canonical(key.answer(asked)))
    place, flag = asked.columns.index("state"), asked.columns.index("open")
    other = next(text for text in pump.fields[0].texts if text != right[0][place])

    def found(column: int, value: Any) -> list[str]:
        rows = Rows(asked.columns, [(*right[0][:column], value, *right[0][column + 1 :]), *right[1:]])
        if isinstance(asked, Stored):
            return [one.text for one in gold.differences(asked, rows)]
        difference = gold.check(asked, rows, quiet=True)
        return [] if difference is None else [difference.text]

    for column, value in ((place, right[0][place]), (flag, right[0][flag]), (flag, int(right[0][flag]))):
        assert found(column, value) == []
    code = float(pump.fields[0].texts.index(right[0][place]))
    for column, wrong in ((place, (other, right[0][place].upper() + "_", None, code, True, "")),
                          (flag, (not right[0][flag], "t", None, 2))):  # fmt: skip
        for value in wrong:
            (said,) = found(column, value)
            assert str(right[0][column]) in said, said
    assert other in found(place, other)[0]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[true, false], weights = [1, 3]", '[true, "x"]', "open: of: needs numbers alone, texts alone, or true and"),
        ("[true, false], weights = [1, 3]", "[true, 1]", "open: of: needs numbers alone, texts alone, or true and"),
        ("[true, false], weights = [1, 3]", "[true, true]", "open: of: a value stands twice"),
        ("[true, false], weights = [1, 3]", "[true, false], min = 0", "open: min: belongs to numbers, and this field"),
        ("[true, false], weights = [1, 3]", "[true, false], null = 1.5", "open.null: must be less than 1"),
        ("[true, false], weights = [1, 3]", '[true, false], type = "int"', "open: type: belongs to numbers"),
        ('"run", "idle"', '"run", ""', "state.of"),
        ('"run", "idle"', '"run", "run "', "state: of: 'run ' begins or ends with a space"),
        ('"run", "idle"', '"run", "a\\nb"', "control character"),
        ("temp * open", "state * 2", "power: is: there is no field 'state'"),
        ('count(state)"]\nbucket', 'max(state)"]\nbucket', "select: 'state' holds no numbers, of which"),
        ("state = 'idle'", "state = 'idel'", "where: 'state' is never 'idel'; did you mean 'idle'?"),
        ("state = 'idle'", "state = 'idle' or 'run'", "where: 'state' is a field, which is compared with one text"),
        ("state = 'idle'", "state > 3", "where: 'state' holds no numbers; say state = 'run'"),
        ("state = 'idle'", "temp = 'idle'", "where: 'temp' is never 'idle'; it holds no texts"),
        ("state = 'idle'", "open > 0", "where: 'open' holds no numbers; say open = true"),
        ("alarm = true", "temp = true", "where: 'temp' is never true; only a field with of = [true, false] is"),
        (
            'order = "max(temp)"',
            'order = "min(temp)"',
            "order: 'min(temp)' is no aggregate, perhaps with asc or desc; take",
        ),
        (
            'order = "max(temp)"',
            'order = "temp"',
            "order: 'temp' is no aggregate, perhaps with asc or desc; take one of",
        ),
        (
            'select = ["max(temp)", "count(state)"]\nby = ["pump"]\norder = "max(temp)"',
            'select = ["temp"]\norder = "temp desc"',
            "order: of fields it is 'time desc', the newest rows of the window, or 'time asc'",
        ),
        ('order = "max(temp)"\n', "", "limit: belongs to order, and to the newest buckets"),
        ("limit = 3\n", "", "limit: belongs to order, and to the newest buckets"),
        ("limit = 3\n", 'limit = 3\nbucket = "1m"\n', "order: belongs to aggregates by tags"),
        ("alarm = true", "alrm = true", "where: 'pump' has no field 'alrm'; did you mean 'alarm'?"),
    ],
)
def test_a_mistake_with_texts_or_booleans_is_one_line(old: str, new: str, why: str, tmp_path: Path) -> None:
    expect_one_line(STATES, (old, new), why, tmp_path)


def test_values_that_a_database_cannot_hold_are_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = 'about = "p"\n[tags]\npump = { number = "p-{}" }\n[[measurement]]\nname = "m"\nfields.x = { walk = 1 }\n'
    (tmp_path / "pumps.toml").write_text(case)
    text = SCENARIO[: SCENARIO.index("[[op]]")].replace('"sqlite"', '"victoriametrics"') + "[[op]]\nwrite = 10\n"
    (tmp_path / "s.toml").write_text(text)
    assert main(["run", str(tmp_path / "s.toml"), "--dry-run"]) == 2
    says(complaint(capsys.readouterr().err), "world.use_case: VictoriaMetrics cannot express", "world.decimals = 4")
    assert main(["run", str(tmp_path / "s.toml"), "--dry-run", "--set", "world.decimals=4"]) == 0
    (tmp_path / "pumps.toml").write_text(case.replace("walk = 1", "walk = 1, decimals = 4"))
    assert main(["run", str(tmp_path / "s.toml"), "--dry-run"]) == 0  # the same name, other data
    (tmp_path / "pumps.toml").write_text(case)
    assert main(["run", str(tmp_path / "s.toml"), "--dry-run"]) == 2


def test_rows_are_ordered_by_values_that_each_group_has(tmp_path: Path) -> None:
    gaps = (PUMPS.parent / "gaps.toml").read_text(encoding="utf-8")
    why = "query.warmest.order: points lack 'vib', and databases differ on the place of none"
    expect_one_line(gaps, ('order = "max(temp)"', 'order = "max(vib)"'), why, tmp_path)


def test_a_use_case_goes_through_the_phases_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pumps.toml").write_text(TEXT)
    endpoint = f"sqlite://{tmp_path / 'x.db'}"
    of_world = ["--use-case", str(tmp_path / "pumps.toml"), "--scale", "10", "--end", "2016-01-01T01:00:00Z"]
    points, asked = str(tmp_path / "points.zst"), str(tmp_path / "q.jsonl")
    kinds = [word for kind in KINDS for word in ("--type", kind)]
    place = ["--endpoint", endpoint]
    for words in (
        ["generate", *of_world, "--out", points],
        ["load", "sqlite", points, *place, "--out", str(tmp_path / "r")],
        ["queries", *of_world, *kinds, "--count", "54", "--out", asked],
        ["query", "sqlite", asked, *place, "--out", str(tmp_path / "r")],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
    (tmp_path / "pumps.toml").unlink()  # the file of queries has what it says
    assert main(["validate", "sqlite", asked, *place]) == 0, capsys.readouterr()
    says(capsys.readouterr().out, "54 of 54 answers are right")


OF_DEVOPS = """
question = "Own queries about a built-in world"
world = { use_case = "devops", scale = 4, streams = 2 }
load.window = "20m"
drive = { users = 1, warmup = "0s", duration = "1s" }
target.name = "sqlite"
op = [{ query = "busy" }, { query = "read" }, { query = "datacenters" }]
[[query]]
name = "busy"
select = ["usage_user", "usage_system"]
where = ["usage_user > 50"]
window = "5m"
series = 2
[[query]]
name = "read"
of = "diskio"
select = ["sum(reads)"]
by = ["hostname"]
bucket = "1m"
share = 1.0
[[query]]
name = "datacenters"
select = ["mean(usage_user)", "max(usage_user)"]
by = ["region", "datacenter"]
share = 1.0
"""


@pytest.mark.slow
def test_a_scenario_may_ask_queries_of_its_own_about_a_built_in_use_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers_of_a_run(OF_DEVOPS, tmp_path, capsys)
    (path,) = (tmp_path / "results").glob("*/*/summary.json")
    assert {*json.loads(path.read_text())["measured"]["ops"]} >= {"busy", "read", "datacenters"}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"busy"\nselect', '"lastpoint"\nselect', "query.lastpoint: is the name of a built-in query"),
        ("usage_user > 50", "usage_usr > 50", "query.busy.where: 'cpu' has no field 'usage_usr'; did you mean"),
        ('of = "diskio"', 'of = "diskoi"', "query.read.of: there is no measurement 'diskoi'; did you mean 'diskio'?"),
        ('by = ["hostname"]', 'by = ["regoin"]', "query.read.by: there is no tag 'regoin'; did you mean 'region'?"),
        ('"devops",', '"devops", form = "pareto",', "world.form: 'devops' has no form 'pareto'"),
        ('query = "busy"', 'query = "bussy"', "there is no query 'bussy' in the use case devops; did you mean 'busy'?"),
        ("bucket =", "buckets =", "query.1.buckets: unknown key; did you mean 'bucket'?"),
    ],
)
def test_a_mistake_in_a_scenarios_queries_is_named(old: str, new: str, why: str, tmp_path: Path) -> None:
    assert old in OF_DEVOPS
    (tmp_path / "s.toml").write_text(OF_DEVOPS.replace(old, new, 1))

    def check() -> None:
        (cell,) = Scenario.load(tmp_path / "s.toml").expand()
        check_spec(cell, str(tmp_path / "s.toml"))

    with pytest.raises(UserMistake) as caught:
        check()
    says(str(caught.value), "s.toml: ", why)


_JITTER = st.sampled_from(["0s", "1s", "15s"])


@st.composite
def use_cases(draw: st.DrawFn) -> dict[str, object]:
    """Draw a valid use case with queries of every form about a measurement, and maybe another that has rarer points."""
    number = st.integers(-50, 50)
    pair = st.tuples(number, number).filter(lambda ends: ends[0] < ends[1]).map(list)
    process = st.one_of(
        st.builds(lambda sd, ends: {"walk": sd, "min": ends[0], "max": ends[1]}, st.floats(0.01, 9), pair),
        st.builds(lambda mean, sd: {"normal": [mean, sd]}, number, st.floats(0.1, 30)),
        pair.map(lambda ends: {"uniform": ends}),
        st.builds(lambda step: {"counter": step}, st.floats(0.1, 20)),
        st.lists(number, min_size=1, max_size=5).map(lambda values: {"of": values}),
        st.integers(1, 20).map(lambda bits: {"entropy": bits}),
        number.map(lambda value: {"constant": value}),
    )
    names = [f"f{i}" for i in range(draw(st.integers(1, 4)))]
    fields = {name: draw(process) | {"type": draw(st.sampled_from(["float", "int"]))} for name in names}
    fields = {name: field | ({"decimals": 3} if field["type"] == "float" else {}) for name, field in fields.items()}
    gaps = ["mean(gap)", "count(gap)", "max(gap)"] if draw(st.booleans()) else []
    if gaps:
        fields["gap"] = {"uniform": [-9, 9], "null": draw(st.sampled_from([0.02, 0.5, 0.98]))}
        fields["gap"] |= draw(st.sampled_from([{"decimals": 2}, {"type": "int"}]))
    fields["sum"] = {"is": " + ".join(names), "decimals": 3}
    some = draw(st.lists(st.sampled_from([*names, "sum"]), min_size=1, max_size=3, unique=True))
    rows = [*some, *(["gap"] if gaps else [])]
    flags = draw(st.booleans())
    if flags:
        fields["state"] = {
            "of": draw(
                st.lists(
                    st.text("ab'\"\\ é%", min_size=1).map(lambda text: f"<{text}>"), min_size=2, max_size=4, unique=True
                )
            )
        }
        fields["open"] = {"of": [True, False], "stays": "1m"}
        for name in ("state", "open"):
            fields[name] |= draw(st.sampled_from([{}, {"null": 0.1}, {"null": 0.9}]))
        rows += ["state", "open"]
    aggregate = draw(st.sampled_from(["max", "mean", "sum", "count"]))
    aggregates = [f"{aggregate}({name})" for name in some]
    bucket = draw(st.sampled_from(["30s", "1m", "7m"]))
    compared = f"{some[0]} {draw(st.sampled_from(COMPARISONS))} {draw(number)}"
    asked = [
        {"name": "rows", "select": rows, "window": "5m", "series": draw(st.integers(1, 3))},
        {
            "name": "above",
            "select": rows,
            "where": [compared, "sum < 90", *(["open = true"] if flags else [])],
            "share": 1.0,
        },
        {
            "name": "newest-of-one",
            "select": rows,
            "where": draw(st.sampled_from([[], [compared]])),
            **draw(st.sampled_from([{}, {"series": 1}, {"series": 2}])),
            "order": draw(st.sampled_from(["time desc", "time asc"])),
            "limit": draw(st.integers(1, 30)),
            "window": "5m",
        },
        {"name": "together", "select": aggregates, "bucket": bucket, "window": "8m"},
        {"name": "each", "select": [*aggregates, *gaps], "bucket": bucket, "by": ["unit"], "share": 0.5},
        {"name": "newest", "select": rows, "newest": True},
        {
            "name": "by-kind",
            "select": [*aggregates, f"min({some[-1]})", *gaps, *(["count(state)"] if flags else [])],
            "by": draw(st.permutations(["kind", "unit"]))[: draw(st.integers(0, 2))],
            "where": draw(st.sampled_from([[], [compared], ["kind = 'x'"]])),
            "share": draw(st.floats(0.1, 1.0)),
            **draw(st.sampled_from([{}, {"bucket": bucket}])),
        },
        {
            "name": "first",
            "select": aggregates,
            "by": ["unit"],
            "order": aggregates[0],
            "limit": draw(st.integers(1, 6)),
            "share": 1.0,
        },
        {
            "name": "ends",
            "select": [*(f"{how}({name})" for how in ("last", "first", "mean") for name in some), *gaps],
            "by": draw(st.permutations(["kind", "unit"]))[: draw(st.integers(0, 2))],
            "where": draw(st.sampled_from([[], [compared]])),
            "share": draw(st.floats(0.1, 1.0)),
            **draw(st.sampled_from([{}, {"bucket": bucket}])),
        },
        {
            "name": "percentiles",
            "select": [f"{how}({name})" for how in ("p50", "p95", "last") for name in some],
            "by": draw(st.permutations(["kind", "unit"]))[: draw(st.integers(0, 2))],
            "share": 0.7,
            **draw(st.sampled_from([{}, {"bucket": bucket}])),
        },
        {
            "name": "of-kind",
            "select": rows,
            "draw": {"kind": 1},
            "where": draw(st.sampled_from([[], ["kind = 'y z'"], ["unit = 'u0' or 'u1'"]])),
            "newest": draw(st.booleans()),
        },
        {"name": "last", "select": aggregates, "bucket": "1m", "newest": True, "limit": draw(st.integers(1, 4))},
    ]
    if gaps:
        asked += [{"name": "gaps", "select": ["gap"], "where": draw(st.sampled_from([[], [compared]])), "share": 1.0}]
    tags = {"unit": {"number": "u{}"}, "kind": {"of": ["x", "y z"]}}
    churn = draw(st.sampled_from([{}, {"churn": {"lifetime": "2m", "generations": 3}}]))
    measurements: list[dict[str, object]] = [{"name": "m", "fields": fields, "jitter": draw(_JITTER)}]
    if draw(st.booleans()):
        fields = {"level": {"uniform": [0, 9], "decimals": 2}}
        is_sparse = draw(st.booleans())
        if is_sparse:  # no field is in each point
            fields["level"]["null"] = 0.7
            fields["note"] = {"of": ["<a>", "<b>"], "null": 0.6}
        every = draw(st.sampled_from(["15s", "30s", "75s"]))
        measurements.append({"name": "rare", "fields": fields, "interval": every, "jitter": draw(_JITTER)})
        level = {"of": "rare", "select": [*fields], "share": 0.6}
        asked += [{"name": "rare-rows", **level}]
        asked += [] if is_sparse else [{"name": "rare-newest", "of": "rare", "select": ["level"], "newest": True}]
        asked += [
            {"name": "rare-sums", **level, "select": ["sum(level)", "count(level)"], "by": ["unit"], "bucket": "1m"}
        ]
    return {"about": "drawn", "tags": tags, "measurement": measurements, "query": asked, **churn}


def expect_right_answers(document: dict[str, object], seed: int, target: Target, url: str) -> None:
    """Verify that a database answers each query of a drawn use case as its answer key, or cannot ask it."""
    described = UseCaseFile.model_validate(document, context="file")
    of = World(
        WorldPart(use_case="drawn", described=described, scale=5, seed=seed, streams=2, interval=15 * NS_PER_S).spec()
    )
    schema = next(iter(target.schemas.values()))
    try:
        expect_room_for(of, target, schema)
        stand = Stand(of, target, schema, url, 40).load()
    except UserMistake:  # no texts, no point without a field that each has, no backslash in a text
        assert target.name in {"influxdb1", "questdb", "victoriametrics"}
        return
    with closing(stand.connect()) as session:
        session.run(schema.settle(of.measurements))
    gold = stand.gold()
    kinds = [query.name for query in described.query]
    assert set(kinds) <= set(fitting(of, gold.loaded))
    answers = stand.asked(gold, kinds, 3 * len(kinds))
    assert answers.checked >= (2 if answers.unsupported else 3) * (len(kinds) - len(answers.unsupported))
    assert answers.wrong == 0, (target.name, answers.verdict(), answers.first_wrong)
    assert stand.false_verdicts(gold) == set()
    with closing(stand.connect()) as session:
        session.run(schema.drop(of.measurements))


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(use_cases(), st.integers(0, 99))
def test_answers_about_any_use_case_are_the_answer_keys(document: dict[str, object], seed: int) -> None:
    for name in ("sqlite", "duckdb"):
        with TemporaryDirectory() as place:
            expect_right_answers(document, seed, TARGETS_BY_NAME[name], f"{name}://{place}/x.db")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [pytest.param(name, marks=getattr(pytest.mark, mark)) for name, mark in MARKS.items()])
def test_answers_about_any_use_case_are_right_on_a_server(name: str, tmp_path: Path) -> None:
    target = TARGETS_BY_NAME[name]
    with serving(name, tmp_path) as url:

        @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None, phases=[Phase.generate])
        @given(use_cases(), st.integers(0, 99))
        def right(document: dict[str, object], seed: int) -> None:
            expect_right_answers(document, seed, target, url)

        right()


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('about = "pumps of a water works"\n', "", "about: is missing"),
        ("[tags]", "[tag]", "tag: unknown key; did you mean 'tags'?"),
        (
            "[tags]",
            "[zzz]\n[tags]",
            "zzz: unknown key; known are about, recording, tags, measurement, form, world, churn, query",
        ),
        ("normal = [1450, 20]", "normal = { mean = 5 }", "rpm.normal: must be a list (given: a table)"),
        ('number = "p-{:05}"', 'number = "p-{:05}", count = 3', "none is the key; exactly one tag has number"),
        ('number = "s-{}", count = 40', 'number = "s-{}"', "pump and site are the key"),
        ('"p-{:05}"', '"p-"', "'p-' needs the place of the number"),
        ('"p-{:05}"', '"{}-{}"', "needs the number of digits of each place but the first"),
        ('"p-{:05}"', '"{0.__class__}"', "needs the place of the number"),
        ("weights = [8, 1, 1]", "weights = [8, 1]", "weights: needs one number for each value"),
        ("weights = [8, 1, 1]", "weights = [0, 0, 0]", "must not be below 0, nor all 0"),
        ('per = "site"', 'per = "street"', "tags.model.per: 'street' is no tag above it"),
        ('of = ["A7", "B2", "C"]', 'of = ["A7", "A7", "C"]', "needs different texts"),
        ('name = "valve"', 'name = "Pump"', "measurement: 'Pump' stands twice"),
        ('name = "valve"', 'name = "tags"', "is a name that databases use themselves"),
        ('name = "valve"', 'name = "a b"', "'a b' is no name; take at most 60 letters"),
        ("noise  =", "time  =", "'time' is a name that databases use themselves"),
        ("noise  =", "Temp  =", "'Temp' stands twice"),
        ("noise  =", "site  =", "'site' stands twice"),
        ("entropy = 12", "entropy = 99", "entropy: must be at most 52"),
        ("entropy = 12", "entropi = 12", "entropi: unknown key; did you mean 'entropy'?"),
        ("entropy = 12", "entropy = 12, walk = 1", "has walk and entropy; it needs exactly one of"),
        ("entropy = 12", "decimals = 1", "has no process; it needs exactly one of walk"),
        ("normal = [1450, 20]", "normal = [1450, 0]", "needs [mean, standard deviation], the second above 0"),
        ("normal = [1450, 20]", "normal = [1450]", "rpm.normal"),
        ("normal = [1450, 20]", "normal = 5", "rpm.normal: must be a list"),
        ("min = -20", "min = 200", "min: must be below max"),
        ('stays = "20m"', "stays = 20", "needs a unit; write for example '20s'"),
        ("entropy = 12", 'entropy = 12, stays = "1m"', "stays: belongs to of and uniform"),
        ("entropy = 12", "entropy = 12, changes = 0.5", "changes: belongs to of and uniform"),
        ('stays = "20m"', 'stays = "20m", changes = 0.5', "changes: needs no stays"),
        ("entropy = 12", 'entropy = 12, edge = "clamp"', "edge: belongs to walk"),
        ("walk = 0.1, first = 40, min = -20", 'walk = 0.1, edge = "clamp"', "edge: needs min and max"),
        ("entropy = 12", 'entropy = 12, steps = "uniform"', "steps: belongs to walk"),
        ("entropy = 12", "entropy = 12, truncate = true", "truncate: needs decimals; say how many stay"),
        ("first = 40", "first = [40, 20]", "first: needs [least, most]"),
        ('per = "site"', 'within = "site"', "within: belongs to lists by the values of that tag"),
        ('of = ["A7", "B2", "C"], weights = [8, 1, 1], per = "site"', "of = { x = ['a'] }", "within: belongs to lists"),
        (MODEL, "of = { x = ['a'] }, within = 'sight'", "tags.model.within: 'sight' is no tag above it"),
        (MODEL, "of = { x = ['a'] }, within = 'site'", "tags.model.within: 'site' has no list of values"),
        (MODEL, MODEL + MORE + 'C = ["c"] }', "tags.more.of: has no list for 'B2' of 'model'"),
        (MODEL, MODEL + MORE + 'B2 = ["b", "b"], C = ["c"] }', "tags.more: of: needs different texts"),
        (MODEL, MODEL + MORE + 'B2 = [], C = ["c"] }', "tags.more.of"),
        (MODEL, MODEL + MORE + 'B2 = ["b"], C = ["c"], D = ["d"] }', "tags.more.of: 'model' is never 'D'; there are"),
        ("[[query]]", "[form.bounded]\n[[query]]", "form.bounded: is the name of the file itself"),
        ("[[query]]", "[form.peer]\nlate = 2.0\n[[query]]", "late: must be at most 1"),
        (
            "[[query]]",
            "[form.peer]\nlost = 0.8\nheld = 0.8\n[[query]]",
            "form.peer: disorder.lost + disorder.held",
        ),
        ("[[query]]", "[form.peer]\nlatte = 0.1\n[[query]]", "latte: unknown key; did you mean 'late'?"),
        ("entropy = 12", "entropy = 12, first = 1", "first: belongs to walk and counter"),
        ("rpm * 0.12", "rpn * 0.12", "power: is: there is no field 'rpn'; did you mean 'rpm'?"),
        ("rpm * 0.12", "rpm.x", "cannot be used: there are + - * /"),
        (
            'power  = { is = "rpm * 0.12 + temp"',
            'more = { is = "power" }\npower = { is = "more"',
            "is: it depends on itself",
        ),
        ('select = ["temp", "power"]', 'select = ["tempo"]', "query.hot-pumps.select: 'pump' has no field 'tempo'"),
        (
            'where = ["temp > 41.5"',
            'where = ["temp like 41.5"',
            "is neither FIELD > NUMBER (or >= < <= =), FIELD = true, FIELD = 'TEXT' nor TAG",
        ),
        ('where = ["temp > 41.5"', 'where = ["tmp > 41.5"', "'pump' has no field 'tmp'; did you mean 'temp'?"),
        ('by = ["pump"]', 'by = ["sight"]', "query.hourly.by: there is no tag 'sight'; did you mean 'site'?"),
        ('by = ["pump"]', 'by = ["pump", "pump"]', "query.hourly.by: a tag stands twice"),
        ('"max(power)"', '"power"', "needs fields alone, or aggregates alone, such as max(temp)"),
        ('"max(power)"', '"max(temp)"', "an aggregate stands twice"),
        ("draw = { site = 2 }", "draw = { pump = 2 }", "query.site-load.draw: 'pump' is the key; say series = 2"),
        ("draw = { site = 2 }", "draw = { model = 9 }", "query.site-load.draw: 'model' has 3 values, not 9"),
        ("draw = { site = 2 }", "draw = { side = 1 }", "query.site-load.draw: there is no tag 'side'"),
        ("model = 'A7' or 'B2'", "model = 'A8'", "query.common.where: 'model' is never 'A8'; there are A7, B2, C"),
        ("model = 'A7' or 'B2'", "model = A7", "FIELD = 'TEXT' nor TAG = 'TEXT'"),
        ("newest = true\ndraw", 'newest = true\nwhere = ["temp > 3"]\ndraw', "is chosen by tags alone, not by its"),
        ('select = ["sum(energy)"]', 'select = ["sum(energy)", "max(rpm)"]', "the same aggregate of each field"),
        (
            'select = ["sum(energy)"]',
            'select = ["last(energy)"]',
            "newest: buckets are of max, min, mean, sum or count",
        ),
        ('"max(power)"', '"p0(power)"', "needs fields alone, or aggregates alone, such as max(temp)"),
        ("entropy = 12", "entropy = 12, null = 1.5", "noise.null: must be less than 1"),
        (
            "entropy = 12",
            "entropy = 12, null = 0.1, hidden = true",
            "null: belongs to fields that are stored",
        ),
        ("of = [0, 1, 2]", 'of = ["a", ""]', "fields.state.of.1: must be a text of at least 1 letter"),
        ("share = 1.0", 'share = 1.0\nwindow = "1m"', "share: needs no window"),
        ("share = 1.0", "share = 1.5", "share: must be at most 1"),
        ("series = 5", 'popularity = "zipf"', "popularity: needs series"),
        ("limit = 5", "", "limit: belongs to order, and to the newest buckets"),
        ('of = "valve"', 'of = "valves"', "there is no measurement 'valves'; did you mean 'valve'?"),
        ('name = "newest"', 'name = "hourly"', "query: 'hourly' stands twice"),
        ("open = { uniform = [0, 100]", "open = { uniform = [100, 0]", "needs [least, most]"),
        (
            'side = { of = ["in", "out"] }',
            'side = { number = "x{}" }',
            "and tags with per or within, are in [tags]",
        ),
        ("decimals = 2 }", "decimals = 2", "not TOML"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_cure(old: str, new: str, why: str, tmp_path: Path) -> None:
    expect_one_line(TEXT, (old, new), why, tmp_path)


def test_files_that_are_not_there_and_names_that_are_taken_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devops.toml").write_text(TEXT)
    (tmp_path / "own data.toml").write_text(TEXT)
    out = ("--out", str(tmp_path / "points"))
    for name, why in (
        ("absent.toml", "no such use case; see `tsbench list use-cases`"),
        ("devops.toml", "'devops' is a built-in use case; rename the file"),
        ("own data.toml", "take letters, digits and hyphens"),
    ):
        assert main(["generate", "--use-case", str(tmp_path / name), *out]) == 2
        says(complaint(capsys.readouterr().err), name, why)
        assert not (tmp_path / "points").exists()


PIECES = (
    *("[1, 2]", "-1", "1e999", "nan", '"x"', "true", "{}", "[]", '"{}"', '"1m"', "{ of = 3 }", "''"),
    *("99999999999999999999", "is", "per", "1e300"),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path, data: st.DataObject) -> None:
    words = re.split(r"([\s=,\[\]{}]+)", TEXT)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place] = data.draw(st.sampled_from([*PIECES, "", *words]) | st.text(max_size=4))
    (tmp_path / "own.toml").write_text("".join(words), encoding="utf-8", errors="replace")
    mistake, described = "", None
    try:
        described = read_use_case(tmp_path / "own.toml")
    except UserMistake as error:
        mistake = str(error)
    if described is None:
        assert mistake.startswith(str(tmp_path / "own.toml"))
        assert "\n" not in mistake
        return
    of = World(WorldPart(use_case="own", described=described, scale=3, streams=1).spec())
    for batch in points(of, 5).values():
        assert all(np.isfinite(column).all() for column in batch.fields.values())
