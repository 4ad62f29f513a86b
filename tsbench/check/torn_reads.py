"""Torn reads: rows that lacked some fields while points were written, and are whole when they are read back.

They are a finding about the database's isolation and no wrong answer: nothing was lost, and a transaction that reads
only whole rows is more than some databases promise.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.check.comparison import Difference, IncompleteRow, NotAnAnswer, canonical, equal, forms_of
from tsbench.model import OpError, Raw, Window
from tsbench.targets.base import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tsbench.model import Rows

ReadRows: TypeAlias = "Callable[[Raw], Rows]"
"""Reads rows back; raises OpError or Unsupported if it cannot."""


@dataclass(slots=True)
class TornReads:
    """Number of answers with torn rows, number of these rows, and the first."""

    answers: int = 0
    rows: int = 0
    first: dict[str, str] | None = field(default=None)

    def note(self, kind: str, rows: tuple[IncompleteRow, ...]) -> None:
        """Count an answer and its torn rows."""
        self.answers += 1
        self.rows += len(rows)
        if self.first is None:
            self.first = {"kind": kind, "row": rows[0].text}

    def summary(self) -> dict[str, Any]:
        """Return the counts in the form of summary.json and validate.json."""
        return {"answers": self.answers, "rows": self.rows, "first": self.first}


def not_whole(rows: Iterable[IncompleteRow], read: ReadRows | None, resolution_ns: int) -> dict[IncompleteRow, str]:
    """Read incomplete rows back, and return those that are not whole then, each with the reason.

    Rows of the same time are read by one query, whose window has the length `resolution_ns`.
    """
    alike: dict[tuple[Any, ...], list[IncompleteRow]] = defaultdict(list)
    for row in dict.fromkeys(rows):
        alike[row.measurement.name, row.fields, row.time_ns].append(row)
    torn: dict[IncompleteRow, str] = {}
    for group in alike.values():
        torn |= _not_whole_at(group, read, resolution_ns)
    return torn


def _not_whole_at(group: list[IncompleteRow], read: ReadRows | None, resolution_ns: int) -> dict[IncompleteRow, str]:
    first = group[0]
    keys = None if first.key is None else tuple(row.key for row in group if row.key is not None)
    window = Window(first.time_ns, first.time_ns + resolution_ns)
    try:
        if read is None:
            return dict.fromkeys(group, "it was not read back")
        query = Raw(first.measurement, first.fields, window, keys)
        stored = canonical(read(query), forms_of(query))
    except (OpError, Unsupported, NotAnAnswer) as error:
        return dict.fromkeys(group, f"it could not be read back: {error}")
    wrong = {}
    for row in group:
        start = 1 if row.key is None else 2
        place = (row.time_ns,) if row.key is None else (row.time_ns, row.key)
        values = [one[start:] for one in stored if one[:start] == place]
        if not values:
            wrong[row] = "it is not stored"
        elif not all(equal(value, sent) for one in values for value, sent in zip(one, row.sent, strict=True)):
            wrong[row] = f"it is not whole when read back: {values[0]!r}"
    return wrong


def judged(
    difference: Difference, wrong: dict[IncompleteRow, str]
) -> tuple[Difference | None, tuple[IncompleteRow, ...]]:
    """Return the difference without rows that are torn, None if nothing remains; and the torn rows.

    An incomplete row that was not whole when it was read back is a difference like any other.
    """
    remain, torn = [], []
    for one in (difference, *difference.also):
        bad = [row for row in one.torn if row in wrong]
        torn += [row for row in one.torn if row not in wrong]
        if bad:
            remain.append(Difference(f"{bad[0].text}; {wrong[bad[0]]}", "incomplete row"))
        elif not one.torn:
            remain.append(replace(one, also=()))
    return (replace(remain[0], also=tuple(remain[1:])) if remain else None), tuple(torn)
