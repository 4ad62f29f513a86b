"""Result sets as pandas frames, for notebooks and for the report itself.

`of_set` takes the directory of a result set, or of one run, and returns a frame whose first column is `cell`:

>>> from pathlib import Path
>>> from tsbench.report import frames
>>> results = Path("results/20261120-101500-quickstart")
>>> frames.runs(results)            # one row per run: labels, validity, gates, every metric # doctest: +SKIP
>>> frames.of_set(results, "ops")   # per second and op: counts, points, latencies           # doctest: +SKIP

The other names are those of COLUMNS. Units are in the columns' names. Seconds count from the start of the measured
window; warm-up is negative. Failed and interrupted runs are included with whatever they measured; look at `validity` in
`runs` before comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tsbench.errors import UserMistake
from tsbench.measure.hist import Histogram, scan_log
from tsbench.measure.recorder import TIMES
from tsbench.report.cells import ROUNDED_S, Cell, load_cells
from tsbench.report.metrics import COMPARED
from tsbench.results.limits import LIMITS
from tsbench.results.reading import damaged, files_of, read_table
from tsbench.results.rundir import (
    ADDED_COLUMNS,
    COUNTER_COLUMNS,
    HOST_COLUMNS,
    NODES_COLUMNS,
    OPS_COLUMNS,
    SAR_COLUMNS,
    SERVER_COLUMNS,
)
from tsbench.results.summary import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.measure.hist import LogLine, SparseHistogram

ALL = "*"
"""Name of the op under which `latency` has all ops of a kind, merged."""

LATENCY_COLUMNS = {
    "kind": "string",  # write or query
    "op": "string",  # ALL: every op of this kind
    "time": "string",  # response (from when the op was due) or service (from when it was sent)
    "percentile": "double",
    "value_ns": "int64",
    "least_ns": "int64",  # without the time by which each op was sent too late, which is the client's
    "total": "int64",  # number of ops in the spectrum
}
USAGE_COLUMNS = {
    "who": "string",  # server (its process tree), client (the load processes), or one of several nodes by its name
    "seconds": "int64",  # number of sampled seconds
    "cpu_percent": "double",  # mean, 100 = one core
    "cpu_max_percent": "double",  # the highest second
    "rss_bytes": "double",  # mean, as `rss_bytes` in SERVER_COLUMNS
    "rss_max_bytes": "double",
}
DURATION_COLUMNS = {
    "phase": "string",  # as in `results.summary.PHASES`
    "duration_s": "double",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "durations": DURATION_COLUMNS,  # per phase: how long it took
    "ops": OPS_COLUMNS,  # per second and op: counts, points, latencies
    "host": HOST_COLUMNS,  # per second: the load generator's host and the load processes
    "server": SERVER_COLUMNS,  # per second: the server's processes
    "nodes": NODES_COLUMNS,  # per second and node of a server of several
    "usage": USAGE_COLUMNS,  # per process tree: CPU and memory over the measured window
    "counters": COUNTER_COLUMNS,  # per second and counter of the server: totals and gauges
    "sar": SAR_COLUMNS,  # per host and interval of sysstat
    "latency": LATENCY_COLUMNS,  # per op and percentile of the measured window, merged over the processes
}
"""The frames of a run by name, with their columns besides `cell`."""
STALL_FACTOR = 10
"""Minimum ratio of a second's slowest op to the median of all seconds' p99 for calling the second a stall."""

_TICKS = 5  # per halving of the distance to 100 %, as HdrHistogram's own percentile output has by default
_HIGHEST = 99.999
_TYPES: Mapping[str, str] = {"int64": "int64", "double": "float64", "string": "str"}


def runs(results: Path) -> pd.DataFrame:
    """Return one row per run: its load, its labels (`label.*`), validity, gates and every metric of COMPARED.

    Parameters
    ----------
    results
        The directory of a result set or of one run.
    """
    return pd.DataFrame([run_row(cell) for cell in load_cells(results)])


def of_set(results: Path, name: str) -> pd.DataFrame:
    """Return the frame of COLUMNS by that name for all runs of a result set, or the one run in `results`."""
    return concat([of_run(cell, name) for cell in load_cells(results)], COLUMNS[name])


def rates(counted: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of counters with a column `per_s`: the growth of each total in that second.

    It is missing in each counter's first second, and in a second in which the total fell because the server restarted.
    """
    ordered = counted.sort_values(["cell", "name", "second"], kind="stable", ignore_index=True)
    grown = ordered.groupby(["cell", "name"])[["value", "second"]].diff()
    return ordered.assign(per_s=(grown["value"] / grown["second"]).where(grown["value"] >= 0))


def spectrum(histogram: Histogram, undelayed: Histogram | None = None) -> pd.DataFrame:
    """Return a histogram's values at 0 .. 99.999 %, in steps that halve with the distance to 100 %, and at 100 %.

    Columns: `percentile`, `value_ns`, `least_ns` (the values of `undelayed`, by default the same), `total` (number of
    counted values). The value at 100 % is the maximum.
    """
    percents = _percents()
    values = np.array(histogram.percentiles_ns(percents))
    least = values if undelayed is None else np.minimum(values, undelayed.percentiles_ns(percents))
    return pd.DataFrame({"percentile": percents, "value_ns": values, "least_ns": least, "total": len(histogram)})


def stalls(ops_frame: pd.DataFrame, time: str = "response") -> pd.DataFrame:
    """Return the stretches of seconds in which an op's slowest took over STALL_FACTOR times its usual p99.

    Parameters
    ----------
    ops_frame
        Frame of `ops`, of one or several runs.
    time
        `response` or `service`.

    Returns
    -------
    pandas.DataFrame
        Columns `cell`, `op`, `start_s`, `length_s`, `max_ns`, `factor` (of the median p99), worst first.
    """
    stalled: list[dict[str, Any]] = []
    measured = ops_frame[(ops_frame["second"] >= 0) & (ops_frame["count"] > 0)]
    for (cell, op), rows in measured.sort_values("second").groupby(["cell", "op"], sort=False):
        usual = float(rows[f"{time}_p99_ns"].median())
        slow = rows[rows[f"{time}_max_ns"] > STALL_FACTOR * usual] if usual > 0 else rows.iloc[:0]
        stretch = (slow["second"].diff() != 1).cumsum()
        for _, part in slow.groupby(stretch):
            first, last, worst = part["second"].iloc[0], part["second"].iloc[-1], part[f"{time}_max_ns"].max()
            stall = {"start_s": int(first), "length_s": int(last - first + 1), "max_ns": int(worst)}
            stalled.append({"cell": cell, "op": op, **stall, "factor": float(worst) / usual})
    columns = ["cell", "op", "start_s", "length_s", "max_ns", "factor"]
    return pd.DataFrame(stalled, columns=columns).sort_values("max_ns", ascending=False, ignore_index=True)


# --- of one run -------------------------------------------------------------------------------------------------------


def of_run(cell: Cell, name: str) -> pd.DataFrame:
    """Return the frame of COLUMNS by that name for one run; empty if the run has none.

    Raises
    ------
    UserMistake
        If a file of the run is damaged.
    """
    match name:
        case "durations":
            return _durations(cell)
        case "latency":
            return _latency(cell)
        case "usage":
            return usage_of(cell, *(of_run(cell, of) for of in ("host", "server", "nodes")))
    file, columns = f"{name}.parquet", COLUMNS[name]
    if not cell.run.has(file):
        return _empty(columns)
    frame: pd.DataFrame = read_table(cell.run / file, columns, ADDED_COLUMNS).to_pandas(ignore_metadata=True)
    frame = frame.astype({column: _type(frame[column], kind) for column, kind in columns.items()})
    frame.insert(0, "cell", cell.name)
    return frame


def _durations(cell: Cell) -> pd.DataFrame:
    taken_s = cell.summary.durations_s
    rows = [{"cell": cell.name, "phase": name, "duration_s": taken_s[name]} for name in PHASES if name in taken_s]
    return pd.DataFrame(rows) if rows else _empty(DURATION_COLUMNS)


def usage_of(cell: Cell, host: pd.DataFrame, server: pd.DataFrame, nodes: pd.DataFrame) -> pd.DataFrame:
    """Return CPU and memory of one run over its measured window, from its `host`, `server` and `nodes`.

    A process tree without a whole sampled second in the measured window has no row.
    """
    if cell.window is None:
        return _empty(USAGE_COLUMNS)
    rows = []
    each = [(str(name), rows_of, "") for name, rows_of in nodes.groupby("node", sort=True)]
    for who, frame, prefix in (("server", server, ""), ("client", host, "client_"), *each):
        inside = frame[cell.is_measured(frame["second"])]
        inside = inside[inside[f"{prefix}rss_bytes"] != 0]  # no process ran
        if inside.empty:
            continue
        cpu, rss = inside[f"{prefix}cpu_percent"], inside[f"{prefix}rss_bytes"]
        row = {"cell": cell.name, "who": who, "seconds": len(inside)}
        row |= {"cpu_percent": cpu.mean(), "cpu_max_percent": cpu.max()}
        rows.append(row | {"rss_bytes": rss.mean(), "rss_max_bytes": rss.max()})
    return pd.DataFrame(rows) if rows else _empty(USAGE_COLUMNS)


def _latency(cell: Cell) -> pd.DataFrame:
    """Return the percentile spectrum of every op, with op `*` those of all ops of a kind together.

    A run whose summary has no measured window has none, because its warm-up cannot be separated.
    """
    parts = []
    histograms = measured_histograms(cell)
    for (kind, op, time), histogram in histograms.items():
        if time not in TIMES:
            continue
        part = spectrum(histogram, histograms.get((kind, op, f"{time}-undelayed")))
        part.insert(0, "cell", cell.name)
        for place, (name, value) in enumerate((("kind", kind), ("op", op), ("time", time)), 1):
            part.insert(place, name, value)
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else _empty(LATENCY_COLUMNS)


def logged(cell: Cell) -> Iterator[tuple[Path, LogLine, SparseHistogram]]:
    """Yield the lines of a run's logs of latencies, each with its file and its histogram.

    Raises
    ------
    UserMistake
        If a log is damaged.
    """
    for path in files_of(cell.run / "latency", "*.hlog"):
        try:
            for line in scan_log(path):
                yield path, line, line.decode()
        except ValueError as error:
            raise UserMistake(f"{error}; run the cell again with --resume") from None
        except OSError as error:
            raise damaged(path, error) from None


def measured_histograms(cell: Cell) -> dict[tuple[str, str, str], Histogram]:
    """Return the measured window's histograms by kind (write or query), op (also ALL) and time.

    The time is `response` or `service`, or one of these followed by `-undelayed`: without the client's lateness.

    Raises
    ------
    UserMistake
        If a log is damaged.
    """
    window = cell.window
    if window is None:
        return {}
    start_s, end_s = window
    by_tag: dict[str, Histogram] = {}
    for path, line, seen in logged(cell):
        is_time = line.tag.rpartition("|")[2].removesuffix("-undelayed") in TIMES
        if is_time and start_s - ROUNDED_S < line.start_s < end_s - ROUNDED_S:
            seen.add_to(by_tag.setdefault(line.tag, Histogram()))
        if len(by_tag) > 2 * len(TIMES) * LIMITS.ops:
            raise UserMistake(f"{path}: damaged: more than {LIMITS.ops} ops; run the cell again with --resume")
    merged: dict[tuple[str, str, str], Histogram] = {}
    for tag, histogram in by_tag.items():
        op, _, time = tag.rpartition("|")
        kind = kind_of(cell, op)
        for key in {(kind, op, time), (kind, ALL, time)}:
            merged.setdefault(key, Histogram()).add(histogram)
    return dict(sorted(merged.items()))


def whole_seconds(cell: Cell, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a frame by second that lie between the first op and the end of the measured window.

    The seconds in which the load began and ended are not whole, and would look like a slow start and a stop.
    """
    window = cell.window
    if window is None:
        return frame
    warmup_s = cell.summary.measured.window.warmup_s if cell.summary.measured else 0.0
    # rows of ops are by whole seconds; those of samples begin anywhere, and their times are rounded
    inside = frame["second"].between(-warmup_s - ROUNDED_S, window[1] - window[0] - 1 + ROUNDED_S)
    return frame[inside]


def kind_of(cell: Cell, op: str) -> str:
    """Return `write` or `query`: as in the summary, else by the op's name."""
    known = cell.ops.get(op)
    return known.kind if known and known.kind else "write" if op.startswith("write") else "query"


def run_row(cell: Cell) -> dict[str, Any]:
    """Return the row of `runs` for one run."""
    summary, validity = cell.summary, cell.validity
    row: dict[str, Any] = {"cell": cell.name, "state": cell.status.state}
    row |= {"validity": validity.state, "reason": validity.reason, "gates": cell.gates_text}
    row |= {"failed_gates": "; ".join(gate.sentence for gate in summary.failed_gates)}
    row |= {"scenario": summary.scenario, "target": summary.target, "schema": summary.schema_, "loop": summary.loop}
    row |= {key: getattr(summary, key) for key in ("users", "users_least", "processes", "limited_by")}
    row |= {"started": _moment(cell.started), **{f"label.{name}": value for name, value in summary.labels.items()}}
    return row | {"latency": f"{cell.time} time"} | {key: metric.value(cell) for key, metric in COMPARED.items()}


def _moment(text: str) -> pd.Timestamp | None:
    try:
        return pd.Timestamp(text) if text else None
    except ValueError:
        return None


def concat(parts: Sequence[pd.DataFrame], columns: Mapping[str, str] = OPS_COLUMNS) -> pd.DataFrame:
    """Return the rows of several frames with the same columns; an empty typed frame if all are empty."""
    full = [part for part in parts if len(part)]
    return pd.concat(full, ignore_index=True) if full else _empty(columns)


def _empty(columns: Mapping[str, str]) -> pd.DataFrame:
    types = {"cell": "string", **columns}
    return pd.DataFrame({name: pd.Series(dtype=_TYPES[kind]) for name, kind in types.items()})


def _type(column: pd.Series[Any], kind: str) -> str:
    # a counter that the platform lacks is null, which an integer column cannot hold
    return "float64" if kind == "int64" and bool(column.isna().any()) else _TYPES[kind]


def _percents() -> list[float]:
    # equal steps between one halving and the next: 0, 10, .. 50, 55, .. 75, 77.5, .. as HdrHistogram's own output has
    halvings = np.arange(20)
    starts, steps = 100.0 - 100.0 * 0.5**halvings, 50.0 * 0.5**halvings / _TICKS
    percents = (starts[:, None] + steps[:, None] * np.arange(_TICKS)).ravel()
    return [*(float(p) for p in percents if p < _HIGHEST), _HIGHEST, 100.0]
