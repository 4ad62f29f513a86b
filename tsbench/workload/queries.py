"""The kinds of query, under the names that other benchmarks use, and the n-th query of each kind.

Source: the names, windows, buckets and numbers of hosts are those of TSBS's devops queries as its code has them (its
README differs); the sensors' two kinds are study F's, the stocks' two study B's, the `raw` ones study D's. Those about
trucks are in `tsbench/use_cases/iot.toml`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tsbench.model import Aggregated, Condition, Latest, LatestBuckets, Query, Raw, Tagged, Text, Top, Window
from tsbench.text import suggestion
from tsbench.units import NS_PER_S, format_duration
from tsbench.workload.layout import Pick, QueryKind
from tsbench.workload.random_numbers import Bits
from tsbench.workload.use_cases.sensors import SENSORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Aggregate, Measurement
    from tsbench.workload.layout import Build
    from tsbench.workload.world import World

MINUTE_NS = 60 * NS_PER_S
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
CPU_USE_CASES = ("cpu-only", "devops")
_BLOCK = 64
"""Number of successive queries of a kind that draw their random numbers together."""


class Misfit(ValueError):  # noqa: N818 - the query is one, no error of the program
    """A kind of query does not fit a world; `key` is the scenario's key that could be changed, "" if none can."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


def rows(pick: Pick, where: tuple[Condition, ...] = ()) -> Query:
    """Return a query for the rows of the window."""
    return Raw(pick.measurement, pick.fields, pick.window, pick.keys, where, pick.tagged)


def newest_rows(pick: Pick) -> Query:
    """Return a query for the newest row of each series."""
    return Latest(pick.measurement, pick.fields, None, pick.keys, pick.tagged)


def aggregates(
    pick: Pick,
    values: tuple[tuple[Aggregate, str], ...],
    bucket_ns: int | None,
    by: tuple[str, ...],
    where: tuple[Condition, ...],
    top: Top | None = None,
) -> Query:
    """Return a query for aggregates by time and tags."""
    return Aggregated(pick.measurement, values, pick.window, bucket_ns, by, pick.keys, where, pick.tagged, top)


def buckets(pick: Pick, aggregate: Aggregate, bucket_ns: int, *, by_key: bool = False) -> Query:
    """Return a query for an aggregate of each field by time, of all chosen series together or of each."""
    by = (pick.measurement.key,) if by_key and pick.measurement.key is not None else ()
    return Aggregated.of(pick.measurement, pick.fields, aggregate, bucket_ns, pick.window, pick.keys, by)


def newest_buckets(pick: Pick, aggregate: Aggregate, bucket_ns: int, limit: int) -> Query:
    """Return a query for the newest aggregates by time before the window's end, of all series together."""
    return LatestBuckets(pick.measurement, pick.fields, aggregate, bucket_ns, pick.window.end_ns, limit)


def own_text(pick: Pick, answer: tuple[tuple[str, str], ...], texts: tuple[tuple[str, str], ...], gold: str) -> Query:
    """Return a query in a user's own words."""
    keys = () if pick.keys is None else ((pick.measurement.key or "", pick.keys),)
    values = (*keys, *((one.tag, one.values) for one in pick.tagged))
    return Text(pick.measurement, answer, texts, gold, pick.window, values)


_MINUTES = partial(buckets, aggregate="max", bucket_ns=MINUTE_NS)
_HOURS = partial(buckets, aggregate="max", bucket_ns=HOUR_NS)
_HOURS_BY_KEY = partial(buckets, aggregate="mean", bucket_ns=HOUR_NS, by_key=True)
_DAYS_BY_KEY = partial(buckets, aggregate="mean", bucket_ns=DAY_NS, by_key=True)
_BUSY = partial(rows, where=(Condition("usage_user", ">", 90.0),))
_NEWEST_FIVE = partial(newest_buckets, aggregate="max", bucket_ns=MINUTE_NS, limit=5)


def _cpu(doc: str, build: Build, hours: int, *, keys: int = 0, fields: int = 0) -> QueryKind:
    return QueryKind(doc, build, hours * HOUR_NS, 0.0, keys, fields, ("cpu",), CPU_USE_CASES)


QUERIES: dict[str, QueryKind] = {
    "single-groupby-1-1-1": _cpu("maximum of 1 cpu field per minute, 1 host, 1 hour", _MINUTES, 1, keys=1, fields=1),
    "single-groupby-1-1-12": _cpu(
        "maximum of 1 cpu field per minute, 1 host, 12 hours", _MINUTES, 12, keys=1, fields=1
    ),
    "single-groupby-1-8-1": _cpu(
        "maximum of 1 cpu field per minute, 8 hosts together, 1 hour", _MINUTES, 1, keys=8, fields=1
    ),
    "single-groupby-5-1-1": _cpu("maximum of 5 cpu fields per minute, 1 host, 1 hour", _MINUTES, 1, keys=1, fields=5),
    "single-groupby-5-1-12": _cpu(
        "maximum of 5 cpu fields per minute, 1 host, 12 hours", _MINUTES, 12, keys=1, fields=5
    ),
    "single-groupby-5-8-1": _cpu(
        "maximum of 5 cpu fields per minute, 8 hosts together, 1 hour", _MINUTES, 1, keys=8, fields=5
    ),
    "cpu-max-all-1": _cpu("maximum of every cpu field per hour, 1 host, 8 hours", _HOURS, 8, keys=1),
    "cpu-max-all-8": _cpu("maximum of every cpu field per hour, 8 hosts together, 8 hours", _HOURS, 8, keys=8),
    "cpu-max-all-32-24": _cpu("maximum of every cpu field per hour, 32 hosts together, 24 hours", _HOURS, 24, keys=32),
    "double-groupby-1": _cpu(
        "mean of 1 cpu field per hour and host, every host, 12 hours", _HOURS_BY_KEY, 12, fields=1
    ),
    "double-groupby-5": _cpu(
        "mean of 5 cpu fields per hour and host, every host, 12 hours", _HOURS_BY_KEY, 12, fields=5
    ),
    "double-groupby-all": _cpu("mean of every cpu field per hour and host, every host, 12 hours", _HOURS_BY_KEY, 12),
    "groupby-orderby-limit": _cpu(
        "maximum of 1 cpu field in the newest 5 minutes before a moment", _NEWEST_FIVE, 1, fields=1
    ),
    "high-cpu-1": _cpu("every cpu field of 1 host where usage_user exceeds 90, 12 hours", _BUSY, 12, keys=1),
    "high-cpu-all": _cpu("every cpu field of every host where usage_user exceeds 90, 12 hours", _BUSY, 12),
    "lastpoint": _cpu("the newest row of every host", newest_rows, 0),
    "raw-all": QueryKind("every row of everything that was loaded", rows, share=1.0),
    "raw-tenth": QueryKind("every row of a tenth of the loaded time", rows, share=0.1),
    "raw-one": QueryKind("the one row that every series has in one interval", rows),
    "select-6h-5-devices": QueryKind(
        "every temperature of 5 devices, 6 hours",
        rows,
        6 * HOUR_NS,
        keys=5,
        measurements=("temperature",),
        use_cases=("sensors",),
    ),
    "last-value": QueryKind(
        "the newest value of every device, of one of the seven measurements in turn",
        newest_rows,
        measurements=tuple(layout.name for layout in SENSORS.forms["peer"]),
        use_cases=("sensors",),
    ),
    "prices-day": QueryKind(
        "every price of every stock, 1 day", rows, DAY_NS, measurements=("prices",), use_cases=("stocks",)
    ),
    "prices-daily": QueryKind(
        "mean price per day and stock of everything that was loaded",
        _DAYS_BY_KEY,
        share=1.0,
        measurements=("prices",),
        use_cases=("stocks",),
    ),
}


def kinds_of(world: World) -> Mapping[str, QueryKind]:
    """Return the kinds of query that a world knows by name: its use case's own, and the built-in ones."""
    return {**QUERIES, **world.kinds} if world.kinds else QUERIES


def make(name: str, world: World, loaded: Window, seed: int, number: int) -> Query:
    """Return query `number` of a kind: a pure function of the arguments.

    The window lies within the loaded one and begins at a random multiple of the world's resolution, which every target
    of the scenario can express exactly; the series are drawn without replacement.

    Raises
    ------
    ValueError
        If the kind does not fit (see `fit`).
    """
    fit(name, world, loaded)
    kind = kinds_of(world)[name]
    block, row = divmod(number, _BLOCK)
    when, *who = _drawn(name, seed, block, 1 + kind.keys + sum(count for _, count in kind.draws))[row]
    measurement = _measurement(kind, world, number)
    choose = _popular if kind.zipf else _distinct
    keys, tagged = None, kind.tagged
    if kind.keys and world.key is not None:
        of_series = world.tags()[world.key]
        keys = tuple(of_series[i] for i in choose(who[: kind.keys], len(of_series)))
    at = kind.keys
    for tag, count in kind.draws:
        values, drawn = world.texts(tag), who[at : at + count]
        at += count
        tagged = (*tagged, Tagged(tag, tuple(values[i] for i in choose(drawn[: len(values)], len(values)))))
    names = measurement.field_names
    fields = kind.fields if isinstance(kind.fields, tuple) else names[: kind.fields or len(names)]
    window = _window(loaded, _length_ns(kind, world, loaded), when, world.spec.resolution_ns)
    return kind.build(Pick(measurement, fields, window, keys, tagged))


@lru_cache(maxsize=32)
def _drawn(name: str, seed: int, block: int, columns: int) -> list[list[float]]:
    """Return the random numbers of a block of queries, by row: a stream for each query would take 50 us of its op."""
    stream = crc32(b"query"), crc32(name.encode()), block
    drawn: list[list[float]] = Bits(np.random.SeedSequence(seed, spawn_key=stream)).uniform(_BLOCK, columns).tolist()
    return drawn


def fit(name: str, world: World, loaded: Window) -> None:
    """Verify that a kind of query fits a world whose points in the window `loaded` are stored.

    Raises
    ------
    Misfit
        If the kind is unknown, belongs to another use case, or needs more time or series than are loaded.
    """
    kinds = kinds_of(world)
    kind = kinds.get(name)
    if kind is None:
        raise Misfit(f"there is no query '{name}'; {suggestion(name, kinds)}")
    use_case = world.spec.use_case
    if kind.use_cases is not None and use_case not in kind.use_cases:
        wanted = " or ".join(kind.use_cases)
        raise Misfit(f"query '{name}' is for the use case {wanted}, not for {use_case}")
    if kind.keys > world.spec.scale:
        raise Misfit(
            f"query '{name}' chooses {kind.keys} series and the world has {world.spec.scale}: "
            f"raise scale to {kind.keys}",
            "world.scale",
        )
    length_ns = _length_ns(kind, world, loaded)
    if length_ns > loaded.length_ns:
        raise Misfit(
            f"query '{name}' covers {_span(length_ns)} and {_span(loaded.length_ns)} are loaded: "
            f"load {_span(length_ns)} or more",
            "load.window",
        )


def _span(length_ns: int) -> str:
    hours = length_ns / HOUR_NS
    return f"{hours:g} h" if hours >= 1 else format_duration(length_ns)


def _length_ns(kind: QueryKind, world: World, loaded: Window) -> int:
    if kind.share:
        step_ns = world.spec.resolution_ns
        return max(1, int(loaded.length_ns * kind.share) // step_ns) * step_ns if kind.share < 1 else loaded.length_ns
    return kind.length_ns or world.spec.interval_ns


def _measurement(kind: QueryKind, world: World, number: int) -> Measurement:
    """Return the kind's measurement, or one of several in turn; the world's first if the kind names none."""
    if not kind.measurements:
        return world.measurements[0]
    wanted = kind.measurements[number % len(kind.measurements)]
    return next(m for m in world.measurements if m.name == wanted)


def _window(loaded: Window, length_ns: int, when: float, step_ns: int) -> Window:
    """Return a window at the fraction `when` (0..1) of the loaded one, starting at a multiple of `step_ns`."""
    first = -(-loaded.start_ns // step_ns)
    last = (loaded.end_ns - length_ns) // step_ns
    if last <= first:
        return Window(loaded.start_ns, loaded.start_ns + length_ns)
    start_ns = (first + int(when * (last - first + 1))) * step_ns
    return Window(start_ns, start_ns + length_ns)


def _distinct(uniforms: list[float], population: int) -> list[int]:
    """Return as many different numbers below `population` as `uniforms` holds (Floyd's method)."""
    chosen: list[int] = []
    for highest, u in enumerate(uniforms, population - len(uniforms)):
        drawn = int(u * (highest + 1))
        chosen.append(highest if drawn in chosen else drawn)
    return chosen


def _popular(uniforms: list[float], population: int) -> list[int]:
    """Return as many different numbers below `population`, r - 1 with a probability like 1/r; the next one if taken."""
    chosen: list[int] = []
    for u in uniforms:
        drawn = min(int((population + 1) ** u), population) - 1
        while drawn in chosen:
            drawn = (drawn + 1) % population
        chosen.append(drawn)
    return chosen
