"""The first rows by one of an answer's columns: at the limit any choice of those that tie is right."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import equal, in_order, order
from tsbench.model import Aggregated, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tsbench.check.comparison import Row
    from tsbench.check.sample import RowSample
    from tsbench.model import Raw, Top


def first_rows(
    query: Aggregated | Raw | Text, top: Top, expected: Sequence[Row], actual: Sequence[Row], part: RowSample | None
) -> list[Row]:
    """Return the rows that an answer should have, with its own choice of those that tie at the limit.

    `expected` are all rows, of which the answer has the first; where only a `part` of an answer was kept, some of the
    others may be among its rows, too.
    """
    if len(expected) <= top.limit:
        return [*expected]
    identity = _identity_of(query)
    given: dict[Hashable, list[Row]] = defaultdict(list)
    for row in actual:
        given[identity(row)].append(row)

    def rank(row: Row) -> int:
        if (of := given.get(identity(row))) is not None:
            return 0 if any(all(map(equal, row, other)) for other in of) else 1
        return 3 if part is None or part.chosen(query, [row]) else 2

    place = query.columns.index(top.column)
    ordered = by_place(top, place, expected)
    last = ordered[top.limit - 1][place]
    within = 2 * getattr(last, "within", 0.0)  # of two values that were computed, each
    sure = [row for row in ordered[: top.limit] if not ties(row[place], last, within)]
    tied = sorted((row for row in ordered if ties(row[place], last, within)), key=rank)
    return in_order([*sure, *tied[: top.limit - len(sure)]])


def _identity_of(query: Aggregated | Raw | Text) -> Callable[[Row], Hashable]:
    """Return the part of a row that identifies it, without values that may differ by rounding or be wrong."""
    if isinstance(query, Text):
        places = [i for i, (_, kind) in enumerate(query.answer) if kind != "float"]
        return lambda row: tuple(row[i] for i in places if i < len(row))
    if isinstance(query, Aggregated):
        return lambda row: row[: len(query.columns) - len(query.values)]
    return repr


def by_place(top: Top, place: int, rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order of their values in one place, those without one last."""
    some = sorted((row for row in rows if row[place] is not None), key=lambda row: order(row[place]))
    return [*(some if top.lowest else reversed(some)), *(row for row in rows if row[place] is None)]


def ties(value: Any, last: Any, within: float) -> bool:
    """Return whether a value equals the last row's, within the bound of both."""
    return bool(value == last or (within and value is not None and abs(value - last) <= within))
