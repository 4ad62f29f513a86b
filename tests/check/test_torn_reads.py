"""Torn reads: rows without some fields in answers given under load; each answer is made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.check.test_newest import LOAD, NEWEST, RUN_NS, gold, rows
from tsbench.check.answers import Answers
from tsbench.check.questions import Question
from tsbench.model import OpError, Outcome, Rows
from tsbench.targets.base import Unsupported
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.model import Raw

Row = tuple[Any, ...]


def stored(query: Raw) -> Rows:
    """Read rows back from a database that has all of them whole."""
    (tick,) = (tick for tick in range(20) if rows(tick)[0][0] == query.window.start_ns)
    assert query.keys is not None
    return Rows(query.columns, [row for row in rows(tick) if row[1] in query.keys])


def checked(*answers: list[Row], read: Callable[[Raw], Rows] | None = stored) -> Answers:
    """Check answers that were asked when block 0 was stored and block 1 was being written (ticks 8 to 10)."""
    key, found = gold(), Answers()
    for answer in answers:
        packed = key.packed(NEWEST, Rows(NEWEST.columns, answer))
        sent_ns = RUN_NS + 3 * NS_PER_S // 2
        found.given(
            Question("lastpoint", NEWEST, lambda one=packed: one, False, False, sent_ns, sent_ns + NS_PER_S)  # type: ignore[misc]
        )
    found.compare(key, read)
    return found


def torn(row: Row) -> Row:
    return (*row[:3], None)


def in_two(older: Row, newer: Row) -> list[Row]:
    """The rows of an answer for whose series two rows were read, each in part: so InfluxDB 2 gives a torn row."""
    return [torn(older), (*newer[:2], None, newer[3])]


WHOLE = rows(9)
TORN = [torn(WHOLE[0]), *WHOLE[1:]]
KINDS: dict[str, tuple[list[Row], set[str]]] = {
    "a wrong value beside the missing one": ([(*WHOLE[0][:2], -1.0, None), *WHOLE[1:]], {"row never sent"}),
    "no value at all": ([(*WHOLE[0][:2], None, None), *WHOLE[1:]], {"row never sent"}),
    "a torn row at a time at which none was sent": (
        [(WHOLE[0][0] + 1, *torn(WHOLE[0])[1:]), *WHOLE[1:]],
        {"row never sent"},
    ),
    "a torn row sent after the answer": ([torn(rows(12)[0]), *WHOLE[1:]], {"row sent later"}),
    "a torn row that is stale": ([torn(rows(6)[0]), *WHOLE[1:]], {"stale row"}),
    "a row torn in two whose older part is stale": ([*in_two(rows(6)[0], WHOLE[0]), *WHOLE[1:]], {"stale row"}),
    "a row missing": (TORN[:-1], {"missing row"}),
    "a stale row": ([*TORN[:-1], rows(6)[-1]], {"stale row"}),
    "a row that was never sent": ([*TORN[:-1], (*WHOLE[-1][:3], -5.0)], {"row never sent"}),
    "two rows of a series": ([*TORN, rows(8)[-1]], {"several newest rows"}),
    "a stale row, one never sent, and one missing": (
        [torn(WHOLE[0]), rows(6)[1], (*WHOLE[2][:3], -5.0)],
        {"stale row", "row never sent", "missing row"},
    ),
}


def test_torn_rows_are_counted_apart_and_are_no_wrong_answer() -> None:
    found = checked(WHOLE, TORN, [torn(row) for row in WHOLE], rows(LOAD + 3))
    assert (found.checked, found.wrong, found.differences) == (4, 0, {})
    assert (found.torn.answers, found.torn.rows) == (2, 5)
    assert found.torn.first is not None
    assert "a row without usage_system" in found.torn.first["row"]
    assert found.verdict().valid is True
    assert found.verdict().counts == {"checked": 4, "wrong": 0, "torn": 2}


def test_a_row_that_comes_in_two_parts_is_torn_and_not_several() -> None:
    found = checked([*in_two(rows(8)[0], WHOLE[0]), *WHOLE[1:]], [*WHOLE[1:], *reversed(in_two(rows(8)[0], WHOLE[0]))])
    assert (found.differences, found.torn.answers, found.torn.rows) == ({}, 2, 4)


def test_without_torn_rows_none_are_counted() -> None:
    found = checked(WHOLE, rows(8))
    assert (found.checked, found.wrong, found.torn.answers) == (2, 0, 0)
    assert found.verdict().counts == {"checked": 2, "wrong": 0}


@pytest.mark.parametrize("name", KINDS)
def test_a_torn_row_hides_no_other_difference(name: str) -> None:
    answer, kinds = KINDS[name]
    found = checked(answer)
    assert {*found.differences} == kinds
    assert (found.checked, found.wrong) == (1, 1)
    assert all(one["count"] == 1 and one["first"]["difference"] for one in found.differences.values())
    assert found.verdict().valid is False


def test_all_kinds_of_difference_are_counted_each_with_its_first_example() -> None:
    found = checked(*(answer for answer, _ in KINDS.values()), WHOLE)
    counts = {kind: one["count"] for kind, one in found.differences.items()}
    assert counts == {
        "row never sent": 5, "row sent later": 1, "stale row": 4, "missing row": 2, "several newest rows": 1
    }  # fmt: skip
    assert (found.checked, found.wrong) == (len(KINDS) + 1, len(KINDS))
    assert found.differences["row sent later"]["first"]["kind"] == "lastpoint"
    assert "5 x row never sent" in found.verdict().reason


def unreadable(query: Raw) -> Rows:
    raise OpError(Outcome.UNKNOWN, "timeout", "no answer came")


def unaskable(query: Raw) -> Rows:
    raise Unsupported("no raw rows")


NOT_WHOLE: dict[str, tuple[Callable[[Raw], Rows] | None, str]] = {
    "the field is not stored": (
        lambda query: Rows(query.columns, [torn(row) for row in stored(query).records]),
        "it is not whole when read back",
    ),
    "another value is stored": (
        lambda query: Rows(query.columns, [(*row[:3], -5.0) for row in stored(query).records]),
        "it is not whole when read back",
    ),
    "one of two rows is not whole": (
        lambda query: Rows(query.columns, [*stored(query).records, *map(torn, stored(query).records)]),
        "it is not whole when read back",
    ),
    "it is not stored": (lambda query: Rows(query.columns, []), "it is not stored"),
    "it is stored at another time": (
        lambda query: Rows(query.columns, [(row[0] + 1, *row[1:]) for row in stored(query).records]),
        "it is not stored",
    ),
    "no answer": (unreadable, "it could not be read back: no answer came"),
    "not to be asked": (unaskable, "it could not be read back: no raw rows"),
    "nobody to ask": (None, "it was not read back"),
}


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_a_row_that_is_not_whole_when_read_back_is_a_wrong_one(name: str) -> None:
    read, why = NOT_WHOLE[name]
    found = checked(TORN, WHOLE, read=read)
    assert (found.checked, found.wrong, found.torn.answers) == (2, 1, 0)
    assert {*found.differences} == {"incomplete row"}
    assert why in found.verdict().reason


def test_rows_of_one_time_are_read_back_together_and_each_once() -> None:
    asked = []

    def counted(query: Raw) -> Rows:
        asked.append(query)
        return stored(query)

    assert checked(TORN, TORN, [*WHOLE[:2], *map(torn, WHOLE[2:])], read=counted).torn.rows == 4
    assert len(asked) == 1
    assert asked[0].keys == ("host_0", "host_1", "host_3")
    assert asked[0].window.length_ns == 1
