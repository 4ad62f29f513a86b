"""Points that a database deletes by itself: what may be gone is no loss, what must be there and is not, is one."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from tsbench.check.answers import Answers, read_back
from tsbench.check.audit import account, count_stored
from tsbench.check.expiry import CLOCK_NS, Expiry
from tsbench.check.stored_rows import Flaw
from tsbench.model import Outcome
from tsbench.targets.sqlite import TARGET
from tsbench.testing.stand import Stand, fitting, world_of
from tsbench.units import NS_PER_S, format_time

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.check.gold import Gold

TICKS, INTERVAL_S = 150, 600
"""25 hours, since the longest window of a query is a day."""
LIMIT = 90
"""Tick before which points may be gone."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    place = tmp_path_factory.mktemp("expiry")
    world = world_of("cpu-only", 8, interval_s=INTERVAL_S)
    stand = Stand(world, TARGET, TARGET.schemas["wal"], f"sqlite://{place / 'all.db'}", TICKS).load()
    return stand.write(place, 60, {7: (Outcome.UNKNOWN, False)})


@pytest.fixture
def stand(loaded: Stand, tmp_path: Path) -> Stand:
    return loaded.copy(tmp_path / "some.db")


def time_of(stand: Stand, tick: int) -> int:
    """The value of the column `time` of the points of a tick."""
    connection = sqlite3.connect(stand.path)
    (times,) = connection.execute("SELECT group_concat(time) FROM (SELECT DISTINCT time FROM cpu ORDER BY time)")
    connection.close()
    return int(times[0].split(",")[tick])


def gold(stand: Stand, tick: int = LIMIT) -> Gold:
    """The answers where points before a tick are as old as the limit."""
    stand.expiry = Expiry(NS_PER_S, lambda: stand.world.time_ns(tick) + NS_PER_S - CLOCK_NS)
    return stand.gold()


@pytest.mark.parametrize("deleted", ["none", "some", "all"])
def test_what_may_have_expired_is_neither_lost_nor_wrong(stand: Stand, deleted: str) -> None:
    before = time_of(stand, LIMIT)
    if deleted != "none":
        some = "" if deleted == "all" else "AND (time / 1000) % 7 < 3"
        stand.vandalise(f"DELETE FROM cpu WHERE time < {before} {some}")
    kinds = fitting(stand.world, stand.gold().loaded)
    key = gold(stand)
    assert stand.false_verdicts(key) == set()
    answers = stand.asked(key, kinds, 6 * len(kinds))
    assert answers.verdict().valid is True, answers.verdict().reason
    assert answers.checked
    assert answers.checked + answers.expired == 6 * len(kinds)


def test_a_row_before_the_limit_that_is_stored_is_compared(stand: Stand) -> None:
    stand.vandalise(f"UPDATE cpu SET usage_user = 200 WHERE time = {time_of(stand, LIMIT - 5)}")
    assert stand.false_verdicts(gold(stand)) == {"rows"}


def test_a_row_past_the_limit_that_is_gone_is_a_loss_and_located(stand: Stand) -> None:
    before = time_of(stand, LIMIT)
    stand.vandalise(f"DELETE FROM cpu WHERE time < {before}")
    stand.vandalise(f"DELETE FROM cpu WHERE rowid = (SELECT min(rowid) FROM cpu WHERE time = {before})")
    key, session, answers = gold(stand), stand.connect(), Answers()
    read_back(key, session, stand.schema, 10**9, answers)
    answers.compare(key)
    accounted = account(key, count_stored(session, stand.schema, stand.world.measurements), stand.ledger, 8 * TICKS)
    session.close()
    assert (accounted.lost, accounted.expirable) == (1, 8 * LIMIT)
    assert "1 of" in accounted.verdict().reason
    assert answers.verdict().valid is False
    (row,) = answers.stored.first[Flaw.MISSING]
    assert (row.measurement, row.time, answers.stored.counts) == (
        "cpu", format_time(stand.world.time_ns(LIMIT)), {Flaw.MISSING: 1},
    )  # fmt: skip


def test_without_expiry_deleted_rows_are_lost(stand: Stand) -> None:
    stand.vandalise(f"DELETE FROM cpu WHERE time < {time_of(stand, LIMIT)}")
    assert stand.false_verdicts(stand.gold()) == {"rows", "count"}


def test_where_all_points_may_have_expired_no_answer_is_right(stand: Stand) -> None:
    stand.vandalise("DELETE FROM cpu")
    key = gold(stand, 10 * TICKS)
    answers = stand.asked(key, ["single-groupby-1-1-1"], 5)
    verdict = answers.verdict()
    assert (verdict.valid, answers.expired) == (None, 5)
    assert verdict.reason == "no answer was checked (the points of all 5 answers may have expired)"


def test_the_points_that_must_be_stored_after_the_load_are_those_past_the_limit(stand: Stand) -> None:
    gold(stand)
    assert stand.expiry is not None
    assert stand.expiry.kept_points(stand.world, TICKS) == 8 * (TICKS - LIMIT)
    assert Expiry(10**30, lambda: 0).kept_points(stand.world, TICKS) == 8 * TICKS
    assert Expiry.of(None) is None
