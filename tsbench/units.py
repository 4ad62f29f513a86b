"""Parse and format times, durations, sizes, counts and shares; no other module does."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from tsbench.text import shortened

NS_PER_S = 1_000_000_000
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S}
"""Units of times that are numbers, in ns."""

_DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3_600 * NS_PER_S,
    "d": 86_400 * NS_PER_S,
    "w": 7 * 86_400 * NS_PER_S,
}
LONGEST_NS = 36_500 * 86_400 * NS_PER_S
"""The longest duration in ns: 100 years, so that sums of a few still fit into 64 bits."""
EARLIEST_NS, LATEST_NS = 0, 7_258_118_400 * NS_PER_S
"""The earliest and the latest time, 1970 and 2200: databases count ns since 1970 in 64 bits, which end in 2262."""
_SIZE_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_BYTES, _MOST_COUNT = 10**15, 10**18
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|min|s|m|h|d|w)\s*")
"""A number with its unit; a duration consists of one or more of these."""
_COUNT = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([kM]?)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]i?B|B)")
"""A number of bytes with its unit."""


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a duration such as `10s`, `1h30m`, `250 ms`.

    Raises
    ------
    ValueError
        If the text is not a sum of numbers with units, or longer than `LONGEST_NS`.
    """
    position, total = 0, 0.0
    stripped = text.strip()
    while position < len(stripped):
        part = DURATION_PART.match(stripped, position)
        if part is None:
            break
        total += float(part[1]) * _DURATION_NS[part[2]]
        position = part.end()
    if not stripped or position != len(stripped):
        raise ValueError(f"'{shortened(text)}' is not a duration; write for example 10s, 250ms or 1h30m")
    if total > LONGEST_NS:
        raise ValueError(f"'{shortened(text)}' is too long; durations are at most 36500d")
    return round(total)


def parse_offset_s(text: str) -> float:
    """Return the seconds of a duration with or without a sign, such as `2h` or `-5h30m`.

    Raises
    ------
    ValueError
        If the text is not a duration with or without a sign.
    """
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    return sign * parse_duration_ns(stripped.lstrip("+-")) / NS_PER_S


def is_relative_time(value: object) -> bool:
    """Return True for `now` and for times relative to it, such as `now-6h`."""
    return isinstance(value, str) and value.strip().startswith("now")


def parse_time_ns(text: str, *, now_ns: int) -> int:
    """Return the UTC nanoseconds since 1970 of an ISO 8601 time, of `now`, or of `now-6h` / `now+10m`.

    A time without a zone is UTC. `now_ns` is the time that `now` stands for.

    Raises
    ------
    ValueError
        If the text is not a time.
    """
    stripped = text.strip()
    if stripped == "now":
        return now_ns
    relative = re.fullmatch(r"now\s*([+-])\s*(.+)", stripped)
    if relative:
        offset = parse_duration_ns(relative[2])
        return now_ns + (offset if relative[1] == "+" else -offset)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"'{shortened(stripped)}' is not a time; write 2016-01-01T00:00:00Z, now or now-6h") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * NS_PER_S + delta.microseconds * 1_000


def parse_storable_time_ns(text: str, *, now_ns: int) -> int:
    """Return a time as `parse_time_ns` does, if databases can store it and those of some decades after it.

    Raises
    ------
    ValueError
        If the text is not a time from 1970 to 2200.
    """
    time_ns = parse_time_ns(text, now_ns=now_ns)
    if not EARLIEST_NS <= time_ns <= LATEST_NS:
        raise ValueError(f"'{shortened(text)}' is out of range; times are from 1970 to 2200")
    return time_ns


def parse_size_bytes(text: str) -> int:
    """Return the bytes of a size such as `512 MB` or `64MiB`.

    Raises
    ------
    ValueError
        If the text is not a number with a unit, or more than 10^15 bytes.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{shortened(text)}' is not a size; write for example 512 MB or 64MiB")
    size = float(match[1]) * _SIZE_BYTES[match[2]]
    if size > _MOST_BYTES:
        raise ValueError(f"'{shortened(text)}' is too much; sizes are at most 1000000 GB")
    return round(size)


def parse_count(text: str) -> float:
    """Parse a count or rate without a unit, such as `3500`, `3_500` or `3.5k`.

    Raises
    ------
    ValueError
        If the text is not a number, or more than 10^18.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{shortened(text)}' is not a number; write for example 3500, 3_500 or 3.5k")
    count = float(match[1].replace("_", "")) * {"": 1, "k": 10**3, "M": 10**6}[match[2]]
    if count > _MOST_COUNT:
        raise ValueError(f"'{shortened(text)}' is too large; numbers are at most 10^18")
    return count


def parse_share(text: str) -> float:
    """Return a percentage such as `0.1%` as a fraction (0.001); `0` may stand without the percent sign.

    Raises
    ------
    ValueError
        If the text is not a percentage from 0 to 100.
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100 or not (match[2] or float(match[1]) == 0):
        raise ValueError(f"'{shortened(text)}' is not a share; write for example 0.1%")
    return float(match[1]) / 100


def format_time(time_ns: int) -> str:
    """Return an ISO 8601 UTC time with as many decimals as needed."""
    seconds, rest = divmod(time_ns, NS_PER_S)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"


def format_now() -> str:
    """Return the current time in the form of `format_time`, in whole seconds."""
    return format_time(int(time.time()) * NS_PER_S)


def format_duration(duration_ns: float) -> str:
    """Return a duration with three significant digits and the largest fitting unit."""
    return (
        _in_unit(duration_ns, (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))) if duration_ns else "0 s"
    )


def format_duration_range(least_ns: float, most_ns: float) -> str:
    """Return two durations as a range: `5.00-5.90 ms`, or `900 us-1.10 ms`."""
    least, most = format_duration(least_ns), format_duration(most_ns)
    (number, _, unit), other = least.rpartition(" "), most.rpartition(" ")[2]
    return f"{number if unit == other else least}-{most}"


def format_exact_duration(duration_ns: int) -> str:
    """Return a duration in the largest unit up to hours that divides it, for `parse_duration_ns`."""
    for unit in ("h", "m", "s", "ms", "us"):
        if duration_ns % _DURATION_NS[unit] == 0:
            return f"{duration_ns // _DURATION_NS[unit]}{unit}" if duration_ns else "0s"
    return f"{duration_ns}ns"


def format_rough_duration(seconds: float) -> str:
    """Return an estimated time: `about 40 s`, `about 3 min`, `about 5 h`, `about 3 days`, `about 272 years`."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3_600, 48), ("days", 86_400, 1_000)):
        if seconds < most * size:
            return f"about {max(1, round(seconds / size)):,} {unit}"
    return f"about {seconds / 86_400 / 365.25:,.0f} years"


def format_size(size_bytes: float) -> str:
    """Return a size with three significant digits in decimal units."""
    return _in_unit(size_bytes, (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1)))


def format_factor(factor: float) -> str:
    """Return a factor as printed: `1.20x`, `3.2x`, `150x`."""
    return f"{factor:,.{2 if factor < 1.995 else 1 if factor < 9.95 else 0}f}x"


def format_count(count: float) -> str:
    """Return a count or rate with thousands separators; decimals only for small numbers."""
    return f"{count:,.0f}" if not abs(count) < 100 or count == int(count) else _significant(count)


def _in_unit(number: float, units: tuple[tuple[str, int], ...]) -> str:
    """Return a number with three digits in the first unit of which these are at least one, else in the last."""
    unit, size = next((one for one in units if abs(number) >= 0.9995 * one[1]), units[-1])
    return f"{_significant(number / size)} {unit}"


def _significant(number: float) -> str:
    magnitude = abs(number)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    return f"{number:,.{decimals}f}"
