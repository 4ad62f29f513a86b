"""The style of all plots: colours for colour-blind readers, axes with units, and embedding of figures in a page.

Figures are made by matplotlib's object API and under `styled`, so that a notebook's own settings do not change.
"""

from __future__ import annotations

import base64
import functools
import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    PercentFormatter,
)

from tsbench.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

INK, GRID = "#1b1c1d", "#d9dadb"
"""Text and grid; inside a page they become the page's own colours, so that plots follow light and dark."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's colours without black and yellow, which are invisible on a dark or a white page."""
BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY = PALETTE
KINDS: Mapping[str, str] = {"write": "Writes", "query": "Queries"}
"""Titles of the kinds of op."""
KIND_COLOURS: Mapping[str, str] = {"write": BLUE, "query": GREEN}
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
STRUCK = "struck out: not measured validly"
"""Legend of figures that tables strike out."""
STRUCK_LINE: Mapping[str, Any] = {"marker": "x", "markersize": 5, "markevery": 0.05, "alpha": 0.45, "label": STRUCK}
"""Marks of a line, or of a part of a line, that is struck out; its colour remains."""
_PAD_IN = 0.06
"""Margin of a figure, inches."""
_BETWEEN = 0.027
"""Room on each side of the gap between panels, as a share of a panel with its room."""
SVG_LIMIT = 12_000
"""Number of points above which a figure is a PNG: an hour of seconds as SVG makes the page slow to scroll."""

_SETTINGS: Any = {  # matplotlib's own type is a TypedDict of all keys
    "svg.fonttype": "none",
    "text.parse_math": False,  # a cell called a$b$c is a name, not a formula
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # wide, so a page's replacement fits; each further name is searched for
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.titley": 1.0,  # else matplotlib searches a position, which takes a tenth of the time
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.borderaxespad": 0.2,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Colour and dashes of one run in all plots: 28 runs are distinguishable."""

    colour: str
    dashes: Any


def lines_of(names: Sequence[str]) -> dict[str, Line]:
    """Return the line style of each name, by its position."""
    size = len(PALETTE)
    return {name: Line(PALETTE[i % size], DASHES[i // size % len(DASHES)]) for i, name in enumerate(names)}


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a plotting function so that it runs with this module's settings."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_SETTINGS):
            return function(*args, **kwargs)

    return inside


def panels(
    rows: int, columns: int, *, height: float, width: float = 11, used: int | None = None, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `width` inches and its first `used` panels, row by row; `height` is inches per row."""
    figure = Figure(figsize=(width, rows * height), layout=Grid())
    grid: NDArray[np.object_] = figure.subplots(rows, columns, squeeze=False, **options)
    axes: list[Axes] = list(grid.ravel())
    for spare in axes[used:] if used is not None else ():
        spare.set_visible(False)
    return figure, axes[:used]


class Grid(LayoutEngine):
    """Lays out panels of equal size, the figure's legend above and its note below them.

    It does what matplotlib's constrained layout does for such figures, but measures every panel once instead of twice
    and solves no equations.
    """

    _adjust_compatible = False
    _colorbar_gridspec = True

    def execute(self, fig: Figure) -> None:
        """Set the positions of the panels so that their labels fit between them."""
        panels = [axes for axes in fig.axes if axes.get_visible()]
        if not panels:
            return
        for _ in range(2 if any(axes.get_legend() for axes in panels) else 1):  # its place depends on the panel's size
            _place(fig, panels)


def _place(fig: Figure, panels: Sequence[Axes]) -> None:
    """Set the position of every panel from the room that its labels take on each side now."""
    renderer = RendererAgg(fig.bbox.width, fig.bbox.height, fig.dpi)  # type: ignore[no-untyped-call]
    width, height, pad = fig.bbox.width, fig.bbox.height, _PAD_IN * fig.dpi
    (rows, columns), places = _grid_of(panels)
    left = np.full(columns, max(_BETWEEN * width / columns, pad))
    above = np.full(rows, max(_BETWEEN * height / rows, pad))
    right, below = left.copy(), above.copy()
    left[0] = right[-1] = above[0] = below[-1] = pad
    labels = {"left": np.zeros(columns), "right": np.zeros(columns), "above": np.zeros(rows), "below": np.zeros(rows)}
    for axes, (row, column) in zip(panels, places, strict=True):
        inner, outer = axes.bbox, axes.get_tightbbox(renderer, for_layout_only=True) or axes.bbox
        labels["left"][column] = max(labels["left"][column], inner.x0 - outer.x0)
        labels["right"][column] = max(labels["right"][column], outer.x1 - inner.x1)
        labels["above"][row] = max(labels["above"][row], outer.y1 - inner.y1)
        labels["below"][row] = max(labels["below"][row], inner.y0 - outer.y0)
    left, right, above, below = (
        left + labels["left"],
        right + labels["right"],
        above + labels["above"],
        below + labels["below"],
    )
    above[0] += sum(legend.get_window_extent(renderer).height + 2 * pad for legend in fig.legends)
    for note in fig.texts:
        below[-1] += note.get_window_extent(renderer).height + 2 * pad
        note.set(y=pad / height, verticalalignment="bottom")
    wide, high = (width - left.sum() - right.sum()) / columns, (height - above.sum() - below.sum()) / rows
    for axes, (row, column) in zip(panels, places, strict=True):
        x = left[: column + 1].sum() + right[:column].sum() + column * wide
        y = height - above[: row + 1].sum() - below[:row].sum() - (row + 1) * high
        axes.set_position((x / width, y / height, wide / width, high / height))


def _grid_of(panels: Sequence[Axes]) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Return rows and columns of the grid, and those of each panel."""
    specs = [spec for axes in panels if (spec := axes.get_subplotspec())]
    return specs[0].get_gridspec().get_geometry(), [(spec.rowspan.start, spec.colspan.start) for spec in specs]


# --- axes -------------------------------------------------------------------------------------------------------------


def _short(text: str) -> str:
    return re.sub(r"(\.\d*?)0+(?= )", r"\1", text).replace(". ", " ")


_thousands = EngFormatter(sep="")


class UnitFormatter(FuncFormatter):
    """Labels of an axis that also know the unit of its figures."""

    def __init__(self, unit: str, form: Callable[[float, int | None], str]) -> None:
        super().__init__(form)
        self.unit = unit


def unit_of(axes: Axes) -> str | None:
    """Return the unit of a vertical axis: `ns`, `count`, `bytes` or `percent`; None if it has none of them."""
    form = axes.yaxis.get_major_formatter()
    return "percent" if isinstance(form, PercentFormatter) else form.unit if isinstance(form, UnitFormatter) else None


def legend(figure: Figure, axes: Sequence[Axes], *, columns: int = 8) -> None:
    """Add one legend for all panels, above them, where it covers nothing."""
    handles = handles_of(axes)
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.19 * (rows - 1))  # room for the legend, not at the panels' cost
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns)


def handles_of(axes: Sequence[Axes]) -> dict[str, Artist]:
    """Return the handles of the legend of several panels by label."""
    handles = {label: h for panel in axes for h, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    if STRUCK in handles:  # of lines of all colours
        handles.pop(STRUCK)
        handles[STRUCK] = struck_key()
    if "warm-up" in handles:
        handles["warm-up"] = handles.pop("warm-up")  # last
    return handles


def line(panel: Axes, x: Any, y: Any, *, stands: bool, **look: Any) -> None:
    """Plot a line; one whose figures are struck out is marked as such and keeps its label."""
    panel.plot(*((x, y) if stands else ([], [])), **look)
    if not stands:
        panel.plot(x, y, **{**look, **STRUCK_LINE})


def struck_key() -> Line2D:
    """Return the legend of marks and lines that are struck out."""
    return Line2D([], [], color=INK, marker="x", markersize=6, linestyle="none", label=STRUCK)


def duration_axis(axes: Axes, which: str = "y", *, most: int | None = None) -> None:
    """Set a logarithmic axis of nanoseconds, with labels in fitting units; at most `most` ticks (9, and 4 across)."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    axes.set_yscale("log") if which == "y" else axes.set_xscale("log")
    low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
    axis.set_major_locator(FixedLocator(_round_durations(low, high, most=most or (9 if which == "y" else 4))))
    axis.set_major_formatter(UnitFormatter("ns", lambda value, _: _short(format_duration(value))))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _round_durations(low: float, high: float, most: int) -> list[float]:
    """Return the ticks of a logarithmic axis: the finest steps with at most `most` of them, but two where that can be.

    matplotlib's own locator divides less than a decade linearly, and the labels of 25, 30 and 35 ms touch.
    """
    decades = [10.0**n for n in range(math.floor(math.log10(max(low, 1e-9))), math.ceil(math.log10(max(high, 1))) + 1)]
    durations: list[float] = []
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [step * decade for decade in decades for step in steps if low <= step * decade <= high]
        if (len(ticks) > most or len(steps) > 3) and len(durations) >= 2:
            break
        durations = ticks
    if len(durations) < 2:
        durations = [tick for tick in MaxNLocator(3).tick_values(low, high) if low <= tick <= high]
    return durations[:: -(-len(durations) // most) or 1]


def count_axis(axes: Axes, which: str = "y", *, ticks: int = 5) -> None:
    """Set a linear axis from zero, with labels such as 0, 50k, 100k."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    axes.set_ylim(bottom=0) if which == "y" else axes.set_xlim(left=0)
    axis.set_major_locator(MaxNLocator(ticks, min_n_ticks=3))
    form = UnitFormatter("count", lambda value, _: f"{value:g}" if abs(value) < 1e3 else _thousands(value))
    axis.set_major_formatter(form)


def size_axis(axes: Axes, which: str = "y", *, ticks: int = 5) -> None:
    """Set a linear axis of bytes from zero."""
    count_axis(axes, which, ticks=ticks)
    axis = axes.yaxis if which == "y" else axes.xaxis
    high = axes.get_ylim()[1] if which == "y" else axes.get_xlim()[1]
    if high < ticks:  # nothing was read or sent: no fractions of a byte
        axes.set_ylim(0, 1) if which == "y" else axes.set_xlim(0, 1)
        axis.set_major_locator(FixedLocator([0]))
    axis.set_major_formatter(UnitFormatter("bytes", lambda value, _: _short(format_size(value)) if value else "0"))


def time_axis(axes: Axes, seconds: Sequence[float], *, label: bool = True) -> None:
    """Set an axis of seconds since the start of the measured window, with the warm-up before it shaded."""
    first, last = min(seconds, default=0.0), max(seconds, default=1.0)
    axes.set_label(TIME)
    axes.set_xlim(min(first, 0.0), max(last, first + 1))
    if first < 0:
        axes.axvspan(first, 0, color=GREY, alpha=0.18, linewidth=0, zorder=0.5, label="warm-up")
    if label:
        axes.set_xlabel("time since the start of the measured window, s")


TIME = "time axis"
"""Label of axes over time."""


def is_over_time(axes: Axes) -> bool:
    """Return True for a panel whose horizontal axis `time_axis` set."""
    return axes.get_label() == TIME


def mark_events(figure: Figure, moments: Sequence[tuple[float, float]]) -> None:
    """Mark events, each (begin, length) in s, on every time axis of a figure: a line, and the time away shaded."""
    for axes in figure.axes:
        if is_over_time(axes):
            for at_s, away_s in moments:
                axes.axvspan(at_s, at_s + away_s, color=RED, alpha=0.15, linewidth=0, zorder=0.4)
                axes.axvline(at_s, color=RED, linewidth=1, linestyle=(0, (3, 2)), zorder=0.6)


# --- into a page ------------------------------------------------------------------------------------------------------


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a file of its own, an SVG with real text or a PNG by the path's suffix, on white."""
    _lay_out(figure)
    with mpl.rc_context(_SETTINGS | {"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=150, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)


def embed(figure: Figure, *, name: str, alt: str) -> Markup:
    """Return a figure as part of an HTML page: SVG with real text, or a PNG if SVG would be too large.

    `name` must differ between the figures of one page; `alt` describes the figure for readers who cannot see it.
    """
    points = sum(int(np.size(line.get_xdata())) for axes in figure.axes for line in axes.lines)
    buffer = io.BytesIO()
    if points > SVG_LIMIT:
        figure.savefig(buffer, format="png", dpi=150, facecolor="white", metadata={"Software": None})
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(alt, Markup(data))  # noqa: S704
    _lay_out(figure)
    with mpl.rc_context(_SETTINGS | {"svg.hashsalt": name}):  # ids are made from it: shared ones would clash
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return Markup(_page_svg(buffer.getvalue().decode("utf-8"), alt))  # noqa: S704 - matplotlib escapes all texts


def _lay_out(figure: Figure) -> None:
    """Set the places of a figure's panels once: saving would draw everything a second time for it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(72)
        engine.execute(figure)
        figure.set_layout_engine(None)


_DECIMALS = re.compile(r"(\.\d)\d+")
_WHOLE = re.compile(r"(\d)\.0(?=[ \"LMz])")
_SHORTER: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r' (?:d|x|y|transform)="[^"]*"'), lambda found: _DECIMALS.sub(r"\1", found[0])),  # a tenth of a point
    (re.compile(r" \n(?=[LzCQM])"), ""),
    (re.compile(r">\s+<"), "><"),
    (
        re.compile(r" transform=\"rotate\(-0 [^\"]*\"|font-family: 'DejaVu Sans', sans-serif; "),
        "",
    ),  # the page has its own
    (re.compile(r'<path d="[^"]*"(?: clip-path="[^"]*")? style="fill: none"/>'), ""),  # nobody sees it
    (re.compile(r"<g></g>"), ""),
    (re.compile(r"<defs><style[^>]*>[^<]*</style></defs>"), ""),
    (re.compile(r'="[^"]*"'), lambda found: _WHOLE.sub(r"\1", found[0])),  # not in texts: "28.0 ms" has three digits
    (re.compile(r' d="[ML\d. \n-]*"'), lambda found: found[0].replace(" \n", "").replace("L ", " ").replace("M ", "M")),
    (re.compile(r'style="fill: none; stroke: var\(--line\); stroke-width: 0.6; stroke-linecap: round"'), 'class="g"'),
    (re.compile(r'style="fill: var\(--line\); stroke: var\(--line\); stroke-width: 0.8"'), 'class="t"'),
)
"""What makes SVG half as long without a visible change."""


def _page_svg(text: str, alt: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<g) id="[\w.]+_\d+"', r"\1", text)  # figure_1, axes_2: the same in every figure
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{escape(alt)}"'
    body = body.replace(INK, "currentColor").replace(GRID, "var(--line)")
    for pattern, short in _SHORTER:
        body = pattern.sub(short, body)
    return f"{head}>{body}"
