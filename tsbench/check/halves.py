"""Answers without gold about a window and about its halves, which have to come to the same."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tsbench.check.answers import REPEATS
from tsbench.check.own_texts import difference_of
from tsbench.check.packed import Packed
from tsbench.model import Text, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.check.answers import Answers
    from tsbench.check.comparison import Difference, Row
    from tsbench.check.gold import Gold
    from tsbench.targets.base import Schema, Session

COMBINED: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "min": min, "max": max}
"""How the values of two halves come to that of the whole."""


def ask_halves(gold: Gold, session: Session, schema: Schema, answers: Answers) -> None:
    """Ask about the halves of windows, which meet at a point's time, and compare; at most `REPEATS` of a kind."""
    spec = gold.world.spec
    for kind, query, whole in answers.wholes:
        if answers.halved.get(kind, 0) == REPEATS:
            continue
        start_ns, end_ns = query.window.start_ns, query.window.end_ns
        first_ns = start_ns + (spec.start_ns - start_ns) % spec.interval_ns  # the first time of a point
        middle_ns = first_ns + (end_ns - first_ns) // spec.interval_ns // 2 * spec.interval_ns
        if not start_ns < middle_ns < end_ns:
            continue
        halves = [replace(query, window=Window(*of)) for of in ((start_ns, middle_ns), (middle_ns, end_ns))]
        given = [gold.packed(one, session.query(schema.compile(one), one.columns)) for one in halves]
        parts = [one.odd for one in given if isinstance(one, Packed)]
        if len(parts) == len(halves):
            answers.halved_as(kind, difference_from_halves(query, whole, parts))


def difference_from_halves(query: Text, whole: Sequence[Row], parts: Sequence[Sequence[Row]]) -> Difference | None:
    """Return the first difference between the answer about a window and what those about its halves come to.

    Columns that `halves` does not name tell rows apart, but for floats, which are not compared.
    """
    how = dict(query.halves)
    keys = [at for at, (name, kind) in enumerate(query.answer) if name not in how and kind != "float"]
    values = [(at, COMBINED[how[name]]) for at, (name, _) in enumerate(query.answer) if name in how]
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for row in (row for part in parts for row in part):
        key, own = tuple(row[at] for at in keys), [row[at] for at, _ in values]
        before = rows.setdefault(key, own)
        if before is not own:
            for place, (_, combine) in enumerate(values):
                one, other = before[place], own[place]
                before[place] = other if one is None else one if other is None else combine(one, other)
    places = [*keys, *(at for at, _ in values)]
    expected = [(*key, *own) for key, own in rows.items()]
    given = [tuple(row[at] for at in places) for row in whole]
    return difference_of([query.answer[at] for at in places], expected, given)
