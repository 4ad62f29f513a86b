"""Text to numbers with units and back: the only place that parses or formats times, durations, sizes and rates."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

NS_PER_S = 1_000_000_000

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
_SIZE_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|min|s|m|h|d|w)\s*")
"""A number with its unit; a duration is one or more of them."""
_COUNT = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([kM]?)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]i?B|B)")
"""A number of bytes with its unit."""


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a duration such as `10s`, `1h30m`, `250 ms`.

    Raises
    ------
    ValueError
        If the text is not a sum of numbers with units.
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
        raise ValueError(f"'{text}' is not a duration; write for example 10s, 250ms or 1h30m")
    return round(total)


def parse_offset_s(text: str) -> float:
    """Seconds of a duration with or without a sign, such as `2h` or `-5h30m`.

    Raises
    ------
    ValueError
        If the text is not one.
    """
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    return sign * parse_duration_ns(stripped.lstrip("+-")) / NS_PER_S


def is_relative_time(value: object) -> bool:
    """Whether it is `now`, or a distance from it."""
    return isinstance(value, str) and value.strip().startswith("now")


def parse_time_ns(text: str, *, now_ns: int) -> int:
    """UTC nanoseconds since 1970 of an ISO 8601 time, of `now`, or of `now-6h` / `now+10m`.

    A time without a zone is UTC. `now_ns` is what `now` means.

    Raises
    ------
    ValueError
        If the text is neither.
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
        raise ValueError(f"'{text}' is not a time; write 2016-01-01T00:00:00Z, now or now-6h") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * NS_PER_S + delta.microseconds * 1_000


def parse_size_bytes(text: str) -> int:
    """Bytes of a size such as `512 MB` or `64MiB`.

    Raises
    ------
    ValueError
        If the text is not a number with a unit.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a size; write for example 512 MB or 64MiB")
    return round(float(match[1]) * _SIZE_BYTES[match[2]])


def parse_count(text: str) -> float:
    """A count or rate such as `3500`, `3_500` or `3.5k`, without a unit.

    Raises
    ------
    ValueError
        If the text is not a number.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text.strip()}' is not a number; write for example 3500, 3_500 or 3.5k")
    return float(match[1].replace("_", "")) * {"": 1, "k": 10**3, "M": 10**6}[match[2]]


def parse_share(text: str) -> float:
    """A share of a whole, such as `0.1%`; 0 needs no sign.

    Raises
    ------
    ValueError
        If the text is not a percentage from 0 to 100.
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100 or not (match[2] or float(match[1]) == 0):
        raise ValueError(f"'{text.strip()}' is not a share; write for example 0.1%")
    return float(match[1]) / 100


def format_time(time_ns: int) -> str:
    """An ISO 8601 UTC time with as many decimals as it needs."""
    seconds, rest = divmod(time_ns, NS_PER_S)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"


def format_now() -> str:
    """The current time as `format_time` has it, in whole seconds."""
    return format_time(int(time.time()) * NS_PER_S)


def format_duration(duration_ns: float) -> str:
    """A duration with three significant digits and the unit that fits."""
    for unit, size in (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000)):
        if abs(duration_ns) >= size:
            return f"{_significant(duration_ns / size)} {unit}"
    return f"{_significant(duration_ns)} ns" if duration_ns else "0 s"


def format_exact_duration(duration_ns: int) -> str:
    """Return a duration as `parse_duration_ns` reads it, in the largest unit up to hours that it is a multiple of."""
    for unit in ("h", "m", "s", "ms", "us"):
        if duration_ns % _DURATION_NS[unit] == 0:
            return f"{duration_ns // _DURATION_NS[unit]}{unit}" if duration_ns else "0s"
    return f"{duration_ns}ns"


def format_size(size_bytes: float) -> str:
    """A size with three significant digits in decimal units."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(size_bytes) >= size:
            return f"{_significant(size_bytes / size)} {unit}"
    return f"{_significant(size_bytes)} B"


def format_count(count: float) -> str:
    """A count or rate with thousands separated; decimals only where the number is small."""
    return f"{count:,.0f}" if abs(count) >= 100 or count == int(count) else _significant(count)


def _significant(number: float) -> str:
    magnitude = abs(number)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    return f"{number:,.{decimals}f}"
