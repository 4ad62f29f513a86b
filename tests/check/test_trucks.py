"""The thirteen questions about trucks, whose points lack fields and tags: their texts and what must be seen in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import Stand, world_of
from tsbench.workload.world import Disorder

if TYPE_CHECKING:
    from pathlib import Path

INTERVAL_S = 52  # at the end, half of the trucks have a fuel_state of 0.1, the others 0
TICKS = 1_800
KINDS = [*world_of("iot", 1, interval_s=INTERVAL_S, streams=1).kinds]

Change = tuple[str, str]
CHANGES: dict[str, Change] = {
    "a value in place of none": (
        "UPDATE readings SET velocity = 90 WHERE velocity IS NULL",
        "avg-vs-projected-fuel-consumption",
    ),
    "none in place of a value": ("UPDATE diagnostics SET status = NULL WHERE tags_id < 6", "daily-activity"),
    "a tag in place of none": ("UPDATE tags SET fleet = 'East' WHERE fleet IS NULL", "daily-activity"),
    "another fleet": ("UPDATE tags SET fleet = 'East'", "last-loc"),
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
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.nightly] * (i > 2)) for i, one in enumerate(CHANGES)]
)
def test_a_change_of_what_is_lacking_is_found(few: Stand, tmp_path: Path, name: str) -> None:
    statement, kind = CHANGES[name]
    changed = few.copy(tmp_path / "copy.db")
    changed.vandalise(statement)
    gold = changed.gold()
    assert changed.false_verdicts(gold) == {"rows"}
    assert changed.asked(gold, [kind], 8).wrong


DEFECTS: dict[str, tuple[str, str, str]] = {
    "the oldest place": ("last-loc", "max(x", "min(x"),
    "the newest row, whatever it lacks": ("last-loc", " AND x.latitude IS NOT NULL", ""),
    "at most a tenth": ("low-fuel", "< 0.1", "<= 0.1"),
    "half of the capacity": ("high-load", "0.9", "0.5"),
    "the end included": ("long-driving-sessions", "m.time < ?", "m.time < ? + 600000000000"),
    "without a condition": ("avg-daily-driving-duration", "> 1 THEN", ">= 0 THEN"),
    "the first run counts": ("avg-daily-driving-session", "s.state <> s.earlier", "s.state <> coalesce(s.earlier, -1)"),
    "points instead of trucks": ("avg-load", "GROUP BY m.tags_id", "GROUP BY m.tags_id, m.time / 7200000000000"),
    "a group without a fleet": ("daily-activity", "t.fleet IS NOT NULL AND ", ""),
    "more than half": ("breakdown-frequency", ">= count(*)", "> count(*)"),
    "standing still counts": ("avg-vs-projected-fuel-consumption", "m.velocity > 1", "m.velocity >= 0"),
    "nearly all day": ("long-daily-sessions", "> 60", "> 143"),
    "slow ones, too": ("stationary-trucks", ") < 1", ") < 30"),
    "other trucks": ("single-last-loc", "t.name =", "t.name >"),
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
