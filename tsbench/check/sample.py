"""Which answers of a run are checked, and which rows of a large one: those with the lowest hashes.

Whether an answer is checked depends on the seed, its kind and its number, not on the time or the process: the lowest
hashes of all processes together are those that one process would have kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from tsbench.check.comparison import Difference, canonical_value, compare_answers, forms_of, in_order
from tsbench.model import Latest, Rows
from tsbench.results.limits import LARGEST, LIMITS
from tsbench.results.reading import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tsbench.check.comparison import Row
    from tsbench.model import Query

_MIXES, _64_BITS = 0xBF58_476D_1CE4_E5B9, (1 << 64) - 1


def rank(seed: int, kind: str, number: int) -> int:
    """Return the 64-bit hash of an answer; the answers with the lowest ones are checked."""
    return int.from_bytes(blake2b(f"{seed} {kind} {number}".encode(), digest_size=8).digest())


def sampled(paths: Iterable[Path], seed: int, most: int) -> set[tuple[str, int]]:
    """Return kind and number of the `most` answers of each kind with the lowest hashes, of all processes' files."""
    of_kind: dict[str, list[int]] = {}
    for path in paths:
        for _, line in read_lines(path, LIMITS.answer_bytes):
            given = head_of(line)
            of_kind.setdefault(given["op"], []).append(given["number"])
    return {
        (kind, number)
        for kind, numbers in of_kind.items()
        for number in nsmallest(most, numbers, key=lambda number, kind=kind: rank(seed, kind, number))  # type: ignore[misc]
    }


def head_of(line: bytes) -> dict[str, Any]:
    """Return a line of an answers file without its rows, which are most of its bytes.

    Raises
    ------
    ValueError
        If the line is damaged.
    """
    head, heads, _ = line.partition(b', "rows": ')
    given = loads(head + b"}" if heads else line)
    numbers = [given.get(name, 0) for name in ("number", "sent_ns", "ended_ns", "count", "one_in")]
    if type(given.get("op")) is not str or any(type(n) is not int or not 0 <= n < LARGEST for n in numbers):
        raise ValueError("a load process has kept an answer to no query")
    return given


def loads(text: bytes) -> dict[str, Any]:
    """Parse a line of an answers file; raises ValueError if it is damaged."""
    try:
        content: dict[str, Any] = orjson.loads(text)  # in a quarter of the time
    except orjson.JSONDecodeError:  # it has a NaN
        try:
            content = json.loads(text)
        except RecursionError:
            raise ValueError("an answer nests too deep") from None
    if not isinstance(content, dict):
        raise ValueError("a load process has kept no answer")  # noqa: TRY004 - of a file, not of a caller
    return content


@dataclass(frozen=True, slots=True)
class RowSample:
    """A part of a large answer: of its `count` rows, those chosen by a hash, about one in `one_in`.

    The hash is that of the time and the texts of a row (its key); of the texts only where the time may differ from
    the one that is expected. So the same rows of the gold answer can be chosen.
    """

    count: int
    one_in: int

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RowSample | None:
        """Return the part that a line of an answers file holds; None if it holds the whole answer."""
        return cls(line["count"], line["one_in"]) if "one_in" in line else None

    def chosen(self, query: Query, records: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the chosen ones of an answer's rows, as a driver returned them or canonical."""
        times = [] if isinstance(query, Latest) else [i for i, name in enumerate(query.columns) if name == "time"]
        labels = forms_of(query).labels  # which are numbers in one of the two forms
        left_out = frozenset(i for i, name in enumerate(query.columns) if name in labels)
        return [record for record in records if _identity(record, times, left_out) % self.one_in == 0]

    def compare(self, query: Query, expected: Iterable[list[Row]], actual: list[Row]) -> Difference | None:
        """Compare canonical rows with those of the whole gold answer, which come in pieces: one is kept at a time."""
        count, chosen = 0, []
        for piece in expected:
            count += len(piece)
            chosen += self.chosen(query, piece)
        if count != self.count:
            return Difference(f"{self.count} rows instead of {count}")
        return compare_answers(query, in_order(chosen), actual)


def _identity(record: tuple[Any, ...], times: Sequence[int], left_out: frozenset[int]) -> int:
    """Return a hash of 32 bits that is the same in every process and on every machine."""
    number = 0
    for i in times:
        time_ns = canonical_value(record[i], of_time=True)
        number += time_ns if type(time_ns) is int else _number_of(repr(time_ns))
    for i, value in enumerate(record):
        if isinstance(value, str) and i not in left_out:
            number = number * 31 + _number_of(value)
    number = (number ^ number >> 29) * _MIXES & _64_BITS  # of times that are evenly spaced, chance decides, too
    return (number ^ number >> 32) * _MIXES >> 32 & 0xFFFF_FFFF


@lru_cache(10_000)
def _number_of(text: str) -> int:
    return crc32(text.encode())


def part_of(query: Query, rows: Rows, one_in: int) -> tuple[RowSample, Rows]:
    """Return a part of an answer: about one in `one_in` of its rows."""
    part = RowSample(len(rows), one_in)
    return part, Rows(rows.columns, part.chosen(query, rows.records))
