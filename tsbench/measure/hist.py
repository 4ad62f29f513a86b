"""Mergeable HDR histograms of latencies in nanoseconds, and the HdrHistogram V2 log files they are kept in.

The counters have the layout of HdrHistogram with 3 significant digits from 1 ns to 1 h, so that a log written here
opens in every other HdrHistogram tool; recording is vectorised, because a load generator that spends its time on
statistics measures itself.
"""

from __future__ import annotations

import base64
import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

HIGHEST_NS = 3_600 * 1_000_000_000
DIGITS = 3
_HALF_BITS = 10  # 2 * 10**3 values need 11 bits; a bucket's lower half is covered by the bucket below it
_HALF = 1 << _HALF_BITS


def _indices(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The counter of each value, by HdrHistogram's layout."""
    _, exponents = np.frexp((values_ns | (2 * _HALF - 1)).astype(np.float64))  # exact below 2**53 ns, 104 days
    buckets = exponents.astype(np.int64) - 1 - _HALF_BITS
    return (buckets << _HALF_BITS) + (values_ns >> buckets)


_LENGTH = int(_indices(np.array([HIGHEST_NS], dtype=np.int64))[0])
_LENGTH = (_LENGTH // _HALF + 1) * _HALF  # whole half-buckets, as the reference implementation allocates them


def _highest_equivalent(index: int) -> int:
    bucket = max(0, (index >> _HALF_BITS) - 1)
    sub_bucket = index - (bucket << _HALF_BITS)
    return int(((sub_bucket + 1) << bucket) - 1)


class Histogram:
    """Counts of durations in nanoseconds, exact to 3 significant digits; values beyond 1 h count as 1 h."""

    __slots__ = ("counts",)

    def __init__(self, values_ns: ArrayLike = ()) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_LENGTH, dtype=np.int64)
        self.record(values_ns)

    def record(self, values_ns: ArrayLike) -> None:
        """Count durations in nanoseconds (any shape); negative ones count as 0."""
        values = np.asarray(values_ns, dtype=np.int64).ravel()
        if values.size:
            self.counts += np.bincount(_indices(values.clip(0, HIGHEST_NS)), minlength=_LENGTH)

    def add(self, other: Histogram) -> None:
        """Take in another histogram's counts: the result is that of one histogram that saw both."""
        self.counts += other.counts

    def __len__(self) -> int:
        return int(self.counts.sum())

    def percentile_ns(self, percent: float) -> int:
        """The value in ns that `percent` % of the counted values do not exceed (within 3 digits); 0 when empty."""
        return self.percentiles_ns((percent,))[0]

    def percentiles_ns(self, percents: Iterable[float]) -> list[int]:
        """As `percentile_ns`, for several at once."""
        cumulated = np.cumsum(self.counts)
        total = int(cumulated[-1])
        if total == 0:
            return [0 for _ in percents]
        # HdrHistogram's rule: at least one value, and a half is rounded up
        wanted = [max(1, int(min(percent, 100.0) * total / 100.0 + 0.5)) for percent in percents]
        return [_highest_equivalent(int(i)) for i in np.searchsorted(cumulated, wanted)]

    @property
    def max_ns(self) -> int:
        """The largest counted value in ns (within 3 digits); 0 when empty."""
        return self.percentile_ns(100.0)

    @property
    def mean_ns(self) -> float:
        """The mean in ns (within 3 digits); 0 when empty."""
        used = np.flatnonzero(self.counts)
        if not used.size:
            return 0.0
        bucket = np.maximum(0, (used >> _HALF_BITS) - 1)
        middle = ((used - (bucket << _HALF_BITS)) << bucket) + (1 << bucket) / 2 - 0.5
        return float((middle * self.counts[used]).sum() / self.counts[used].sum())

    def encode(self) -> str:
        """The compressed, base64-encoded V2 form that every HdrHistogram implementation reads."""
        body = _pack(self.counts)
        packed = zlib.compress(_HEAD.pack(_COOKIE, len(body), 0, DIGITS, 1, HIGHEST_NS, 1.0) + body)
        return base64.b64encode(_FRAME.pack(_FRAME_COOKIE, len(packed)) + packed).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """The histogram of an `encode`d text.

        Raises
        ------
        ValueError
            If the text is damaged or of another layout.
        """
        histogram = cls()
        histogram.add_encoded(text)
        return histogram

    def add_encoded(self, text: str) -> None:
        """Add the counts of an `encode`d text, as `add` does; only counters that it holds are touched.

        Raises
        ------
        ValueError
            If the text is damaged or of another layout; nothing is added then.
        """
        try:
            framed = base64.b64decode(text.encode("ascii"), validate=True)
            frame = _FRAME.unpack_from(framed)
            data = zlib.decompress(framed[_FRAME.size :])
            cookie, length, _, *layout, _ = _HEAD.unpack_from(data)
        except (ValueError, struct.error, zlib.error) as error:
            raise ValueError(f"not an HdrHistogram V2 text: {error}") from None
        if frame != (_FRAME_COOKIE, len(framed) - _FRAME.size) or (cookie, length) != (_COOKIE, len(data) - _HEAD.size):
            raise ValueError("not an HdrHistogram V2 text: a head is of another form or length")
        if layout != [DIGITS, 1, HIGHEST_NS]:
            raise ValueError(f"a histogram of layout {layout}; tsbench keeps {[DIGITS, 1, HIGHEST_NS]}")
        _unpack(np.frombuffer(data, dtype=np.uint8, offset=_HEAD.size), self.counts)


# The V2 form: ZigZag LEB128 words, a count each or, where negative, how many counters are zero; numbers big-endian.
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">IIIIQQd")
_FRAME_COOKIE, _COOKIE = 0x1C849314, 0x1C849313
_WORD_BYTES = 9  # a ninth byte has eight bits, so that no word is longer


def _pack(counts: NDArray[np.int64]) -> bytes:
    """The words of the counters up to the last that is not zero."""
    used = np.flatnonzero(counts)
    if not used.size:
        return b""
    zeros = np.diff(used, prepend=-1) - 1
    words = np.empty(2 * used.size, dtype=np.uint64)
    words[0::2] = 2 * zeros - 1  # ZigZag of -zeros; wraps where there are none, and is left out
    words[1::2] = 2 * counts[used]
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


def _unpack(pieces: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
    """Add to the counters what words of up to 8 bytes hold, which is counts up to 2**55."""
    if not pieces.size:
        return
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
    ends = np.cumsum(np.where(words < 0, np.minimum(-words, counts.size + 1), 1))
    if ends[-1] > counts.size:
        raise ValueError(f"a histogram of {ends[-1]} counters; tsbench keeps {counts.size}")
    counts[ends[words > 0] - 1] += words[words > 0]  # each counter is there once


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """One line of a histogram log: what one op took in [start_s, start_s + length_s), epoch seconds."""

    tag: str
    start_s: float
    length_s: float
    histogram: Histogram


def write_log_head(out: TextIO, *, start_s: float) -> None:
    """Begin a HdrHistogram V2 log (format 1.2).

    The start is cut to the second, as the intervals' are: readers pass over intervals that begin before it.
    """
    out.write("#[Logged with tsbench; values are nanoseconds]\n#[Histogram log format version 1.2]\n")
    out.write(f"#[StartTime: {int(start_s)}.000 (seconds since epoch)]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')


def write_interval(out: TextIO, interval: Interval) -> None:
    """Append one line; the maximum is in milliseconds, as the format's convention for nanoseconds has it."""
    histogram = interval.histogram
    out.write(
        f"Tag={interval.tag},{interval.start_s:.3f},{interval.length_s:.3f},"
        f"{histogram.max_ns / 1e6:.3f},{histogram.encode()}\n",
    )


def read_log(path: Path) -> Iterator[Interval]:
    """The intervals of a log file, in order; a last line that a kill cut off is left out.

    Raises
    ------
    ValueError
        If a line is damaged: the text names file and line.
    """
    for number, (tag, start_s, length_s, text) in _log_lines(path):
        with _named(path, number):
            histogram = Histogram.decode(text)
        yield Interval(tag, start_s, length_s, histogram)


def add_log(path: Path, histogram_of: Callable[[str, float], Histogram | None]) -> None:
    """Add the intervals of a log file to histograms, without making one of each.

    Parameters
    ----------
    path
        The file.
    histogram_of
        Returns the histogram that an interval is added to, by its tag and start (epoch seconds); None leaves it out.

    Raises
    ------
    ValueError
        If a line is damaged: the text names file and line.
    """
    for number, (tag, start_s, _, text) in _log_lines(path):
        histogram = histogram_of(tag, start_s)
        with _named(path, number):
            (Histogram() if histogram is None else histogram).add_encoded(
                text
            )  # damage is found outside the window too


def _log_lines(path: Path) -> Iterator[tuple[int, tuple[str, float, float, str]]]:
    """Yield the number of each line with the tag, start, length and encoded histogram of its interval."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith(("#", '"')) or not line.strip() or not line.endswith("\n"):
                continue
            with _named(path, number):
                tag, start, length, _, text = line.rstrip("\n").split(",")
                found = tag.removeprefix("Tag="), float(start), float(length), text
            yield number, found


@contextmanager
def _named(path: Path, number: int) -> Iterator[None]:
    """Name file and line in an error about a line of a log."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}:{number}: damaged histogram log line ({error})") from None
