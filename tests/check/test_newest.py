"""Newest rows while points are written: what may be among them, and what an answer must not lack."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.check.gold import Gold
from tsbench.check.newest import CLOCK_NS
from tsbench.check.points import Feed
from tsbench.check.questions import Question
from tsbench.model import Latest, Outcome, Rows
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.testing.stand import START_NS, world_of
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.check.comparison import Difference

MINUTE_NS = 60 * NS_PER_S
LOADED, BLOCK = 5, 6
WORLD = world_of("cpu-only", 4, interval_s=60, streams=2)  # each stream has two series: a block has three ticks
CPU = WORLD.measurements[0]
NEWEST = Latest(CPU, CPU.field_names[:2])
RUN_NS = 1_700_000_000 * NS_PER_S
"""When the first block was sent; each takes a second, the next follows a second later."""
Row = tuple[Any, ...]


def rows(tick: int, *series: int) -> list[Row]:
    """Return the right rows of a tick."""
    found = []
    for stream in range(2):
        for batch in WORLD.batches(stream, points=1_000, first_tick=tick, last_tick=tick + 1):
            found += [
                (time_ns, f"host_{number}", *values)
                for time_ns, number, *values in zip(
                    batch.time_ns.tolist(),
                    batch.series.tolist(),
                    *(batch.fields[name].tolist() for name in NEWEST.fields),
                    strict=True,
                )
                if number in (series or range(4))
            ]
    return found


def gold(blocks: int = 4, *, shows_at_once: bool = True, **outcomes: Outcome) -> Gold:
    """Return the gold of some blocks of both streams; `b2` is the outcome of block 2."""
    entries = []
    for block in range(blocks):
        outcome = outcomes.get(f"b{block}", Outcome.OK)
        sent_ns = RUN_NS + block * 2 * NS_PER_S
        fates = BLOCK * (outcome is Outcome.OK), BLOCK * (outcome is Outcome.FAILED), int(outcome)
        entries += [(stream, block, 0, BLOCK, *fates, sent_ns, sent_ns + NS_PER_S) for stream in range(2)]
    ledger = np.array(entries, dtype=LEDGER_DTYPE)
    return Gold(Feed(WORLD, LOADED, BLOCK), ledger, keeps_duplicates=True, shows_at_once=shows_at_once)


def judged(key: Gold, answer: list[Row], sent_s: float = 0.0, ended_s: float = 0.0, **other: Any) -> Difference | None:
    """Check an answer that was asked and ended at these seconds of the run (0: not known)."""
    times: dict[str, Any] = {
        name: RUN_NS + int(at * NS_PER_S) for name, at in (("sent_ns", sent_s), ("ended_ns", ended_s)) if at
    }
    query = replace(NEWEST, **other)
    packed = key.packed(query, Rows(query.columns, answer))
    ((_, found),) = key.compare([Question("lastpoint", query, lambda: packed, quiet=False, **times)])
    assert not isinstance(found, list)
    return found


LOAD = LOADED - 1
"""The load's last tick; block 0 has the ticks 5, 6 and 7, block 1 the next three."""


@pytest.mark.parametrize(
    "answer",
    [rows(LOAD), rows(LOAD, 0, 1) + rows(5, 2, 3), rows(7), rows(5, 0) + rows(6, 1) + rows(16, 2) + rows(LOAD, 3)],
    ids=["the load's", "some written", "all written", "any"],
)
def test_a_newest_row_may_be_any_that_was_sent_since_the_load(answer: list[Row]) -> None:
    assert judged(gold(), answer) is None


def changed(tick: int, change: Callable[[Row], Row]) -> list[Row]:
    return [change(rows(tick, 0)[0]), *rows(tick, 1, 2, 3)]


WRONG: dict[str, tuple[list[Row], str, str]] = {
    "older than the load": (rows(LOAD - 1, 0) + rows(LOAD, 1, 2, 3), "stale row", "stale row for series host_0"),
    "never written": (rows(30), "row never sent", "never sent"),
    "another value": (changed(6, lambda row: (*row[:3], row[3] + 0.5)), "row never sent", "never sent"),
    "between two ticks": (changed(6, lambda row: (row[0] + 1, *row[1:])), "row never sent", "never sent"),
    "of another host": (changed(6, lambda row: (row[0], "host_9", *row[2:])), "row never sent", "never sent"),
    "without a time": (changed(6, lambda row: (None, *row[1:])), "row never sent", "never sent"),
    "a text as a time": (changed(6, lambda row: (str(row[0]), *row[1:])), "row never sent", "never sent"),
    "too short": (changed(6, lambda row: row[:3]), "row never sent", "never sent"),
    "without any value": (changed(6, lambda row: (*row[:2], None, None)), "row never sent", "never sent"),
    "without one value, and another wrong": (changed(6, lambda row: (*row[:2], -1.0, None)), "row never sent", "never"),
    "with a NaN": (changed(6, lambda row: (*row[:3], math.nan)), "row never sent", "never sent"),
    "without a value": (changed(6, lambda row: (*row[:3], None)), "torn row", "a row without usage_system"),
    "one host missing": (rows(6, 1, 2, 3), "missing row", "no row for series host_0"),
    "all hosts missing": ([], "missing row", "no row for series host_0"),
    "two of a host": (rows(6) + rows(7, 0), "several newest rows", "more than one newest row"),
    "one twice": (rows(6) + rows(6, 0), "several newest rows", "more than one newest row"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_newest_row_that_cannot_be_is_found_and_named(name: str) -> None:
    answer, kind, text = WRONG[name]
    difference = judged(gold(), answer)
    assert difference is not None
    assert difference.kind == kind
    assert text in difference.text


# Block b is sent at 2b s and acknowledged at 2b + 1 s; its last tick is 7 + 3b.


@pytest.mark.parametrize(("tick", "stale"), [(LOAD, True), (6, True), (7, False), (8, False), (10, False)])
def test_a_row_is_stale_if_a_newer_one_was_acknowledged_before_the_question_was_sent(tick: int, *, stale: bool) -> None:
    difference = judged(gold(), rows(tick), sent_s=1.5, ended_s=3.5)
    assert (difference is not None) is stale
    if difference is not None:
        last = START_NS + 7 * MINUTE_NS
        assert difference.kind == "stale row"
        assert f"but {last} was already stored" in difference.text


@pytest.mark.parametrize(("tick", "stale"), [(LOAD - 1, True), (LOAD, False), (7, False), (30, True)])
def test_where_writes_need_not_be_seen_at_once_no_row_may_be_older_than_the_loads(tick: int, *, stale: bool) -> None:
    assert (judged(gold(shows_at_once=False), rows(tick), sent_s=1.5, ended_s=3.5) is not None) is stale


def test_of_several_questions_each_has_its_own_bound() -> None:
    key = gold()
    asked = {0.5: LOAD, 1.5: 7, 2.5: 7, 3.5: 10, 5.5: 13, 90.0: 16}
    questions, right = [], {}
    for asked_s, newest in asked.items():
        for tick in (newest, newest - 1):
            packed = key.packed(NEWEST, Rows(NEWEST.columns, rows(tick)))
            sent_ns = RUN_NS + int(asked_s * NS_PER_S)
            questions.append(Question("", NEWEST, lambda one=packed: one, quiet=False, sent_ns=sent_ns))  # type: ignore[misc]
            right[id(questions[-1])] = tick == newest
    assert {id(question): found is None for question, found in key.compare(questions)} == right


def test_a_row_that_was_sent_after_the_answer_is_found() -> None:
    for ended_s, right in ((1.5, False), (2.5, True)):
        difference = judged(gold(), rows(8), sent_s=1.2, ended_s=ended_s)
        assert (difference is None) is right
        if difference is not None:
            assert difference.kind == "row sent later"


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_only_what_was_acknowledged_must_be_seen(outcome: Outcome) -> None:
    difference = judged(gold(b0=outcome), rows(LOAD), sent_s=1.5, ended_s=1.8)
    assert difference is None
    written = judged(gold(b0=outcome), rows(7), sent_s=1.5, ended_s=1.8)
    assert (written is None) is (outcome is Outcome.UNKNOWN), "a row that the database refused is one never sent"


def test_clocks_of_processes_may_differ_a_little() -> None:
    little_s = CLOCK_NS / NS_PER_S / 2
    assert judged(gold(), rows(LOAD), sent_s=1.0 + little_s, ended_s=1.5) is None
    assert judged(gold(), rows(8), sent_s=1.5, ended_s=2.0 - little_s) is None


def test_the_newest_rows_of_some_keys_are_judged_by_their_own_bounds() -> None:
    assert judged(gold(), rows(7, 1), sent_s=1.5, ended_s=1.8, keys=("host_1",)) is None
    for answer in (rows(6, 1), rows(7, 1, 2), []):
        assert judged(gold(), answer, sent_s=1.5, ended_s=1.8, keys=("host_1",)) is not None


def test_without_tags_there_is_one_newest_row() -> None:
    world = world_of("replication", 1, interval_s=60, streams=1)
    query = Latest(world.measurements[0], world.measurements[0].field_names)
    ledger = np.array([(0, 0, 0, BLOCK, BLOCK, 0, 0, 0, 0)], dtype=LEDGER_DTYPE)
    key = Gold(Feed(world, LOADED, BLOCK), ledger, keeps_duplicates=True)
    (batch,) = world.batches(0, points=100, last_tick=LOADED + BLOCK)
    every: list[Row] = list(
        zip(batch.time_ns.tolist(), *(column.tolist() for column in batch.fields.values()), strict=True)
    )
    for tick in range(LOAD, LOADED + BLOCK):
        assert key.check(query, Rows(query.columns, [every[tick]]), quiet=False) is None
    for answer in ([every[LOAD - 1]], every[-2:], []):
        assert key.check(query, Rows(query.columns, answer), quiet=False) is not None
