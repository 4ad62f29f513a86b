"""The sides of a comparison, each with its runs: repeats are one side, and so are the loads of a ramp."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tsbench.errors import UserMistake
from tsbench.measure.statistics import Bounds
from tsbench.report import lacking
from tsbench.report.cells import ROUND
from tsbench.report.metrics import COMPARED, part_of
from tsbench.results.figures import OpFigures
from tsbench.results.reading import read_table
from tsbench.results.rundir import ADDED_COLUMNS, SERVER_COLUMNS
from tsbench.results.summary import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.report.cells import Cell, Overload, ResultSet
    from tsbench.results.summary import Validity

OF_OPEN_LOOP = ("asked_ops_per_s", "done_ops_per_s")
"""Figures of open loops: the rate of arrivals, and that of ops which ended, in the measured window."""
_BARE = {"target", "case"}
_FIGURES = (
    *("write_points_per_s", "write_p99_ns", "write_p50_ns", "write_mean_ns"),
    *("query_ops_per_s", "query_p99_ns", "query_p50_ns", "query_mean_ns"),
    *("load_points_per_s", "bytes_per_point"),
    *OF_OPEN_LOOP,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison at one load: figures by name with units, one per run, whose rounds are `rounds`.

    `at` is the value of the numeric axis, None without one. `reason` says why its runs are `invalid` or `inconclusive`;
    they are compared nevertheless if they `stand`. `failed` has the gates that failed, with what was measured, and
    `undecided` those whose ops were too few. `margins` are by how much figures of a single run may be chance within it.
    `runs` are those that count, in the order of `rounds` (0 of a run without repeats), and `cells` all of them.
    """

    name: str
    at: float | None = None
    figures: Mapping[str, tuple[Bounds, ...]] = field(default_factory=dict)
    validity: str = "valid"
    reason: str = ""
    stands: bool = True
    limited_by: str = "database"
    failed: Mapping[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    gated: bool = False
    margins: Mapping[str, Bounds] = field(default_factory=dict)
    rounds: tuple[int, ...] = (0,)
    kinds: frozenset[str] = frozenset()
    """The kinds of queries that its runs asked."""
    overloads: tuple[Overload, ...] = ()
    """Of its runs those in which the database could not keep up with an open loop."""
    disturbed: tuple[str, ...] = ()
    """What else used the machine meanwhile, of each of its runs of which that is known."""
    runs: tuple[Cell, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def passed(self) -> bool:
        """True if its figures are valid and no gate failed."""
        return self.validity == "valid" and not self.failed

    @property
    def is_generators(self) -> bool:
        """True if the load generator was the limit of one of its runs: their rates are its own."""
        return self.stands and (self.validity != "valid" or self.limited_by == CLIENT)

    @property
    def left_out(self) -> tuple[Cell, ...]:
        """Its runs that do not count, since they are less valid than the others."""
        return tuple(cell for cell in self.cells if cell not in self.runs)

    @property
    def repeats(self) -> int:
        """Number of its runs with figures."""
        return max((len(counts) for counts in self.figures.values()), default=1)

    @property
    def results(self) -> Path:
        """Directory of its result set."""
        return self.cells[0].run.path.parent

    @property
    def text(self) -> str:
        """Its place and number of runs."""
        return f"{self.results / self.name} ({len(self.runs)} run{'s' if len(self.runs) != 1 else ''})"


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides of a result set in its order, and the key of the numeric axis over which they are compared, or "".

    `searched` is the figure of which they are the ends of searches, or "".
    """

    loop: str
    axis: str
    sides: tuple[Side, ...]
    searched: str = ""

    @property
    def searches_loads(self) -> bool:
        """True if they are the ends of searches among bulk loads."""
        return self.searched.startswith("load:")

    @property
    def only_loads(self) -> bool:
        """True if nothing was written but bulk loads, so that their rate is that of writing."""
        return self.searches_loads or not any(key.startswith("write_") for side in self.sides for key in side.figures)

    @property
    def repeats(self) -> int:
        """The largest number of runs of a side."""
        return max((side.repeats for side in self.sides), default=0)


def sides_of(cells: Sequence[Cell]) -> Sides:
    """Return the sides of a result set: runs that differ only in their round are one."""
    labels = [{k: v for k, v in cell.labels.items() if k != ROUND} for cell in cells]
    axis = _axis(labels)
    grouped: dict[tuple[str, float | None], list[Cell]] = {}
    for cell, of in zip(cells, labels, strict=True):
        at = float(of[axis]) if axis else None
        name = _name({k: v for k, v in of.items() if k != axis}) or cell.summary.target
        grouped.setdefault((name, at), []).append(cell)
    rounds = [[cell.round for cell in of] for of in grouped.values()]
    if not all(name for name, _ in grouped) or any(len(set(of)) < len(of) for of in rounds):
        axis, grouped = "", {(cell.name, None): [cell] for cell in cells}  # labels do not tell the runs apart
    if all(len(of) == 1 for of in grouped.values()) and not axis:
        grouped = {(cell.name, None): [cell] for cell in cells}
    return Sides(_loop_of(cells), axis, tuple(side_of_runs(name, at, of) for (name, at), of in grouped.items()))


def ends_of(results: ResultSet) -> Sides:
    """Return a side for each search of a result set: the runs of the step at which it ended."""
    cells = {cell.name: cell for cell in results.cells}
    searches = results.summary.searches
    ends = {one.name: [cells[name] for name in one.cells if name in cells] for one in searches}
    sides = tuple(side_of_runs(name, None, of) for name, of in ends.items() if of)
    return Sides(_loop_of(results.cells), "", sides, searches[0].of)


def _loop_of(cells: Sequence[Cell]) -> str:
    loops = {cell.summary.loop for cell in cells if cell.summary.loop}
    return str(loops.pop()) if len(loops) == 1 else "open"  # of both, only times are compared


def _axis(labels: Sequence[Mapping[str, str]]) -> str:
    """Return the key whose values are numbers in every run, and the most different ones; "" without one."""
    axis = {}
    for key in dict.fromkeys(key for of in labels for key in of):
        values = {_number(of.get(key, "")) for of in labels}
        if len(values) > 1 and all(map(math.isfinite, values)):
            axis[key] = len(values)
    return max(axis, key=lambda key: axis[key], default="")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _name(labels: Mapping[str, str]) -> str:
    return "-".join(v if k in _BARE else f"{k.rpartition('.')[2]}={v}" for k, v in labels.items())


def side_of_runs(name: str, at: float | None, cells: Sequence[Cell]) -> Side:
    """Return the side of some repeats: of those that count, else of all."""
    kept = counting(cells) or tuple(cells)
    worst = _worst([cell.validity for cell in kept])
    gates = [gate for cell in kept for gate in cell.summary.gates]
    failed = [gate for cell in cells for gate in cell.summary.failed_gates]  # of all: a death in one left out counts
    per_run = [_figures(cell) for cell in kept]
    shared = [key for key in per_run[0] if all(key in of for of in per_run)]
    limits = Counter(cell.limited_by for cell in kept)
    return Side(
        name,
        at,
        {key: tuple(of[key] for of in per_run) for key in shared},
        worst.state,
        worst.reason,
        worst.stands,
        CLIENT if CLIENT in limits else min(limits, key=lambda limit: (-limits[limit], limit)),
        {gate.gate: gate.text for gate in failed},
        tuple(sorted({gate.gate for gate in gates if gate.state == "undecided"})),
        any(not gate.built_in and gate.state != "not judged" for gate in gates),
        _margins(kept[0], per_run[0]) if len(kept) == 1 else {},
        tuple(cell.round for cell in kept),
        frozenset(name for cell in kept for name, op in cell.ops.items() if op.kind == "query"),
        tuple(cell.overload for cell in kept if cell.overload is not None),
        tuple(cell.disturbed for cell in kept if cell.disturbed),
        kept,
        tuple(cells),
    )


def counting(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the repeats that count: the valid ones, else those whose figures stand."""
    valid = [cell for cell in cells if cell.validity.is_valid] or [cell for cell in cells if cell.validity.stands]
    return tuple(valid)


def _worst(validities: Sequence[Validity]) -> Validity:
    order = ("valid", "inconclusive", "invalid")
    return max(validities, key=lambda validity: (not validity.stands, order.index(validity.state)))


def _figures(cell: Cell) -> dict[str, Bounds]:
    """Return a run's figures; a time that lies between two has both as its interval."""
    values: dict[str, Bounds] = {}
    for key in _FIGURES:
        metric = COMPARED[key]
        if metric.percentile:
            if (time := metric.latency(cell)) is not None and not time.is_open_ended:
                values[key] = Bounds(time.most_ns, time.bounds_ns[0], time.most_ns)
        elif value := metric.value(cell):
            values[key] = Bounds(value, value, value)
    if (steady := cell.summary.steadiness.get("write")) is not None and steady.variation:
        values["write_variation"] = Bounds(steady.variation, steady.variation, steady.variation)
    return values | _cpu(cell)


def _margins(cell: Cell, figures: Mapping[str, Bounds]) -> dict[str, Bounds]:
    """Return by how much the figures of a run may be chance within it, as far as its window was long enough.

    Of a time that lies between two both may be: the margin begins below the lower one.
    """
    margins = {}
    for key in _FIGURES:
        metric = COMPARED[key]
        place = metric.path if metric.percentile else metric.path.rpartition(".")[0]
        ops = part_of(cell.summary, place) if place else None
        name = metric.percentile or {"write_points_per_s": "points/s", "query_ops_per_s": "ops/s"}.get(key, "")
        if isinstance(ops, OpFigures) and name in ops.margins and (value := metric.value(cell)) is not None:
            least, most = map(float, ops.margins[name])
            below = figures[key].least / figures[key].most if key in figures else 1.0
            margins[key] = Bounds(value, least * below, most)
    return margins


def _cpu(cell: Cell) -> dict[str, Bounds]:
    """Return the CPU time of the server's processes by the work that they did; none where they were not seen."""
    measured = cell.summary.measured
    if measured is None or lacking() or not cell.run.has("server.parquet"):
        return {}
    try:  # without pandas, which `to_numpy` imports too: that takes 0.4 s at the end of every run
        table = read_table(cell.run / "server.parquet", SERVER_COLUMNS, ADDED_COLUMNS)
    except UserMistake:  # the page has the note that the file is damaged
        return {}
    of = {name: np.array(table[name].to_pylist(), dtype=float) for name in ("second", "cpu_percent", "rss_bytes")}
    used = of["cpu_percent"][cell.is_measured(of["second"]) & (of["rss_bytes"] != 0)]  # 0: no process ran
    if not used.size:
        return {}
    cpu_s = float(np.nanmean(used)) / 100 * float(measured.duration_s)
    points = measured.write.points if measured.write else 0
    ended = measured.ended
    figures = {"server_cores": cpu_s / float(measured.duration_s)}
    if points and not measured.query:
        figures["cpu_s_per_million"] = cpu_s / points * 1e6
    elif ended:
        figures["cpu_s_per_thousand"] = cpu_s / ended * 1e3
    return {key: Bounds(value, value, value) for key, value in figures.items() if value}
