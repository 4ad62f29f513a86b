from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tsbench.check.aggregates import comparable
from tsbench.check.answers import READBACK_ROWS, Answers, _windows, ask, given_answers, guarded, read_back
from tsbench.check.audit import account, count_stored
from tsbench.check.comparison import canonical, in_order
from tsbench.check.first_rows import first_rows
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.check.sample import part_of
from tsbench.model import Aggregated, Field, Kind, Latest, OpError, Outcome, Raw, Rows, Stored, Top, Window
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.targets.base import Statement, Unsupported
from tsbench.testing.schemas import KEEP, REPLACE
from tsbench.testing.session import MemorySession
from tsbench.testing.stand import START_NS, world_of
from tsbench.units import NS_PER_S
from tsbench.workload.disorder import Disorder
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.model import Batch, Query

MINUTE_NS = 60 * NS_PER_S
BLOCK = 12
LOADED = 30
MESSY = Disorder(late=0.2, out_of_order=0.2, duplicate=0.2, missing=0.2)
OK, FAILED, UNKNOWN, PARTIAL = Outcome

Entry = tuple[int, int, int, int, Outcome]
"""Stream, block, offset, points, outcome."""


def ledger(*entries: Entry, in_part: tuple[int, int] = (0, 0)) -> NDArray[np.void]:
    """Entries as records; of a partial one so many points were acknowledged and refused."""

    def fates(points: int, outcome: Outcome) -> tuple[int, int]:
        return in_part if outcome is PARTIAL else (points * (outcome is OK), points * (outcome is FAILED))

    return np.array([(*e[:4], *fates(e[3], e[4]), int(e[4]), 0, 0) for e in entries], dtype=LEDGER_DTYPE)


def points(batches: Iterable[Batch]) -> list[tuple[Any, ...]]:
    """Return points as sorted tuples: measurement, time, series, values."""
    return sorted(
        (batch.measurement.name, *row)
        for batch in batches
        for row in zip(
            batch.time_ns.tolist(), batch.series.tolist(), *(c.tolist() for c in batch.fields.values()), strict=True
        )
    )


def world(use_case: str = "sensors", disorder: Disorder = MESSY) -> World:
    return world_of(use_case, 5, interval_s=60, streams=2, disorder=disorder)


@pytest.mark.parametrize("disorder", [Disorder(), MESSY], ids=["orderly", "disordered"])
@pytest.mark.parametrize("use_case", ["sensors", "cpu-only"])
@pytest.mark.parametrize("last", [None, LOADED + 40, LOADED + 5], ids=["endless", "long", "to its end"])
def test_what_was_written_is_regenerated_point_by_point(use_case: str, disorder: Disorder, last: int | None) -> None:
    at = world(use_case, disorder)
    draw = np.random.default_rng(3)
    entries: list[Entry] = []
    sent: list[Batch] = []
    for stream in range(2):
        for number, batch in enumerate(at.batches(stream, points=BLOCK, first_tick=LOADED, last_tick=last)):
            if number > 59:
                break
            for offset in range(0, len(batch), 4):
                if draw.random() < 0.4:
                    piece = batch.rows(offset, offset + 4)
                    entries.append((stream, number, offset, len(piece), OK))
                    sent.append(piece)
    draw.shuffle(entries)
    again = Feed(at, LOADED, BLOCK, last).written(ledger(*entries))
    assert points(again) == points(sent)


def test_an_empty_ledger_regenerates_nothing() -> None:
    assert list(Feed(world(), LOADED, BLOCK).written(ledger())) == []


def blocks(at: World, stream: int) -> list[Batch]:
    return list(at.batches(stream, points=BLOCK, first_tick=LOADED, last_tick=LOADED + 20))


CPU_WORLD = world("cpu-only", Disorder())
CPU = CPU_WORLD.measurements[0]
BLOCKS = blocks(CPU_WORLD, 0)  # stream 0 has the series 0, 2, 4: a block of 12 is four ticks


def gold(*entries: Entry, keeps: bool = True, at: World = CPU_WORLD, in_part: tuple[int, int] = (0, 0)) -> Gold:
    return Gold(Feed(at, LOADED, BLOCK), ledger(*entries, in_part=in_part), keeps_duplicates=keeps)


def database(*batches: Batch, keeps: bool = True, at: World = CPU_WORLD) -> MemorySession:
    """Return a database with the bulk load and these batches."""
    session = MemorySession(KEEP if keeps else REPLACE)
    for stream in range(at.spec.streams):
        for batch in at.batches(stream, points=1_000, last_tick=LOADED):
            session.add(batch)
    for batch in batches:
        session.add(batch)
    return session


EVERYTHING = Stored(CPU)
NEWEST = Latest(CPU, CPU.field_names)


def test_the_answer_key_is_the_load_and_the_acknowledged_writes() -> None:
    key = gold((0, 0, 0, 6, OK), (0, 0, 6, 6, FAILED), (0, 1, 0, 12, UNKNOWN))
    assert key.count() == 5 * LOADED + 6
    assert key.unknown_points == 12
    assert key.differences(EVERYTHING, database(BLOCKS[0].rows(0, 6)).answer(EVERYTHING)) == []


def test_a_window_reaches_to_the_last_write_however_it_ended() -> None:
    for outcome in Outcome:
        key = gold((0, 0, 0, 12, OK), (0, 3, 0, 12, outcome))
        assert key.until_ns == START_NS + (LOADED + 15) * MINUTE_NS + 1
    assert gold().until_ns == START_NS + LOADED * MINUTE_NS


@pytest.mark.parametrize(
    ("stored", "lost", "unexpected"),
    [(range(2, 12), 0, 0), (range(10), 0, 0), (range(2, 11), 1, 0), (range(12), 0, 2), (range(0), 10, 0)],
    ids=["as said", "others of them", "one lost", "none refused", "none stored"],
)
def test_of_a_write_refused_in_part_as_many_points_are_expected_as_were_acknowledged(
    stored: range, lost: int, unexpected: int
) -> None:
    records = ((0, 0, 0, 12, OK), (0, 1, 0, 12, PARTIAL))
    key, load = gold(*records, in_part=(10, 2)), 5 * LOADED
    session = database(BLOCKS[0], BLOCKS[1].rows(stored.start, stored.stop))
    assert key.differences(EVERYTHING, session.answer(EVERYTHING)) == []
    found = account(key, count_stored(session, KEEP, [CPU]), ledger(*records, in_part=(10, 2)), load)
    assert (found.acknowledged, found.expected, found.refused, found.unknown) == (load + 22, load + 22, 2, 0)
    assert (found.lost, found.unexpected) == (lost, unexpected)
    assert found.verdict().valid is not (lost + unexpected > 0)


def test_points_of_a_write_refused_in_part_of_which_nobody_knows_may_be_stored_or_not() -> None:
    records = ((0, 0, 0, 12, PARTIAL),)
    for stored, right in ((0, True), (10, True), (11, False)):
        session = database(*([BLOCKS[0].rows(0, stored)] if stored else []))
        count = count_stored(session, KEEP, [CPU])
        found = account(gold(*records, in_part=(0, 2)), count, ledger(*records, in_part=(0, 2)), 5 * LOADED)
        assert (found.refused, found.unknown, found.lost) == (2, 10, 0)
        assert found.verdict().valid is right


def test_copies_in_a_write_refused_in_part_are_no_lost_points_where_one_replaces_another() -> None:
    doubled = world("cpu-only", Disorder(duplicate=0.5))
    records = ((0, 0, 0, 12, OK), (0, 1, 0, 12, PARTIAL))
    for keeps, certain in ((True, 10), (False, 0)):
        key = gold(*records, keeps=keeps, at=doubled, in_part=(10, 2))
        alone = gold(records[0], keeps=keeps, at=doubled)
        assert (key.count() - alone.count(), key.unsure_points) == (certain, 10 - certain)


@pytest.mark.parametrize(
    "stored",
    [(), (slice(0, 12),), (slice(0, 5),), (slice(0, 2), slice(7, 12))],
    ids=["not at all", "whole", "half", "in parts"],
)
def test_rows_of_an_unknown_write_may_be_there_or_not(stored: tuple[slice, ...]) -> None:
    key = gold((0, 0, 0, 12, OK), (0, 1, 0, 12, UNKNOWN))
    session = database(BLOCKS[0], *(BLOCKS[1].rows(part.start, part.stop) for part in stored))
    assert key.differences(EVERYTHING, session.answer(EVERYTHING)) == []
    assert key.check(NEWEST, session.answer(NEWEST), quiet=True) is None


def test_rows_of_an_unknown_write_may_not_be_there_twice_nor_be_others() -> None:
    key = gold((0, 0, 0, 12, OK), (0, 1, 0, 12, UNKNOWN))
    wrong = {
        "twice": [BLOCKS[0], BLOCKS[1], BLOCKS[1]],
        "never sent": [BLOCKS[0], BLOCKS[2]],
        "changed": [BLOCKS[0], replace(BLOCKS[1], time_ns=BLOCKS[1].time_ns + 1)],
        "certain ones missing": [BLOCKS[1]],
        "certain ones twice": [BLOCKS[0], BLOCKS[0]],
    }
    for name, batches in wrong.items():
        assert key.differences(EVERYTHING, database(*batches).answer(EVERYTHING)), name


def test_a_point_sent_twice_once_unknown_is_stored_once_or_twice() -> None:
    key = gold((0, 0, 0, 12, OK), (0, 0, 0, 12, UNKNOWN))
    for batches in ([BLOCKS[0]], [BLOCKS[0], BLOCKS[0]]):
        assert key.differences(EVERYTHING, database(*batches).answer(EVERYTHING)) == []
    assert key.differences(EVERYTHING, database(*[BLOCKS[0]] * 3).answer(EVERYTHING))
    one_of_two = gold((0, 0, 0, 12, OK), (0, 0, 0, 12, UNKNOWN), keeps=False)
    assert one_of_two.differences(EVERYTHING, database(*[BLOCKS[0]] * 2, keeps=False).answer(EVERYTHING)) == []


# --- the newest rows --------------------------------------------------------------------------------------------------

WROTE_ALL = [(0, number, 0, len(block), OK) for number, block in enumerate(BLOCKS)]


def test_the_newest_rows_given_while_writes_went_on_may_be_any_since_the_load() -> None:
    key = gold(*WROTE_ALL)
    for count in range(len(BLOCKS) + 1):
        answer = database(*BLOCKS[:count]).answer(NEWEST)
        assert key.check(NEWEST, answer, quiet=False) is None
        assert (key.check(NEWEST, answer, quiet=True) is None) == (count == len(BLOCKS))
    in_flight = database(*BLOCKS[:2], BLOCKS[2].rows(0, 1)).answer(NEWEST)
    assert key.check(NEWEST, in_flight, quiet=False) is None


def test_the_newest_rows_may_not_be_older_than_the_load() -> None:
    key = gold(*WROTE_ALL)
    stale = Latest(CPU, CPU.field_names, START_NS + (LOADED - 1) * MINUTE_NS)
    answer = Rows(NEWEST.columns, database(*BLOCKS).answer(stale).records)
    difference = key.check(NEWEST, answer, quiet=False)
    assert difference is not None
    assert "stale" in difference.text


def test_after_the_run_the_newest_rows_are_no_older_than_what_was_acknowledged() -> None:
    key = gold(*WROTE_ALL[:3], (0, 3, 0, 12, UNKNOWN))
    assert key.check(NEWEST, database(*BLOCKS[:3]).answer(NEWEST), quiet=True) is None
    assert key.check(NEWEST, database(*BLOCKS[:4]).answer(NEWEST), quiet=True) is None
    assert key.check(NEWEST, database(*BLOCKS[:2]).answer(NEWEST), quiet=True) is not None
    assert key.check(NEWEST, database(*BLOCKS[:5]).answer(NEWEST), quiet=True) is not None


def test_a_refused_write_is_not_to_be_the_newest() -> None:
    key = gold((0, 0, 0, 12, OK), (0, 1, 0, 12, FAILED))
    assert key.check(NEWEST, database(*BLOCKS[:1]).answer(NEWEST), quiet=False) is None
    assert key.check(NEWEST, database(*BLOCKS[:2]).answer(NEWEST), quiet=False) is not None


def test_the_newest_rows_of_some_keys_are_those_keys() -> None:
    key = gold(*WROTE_ALL)
    some = replace(NEWEST, keys=("host_0", "host_1"))
    session = database(*BLOCKS[:2])
    assert key.check(some, session.answer(some), quiet=False) is None
    assert key.check(some, Rows(some.columns, session.answer(NEWEST).records), quiet=False) is not None


def test_a_window_of_the_load_does_not_change_while_writes_go_on() -> None:
    key = gold(*WROTE_ALL, (1, 0, 0, 12, UNKNOWN))
    query = Aggregated.of(CPU, CPU.field_names[:1], "max", MINUTE_NS, key.loaded, None)
    for session in (database(), database(*BLOCKS)):
        assert key.check(query, session.answer(query), quiet=False) is None


def test_other_columns_are_a_difference_also_for_the_newest_rows() -> None:
    difference = gold(*WROTE_ALL).check(NEWEST, Rows(("time",), []), quiet=False)
    assert difference is not None
    assert difference.text.startswith("columns time instead of")


def test_a_value_that_no_answer_can_have_is_a_wrong_answer_and_no_crash() -> None:
    key = gold(*WROTE_ALL)
    rows = Rows(NEWEST.columns, [(START_NS, "host_0", *[b"1"] * 10)])
    raw = Raw(CPU, CPU.field_names, key.loaded)
    found = [key.check(raw, rows, quiet=True), key.check(NEWEST, rows, quiet=False)]
    assert all(difference is not None and "an answer holds a bytes" in difference.text for difference in found)


# --- the checks around it ---------------------------------------------------------------------------------------------


class Mute:
    """A schema without queries, or a session that fails."""

    def compile(self, query: Query) -> Statement:
        raise Unsupported(f"it cannot ask for {type(query).__name__}")

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        raise OpError(UNKNOWN, "timeout", "no answer came")


MUTE: Any = Mute()


def test_questions_that_a_schema_cannot_ask_are_named_and_could_not_be_told() -> None:
    answers = Answers()
    ask(gold(), MUTE, MUTE, ["lastpoint", "raw-all", "lastpoint"], 10, 1, answers)
    read_back(gold(), MUTE, MUTE, 10, answers)
    answers.compare(gold())
    assert set(answers.unsupported) == {"lastpoint", "raw-all", "read back"}
    assert answers.verdict().valid is None
    assert "it cannot ask for Latest" in answers.verdict().reason


def test_a_database_that_fails_its_check_could_not_be_told() -> None:
    answers = Answers()
    guarded(answers, lambda: ask(gold(), MUTE, KEEP, ["lastpoint"], 10, 1, answers))
    assert answers.verdict().valid is None
    assert "timeout: no answer came" in answers.verdict().reason


def test_a_wrong_answer_weighs_more_than_a_failed_check() -> None:
    answers = Answers()
    ask(gold(*WROTE_ALL), database(), KEEP, ["lastpoint"], 2, 1, answers)
    guarded(answers, lambda: ask(gold(), MUTE, KEEP, ["lastpoint"], 10, 1, answers))
    answers.compare(gold(*WROTE_ALL))
    assert answers.verdict().valid is False
    assert answers.verdict().counts == {"checked": 2, "wrong": 2}
    assert answers.summary()["by_kind"] == {"lastpoint": 2}


def test_nothing_asked_is_nothing_told() -> None:
    answers = Answers()
    ask(gold(), MUTE, MUTE, [], 10, 1, answers)
    given_answers(gold(), [], 1, answers)
    assert answers.verdict().valid is None


@pytest.mark.parametrize("step_ns", [1, 1_000, 1_000_000])
def test_questions_after_the_run_also_begin_on_ticks_and_just_after_them(step_ns: int) -> None:
    class Listener:
        def __init__(self) -> None:
            self.asked: list[Query] = []

        def compile(self, query: Query) -> Statement:
            self.asked.append(query)
            return KEEP.compile(query)

    listener: Any = Listener()
    key, session = gold(at=World(replace(CPU_WORLD.spec, resolution_ns=step_ns))), database()
    ask(key, session, listener, ["raw-tenth", "raw-all", "lastpoint"], 36, 1, Answers())
    windows = [q.window for q in listener.asked if isinstance(q, Raw) and q.window != key.loaded]
    offsets = [(w.start_ns - START_NS) % MINUTE_NS for w in windows]
    assert len(windows) == 12
    assert offsets.count(0) >= 3
    assert offsets.count(step_ns) >= 3
    assert all(offset % step_ns == 0 for offset in offsets)
    assert len(set(offsets)) >= 4
    assert all(key.loaded.start_ns <= w.start_ns and w.end_ns <= key.loaded.end_ns for w in windows)
    assert sum(isinstance(q, Raw) and q.window == key.loaded for q in listener.asked) == 12


def test_reading_back_covers_everything_or_evenly_spread_windows_with_the_newest(monkeypatch: Any) -> None:
    key = gold(*WROTE_ALL)
    (only,) = _windows(key, 10**6)
    assert (only.start_ns, only.end_ns) == (START_NS, START_NS + 50 * MINUTE_NS)
    assert READBACK_ROWS > 5 * 50
    monkeypatch.setattr("tsbench.check.answers.READBACK_ROWS", 25)  # five ticks of five series
    everything = list(_windows(key, 10**6))
    assert len(everything) == 10
    assert all(one.end_ns == other.start_ns for one, other in pairwise(everything))
    some = list(_windows(key, 100))
    assert [((q.start_ns or 0) - START_NS) // MINUTE_NS for q in some] == [0, 15, 30, 45]
    assert [((q.start_ns or 0) - START_NS) // MINUTE_NS for q in _windows(key, 50)] == [20, 45]


def test_answers_given_in_the_run_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "p0.answers.jsonl"
    path.write_text('{"op": "lastpoint", "number": 0, "rows": []}\n{"op": "lastpo')
    answers = Answers()
    given_answers(gold(), [path], 1, answers)
    answers.compare(gold())
    assert (answers.checked, answers.wrong) == (1, 1)


def test_a_sum_of_0_is_a_place_among_the_first_rows() -> None:
    m = replace(CPU, fields=(Field("busy", Kind.INT), Field("gap", nullable=True)))
    rows = [("a", 0.0), ("b", -2.0)]
    asked = Aggregated(m, (("sum", "busy"),), Window(0, 1), by=("host",), top=Top("busy", 2))
    assert comparable(asked, rows) == rows
    void = replace(asked, values=(("sum", "gap"),), top=None)
    assert comparable(void, [("a", 0.0), ("b", None), ("c", 2.0)]) == [("c", 2.0)]  # which databases have or have not


@pytest.mark.parametrize("lowest", [False, True])
def test_the_first_rows_by_time_are_as_many_and_at_the_last_ones_time_any(lowest: bool) -> None:
    """Five series have a row at each time, so of seven rows two are any of those at the second time."""
    key, session = gold(), database()
    window = Window(START_NS, START_NS + LOADED * MINUTE_NS)
    every = Raw(CPU, CPU.field_names, window)
    asked = replace(every, top=Top("time", 7, lowest))
    rows = sorted(session.answer(every).records, key=lambda row: row[0], reverse=not lowest)
    first, second, third = rows[:5], rows[5:10], rows[10:15]

    def judged(*chosen: tuple[Any, ...]) -> str:
        difference = key.check(asked, Rows(asked.columns, [*chosen]), quiet=True)
        return "" if difference is None else difference.kind

    for tied in (second[:2], second[3:], [second[4], second[0]]):
        assert judged(*first, *tied) == ""
    other = (*second[0][:2], *(value + 1 for value in second[0][2:]))
    assert judged(*first, second[0]) != ""
    assert judged(*first, *second[:3]) != ""
    assert judged(*first[1:], *second[:3]) != ""  # a sure row is left out for one more that is tied
    assert judged(*first, second[0], third[0]) != ""
    assert judged(*first, second[1], other) != ""
    assert judged(*rows[-7:]) != ""  # the other end


def test_of_a_kept_part_of_the_first_rows_any_choice_of_tied_ones_will_do() -> None:
    window = Window(START_NS, START_NS + LOADED * MINUTE_NS)
    every = Raw(CPU, CPU.field_names, window)
    rows = sorted(canonical(database().answer(every)), key=lambda row: row[0], reverse=True)
    top = Top("time", 52)
    asked, sure, tied = replace(every, top=top), rows[:50], rows[50:55]
    for one_in, two in product((2, 3, 5), combinations(tied, 2)):
        part, kept = part_of(asked, Rows(asked.columns, [*sure, *two]), one_in)
        actual = in_order(canonical(kept))
        expected = first_rows(asked, top, rows, actual, part)
        assert part.compare(asked, [expected], actual) is None
        lost = [row for row in actual if row != next(one for one in actual if one in sure)]
        assert part.compare(asked, [first_rows(asked, top, rows, lost, part)], lost) is not None
        assert replace(part, count=51).compare(asked, [expected], actual) is not None
