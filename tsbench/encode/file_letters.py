"""The bytes of a block of lines, and the numbers, times and texts between places in them, by numpy.

Eight letters are read as one word, whose digits are multiplied together. What that cannot express is left to Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.encode.line_grammar import MOST_TIME_NS, is_number, is_time
from tsbench.encode.text_columns import TextPart, Texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Places: TypeAlias = "NDArray[np.int64]"

_MINUS, _INTEGER = b"-i"
_MARGIN = 24
"""Number of bytes before a cell that are read with it: three words end at its end."""
_PIECE = 1 << 16
"""Bytes to search in one go: new memory for a whole block costs several times the search."""
_CELLS = 1 << 15
"""Cells to read in one go, so that what numpy makes of them stays in the processor's cache."""
EXACT = 2**53
"""Whole numbers up to this are exact as floats."""
_ZEROS, _DOTS, _ONES, _HIGH = (np.uint64(int(f"{byte:02x}" * 8, 16)) for byte in (0x30, 0x2E ^ 0x30, 0x01, 0x80))
_TO_HIGH = np.uint64(int("76" * 8, 16))
"""Added to a byte, it sets the highest bit if that is more than 9."""
_LAST = np.array([2**64 - 2 ** (64 - 8 * n) for n in range(9)], dtype=np.uint64)
"""Mask of the last n letters of a word of eight: they are its highest bytes."""
_TENS = np.array([10.0**n for n in range(17)])
_STEPS = [
    (np.uint64(10), np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(100), np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(10_000), np.uint64(32), np.uint64(0x00000000FFFFFFFF)),
]
_Words: TypeAlias = "NDArray[np.uint64]"


def _value(words: _Words) -> NDArray[np.int64]:
    """Return the numbers whose eight digits words hold: first pairs of them, then groups of four, then all."""
    for scale, bits, mask in _STEPS:
        words = (words * scale + (words >> bits)) & mask
    return words.astype(np.int64)


def _are_digits(words: _Words) -> NDArray[np.bool_]:
    digits: NDArray[np.bool_] = ((words | (words + _TO_HIGH)) & _HIGH) == 0
    return digits


def _without_dot(words: _Words) -> tuple[_Words, NDArray[np.int64]]:
    """Return words of digits whose first decimal point is taken out, and the number of digits behind it, else -1."""
    apart = words ^ _DOTS
    marks = (apart - _ONES) & ~apart & _HIGH  # the lowest bit of it is in the first point's byte
    decimals = np.full(len(words), -1, dtype=np.int64)
    some = np.flatnonzero(marks)
    if len(some):
        words_of, mark = words[some], marks[some]
        mark &= ~mark + np.uint64(1)
        before = (mark >> np.uint64(7)) - np.uint64(1)
        behind = ~((mark << np.uint64(1)) - np.uint64(1))
        words[some] = (words_of & behind) | ((words_of & before) << np.uint64(8))
        decimals[some] = np.bitwise_count(behind) >> 3
    return words, decimals


class Odd(Exception):  # noqa: N818 - names what happened
    """Raised for bytes that are not in the plain form of points."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedNumbers:
    """Cells as numbers: as floats, and as integers where `is_integer`, which is an `i` at the end."""

    floats: NDArray[np.float64]
    integers: NDArray[np.int64]
    is_integer: NDArray[np.bool_]


class Letters:
    """The bytes of some lines, from the place `begin` on; no cell stands before the first `mark`."""

    def __init__(self, data: bytes, mark: bytes) -> None:
        self.begin = _MARGIN if data.find(mark) < _MARGIN or len(data) < 8 else 0
        self.data = bytes(self.begin) + data if self.begin else data
        self.octets = np.frombuffer(self.data, dtype=np.uint8)
        self._words: _Words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

    def marks(self, letters: bytes) -> Places:
        """Return the places of all these letters."""
        places = []
        for first in range(0, len(self.octets), _PIECE):
            piece = self.octets[first : first + _PIECE]
            chosen = piece == letters[0]
            for letter in letters[1:]:
                chosen |= piece == letter
            places.append(np.flatnonzero(chosen) + first)
        return np.concatenate(places)

    def text(self, start: int, end: int) -> bytes:
        """Return the bytes from one place up to another."""
        return self.data[start:end]

    def different(self, starts: Places, ends: Places) -> tuple[list[bytes], Places]:
        """Return the different texts between these places, and for each place which of them it is."""
        texts = [*self._texts(starts, ends)]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        return [*numbers], np.array([*map(numbers.__getitem__, texts)], dtype=np.int64)

    def part(self, starts: Places, ends: Places) -> TextPart:
        """Return the part of a row that writes the text between these places."""
        lengths = ends - starts
        width = max(1, int(lengths.max()))
        last = len(self.data) - width  # where the last of these places may begin
        window: NDArray[np.void] = np.ndarray((last + 1,), f"V{width}", self.data, strides=(1,))
        padded = window[np.minimum(starts, last)]
        for i in np.flatnonzero(starts > last).tolist():
            padded[i] = np.void(self.text(int(starts[i]), int(ends[i])).ljust(width))
        return TextPart(Texts(padded, lengths))

    def equal(self, starts: Places, texts: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return whether every text begins at its place, by row of `starts`, which has a column per text.

        Raises
        ------
        Odd
            If one of them begins at the very end.
        """
        equal = np.ones(len(starts), dtype=np.bool_)
        lengths = np.array([*map(len, texts)])
        if len(starts) and (starts[-1] + (lengths - 1) // 8 * 8 >= len(self._words)).any():
            raise Odd
        for offset in range(0, int(lengths.max()), 8):
            columns = np.flatnonzero(lengths > offset)
            pieces = [texts[i][offset : offset + 8] for i in columns.tolist()]
            wanted = np.array([int.from_bytes(piece, "little") for piece in pieces], dtype=np.uint64)
            masks = np.array([2 ** (8 * len(piece)) - 1 for piece in pieces], dtype=np.uint64)
            equal &= (((self._words[starts[:, columns] + offset] ^ wanted) & masks) == 0).all(axis=1)
        return equal

    def numbers(self, starts: Places, ends: Places) -> ParsedNumbers:
        """Return the numbers that stand at these places, each the nearest one; raises `Odd` if one is none."""
        count = len(starts)
        result = ParsedNumbers(np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.bool_))
        with np.errstate(over="ignore"):
            for first in range(0, count, _CELLS):
                some = slice(first, first + _CELLS)
                self._read(starts[some], ends[some], result, first)
        return result

    def _read(self, starts: Places, ends: Places, numbers: ParsedNumbers, first: int) -> None:
        some = slice(first, first + len(starts))
        marked, minus = self.octets[ends - 1] == _INTEGER, self.octets[starts] == _MINUS
        stops = ends - marked
        lengths = stops - starts - minus
        low, decimals = _without_dot((self._words[stops - 8] ^ _ZEROS) & _LAST[np.clip(lengths, 0, 8)])
        has_dot = decimals >= 0
        fine = (lengths > has_dot) & (lengths <= 16) & ~(has_dot & marked)
        if len(far := np.flatnonzero(lengths > 8)):
            high = (self._words[stops[far] - 16] ^ _ZEROS) & _LAST[np.clip(lengths[far] - 8, 0, 8)]
            shifted = has_dot[far]  # the place of the point is free
            low[far] |= np.where(shifted, high >> np.uint64(56), np.uint64(0))
            high, more = _without_dot(np.where(shifted, high << np.uint64(8), high))
            fine[far] &= _are_digits(high) & ((more < 0) | ~(shifted | marked[far]))
            decimals[far] = np.where(more < 0, decimals[far], more + 8)
        fine &= _are_digits(low)
        whole = _value(low)
        if len(far):
            whole[far] += _value(high) * 100_000_000
        floats = whole / _TENS[np.maximum(decimals, 0)]  # both are exact, so that the quotient is the nearest number
        fine &= marked | (whole <= EXACT)
        numbers.floats[some] = np.negative(floats, out=floats, where=minus)
        numbers.integers[some] = np.negative(whole, out=whole, where=minus)
        numbers.is_integer[some] = marked
        if len(rest := np.flatnonzero(~fine)):
            self._read_one_by_one(starts, ends, marked, rest, numbers, first)

    def _read_one_by_one(
        self, starts: Places, ends: Places, marked: NDArray[np.bool_], rest: Places, numbers: ParsedNumbers, first: int
    ) -> None:
        """Read numbers with an exponent or more than 15 digits."""
        try:
            if not all(map(is_number, self._texts(starts[rest], ends[rest]))):  # Python knows other forms
                raise Odd
            whole = rest[marked[rest]]
            texts = self._texts(starts[whole], ends[whole] - 1)
            numbers.integers[first + whole] = np.array([*map(int, texts)], dtype=np.int64)
            numbers.floats[first + whole] = numbers.integers[first + whole]
            broken = rest[~marked[rest]]
            floats = np.array([*map(float, self._texts(starts[broken], ends[broken]))])
        except OverflowError:
            raise Odd from None
        if not np.isfinite(floats).all():
            raise Odd
        numbers.floats[first + broken] = floats

    def _texts(self, starts: Places, ends: Places) -> Iterator[bytes]:
        data = self.data
        return (data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))

    def times(self, starts: Places, ends: Places) -> NDArray[np.int64]:
        """Return the times in ns that stand at these places; raises `Odd` if one is none."""
        minus = self.octets[starts] == _MINUS
        lengths = ends - starts - minus
        fine = (lengths > 0) & (lengths <= 18 + 1)
        values = np.zeros(len(starts), dtype=np.int64)
        with np.errstate(over="ignore"):
            for offset, scale in ((0, 1), (8, 10**8), (16, 10**16)):
                words = (self._words[ends - 8 - offset] ^ _ZEROS) & _LAST[np.clip(lengths - offset, 0, 8)]
                fine &= _are_digits(words)
                value = _value(words)
                if offset == 16:
                    fine &= value < 922  # 2**63 is 922 and 16 more digits
                values += value * scale
        np.negative(values, out=values, where=minus)
        if len(rest := np.flatnonzero(~fine)):
            texts = [*self._texts(starts[rest], ends[rest])]
            try:
                if not all(map(is_time, texts)):
                    raise Odd
                values[rest] = np.array([*map(int, texts)], dtype=np.int64)
            except OverflowError:
                raise Odd from None
        if len(values) and max(int(values.max()), -int(values.min())) > MOST_TIME_NS:
            raise Odd
        return values
