"""A world: the points of a use case as a pure function of (seed, stream, tick, series), or as they were recorded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import numpy as np

from tsbench import plugins
from tsbench.model import Batch, Codes
from tsbench.text import suggestion
from tsbench.units import format_exact_duration
from tsbench.workload.disorder import Disorder, Shuffler
from tsbench.workload.random_numbers import Bits
from tsbench.workload.series import FieldSimulator, PointColumns, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Measurement
    from tsbench.workload.layout import Layout, QueryKind, UseCase
    from tsbench.workload.recording import RecordedPoints

__all__ = ["Disorder", "World", "WorldSpec"]

T = TypeVar("T")

# Rows of a measurement that are computed at a time: enough to amortise numpy's calls, few enough for the cache.
_FEWEST_ROWS, _MOST_ROWS = 512, 32_768

_TAGS, _WALKS, _DISORDER, _CHURN, _JITTER = 0, 1, 2, 3, 4
_MOST_SERIES = 100_000_000
_MS = 1_000_000
BUILT_IN: dict[str, Path] = {
    path.stem: path for path in sorted((Path(__file__).parents[1] / "use_cases").glob("*.toml"))
}
"""The files of the built-in use cases by name, which `scenario.use_case` reads."""


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The parameters that determine a world.

    `scale` is the number of hosts or devices (with churn, of those that live at a time), `streams` the number of shares
    that they are divided into (place i belongs to stream i mod streams), `form` is one of the use case's; `decimals`
    rounds float fields (None: as the use case says). A series' values depend on `streams`; its times and tags do not.
    `resolution_ns` is the finest step of time in queries: their windows begin at multiples of it. It does not change
    the points, which lie on ticks.
    """

    use_case: str
    scale: int
    seed: int
    start_ns: int
    interval_ns: int
    streams: int = 1
    form: str = "bounded"
    decimals: int | None = None
    disorder: Disorder = field(default_factory=Disorder)
    resolution_ns: int = 1
    case: UseCase | None = field(default=None, compare=False, repr=False)
    """The use case of that name; None if it is unknown."""

    @property
    def series(self) -> int:
        """Number of series: `scale`, or with churn all that ever live."""
        churn = None if self.case is None else self.case.churn
        return self.scale if churn is None else self.scale * churn.generations


class World:
    """The points of a use case, and the tags of its series.

    Those of a recording lie in ticks, not on them: a tick has the points from its time to that of the next one.

    Parameters
    ----------
    spec
        The parameters that determine the world.

    Raises
    ------
    ValueError
        If the spec names an unknown use case or form, or a number in it is out of range.
    """

    def __init__(self, spec: WorldSpec) -> None:
        use_case = _use_case(spec)
        if spec.disorder == Disorder():
            spec = replace(spec, disorder=Disorder(**use_case.defects.get(spec.form, {})))
        self.spec = spec
        self._layouts = use_case.forms[spec.form]
        self.kinds: Mapping[str, QueryKind] = use_case.queries
        """Kinds of query that only this use case has."""
        self.measurements: tuple[Measurement, ...] = tuple(use_case.measurement(layout) for layout in self._layouts)
        recorded = use_case.recorded
        self.recorded = None if recorded is None else recorded.copied(spec.scale // recorded.series)
        self._every = {layout.name: layout.every(spec.interval_ns) for layout in self._layouts}
        self.in_order_of_time = self.recorded is not None or len({*self._every.values()}) > 1
        """Whether batches of measurements come by the times of their first points; else the measurements take turns."""
        jitters = any(layout.jitter_ns for layout in self._layouts)
        self.is_irregular = bool(spec.disorder) or self.in_order_of_time or jitters or max(self._every.values()) > 1
        """Whether not every series has one point of each measurement at every tick, in the order of time."""
        self.churn = use_case.churn
        self.series = spec.series
        """Number of series, all that ever live."""
        self._ages = np.zeros(spec.scale, dtype=np.int64)
        """How many ticks the first series of each place has lived at the world's first one."""
        self._life_ticks = 1
        if self.churn is not None:
            self._life_ticks = max(1, round(self.churn.lifetime_ns / spec.interval_ns))
            self._ages = (self._bits(_CHURN).uniform(1, spec.scale)[0] * self._life_ticks).astype(np.int64)
        self._shared: dict[str, Codes] = {} if self.recorded is None else dict(self.recorded.tags)
        if self.recorded is None:
            for tag in use_case.tags:
                bits = self._bits(_TAGS, tag.name)
                self._shared[tag.name] = tag.draw(bits, self.series, self._shared)
            self._drop_tags()
        self._texts: dict[str, tuple[str, ...]] = {}
        self._tags: dict[str, Mapping[str, Codes]] = {}
        for layout in self._layouts:
            own = {tag.name: tag.draw(self._bits(_TAGS, layout.name, tag.name), self.series, {}) for tag in layout.tags}
            self._tags[layout.name] = {**self._shared, **own}

    def _drop_tags(self) -> None:
        """Take one tag, never the key, from the share of the series that lack one."""
        share, names = self.spec.disorder.null_tags, [*self._shared][1:]
        if not share or not names:
            return
        drawn = self._bits(_DISORDER, "tags").uniform(1, self.series)[0] / share * len(names)
        for at, name in enumerate(names):
            codes = self._shared[name]
            lacks = (drawn >= at) & (drawn < at + 1)
            codes_of = np.where(lacks, len(codes.values), codes.codes).astype(np.int32)
            self._shared[name] = Codes(codes_of, (*codes.values, ""))

    @property
    def later_ns(self) -> int:
        """How much later its points are than they were recorded; 0 for simulated ones."""
        return 0 if self.recorded is None else self.spec.start_ns - self.recorded.start_ns

    @property
    def key(self) -> str | None:
        """Name of the tag that queries choose and group by; None for a single series without tags."""
        return self.measurements[0].key

    def keys(self) -> tuple[str, ...]:
        """Return the key tag's value of every series 0 .. scale-1; empty if the world has no key."""
        return () if self.key is None else tuple(self._shared[self.key].tolist())

    def tags(self) -> Mapping[str, Codes]:
        """Return the shared tags of every series."""
        return self._shared

    def places_of(self, measurement: str) -> range | NDArray[np.int64]:
        """Return those of the `scale` places whose series have points of a measurement."""
        return range(self.spec.scale) if self.recorded is None else self.recorded.of(measurement).series

    def interval_ns(self, measurement: str) -> int:
        """Return the time between two points of a series in a measurement; of a recording about."""
        return self.spec.interval_ns * self._every[measurement]

    def points_in(self, measurement: str, ticks: int) -> int:
        """Return the number of points of a series in a measurement in the first ticks."""
        return -(-ticks // self._every[measurement])

    def series_at(self, places: NDArray[Any], ticks: Any) -> NDArray[Any]:
        """Return the numbers of the series that have some of the `scale` places at ticks; without churn the places."""
        if self.churn is None:
            return places
        generations: NDArray[np.int64] = (ticks + self._ages[places]) // self._life_ticks % self.churn.generations
        return places + self.spec.scale * generations

    def tags_of(self, measurement: str) -> Mapping[str, Codes]:
        """Return all tags of every series in a measurement, its own ones too."""
        return self._tags[measurement]

    def texts(self, tag: str) -> tuple[str, ...]:
        """Return the different values of a shared tag that are not empty, sorted."""
        if tag not in self._texts:
            codes = self._shared[tag]
            known = {codes.values[code] for code in np.unique(codes.codes).tolist()}
            self._texts[tag] = tuple(sorted(known - {""}))
        return self._texts[tag]

    def ticks(self, window_ns: int) -> int:
        """Return the number of ticks in a duration that begins at a tick, its end excluded."""
        return -(-window_ns // self.spec.interval_ns)

    def time_ns(self, tick: int) -> int:
        """Return the time of a tick."""
        return self.spec.start_ns + tick * self.spec.interval_ns

    def count(self, stream: int | None, first_tick: int, last_tick: int) -> int | None:
        """Return the number of points with first_tick <= tick < last_tick (`stream` None: of all streams).

        None if the world has missing, lost or duplicate points, or is recorded: their number is not known before.
        """
        if self.recorded is not None:
            return None
        disorder = self.spec.disorder
        if disorder.missing or disorder.lost or disorder.duplicate:
            return None
        series = self.spec.scale
        if stream is not None:
            series = len(range(stream, self.spec.scale, self.spec.streams))
        counts = (self.points_in(m.name, last_tick) - self.points_in(m.name, first_tick) for m in self.measurements)
        return sum(max(0, count) for count in counts) * series

    def batches(
        self,
        stream: int,
        *,
        points: int,
        first_tick: int = 0,
        last_tick: int | None = None,
        only: Collection[str] | None = None,
    ) -> Iterator[Batch]:
        """Yield the batches of a stream with first_tick <= tick < last_tick (None: endlessly), in order.

        The measurements take turns (batch 0 of each, then batch 1 of each, and so on), so that a writer of few batches
        touches them all. Where they have different intervals, and in a recording, batches come in the order of their
        first points' times (`in_order_of_time`). Every batch has `points` rows of one measurement (its last one may
        have fewer); the rows of a measurement run tick by tick and within a tick over the stream's series. Batches are
        numbered 0, 1, 2, ... within a call. `only` names the measurements to generate (None: all); the others are not
        computed.

        The points depend neither on `points` nor on `first_tick`: the ticks before it are computed and discarded.

        Raises
        ------
        ValueError
            If the stream does not exist, or `points` or `first_tick` is out of range.
        """
        return self.mixed((stream,), points=points, first_tick=first_tick, last_tick=last_tick, only=only)

    def mixed(
        self,
        streams: Sequence[int],
        *,
        points: int,
        first_tick: int = 0,
        last_tick: int | None = None,
        only: Collection[str] | None = None,
    ) -> Iterator[Batch]:
        """Yield batches of several streams: a tick's rows run over the first stream's series, then the second's.

        Otherwise as `batches`. The `stream` of each batch is the first one.

        Raises
        ------
        ValueError
            As `batches`; and if the world has disorder and `streams` are several: each stream has its own order.
        """
        for stream in streams:
            if not 0 <= stream < self.spec.streams:
                raise ValueError(f"there is no stream {stream}: the world has {self.spec.streams}")
        if points < 1:
            raise ValueError(f"points per batch must be at least 1, not {points}")
        if first_tick < 0:
            raise ValueError(f"first_tick must be at least 0, not {first_tick}")
        if self.is_irregular and len(streams) > 1:
            raise ValueError("streams of a world with disorder cannot be mixed")
        return self._batches(streams, points, first_tick, last_tick, only)

    def _batches(
        self, streams: Sequence[int], points: int, first_tick: int, last_tick: int | None, only: Collection[str] | None
    ) -> Iterator[Batch]:
        sources = [
            zip(repeat(measurement), cut(self._tables(layout, streams, points, first_tick, last_tick), points))
            for measurement, layout in zip(self.measurements, self._layouts, strict=True)
            if only is None or layout.name in only
        ]
        in_order = merge(*sources, key=_first_time_ns) if self.in_order_of_time else _in_turn(sources)
        for number, (measurement, table) in enumerate(in_order):
            columns = table.time_ns, table.series, self._tags[measurement.name], table.fields
            yield Batch(measurement, streams[0], number, *columns)

    def _tables(
        self, layout: Layout, streams: Sequence[int], points: int, first_tick: int, last_tick: int | None
    ) -> Iterator[PointColumns]:
        """Yield one measurement's rows of some streams, some ticks at a time, in the order in which they are sent."""
        spec = self.spec
        if self.recorded is not None:
            yield from self._recorded(self.recorded.of(layout.name), streams[0], first_tick, last_tick)
            return
        shares = [np.arange(stream, spec.scale, spec.streams, dtype=np.int32) for stream in streams]
        series = np.concatenate(shares)
        if not len(series):
            return
        simulator = FieldSimulator(
            layout,
            [len(share) for share in shares],
            lambda name: [self._bits(_WALKS, layout.name, name, stream=stream) for stream in streams],
            interval_ns=self.interval_ns(layout.name),
            decimals=spec.decimals,
        )
        shuffler = None
        if spec.disorder:
            bits = self._bits(_DISORDER, layout.name, stream=streams[0])
            more = self._bits(_DISORDER, layout.name, "runs and fields", stream=streams[0])
            nullable = [field.name for field in layout.fields if field.nullable]
            shuffler = Shuffler(spec.disorder, bits, len(series), more, nullable)
        jitter = self._bits(_JITTER, layout.name, stream=streams[0]) if layout.jitter_ns else None
        first = self.points_in(layout.name, first_tick)
        last = None if last_tick is None else self.points_in(layout.name, last_tick)
        for _, ticks in _pieces(0, first, _MOST_ROWS, len(series)):
            simulator.skip(ticks)
            if shuffler is not None:
                shuffler.skip(ticks)
            if jitter is not None:
                jitter.words(ticks * len(series))
        for number, ticks in _pieces(first, last, points, len(series)):
            # Not kept in a variable: during other measurements' turns only the state occupies memory.
            table = self._table(layout, simulator, series, number, ticks)
            if jitter is not None:
                table = _later(table, jitter.uniform(ticks, len(series)), layout.jitter_ns)
            yield table if shuffler is None else shuffler.push(table)
        held = None if shuffler is None else shuffler.flush()
        if held is not None:
            yield held

    def _recorded(
        self, recorded: RecordedPoints, stream: int, first_tick: int, last_tick: int | None
    ) -> Iterator[PointColumns]:
        """Yield the recorded rows of a measurement and a stream by time, as much later as the world begins later."""
        spec, later_ns = self.spec, self.later_ns
        end_ns = None if last_tick is None else self.time_ns(last_tick) - later_ns
        for rows in recorded.points(self.time_ns(first_tick) - later_ns, end_ns):
            table = PointColumns(*rows)
            own = table if spec.streams == 1 else table.take(table.series % spec.streams == stream)
            fields = own.fields
            if spec.decimals is not None:
                fields = {
                    name: np.round(values, spec.decimals) if values.dtype.kind == "f" else values
                    for name, values in fields.items()
                }
            if len(own):
                yield PointColumns(own.time_ns + later_ns, own.series, fields)

    def _table(
        self, layout: Layout, simulator: FieldSimulator, series: NDArray[np.int32], number: int, ticks: int
    ) -> PointColumns:
        """Return the points `number` to `number + ticks` of each series."""
        at = np.arange(number, number + ticks) * self._every[layout.name]
        places = np.tile(series, ticks)
        if self.churn is not None:
            places = self.series_at(places, np.repeat(at, len(series))).astype(np.int32)
        times = self.spec.start_ns + at * self.spec.interval_ns
        return PointColumns(np.repeat(times, len(series)), places, simulator.advance(ticks))

    def _bits(self, purpose: int, *names: str, stream: int = 0) -> Bits:
        """Return the random numbers for a purpose. Names enter as their CRC, so the order of tables does not matter."""
        words = (crc32(name.encode()) for name in (self.spec.use_case, *names))
        return Bits(np.random.SeedSequence(self.spec.seed, spawn_key=(purpose, stream, *words)))


def _in_turn(sources: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield the first item of each source, then the second of each, and so on, until all have ended."""
    going = [*sources]
    while going:
        for source in [*going]:
            item = next(source, None)  # not kept: during others' turns only a source's state occupies memory
            if item is None:
                going.remove(source)
            else:
                yield item


def _later(table: PointColumns, drawn: NDArray[Any], jitter_ns: int) -> PointColumns:
    """Return points that are later, each by the drawn share of the jitter, sorted by time."""
    times = table.time_ns + (drawn.ravel() * (jitter_ns // _MS)).astype(np.int64) * _MS
    order = np.argsort(times, kind="stable")
    return PointColumns(times, table.series, table.fields).take(order)


def _first_time_ns(item: tuple[Measurement, PointColumns]) -> int:
    return int(item[1].time_ns[0])


def _pieces(first: int, last: int | None, rows: int, series: int) -> Iterator[tuple[int, int]]:
    """Yield a range of ticks as (first tick, number of ticks), each of about `rows` rows within the limits above."""
    # A batch that is too large for one piece is made of equal pieces, so that few pieces extend over two batches.
    share = -(-rows // -(-rows // _MOST_ROWS))
    step = max(1, max(_FEWEST_ROWS, share) // series)
    tick = first
    while last is None or tick < last:
        ticks = step if last is None else min(step, last - tick)
        yield tick, ticks
        tick += ticks


def layouts_of(spec: WorldSpec) -> tuple[Layout, ...]:
    """Return the measurements of a world; none for a use case or form that does not exist."""
    return () if spec.case is None else spec.case.forms.get(spec.form, ())


def _expect_intervals(layout: Layout, interval_ns: int) -> None:
    """Verify that a measurement's times fit the ticks of a world."""
    if layout.interval_ns % interval_ns:
        world = format_exact_duration(interval_ns)
        raise ValueError(f"measurement.{layout.name}.interval: must be a multiple of world.interval, {world}")
    if layout.jitter_ns > (layout.interval_ns or interval_ns):
        raise ValueError(f"measurement.{layout.name}.jitter: must be at most the interval")


def _use_case(spec: WorldSpec) -> UseCase:
    """Return the spec's use case after validating all parameters."""
    use_case = spec.case
    if use_case is None:
        known = [*BUILT_IN, *plugins.points(plugins.USE_CASES)]
        raise ValueError(f"there is no use case '{spec.use_case}'; {suggestion(spec.use_case, known)}")
    if spec.form not in use_case.forms:
        raise ValueError(f"there is no form '{spec.form}'; there are {', '.join(use_case.forms)}")
    for name, least in (("scale", 1), ("seed", 0), ("interval_ns", 1), ("streams", 1)):
        if getattr(spec, name) < least:
            raise ValueError(f"{name} must be at least {least}, not {getattr(spec, name)}")
    if spec.decimals is not None and spec.decimals < 0:
        raise ValueError(f"decimals must be at least 0, not {spec.decimals}")
    if use_case.recorded is not None and spec.scale % use_case.recorded.series:
        raise ValueError(f"the recording has {use_case.recorded.series:,} series: scale cannot be {spec.scale}")
    if use_case.churn is not None:
        if use_case.churn.lifetime_ns < spec.interval_ns:
            raise ValueError("churn.lifetime: must be at least one interval")
        if spec.series > _MOST_SERIES:
            raise ValueError(
                f"churn.generations: {spec.series:,} series are more than {_MOST_SERIES:,}; lower it, or scale"
            )
    if not use_case.tags and spec.scale != 1:
        raise ValueError(f"'{spec.use_case}' is a single series, without tags: scale must be 1, not {spec.scale}")
    for layout in use_case.forms[spec.form]:
        _expect_intervals(layout, spec.interval_ns)
    return use_case


_last: dict[str, World] = {}


def last_world(said: str, make: Callable[[], World]) -> World:
    """Return what `make` made in this process for the text before, if that was the same, else what it makes.

    A world of a million series takes seconds to make, and has the texts of their tags: only one is kept.
    """
    if said not in _last:
        _last.clear()
        _last[said] = make()
    return _last[said]
