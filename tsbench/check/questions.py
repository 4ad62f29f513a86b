"""Questions whose answers are to be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from tsbench.check.comparison import Difference, NotAnAnswer, canonical, compare_rows, floats_of, in_order
from tsbench.check.packed import Packed, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.check.comparison import Row
    from tsbench.check.sample import Part
    from tsbench.check.stored_rows import Located
    from tsbench.model import Query, Rows

Answer: TypeAlias = Packed | Difference
"""An answer as columns, or why it is none."""
Found: TypeAlias = "Difference | list[Located] | None"
"""The difference of an answer; of stored rows a list of all, which may be empty."""


Q_co = TypeVar("Q_co", bound="Query", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[Q_co]):
    """A query and its answer, which `read` returns when it is to be compared (canonical rows for `Stored`).

    `quiet` means that nothing was being written while it was answered; `cut` that it may have been longer. `sent_ns`
    and `ended_ns` are when it was asked and answered (0: not known). With `part`, the rows are only that part of them.
    """

    kind: str
    query: Q_co
    read: Callable[[], Answer | Rows]
    quiet: bool = True
    cut: bool = False
    sent_ns: int = 0
    ended_ns: int = 0
    part: Part | None = None

    def answer(self) -> Answer:
        """Return the answer as columns."""
        return cast("Answer", self.read())

    def rows(self) -> Rows:
        """Return stored rows in canonical form."""
        return cast("Rows", self.read())


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of a world's series, and the number of each; both None where answers have no key."""

    keys: Sequence[str] | None
    series_of: Mapping[str, int] | None


def packed_answer(query: Query, rows: Rows, names: Names) -> Answer:
    """Return an answer as columns; a difference if it has other columns or values that no answer can have."""
    if tuple(rows.columns) != query.columns:
        return Difference(f"columns {', '.join(rows.columns)} instead of {', '.join(query.columns)}", "other columns")
    try:
        found = canonical(rows, floats_of(query.measurement))
    except NotAnAnswer as error:
        return Difference(str(error), "not an answer")
    return pack_rows(query, found, names)


def pack_rows(query: Query, rows: Sequence[Row], names: Names) -> Packed:
    """Return rows in canonical form as columns."""
    return pack(rows, names.series_of, len(query.columns) - 1 - (names.series_of is not None))


def compare_answer(question: Question[Query], expected: Packed, names: Names) -> Difference | None:
    """Return the first difference between an answer and the gold answer; None if they agree."""
    answer = question.answer()
    if isinstance(answer, Difference):
        return answer
    query = question.query
    expected = expected.sorted()
    if question.part is None and expected.agrees(answer):
        return None
    rows = in_order([*answer.rows(names.keys), *answer.odd])
    wanted = expected.rows(names.keys)
    if question.part is not None:
        return question.part.compare(query, wanted, rows)
    return compare_rows(wanted, rows, query.columns)
