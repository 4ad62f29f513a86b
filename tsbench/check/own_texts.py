"""The gold answers to queries in users' own words: their `gold`, asked of DuckDB about the points that were sent."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.comparison import Computed, Difference, NotAnAnswer, compare_rows, label_of, order
from tsbench.check.first_rows import by_place, first_rows, ties
from tsbench.check.points import NEVER_NS
from tsbench.check.questions import Tracker
from tsbench.errors import UserMistake, require
from tsbench.model import Codes, Text
from tsbench.workload import own_text, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.check.comparison import Row
    from tsbench.check.gold_sql import GoldSql
    from tsbench.check.points import Slab
    from tsbench.check.questions import Checked, Question
    from tsbench.model import Measurement, Top
    from tsbench.scenario.spec import RunSpec
    from tsbench.workload.world import World

_NEAR = 1e-9
"""Part of the largest number in a column by which a database's may differ: the order of additions is not known."""


def tables_of(query: Text, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return the measurements about which a query's gold asks: its own, and others that the text names."""
    words = {*re.findall(r"\w+", query.gold)}
    return tuple(m for m in measurements if m.name == query.measurement.name or m.name in words)


def gold_sql(measurements: Sequence[Measurement], tags_of: Callable[[str], Mapping[str, Codes]]) -> GoldSql:
    """Return a place for points.

    Raises
    ------
    UserMistake
        If the package that answers gold is not installed.
    """
    require(own_text.GOLD_ENGINE, own_text.GOLD_ENGINE)
    from tsbench.check.gold_sql import GoldSql  # noqa: PLC0415 - of an extra

    return GoldSql(measurements, tags_of)


def empty_gold(world: World, measurements: Sequence[Measurement]) -> GoldSql:
    """Return a place without points, in which texts can be tried; raises UserMistake as `gold_sql`."""
    nothing = Codes(np.empty(0, dtype=np.int32), ())
    return gold_sql(measurements, lambda name: dict.fromkeys(world.tags_of(name), nothing))


def expect_gold(spec: RunSpec) -> None:
    """Verify that the gold of a run's queries can be asked; runs whose queries have none need no world for it.

    Raises
    ------
    UserMistake
        If one cannot.
    """
    if not (kinds := spec.kinds_with_gold):
        return
    world = spec.world_at()
    for kind in kinds:
        query = queries.make(kind, world, spec.loaded(world), 0, 0)
        assert isinstance(query, Text)  # noqa: S101 - gold stands with texts only
        gold = empty_gold(world, tables_of(query, world.measurements))
        try:
            gold.ask(query)
        except NotAnAnswer as error:
            raise UserMistake(f"query.{kind}.gold: {error}") from None
        finally:
            gold.close()


class OwnTextTracker(Tracker):
    """Answers to `Text` questions whose gold asks about the same measurements."""

    def __init__(
        self,
        questions: Sequence[Question[Text]],
        measurements: Sequence[Measurement],
        tags_of: Callable[[str], Mapping[str, Codes]],
    ) -> None:
        self._open = sorted(questions, key=lambda question: _asked(question.query), reverse=True)
        self.begin_ns = min(question.query.window.start_ns for question in questions)
        self.end_ns = self._open[0].query.window.end_ns
        self._gold = gold_sql(measurements, tags_of)
        self._until_ns = dict.fromkeys((m.name for m in measurements), NEVER_NS)
        """The time up to which all points of each measurement have been added."""
        self._has_added = False
        self._last: tuple[Any, list[Row]] = None, []
        """What was asked last, and its answer; a question like it comes next."""

    def add(self, slab: Slab, known: Slab) -> None:  # unknown writes are after the load
        low, high = known.rows_until(self.begin_ns), known.rows_until(self.end_ns)
        if low < high:
            self._gold.add(known, low, high)
        self._until_ns[slab.measurement.name], self._has_added = slab.end_ns, True

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if self._has_added:  # else all points have been
            until_ns, self._has_added = min(self._until_ns.values()), False
        while self._open and self._open[-1].query.window.end_ns <= until_ns:
            question = self._open.pop()
            yield question, self._difference(question)
            if not self._open:
                self._gold.close()

    def _difference(self, question: Question[Text]) -> Difference | None:
        answer, query = question.answer(), question.query
        if isinstance(answer, Difference):
            return answer
        asked, expected = self._last
        if asked != _asked(query):
            try:
                expected = self._gold.ask(query)
            except NotAnAnswer as error:
                return Difference(f"gold gives no answer: {error}", "no gold")
            self._last = _asked(query), expected
        if query.top is not None:
            every, given = (_typed_rows(query.answer, some) for some in (expected, answer.odd))
            expected = first_rows(query, query.top, _with_bounds(every), given, question.part)
        difference = difference_in(question, expected, answer.odd)
        if difference is not None and query.top is None and any(own_text.is_limited(text) for _, text in query.texts):
            said = f"{difference.short}; its text has a LIMIT: if rows tie there, say order and limit in the query, too"
            return replace(difference, text=difference.text.replace(difference.short, said, 1))
        return difference


def difference_in(
    question: Question[Text], expected: Sequence[Row], rows: Sequence[Row], top: Top | None = None
) -> Difference | None:
    """Return the first difference between the whole answer that is expected and the rows of a question's, or a part."""
    if question.part is not None:
        return question.part.compare(question.query, [_with_bounds(expected)], [*rows])
    return difference_of(question.query.answer, expected, rows, top)


def difference_of(
    columns: Sequence[tuple[str, str]], expected: Sequence[Row], rows: Sequence[Row], top: Top | None = None
) -> Difference | None:
    """Return the first difference between two answers with such `columns`, whatever the order of their rows.

    `columns` are names and kinds, as of `Text.answer`; None is no difference. Where both have the first rows of an
    order, those that tie with the last one are compared by the value by which they do.
    """
    if top is not None:
        expected, rows = (_without_ties(columns, top, some) for some in (expected, rows))
    one, other = (_in_order(columns, some) for some in (expected, rows))
    return compare_rows(_with_bounds(one), other, tuple(name for name, _ in columns))


def _without_ties(columns: Sequence[tuple[str, str]], top: Top, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of an answer; if it may lack some, only the value of those that tie with the last one."""
    place = [name for name, _ in columns].index(top.column)
    if len(rows) < top.limit or any(len(row) <= place for row in rows):
        return rows
    last = by_place(top, place, _with_bounds(rows))[-1][place]
    within = 2 * getattr(last, "within", 0.0)
    return [
        tuple(value if at == place else None for at, value in enumerate(row)) if ties(row[place], last, within) else row
        for row in rows
    ]


def _asked(query: Text) -> tuple[Any, ...]:
    """Return what gold's answer depends on, the window's end first."""
    return query.window.end_ns, query.window.start_ns, query.gold, query.values


def _in_order(columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[Row]:
    """Return rows sorted by their exact columns first: a float that differs by rounding must not change the order."""
    last = [i for i, (_, kind) in enumerate(columns) if kind == "float"]
    places = [*(i for i in range(len(columns)) if i not in last), *last]
    ordered = sorted(rows, key=lambda row: [order(row[i]) for i in places if i < len(row)])
    return _typed_rows(columns, ordered)


def _typed_rows(columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[Row]:
    """Return rows with booleans and whole numbers in the columns of such."""
    kinds = [*(kind for _, kind in columns)]
    return [(*map(_typed, kinds, row), *row[len(kinds) :]) for row in rows]


def _typed(kind: str, value: Any) -> Any:
    if kind == "bool":
        return label_of((False, True), value)
    return int(value) if kind == "int" and type(value) is float and value.is_integer() else value


def _with_bounds(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose floats have the bound by which an answer may differ."""
    columns = list(zip(*rows, strict=True))
    largest = [max((abs(value) for value in column if isinstance(value, float)), default=0.0) for column in columns]
    return [
        tuple(
            Computed.of(value, _NEAR * most) if isinstance(value, float) else value
            for value, most in zip(row, largest, strict=True)
        )
        for row in rows
    ]
