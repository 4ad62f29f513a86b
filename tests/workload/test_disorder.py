"""Disorder of points: the shares and the distances are as configured."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.workload.test_world import rows, spec
from tsbench.workload.world import Disorder, World

TICKS = 400


def sent(disorder: Disorder, points: int = 333) -> list[str]:
    world = World(spec("cpu-only", scale=10, disorder=disorder))
    return rows(world.batches(0, points=points, last_tick=TICKS))


TIDY = sent(Disorder())


def places(lines: list[str]) -> dict[str, int]:
    return {line: i for i, line in enumerate(lines)}


def test_missing_points_are_never_sent():
    lines = sent(Disorder(missing=0.25))
    assert set(lines) < set(TIDY)
    assert len(lines) / len(TIDY) == pytest.approx(0.75, abs=0.03)


def test_duplicates_are_identical_and_come_later_than_the_first():
    lines = sent(Disorder(duplicate=0.25))
    counts = Counter(lines)
    assert set(counts) == set(TIDY)
    assert set(counts.values()) == {1, 2}
    assert len(lines) / len(TIDY) == pytest.approx(1.25, abs=0.03)


def test_late_points_come_at_most_late_by_ticks_after_their_place():
    at = places(sent(Disorder(late=0.1, late_by=6)))
    shift = np.array([at[line] - i for i, line in enumerate(TIDY)])
    assert set(at) == set(TIDY)
    assert np.mean(shift > 5) == pytest.approx(0.1, abs=0.02)
    assert shift.max() <= 6 * 10 + 1


def test_points_out_of_order_change_places_with_the_next_of_their_series():
    lines = sent(Disorder(out_of_order=0.1))
    newest: dict[str, int] = {}
    overtaken = 0
    for line in lines:
        _, time_ns, series, *_ = line.split(" ")
        overtaken += int(time_ns) < newest.get(series, 0)
        newest[series] = max(newest.get(series, 0), int(time_ns))
    assert set(lines) == set(TIDY)
    # Two neighbours that are both displaced keep their order, hence a little less than a tenth.
    assert overtaken / len(TIDY) == pytest.approx(0.09, abs=0.02)


def test_runs_of_ten_neighbours_are_lost_or_held_back_together():
    world = World(spec("cpu-only", scale=25, disorder=Disorder(lost=0.1, held=0.2, late_by=3)))
    seen: dict[tuple[int, int], set[int]] = {}
    newest, late = 0, {}
    for batch in world.batches(0, points=333, last_tick=TICKS):
        for time_ns, series in zip(batch.time_ns.tolist(), batch.series.tolist(), strict=True):
            run = time_ns, series // 10
            seen.setdefault(run, set()).add(series)
            newest = max(newest, time_ns)
            late[run] = newest - time_ns
    assert {len(of_run) for of_run in seen.values()} == {10, 5}
    assert len(seen) / (TICKS * 3) == pytest.approx(0.9, abs=0.03)
    assert np.mean([held > 0 for held in late.values()]) == pytest.approx(0.2 / 0.9, abs=0.04)
    assert max(late.values()) <= 4 * world.spec.interval_ns


def test_points_lack_one_field_that_may_be_lacking_and_series_one_tag_but_the_key():
    tidy, some = (World(spec("iot", scale=200, disorder=Disorder(null=share, null_tags=share))) for share in (0, 0.3))
    for whole, batch in zip(*(w.batches(0, points=8_000, last_tick=40) for w in (tidy, some)), strict=True):
        lacks = np.isnan(np.column_stack(list(batch.fields.values())))
        assert set(lacks.sum(axis=1)) == {0, 1}
        assert lacks.any(axis=1).mean() == pytest.approx(0.3, abs=0.02)
        assert lacks.any(axis=0).all()
        for name, column in batch.fields.items():
            there = ~np.isnan(column)
            assert np.array_equal(column[there], whole.fields[name][there])
    without = np.array([[not text for text in codes.tolist()] for codes in some.tags().values()])
    assert set(without.sum(axis=0)) == {0, 1}
    assert without.any(axis=0).mean() == pytest.approx(0.3, abs=0.1)
    assert without.any(axis=1).tolist() == [False] + [True] * 7
    assert all(all(codes.tolist()) for codes in tidy.tags().values())


def test_the_peers_trucks_have_disorder_unless_they_are_given_another():
    assert World(spec("iot", form="peer")).spec.disorder.held > 0
    assert World(spec("iot", form="peer", disorder=Disorder(late=0.1))).spec.disorder == Disorder(late=0.1)
    assert World(spec("iot")).spec.disorder == World(spec("devops", form="peer")).spec.disorder == Disorder()


def test_the_order_does_not_depend_on_the_size_of_batches():
    disorder = Disorder(late=0.1, out_of_order=0.1, duplicate=0.1, missing=0.1)
    assert sent(disorder, 1) == sent(disorder, 17) == sent(disorder, 10_000)


@pytest.mark.parametrize(
    "wrong",
    [{"late": 1.5}, {"missing": -0.1}, {"late": 0.6, "out_of_order": 0.6}, {"lost": 0.6, "held": 0.6}, {"late_by": 0}],
)
def test_impossible_shares_are_refused(wrong):
    with pytest.raises(ValueError, match=r"disorder\."):
        Disorder(**wrong)
