from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench import units
from tsbench.units import NS_PER_S

NOW_NS = 1_700_000_000 * NS_PER_S


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0s", 0),
        ("1ns", 1),
        ("1us", 1_000),
        ("250 ms", 250_000_000),
        ("10s", 10 * NS_PER_S),
        ("0.5s", NS_PER_S // 2),
        ("5m", 300 * NS_PER_S),
        ("5min", 300 * NS_PER_S),
        ("1h30m", 5_400 * NS_PER_S),
        ("1h 30m 1s", 5_401 * NS_PER_S),
        ("2d", 172_800 * NS_PER_S),
        ("1w", 604_800 * NS_PER_S),
        ("  7s  ", 7 * NS_PER_S),
        ("1.000000001s", NS_PER_S + 1),
    ],
)
def test_a_duration_is_a_sum_of_numbers_with_units(text: str, expected_ns: int) -> None:
    assert units.parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize("text", ["", " ", "10", "s", "10x", "10 seconds", "-5s", "1h30", "1,5s", "10s!", "ten s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write for example 10s") as caught:
        units.parse_duration_ns(text)
    assert f"'{text}'" in str(caught.value)


@given(st.integers(0, 10**15), st.sampled_from(["ns", "us", "ms", "s"]))
def test_whole_numbers_of_a_unit_are_exact(number: int, unit: str) -> None:
    size = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    if number * size < 2**53:
        assert units.parse_duration_ns(f"{number}{unit}") == number * size


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("now", NOW_NS),
        ("now-6h", NOW_NS - 6 * 3_600 * NS_PER_S),
        ("now + 10m", NOW_NS + 600 * NS_PER_S),
        ("2016-01-01", 1_451_606_400 * NS_PER_S),
        ("2016-01-01T00:00:00", 1_451_606_400 * NS_PER_S),
        ("2016-01-01T00:00:00Z", 1_451_606_400 * NS_PER_S),
        ("2016-01-01T02:00:00+02:00", 1_451_606_400 * NS_PER_S),
        ("2016-01-01T00:00:00.000001Z", 1_451_606_400 * NS_PER_S + 1_000),
        ("1969-12-31T23:59:59.5Z", -NS_PER_S // 2),
    ],
)
def test_a_time_is_iso_8601_or_relative_to_now(text: str, expected_ns: int) -> None:
    assert units.parse_time_ns(text, now_ns=NOW_NS) == expected_ns


@pytest.mark.parametrize("text", ["", "yesterday", "now-", "now*2h", "now-6", "12:00", "2016-13-01"])
def test_what_is_no_time_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (time|duration)") as caught:
        units.parse_time_ns(text, now_ns=NOW_NS)
    assert "\n" not in str(caught.value)


@given(st.integers(-(10**18), 4 * 10**18).map(lambda us: us // 1_000 * 1_000))
def test_a_formatted_time_reads_back(time_ns: int) -> None:
    assert units.parse_time_ns(units.format_time(time_ns), now_ns=0) == time_ns


def test_a_time_has_as_many_decimals_as_it_needs() -> None:
    assert units.format_time(1_451_606_400 * NS_PER_S) == "2016-01-01T00:00:00Z"
    assert units.format_time(1_451_606_400 * NS_PER_S + 500_000_000) == "2016-01-01T00:00:00.5Z"
    assert units.format_time(1_451_606_400 * NS_PER_S + 1) == "2016-01-01T00:00:00.000000001Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 B", 0),
        ("512 MB", 512 * 10**6),
        ("64MiB", 64 * 2**20),
        ("1.5 GB", 15 * 10**8),
        ("2GiB", 2**31),
        ("1kB", 1000),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, expected: int) -> None:
    assert units.parse_size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "512", "MB", "1 mb", "5 apples", "-1 MB", "1 MB 2 kB"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write for example 512 MB"):
        units.parse_size_bytes(text)


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [
        (0, "0 s"),
        (1, "1.00 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (1_234_567, "1.23 ms"),
        (123_456_789, "123 ms"),
        (1_500_000_000, "1.50 s"),
        (5_000 * NS_PER_S, "5,000 s"),
        (-1_500_000_000, "-1.50 s"),
        (0.5, "0.50 ns"),
    ],
)
def test_a_duration_is_shown_with_three_digits_and_the_unit_that_fits(duration_ns: float, expected: str) -> None:
    assert units.format_duration(duration_ns) == expected


@given(st.floats(1, 1e18))
def test_a_shown_number_is_within_a_hundredth_of_the_value(duration_ns: float) -> None:
    number, unit = units.format_duration(duration_ns).split()
    size = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert float(number.replace(",", "")) * size == pytest.approx(duration_ns, rel=0.0051)


def test_sizes_and_counts_are_shown_for_people() -> None:
    assert [units.format_size(n) for n in (0, 999, 1_000, 123_456_789, 5 * 10**12)] == [
        "0.00 B", "999 B", "1.00 kB", "123 MB", "5,000 GB",
    ]  # fmt: skip
    assert [units.format_count(n) for n in (0, 5, 2.5, 12.34, 999.9, 1_234_567, 1_000_000.0)] == [
        "0", "5", "2.50", "12.3", "1,000", "1,234,567", "1,000,000",
    ]  # fmt: skip


@given(st.integers(0, 10**15))
def test_an_exact_duration_is_read_as_the_same_number(duration_ns: int) -> None:
    assert units.parse_duration_ns(units.format_exact_duration(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("text", "duration_ns"), [("1h", 3_600 * 10**9), ("90s", 90 * 10**9), ("10ms", 10**7), ("0s", 0), ("1001ns", 1_001)]
)
def test_an_exact_duration_has_the_largest_unit_that_fits(text: str, duration_ns: int) -> None:
    assert units.format_exact_duration(duration_ns) == text
