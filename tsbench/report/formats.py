"""Files of result sets for other tools: tables, HdrHistogram's logs and percentile distributions, OpenMetrics, plots.

docs/exports.md describes each file. Names of cells, ops and hosts come from outside: in names of files they are reduced
to letters, digits and `_.=-`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tsbench.errors import UserMistake
from tsbench.measure.hist import (
    Histogram,
    Interval,
    SparseHistogram,
    lowest_of,
    write_interval,
    write_log_head,
)
from tsbench.report import drawings, frames, head_plots, style
from tsbench.report.export import plain_name, writing_into
from tsbench.report.metrics import COMPARED
from tsbench.report.results import Results, tabled
from tsbench.report.sides import sides_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from tsbench.report.cells import Cell, ResultSet

TABLES = ("host", "server", "counters", "sar", "durations")
"""Tables beside those that `Results` names: `runs`, `ops`, `seconds`, `histograms`."""
FORMATS = ("csv", "parquet", "hlog", "hgrm", "openmetrics", "svg", "png")
_TICKS = 5  # of a percentile distribution, for each halving of the distance to 100 %


@dataclass(slots=True)
class Export:
    """Writes files of result sets into a directory; `written` are their paths so far."""

    sets: Sequence[ResultSet]
    place: Path
    written: list[Path] = field(default_factory=list)
    _beside: Path = field(init=False)
    """Where files are until all are whole."""

    def write(self, formats: Iterable[str], charts: Sequence[str] = ()) -> list[Path]:
        """Write the files of some FORMATS; of plots those named in `charts`, or all without names.

        Raises
        ------
        UserMistake
            If a file of the results is damaged, or no plot has such a name.
        Broken
            If a file cannot be written.
        """
        with writing_into(self.place) as self._beside:
            asked = [*dict.fromkeys(formats)]
            if pictures := [name for name in asked if name in {"svg", "png"}]:
                self._plots(pictures, charts)
            for name in asked:
                if name in pictures:
                    continue
                if name in {"csv", "parquet"}:
                    self._tables(name)
                elif name == "openmetrics":
                    self._new("metrics", "openmetrics.txt").write_text(openmetrics(self.sets), encoding="utf-8")
                else:
                    self._histograms(name)
        return self.written

    def _new(self, name: str, suffix: str) -> Path:
        """Return where to write a file for a name of any characters, by which no other file of this export goes."""
        plain = plain_name(name)[:120].lstrip(".") or "_"
        taken = {path.name for path in self.written}
        names = chain([plain], (f"{plain}-{number}" for number in range(2, len(taken) + 3)))
        path = self.place / next(f"{one}.{suffix}" for one in names if f"{one}.{suffix}" not in taken)
        self.written.append(path)
        return self._beside / path.name

    def _named(self, one: ResultSet, *parts: str) -> str:
        """Return a name of parts; of several sets it begins with the name of the set."""
        return ".".join([*([one.path.resolve().name] if len(self.sets) > 1 else []), *parts])

    def _tables(self, form: str) -> None:
        results = Results(tuple(self.sets))
        tables = {name: getattr(results, name) for name in ("runs", "ops", "seconds", "histograms")}
        tables |= {name: tabled(self.sets, partial(frames.of_run, name=name)) for name in TABLES}
        for name, frame in tables.items():
            if frame.empty:
                continue
            path = self._new(name, form)
            frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path, index=False)

    def _histograms(self, form: str) -> None:
        for one in self.sets:
            for cell in one.cells:
                if form == "hlog":
                    self._log(one, cell)
                    continue
                for (_, op, time), histogram in frames.measured_histograms(cell).items():
                    if op != frames.ALL:
                        path = self._new(self._named(one, cell.name, op, time), form)
                        path.write_text(distribution(histogram), encoding="ascii")

    def _log(self, one: ResultSet, cell: Cell) -> None:
        """Write the log of a run: an interval per second and tag, merged over the processes."""
        merged = merged_log(cell)
        if not merged:
            return
        with self._new(self._named(one, cell.name), "hlog").open("w", encoding="utf-8") as out:
            write_log_head(out, start_s=merged[0].start_s)
            for interval in merged:
                write_interval(out, interval)

    def _plots(self, forms: Sequence[str], charts: Sequence[str]) -> None:
        drawn: set[str] = set()
        for one in self.sets:
            for owner, name, figure in plots_of(one, charts):
                drawn.add(name)
                for form in forms:
                    style.save(figure, self._new(self._named(one, *filter(None, (owner, name))), form))
        unknown = [name for name in charts if name not in drawn]
        if unknown:
            kinds = {name for one in self.sets for _, name, _ in plots_of(one)}
            raise UserMistake(f"--chart {unknown[0]}: no such plot; there are {', '.join(sorted(kinds)) or 'none'}")


def plots_of(results: ResultSet, charts: Sequence[str] = ()) -> Iterator[tuple[str, str, Figure]]:
    """Yield the plots of a report, each with its run ("" for the head's and those of all runs) and its name.

    No others are drawn than those named in `charts`, or all without names.
    """

    def wanted(name: str) -> bool:
        return not charts or name in charts

    sides = sides_of(results.cells)
    data = {cell.name: drawings.read(cell, []) for cell in results.cells}
    for figure, name, _ in head_plots.draw(sides, wanted=wanted):
        yield "", name, figure
    for name, (figure, _) in drawings.of_all(sides.sides, data, lambda name: wanted(f"all-{name}")).items():
        yield "", f"all-{name}", figure
    for cell in results.cells:
        for name, (figure, _) in drawings.of_run(cell, data[cell.name], wanted).items():
            yield cell.name, name, figure


# --- histograms -------------------------------------------------------------------------------------------------------


def merged_log(cell: Cell) -> list[Interval]:
    """Return a run's histograms by second and tag in order of time, those of its processes added up.

    Raises
    ------
    UserMistake
        If a log is damaged.
    """
    intervals: dict[tuple[float, str], list[Interval]] = {}
    for _, line, seen in frames.logged(cell):
        interval = Interval(line.tag, line.start_s, line.length_s, seen)
        intervals.setdefault((line.start_s, line.tag), []).append(interval)
    return [
        replace(of[0], histogram=SparseHistogram.sum([one.histogram for one in of]))
        for _, of in sorted(intervals.items())
    ]


def distribution(histogram: Histogram) -> str:
    """Return a histogram as HdrHistogram's percentile distribution (`.hgrm`), in ms."""
    used = np.flatnonzero(histogram.counts)
    cumulated = np.cumsum(histogram.counts[used])
    total = int(cumulated[-1]) if used.size else 0
    lines = ["       Value     Percentile TotalCount 1/(1-Percentile)", ""]
    percent, seen = 0.0, 0
    while seen < total:
        place = int(np.searchsorted(100.0 * cumulated / total, percent))
        seen = int(cumulated[place])
        share = percent / 100
        value_ms = histogram.percentile_ns(100.0 * seen / total) / 1e6
        lines.append(f"{value_ms:12.3f} {share:2.12f} {seen:10d} {1 / (1 - share):14.2f}")
        percent += 100 / (_TICKS * 2 ** (math.floor(math.log2(100 / (100 - percent))) + 1))
    if total:
        lines.append(f"{histogram.max_ns / 1e6:12.3f} {1:2.12f} {total:10d}")
    middle_ms = lowest_of(used) / 1e6
    mean = histogram.mean_ns / 1e6
    spread = math.sqrt(float((histogram.counts[used] * (middle_ms - mean) ** 2).sum() / total)) if total else 0.0
    lines.append(f"#[Mean    = {mean:12.3f}, StdDeviation   = {spread:12.3f}]")
    lines.append(f"#[Max     = {histogram.max_ns / 1e6:12.3f}, Total count    = {total:12d}]")
    return "\n".join(lines) + "\n"


# --- OpenMetrics ------------------------------------------------------------------------------------------------------

_UNITS = (("_per_s", "_per_second", 1.0), ("_duration_s", "_duration_seconds", 1.0), ("_ns", "_seconds", 1e-9))
_QUANTILES = (50.0, 90.0, 99.0, 99.9)
Sample: TypeAlias = "tuple[str, dict[str, str], float]"


def openmetrics(sets: Sequence[ResultSet]) -> str:
    """Return the figures of runs as OpenMetrics text: gauges, and a summary of times by op, in s, bytes and counts."""
    families: dict[str, tuple[str, list[str]]] = {}

    def add(family: str, kind: str, sample: Sample, moment: str) -> None:
        name, labels, value = sample
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        families.setdefault(family, (kind, []))[1].append(f"{name}{{{told}}} {value!r}{moment}")

    for one in sets:
        for cell in one.cells:
            window = cell.window
            moment = f" {window[1]!r}" if window else ""  # the end of what was measured, so that it can be filled in
            labels = {"set": one.path.resolve().name, "cell": cell.name, "target": cell.summary.target}
            labels |= {"schema": cell.summary.schema_, "validity": cell.validity.state}
            for key, metric in COMPARED.items():
                value = metric.value(cell)
                name, factor = _family(key)
                if value is not None:
                    add(name, "gauge", (name, labels, float(value) * factor), moment)
            for sample in _times(cell, labels):
                add("tsbench_op_seconds", "summary", sample, moment)
    lines = [line for name, (kind, samples) in families.items() for line in (f"# TYPE {name} {kind}", *samples)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(key: str) -> tuple[str, float]:
    """Return the name of a figure with its base unit, and the factor to it."""
    for suffix, unit, factor in _UNITS:
        if key.endswith(suffix):
            return f"tsbench_{key.removesuffix(suffix)}{unit}", factor
    return f"tsbench_{key}", 1.0


def _times(cell: Cell, labels: dict[str, str]) -> Iterator[Sample]:
    """Yield quantiles and counts of the times of each op."""
    for (_, op, time), histogram in frames.measured_histograms(cell).items():
        if op == frames.ALL or "-" in time:
            continue
        told = {**labels, "op": op, "time": time}
        for percent, value in zip(_QUANTILES, histogram.percentiles_ns(_QUANTILES), strict=True):
            yield "tsbench_op_seconds", {**told, "quantile": f"{percent / 100:.12g}"}, value / 1e9
        yield "tsbench_op_seconds_count", told, float(len(histogram))
        yield "tsbench_op_seconds_sum", told, histogram.mean_ns * len(histogram) / 1e9


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
