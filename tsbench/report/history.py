"""A history of result sets: the figures of each side over the dates, and where their level changed.

The page has charts that zoom; its files of figures are read by Apache Otava, which searches for changes in its own way.
"""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.measure.statistics import ALPHA, change_points, least_history
from tsbench.report import charts, style
from tsbench.report.cells import by_cell, load_cells
from tsbench.report.comparison import MORE_IS_BETTER, column_of, differing, is_believable, side_of, with_stand_ins
from tsbench.report.export import plain_name, writing_into
from tsbench.report.html import page
from tsbench.report.style import BLUE, INK, RED, styled
from tsbench.results.rundir import sets_in
from tsbench.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell
    from tsbench.report.sides import Side

MOST_SETS = 400
_MOST_LISTED = 4


@dataclass(frozen=True, slots=True)
class Point:
    """A figure of a side in a set: the median of its runs, in the unit of gates; it counts if it `stands`."""

    results: str
    time_s: float
    value: float
    stands: bool
    cell: Cell


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """The history of a figure of a side, in order of time; `counted` are the points that stand.

    `changes` are the places of the first points of new levels in `counted`, and `levels` the median of each level.
    """

    side: str
    figure: str
    points: tuple[Point, ...]
    counted: tuple[Point, ...]
    changes: tuple[int, ...]

    @property
    def levels(self) -> list[float]:
        """The median of each level."""
        edges = [0, *self.changes, len(self.counted)]
        return [median(p.value for p in self.counted[a:b]) for a, b in itertools.pairwise(edges) if a < b]

    def sentences(self) -> Iterator[str]:
        """Yield each change: since which set, by how much, and what else differs since then."""
        levels = self.levels
        for number, at in enumerate(self.changes):
            ratio = levels[number + 1] / levels[number]
            word = "better" if (ratio > 1) is self.more_is_better else "worse"
            texts = " -> ".join(gates.figure_text(self.figure, level) for level in levels[number : number + 2])
            before, after = self.counted[at - 1], self.counted[at]
            yield (
                f"{self.side}: {self.figure} is {word} since {after.results}: {texts} ({ratio - 1:+.1%}); "
                f"{_differences(differing(before.cell, after.cell))}"
            )

    @property
    def more_is_better(self) -> bool:
        """True for rates."""
        return gates.parse_figure(self.figure).figure in MORE_IS_BETTER

    @property
    def column(self) -> str:
        """The name of its figure with the unit, as files of exports have it."""
        return column_of(self.figure)


@dataclass(frozen=True, slots=True)
class History:
    """The lines of all sides; `differing` has what differs between the runs of each set and those before, by set."""

    sets: tuple[tuple[str, float], ...]
    lines: tuple[HistoryLine, ...]
    differing: tuple[tuple[str, float, str], ...]
    damaged: tuple[str, ...]

    @property
    def alpha(self) -> float:
        """Probability with which a line without a change has one marked."""
        return ALPHA / max(1, len(self.lines))

    def sentences(self) -> list[str]:
        """Return what changed, or that nothing did, and how sure that is."""
        texts = [text for line in self.lines for text in line.sentences()]
        least = least_history(self.alpha)
        most = max((len(line.counted) for line in self.lines), default=0)
        if most < least:
            return [f"too few sets to search {len(self.lines)} figures for changes: {most} of at least {least}"]
        sure = f"if nothing changes, at most {ALPHA:.0%} of such pages have a change marked"
        what = f"{len(texts)} change{'s' if len(texts) != 1 else ''}" if texts else "no change"
        return [*texts, f"{what} found in {len(self.lines)} figures of {len(self.sets)} sets; {sure}"]


def _differences(differences: dict[str, tuple[str, str]]) -> str:
    if not differences:
        return "nothing that is recorded differs"
    texts = [f"{key}: {before} | {after}" for key, (before, after) in differences.items()]
    more = f" and {len(texts) - _MOST_LISTED} more" if texts[_MOST_LISTED:] else ""
    return f"differs: {', '.join(texts[:_MOST_LISTED])}{more}"


# --- reading ----------------------------------------------------------------------------------------------------------


def read_history(places: Sequence[Path], figures: Sequence[str]) -> History:
    """Return the history of result sets, and of those in directories of result sets.

    Raises
    ------
    UserMistake
        If no set can be read, or there are more than MOST_SETS.
    """
    paths = list({path.resolve(): path for place in places for path in sets_in(place)}.values())
    if len(paths) > MOST_SETS:
        raise UserMistake(f"{len(paths)} result sets are more than {MOST_SETS}; give the newest ones")
    damaged: list[str] = []
    dated: list[tuple[float, str, str, Side]] = []
    for path in paths:
        try:
            cells = load_cells(path)
            time_s = min(_time_s(cell) for cell in cells if cell.summary.started)
        except UserMistake as mistake:
            damaged.append(str(mistake))
        except ValueError:
            damaged.append(f"{path} has no run that says when it started; its figures are left out")
        else:
            damaged += [note for cell in cells for note in cell.notes]
            dated += [(time_s, path.resolve().name, name, side_of(name, of)) for name, of in by_cell(cells).items()]
    if not dated:
        raise UserMistake(damaged[0])
    return _history(sorted(dated, key=lambda one: one[:3]), figures, damaged)


def _time_s(cell: Cell) -> float:
    return datetime.fromisoformat(cell.summary.started or "").timestamp()


def _history(dated: Sequence[tuple[float, str, str, Side]], figures: Sequence[str], damaged: list[str]) -> History:
    scenarios = {side.cells[0].summary.scenario for *_, side in dated}
    points: dict[tuple[str, str], list[Point]] = {}
    last: dict[str, Cell] = {}
    changed: dict[tuple[str, float], dict[str, tuple[str, str]]] = {}
    cells: dict[str, list[Cell]] = {}
    for *_, name, side in dated:
        cells.setdefault(name, []).extend(side.runs)
    chosen = {name: with_stand_ins(figures, of_name) for name, of_name in cells.items()}
    for time_s, results, name, side in dated:
        cell = (side.runs or side.cells)[0]
        of = f"{cell.summary.scenario}: {name}" if len(scenarios) > 1 else name
        if (before := last.get(of)) is not None:
            changed.setdefault((results, time_s), {}).update(differing(before, cell))
        last[of] = cell
        for figure in chosen[name]:
            values = [value for one in side.runs or side.cells if (value := _value(figure, one))]
            if values:
                stands = bool(side.runs) and all(_counts(figure, one) for one in side.runs)
                points.setdefault((of, figure), []).append(Point(results, time_s, median(values), stands, cell))
    counted = {key: tuple(point for point in of if point.stands) for key, of in points.items()}
    alpha = ALPHA / max(1, len(points))
    lines = [
        HistoryLine(*key, tuple(of), counted[key], tuple(change_points([one.value for one in counted[key]], alpha)))
        for key, of in sorted(points.items(), key=lambda one: one[0][0])
    ]
    texts = [(*of, _differences(entries)) for of, entries in changed.items() if entries]
    sets = dict.fromkeys((results, time_s) for time_s, results, *_ in dated)
    return History(tuple(sets), tuple(lines), tuple(texts), tuple(damaged))


def _value(figure: str, cell: Cell) -> float | None:
    value = gates.figure_of(figure, cell.summary)[0]
    return value if value and value > 0 and is_believable(figure, cell) else None


def _counts(figure: str, cell: Cell) -> bool:
    """Return True if a run's figure is the database's: no rate of the load generator, no time of a queue that grew."""
    gate = gates.parse_figure(figure)
    if gate.is_latency and cell.overload is not None:
        return False
    return cell.validity.stands and not gates.is_held_back(gate, cell.summary)


# --- the page ---------------------------------------------------------------------------------------------------------


@styled
def draw(lines: Sequence[HistoryLine]) -> Figure:
    """Plot figures over the dates, a panel each: levels dashed, changes as diamonds, what does not count as x."""
    columns = min(3, len(lines))
    rows = -(-len(lines) // columns)
    figure, panels = style.panels(rows, columns, height=2.3, width=3.7 * columns, used=len(lines))
    for axes, line in zip(panels, lines, strict=True):
        times = [point.time_s for point in line.counted]
        values = [point.value for point in line.counted]
        axes.plot(times, values, color=BLUE, marker="o", markersize=3, linewidth=1, label=line.figure)
        if line.changes:
            edges = [0, *line.changes, len(values)]
            held = np.repeat(line.levels, np.diff(edges))
            axes.plot(times, held, color=RED, linestyle=(0, (5, 1.5)), linewidth=1.2, label="level")
            _marks(axes, [line.counted[at] for at in line.changes], "change", RED, "D")
        _marks(axes, [point for point in line.points if not point.stands], "does not count", INK, "x")
        axes.set_title(f"{line.figure}, {'more' if line.more_is_better else 'less'} is better")
        unit = "ns" if gates.parse_figure(line.figure).is_latency else "count"
        form = format_duration if unit == "ns" else format_count
        axes.yaxis.set_major_formatter(style.UnitFormatter(unit, partial(_printed, form)))
        axes.set_label(style.TIME)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d}"))
    style.legend(figure, panels)
    return figure


def _printed(form: Callable[[float], str], value: float, _: int | None) -> str:
    return form(value)


def _marks(axes: Axes, points: Sequence[Point], label: str, colour: str, marker: str) -> None:
    at: list[Any] = [[point.time_s for point in points], [point.value for point in points]]
    if points:
        axes.plot(*at, color=colour, marker=marker, markersize=6, linestyle="none", label=label)


def write_history(history: History, place: Path) -> Path:
    """Write the page and the files for Apache Otava into a directory, and return the page.

    Raises
    ------
    Broken
        If a file cannot be written.
    """
    sides: dict[str, list[HistoryLine]] = {}
    for line in history.lines:
        sides.setdefault(line.side, []).append(line)
    bands = _bands(history)
    drawn = {side: draw(lines) for side, lines in sides.items()}
    dates = [f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M}" for _, time_s in history.sets]
    context = {
        "title": "history",
        "sets": list(zip((name for name, _ in history.sets), dates, strict=True)),
        "answer": history.sentences(),
        "sides": [
            {
                "name": side,
                "anchor": f"side-{number}",
                "lines": lines,
                "table": [(line.figure, len(line.counted), len(line.points), _levels(line)) for line in lines],
                "charts": charts.over_dates(drawn[side], bands),
                "still": style.embed(drawn[side], name=f"side-{number}", alt=f"Figures of {side} over dates"),
            }
            for number, (side, lines) in enumerate(sides.items(), 1)
        ],
        "differing": [(name, text) for name, _, text in history.differing],
        "damaged": history.damaged,
    }
    with writing_into(place) as beside:
        _write_otava(history, beside)
        (beside / "history.html").write_bytes(page("history.html.j2", context).encode())
    return place / "history.html"


def _levels(line: HistoryLine) -> list[tuple[str, str]]:
    """Return each level of a line with the set since which it holds."""
    since = [line.counted[at].results for at in (0, *line.changes)] if line.counted else []
    return [(gates.figure_text(line.figure, level), name) for level, name in zip(line.levels, since, strict=True)]


def _bands(history: History) -> list[tuple[float, float, str]]:
    """Return the times between sets whose machine, versions or scenario differ."""
    times = sorted(time_s for _, time_s in history.sets)
    before = dict(zip(times[1:], times, strict=False))
    return [(before[time_s], time_s, "differs") for _, time_s, _ in history.differing if time_s in before]


def _write_otava(history: History, place: Path) -> None:
    """Write a CSV file per line, with the points that count, and a configuration in which each of them is a test."""
    tests = {}
    for line in (line for line in history.lines if line.counted):
        name = plain_name(f"{line.side}.{line.column}")
        with (place / f"{name}.csv").open("w", encoding="utf-8", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["time", "set", "version", line.column])
            for point in line.counted:
                version = point.cell.manifest.tsbench if point.cell.manifest else {}
                moment = datetime.fromtimestamp(point.time_s, UTC).isoformat(timespec="seconds")
                rows.writerow([moment, point.results, version.get("git") or version.get("version", ""), point.value])
        metrics = {line.column: {"column": line.column, "direction": 1 if line.more_is_better else -1, "scale": 1}}
        options = {"type": "csv", "file": f"{name}.csv", "time_column": "time", "attributes": ["set", "version"]}
        tests[name] = {**options, "metrics": metrics}
    first = f"{datetime.fromtimestamp(history.sets[0][1], UTC):%Y-%m-%d}"  # it looks at the last year without
    text = json.dumps({"tests": tests}, indent=1)  # JSON is YAML
    (place / "otava.yaml").write_text(
        f"# OTAVA_CONFIG=otava.yaml otava analyze NAME --since {first}\n{text}\n", encoding="utf-8"
    )
