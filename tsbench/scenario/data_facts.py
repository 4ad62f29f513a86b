"""What the points of a use case are, and what each database would make of them, before any server is involved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.errors import UserMistake
from tsbench.model import Kind
from tsbench.scenario.validation import expect_room_for, expect_values
from tsbench.targets.registry import TARGETS
from tsbench.units import format_exact_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tsbench.model import Batch, Field, Measurement
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target
    from tsbench.workload.world import World

_BATCH = 10_000
SIMULATED_POINTS = 200_000
"""Points of simulated data that are looked at, about; of recorded ones all are."""
_STEP = 1.02
"""Factor between two bounds of the distribution of gaps."""


@dataclass
class FieldFacts:
    """A field's values: the share of points without one, the least and the most (numbers), how many different texts."""

    name: str
    kind: str
    missing: float
    least: float | None
    most: float | None
    texts: int | None


@dataclass
class Facts:
    """The points of one measurement; gaps are times between two points of a series, in ns, exact or right to 2 %."""

    measurement: str
    points: int
    series: int
    first_ns: int
    last_ns: int
    least_points: int
    """The fewest points of a series."""
    median_points: float
    most_points: int
    begin_later: int
    """Series without points in the first tenth of the time."""
    end_before: int
    """Series without points in the last tenth of the time."""
    gaps_ns: dict[str, float] = field(default_factory=dict)
    fields: list[FieldFacts] = field(default_factory=list)


@dataclass
class Fit:
    """What a target's layout would make of the points: they are stored as they are, or refused, and why."""

    target: str
    schema: str
    is_stored: bool
    why: str = ""


def facts_of(world: World) -> list[Facts]:
    """Return what the points of each measurement of a world are."""
    looks = {measurement.name: _Look(world, measurement) for measurement in world.measurements}
    for stream in range(world.spec.streams):
        for batch in world.batches(stream, points=_BATCH, last_tick=_ticks(world)):
            looks[batch.measurement.name].add(batch)
    return [look.facts() for look in looks.values() if look.points]


def _ticks(world: World) -> int:
    if world.recorded is not None:
        return world.recorded.ticks
    return max(2, SIMULATED_POINTS // (world.spec.scale * len(world.measurements)))


class _Look:
    """Looks at the points of one measurement."""

    def __init__(self, world: World, measurement: Measurement) -> None:
        series = world.series
        self._measurement = measurement
        self.points = 0
        self._counts = np.zeros(series, dtype=np.int64)
        self._first = np.full(series, np.iinfo(np.int64).max)
        self._last = np.full(series, np.iinfo(np.int64).min)
        self._gaps: dict[int, tuple[int, int, int]] = {}
        """Number of the gaps between two bounds, and the shortest and the longest of them."""
        self._lacks = dict.fromkeys(measurement.field_names, 0)
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}

    def add(self, batch: Batch) -> None:
        self.points += len(batch)
        order = np.lexsort((batch.time_ns, batch.series))
        series, times = batch.series[order], batch.time_ns[order]
        begins = np.flatnonzero(np.diff(series, prepend=-1))
        ends = np.append(begins[1:], len(series)) - 1
        own = series[begins]
        inner = np.diff(times)[np.diff(series) == 0]
        known = self._counts[own] > 0
        across = times[begins][known] - self._last[own][known]
        self._add_gaps(np.concatenate([inner, across]))
        self._counts[own] += ends - begins + 1
        self._first[own] = np.minimum(self._first[own], times[begins])
        self._last[own] = np.maximum(self._last[own], times[ends])
        for name, values in batch.fields.items():
            self._add_values(name, values)

    def _add_gaps(self, gaps: NDArray[np.int64]) -> None:
        gaps = np.sort(np.maximum(np.abs(gaps), 1))
        numbers = np.rint(np.log(gaps) / np.log(_STEP)).astype(np.int64)
        for number, first, count in zip(*np.unique(numbers, return_index=True, return_counts=True), strict=True):
            least, most = int(gaps[first]), int(gaps[first + count - 1])
            known = self._gaps.get(int(number), (0, least, most))
            self._gaps[int(number)] = known[0] + int(count), min(known[1], least), max(known[2], most)

    def _add_values(self, name: str, values: NDArray[Any]) -> None:
        there = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        self._lacks[name] += len(values) - len(there)
        if len(there):
            least, most = there.min().item(), there.max().item()
            self._least[name] = min(self._least.get(name, least), least)
            self._most[name] = max(self._most.get(name, most), most)

    def facts(self) -> Facts:
        there = self._counts > 0
        counts = self._counts[there]
        first_ns, last_ns = int(self._first[there].min()), int(self._last[there].max())
        early, late = ((first_ns * (10 - tenths) + last_ns * tenths) // 10 for tenths in (1, 9))
        return Facts(
            self._measurement.name,
            self.points,
            int(there.sum()),
            first_ns,
            last_ns,
            int(counts.min()),
            float(np.median(counts)),
            int(counts.max()),
            int((self._first[there] > early).sum()),
            int((self._last[there] < late).sum()),
            self._quantiles(),
            [self._field(one) for one in self._measurement.fields],
        )

    def _quantiles(self) -> dict[str, float]:
        if not self._gaps:
            return {}
        gaps = [self._gaps[number] for number in sorted(self._gaps)]
        sums = np.cumsum([count for count, _, _ in gaps])
        at = {"5 %": 0.05, "median": 0.5, "95 %": 0.95}
        some = {name: gaps[int(np.searchsorted(sums, share * sums[-1]))] for name, share in at.items()}
        return {**{name: (least + most) / 2 for name, (_, least, most) in some.items()}, "most": float(gaps[-1][2])}

    def _field(self, one: Field) -> FieldFacts:
        is_number = one.kind in {Kind.FLOAT, Kind.INT}
        least, most = (self._least.get(one.name), self._most.get(one.name)) if is_number else (None, None)
        texts = len(one.texts) if one.kind is Kind.TEXT else None
        return FieldFacts(one.name, one.kind.value, self._lacks[one.name] / self.points, least, most, texts)


# --- what databases would make of them --------------------------------------------------------------------------------


def fits(world: World) -> Iterator[Fit]:
    """Yield what each target's first layout would make of a world's points: its first batches are encoded for it."""
    for name, target in TARGETS.items():
        if target.durable:
            schema = next(iter(target.schemas.values()))
            why = _refusal(world, target, schema)
            yield Fit(name, schema.name, not why, why)


def _refusal(world: World, target: Target, schema: Schema) -> str:
    """Return why a layout cannot hold a world's points; "" if it can."""
    if world.recorded is not None and (step_ns := target.resolution_ns) and world.recorded.step_ns % step_ns:
        return f"it stores times to {format_exact_duration(step_ns)}; cut them with round in recording.time"
    try:
        expect_room_for(world, target, schema)
        expect_values(world, schema, points=_BATCH)
    except UserMistake as error:
        return str(error).removeprefix("world.use_case: ")
    return ""
