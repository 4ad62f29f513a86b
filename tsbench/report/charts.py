"""Charts of a run, or of a history, that can be hovered and zoomed, as plain data for static/charts.js.

Lines are those of matplotlib's figures, so that both show the same; the heat maps of latency come from the logs of
histograms. uPlot draws them; it is carried along unmodified, so that a page needs no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from matplotlib.colors import to_hex

from tsbench.measure.hist import Histogram, lowest_of, scan_log
from tsbench.report import frames, style
from tsbench.report.style import INK, KIND_COLOURS, KINDS
from tsbench.results.reading import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from tsbench.report.cells import Cell

MOST_POINTS = 720
"""Maximum number of points of a line; of longer runs each point stands for several seconds."""
STEPS = 10
"""Rows of a heat map per power of ten of the latency."""
_PIXELS = 1.3  # width of a line for one of 1 pt


def scripts() -> tuple[Markup, ...]:
    """Return the scripts of a page with charts: uPlot, and our own, which draws with it."""
    return tuple(Markup(_text(name)) for name in ("uPlot.iife.min.js", "charts.js"))  # noqa: S704 - our own files


def styles() -> Markup:
    """Return the style sheet of the library."""
    return Markup(_text("uPlot.min.css"))  # noqa: S704


def policy(of: Sequence[str]) -> str:
    """Return a content security policy under which a browser runs these scripts, and no other, and loads nothing."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in of)
    allowed = " ".join(f"'sha256-{hashes_all}'" for hashes_all in hashes)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


@cache
def _text(name: str) -> str:
    return (files("tsbench.report") / "static" / name).read_text(encoding="utf-8")


def embedded(cell: Cell, figures: Iterable[Figure]) -> Markup | None:
    """Return the charts of a run as JSON for a script element; None if it has none."""
    xs: list[list[float]] = []
    by_figure = [[chart for axes in figure.axes if (chart := _chart(axes, xs))] for figure in figures]
    by_figure[1:1] = [_heat_maps(cell, xs)]  # behind the rates
    panels = [chart for of in by_figure for chart in of]
    if not panels:
        return None
    first, last = min(x[0] for x in xs), max(x[-1] for x in xs)
    warmup_s = cell.summary.measured.window.warmup_s if cell.summary.measured else -first
    span = [max(first, -warmup_s), last]  # counters begin before the load
    return _script({"span": span, "xs": xs, "bands": _bands(cell, span), "panels": panels})


def over_dates(figure: Figure, bands: Sequence[tuple[float, float, str]]) -> Markup | None:
    """Return the charts of a figure over dates, in s since 1970, with shaded times; None if it has none."""
    xs: list[list[float]] = []
    panels = [chart for axes in figure.axes if (chart := _chart(axes, xs))]
    if not panels:
        return None
    first, last = min(x[0] for x in xs), max(x[-1] for x in xs)
    room = max(0.02 * (last - first), 3600.0)
    span = [first - room, last + room]
    return _script({"dates": True, "span": span, "xs": xs, "bands": bands, "panels": panels})


def _script(run: Mapping[str, Any]) -> Markup:
    """Return JSON for a script element: names come from scenarios and servers, and must not end the element."""
    text = json.dumps(run, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704


def _bands(cell: Cell, span: Sequence[float]) -> list[tuple[float, float, str]]:
    """Return the shaded times: warm-up, stalls of rates, and events."""
    bands = [(span[0], 0.0, "warm-up")] if span[0] < 0 else []
    for steady in cell.summary.steadiness.values():
        bands += [(float(one.start_s), float(one.start_s + one.length_s), "stall") for one in steady.stalls]
    return [*bands, *((one.at_s, one.at_s + (one.away_s or 0.0), "event") for one in cell.summary.events)]


# --- lines of a figure ------------------------------------------------------------------------------------------------


def _chart(axes: Axes, xs: list[list[float]]) -> dict[str, Any] | None:
    """Return the lines of a panel on the time axis; None of another one, or without lines."""
    unit = style.unit_of(axes)
    if not style.is_over_time(axes) or unit is None:
        return None
    lines: list[dict[str, Any]] = []
    label = ""
    for line in axes.lines:
        drawn = line.get_label() != style.STRUCK
        label = str(line.get_label()) if drawn else label  # of a struck line its empty one before it has the name
        label = axes.get_ylabel() if label.startswith("_child") else label  # matplotlib's name of a line without one
        if np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any():
            lines.append(_line(line, label if drawn else f"{label} (struck out)", xs, highest=unit == "ns"))
    title = axes.get_title(loc="left")
    return {"title": title, "unit": unit, "log": axes.get_yscale() == "log", "lines": lines} if lines else None


def _line(line: Line2D, label: str, xs: list[list[float]], *, highest: bool) -> dict[str, Any]:
    x, y = (np.asarray(data, dtype=float) for data in (line.get_xdata(), line.get_ydata()))
    order = np.argsort(x, kind="stable")
    fields = {"label": label.removeprefix("_"), "width": round(float(line.get_linewidth()) * _PIXELS, 1)}
    colour = to_hex(line.get_color())
    fields |= {"colour": "" if colour == INK else colour} | _dashes(line)
    seconds, values = _thinned(x[order], y[order], highest=highest)
    return fields | {"x": _place(xs, seconds), "y": [_short(value) for value in values]}


def _dashes(line: Line2D) -> dict[str, Any]:
    if line.get_linestyle() == "None":
        return {"points": True}
    is_plain = line.get_linestyle() == "-" and line.get_label() != style.STRUCK
    return {} if is_plain else {"dash": [2, 4] if line.get_label() == style.STRUCK else [5, 4]}


def _thinned(
    x: NDArray[np.float64], y: NDArray[np.float64], *, highest: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most MOST_POINTS points: of several their highest latency, or the mean of other figures."""
    every = -(-len(x) // MOST_POINTS)
    if every < 2:
        return x, y
    starts = np.arange(0, len(x), every)
    if highest:
        return x[starts], np.fmax.reduceat(y, starts)
    known = np.add.reduceat(~np.isnan(y), starts)
    return x[starts], np.add.reduceat(np.nan_to_num(y), starts) / np.where(known, known, np.nan)


def _place(xs: list[list[float]], seconds: NDArray[np.float64]) -> int:
    """Return the place of these times among those of a run, which several lines share."""
    places = [int(at) if at == int(at) else round(at, 2) for at in seconds.tolist()]
    if places not in xs:
        xs.append(places)
    return xs.index(places)


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short


# --- heat maps --------------------------------------------------------------------------------------------------------


def by_second(cell: Cell) -> Mapping[str, NDArray[np.int64]]:
    """Return ops by second of the run (warm-up first) and step of their time, of each kind; {} without a window.

    A step is a tenth of a power of ten; the first begins at 1 ns.
    """
    window, measured = cell.window, cell.summary.measured
    if window is None or measured is None:
        return {}
    first = -math.floor(measured.window.warmup_s)
    length = math.floor(window[1] - window[0]) - first
    counters = np.arange(Histogram().counts.size)
    steps = np.floor(STEPS * np.log10(np.maximum(lowest_of(counters), 1)) + 1e-9).astype(np.int64)
    rows: dict[str, NDArray[np.int64]] = {}
    for path in files_of(cell.run / "latency", "*.hlog"):
        for line in scan_log(path):
            op, _, time = line.tag.rpartition("|")
            second = round(line.start_s - window[0]) - first
            if time == cell.time and 0 <= second < length:
                seen = line.decode()
                grid = rows.setdefault(frames.kind_of(cell, op), np.zeros((length, steps[-1] + 1), dtype=np.int64))
                np.add.at(grid[second], steps[seen.index], seen.count)
    return rows


def _heat_maps(cell: Cell, xs: list[list[float]]) -> list[dict[str, Any]]:
    """Return the heat maps of latency of writes and queries; none if a log is damaged, which the page says."""
    try:
        rows = by_second(cell)
    except (ValueError, OSError):
        return []
    maps = []
    for kind, grid in sorted(rows.items(), reverse=True):
        every = -(-len(grid) // MOST_POINTS)
        summed = np.add.reduceat(grid, np.arange(0, len(grid), every), axis=0)
        used = np.flatnonzero(summed.any(axis=0))
        if not used.size:
            continue
        first = -math.floor(cell.summary.measured.window.warmup_s) if cell.summary.measured else 0
        seconds = np.arange(first, first + len(grid), every, dtype=float)
        chart = {"title": f"{KINDS[kind]}: ops by {cell.time} time", "colour": KIND_COLOURS[kind], "steps": STEPS}
        chart |= {"x": _place(xs, seconds), "every": every, "least": int(used[0]), "most": int(used[-1])}
        maps.append(chart | {"counts": [_column(row) for row in summed]})
    return maps


def _column(counts: NDArray[np.int64]) -> tuple[int, list[int]]:
    """Return the first used step of a second, and the counts from it on."""
    used = np.flatnonzero(counts)
    return (int(used[0]), counts[used[0] : used[-1] + 1].tolist()) if used.size else (0, [])
