"""Answers without gold: compared with those of other databases, and with the same ones asked again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tsbench.check.agreement import MOST_VALUES, Unproven, Witness, agreements, read_unproven, write_unproven
from tsbench.check.answers import Answers
from tsbench.check.halves import difference_from_halves
from tsbench.check.packed import Packed
from tsbench.check.questions import Question
from tsbench.check.sample import part_of
from tsbench.model import Field, Measurement, Rows, Text, Top, Window

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

    from tsbench.check.comparison import Row

COLUMNS = (("time", "time"), ("site", "text"), ("warm", "float"), ("n", "int"))
QUERY = Text(Measurement("m", (), (Field("f"),)), COLUMNS, (("sql", "x"),), "", Window(0, 10))
ROWS: list[Row] = [(i, f"s-{i % 3}", i / 3, float(i)) for i in range(1_000)]


def packed(rows: Sequence[Row]) -> Packed:
    answer = Packed.empty(0)
    answer.odd = [*rows]
    return answer


@pytest.mark.parametrize("is_part", [False, True])
def test_an_answer_asked_again_may_differ_by_rounding_and_in_order_only(is_part: bool) -> None:
    part, some = part_of(QUERY, Rows(QUERY.columns, ROWS), 10)
    before = some.records if is_part else ROWS
    changed = before[3]
    other = [row if row != changed else (*row[:2], row[2] + 1e-3, row[3]) for row in ROWS]
    for again, said in (
        (ROWS, ""),
        (ROWS[::-1], ""),
        ([(t, site, warm * (1 + 1e-15), n) for t, site, warm, n in ROWS], ""),
        (ROWS[:-1], "1000 rows instead of 999"),
        (other, "warm: "),
    ):
        answers = Answers()
        answers.repeated_as(Question("k", QUERY, lambda: packed(before), part=part if is_part else None), packed(again))
        assert answers.repeated == {"k": 1}
        assert (said in answers.unsteady["k"]) if said else not answers.unsteady
        assert answers.verdict().valid is (None if said else True)


def test_halves_of_a_window_come_to_the_whole_or_are_named() -> None:
    columns = (("site", "text"), ("at", "time"), ("mean", "float"), ("n", "int"), ("hot", "float"), ("cold", "float"))
    how = (("n", "sum"), ("hot", "max"), ("cold", "min"))
    query = replace(QUERY, answer=columns, halves=how)
    first: list[Row] = [("a", 0, 7.0, 2.0, 0.5, 0.25), ("b", 0, 1.0, 1.0, None, None), ("c", 0, 1.0, 1.0, 9.0, 9.0)]
    second: list[Row] = [("b", 0, 2.0, 2.0, 1.0, 1.0), ("a", 0, 8.0, 1.0, 0.125, 0.125), ("a", 1, 1.0, 1.0, 1.0, 1.0)]
    whole: list[Row] = [
        ("a", 0, 3.0, 3.0, 0.5 + 1e-12, 0.125),
        ("a", 1, 3.0, 1.0, 1.0, 1.0),
        ("b", 0, 3.0, 3.0, 1.0, 1.0),
        ("c", 0, 3.0, 1.0, 9.0, 9.0),
    ]
    assert difference_from_halves(query, whole[::-1], (first, second)) is None
    for at, column in ((3, "n"), (4, "hot"), (5, "cold")):
        other = [*whole[:-1], (*whole[-1][:at], 7.0, *whole[-1][at + 1 :])]
        difference = difference_from_halves(query, other, (first, second))
        assert difference is not None
        assert column in difference.short
    assert difference_from_halves(query, whole[:-1], (first, second)) is not None  # a row is missing
    answers = Answers()
    for one in (whole, whole[:-1]):
        answers.halved_as("k", difference_from_halves(query, one, (first, second)))
    assert answers.halved == {"k": 2}
    assert "it is not what those about the halves of its window come to: " in str(answers.verdict().reason)


def witness(
    name: str, family: str, *answers: Sequence[Row], kind: str = "k", top: Top | None = None, against: bool = False
) -> Witness:
    given: dict[Hashable, Unproven] = {
        n: Unproven(kind, n, COLUMNS[2:], rows, top, against_gold=against) for n, rows in enumerate(answers)
    }
    return Witness(name, family, given)


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ([(1.0, 9.0), (2.0, 8.0), (9.0, 7.0)], True),
        ([(1.0, 9.0), (2.0, 8.0), (3.0, 7.0)], True),
        ([(1.0, 9.0), (2.5, 8.0), (3.0, 7.0)], False),
        ([(1.0, 9.0), (3.0, 7.0), (4.0, 7.0)], False),
        ([(1.0, 9.0), (2.0, 8.0)], False),
    ],
)
def test_of_the_first_rows_those_that_tie_with_the_last_one_may_be_others(
    other: Sequence[Row], alike: bool, tmp_path: Path
) -> None:
    first = [(1.0, 9.0), (2.0, 8.0), (3.0, 7.0)]
    for top, expected in ((Top("n", 3), alike), (Top("n", 4), other == first), (None, other == first)):
        write_unproven(tmp_path / "u", witness("b", "y", other, top=top).answers.values())
        (read,) = read_unproven(tmp_path / "u")
        (agreed,) = agreements([witness("a", "x", first, top=top), Witness("b", "y", {0: read})])
        assert (agreed.differ == 0) is expected


ONE, TWO, NEAR = [(1.0, 5.0)], [(1.0, 6.0)], [(1.0 + 1e-12, 5.0)]


def test_the_database_that_differs_from_most_others_is_named_with_the_first_difference() -> None:
    (alike,) = agreements([witness("a", "x", ONE, TWO), witness("b", "y", NEAR, TWO)])
    assert (alike.asked, alike.differ, alike.is_proof, alike.first) == (2, 0, True, "")
    (odd,) = agreements([witness("a", "x", ONE, ONE), witness("b", "y", ONE, TWO), witness("c", "z", NEAR, ONE)])
    assert (odd.differ, odd.outliers) == (1, {"b": 1})
    assert odd.first == "query 2, row 1 of 1, n: 6 instead of 5 (b instead of a)"
    (two,) = agreements([witness("a", "x", ONE), witness("b", "y", TWO)])
    assert (two.differ, two.outliers, two.is_proof) == (1, {}, False), "of two nobody knows which is right"
    (family,) = agreements([witness("a", "x", ONE), witness("b", "x", ONE)])
    assert (family.is_proof, "members may share a mistake" in family.sentence) == (False, True)
    (wrong,) = agreements([witness("a", "x", ONE, TWO, against=True), witness("b", "y", ONE, against=True)])
    assert (wrong.against_gold, wrong.asked, wrong.differ) == (True, 1, 0), "those that both got wrong"


def test_answers_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "unproven.jsonl"
    assert read_unproven(path) == []
    rows: list[Row] = [(2**62 + 1, "süd ☃", float("inf"), None), (-1, "", 0.1 + 0.2, 2.0**53)]
    given = [Unproven("k", 7, COLUMNS, rows), Unproven("g", 0, COLUMNS, [], against_gold=True)]
    write_unproven(path, given)
    assert read_unproven(path) == given
    write_unproven(path, [Unproven("k", n, COLUMNS[:1], [(n,)] * (MOST_VALUES // 2)) for n in range(3)])
    assert [one.number for one in read_unproven(path)] == [0, 1], "no more than so many values"


@pytest.mark.parametrize(
    "line",
    [
        '{"op": "k", "number": 1, "columns": 5, "rows": []}',
        '{"op": "k", "number": 1, "columns": [["a", "int"]], "rows": 5}',
        '{"op": "k", "number": 1, "columns": [["a", "int"]], "rows": [5]}',
        '{"op": "k", "number": 1, "columns": [["a"]], "rows": []}',
        '{"op": "k", "number": -1, "columns": [], "rows": []}',
        '{"op": 5, "number": 1, "columns": [], "rows": []}',
        "[]",
        "{",
    ],
)
def test_a_damaged_file_of_answers_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "unproven.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError):  # noqa: PT011 - whose text is that of another module
        read_unproven(tmp_path / "unproven.jsonl")
