"""The head of a page: the machine in one line, and a table of at most nine columns with the best marked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tsbench.measure.latency import AT_LEAST
from tsbench.measure.statistics import median_interval
from tsbench.report.answer import at_load
from tsbench.report.evidence import weakest
from tsbench.report.findings import LOADS, RULES, leaders_of, middle
from tsbench.report.metrics import COMPARED, MISSING
from tsbench.report.sides import OF_OPEN_LOOP
from tsbench.report.tables import Mark
from tsbench.results.manifest import Host
from tsbench.units import format_count, format_factor, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.report.cells import Cell
    from tsbench.report.sides import Side, Sides
    from tsbench.report.tables import Entry

_RULES = {rule.key: rule for rule in (*RULES, *LOADS)}
_TITLES = {
    "asked_ops_per_s": "asked, ops/s",
    "done_ops_per_s": "done, ops/s",
    "load_points_per_s": "loaded, points/s",
    "write_points_per_s": "written, points/s",
    "write_p99_ns": "write p99",
    "write_p50_ns": "write p50",
    "write_mean_ns": "write mean",
    "query_ops_per_s": "queries/s",
    "query_p99_ns": "query p99",
    "query_p50_ns": "query p50",
    "query_mean_ns": "query mean",
    "bytes_per_point": "bytes per point",
    "cpu_s_per_million": "CPU s per million points",
    "cpu_s_per_thousand": "CPU s per 1,000 ops",
}
"""Columns of the table after name and verdict; runs have one of the last two, and one of each kind's times.

Where bulk loads were searched, there are those of LOADS and no others; where ops wrote too, there is none of loads.
"""
_TIMES = ("p99", "p50", "mean")
_RATES = {"write_points_per_s", "query_ops_per_s"}


@dataclass(frozen=True, slots=True)
class Row:
    """A side: its name, the anchor of its first run, its verdict, and its figures."""

    name: str
    cell: str
    verdict: Mark
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The table of sides, and the same as ratios to each side in turn, by the side's name."""

    titles: tuple[str, ...]
    rows: tuple[Row, ...]
    ratios: dict[str, tuple[Row, ...]]
    note: str


def machine(cells: Sequence[Cell]) -> str:
    """Return the machine and the version of tsbench in one line; "" if no run has a manifest."""
    lines: dict[str, None] = {}
    for cell in cells:
        if cell.manifest is None:
            continue
        host, version = cell.manifest.host or Host(), cell.manifest.tsbench.get("version", "")
        memory = format_size(host.memory_bytes) if host.memory_bytes else ""
        parts = (
            host.cpu,
            f"{host.cores} cores" if host.cores else "",
            memory,
            f"Linux {host.kernel}" * bool(host.kernel),
        )
        lines[", ".join([*filter(None, parts), f"tsbench {version}" if version else ""])] = None
    return "; ".join(filter(None, lines))


def head_of(sides: Sides) -> Head:
    """Return the table of a result set's sides."""
    known = {key for side in sides.sides for key in side.figures}
    of_times = {f"{kind}_{time}_ns" for kind in ("write", "query") for time in _TIMES}
    keys = [key for key in _TITLES if key in known and (key not in of_times or key == time_of(sides.sides, key[:5]))]
    of_loads = [rule.key for rule in LOADS]
    keys = [key for key in keys if sides.only_loads or key != of_loads[0]]
    keys = [key for key in keys if key in of_loads or not sides.searches_loads]
    if OF_OPEN_LOOP[0] in keys:  # each op's rate is a share of these
        keys = [key for key in keys if key not in {"write_points_per_s", "query_ops_per_s"}]
    best = {key: _best(key, sides) for key in keys}
    words = [", ".join(dict.fromkeys(filter(None, map(weakest, side.cells)))) for side in sides.sides]

    def rows(entry: Callable[[Side, str], Entry]) -> tuple[Row, ...]:
        return tuple(
            Row(
                side.name if side.at is None else f"{side.name} at {at_load(sides.axis, side.at)}",
                side.cells[0].name if side.cells else "",
                _verdict(side),
                (
                    *(_marked(entry(side, key), side, best=side in best[key]) for key in keys),
                    *([word or MISSING] if any(words) else []),
                ),
            )
            for side, word in zip(sides.sides, words, strict=True)
        )

    names = list(dict.fromkeys(side.name for side in sides.sides if side.stands))
    ratios = {name: rows(partial(_ratio, sides=sides, to=name)) for name in names if len(names) > 1}
    shown = rows(_text)
    has_small = any(isinstance(entry, tuple) for row in shown for entry in row.entries)
    note = "Small: within these the figure lies with 95 %"
    of = (
        "by chance within its one run; what differs between starts it cannot know"
        if sides.repeats < 2
        else "as the median of runs"
    )
    titles = (*(_TITLES[key] for key in keys), *(["answers"] if any(words) else []))
    return Head(titles, shown, ratios, f"{note}, {of}." if has_small else "")


def time_of(sides: Sequence[Side], kind: str) -> str:
    """Return the time of writes or queries to show: the p99, or if most sides have too few ops for it, p50 or mean."""
    keys = [f"{kind}_{time}_ns" for time in _TIMES]
    having = [sum(key in side.figures for side in sides) for key in keys]
    return next(key for key, count in zip(keys, having, strict=True) if 2 * count > max(having) or not any(having))


def _best(key: str, sides: Sides) -> list[Side]:
    """Return the sides that lead in a figure at their load."""
    if key not in _RULES:
        return []
    loads = dict.fromkeys(side.at for side in sides.sides)
    return [
        side
        for at in loads
        for side in leaders_of(_RULES[key], [other for other in sides.sides if other.at == at], sides.loop)
    ]


def _verdict(side: Side) -> Mark:
    if side.overloads:
        return Mark("overloaded", "badge")
    if side.failed:
        return Mark(f"{len(side.failed)} gate{'s' if len(side.failed) > 1 else ''} failed", "badge")
    if side.validity == "valid" and side.undecided:
        return Mark("undecided", "badge")
    return Mark("pass" if side.validity == "valid" and side.gated else side.validity, "badge")


def _marked(entry: Entry, side: Side, *, best: bool) -> Entry:
    """Return a figure marked as the best or struck out; the interval beside it stays as it is."""
    figure, *interval = entry if isinstance(entry, tuple) else (entry,)
    if str(figure) == MISSING or (side.stands and not best):
        return entry
    marked = Mark(str(figure), "best" if side.stands else "struck")
    return (marked, *interval) if interval else marked


def _text(side: Side, key: str) -> Entry:
    """Return a figure; of six repeats or more their median and its interval of 95 %."""
    if key not in side.figures:  # a time of which only the least is known is not compared
        return COMPARED[key].text(side.runs[0]) if key in COMPARED and len(side.runs) == 1 else MISSING
    rule, texts = _RULES.get(key), middle(key, side)
    text, form = (format_count(texts.estimate), format_count) if rule is None else (rule.text(texts), rule.form)
    if key in _RATES and side.is_generators:  # the database may do more
        text = f"{AT_LEAST}{text}"
    if side.overloads and key.endswith("_ns"):
        return text, Mark("its queue grew", "small")
    interval = median_interval([one.estimate for one in side.figures[key]])
    if interval is None and (interval := side.margins.get(key)) is None:
        return text
    return text, Mark(f"{form(interval.least)} to {form(interval.most)}", "small")


def _ratio(side: Side, key: str, sides: Sides, to: str) -> str:
    base = next((other for other in sides.sides if other.name == to and other.at == side.at), None)
    if base is None or key not in side.figures or key not in base.figures or key in OF_OPEN_LOOP:
        return MISSING
    if key.endswith("_ns") and (side.overloads or base.overloads):  # times of how long the run was
        return MISSING
    return format_factor(middle(key, side).estimate / middle(key, base).estimate)
