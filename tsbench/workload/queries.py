"""The kinds of query that any world has, how those of use cases are made, and the n-th query of each kind."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from tsbench.model import Aggregated, Condition, Latest, LatestBuckets, Query, Raw, Tagged, Text, Top, Window
from tsbench.text import suggestion
from tsbench.units import NS_PER_S, format_duration
from tsbench.workload.layout import Pick, QueryKind
from tsbench.workload.random_numbers import Bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Aggregate, Measurement
    from tsbench.workload.world import World

_BLOCK = 64
"""Number of successive queries of a kind that draw their random numbers together."""


class Misfit(ValueError):  # noqa: N818 - the query is one, no error of the program
    """A kind of query does not fit a world; `key` is the scenario's key that could be changed, "" if none can."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


def rows(pick: Pick, where: tuple[Condition, ...] = (), top: Top | None = None) -> Query:
    """Return a query for the rows of the window."""
    return Raw(pick.measurement, pick.fields, pick.window, pick.keys, where, pick.tagged, top)


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


def newest_buckets(pick: Pick, aggregate: Aggregate, bucket_ns: int, limit: int) -> Query:
    """Return a query for the newest aggregates by time before the window's end, of all series together."""
    return LatestBuckets(pick.measurement, pick.fields, aggregate, bucket_ns, pick.window.end_ns, limit)


def own_text(
    pick: Pick,
    answer: tuple[tuple[str, str], ...],
    texts: tuple[tuple[str, str], ...],
    gold: str,
    halves: tuple[tuple[str, str], ...] = (),
    top: Top | None = None,
) -> Query:
    """Return a query in a user's own words."""
    keys = () if pick.keys is None else ((pick.measurement.key or "", pick.keys),)
    values = (*keys, *((one.tag, one.values) for one in pick.tagged))
    return Text(pick.measurement, answer, texts, gold, pick.window, values, halves, top)


QUERIES: dict[str, QueryKind] = {
    "raw-all": QueryKind("every row of everything that was loaded", rows, share=1.0),
    "raw-tenth": QueryKind("every row of a tenth of the loaded time", rows, share=0.1),
    "raw-one": QueryKind("the one row that every series has in one interval", rows),
}
"""Those of study D, about the first measurement; all others are in files of use cases."""


def kinds_of(world: World) -> Mapping[str, QueryKind]:
    """Return the kinds of query that a world knows by name: its use case's own, and those of any."""
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
    length_ns = _length_ns(kind, world, measurement.name, loaded)
    window = _window(loaded, length_ns, when, world.spec.resolution_ns)
    keys, tagged = None, kind.tagged
    if kind.keys and world.key is not None:
        there = world.places_of(measurement.name)
        chosen = choose(who[: kind.keys], len(there))
        places = np.array([there[i] for i in chosen])  # those that live when the window begins
        of_series = world.tags()[world.key]
        tick = world.ticks(window.start_ns - world.spec.start_ns)
        keys = tuple(of_series[i] for i in world.series_at(places, tick).tolist())
    at = kind.keys
    for tag, count in kind.draws:
        values, drawn = world.texts(tag), who[at : at + count]
        at += count
        tagged = (*tagged, Tagged(tag, tuple(values[i] for i in choose(drawn[: len(values)], len(values)))))
    fields = kind.fields or measurement.field_names
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
        If the world has no such kind, or it needs more time or series than are loaded.
    """
    kinds = kinds_of(world)
    kind = kinds.get(name)
    if kind is None:
        raise Misfit(f"there is no query '{name}' in the use case {world.spec.use_case}; {suggestion(name, kinds)}")
    measurements = kind.measurements or (world.measurements[0].name,)
    for of in measurements:
        if kind.keys > (known := len(world.places_of(of))):
            said = f"query '{name}' chooses {kind.keys} series and the world has {known}"
            if world.recorded is not None:
                raise Misfit(f"{said} of {of}: choose fewer")
            raise Misfit(f"{said}: raise scale to {kind.keys}", "world.scale")
    length_ns = max(_length_ns(kind, world, of, loaded) for of in measurements)
    if length_ns > loaded.length_ns:
        raise Misfit(
            f"query '{name}' covers {_span(length_ns)} and {_span(loaded.length_ns)} are loaded: "
            f"load {_span(length_ns)} or more",
            "load.window",
        )


def _span(length_ns: int) -> str:
    hours = length_ns / (3_600 * NS_PER_S)
    return f"{hours:g} h" if hours >= 1 else format_duration(length_ns)


def _length_ns(kind: QueryKind, world: World, measurement: str, loaded: Window) -> int:
    if kind.share:
        step_ns = world.spec.resolution_ns
        return max(1, int(loaded.length_ns * kind.share) // step_ns) * step_ns if kind.share < 1 else loaded.length_ns
    return kind.length_ns or world.interval_ns(measurement)


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
