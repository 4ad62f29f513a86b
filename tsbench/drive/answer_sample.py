"""The answers that a load process keeps to be checked after the run, in bounded memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import NotAnAnswer, canonical
from tsbench.check.sample import part_of, rank
from tsbench.model import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.check.sample import Part
    from tsbench.model import Query

WHOLE_BYTES = 8 * 2**20
"""Of a larger answer, the number of rows and a share of the rows are kept."""
PART_BYTES = 2**20
"""Size of that share."""
KEPT_BYTES = 128 * 2**20
"""Size of all answers that a process keeps; beyond it, the kind that takes most has fewer of them."""
ROW_BYTES, VALUE_BYTES = 64, 40
"""Size of a row and of each value in it, roughly: a tuple of numbers of 24 to 32 bytes, and the references to them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    kind: str
    number: int
    rows: Rows
    times_ns: tuple[int, int]
    part: Part | None
    nbytes: int
    wrong: str = ""

    def line(self) -> dict[str, Any]:
        """Return the answer as JSON for the process's file; a value that no answer can contain makes it a wrong one."""
        sent_ns, ended_ns = self.times_ns
        line: dict[str, Any] = {"op": self.kind, "number": self.number, "sent_ns": sent_ns, "ended_ns": ended_ns}
        if self.part is not None:
            line |= {"count": self.part.count, "one_in": self.part.one_in}
        try:
            return {**line, "rows": canonical(self.rows)} | ({"wrong": self.wrong} if self.wrong else {})
        except NotAnAnswer as error:
            return {**line, "rows": [], "wrong": str(error)}


class AnswerSample:
    """The answers with the lowest hashes, at most `most` of each kind; `given` counts all of them by kind."""

    def __init__(self, seed: int, most: int) -> None:
        self.given: dict[str, int] = {}
        self._seed, self._most = seed, most
        self._kept: dict[str, list[tuple[int, int, _Answer]]] = {}
        """Of each kind a heap of (minus the hash, number, answer): the highest hash comes first, and goes first."""
        self._bounds: dict[str, int] = {}
        """Of each kind the lowest hash that has been left out."""
        self._bytes: dict[str, int] = {}

    def add(self, kind: str, number: int, query: Query, rows: Rows, times_ns: tuple[int, int]) -> None:
        """Count an answer, and keep it if its hash is among the lowest of its kind so far.

        `times_ns` are when the query was sent and when its answer was there.
        """
        self.given[kind] = self.given.get(kind, 0) + 1
        hashed = rank(self._seed, kind, number)
        if hashed >= self._bounds.get(kind, 1 << 64):
            return
        answer = _answer(kind, number, query, rows, times_ns)
        heappush(self._kept.setdefault(kind, []), (-hashed, number, answer))
        self._bytes[kind] = self._bytes.get(kind, 0) + answer.nbytes
        if len(self._kept[kind]) > self._most:
            self._leave_out(kind)
        while sum(self._bytes.values()) > KEPT_BYTES:
            self._leave_out(max(self._bytes, key=lambda name: self._bytes[name]))

    def _leave_out(self, kind: str) -> None:
        order, _, answer = heappop(self._kept[kind])
        self._bounds[kind] = -order
        self._bytes[kind] -= answer.nbytes

    def write(self, path: Path) -> None:
        """Write the answers to a file, a line of JSON each."""
        with path.open("w", encoding="utf-8") as out:
            for kept in self._kept.values():
                for _, _, answer in sorted(kept, reverse=True):
                    out.write(json.dumps(answer.line()) + "\n")


def _answer(kind: str, number: int, query: Query, rows: Rows, times_ns: tuple[int, int]) -> _Answer:
    nbytes = _size(rows)
    if nbytes <= WHOLE_BYTES:
        return _Answer(kind, number, rows, times_ns, None, nbytes)
    try:
        part, chosen = part_of(query, rows, -(-nbytes // PART_BYTES))
    except NotAnAnswer as error:
        return _Answer(kind, number, Rows(rows.columns, []), times_ns, None, 0, str(error))
    return _Answer(kind, number, chosen, times_ns, part, _size(chosen))


def _size(rows: Rows) -> int:
    return len(rows) * (ROW_BYTES + VALUE_BYTES * len(rows.columns))
