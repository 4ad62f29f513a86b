"""Measurements with intervals of their own, and points that come some time after their ticks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.scenario.test_use_case import PUMPS, world
from tsbench.check.audit import with_unrecorded
from tsbench.check.gold import Gold
from tsbench.check.points import Feed, end_of_writes
from tsbench.drive.feed.encoder import WriteStreams
from tsbench.errors import UserMistake
from tsbench.model import Outcome, WriteMode
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.targets.registry import TARGETS
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.workload.world import World

PODS = PUMPS.with_name("pods.toml")
SERIES, TICKS = 7, 100
MS = 1_000_000


def pods(**keys: object) -> World:
    return world(PODS, **{"scale": SERIES, "streams": 2, **keys})


def test_each_series_has_a_point_at_its_own_interval_at_most_the_jitter_later() -> None:
    of = pods()
    places = {stream: [*range(stream, SERIES, 2)] for stream in range(2)}
    for stream in range(2):
        batches = [one for one in of.batches(stream, points=16, last_tick=TICKS) if one.measurement.name == "volume"]
        times = np.concatenate([one.time_ns for one in batches])
        assert (np.diff(times) >= 0).all()
        assert (times % MS == 0).all()
        tick, late = np.divmod(times - of.time_ns(0), 40 * NS_PER_S)
        assert Counter(tick.tolist()) == dict.fromkeys(range(25), len(places[stream]))
        assert 0 <= late.min() < NS_PER_S
        assert 4 * NS_PER_S < late.max() < 5 * NS_PER_S
    cpu = [one for one in of.batches(0, points=16, last_tick=TICKS) if one.measurement.name == "cpu"]
    assert sum(map(len, cpu)) == TICKS * len(places[0])


def test_points_do_not_depend_on_the_cut_and_measurements_come_by_their_times() -> None:
    of = pods()

    def points(size: int, first: int = 0) -> set[tuple[str, int, int, float]]:
        made = [
            one for stream in range(2) for one in of.batches(stream, points=size, first_tick=first, last_tick=TICKS)
        ]
        rows = [
            (one.measurement.name, *row)
            for one in made
            for row in zip(one.time_ns.tolist(), one.series.tolist(), next(iter(one.fields.values())), strict=True)
        ]
        assert len(rows) == of.count(None, first, TICKS)
        return set(rows)

    whole = points(1_000)
    assert len(whole) == SERIES * (TICKS + 25)
    assert points(17) == whole
    later = points(17, first=42)  # the first whole interval after it begins at tick 44
    assert later == {row for row in whole if row[1] >= of.time_ns(42 if row[0] == "cpu" else 44)}
    firsts = [int(one.time_ns[0]) for one in of.batches(0, points=9, last_tick=TICKS)]
    assert all(one <= two for one, two in pairwise(firsts))


@pytest.mark.parametrize("text", [{}, {"late": 0.2, "out_of_order": 0.1, "duplicate": 0.1}])
def test_the_answer_key_has_what_was_written_and_what_may_have_been(text: dict[str, float]) -> None:
    of, schema = pods(**text), next(iter(TARGETS["sqlite"].schemas.values()))
    feed, size = Feed(of, 30, 8), 8
    streams = WriteStreams(of, schema, (0, 1), block_points=size, first_tick=30)
    ledger = np.zeros(60, dtype=LEDGER_DTYPE)
    for entry in ledger:
        burst = streams.next(4, WriteMode.MULTI, 1)
        entry["stream"], entry["block"], entry["offset"] = burst.streams[0], burst.blocks[0], burst.offsets[0]
        entry["points"] = 4
        entry["outcome"] = Outcome.OK
    gold = Gold(feed, ledger, keeps_duplicates=True)
    loaded = (
        of.count(None, 0, 30)
        if not text
        else sum(len(one) for s in (0, 1) for one in of.batches(s, points=99, last_tick=30))
    )
    written = sum(len(one) for one in feed.written(ledger))
    assert 4 * 60 - size * 2 <= written <= 4 * 60
    assert gold.count() == (loaded or 0) + written
    newest_ns = end_of_writes(feed, ledger) - 1
    rest = with_unrecorded(feed, ledger[:20], range(2), newest_ns)
    assert (rest["outcome"][20:] == Outcome.UNKNOWN).all()
    lost, known = (
        Counter(
            (one.measurement.name, *where)
            for one in feed.written(entries)
            for where in zip(one.time_ns, one.series, strict=True)
        )
        for entries in (ledger[20:], rest[20:])
    )
    assert not lost - known


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"40s"', '"45s"', "measurement.volume.interval: must be a multiple of world.interval, 10s"),
        ('"40s"', '"5s"', "measurement.volume.interval: must be a multiple of world.interval, 10s"),
        ('"40s"', '"0s"', "measurement.1.interval: must be above 0"),
        ('"5s"\nfields', '"41s"\nfields', "measurement.volume.jitter: must be at most the interval"),
        ('"5s"\nfields', '"1500us"\nfields', "measurement.1.jitter"),
    ],
)
def test_a_mistake_is_one_line(old: str, new: str, why: str, tmp_path: Path) -> None:
    text = PODS.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "pods.toml").write_text(text.replace(old, new))
    with pytest.raises((UserMistake, ValueError)) as caught:
        world(tmp_path / "pods.toml")
    assert why in str(caught.value)
