"""The gold answers to the questions about trucks, added up from slabs of points; `use_cases.iot` defines them.

What is kept of the points is a number and a sum per truck, or per truck and bucket of ten minutes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.check.comparison import ROUNDING, Computed, Difference, compare_rows, in_order
from tsbench.check.points import NEVER_NS
from tsbench.check.questions import Tracker
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.check.questions import Checked, Names, Question
    from tsbench.model import Analysis, Codes

_Buckets: TypeAlias = "tuple[int, NDArray[np.int64], NDArray[np.bool_]]"
BUCKET_NS = 600 * NS_PER_S
A_DAY = 144
"""Buckets of a day."""

_NEWEST = {
    "single-last-loc": ("latitude", "longitude"),
    "last-loc": ("latitude", "longitude"),
    "low-fuel": ("fuel_state",),
    "high-load": ("current_load",),
}
"""Fields that the newest point must have."""
_IN_BUCKETS = {
    "long-driving-sessions": "velocity",
    "long-daily-sessions": "velocity",
    "avg-daily-driving-duration": "velocity",
    "avg-daily-driving-session": "velocity",
    "daily-activity": "status",
    "breakdown-frequency": "status",
}
"""Field that is added up per bucket; of the others per truck, that of `_TOTALS`."""
_TOTALS = {
    "stationary-trucks": "velocity",
    "avg-vs-projected-fuel-consumption": "fuel_consumption",
    "avg-load": "current_load",
}
_LONG = {"long-driving-sessions": 22, "long-daily-sessions": 60}


def computed(value: float, points: float) -> Computed:
    """Return a mean of means with its bound: all terms are of one sign, so that `ROUNDING` bounds it as one mean."""
    return Computed.of(value, 4 * (points + 8) * ROUNDING * abs(value))


class TruckTracker(Tracker):
    """The answers to `Analysis` questions of one name and window, which differ in the truck or fleet at most."""

    def __init__(self, questions: Sequence[Question[Analysis]], names: Names) -> None:
        self._questions, self._names = questions, names
        query = questions[0].query
        self._name = name = query.name
        self.begin_ns, self.end_ns = query.window.start_ns, query.window.end_ns
        self._tags: Mapping[str, Codes] = {}
        scale = names.scale
        self._first = self.begin_ns // BUCKET_NS if name in _IN_BUCKETS else 0
        cells = ((self.end_ns - 1) // BUCKET_NS - self._first + 1) * scale if name in _IN_BUCKETS else scale
        self._counts, self._sums = np.zeros(cells), np.zeros(cells)
        self._newest_ns = np.full(scale, NEVER_NS, dtype=np.int64)
        self._newest = {field: np.zeros(scale) for field in _NEWEST.get(name, ())}

    def add(self, slab: Slab, known: Slab) -> None:  # unknown writes are after the load
        self._tags = known.tags
        rows = slice(known.rows_until(self.begin_ns), known.rows_until(self.end_ns))
        series, times = known.series[rows], known.time_ns[rows]
        if self._newest:
            there = np.all([~np.isnan(known.fields[name][rows]) for name in self._newest], axis=0)
            self._newest_ns[series[there]] = times[there]  # of several points of a truck the last one counts
            for name, values in self._newest.items():
                values[series[there]] = known.fields[name][rows][there]
            return
        values = known.fields[_IN_BUCKETS.get(self._name) or _TOTALS[self._name]][rows]
        there = ~np.isnan(values)
        if self._name == "avg-vs-projected-fuel-consumption":
            there &= known.fields["velocity"][rows] > 1  # which NaN is not
        if self._name == "breakdown-frequency":
            values = (values > 0).astype(np.float64)
        cells = series.astype(np.int64)
        if self._name in _IN_BUCKETS:
            cells += (times // BUCKET_NS - self._first) * self._names.scale
        np.add.at(self._counts, cells[there], 1.0)
        np.add.at(self._sums, cells[there], values[there])

    def checked(self, until_ns: int) -> Iterator[Checked]:
        if self.end_ns > until_ns:
            return
        for question in self._questions:
            yield question, self._difference(question)

    def _difference(self, question: Question[Analysis]) -> Difference | None:
        answer = question.answer()
        if isinstance(answer, Difference):
            return answer
        wanted = in_order([*self._answer(question.query.of)]) if self._tags else []
        rows = in_order([*answer.rows(self._names.keys), *answer.odd])
        if question.part is not None:
            return question.part.compare(question.query, [wanted], rows)
        return compare_rows(wanted, rows, question.query.columns)

    # --- the answers

    def _answer(self, of: str) -> Iterator[Row]:
        answers: dict[str, Callable[[str], Iterator[Row]]] = {
            "single-last-loc": self._single_place,
            "last-loc": self._places,
            "low-fuel": self._low_fuel,
            "high-load": self._high_load,
            "stationary-trucks": self._stationary,
            "long-driving-sessions": self._long_sessions,
            "long-daily-sessions": self._long_sessions,
            "avg-vs-projected-fuel-consumption": self._consumption,
            "avg-daily-driving-duration": self._duration,
            "avg-daily-driving-session": self._session,
            "avg-load": self._load,
            "daily-activity": self._activity,
            "breakdown-frequency": self._breakdowns,
        }
        return answers[self._name](of)

    def _texts(self, tag: str) -> list[str]:
        return self._tags[tag].tolist()

    def _of_fleet(self, fleet: str, there: NDArray[np.bool_]) -> Iterator[tuple[int, str]]:
        """Yield number and name of the trucks of a fleet of which something is `there`."""
        of_fleet = np.array(self._texts("fleet")) == fleet
        names = self._texts("name")
        for truck in np.flatnonzero(of_fleet & there).tolist():
            yield truck, names[truck]

    def _single_place(self, name: str) -> Iterator[Row]:
        for truck, one in enumerate(self._texts("name")):
            if one == name and self._newest_ns[truck] > NEVER_NS:
                yield self._place(truck, one)

    def _places(self, fleet: str) -> Iterator[Row]:
        for truck, name in self._of_fleet(fleet, self._newest_ns > NEVER_NS):
            yield self._place(truck, name)

    def _place(self, truck: int, name: str) -> Row:
        return int(self._newest_ns[truck]), name, *(float(values[truck]) for values in self._newest.values())

    def _low_fuel(self, fleet: str) -> Iterator[Row]:
        for truck, name in self._of_fleet(fleet, self._newest_ns > NEVER_NS):
            if (left := float(self._newest["fuel_state"][truck])) < 0.1:
                yield name, left

    def _high_load(self, fleet: str) -> Iterator[Row]:
        capacities = self._texts("load_capacity")
        for truck, name in self._of_fleet(fleet, self._newest_ns > NEVER_NS):
            load = float(self._newest["current_load"][truck])
            if capacities[truck] and load > 0.9 * float(capacities[truck]):
                yield name, load

    def _stationary(self, fleet: str) -> Iterator[Row]:
        for truck, name in self._of_fleet(fleet, self._counts > 0):
            if (mean := self._sums[truck] / self._counts[truck]) < 1:
                yield name, computed(float(mean), float(self._counts[truck]))

    def _buckets(self, holds: Callable[[NDArray[np.float64]], NDArray[np.bool_]]) -> Iterator[_Buckets]:
        """Yield the buckets of every truck that has some: their numbers, and whether the mean of each `holds`."""
        counts = self._counts.reshape(-1, self._names.scale)
        sums = self._sums.reshape(-1, self._names.scale)
        for truck in np.flatnonzero(counts.any(axis=0)).tolist():
            some = np.flatnonzero(counts[:, truck])
            yield truck, some + self._first, holds(sums[some, truck] / counts[some, truck])

    def _long_sessions(self, fleet: str) -> Iterator[Row]:
        fleets, names = self._texts("fleet"), self._texts("name")
        for truck, _, drives in self._buckets(lambda mean: mean > 1):
            if fleets[truck] == fleet and drives.sum() > _LONG[self._name]:
                yield names[truck], float(drives.sum())

    def _consumption(self, _: str) -> Iterator[Row]:
        fleets, nominal = self._texts("fleet"), self._texts("nominal_fuel_consumption")
        by_fleet: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for truck in np.flatnonzero(self._counts).tolist():
            if fleets[truck] and nominal[truck]:
                count = float(self._counts[truck])
                by_fleet[fleets[truck]].append((count, float(self._sums[truck]), count * float(nominal[truck])))
        for fleet, of_trucks in by_fleet.items():
            points, *sums = map(sum, zip(*of_trucks, strict=True))
            yield fleet, *(computed(one / points, points) for one in sums)

    def _duration(self, _: str) -> Iterator[Row]:
        names = self._texts("name")
        for truck, numbers, drives in self._buckets(lambda mean: mean > 1):
            days = len(np.unique(numbers // A_DAY))
            yield names[truck], computed(float(drives.sum()) / days / 6, days)

    def _session(self, _: str) -> Iterator[Row]:
        names = self._texts("name")
        for truck, numbers, drives in self._buckets(lambda mean: mean > 5):
            lengths: dict[int, list[int]] = defaultdict(list)
            changes = np.flatnonzero(drives[1:] != drives[:-1]) + 1
            for start, end in zip(changes[:-1].tolist(), changes[1:].tolist(), strict=True):
                if drives[start]:
                    lengths[int(numbers[start]) // A_DAY].append(10 * int(numbers[end] - numbers[start]))
            for day, minutes in lengths.items():
                yield day * A_DAY * BUCKET_NS, names[truck], computed(sum(minutes) / len(minutes), len(minutes))

    def _load(self, _: str) -> Iterator[Row]:
        fleets, models, capacities = map(self._texts, ("fleet", "model", "load_capacity"))
        loads: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for truck in np.flatnonzero(self._counts).tolist():
            if fleets[truck] and models[truck] and capacities[truck]:
                share = self._sums[truck] / self._counts[truck] / float(capacities[truck])
                loads[fleets[truck], models[truck]].append((float(share), float(self._counts[truck])))
        for group, of_trucks in loads.items():
            shares, points = zip(*of_trucks, strict=True)
            yield *group, computed(sum(shares) / len(shares), sum(points))

    def _activity(self, _: str) -> Iterator[Row]:
        fleets, models = self._texts("fleet"), self._texts("model")
        counts_all: dict[tuple[int, str, str], list[int]] = defaultdict(list)
        for truck, numbers, active in self._buckets(lambda mean: mean < 1):
            for day in np.unique(numbers // A_DAY).tolist() if fleets[truck] and models[truck] else ():
                group = day * A_DAY * BUCKET_NS, fleets[truck], models[truck]
                counts_all[group].append(int(active[numbers // A_DAY == day].sum()))
        for group, counts in counts_all.items():
            yield *group, computed(sum(counts) / len(counts) / A_DAY, len(counts))

    def _breakdowns(self, _: str) -> Iterator[Row]:
        models = self._texts("model")
        counts: dict[str, int] = defaultdict(int)
        for truck, _numbers, broken in self._buckets(lambda share: share >= 0.5):
            if models[truck]:
                counts[models[truck]] += int((broken[1:] & ~broken[:-1]).sum())
        for model, count in counts.items():
            if count:
                yield model, float(count)
