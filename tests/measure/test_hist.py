from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.measure.hist import (
    DIGITS,
    HIGHEST_NS,
    Histogram,
    Interval,
    SparseHistogram,
    decode_line,
    rank_of,
    scan_log,
    write_interval,
    write_log_head,
)

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("hdrh", reason="hdrhistogram, the reference implementation, has no wheels for this platform")
from hdrh.histogram import HdrHistogram

# Every order of magnitude, and the edges of the layout's buckets, where a counter too far would show.
EDGES = [x + d for e in range(42) for x in (1 << e,) for d in (-1, 0, 1) if 0 <= x + d <= HIGHEST_NS]
NS = st.one_of(st.integers(0, 5_000), st.integers(0, HIGHEST_NS), st.sampled_from([*EDGES, HIGHEST_NS]))
VALUES = st.lists(NS, max_size=60)
PERCENTS = (0.001, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0)


def reference(values: list[int]) -> HdrHistogram:
    """Return the reference implementation's result for the values, one by one."""
    histogram = HdrHistogram(1, HIGHEST_NS, DIGITS)
    for value in values:
        assert histogram.record_value(value)
    return histogram


@examples(30)
@given(VALUES)
def test_counters_and_text_are_the_reference_implementations(values: list[int]) -> None:
    ours, theirs = Histogram(values), reference(values)
    assert ours.counts.tolist() == list(theirs.counts)
    assert ours.encode() == theirs.encode().decode()
    assert ours.mean_ns == pytest.approx(theirs.get_mean_value(), rel=2e-3, abs=1)
    assert len(ours) == len(values)


@examples(10)
@given(st.integers(1, 100_000), st.sampled_from([10.0, 50.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99]))
def test_a_percentile_is_the_smallest_value_that_so_many_percent_do_not_exceed(count: int, percent: float) -> None:
    rank = rank_of(percent, count)
    part = Fraction(str(percent)) / 100  # exact; the reference implementation in Python still rounds half up
    assert Fraction(rank, count) >= part > Fraction(rank - 1, count)
    values = np.arange(1, count + 1)
    assert rank <= Histogram(values).percentile_ns(percent) <= rank * (1 + 10**-DIGITS)


def test_the_p99_of_392_values_is_the_389th() -> None:
    values = np.arange(1, 393)
    assert Histogram(values).percentiles_ns((98.98, 99.0, 100.0)) == [389, 389, 392]
    assert np.mean(values <= 388) < 0.99 <= np.mean(values <= 389)


@given(VALUES, VALUES)
def test_merging_equals_one_pass(one: list[int], other: list[int]) -> None:
    merged = Histogram(one)
    merged.add(Histogram(other))
    assert np.array_equal(merged.counts, Histogram([*one, *other]).counts)


@given(st.lists(VALUES, max_size=5))
def test_recording_in_pieces_equals_recording_at_once(pieces: list[list[int]]) -> None:
    histogram = Histogram()
    for piece in pieces:
        histogram.record(piece)
    assert np.array_equal(histogram.counts, Histogram([value for piece in pieces for value in piece]).counts)


@settings(deadline=None)
@given(VALUES)
def test_a_text_decodes_to_what_was_encoded(values: list[int]) -> None:
    histogram = Histogram(values)
    again = SparseHistogram.decode(histogram.encode()).whole()
    assert np.array_equal(again.counts, histogram.counts)
    assert HdrHistogram.decode(histogram.encode().encode()).get_total_count() == len(values)


@given(st.lists(NS, min_size=1, max_size=40), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_a_percentile_is_exact_to_three_digits(values: list[int], percent: float) -> None:
    rank = max(1, int(percent * len(values) / 100 + 0.5))
    exact = sorted(values)[rank - 1]
    assert exact <= Histogram(values).percentile_ns(percent) <= exact * (1 + 10**-DIGITS) + 1


def test_values_beyond_the_range_saturate() -> None:
    beyond = Histogram([HIGHEST_NS + 1, 10 * HIGHEST_NS, 2**62, -5])
    assert np.array_equal(beyond.counts, Histogram([HIGHEST_NS, HIGHEST_NS, HIGHEST_NS, 0]).counts)
    assert beyond.max_ns == pytest.approx(HIGHEST_NS, rel=1e-3)
    SparseHistogram.decode(beyond.encode())


def test_an_empty_histogram_has_zeros() -> None:
    empty = Histogram()
    assert (len(empty), empty.max_ns, empty.mean_ns, empty.percentiles_ns(PERCENTS)) == (0, 0, 0.0, [0] * len(PERCENTS))
    assert len(SparseHistogram.decode(empty.encode())) == 0


def test_a_text_that_is_none_is_refused() -> None:
    other_layout = HdrHistogram(1, 1_000, 2).encode().decode()
    for text in ("", "nonsense", Histogram([5]).encode()[:-9], other_layout):
        with pytest.raises(ValueError, match=r"not an HdrHistogram|keeps"):
            SparseHistogram.decode(text)


def write_log(path: Path, intervals: list[Interval]) -> list[str]:
    with path.open("w", encoding="utf-8") as out:
        write_log_head(out, start_s=1_451_606_400.25)
        for interval in intervals:
            write_interval(out, interval)
    return path.read_text().splitlines(keepends=True)


INTERVALS = [
    Interval(f"op {i}|response", 1_451_606_400 + i, 1.0, SparseHistogram.recorded(range(i * 1_000))) for i in range(4)
]


def test_a_log_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_log(tmp_path / "a.hlog", INTERVALS)
    read = list(scan_log(tmp_path / "a.hlog"))
    assert [(i.tag, i.start_s, i.length_s) for i in read] == [(i.tag, i.start_s, i.length_s) for i in INTERVALS]
    assert all(
        np.array_equal(a.decode().whole().counts, b.histogram.whole().counts)
        for a, b in zip(read, INTERVALS, strict=True)
    )


def test_a_log_is_what_the_reference_implementation_reads(tmp_path: Path) -> None:
    from hdrh.log import HistogramLogReader

    write_log(tmp_path / "a.hlog", INTERVALS)
    reader = HistogramLogReader(str(tmp_path / "a.hlog"), HdrHistogram(1, HIGHEST_NS, DIGITS))
    counts = []
    while (interval := reader.get_next_interval_histogram()) is not None:
        counts.append(interval.get_total_count())
    assert counts == [0, 1_000, 2_000, 3_000]


@pytest.mark.parametrize(
    "damage", ["Tag=x,1,2\n", "Tag=x,1.0,1.0,0.0,AAAA\n", "Tag=x,noon,1.0,0.0,AAAA\n", "rubbish\n"]
)
def test_a_damaged_line_is_named_with_its_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.hlog"
    lines = write_log(path, INTERVALS)
    lines[5] = damage
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=re.escape(f"{path}:6: damaged")):
        [line.decode() for line in scan_log(path)]


def test_a_last_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.hlog"
    whole = "".join(write_log(path, INTERVALS))
    for cut in (1, 20, 60):
        path.write_text(whole[:-cut])
        assert [len(line.decode()) for line in scan_log(path)] == [0, 1_000, 2_000]


@given(VALUES, VALUES)
def test_adding_an_encoded_histogram_is_adding_the_histogram(one: list[int], other: list[int]) -> None:
    merged, expected = Histogram(one), Histogram(one)
    SparseHistogram.decode(Histogram(other).encode()).add_to(merged)
    expected.add(Histogram(other))
    assert np.array_equal(merged.counts, expected.counts)


def test_the_lines_of_a_log_can_be_read_again_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.hlog"
    write_log(path, INTERVALS)
    lines, data = list(scan_log(path)), path.read_bytes()
    for line, interval in zip(lines, INTERVALS, strict=True):
        text = data[line.offset : line.offset + line.size].decode()
        assert (line.tag, line.start_s) == (interval.tag, interval.start_s)
        assert np.array_equal(
            decode_line(path, line.number, text, line.room).whole().counts, interval.histogram.whole().counts
        )


@given(VALUES, st.sampled_from([1, 100, 3_000]))
def test_a_sparse_histogram_of_few_or_many_values_is_the_whole_one(values: list[int], times: int) -> None:
    sparse, whole = SparseHistogram.recorded(values * times), Histogram(values * times)
    assert sparse.whole().counts.tolist() == whole.counts.tolist()
    assert (sparse.max_ns, sparse.encode()) == (whole.max_ns, whole.encode())


@given(VALUES, VALUES)
def test_sparse_histograms_add_up_as_whole_ones_do(one: list[int], other: list[int]) -> None:
    summed = SparseHistogram.sum([SparseHistogram.of(Histogram(one)), SparseHistogram.of(Histogram(other))])
    expected = Histogram([*one, *other])
    percents = (0, 50, 99, 100)
    assert np.array_equal(summed.whole().counts, expected.counts)
    assert (len(summed), summed.percentiles_ns(percents)) == (len(expected), expected.percentiles_ns(percents))
