"""Writes of a lost worker that it could not record: they may be stored, and are no more than that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tsbench.check.answers import Answers, ask, read_back
from tsbench.check.audit import Account, newest_stored_ns, with_unrecorded
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.targets.sqlite import TARGET
from tsbench.targets.sqlite.schemas import WAL
from tsbench.testing.stand import BLOCK, SEED, Stand, world_of
from tsbench.units import NS_PER_S
from tsbench.workload.disorder import Disorder

if TYPE_CHECKING:
    from pathlib import Path

TICKS = 60
MESSY = Disorder(late=0.2, out_of_order=0.1, duplicate=0.2, missing=0.2, late_by=3)


@pytest.fixture(scope="module", params=[Disorder(), MESSY], ids=["orderly", "disordered"])
def lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """Return a database with 150 writes, of which the ledger of stream 1 has the first thirty only."""
    place = tmp_path_factory.mktemp("lost")
    world = world_of("sensors", 6, interval_s=60, disorder=request.param)
    stand = Stand(world, TARGET, WAL, f"sqlite://{place / 'lost.db'}", TICKS).load().write(place, 150)
    ledger = stand.ledger
    own = np.flatnonzero(ledger["stream"] == 1)
    assert len(own) > 40
    return replace(stand, ledger=np.delete(ledger, own[30:]))


def judged(stand: Stand, *, streams: tuple[int, ...]) -> Answers:
    """Check what is stored, where workers with these streams were lost."""
    session = stand.connect()
    newest_ns = newest_stored_ns(session, WAL, stand.world.measurements)
    feed = Feed(stand.world, stand.ticks, BLOCK)
    gold = Gold(feed, with_unrecorded(feed, stand.ledger, streams, newest_ns), keeps_duplicates=True)
    answers = Answers()
    read_back(gold, session, WAL, 10**9, answers)
    ask(gold, session, WAL, ["last-value"], 14, SEED, answers)
    answers.compare(gold)
    session.close()
    return answers


def test_what_a_lost_worker_did_not_record_may_be_stored(lost: Stand) -> None:
    answers = judged(lost, streams=(1,))
    assert (answers.verdict().valid, answers.stored.text) == (True, ""), answers.verdict().reason
    assert answers.by_kind["last-value"] == 14


def test_without_the_loss_these_points_are_found(lost: Stand) -> None:
    for streams in ((), (0,)):
        answers = judged(lost, streams=streams)
        assert answers.verdict().valid is False
        assert {str(kind) for kind in answers.stored.counts} == {"row that nobody wrote"}


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE co SET value = -5 WHERE rowid = (SELECT max(rowid) FROM co)", "wrong value"),
        (f'UPDATE co SET "time" = "time" + {NS_PER_S} WHERE rowid = (SELECT max(rowid) FROM co)', "row that nobody"),
        ("DELETE FROM co WHERE rowid = 7", "missing row"),
    ],
    ids=["another value", "another time", "a loaded point deleted"],
)
def test_other_defects_are_still_found(lost: Stand, tmp_path: Path, statement: str, kind: str) -> None:
    spoilt = lost.copy(tmp_path / "spoilt.db")
    spoilt.vandalise(statement)
    answers = judged(spoilt, streams=(1,))
    assert answers.verdict().valid is False
    assert any(str(found).startswith(kind) for found in answers.stored.counts), answers.stored.text


def test_a_stored_time_in_another_century_is_not_believed() -> None:
    world = world_of("sensors", 6, interval_s=60)
    feed, empty = Feed(world, TICKS, BLOCK), np.zeros(0, dtype=LEDGER_DTYPE)
    found = with_unrecorded(feed, empty, (0, 1), world.time_ns(10**9))
    assert found["points"].sum() == TICKS * 6 * len(world.measurements)
    assert len(with_unrecorded(feed, empty, (0, 1), None)) == 0
    assert len(with_unrecorded(feed, empty, (0, 1), world.time_ns(TICKS - 1))) == 0
    bounded = replace(feed, last_tick=TICKS + 2)
    assert with_unrecorded(bounded, empty, (0, 1), world.time_ns(10**9))["points"].sum() == 2 * 6 * 7


def test_every_point_of_a_stream_is_recorded_or_unknown_once() -> None:
    world = world_of("sensors", 6, interval_s=60)
    feed = Feed(world, TICKS, BLOCK)
    blank = with_unrecorded(feed, np.zeros(0, dtype=LEDGER_DTYPE), (0, 1), world.time_ns(TICKS + 49))
    some = blank[np.arange(len(blank)) % 3 == 1].copy()
    some["points"] -= 7
    some["offset"] += 3
    both = with_unrecorded(feed, some, (0, 1), world.time_ns(TICKS + 49))
    rows = [
        (batch.measurement.name, int(time_ns), int(series))
        for batch in feed.written(both)
        for name, time_ns, series in zip(
            [batch.measurement.name] * len(batch), batch.time_ns, batch.series, strict=True
        )
    ]
    assert len(rows) == len(set(rows)) == int(both["points"].sum()) == 50 * 6 * len(world.measurements)


def test_rows_of_a_lost_load_process_are_counted_as_such_and_no_others() -> None:
    known = Account(acknowledged=100, expected=100, stored=130, unknown=10, refused=0)
    of_lost = replace(known, unrecorded=40).verdict(["worker-1"])
    assert (of_lost.valid, of_lost.reason) == (True, "20 rows of a lost load process (worker-1) are stored")
    assert of_lost.counts["unexpected"] == 0
    assert replace(known, unrecorded=5).verdict(["worker-1"]).valid is None
    assert known.verdict().valid is False
    assert replace(known, stored=90, unrecorded=40).verdict(["worker-1"]).valid is False
