"""The answers that a load process keeps to be checked after the run: in a file, so that its memory does not grow."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import ColumnForms, NotAnAnswer, canonical, forms_of
from tsbench.check.sample import part_of, rank
from tsbench.model import Rows
from tsbench.results.process import GivenAnswers

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.check.sample import RowSample
    from tsbench.model import Query

WHOLE_BYTES = 8 * 2**20
"""Of a larger answer, the number of rows and a share of the rows are kept."""
PART_BYTES = 2**20
"""Size of that share."""
KEPT_BYTES = 128 * 2**20
"""Size of all answers that a process keeps; beyond it, the kind that takes most has fewer of them."""
ROW_BYTES, VALUE_BYTES = 64, 40
"""Size of a row and of each value in it, roughly: a tuple of numbers of 24 to 32 bytes, and the references to them."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer in the file: where it begins, and how many bytes it has."""

    kind: str
    number: int
    times_ns: tuple[int, int]
    offset: int
    nbytes: int


class AnswerSample:
    """The answers with the lowest hashes, at most `most` of each kind; `given` counts all of them by kind.

    They are kept, as the driver returned them, in a file without a name in `directory`.
    """

    def __init__(self, seed: int, most: int, directory: Path) -> None:
        self.given: dict[str, GivenAnswers] = defaultdict(GivenAnswers)
        self._seed, self._most = seed, most
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by `write`
        self._end = 0
        self._kept: dict[str, list[tuple[int, int, _Kept]]] = {}
        """Of each kind a heap of (minus the hash, number, answer): the highest hash comes first, and goes first."""
        self._bounds: dict[str, int] = {}
        """Of each kind the lowest hash that has been left out."""
        self._bytes: dict[str, int] = {}

    def add(self, kind: str, number: int, query: Query, rows: Rows, times_ns: tuple[int, int]) -> None:
        """Count an answer, and keep it if its hash is among the lowest of its kind so far.

        `times_ns` are when the query was sent and when its answer was there.
        """
        self.count(kind, len(rows))
        hashed = rank(self._seed, kind, number)
        if hashed >= self._bounds.get(kind, 1 << 64):
            return
        content = _packed(query, rows)
        try:
            self._file.write(content)
        except OSError:  # a full disk, which ends the run as soon as its figures are written
            self._bounds[kind] = 0
            return
        kept = _Kept(kind, number, times_ns, self._end, len(content))
        self._end += kept.nbytes
        heappush(self._kept.setdefault(kind, []), (-hashed, number, kept))
        self._bytes[kind] = self._bytes.get(kind, 0) + kept.nbytes
        if len(self._kept[kind]) > self._most:
            self._leave_out(kind)
        while sum(self._bytes.values()) > KEPT_BYTES:
            self._leave_out(max(self._bytes, key=lambda name: self._bytes[name]))

    def count(self, kind: str, rows: int) -> None:
        """Count an answer by its number of rows, and do not keep it."""
        self.given[kind].add(1, rows, not rows)

    def _leave_out(self, kind: str) -> None:
        order, _, answer = heappop(self._kept[kind])
        self._bounds[kind] = -order
        self._bytes[kind] -= answer.nbytes

    def write(self, path: Path) -> None:
        """Write the answers to a file, a line of JSON each, and close the other file."""
        with self._file, path.open("w", encoding="utf-8") as out:
            for heap in self._kept.values():
                for _, _, kept in sorted(heap, reverse=True):
                    self._file.seek(kept.offset)
                    sent_ns, ended_ns = kept.times_ns
                    head = {"op": kept.kind, "number": kept.number, "sent_ns": sent_ns, "ended_ns": ended_ns}
                    out.write(json.dumps({**head, **_line(self._file.read(kept.nbytes))}) + "\n")


def _packed(query: Query, rows: Rows) -> bytes:
    """Return the answer as bytes, or the part of a large one, or why it is none."""
    part: RowSample | None = None
    nbytes = len(rows) * (ROW_BYTES + VALUE_BYTES * len(rows.columns))
    try:
        if nbytes > WHOLE_BYTES:
            part, rows = part_of(query, rows, -(-nbytes // PART_BYTES))
        return pickle.dumps((rows.columns, rows.records, forms_of(query), part, ""))
    except (NotAnAnswer, pickle.PicklingError, TypeError, AttributeError) as error:  # the last three of pickle
        return pickle.dumps((rows.columns, [], ColumnForms(), None, str(error)))


def _line(content: bytes) -> dict[str, Any]:
    """Return the answer as JSON; a value that no answer can contain makes it a wrong one."""
    columns, records, forms, part, wrong = pickle.loads(content)  # noqa: S301 - our own
    line: dict[str, Any] = {} if part is None else {"count": part.count, "one_in": part.one_in}
    try:
        rows = canonical(Rows(columns, records), forms)
        return {**line, "rows": rows} | ({"wrong": wrong} if wrong else {})
    except NotAnAnswer as error:
        return {**line, "rows": [], "wrong": str(error)}
