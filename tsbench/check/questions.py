"""Questions whose answers are to be checked, and the interface of the trackers that collect the gold answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from tsbench.check.comparison import Difference, NotAnAnswer, canonical, compare_answers, forms_of, in_order
from tsbench.check.packed import Packed, SeriesNames, join_packed, pack
from tsbench.check.points import EVER_NS, NEVER_NS
from tsbench.model import Rows, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.sample import RowSample
    from tsbench.check.stored_rows import Located
    from tsbench.model import Codes, Query

Answer: TypeAlias = Packed | Difference
"""An answer as columns, or a difference that says why it cannot be one."""
Found: TypeAlias = "Difference | list[Located] | None"
"""The difference of an answer; of stored rows a list of all, which may be empty."""
_PIECE_ROWS = 250_000
"""Number of rows of an answer that are converted to columns at a time."""


Q_co = TypeVar("Q_co", bound="Query", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[Q_co]):
    """A query and its answer, which `read` returns when it is to be compared.

    `quiet` means that nothing was being written while it was answered; `cut` that it may have been longer. `sent_ns`
    and `ended_ns` are when it was asked and answered (0: not known). With `part`, the rows are only that part of them.
    """

    kind: str
    query: Q_co
    read: Callable[[], Answer]
    quiet: bool = True
    cut: bool = False
    sent_ns: int = 0
    ended_ns: int = 0
    part: RowSample | None = None

    def answer(self) -> Answer:
        """Return the answer as columns."""
        return self.read()


@dataclass(frozen=True, slots=True)
class Names:
    """The keys and tags of a world's `scale` series; answers have keys if `keyed`.

    Of stored rows all tags together are the key.
    """

    every_key: SeriesNames
    scale: int
    keyed: bool = True
    tags: Mapping[str, Codes] = field(default_factory=dict)
    by_tags: dict[tuple[str, ...], tuple[list[tuple[str, ...]], NDArray[np.intp]]] = field(default_factory=dict)
    """What `groups` returned before."""

    @property
    def keys(self) -> SeriesNames | None:
        """The keys of all series; None where answers have no key."""
        return self.every_key if self.keyed else None

    def chosen(self, query: Query) -> NDArray[np.bool_] | None:
        """Return a mask of the series that a query chooses, of shape (scale,); None: all."""
        keys, tagged = getattr(query, "keys", None), getattr(query, "tagged", ())
        if keys is None and not tagged:
            return None
        mask = np.full(self.scale, keys is None)
        chosen = self.every_key.numbers_of(keys or ())
        mask[chosen[chosen >= 0]] = True
        for one in tagged:
            codes = self.tags[one.tag]
            mask &= np.array([value in one.values for value in codes.values])[codes.codes]
        return mask

    def groups(self, by: tuple[str, ...]) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
        """Return the different values of some tags together, and the number of each series' ones, of shape (scale,)."""
        if by not in self.by_tags:
            texts = [*zip(*(self.tags[tag].tolist() for tag in by), strict=True)] or [()] * self.scale
            numbers: dict[tuple[str, ...], int] = {}
            codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.intp)
            self.by_tags[by] = [*numbers], codes
        return self.by_tags[by]


def packed_answer(query: Query, rows: Rows, names: Names) -> Answer:
    """Return an answer as columns; a difference if it has other columns or values that no answer can have."""
    if tuple(rows.columns) != query.columns:
        return Difference(f"columns {', '.join(rows.columns)} instead of {', '.join(query.columns)}", "other columns")
    forms = forms_of(query)
    pieces = []
    try:
        # Of millions of rows, which take six times as much as columns, only a piece is held twice.
        for start in range(0, max(1, len(rows)), _PIECE_ROWS):
            piece = Rows(rows.columns, rows.records[start : start + _PIECE_ROWS])
            pieces.append(pack_rows(query, canonical(piece, forms), names))
    except NotAnAnswer as error:
        return Difference(str(error), "not an answer")
    if len(pieces) == 1:
        return pieces[0]
    packed = join_packed(pieces).sorted()
    packed.odd = [row for piece in pieces for row in piece.odd]
    return packed


def pack_rows(query: Query, rows: Sequence[Row], names: Names) -> Packed:
    """Return rows in canonical form as columns."""
    if isinstance(query, Text):  # whose columns are not known: they are compared one by one
        packed = Packed.empty(0)
        packed.odd = [*map(tuple, rows)]
        return packed
    fields = len(query.columns) - 1 - names.keyed
    return pack(rows, names.keys, fields, nullable=query.measurement.nullable)


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
    if question.part is not None:
        starts = range(0, len(expected), _PIECE_ROWS)
        pieces = (expected.take(slice(start, start + _PIECE_ROWS)).rows(names.keys) for start in starts)
        return question.part.compare(query, pieces, rows)
    return compare_answers(query, expected.rows(names.keys), rows)


# --- trackers ---------------------------------------------------------------------------------------------------------


Checked: TypeAlias = "tuple[Question[Any], Found]"


class Tracker(ABC):
    """Collects the gold answers to some questions from one slab after the other.

    The points from `begin_ns` to `end_ns` (excluded) concern it.
    """

    begin_ns: int
    end_ns: int

    @abstractmethod
    def add(self, slab: Slab, known: Slab) -> None:
        """Take in a slab; `known` are its points that are stored for certain."""

    @abstractmethod
    def checked(self, until_ns: int) -> Iterator[Checked]:
        """Yield the questions that no point from `until_ns` on concerns, each with the difference that was found."""


class WindowTracker(Tracker):
    """A tracker of one question, which is compared when the tracker's end is reached."""

    def __init__(self, question: Question[Any], names: Names, begin_ns: int, end_ns: int) -> None:
        self._question, self._names = question, names
        self.begin_ns, self.end_ns = begin_ns, end_ns

    @abstractmethod
    def _difference_found(self) -> Found:
        """Return the difference between the question's answer and the points that were added."""

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if self.end_ns <= until_ns:
            yield self._question, self._difference_found()


class MomentTracker(Tracker):
    """A tracker of questions about all points before a moment each, such as the newest rows; else they are alike."""

    begin_ns = NEVER_NS

    def __init__(self, questions: Sequence[Question[Any]], names: Names) -> None:
        self._names = names
        self._open = sorted(questions, key=_moment_ns, reverse=True)
        self.end_ns = _moment_ns(self._open[0])
        self._done: list[Checked] = []

    @abstractmethod
    def _take(self, slab: Slab, low: int, high: int) -> None:
        """Take in rows of a slab, which are newer than those before."""

    @abstractmethod
    def _expected(self, query: Any) -> Packed:
        """Return the gold answer from the rows so far."""

    def add(self, slab: Slab, known: Slab) -> None:  # these answers have no rows of unknown writes
        low = 0
        while self._open and len(known) and _moment_ns(self._open[-1]) <= int(known.time_ns[-1]):
            high = known.rows_until(_moment_ns(self._open[-1]))
            self._take(known, low, high)
            low = high
            self._answer()
        if self._open:
            self._take(known, low, len(known))

    def _answer(self) -> None:
        question = self._open.pop()
        self._done.append((question, compare_answer(question, self._expected(question.query), self._names)))

    def checked(self, until_ns: int) -> Iterator[Checked]:
        while self._open and _moment_ns(self._open[-1]) <= until_ns:
            self._answer()
        done, self._done = self._done, []
        yield from done


def _moment_ns(question: Question[Any]) -> int:
    return EVER_NS if question.query.before_ns is None else int(question.query.before_ns)
