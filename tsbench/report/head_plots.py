"""The charts at the head of a page: a panel per figure, each narrow enough for a telephone.

Without a numeric axis a panel has a row per side; with one it has a line per side over the axis. Repeats are one mark
with the interval of their median.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tsbench.measure.gates import parse_gate
from tsbench.measure.statistics import median_interval
from tsbench.report import style
from tsbench.report.drawings import every
from tsbench.report.findings import middle, three_digits
from tsbench.report.head import time_of
from tsbench.report.style import BLUE, INK, ORANGE, styled
from tsbench.text import shortened
from tsbench.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tsbench.report.drawings import Wanted
    from tsbench.report.sides import Side, Sides

_WIDTH = 4.2
_PALE = 0.35
_MANY = 7
_LINE = 0.17
"""Height of a line of a legend."""
_ROOM = 1.3  # length of an axis of bars relative to the longest one, for its figure


@dataclass(frozen=True, slots=True)
class HeadPanel:
    """A figure of a panel: its name in sides, its title, how it is printed; times have a second figure, the median."""

    key: str
    title: str
    form: Callable[[float], str]
    better: str = "lower"
    median: str = ""
    gate: str = ""


PANELS: tuple[HeadPanel, ...] = (
    HeadPanel("write_points_per_s", "Written, points/s", format_count, "higher"),
    HeadPanel("write_p99_ns", "Write time: median and p99", format_duration, median="write_p50_ns", gate="write"),
    HeadPanel("query_ops_per_s", "Queries per second", format_count, "higher"),
    HeadPanel("query_p99_ns", "Query time: median and p99", format_duration, median="query_p50_ns", gate="query"),
    HeadPanel("bytes_per_point", "Size, bytes per point", three_digits),
    HeadPanel("cpu_s_per_million", "Server's CPU, seconds per million points", three_digits),
    HeadPanel("cpu_s_per_thousand", "Server's CPU, seconds per 1,000 ops", three_digits),
)
"""Panels in their order; a figure that no side has gets none."""
OVER_AXIS: tuple[HeadPanel, ...] = (
    HeadPanel("write_p99_ns", "Write p99", format_duration, gate="write"),
    HeadPanel("query_p99_ns", "Query p99", format_duration, gate="query"),
    HeadPanel("write_points_per_s", "Written, points/s", format_count, "higher"),
    HeadPanel("query_ops_per_s", "Queries per second", format_count, "higher"),
    HeadPanel("server_cores", "Server's CPU, cores", three_digits),
)
"""Panels over a numeric axis, such as the offered load."""
OVER_LOAD = (HeadPanel("load_points_per_s", "Stored by the load, points/s", format_count, "higher"),)
"""Panels over an axis of the load before the measurement, of which nothing else is known to depend."""


def draw(sides: Sides, ends: Collection[str] = (), wanted: Wanted = every) -> Iterator[tuple[Figure, str, str]]:
    """Yield each wanted figure with its name and a description; none for a single side.

    Runs in `ends` are a search's end.
    """
    if len(sides.sides) < 2:
        return
    over = OVER_LOAD if sides.axis.startswith("load.") else OVER_AXIS
    for panel in over if sides.axis else (_of_times(panel, sides.sides) for panel in PANELS):
        known = any(panel.key in side.figures or panel.median in side.figures for side in sides.sides)
        if known and wanted(name := f"head-{panel.key}"):
            figure = _over(sides, panel, ends) if sides.axis else _rows(sides.sides, panel)
            yield figure, name, f"{panel.title} of every side, {panel.better} is better"


def _of_times(panel: HeadPanel, sides: Sequence[Side]) -> HeadPanel:
    """Return the panel of the means in place of one whose percentiles most sides have too few ops for."""
    if not panel.gate:
        return panel
    what, mean = f"{panel.gate.capitalize()} time", f"{panel.gate}_mean_ns"
    if time_of(sides, panel.gate) == mean:
        return replace(panel, key=mean, median=mean, title=f"{what}, mean")
    return panel if any(panel.key in side.figures for side in sides) else replace(panel, title=f"{what}: median")


@styled
def _rows(sides: Sequence[Side], panel: HeadPanel) -> Figure:
    """Plot a row per side: its name above a bar from zero, or above a line from the median time to the p99."""
    figure, (axes,) = style.panels(1, 1, width=_WIDTH, height=0.75 + 0.37 * len(sides))
    highest = max((end for side in sides for end in _ends(side, panel.key)), default=1.0)
    for place, side in enumerate(sides):
        look: dict[str, Any] = {"color": BLUE, "alpha": 1 if side.stands else _PALE}
        name = side.name if side.stands else f"{side.name} ({side.validity})"
        at: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "bottom", "fontsize": 8.5, "color": INK}
        axes.annotate(shortened(name, 46), (0.0, place - 0.12), **at)
        if panel.median:
            _time(axes, side, place, panel, look)
        elif panel.key in side.figures:
            value = middle(panel.key, side).estimate
            axes.barh([place + 0.06], [value], height=0.3, hatch="" if side.stands else "////", **look)
            _interval(axes, side, panel.key, place + 0.06)
            _text(axes, side, panel, place)
        else:
            axes.annotate("none", (0.0, place + 0.06), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_ylim(len(sides) - 0.6, -0.65)
    axes.set(yticks=[], title=panel.title, xlabel=f"{panel.better} is better")
    axes.spines["left"].set_visible(False)
    if panel.median:
        low, high = axes.get_xlim()
        axes.set_xlim(low * 0.8, high * (high / low) ** 0.2)
        style.duration_axis(axes, "x")
    else:
        style.count_axis(axes, "x", ticks=4)
        axes.set_xlim(0, highest * _ROOM or 1)
    return figure


def _time(axes: Axes, side: Side, place: int, panel: HeadPanel, look: dict[str, Any]) -> None:
    """Draw the median time as a circle and the p99 as a diamond, on a line between them."""
    middles = [middle(key, side).estimate for key in (panel.median, panel.key) if key in side.figures]
    axes.set_xscale("log")
    axes.plot([middles[0], middles[-1]] if middles else [], [place + 0.06] * (2 if middles else 0), linewidth=2, **look)
    for key, marker in {panel.median: "o", panel.key: "D"}.items():
        if key in side.figures:
            value = middle(key, side).estimate
            axes.plot([value], [place + 0.06], marker=marker if side.stands else "x", markersize=6, **look)
            _interval(axes, side, key, place + 0.06)
    if middles:
        _text(axes, side, panel, place)


def _text(axes: Axes, side: Side, panel: HeadPanel, place: int) -> None:
    """Write a figure beside its mark; the median, and that it is one, where the run was too short for a p99."""
    key, which = (panel.key, "") if panel.key in side.figures else (panel.median, " (median)")
    text, at = f"{panel.form(middle(key, side).estimate)}{which}", (max(_ends(side, key)), place + 0.06)
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5, "color": INK}
    axes.annotate(text, at, xytext=(7 if panel.median else 4, 0), **look)


def _ends(side: Side, key: str) -> tuple[float, float]:
    """Return the interval of a side's figure: that of the median of its repeats, else the figure twice."""
    if key not in side.figures:
        return 0.0, 0.0
    value = middle(key, side)
    interval = median_interval([one.estimate for one in side.figures[key]])
    return (interval.least, interval.most) if interval else (value.least, value.most)


def _interval(axes: Axes, side: Side, key: str, place: float) -> None:
    """Draw the interval of a figure as a line with ends, if it has one."""
    least, most = _ends(side, key)
    if least < most:
        axes.plot([least, most], [place, place], color=INK, linewidth=1.2, marker="|", markersize=7, zorder=4)


# --- over a numeric axis ----------------------------------------------------------------------------------------------


@styled
def _over(sides: Sides, panel: HeadPanel, ends: Collection[str]) -> Figure:
    """Plot a line per side over the axis; a gate is a line, a cross where a side breaks, a ring where a search ends."""
    names = list(dict.fromkeys(side.name for side in sides.sides))
    columns = 3 if len(names) < _MANY else 2  # many have long names
    rows = -(-len(names) // columns)
    figure, (axes,) = style.panels(1, 1, width=_WIDTH, height=2.7 + _LINE * max(0, rows - 2))
    for name, line in style.lines_of(names).items():
        of = sorted((s for s in sides.sides if s.name == name and panel.key in s.figures), key=lambda s: s.at or 0.0)
        values = [middle(panel.key, side).estimate for side in of]
        look: dict[str, Any] = {"color": line.colour, "linestyle": line.dashes}
        axes.plot([side.at or 0.0 for side in of], values, label=name, **look)
        for side, value in zip(of, values, strict=True):
            passed = side.passed or (side.stands and not side.failed)
            mark = {"marker": "o" if passed else "X", "markersize": 5 if passed else 8}
            axes.plot([side.at], [value], color=line.colour, alpha=1 if side.stands else _PALE, **mark)  # type: ignore[arg-type]
            if any(cell.name in ends for cell in side.cells):
                axes.plot([side.at], [value], marker="o", markersize=13, fillstyle="none", color=INK, clip_on=False)  # type: ignore[arg-type]
            least, most = _ends(side, panel.key)
            if least < most:
                axes.plot(
                    [side.at or 0.0] * 2, [least, most], color=line.colour, linewidth=1.4, marker="_", markersize=7
                )
    if panel.form is format_duration:
        _gates(axes, sides, panel)
        style.duration_axis(axes, most=6)
    else:
        style.count_axis(axes)
    _axis_of(axes, sorted({side.at for side in sides.sides if side.at is not None}), sides.axis)
    axes.set_title(panel.title)
    marked = {"broke": any(side.failed for side in sides.sides), "not valid": any(not s.stands for s in sides.sides)}
    if any(marked.values()):
        label = " or ".join(word for word, seen in marked.items() if seen)
        axes.plot([], [], color=INK, marker="X", markersize=7, linestyle="none", label=label)
    if ends:
        axes.plot(
            [], [], color=INK, marker="o", markersize=9, fillstyle="none", linestyle="none", label="end of search"
        )
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=columns, fontsize=8)
    return figure


def _gates(axes: Axes, sides: Sides, panel: HeadPanel) -> None:
    """Draw the limits of the gates on this figure."""
    texts = dict.fromkeys(gate.gate for side in sides.sides for cell in side.cells for gate in cell.summary.gates)
    for text in sorted(texts):
        try:
            gate = parse_gate(text)
        except ValueError:  # a built-in one
            continue
        if gate.of in {panel.gate, None} and gate.figure == "p99":
            axes.axhline(gate.limit, color=ORANGE, linewidth=1.2, linestyle=(0, (4, 2)), label=text)


def _axis_of(axes: Axes, loads: Sequence[float], key: str) -> None:
    """Set the horizontal axis with a tick per load: logarithmic if the loads differ by more than a factor of 6."""
    if loads[0] > 0 and loads[-1] > 6 * loads[0]:
        axes.set_xscale("log")
    step = -(-len(loads) // 6)
    axes.xaxis.set_major_locator(FixedLocator(list(loads[::-1][::step])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel({"drive.rate": "offered load, ops/s", "drive.users": "users"}.get(key, key))
