"""What use-case files say so that the built-in use cases can be such files: forms, a base, names, laws of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.scenario.test_use_case import expect_one_line
from tsbench.model import Window
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.use_case import built_in_spec, resolved
from tsbench.units import NS_PER_S
from tsbench.workload import queries
from tsbench.workload.world import BUILT_IN, World

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FILE = """\
about = "x"
[tags]
name = { number = "-{}", of = ["Rome", "Oslo"] }
serial = { number = "{:03}-{:03}", count = 1_000_000, first = 7 }
[[measurement]]
name = "m"
[measurement.fields]
drifting = { walk = 0.5, drift = 2, first = 0 }
rising = { counter = 50, steps = "normal", type = "int", truncate = true }
steady = { of = [3, 5, 8], changes = 0 }
share = { walk = 0.01, min = 0, max = 1, is = "1000 * share", type = "int", truncate = true }
left = { is = "1000 - share" }
age = { is = "elapsed / 60" }
temp = { walk = 0.3, min = 0, max = 50.3, decimals = 2 }
cut = { uniform = [-5, 5], type = "int", truncate = true }
huge = { constant = 1e300, type = "int", truncate = true }
wide = { walk = 1e299, min = -1e300, max = 1e300 }
[form.still.fields.m]
temp = { constant = 20.125, decimals = 2 }
"""


def world(place: Path, text: str = FILE, **keys: object) -> World:
    """Return the world of a file with this text."""
    path = place / "towns.toml"
    path.write_text(text, encoding="utf-8")
    table = resolved({"use_case": path.name, "scale": 5, "streams": 1, **keys}, place)
    return World(WorldPart.model_validate(table).spec())


def columns(made: World, ticks: int = 400) -> dict[str, NDArray[np.float64]]:
    """Return the fields of the first measurement, of shape (ticks, series)."""
    (batch,) = made.batches(0, points=ticks * made.spec.scale, last_tick=ticks, only=[made.measurements[0].name])
    return {name: np.asarray(values).reshape(ticks, -1) for name, values in batch.fields.items()}


def test_names_are_taken_in_turn_and_numbered_from_the_second_round_on(tmp_path: Path) -> None:
    made = world(tmp_path)
    assert made.keys() == ("Rome", "Oslo", "Rome-2", "Oslo-2", "Rome-3")
    serials = made.texts("serial")
    assert all(len(text) == 7 and text[3] == "-" and text.replace("-", "").isdigit() for text in serials)
    assert len({*serials}) == 5


def test_processes_are_what_the_file_says(tmp_path: Path) -> None:
    of = columns(world(tmp_path))
    assert abs(np.diff(of["drifting"], axis=0).mean() - 2) < 0.05
    steps = np.diff(of["rising"], axis=0)
    assert abs(steps.mean() - 50) < 0.2
    assert 0.7 < steps.std() < 1.6  # one of the step itself, and what truncation adds
    assert 1 < len({*of["steady"].ravel()} & {3.0, 5.0, 8.0}) == len({*of["steady"].ravel()})
    assert (of["steady"] == of["steady"][0]).all()
    assert (of["age"] == np.arange(400)[:, None] * 10 / 60).all()
    assert {*np.unique(of["cut"])} == {*range(-4, 5)}  # toward zero
    assert (of["huge"] == 2**53).all()  # what an integer of a float can be
    assert np.abs(of["wide"]).max() <= 1e300


def test_an_expression_may_have_what_its_own_process_makes(tmp_path: Path) -> None:
    of = columns(world(tmp_path))
    assert of["share"].min() >= 0
    assert 100 < of["share"].max() <= 1000
    assert (of["left"] == 1000 - of["share"]).all()  # of the field as it is stored


def test_decimals_are_those_of_the_value_that_is_stored(tmp_path: Path) -> None:
    """The walk is of single precision: 24.99 was stored as 24.989999771118164."""
    temp = columns(world(tmp_path))["temp"]
    assert (temp == np.round(temp, 2)).all()
    assert temp.max() <= 50.3
    finer = columns(world(tmp_path, decimals=4))["temp"]
    assert (finer == np.round(finer, 4)).all()
    assert (finer != np.round(finer, 2)).any()
    assert np.abs(finer - temp).max() <= 0.0051


def test_a_form_has_other_fields_and_the_rest_as_it_is(tmp_path: Path) -> None:
    plain, still = columns(world(tmp_path)), columns(world(tmp_path, form="still"))
    assert (still.pop("temp") == 20.12).all()
    plain.pop("temp")
    assert all((plain[name] == still[name]).all() for name in plain)


def test_a_specification_has_what_the_file_says_and_nothing_else(tmp_path: Path) -> None:
    """Each key with its default would be a line of the report."""
    world(tmp_path)
    part = WorldPart.model_validate(resolved({"use_case": "towns.toml", "form": "still"}, tmp_path))
    written = part.model_dump(mode="json")
    assert written["described"]["measurement"][0]["fields"]["drifting"] == {"walk": 0.5, "drift": 2.0, "first": 0.0}
    assert {*written["described"]} == {"about", "tags", "measurement", "form"}
    assert WorldPart.model_validate(written) == part


def test_a_base_gives_its_tags_measurements_and_queries(tmp_path: Path) -> None:
    base = 'about = "y"\nbase = "devops"\n'
    whole = world(tmp_path, base)
    assert [m.name for m in whole.measurements][:2] == ["cpu", "diskio"]
    assert "lastpoint" in whole.kinds
    some = world(tmp_path, base + 'measurements = ["mem", "disk"]\n', form="peer")
    assert [m.name for m in some.measurements] == ["disk", "mem"]
    assert not some.kinds  # all of them ask for cpu
    (tmp_path / "base.toml").write_text(FILE.replace('"Rome"', '"Bern"'))
    of_file = world(tmp_path, 'about = "y"\nbase = "base.toml"\n')
    assert of_file.keys()[:2] == ("Bern", "Oslo")


def test_a_series_by_itself_has_no_tags(tmp_path: Path) -> None:
    text = 'about = "x"\n[[measurement]]\nname = "m"\nfields.lag = { pareto = [1.2, 1] }\n'
    (tmp_path / "lag.toml").write_text(text)
    table = resolved({"use_case": "lag.toml"}, tmp_path)
    alone = World(WorldPart.model_validate(table).spec())
    assert (alone.key, dict(alone.tags()), alone.spec.scale) == (None, {}, 1)
    with pytest.raises(ValueError, match="is a single series, without tags: scale must be 1, not 5"):
        world(tmp_path, text)


def test_queries_may_take_measurements_in_turn() -> None:
    made = World(built_in_spec("sensors", 3, 1, 0, 10 * NS_PER_S))
    loaded = Window(0, made.time_ns(99))
    asked = [queries.make("last-value", made, loaded, 1, number).measurement.name for number in range(9)]
    assert asked[:7] == [m.name for m in made.measurements]
    assert asked[7:] == asked[:2]


def test_every_built_in_use_case_is_a_file_to_begin_from(tmp_path: Path) -> None:
    assert [*BUILT_IN] == ["cpu-only", "devops", "iot", "replication", "sensordata", "sensors", "stocks"]
    for name, path in BUILT_IN.items():
        copy = world(tmp_path, path.read_text(encoding="utf-8"), scale=1)
        ours = World(built_in_spec(name, 1, 1, copy.spec.start_ns, copy.spec.interval_ns))
        assert copy.measurements == ours.measurements
        assert [*copy.kinds] == [*ours.kinds]


ALONE = 'about = "x"\n[[measurement]]\nname = "m"\nfields.a = { walk = 1 }\n'


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('number = "-{}", of', 'number = "x{}", of', "tags.name: number: beside names in `of` it is what follows them"),
        ('number = "-{}", of', 'number = "-{}-{:02}", of', "tags.name: number: beside names"),
        ('"Rome", "Oslo"', '"Rome", "Rome-2"', "tags.name: of: 'Rome-2' is also what the second round makes"),
        ('"{:03}-{:03}"', '"{:03}-{}"', "tags.serial: number: '{:03}-{}' needs the number of digits of each place but"),
        ("first = 7", "first = -7", "tags.serial.first: must be at least 0"),
        ('number = "{:03}-{:03}", count = 1_000_000', 'of = ["a"]', "tags.serial: first: belongs to number"),
        ("[3, 5, 8], changes = 0", "[3, 5, 8], changes = 1", "steady.changes: must be less than 1"),
        ("drift = 2", "drift = true", "drifting.drift"),
        ("counter = 50,", "counter = 50, drift = 1,", "drift: belongs to walk"),
        ("constant = 20.125,", 'constant = 20, steps = "normal",', "steps: belongs to walk and counter"),
        ("1000 * share", "1000 * left", "it depends on itself"),
        ("1000 - share", "1000 - left", "left: is: there is no field 'left'"),
        ("elapsed / 60", "ellapsed / 60", "age: is: there is no field 'ellapsed'; did you mean 'elapsed'?"),
        (
            "[form.still.fields.m]",
            "[form.still.fields.n]",
            "form.still.fields: there is no measurement",
        ),
        ("[form.still.fields.m]\ntemp", "[form.still.fields.m]\ntmp", "'m' has no field 'tmp'; did you mean 'temp'?"),
        ("constant = 20.125", 'type = "int", constant = 20', "form.still.fields.m.temp: differs in type, unit, null"),
        ("constant = 20.125", 'is = "temper"', "form.still.fields.m.temp: is: there is no field 'temper'"),
        ("[form.still", '[form."no form"', "form: 'no form' is no name"),
        (
            FILE,
            ALONE + '[[query]]\nname = "q"\nselect = ["a"]\nseries = 2\n',
            "there is a single series, without tags",
        ),
        (FILE, ALONE + 'tags.b = { of = ["c"] }\n', "measurement.m.tags: needs [tags] with a key"),
        (FILE, 'about = "y"\nbase = "devop"\n', "devop: no such use case"),
        (FILE, 'about = "y"\nbase = 5\n', "base: needs a built-in use case (`tsbench list use-cases`) or a file"),
        (FILE, 'about = "y"\nbase = "cpu-only"\n', "base: 'cpu-only' and this one need to simulate"),
        (FILE, 'about = "y"\nbase = "devops"\nmeasurements = ["cpus"]\n', "'devops'; did you mean 'cpu'?"),
        (FILE, 'about = "y"\nbase = "devops"\nmeasurements = []\n', "measurements: needs names of measurements of"),
        (FILE, 'about = "y"\nbase = "devops"\nmeasurements = "cpu"\n', "measurements: needs names of measurements of"),
        (FILE, 'about = "y"\nmeasurements = ["cpu"]\n', "measurements: belongs to base"),
        (FILE, 'about = "y"\nbase = "devops"\n[recording]\nfiles = "x.csv"\n', "base: 'devops' and this one need to"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_cure(old: str, new: str, why: str, tmp_path: Path) -> None:
    expect_one_line(FILE, (old, new), why, tmp_path)
