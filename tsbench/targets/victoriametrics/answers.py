"""What VictoriaMetrics' answers say, as rows, and what its page of counters says: pure functions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tsbench.targets.base import others_text
from tsbench.targets.victoriametrics.schemas import FIELD, MS, ROLLUP, TIME_OF_LAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Labels = tuple[tuple[str, str], ...]
Points = tuple[list[int], list[Any]]
"""Times in ms, ascending, and values."""

_METRIC = re.compile(
    rb"^(vm_(?:rows_(?:received_by_storage|inserted|ignored|invalid|merged)_total|new_timeseries_created_total"
    rb"|slow_row_inserts_total|merges_total|active_merges|pending_rows|parts|assisted_merges_total"
    rb"|concurrent_insert_current|concurrent_insert_limit_reached_total|http_requests_all_total"
    rb"|filestream_real_written_bytes_total|filestream_fsync_calls_total|data_size_bytes)"
    rb"|process_resident_memory_bytes|go_memstats_heap_inuse_bytes)(\{[^\n]*\})? ([-+0-9.eE]+)$",
    re.MULTILINE,
)
_FLAG = re.compile(rb'^flag\{name="([^"]*)", value="([^"\n]*)", is_set="(true|false)"\} 1$', re.MULTILINE)
_FLAGS = ("retentionPeriod", "dedup.minScrapeInterval", "inmemoryDataFlushInterval", "precisionBits")
"""Flags that matter to a reader also where they have their defaults."""


def metrics(page: bytes) -> dict[str, float]:
    """Return the counters of /metrics that are worth keeping, each the sum of all its kinds."""
    totals: dict[str, float] = defaultdict(float)
    for name, _, value in _METRIC.findall(page):
        totals[name.decode()] += float(value)
    return dict(totals)


def _by_series(result: list[dict[str, Any]]) -> dict[Labels, dict[str, Points]]:
    """Return the points of each series by the names of its metrics; several lines of one metric are joined."""
    series: dict[Labels, dict[str, Points]] = defaultdict(dict)
    for one in result:
        labels = dict(one["metric"])
        name, _ = labels.pop("__name__", ""), labels.pop("db", "")
        times, values = one["timestamps"], one["values"]
        before = series[tuple(sorted(labels.items()))].setdefault(name, ([], []))
        before[0].extend(times)
        before[1].extend(values)
    return series


def _aligned(fields: Mapping[str, Points], names: Sequence[str]) -> tuple[list[int], list[Sequence[Any]]]:
    """Return the times of a series' points in ns, and their values by metric: None where one has no value.

    The i-th value of a metric at one time belongs to the i-th of the others: which were written together is not stored.
    """
    chosen = [fields.get(name, ([], [])) for name in names]
    times = chosen[0][0] if chosen else []
    if all(points[0] == times for points in chosen):
        return [time * MS for time in times], [points[1] for points in chosen]
    places: list[dict[tuple[int, int], Any]] = []
    for own_times, values in chosen:
        seen: Counter[int] = Counter()
        place: dict[tuple[int, int], Any] = {}
        for time, value in zip(own_times, values, strict=True):
            place[time, seen[time]] = value
            seen[time] += 1
        places.append(place)
    every = sorted({at for place in places for at in place})
    return [time * MS for time, _ in every], [[place.get(at) for at in every] for place in places]


def _rows(series: list[dict[str, Any]], columns: tuple[str, ...], measurement: str, key: str) -> Iterator[Any]:
    """Yield the rows of `Raw`."""
    names = [f"{measurement}_{name}" for name in columns[2 if key else 1 :]]
    for labels, fields in _by_series(series).items():
        times, values = _aligned(fields, names)
        yield from zip(times, *([repeat(dict(labels).get(key, ""))] if key else []), *values, strict=False)


def _stored_rows(
    series: list[dict[str, Any]],
    columns: tuple[str, ...],
    measurement: str,
    tags: tuple[str, ...],
    limit: float = math.inf,
) -> Iterator[Any]:
    """Yield at most `limit` rows of `Stored`, with all labels and fields: None where a point lacks one."""
    lead, count = f"{measurement}_", 0
    names = [lead + name for name in columns[1 + len(tags) : -1]]
    for labels, fields in _by_series(series).items():
        own = dict(labels)
        more = {name: value for name, value in labels if name not in tags}
        others = [name for name in fields if name not in names]
        times, values = _aligned(fields, [*names, *others])
        for time, *row in zip(times, *values, strict=True):
            if count >= limit:
                return
            rest = {name.removeprefix(lead): value for name, value in zip(others, row[len(names) :], strict=True)}
            others_of = others_text({**more, **rest}) if more or rest else None
            yield (time, *map(own.get, tags), *row[: len(names)], others_of)
            count += 1


def bucket_rows(
    result: list[dict[str, Any]],
    columns: tuple[str, ...],
    measurement: str,
    by: Sequence[str],
    size: int,
    counts: Sequence[str] = (),
) -> Iterator[Any]:
    """Yield the rows of buckets of `size` ms, or of one window without a time; a window ends 1 ms before it does.

    The columns `counts` have 0 where their metric has no sample, the others None.
    """
    first = ("time" in columns) + len(by)
    names = [(f"{measurement}_{name}", 0 if name in counts else None) for name in columns[first:]]
    groups: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(dict)
    for one in result:
        labels = one["metric"]
        points = {round(at * 1_000): float(value) for at, value in one.get("values") or [one["value"]]}
        groups[tuple(labels.get(tag, "") for tag in by)][labels[FIELD]] = points
    for tags, fields in groups.items():
        for at in sorted({at for points in fields.values() for at in points}):
            time = [(at + 1 - size) * MS] if columns[0] == "time" else []
            yield (*time, *tags, *(fields.get(metric, {}).get(at, none) for metric, none in names))


def _latest_rows(result: list[dict[str, Any]], columns: tuple[str, ...], measurement: str, key: str) -> Iterator[Any]:
    """Yield the newest row of each series; a field whose newest value is older has none in it."""
    names = [f"{measurement}_{name}" for name in columns[2 if key else 1 :]]
    times: dict[Labels, dict[str, int]] = defaultdict(dict)
    values: dict[Labels, dict[str, float]] = defaultdict(dict)
    for one in result:
        labels = dict(one["metric"])
        name, _, is_time = labels.pop("__name__"), labels.pop("db", ""), labels.pop(ROLLUP) == TIME_OF_LAST
        value, series = float(one["value"][1]), tuple(sorted(labels.items()))
        if is_time:
            times[series][name] = round(value * 1_000)
        else:
            values[series][name] = value
    for series, of_fields in times.items():
        newest = max(of_fields.values())
        row = (values[series].get(name) if of_fields.get(name) == newest else None for name in names)
        yield (newest * MS, *([dict(series).get(key, "")] if key else []), *row)


def _count_row(series: list[dict[str, Any]], columns: tuple[str, ...], measurement: str) -> Iterator[Any]:
    """Yield the count, which an answer without series leaves out."""
    yield (round(sum(float(one["value"][1]) for one in series)),)


def _label_rows(series: list[dict[str, Any]], columns: tuple[str, ...], _measurement: str, value: str) -> Iterator[Any]:
    """Yield a row of labels and a value for each series."""
    for one in series:
        number = float(one["value"][1])
        yield tuple(number if name == value else one["metric"].get(name, "") for name in columns)


READERS: dict[str, Callable[..., Iterator[Any]]] = {
    "rows": _rows,
    "stored": _stored_rows,
    "buckets": bucket_rows,
    "latest": _latest_rows,
    "count": _count_row,
    "labels": _label_rows,
}
"""Functions that return an answer's rows, by its form: (series, columns, measurement, ...)."""


def facts(page: bytes) -> dict[str, str]:
    """Return the server's version, if its build names one, and its flags that are set or matter."""
    match = re.search(rb'^vm_app_version\{version="([^"]*)", short_version="([^"]*)"\}', page, re.MULTILINE)
    version = (match[2] or match[1]).decode(errors="replace") if match else ""
    flags = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value, is_set in _FLAG.findall(page)
        if is_set == b"true" or name.decode(errors="replace") in _FLAGS
    }
    return {"version": f"VictoriaMetrics {version or '(of a build that names no version)'}", **flags}


def sizes(page: bytes) -> dict[str, int]:
    """Return the bytes of all values and of the index, whoever stored them."""
    parts = re.findall(rb'^vm_data_size_bytes\{type="(storage|indexdb)/[^"]*"\} ([-+0-9.eE]+)$', page, re.MULTILINE)
    return {
        part: sum(int(float(size)) for name, size in parts if name.decode() == part) for part in ("storage", "indexdb")
    }
