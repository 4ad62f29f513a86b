"""Defects that the checks must find: they are planted in compiled queries, stored data, writes and answers.

Every one must be found by the check whose business it is, and a sound database must never be accused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tsbench.check.answers import Answers, given_answers, read_back
from tsbench.check.comparison import canonical
from tsbench.model import OpError, Outcome, Window
from tsbench.scenario.use_case import built_in_cases
from tsbench.targets.base import Statement
from tsbench.targets.registry import TARGETS
from tsbench.targets.sqlite import TARGET
from tsbench.targets.sqlite.schemas import CLUSTERED, WAL, SqliteSchema
from tsbench.testing.stand import SEED, START_NS, UNSURE, Stand, fitting, world_of
from tsbench.units import NS_PER_S
from tsbench.workload import queries
from tsbench.workload.disorder import Disorder
from tsbench.workload.queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.check.gold import Gold
    from tsbench.model import Query
    from tsbench.targets.base import Payload, Session
    from tsbench.testing.stand import Fate, Send

HOUR_NS = 3_600 * NS_PER_S
MINUTE_NS = 60 * NS_PER_S
TICK_NS = 20 * NS_PER_S

# --- what lies beside the points --------------------------------------------------------------------------------------


def test_tables_of_others_and_of_earlier_runs_are_not_accused(tmp_path: Path) -> None:
    stand = Stand(world_of("cpu-only", 2, interval_s=20), TARGET, WAL, f"sqlite://{tmp_path / 'db'}", 9).load()
    stand.vandalise(
        "CREATE TABLE users (id INTEGER, time TEXT)", "CREATE TABLE mem (time INTEGER NOT NULL, total REAL)"
    )
    session, gold = stand.connect(), stand.gold()
    assert session.inventory(gold.world.measurements, series=False).tables == ("mem",)
    for known, kinds in ((("mem",), []), ((), ["table of no measurement"])):
        answers = Answers()
        read_back(gold, session, WAL, 10**9, answers, known)
        answers.compare(gold)
        assert list(answers.stored.counts) == kinds
        assert answers.verdict().valid is not bool(kinds)
    session.close()


# --- defects in queries -----------------------------------------------------------------------------------------------

Spoil: TypeAlias = "Callable[[Statement], Statement]"


def text(old: str, new: str) -> Spoil:
    """Return a defect that replaces every occurrence of a part of the text."""
    return lambda s: replace(s, text=s.text.replace(old, new))


def pattern(old: str, new: str) -> Spoil:
    """Return a defect that replaces every match of a regular expression."""
    return lambda s: replace(s, text=re.sub(old, new, s.text))


def param(index: int, change: Callable[[Any], Any]) -> Spoil:
    """Return a defect that changes one parameter: 0 is the window's start, 1 its end, the keys come last."""

    def spoil(s: Statement) -> Statement:
        changed = list(s.params)
        changed[index] = change(changed[index])
        return replace(s, params=tuple(changed))

    return spoil


def both(one: Spoil, other: Spoil) -> Spoil:
    """Return a defect that applies two."""
    return lambda s: other(one(s))


def down_to(unit_ns: int) -> Spoil:
    """Return a defect that truncates both bounds of the window to a unit."""
    return both(param(0, lambda t: t // unit_ns * unit_ns), param(1, lambda t: t // unit_ns * unit_ns))


def twice(s: Statement) -> Statement:
    """Return every row twice."""
    return Statement(f"{s.text}\nUNION ALL\n{s.text}", s.params * 2)


def last_host_lost(s: Statement) -> Statement:
    """Replace the last of the chosen hosts by the first."""
    return replace(s, params=(*s.params[:-1], s.params[2]))


BUCKET = r"/ (\d+) \* \d+"

ONE, EIGHT, ALL_FIELDS, MEAN = "single-groupby-1-1-1", "single-groupby-1-8-1", "cpu-max-all-1", "double-groupby-1"
RAW, NEWEST, ABOVE, LAST = "raw-tenth", "groupby-orderby-limit", "high-cpu-all", "lastpoint"

IN_QUERIES: dict[str, tuple[tuple[str, ...], Spoil]] = {
    # windows
    "window ends an interval late": ((RAW, EIGHT), param(1, lambda t: t + TICK_NS)),
    "window ends an interval early": ((RAW, EIGHT), param(1, lambda t: t - TICK_NS)),
    "window includes its end": ((RAW,), text("< ?", "<= ?")),
    "window of buckets includes its end": ((ONE, EIGHT), text("< ?", "<= ?")),
    "window of the newest buckets includes its end": ((NEWEST,), text("< ?", "<= ?")),
    "window excludes its start": ((RAW, ONE), text(">= ?", "> ?")),
    "window starts an interval late": ((RAW, EIGHT), param(0, lambda t: t + TICK_NS)),
    "window has no start": ((ONE, ABOVE), text('m."time" >= ?', "? IS NOT NULL")),
    "bounds cut to seconds": ((RAW, ONE), down_to(NS_PER_S)),
    "bounds cut to milliseconds": ((RAW, ONE), down_to(1_000_000)),
    "bounds an hour off (time zone)": (
        (RAW, ONE, MEAN),
        both(param(0, lambda t: t - HOUR_NS), param(1, lambda t: t - HOUR_NS)),
    ),
    "end of the newest buckets ignored": ((NEWEST,), text('m."time" < ?', "? IS NOT NULL")),
    # series
    "one host of eight lost": ((EIGHT,), last_host_lost),
    "all hosts instead of the chosen one": ((ONE, ALL_FIELDS), text('"hostname" IN (', "\"hostname\" <> '' OR 0 IN (")),
    "another host": ((ONE, "high-cpu-1"), param(-1, lambda name: "host_3" if name != "host_3" else "host_4")),
    "hosts not merged": ((EIGHT,), text("GROUP BY 1", 'GROUP BY 1, m."tags_id"')),
    "hosts merged": ((MEAN,), text("GROUP BY 1, 2", "GROUP BY 1")),
    "the series' number in place of its name": ((RAW, MEAN, LAST), text('t."hostname"', 't."id"')),
    # buckets
    "buckets begin at another moment": ((ONE, MEAN), pattern(r'm."time" ' + BUCKET, r'(m."time" - 7) / \1 * \1')),
    "buckets twice as long": ((ONE, MEAN), pattern(BUCKET, r"/ (2 * \1) * (2 * \1)")),
    "buckets half as long": ((ONE, MEAN), pattern(BUCKET, r"/ (\1 / 2) * (\1 / 2)")),
    "buckets labelled with their end": ((ONE, MEAN), pattern(BUCKET, r"/ \1 * \1 + \1")),
    "buckets labelled an hour late (time zone)": ((ONE, MEAN), pattern(BUCKET, rf"/ \1 * \1 + {HOUR_NS}")),
    "buckets labelled in milliseconds": ((ONE,), pattern(BUCKET, r"/ \1 * \1 / 1000000")),
    "incomplete buckets left out": ((ONE,), text("GROUP BY 1", "GROUP BY 1 HAVING count(*) = 3")),
    "newest bucket left out": ((NEWEST,), text("LIMIT 5", "LIMIT 5 OFFSET 1")),
    "one bucket too few": ((NEWEST,), text("LIMIT 5", "LIMIT 4")),
    "earliest instead of newest buckets": ((NEWEST,), text(" DESC", "")),
    # rows
    "no more than 100 rows": ((RAW, ABOVE), lambda s: replace(s, text=f"{s.text}\nLIMIT 100")),
    "no more than 10,000 rows": (("raw-all",), lambda s: replace(s, text=f"{s.text}\nLIMIT 10000")),
    "every row twice": ((RAW, LAST, "raw-one"), twice),
    "no rows": ((ONE, RAW, LAST), lambda s: replace(s, text=f"SELECT * FROM ({s.text}) WHERE 0")),
    "first instead of newest row": ((LAST,), text(" DESC", "")),
    "newest row of one host only": ((LAST,), lambda s: replace(s, text=f"{s.text}\nLIMIT 1")),
    # values
    "mean for maximum": ((ONE, ALL_FIELDS), text("max(", "avg(")),
    "minimum for maximum": ((ONE, ALL_FIELDS), text("max(", "min(")),
    "sum for mean": ((MEAN,), text("avg(", "sum(")),
    "count for mean": ((MEAN,), text("avg(", "count(")),
    "mean of distinct values": ((MEAN,), text("avg(", "avg(DISTINCT ")),
    "mean as an integer": ((MEAN,), pattern(r"avg\((\S+)\)", r"CAST(avg(\1) AS INTEGER)")),
    "mean rounded to four decimals": ((MEAN,), pattern(r"avg\((\S+)\)", r"round(avg(\1), 4)")),
    "mean of rounded halves": ((MEAN,), pattern(r"avg\((\S+)\)", r"avg(\1 / 2) * 2")),
    "another field": ((ONE, RAW), text('m."usage_user"', 'm."usage_system"')),
    "two fields exchanged": (
        ("single-groupby-5-1-1",),
        both(text("_user", "_x"), both(text("_system", "_user"), text("_x", "_system"))),
    ),
    "null for one value": ((ONE,), pattern(r"max\((\S+)\)", r"nullif(max(\1), 95)")),
    "null for every value": ((ONE, ALL_FIELDS), pattern(r"max\(\S+\)", "NULL")),
    "null for the time": ((RAW, LAST), text('SELECT m."time"', "SELECT NULL")),
    "zero for a value below ten": ((RAW,), text('m."usage_idle"', 'm."usage_idle" * (m."usage_idle" > 9)')),
    "values as text": ((ONE,), pattern(r"max\((\S+)\)", r"CAST(max(\1) AS TEXT)")),
    "values as bytes": ((ONE, LAST), pattern(r"max\((\S+)\)|(m.\"usage_user\")", r"CAST(max(\1\2) AS BLOB)")),
    # thresholds
    "at the threshold counted as above it": ((ABOVE, "high-cpu-1"), text(" > ?", " >= ?")),
    "threshold one too high": ((ABOVE,), param(2, lambda threshold: threshold + 1)),
    "threshold on another field": ((ABOVE,), text('m."usage_user" >', 'm."usage_system" >')),
    "no threshold": (("high-cpu-1",), text('m."usage_user" > ?', "? IS NOT NULL")),
}


@dataclass(frozen=True)
class Defective(SqliteSchema):
    """A schema whose compiled queries have a defect."""

    spoil: Spoil = twice

    def compile(self, query: Query) -> Statement:
        return self.spoil(SqliteSchema.compile(self, query))


def defective(spoil: Spoil) -> Defective:
    """Return the schema `wal` with a defect."""
    return Defective("wal", clustered=False, spoil=spoil)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stand, Gold]:
    """Return 13 hours of ten hosts every 20 s (three points a minute), then writes with every outcome."""
    place = tmp_path_factory.mktemp("large")
    world = world_of("cpu-only", 10, interval_s=20)
    stand = Stand(world, TARGET, WAL, f"sqlite://{place / 'large.db'}", 13 * 180).load().write(place, 60, UNSURE)
    return stand, stand.gold()


@pytest.mark.parametrize("name", IN_QUERIES)
@pytest.mark.slow
def test_a_defect_in_a_query_is_found(large: tuple[Stand, Gold], name: str) -> None:
    stand, gold = large
    kinds, spoil = IN_QUERIES[name]
    for kind in kinds:
        # in a window of buckets an end that is included shows where it begins a minute: in one of three questions
        count = 2 if kind == "raw-all" else 20 if name == "window of buckets includes its end" else 9
        answers = stand.asked(gold, [kind], count, defective(spoil))
        assert answers.verdict().valid is False, kind
        assert answers.first_wrong is not None
        assert "\n" not in answers.verdict().reason


def test_a_defect_in_every_query_of_a_kind_shows_among_half_the_usual_number_of_questions(
    large: tuple[Stand, Gold],
) -> None:
    stand, gold = large
    kinds = [k for k in fitting(stand.world, gold.loaded) if not k.startswith("raw-")]
    inclusive = defective(text("< ?", "<= ?"))
    assert stand.asked(gold, kinds, 90, inclusive).wrong > 0


def test_the_order_of_rows_is_no_defect(large: tuple[Stand, Gold]) -> None:
    stand, gold = large
    backwards = defective(text("ORDER BY 1", "ORDER BY 1 DESC"))
    assert stand.asked(gold, [ONE, EIGHT, MEAN], 30, backwards).verdict().valid is True


def test_answers_from_before_the_last_writes_are_stale(large: tuple[Stand, Gold], tmp_path: Path) -> None:
    stand, gold = large
    session = TARGET.connect(f"sqlite://{tmp_path / 'stale.db'}", WAL)
    session.close()
    stale = Stand(stand.world, TARGET, WAL, f"sqlite://{tmp_path / 'stale.db'}", stand.ticks).load()
    stale = replace(stale, ledger=stand.ledger)
    assert stale.asked(gold, [LAST], 1).verdict().valid is False
    assert stale.false_verdicts(gold) == {"rows", "count"}


def test_the_newest_acknowledged_rows_are_wanted_though_some_writes_are_unknown(
    large: tuple[Stand, Gold], tmp_path: Path
) -> None:
    stand, gold = large
    spoilt = stand.copy(tmp_path / "spoilt.db")
    # host_0 belongs to the first stream, whose writes all reached tick 99 after the load
    spoilt.vandalise('DELETE FROM cpu WHERE tags_id = 0 AND "time" = (SELECT max("time") FROM cpu WHERE tags_id = 0)')
    assert stand.asked(gold, [LAST], 1).verdict().valid is True
    assert spoilt.asked(gold, [LAST], 1).verdict().valid is False


# --- defects in stored data -------------------------------------------------------------------------------------------

T0 = START_NS
CPU_ROW = f'tags_id = 1 AND "time" = {T0 + 30 * MINUTE_NS}'
NEWEST_ROW = "rowid = (SELECT max(rowid) FROM cpu)"
CPU_COLUMNS = ", ".join(["tags_id", *world_of("cpu-only", 1, interval_s=60, streams=1).measurements[0].field_names])
COPY = f'INSERT INTO cpu ("time", {CPU_COLUMNS}) SELECT "time", {CPU_COLUMNS} FROM cpu WHERE '

IN_STORED_DATA: dict[str, tuple[str, tuple[str, ...], set[str]]] = {
    "one row deleted": ("cpu-only", (f"DELETE FROM cpu WHERE {CPU_ROW}",), {"rows", "count"}),
    "the newest row deleted": ("cpu-only", (f"DELETE FROM cpu WHERE {NEWEST_ROW}",), {"rows", "count"}),
    "one row stored twice": ("cpu-only", (COPY + CPU_ROW,), {"rows", "count"}),
    "one row deleted and another stored twice": (
        "cpu-only",
        (f"DELETE FROM cpu WHERE {CPU_ROW}", COPY + NEWEST_ROW),
        {"rows"},
    ),
    "one value changed": ("cpu-only", (f"UPDATE cpu SET usage_nice = usage_nice + 1 WHERE {CPU_ROW}",), {"rows"}),
    "the newest value changed": ("cpu-only", (f"UPDATE cpu SET usage_nice = -1 WHERE {NEWEST_ROW}",), {"rows"}),
    "one value lost": ("cpu-only", (f"UPDATE cpu SET usage_nice = NULL WHERE {CPU_ROW}",), {"rows"}),
    "one value as text": ("cpu-only", (f"UPDATE cpu SET usage_nice = 'much' WHERE {CPU_ROW}",), {"rows"}),
    "two values of a row exchanged": (
        "cpu-only",
        (f"UPDATE cpu SET usage_user = usage_system, usage_system = usage_user WHERE {CPU_ROW}",),
        {"rows"},
    ),
    "one row moved to another host": ("cpu-only", (f"UPDATE cpu SET tags_id = 2 WHERE {CPU_ROW}",), {"rows"}),
    "one row an interval late": (
        "cpu-only",
        (f'UPDATE cpu SET "time" = "time" + {MINUTE_NS} WHERE {CPU_ROW}',),
        {"rows"},
    ),
    "one row a nanosecond late": ("cpu-only", (f'UPDATE cpu SET "time" = "time" + 1 WHERE {CPU_ROW}',), {"rows"}),
    "one row in another year": ("cpu-only", (f'UPDATE cpu SET "time" = "time" * 2 WHERE {CPU_ROW}',), {"rows"}),
    "every row an hour late (time zone)": ("cpu-only", (f'UPDATE cpu SET "time" = "time" + {HOUR_NS}',), {"rows"}),
    "one host missing": ("cpu-only", ("DELETE FROM cpu WHERE tags_id = 3",), {"rows", "count"}),
    "one host without a name": ("cpu-only", ("DELETE FROM tags WHERE id = 3",), {"rows"}),
    "one host renamed": ("cpu-only", ("UPDATE tags SET hostname = 'host_x' WHERE id = 3",), {"rows"}),
    "two hosts exchanged": (
        "cpu-only",
        ("UPDATE tags SET id = -id WHERE id IN (1, 2)", "UPDATE tags SET id = id + 3 WHERE id < 0"),
        {"rows"},
    ),
    "another tag of one host": ("cpu-only", ("UPDATE tags SET region = 'nowhere' WHERE id = 3",), {"rows"}),
    "another tag of one host lost": ("cpu-only", ("UPDATE tags SET rack = NULL WHERE id = 3",), {"rows"}),
    "a tag more of one host": (
        "cpu-only",
        ("ALTER TABLE tags ADD COLUMN zone TEXT", "UPDATE tags SET zone = 'z' WHERE id = 3"),
        {"rows"},
    ),
    "a field more in one row": (
        "cpu-only",
        ("ALTER TABLE cpu ADD COLUMN more REAL", f"UPDATE cpu SET more = 1 WHERE {CPU_ROW}"),
        {"rows"},
    ),
    "a field renamed": ("cpu-only", ("ALTER TABLE cpu RENAME COLUMN usage_nice TO nice",), {"rows"}),
    "a part of a point long before the run": (
        "cpu-only",
        ('INSERT INTO cpu ("time", tags_id, usage_user) VALUES (0, 1, 5)',),
        {"rows", "count"},
    ),
    "a row of a host that nobody knows": ("cpu-only", (f"UPDATE cpu SET tags_id = 99 WHERE {CPU_ROW}",), {"rows"}),
    "own tags changed": (
        "devops",
        ("""UPDATE disk SET additional_tags = replace(additional_tags, '"path":"', '"path":"x') WHERE rowid = 5""",),
        {"rows"},
    ),
    "own tags that are none": ("devops", ("UPDATE disk SET additional_tags = 'x' WHERE rowid = 5",), {"rows"}),
    "one measurement missing": ("sensors", ("DELETE FROM co2",), {"rows", "count"}),
    "two measurements exchanged": (
        "sensors",
        ("ALTER TABLE co RENAME TO x", "ALTER TABLE motor RENAME TO co", "ALTER TABLE x RENAME TO motor"),
        {"rows"},
    ),
    "values as integers": ("sensors", ("UPDATE airflow SET value = CAST(value AS INTEGER)",), {"rows"}),
    "values with one decimal": ("sensors", ("UPDATE airflow SET value = round(value, 1)",), {"rows"}),
    "values a billionth too large": ("sensors", ("UPDATE airflow SET value = value * 1.000000001",), {"rows"}),
    "a row of one measurement in another": (
        "sensors",
        (
            "DELETE FROM co WHERE rowid = 5",
            'INSERT INTO co2 ("time", tags_id, value) SELECT "time", tags_id, value FROM co WHERE rowid = 6',
        ),
        {"rows"},
    ),
}


def small(place: Path, use_case: str, fates: dict[int, Fate] | None = None, send: Send | None = None) -> Stand:
    """Return two hours of six series every minute, then sixty writes."""
    world = world_of(use_case, 6, interval_s=60)
    stand = Stand(world, TARGET, WAL, f"sqlite://{place / 'small.db'}", 120).load()
    return stand.write(place, 60, fates or {}, send)


@pytest.fixture(scope="module")
def smalls(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], tuple[Stand, Gold]]:
    """Return small databases by use case, and whether all writes were acknowledged."""
    made = {}
    for use_case in ("cpu-only", "sensors", "devops"):
        for certain in (True, False):
            stand = small(tmp_path_factory.mktemp("small"), use_case, {} if certain else UNSURE)
            made[use_case, certain] = stand, stand.gold()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_STORED_DATA)
def test_a_defect_in_stored_data_is_found(
    smalls: dict[tuple[str, bool], tuple[Stand, Gold]], tmp_path: Path, name: str
) -> None:
    use_case, statements, expected = IN_STORED_DATA[name]
    stand, gold = smalls[use_case, True]
    spoilt = stand.copy(tmp_path / "spoilt.db")
    spoilt.vandalise(*statements)
    assert spoilt.false_verdicts(gold) == expected


@pytest.mark.parametrize("name", sorted(set(IN_STORED_DATA) - {"the newest row deleted", "the newest value changed"}))
def test_a_defect_in_stored_data_is_found_though_some_writes_are_unknown(
    smalls: dict[tuple[str, bool], tuple[Stand, Gold]], tmp_path: Path, name: str
) -> None:
    use_case, statements, _ = IN_STORED_DATA[name]
    stand, gold = smalls[use_case, False]
    spoilt = stand.copy(tmp_path / "spoilt.db")
    spoilt.vandalise(*statements)
    assert "rows" in spoilt.false_verdicts(gold)


def test_sound_data_is_not_accused(smalls: dict[tuple[str, bool], tuple[Stand, Gold]]) -> None:
    for stand, gold in smalls.values():
        assert stand.false_verdicts(gold) == set()


# --- defects in writes ------------------------------------------------------------------------------------------------


class Sender:
    """Sends writes, the `chosen` ones not as claimed."""

    def __init__(self, *chosen: int) -> None:
        self.chosen = chosen
        self.number = -1
        self.previous: Payload | None = None

    def __call__(self, session: Session, payload: Payload) -> int:
        self.number += 1
        try:
            return self.spoilt(session, payload) if self.number in self.chosen else session.write(payload)
        finally:
            self.previous = payload

    def spoilt(self, session: Session, payload: Payload) -> int:
        raise NotImplementedError


class Swallows(Sender):
    def spoilt(self, session: Session, payload: Payload) -> int:
        return payload.points


class StoresHalf(Sender):
    def spoilt(self, session: Session, payload: Payload) -> int:
        points = session.write(payload)
        session.run([Statement("DELETE FROM cpu WHERE rowid > (SELECT max(rowid) - 5 FROM cpu)")])
        return points


class StoresTwice(Sender):
    def spoilt(self, session: Session, payload: Payload) -> int:
        session.write(payload)
        return session.write(payload)


class StoresAndRefuses(Sender):
    def spoilt(self, session: Session, payload: Payload) -> int:
        session.write(payload)
        raise OpError(Outcome.FAILED, "constraint", "stored all the same")


class StoresThePreviousAgain(Sender):
    def spoilt(self, session: Session, payload: Payload) -> int:
        assert self.previous is not None
        return session.write(self.previous)


LOST, STORED = (Outcome.UNKNOWN, False), (Outcome.UNKNOWN, True)

IN_WRITES: dict[str, tuple[Sender, dict[int, Fate], set[str]]] = {
    "every seventh write swallowed": (Swallows(*range(0, 60, 7)), {}, {"rows", "count"}),
    "the last write swallowed": (Swallows(59), {}, {"rows", "count"}),
    "the last ten writes swallowed (a crash)": (Swallows(*range(50, 60)), {}, {"rows", "count"}),
    "half of a write swallowed": (StoresHalf(20), {}, {"rows", "count"}),
    "a write stored twice": (StoresTwice(20), {}, {"rows", "count"}),
    "a write stored that was refused": (StoresAndRefuses(20), {}, {"rows", "count"}),
    "the last write stored though it was refused": (StoresAndRefuses(59), {}, {"rows", "count"}),
    "another write's points stored in place of the own": (StoresThePreviousAgain(20), {}, {"rows"}),
    "one swallowed, and an unknown one stored": (Swallows(20), {30: STORED}, {"rows"}),
    "a refused one stored, and an unknown one not": (StoresAndRefuses(20), {30: LOST}, {"rows"}),
    "the last refused one stored, and an unknown one not": (StoresAndRefuses(58), {30: LOST}, {"rows"}),
    "an unknown one stored twice, and another not at all": (StoresTwice(20), {20: STORED, 30: LOST}, {"rows"}),
    "one stored twice, and an unknown one not": (StoresTwice(20), {30: LOST}, {"rows"}),
}


@pytest.mark.parametrize("name", IN_WRITES)
@pytest.mark.slow
def test_a_defect_in_writes_is_found(tmp_path: Path, name: str) -> None:
    sender, fates, expected = IN_WRITES[name]
    stand = small(tmp_path, "cpu-only", fates, sender)
    assert sender.number == 59 - sum(not sent for _, sent in fates.values()), "every write that was sent was counted"
    assert stand.false_verdicts(stand.gold()) == expected


def test_a_write_stored_twice_is_harmless_where_the_layout_keeps_one_of_two(tmp_path: Path) -> None:
    world = world_of("cpu-only", 6, interval_s=60)
    stand = Stand(world, TARGET, CLUSTERED, f"sqlite://{tmp_path / 'x.db'}", 120).load()
    stand.write(tmp_path, 60, {}, StoresTwice(20))
    assert stand.false_verdicts(stand.gold()) == set()


def test_half_of_an_unknown_write_may_be_stored(tmp_path: Path) -> None:
    stand = small(tmp_path, "cpu-only", {20: STORED}, StoresHalf(20))
    assert stand.false_verdicts(stand.gold()) == set()


# --- defects in the answers that are given while it is measured -------------------------------------------------------


def first(change: Callable[[list[Any]], list[Any]]) -> Callable[[list[list[Any]]], list[list[Any]]]:
    """Change the first row."""
    return lambda rows: [change(list(rows[0])), *rows[1:]]


IN_GIVEN_ANSWERS: dict[str, tuple[str, Callable[[list[list[Any]]], list[list[Any]]]]] = {
    "a newest row from before the load's end": (LAST, first(lambda row: [row[0] - 100 * HOUR_NS, *row[1:]])),
    "a newest row that was never sent": (LAST, first(lambda row: [*row[:2], row[2] + 0.5, *row[3:]])),
    "a newest row at a time at which none was sent": (LAST, first(lambda row: [row[0] + 1, *row[1:]])),
    "a newest row of another host": (LAST, first(lambda row: [row[0], "host_nobody", *row[2:]])),
    "no newest row of one host": (LAST, lambda rows: rows[1:]),
    "two newest rows of one host": (LAST, lambda rows: [rows[0], *rows]),
    "a newest row without a time": (LAST, first(lambda row: [None, *row[1:]])),
    "a newest row without a value": (LAST, first(lambda row: [*row[:2], None, *row[3:]])),
    "a newest row that is too short": (LAST, first(lambda row: row[:2])),
    "one maximum changed": (ONE, first(lambda row: [row[0], row[1] + 1])),
    "one bucket missing": (ONE, lambda rows: rows[:-1]),
    "the answer to another question": (MEAN, lambda rows: [[t + HOUR_NS, *rest] for t, *rest in rows]),
}


def given(stand: Stand, path: Path, kind: str, change: Callable[[list[list[Any]]], list[list[Any]]]) -> Answers:
    """Keep answers as a load process does, change the last of three, and check them."""
    gold, answers = stand.gold(), Answers()
    session = stand.connect()
    lines = []
    for number in range(3):
        query = queries.make(kind, stand.world, gold.loaded, SEED, number)
        rows = canonical(session.query(stand.schema.compile(query), query.columns))
        lines.append({"op": kind, "number": number, "rows": rows if number < 2 else change([list(r) for r in rows])})
    session.close()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"op": "cut of', encoding="utf-8")
    given_answers(gold, [path], SEED, answers)
    answers.compare(gold)
    return answers


@pytest.mark.parametrize("name", IN_GIVEN_ANSWERS)
def test_a_defect_in_an_answer_given_while_writes_went_on_is_found(
    large: tuple[Stand, Gold], tmp_path: Path, name: str
) -> None:
    kind, change = IN_GIVEN_ANSWERS[name]
    answers = given(large[0], tmp_path / "p0.answers.jsonl", kind, change)
    assert (answers.checked, answers.wrong) == (3, 1)
    assert answers.verdict().valid is False


def test_sound_answers_given_while_writes_went_on_are_not_accused(large: tuple[Stand, Gold], tmp_path: Path) -> None:
    for kind in (LAST, ONE, MEAN):
        assert given(large[0], tmp_path / "p0.answers.jsonl", kind, lambda rows: rows).verdict().valid is True


# --- no false alarms --------------------------------------------------------------------------------------------------


ORDERLY, MESSY = Disorder(), Disorder(late=0.1, out_of_order=0.1, duplicate=0.1, missing=0.1)


@dataclass(frozen=True)
class Sound:
    """A database without defects, and the number of queries to run on it."""

    target: str
    schema: str
    use_case: str
    questions: int
    scale: int
    interval_s: int
    hours: int
    disorder: Disorder = ORDERLY

    @property
    def id(self) -> str:
        return f"{self.target}-{self.schema}-{self.use_case}{'-disordered' if self.disorder else ''}"


SOUND = (
    Sound("sqlite", "wal", "cpu-only", 360, 32, 900, 25),
    Sound("sqlite", "clustered", "cpu-only", 360, 32, 900, 25, MESSY),
    Sound("sqlite", "wal", "cpu-only", 240, 32, 900, 25, MESSY),
    Sound("sqlite", "clustered", "devops", 200, 32, 1800, 25),
    Sound("sqlite", "wal", "sensors", 200, 8, 180, 7),
    Sound("sqlite", "clustered", "sensors", 180, 8, 180, 7, MESSY),
    Sound("sqlite", "wal", "replication", 250, 1, 10, 1),
    Sound("sqlite", "clustered", "replication", 250, 1, 10, 1, MESSY),
    Sound("sqlite", "clustered", "stocks", 60, 3, 60, 49, MESSY),
    Sound("sqlite", "wal", "sensordata", 180, 8, 180, 7, MESSY),
)
SOUND_POSTGRES = (
    Sound("postgres", "btree", "cpu-only", 150, 32, 900, 25),
    Sound("postgres", "brin", "sensors", 60, 8, 300, 7, MESSY),
    Sound("postgres", "btree", "stocks", 60, 3, 60, 49),
)


def unaccused(sound: Sound, url: str, place: Path) -> Answers:
    world = world_of(sound.use_case, sound.scale, interval_s=sound.interval_s, streams=1, disorder=sound.disorder)
    target = TARGETS[sound.target]
    ticks = sound.hours * 3600 // sound.interval_s
    stand = Stand(world, target, target.schemas[sound.schema], url, ticks).load().write(place, 60, UNSURE)
    gold = stand.gold()
    answers = stand.asked(gold, fitting(world, gold.loaded), sound.questions)
    assert answers.first_wrong is None
    assert (answers.checked, answers.wrong, answers.unsupported) == (sound.questions, 0, {})
    assert set(answers.by_kind) == set(fitting(world, gold.loaded))
    assert stand.false_verdicts(gold) == set()
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("sound", SOUND, ids=lambda s: s.id)
def test_a_sound_database_is_never_accused(sound: Sound, tmp_path: Path) -> None:
    unaccused(sound, f"sqlite://{tmp_path / 'sound.db'}", tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize("sound", SOUND_POSTGRES, ids=lambda s: s.id)
def test_a_sound_postgres_is_never_accused(sound: Sound, postgres_endpoint: str, tmp_path: Path) -> None:
    unaccused(sound, postgres_endpoint, tmp_path)


def test_sound_databases_are_asked_two_thousand_questions_of_every_kind() -> None:
    assert sum(sound.questions for sound in SOUND) >= 2_000
    asked: set[str] = set()
    for sound in SOUND:
        world = world_of(sound.use_case, sound.scale, interval_s=sound.interval_s, streams=1)
        asked |= set(fitting(world, Window(START_NS, START_NS + sound.hours * HOUR_NS)))
    others = [case for name, case in built_in_cases().items() if name != "iot"]  # whose queries have tests of their own
    assert asked == {*QUERIES, *(kind for case in others for kind in case.queries)}
