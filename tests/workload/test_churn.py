"""Series end and others begin: how many live, how long, which are asked about; wrong rows of them are found."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.scenario.test_use_case import PUMPS, expect_one_line, world
from tests.workload.test_world import START_NS, churning, spec
from tsbench.check.answers import Answers, read_back
from tsbench.check.stored_rows import Flaw
from tsbench.model import Latest, Raw, Window
from tsbench.targets.sqlite import TARGET
from tsbench.targets.sqlite.schemas import WAL
from tsbench.testing.stand import Stand
from tsbench.workload import queries
from tsbench.workload.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PODS = PUMPS.parent / "pods.toml"
TEXT = PODS.read_text(encoding="utf-8")
LIFE, GENERATIONS = 30, 4
"""Ticks that a series of the file lives, and how many have each place."""


def lives(made: World, ticks: int) -> NDArray[np.bool_]:
    """Return which series have a point at which tick, of shape (ticks, series)."""
    alive = np.zeros((ticks, made.series), dtype=np.bool_)
    for stream in range(made.spec.streams):
        for batch in made.batches(stream, points=50, last_tick=ticks):
            alive[(batch.time_ns - made.spec.start_ns) // made.spec.interval_ns, batch.series] = True
    return alive


def test_as_many_live_at_each_time_and_each_lives_as_long_as_the_file_says() -> None:
    made = world(PODS, scale=40)
    alive = lives(made, GENERATIONS * LIFE)
    assert (made.series, made.keys()[-1]) == (160, "pod-00159")
    assert (alive.sum(axis=1) == 40).all()
    assert (alive.sum(axis=0) == LIFE).all()  # in as many ticks as all have, one round
    begins = (np.diff(alive.astype(int), axis=0) == 1).sum(axis=1)
    assert 40 / LIFE * 0.9 < begins.mean() <= 40 / LIFE
    assert begins.max() <= 6  # at different times
    again = lives(made, 2 * GENERATIONS * LIFE)
    assert (again[GENERATIONS * LIFE :] == alive).all()  # the first ones come back


def test_tags_and_values_are_those_of_a_world_without_churn() -> None:
    """A place goes on with its values, and the first generation has the keys and tags that it had."""
    plain, churned = World(spec("cpu-only")), World(churning(spec("cpu-only"), 100, 3))
    for name, codes in plain.tags().items():
        assert churned.tags()[name].tolist()[: plain.series] == codes.tolist()
    one, other = (next(made.batches(0, points=210, last_tick=30)) for made in (plain, churned))
    assert (other.series % 7 == one.series).all()
    assert all((other.fields[name] == one.fields[name]).all() for name in one.fields)


def test_queries_choose_among_the_series_that_live_when_their_window_begins() -> None:
    made = world(PODS, scale=40)
    loaded = Window(START_NS, made.time_ns(2 * GENERATIONS * LIFE))
    alive = lives(made, 2 * GENERATIONS * LIFE)
    number_of = {key: series for series, key in enumerate(made.keys())}
    chosen = set()
    for number in range(200):
        query = queries.make("of-a-pod", made, loaded, 1, number)
        assert not isinstance(query, Latest | Raw)
        tick = made.ticks(query.window.start_ns - START_NS)  # type: ignore[union-attr]
        series = [number_of[key] for key in query.keys]  # type: ignore[union-attr]
        assert alive[tick, series].all()
        chosen |= {*series}
    assert len(chosen) > 120


def test_a_row_of_a_series_that_has_ended_is_found_and_so_is_one_that_is_gone(tmp_path: Path) -> None:
    made = world(PODS, scale=5)
    stand = Stand(made, TARGET, WAL, f"sqlite://{tmp_path}/x.db", 90).load()
    assert differences(stand, tmp_path) == set()
    alive = lives(made, 90)
    first = int(np.flatnonzero(alive[0])[0])
    end = int(np.flatnonzero(~alive[:, first])[0])
    with sqlite3.connect(stand.path) as file:
        file.execute(
            "CREATE TEMP TABLE late AS SELECT * FROM cpu WHERE tags_id = ? ORDER BY time DESC LIMIT 1", (first,)
        )
        file.execute("UPDATE late SET time = time + ?", (made.spec.interval_ns,))
        file.execute("INSERT INTO cpu SELECT * FROM late")
        file.execute("DELETE FROM cpu WHERE tags_id = ? AND time = (SELECT min(time) FROM cpu)", (first,))
    assert end < 90
    key = made.keys()[first]
    assert differences(stand, tmp_path) == {(Flaw.UNWRITTEN, key), (Flaw.MISSING, key)}


def differences(stand: Stand, place: Path) -> set[tuple[Flaw, str | None]]:
    """Return the kinds of the differences of stored rows, and their series."""
    gold, answers = stand.gold(), Answers(place)
    session = stand.connect()
    read_back(gold, session, stand.schema, 1_000_000, answers)
    session.close()
    answers.compare(gold)
    return {(kind, one.series) for kind, ones in answers.stored.first.items() for one in ones}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('lifetime = "5m"', "lifetime = 5", "churn.lifetime: needs a unit; write for example '5s'"),
        ('lifetime = "5m"\n', "", "churn.lifetime: is missing"),
        ('lifetime = "5m"', 'lifetime = "0s"', "churn.lifetime: must be above 0"),
        ("generations = 4", "generations = 1", "churn.generations: must be at least 2"),
        (
            "generations = 4",
            "generations = 4\ngeneration = 4",
            "churn.generation: unknown key; did you mean 'generations'?",
        ),
        (
            'pod = { number = "pod-{:05}" }\nnode = { number = "n{}", count = 5 }\n',
            "",
            "churn: needs [tags] with a key",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_cure(old: str, new: str, why: str, tmp_path: Path) -> None:
    expect_one_line(TEXT, (old, new), why, tmp_path)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"interval": "10m"}, "churn.lifetime: must be at least one interval"),
        ({"scale": 10_000_000, "streams": 8}, None),
    ],
)
def test_what_does_not_fit_a_scenario_is_refused(keys: dict[str, object], why: str | None, tmp_path: Path) -> None:
    path = tmp_path / "pods.toml"
    path.write_text(TEXT.replace("generations = 4", "generations = 100_000"))
    with pytest.raises(ValueError, match=why or "series are more than 100,000,000; lower it, or scale"):
        world(path, **keys)
