"""Searches: which step to run next, and where raising a key by doublings ends, by the rule of [search].

Where a search ends follows from the figures of all runs so far, whatever their order, so that one goes on where it was
interrupted. A gain is a ratio of rates: the interval of 90 % of the ratio of two steps' runs (of their logarithms, by
Student's t with the variance of both) lies above the wanted gain, or not above it, or both steps are run once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.measure.statistics import t_quantile
from tsbench.results.summary import Searched
from tsbench.scenario.matrix import slug_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.results.summary import Summary
    from tsbench.scenario.file_keys import SearchPart
    from tsbench.scenario.spec import RunSpec

GridPoint: TypeAlias = tuple[int, ...]
"""A step: the values of all keys, in the order of the axes."""
Runs: TypeAlias = "Mapping[GridPoint, Sequence[float]]"
"""The figure of each run of a step; NaN of one that has none."""
R = TypeVar("R", "RunSpec", "Summary")
_TAIL = 0.05
_FAR = 50.0
"""Logarithm of a ratio beyond which all are the same."""


@dataclass(frozen=True, slots=True)
class End:
    """The step at which a search ends, and for each key why it was raised no further."""

    place: GridPoint
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """The factor by which one step's figure is that of another, and its interval, which has no length for two runs."""

    ratio: float
    least: float
    most: float

    @property
    def text(self) -> str:
        """The gain in percent, with its interval if it has one."""
        least, at, most = (f"{100 * (value - 1):+.0f}" for value in (self.least, self.ratio, self.most))
        return f"{at} %" + (f" ({least} to {most})" if self.least < self.most else "")


def walk(search: SearchPart, most: int, runs: Runs) -> GridPoint | End:
    """Return the step to run next, each up to `most` times, or the end of the search."""
    place: GridPoint = tuple(axis.first for axis in search.axes)
    reasons = []
    for number, axis in enumerate(search.axes):
        name = axis.key.rpartition(".")[2]
        reason = f"{name} was raised to its limit of {axis.values[-1]:,}"
        for value in axis.values[1:]:
            raised = (*place[:number], value, *place[number + 1 :])
            comparison = compared(runs.get(place, ()), runs.get(raised, ()), search.gain, most)
            if isinstance(comparison, int):
                return (place, raised)[comparison]
            if comparison is None or comparison.ratio <= 1 + search.gain:
                gained = f"gains {comparison.text}" if comparison is not None else "could not be compared"
                reason = f"{name}={value} {gained}"
                break
            place = raised
        reasons.append(reason)
    return End(place, tuple(reasons)) if runs.get(place) else place


def compared(here: Sequence[float], there: Sequence[float], gain: float, most: int) -> Gain | int | None:
    """Return how the figure grows from one step's runs to another's; or which of the two has to be run (again): 0 or 1.

    None if one of them has no figure, as often as it may be run.
    """
    sides = (here, there)
    fewer = int(len(there) < len(here))
    if len(sides[fewer]) < min(2, most):
        return fewer
    good = [[math.log(value) for value in side if value > 0] for side in sides]
    for side in (0, 1):
        if not good[side]:
            return side if len(sides[side]) < most else None
    verdict, limit = _gain(*good), 1 + gain
    is_sure = verdict.least > limit or verdict.most <= limit
    return verdict if is_sure or len(sides[fewer]) >= most else fewer


def _gain(here: Sequence[float], there: Sequence[float]) -> Gain:
    """Return the ratio of two steps by the logarithms of their figures."""
    difference, freedom = float(np.mean(there) - np.mean(here)), len(here) + len(there) - 2
    reach = 0.0
    if freedom > 0:
        variance = (np.var(here) * len(here) + np.var(there) * len(there)) / freedom
        reach = t_quantile(_TAIL, freedom) * math.sqrt(variance * (1 / len(here) + 1 / len(there)))
    ratio, least, above = (math.exp(max(-_FAR, min(_FAR, difference + by))) for by in (0.0, -reach, reach))
    return Gain(ratio, least, above)


# --- in a campaign ----------------------------------------------------------------------------------------------------


def grouped(search: SearchPart, cells: Sequence[RunSpec]) -> dict[str, dict[GridPoint, list[RunSpec]]]:
    """Return the runs of each search by its name, and by step in their order, which is that of their rounds.

    Raises
    ------
    UserMistake
        If a search lacks steps, of which nobody knows before whether it needs them.
    """
    by_target = _by_step(search, cells, lambda cell: cell.target.name)
    steps = math.prod(len(axis.values) for axis in search.axes)
    if lacking := next((name for name, of in by_target.items() if len(of) < steps), None):
        raise UserMistake(f"--only: a search chooses its steps itself; name the whole search {lacking}")
    return by_target


def in_turn(search: SearchPart, most: int, cells: Sequence[RunSpec], summaries: Sequence[Summary]) -> Iterator[RunSpec]:
    """Yield the runs that the searches want, by the `summaries`, which grow meanwhile."""
    for name, steps in grouped(search, cells).items():
        while True:
            ran = _by_step(search, summaries, lambda one: one.target).get(name, {})
            wanted = walk(search, most, _figures(search, ran))
            if isinstance(wanted, End):
                break
            yield steps[wanted][len(ran.get(wanted, ()))]


def most_runs(search: SearchPart, searches: int, most: int) -> int:
    """Return the largest number of runs of some searches, whose steps are run up to `most` times."""
    return searches * most * (1 + sum(len(axis.values) - 1 for axis in search.axes))


def searched(search: SearchPart, most: int, summaries: Sequence[Summary]) -> list[Searched]:
    """Return where each search ended; those that have not are left out."""
    results = []
    for name, ran in _by_step(search, summaries, lambda one: one.target).items():
        figures = _figures(search, ran)
        if isinstance(end := walk(search, most, figures), End):
            values = [value for value in figures[end.place] if value > 0]
            middle = float(np.median(values)) if values else None
            text = gates.figure_text(search.figure, middle) if middle is not None else "without a figure"
            keys = dict(zip(search.values, end.place, strict=True))
            results.append(
                Searched(
                    name=name,
                    keys=keys,
                    cells=tuple(one.cell for one in ran[end.place]),
                    text=text,
                    figure=middle,
                    reasons=end.reasons,
                    of=search.figure,
                )
            )
    return results


def _figures(search: SearchPart, ran: Mapping[GridPoint, Sequence[Summary]]) -> dict[GridPoint, list[float]]:
    """Return the figure of each run by step."""
    return {place: [_figure(search, one) for one in of] for place, of in ran.items()}


def _figure(search: SearchPart, summary: Summary) -> float:
    ends, _ = gates.believed_figure(search.figure, summary)
    return ends[0] if ends is not None and ends[0] == ends[1] else math.nan


def _by_step(
    search: SearchPart, runs: Sequence[R], target_of: Callable[[R], str]
) -> dict[str, dict[GridPoint, list[R]]]:
    """Return runs in their order by the name of their search and by step."""
    cells_of: dict[str, dict[GridPoint, list[R]]] = {}
    for run in runs:
        own = {key: text for key, text in run.labels.items() if key not in {*search.values, "round"}}
        name, place = slug_of(own, {"name": target_of(run)}), tuple(int(run.labels[axis.key]) for axis in search.axes)
        cells_of.setdefault(name, {}).setdefault(place, []).append(run)
    return cells_of
