"""Mergeable HDR histograms of latencies in nanoseconds, and the HdrHistogram V2 log files they are kept in.

The counters have the layout of HdrHistogram with 3 significant digits from 1 ns to 1 h, so that a log written here
opens in every other HdrHistogram tool; recording is vectorised, because a load generator that spends its time on
statistics measures itself.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import numpy as np

from tsbench.results.limits import FIRST_S, LAST_S, LIMITS
from tsbench.results.reading import Room, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

HIGHEST_NS = 3_600 * 1_000_000_000
DIGITS = 3
_HALF_BITS = 10  # 2 * 10**3 values need 11 bits; a bucket's lower half is covered by the bucket below it
_HALF = 1 << _HALF_BITS


def _indices(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each value's counter, by HdrHistogram's layout."""
    _, exponents = np.frexp((values_ns | (2 * _HALF - 1)).astype(np.float64))  # exact below 2**53 ns, 104 days
    buckets = exponents.astype(np.int64) - 1 - _HALF_BITS
    return (buckets << _HALF_BITS) + (values_ns >> buckets)


_FEW = 2_048
"""Number of values from which counting all places is quicker than sorting."""
_LENGTH = int(_indices(np.array([HIGHEST_NS], dtype=np.int64))[0])
_LENGTH = (_LENGTH // _HALF + 1) * _HALF  # whole half-buckets, as the reference implementation allocates them


def counter_of(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place in `Histogram.counts` of each duration in ns (any shape), clipped to the range."""
    clipped: NDArray[np.int64] = np.clip(values_ns, 0, HIGHEST_NS)
    return _indices(clipped)


def lowest_of(counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the shortest duration in ns that each place in `Histogram.counts` counts."""
    buckets = np.maximum(0, (counters >> _HALF_BITS) - 1)
    lowest: NDArray[np.int64] = (counters - (buckets << _HALF_BITS)) << buckets
    return lowest


def _highest_equivalent(index: int) -> int:
    bucket = max(0, (index >> _HALF_BITS) - 1)
    sub_bucket = index - (bucket << _HALF_BITS)
    return int(((sub_bucket + 1) << bucket) - 1)


def rank_of(percent: float, total: int) -> int:
    """Return the nearest rank of a percentile among `total` sorted values, from 1: at least `percent` % are up to it.

    The ceiling, as in HdrHistogram from 2.1.12 on. Rounding to the nearest whole number, as before, made the p99 of 392
    values the 388th, which only 98.98 % do not exceed.
    """
    exact = min(percent, 100.0) * total / 100.0
    return max(1, math.ceil(exact * (1 - 1e-12)))  # 99.9 % of 1,000 is 999.0000000000001 in floating point


def values_needed(percent: float) -> int:
    """Return how many values a percentile needs: p99.9 is one of a thousand, and of fewer just the highest."""
    return 1 if percent >= 100 else math.ceil(100 / (100 - percent) - 1e-6)


class Histogram:
    """Counts of durations in nanoseconds with 3 significant digits; values beyond 1 h count as 1 h."""

    __slots__ = ("counts",)

    def __init__(self, values_ns: ArrayLike = ()) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_LENGTH, dtype=np.int64)
        self.record(values_ns)

    def record(self, values_ns: ArrayLike) -> None:
        """Count durations in nanoseconds (any shape); negative ones count as 0."""
        values = np.asarray(values_ns, dtype=np.int64).ravel()
        if values.size:
            self.counts += np.bincount(counter_of(values), minlength=_LENGTH)

    def add(self, other: Histogram) -> None:
        """Add another histogram's counts; the result equals one histogram that recorded both."""
        self.counts += other.counts

    def __len__(self) -> int:
        return int(self.counts.sum())

    def percentile_ns(self, percent: float) -> int:
        """Return the value in ns that `percent` % of the counts do not exceed (to 3 digits); 0 when empty."""
        return self.percentiles_ns((percent,))[0]

    def percentiles_ns(self, percents: Iterable[float]) -> list[int]:
        """Return the values of `percentile_ns` for several percentages."""
        cumulated = np.cumsum(self.counts)
        total = int(cumulated[-1])
        if total == 0:
            return [0 for _ in percents]
        return [_highest_equivalent(int(i)) for i in np.searchsorted(cumulated, [rank_of(p, total) for p in percents])]

    @property
    def max_ns(self) -> int:
        """Largest counted value in ns (to 3 digits); 0 when empty."""
        return self.percentile_ns(100.0)

    @property
    def mean_ns(self) -> float:
        """Mean in ns (to 3 digits); 0 when empty."""
        used = np.flatnonzero(self.counts)
        if not used.size:
            return 0.0
        bucket = np.maximum(0, (used >> _HALF_BITS) - 1)
        middle = lowest_of(used) + (1 << bucket) / 2 - 0.5
        return float((middle * self.counts[used]).sum() / self.counts[used].sum())

    def encode(self) -> str:
        """Return the compressed, base64-encoded V2 text that every HdrHistogram implementation can decode."""
        return SparseHistogram.of(self).encode()


@dataclass(frozen=True, slots=True, eq=False)
class SparseHistogram:
    """The counters of a histogram that are not zero: a second's has a few hundred of 33 thousand.

    `index` (int64, strictly rising) are their places in `Histogram.counts`, `count` (int64, above 0) what they hold.
    """

    index: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, histogram: Histogram) -> SparseHistogram:
        """Return the used counters of a histogram."""
        index = np.flatnonzero(histogram.counts)
        return cls(index, histogram.counts[index])

    @classmethod
    def recorded(cls, values_ns: ArrayLike) -> SparseHistogram:
        """Count durations in nanoseconds (any shape), as `Histogram.record` does."""
        counters = counter_of(np.asarray(values_ns, dtype=np.int64).ravel())
        if counters.size > _FEW:
            counts = np.bincount(counters)
            index = np.flatnonzero(counts)
            return cls(index, counts[index])
        return cls(*np.unique(counters, return_counts=True))

    @classmethod
    def sum(cls, parts: Sequence[SparseHistogram]) -> SparseHistogram:
        """Return the counters of one histogram that saw what all parts saw."""
        if len(parts) == 1:
            return parts[0]
        if sum(part.index.size for part in parts) > _LENGTH:
            whole = Histogram()
            for part in parts:
                part.add_to(whole)
            return cls.of(whole)
        index, inverse = np.unique(np.concatenate([part.index for part in parts]), return_inverse=True)
        count = np.zeros(len(index), dtype=np.int64)
        np.add.at(count, inverse, np.concatenate([part.count for part in parts]))
        return cls(index, count)

    def __len__(self) -> int:
        return int(self.count.sum())

    def add_to(self, histogram: Histogram) -> None:
        """Add the counters to those of a histogram."""
        histogram.counts[self.index] += self.count

    def whole(self) -> Histogram:
        """Return a histogram with these counters."""
        histogram = Histogram()
        self.add_to(histogram)
        return histogram

    def percentiles_ns(self, percents: Sequence[float]) -> list[int]:
        """Return the percentiles in ns, as `Histogram.percentiles_ns` does; zeros when empty."""
        if not self.index.size:
            return [0 for _ in percents]
        cumulated = np.cumsum(self.count)
        places = np.searchsorted(cumulated, [rank_of(p, int(cumulated[-1])) for p in percents])
        return [_highest_equivalent(int(i)) for i in self.index[places]]

    @property
    def max_ns(self) -> int:
        """Largest counted value in ns (to 3 digits); 0 when empty."""
        return _highest_equivalent(int(self.index[-1])) if self.index.size else 0

    def encode(self) -> str:
        """Return the compressed, base64-encoded V2 text that every HdrHistogram implementation can decode."""
        body = _pack(self.index, self.count)
        packed = zlib.compress(_HEAD.pack(_COOKIE, len(body), 0, DIGITS, 1, HIGHEST_NS, 1.0) + body)
        return base64.b64encode(_FRAME.pack(_FRAME_COOKIE, len(packed)) + packed).decode("ascii")

    @classmethod
    def decode(cls, text: str, room: Room | None = None) -> SparseHistogram:
        """Return the counters of an `encode`d text, whose unpacked bytes are taken from `room`.

        Raises
        ------
        ValueError
            If the text is damaged or of another layout, or the room is used up.
        """
        try:
            framed = base64.b64decode(text.encode("ascii"), validate=True)
            frame = _FRAME.unpack_from(framed)
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(framed[_FRAME.size :], _MOST_BYTES + 1)
            if not unpacker.eof:
                raise ValueError(  # noqa: TRY301
                    f"it is cut off, or unpacks to more than {_MOST_BYTES:,} bytes"
                )
            if room is not None:
                room.take(len(data))
            cookie, length, _, *layout, _ = _HEAD.unpack_from(data)
        except (ValueError, struct.error, zlib.error) as error:
            raise ValueError(f"not an HdrHistogram V2 text: {error}") from None
        if frame != (_FRAME_COOKIE, len(framed) - _FRAME.size) or (cookie, length) != (_COOKIE, len(data) - _HEAD.size):
            raise ValueError("not an HdrHistogram V2 text: a head is of another form or length")
        if layout != [DIGITS, 1, HIGHEST_NS]:
            raise ValueError(f"a histogram of layout {layout}; tsbench keeps {[DIGITS, 1, HIGHEST_NS]}")
        return cls(*_unpack(np.frombuffer(data, dtype=np.uint8, offset=_HEAD.size)))


# The V2 form: ZigZag LEB128 words, a count each or, where negative, how many counters are zero; numbers big-endian.
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">IIIIQQd")
_FRAME_COOKIE, _COOKIE = 0x1C849314, 0x1C849313
_WORD_BYTES = 9  # a ninth byte has eight bits, so that no word is longer
_MOST_BYTES = _HEAD.size + _LENGTH * _WORD_BYTES
"""Unpacked length of a histogram whose counters are all used."""


def _pack(used: NDArray[np.int64], counts: NDArray[np.int64]) -> bytes:
    """Return the words of the counters up to the last one that is not zero, from places and counts of the used ones."""
    if not used.size:
        return b""
    zeros = np.diff(used, prepend=-1) - 1
    words = np.empty(2 * used.size, dtype=np.uint64)
    words[0::2] = 2 * zeros - 1  # ZigZag of -zeros; wraps where there are none, and is left out
    words[1::2] = 2 * counts
    words = words[np.stack([zeros > 0, np.ones_like(zeros, dtype=bool)], axis=1).ravel()]
    longest = min(_WORD_BYTES, -(-int(words.max()).bit_length() // 7))
    shifts = np.arange(0, 7 * longest, 7, dtype=np.uint64)
    rests = words[:, None] >> shifts
    there = rests > 0
    there[:, 0] = True  # a word has one byte at least
    more = np.zeros_like(there)
    more[:, :-1] = there[:, 1:]
    pieces = np.where(more, (rests & np.uint64(0x7F)) | np.uint64(0x80), rests).astype(np.uint8)
    return bytes(pieces[there])


def _unpack(pieces: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return places and counts of the used counters, from words of up to 8 bytes, which is counts up to 2**55."""
    if not pieces.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    lasts = np.flatnonzero(pieces < 0x80)
    if not lasts.size or lasts[-1] != pieces.size - 1:
        raise ValueError("not an HdrHistogram V2 text: its last word is cut off")
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    lengths = lasts - firsts + 1
    if lengths.max() >= _WORD_BYTES:
        raise ValueError("not an HdrHistogram V2 text that tsbench keeps: a count is beyond 2**55")
    places = np.arange(pieces.size) - np.repeat(firsts, lengths)
    zigzag = np.add.reduceat((pieces & 0x7F).astype(np.int64) << (7 * places), firsts)
    words = (zigzag >> 1) ^ -(zigzag & 1)
    ends = np.cumsum(np.where(words < 0, np.minimum(-words, _LENGTH + 1), 1))
    if ends[-1] > _LENGTH:
        raise ValueError(f"a histogram of {ends[-1]} counters; tsbench keeps {_LENGTH}")
    used = words > 0
    if words[used].sum(dtype=np.float64) > LIMITS.counted:
        raise ValueError(f"a histogram of more than {LIMITS.counted:,} ops")
    return ends[used] - 1, words[used]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """One line of a histogram log: the durations of one op in [start_s, start_s + length_s), epoch seconds."""

    tag: str
    start_s: float
    length_s: float
    histogram: SparseHistogram


def write_log_head(out: TextIO, *, start_s: float) -> None:
    """Write the header of a HdrHistogram V2 log (format 1.2).

    The start is truncated to the second, as the intervals' are: readers skip intervals that begin before it.
    """
    out.write("#[Logged with tsbench; values are nanoseconds]\n#[Histogram log format version 1.2]\n")
    out.write(f"#[StartTime: {int(start_s)}.000 (seconds since epoch)]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')


def write_interval(out: TextIO, interval: Interval, *, also: Sequence[str] = ()) -> None:
    """Append one line, and one for each tag of `also` with the same histogram.

    The maximum in a line is in milliseconds, which is the format's convention for nanoseconds.
    """
    histogram = interval.histogram
    rest = f"{interval.start_s:.3f},{interval.length_s:.3f},{histogram.max_ns / 1e6:.3f},{histogram.encode()}\n"
    out.writelines(f"Tag={tag},{rest}" for tag in (interval.tag, *also))


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a histogram log whose histogram is not yet decoded.

    The bytes of its text are those from `offset` on, `size` of them, so that it can be read again alone.
    """

    path: Path
    number: int
    offset: int
    size: int
    tag: str
    start_s: float
    length_s: float
    text: str
    room: Room

    def decode(self) -> SparseHistogram:
        """Return the line's histogram.

        Raises
        ------
        ValueError
            If it is damaged: the text names file and line.
        """
        return decode_line(self.path, self.number, self.text, self.room)


def decode_line(path: Path, number: int, text: str, room: Room) -> SparseHistogram:
    """Return the histogram of line `number` of a log; raises ValueError, which names both, if it is damaged."""
    try:
        return SparseHistogram.decode(text, room)
    except ValueError as error:
        raise _damaged(path, number, error) from None


def scan_log(path: Path, *, start: int = 0) -> Iterator[LogLine]:
    """Yield the lines of a log file, in order; a last line that a kill cut off is left out.

    From an offset other than 0 on, lines are counted from there.

    Raises
    ------
    ValueError
        If the file or a line is damaged, or beyond what results have (`results.limits`).
    """
    tags: set[str] = set()
    room = Room.of(path)
    for number, (offset, raw) in enumerate(read_lines(path, start=start), 1):
        if raw.startswith((b"#", b'"')) or not raw.strip():
            continue
        try:
            head, text = raw[:-1].rsplit(b",", 1)
            tag, start_s, length_s, _ = head.decode(errors="replace").split(",")
            times = float(start_s), float(length_s)
            if not (FIRST_S <= times[0] <= LAST_S and 0 <= times[1] <= LIMITS.span_s):
                raise ValueError(f"no time of a run: {times[0]:g} s")  # noqa: TRY301
            tags.add(tag)
            if len(tag) > LIMITS.name or len(tags) > LIMITS.tags:
                raise ValueError(f"more than {LIMITS.tags} tags, or one of {len(tag)} characters")  # noqa: TRY301
        except ValueError as error:
            raise _damaged(path, number, error) from None
        place = offset + len(head) + 1, len(text)
        yield LogLine(path, number, *place, tag.removeprefix("Tag="), *times, text.decode(errors="replace"), room)


def _damaged(path: Path, number: int, error: ValueError) -> ValueError:
    return ValueError(f"{path}:{number}: damaged histogram log line ({error})")
