"""Result sets for Python users: tidy pandas frames over several of them, and plots."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tsbench.errors import UserMistake
from tsbench.measure.merge import PERCENTS
from tsbench.report import frames
from tsbench.report.cells import ResultSet
from tsbench.report.metrics import COMPARED, believable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from tsbench.report.cells import Cell

PLOTS = ("latency", "over_time", "percentiles", "rates", "size_on_disk")
_COUNTS = ("ended", "ok", "failed", "unknown", "partial", "ops_per_s", "points_per_s")


class Results:
    """One or several result sets.

    Each frame has a row per run and what its name says; its first columns are `set`, `cell`, `validity` and `stands`,
    which is False for figures that reports strike out. Units are in the columns' names. A time lies between its
    `_least_ns` and its `_ns`: without the time by which the load generator sent ops too late, and as measured.
    """

    def __init__(self, sets: tuple[ResultSet, ...]) -> None:
        self.sets = sets

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run: its load, its labels (`label.*`), validity, gates, and every figure that is compared."""
        return self._frame(lambda cell: pd.DataFrame([frames.run_row(cell) | _least_of(cell)]))

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per run and op: counts, rates, and times by percentile (`service_p99_ns`) in the measured window."""
        return self._frame(_ops_of)

    @cached_property
    def seconds(self) -> pd.DataFrame:
        """One row per run, second and op, warm-up included; columns as in `results.rundir.OPS_COLUMNS`."""
        return self._frame(partial(frames.of_run, name="ops"))

    @cached_property
    def histograms(self) -> pd.DataFrame:
        """One row per run, op, kind of time and percentile; columns as in `report.frames.LATENCY_COLUMNS`."""
        return self._frame(partial(frames.of_run, name="latency"))

    @cached_property
    def claims(self) -> pd.DataFrame:
        """One row per finding of a published study: what was published, what was measured, and the verdict."""
        rows = [{"set": one.path.name, **row.model_dump()} for one in self.sets for row in one.summary.claims]
        columns = ["set", "claim", "published", "reproduced_if", "measured", "verdict", "reason"]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, name: str) -> list[Axes]:
        """Plot the runs beside each other; return the axes, whose `figure` a notebook shows. Empty without figures.

        Parameters
        ----------
        name
            One of PLOTS.

        Raises
        ------
        ValueError
            If there is no plot of that name.
        """
        from tsbench.report import set_plots  # noqa: PLC0415 - frames need no matplotlib

        if name not in PLOTS:
            raise ValueError(f"'{name}' is no plot; there are {', '.join(PLOTS)}")
        several = len(self.sets) > 1
        cells = [
            replace(cell, name=f"{one.path.name}/{cell.name}" if several else cell.name)
            for one in self.sets
            for cell in one.cells
        ]
        plot, of = getattr(set_plots, name), {"percentiles": "latency", "over_time": "ops"}.get(name)
        needed = [frames.concat([frames.of_run(cell, of) for cell in cells], frames.COLUMNS[of])] if of else []
        figure = plot(cells, *needed)
        return [] if figure is None else list(figure.axes)

    def _frame(self, of: Callable[[Cell], pd.DataFrame]) -> pd.DataFrame:
        return tabled(self.sets, of)


def tabled(sets: Sequence[ResultSet], of: Callable[[Cell], pd.DataFrame]) -> pd.DataFrame:
    """Return the frames of all runs as one, whose first columns are `set`, `cell`, `validity` and `stands`."""
    parts = []
    for one in sets:
        for cell in one.cells:
            part = of(cell)
            first: dict[str, Any] = {"set": one.path.name, "cell": cell.name, "validity": cell.validity.state}
            part = part.drop(columns=[*first], errors="ignore")
            for place, (key, value) in enumerate({**first, "stands": cell.validity.stands}.items()):
                part.insert(place, key, value)
            parts.append(part)
    return frames.concat([part for part in parts if len(part)] or parts[:1], {})


def read_results(*patterns: str | Path) -> Results:
    """Return result sets, or single runs, by their directories or patterns of them (`results/*`).

    Raises
    ------
    UserMistake
        If nothing matches a pattern, or a directory holds no run of this version of tsbench.
    TypeError
        If a list of them is given as one.
    """
    paths: list[Path] = []
    for pattern in patterns:
        if not isinstance(pattern, str | Path):
            raise TypeError(f"read_results takes directories one by one, read_results(*paths), not {pattern!r}")
        matching = [Path(path) for path in sorted(glob(str(pattern))) if Path(path).is_dir()]  # noqa: PTH207 - it may be absolute
        if not matching:
            raise UserMistake(f"{pattern} is no directory; give a result set such as results/<date>-<scenario>")
        paths += matching
    return Results(tuple(map(ResultSet.read, dict.fromkeys(paths))))


def _least_of(cell: Cell) -> dict[str, float | None]:
    least = {key: metric.latency(cell) for key, metric in COMPARED.items() if metric.percentile}
    return {f"{key.removesuffix('_ns')}_least_ns": one.least_ns if one else None for key, one in least.items()}


def _ops_of(cell: Cell) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for op, figures in cell.ops.items():
        row: dict[str, Any] = {"op": op, "kind": figures.kind, **{name: getattr(figures, name) for name in _COUNTS}}
        for time in ("response", "service") if cell.loop == "open" else ("service",):
            for part in (*PERCENTS, "mean"):
                ops = believable(figures, time, part)
                name = f"{time}_{part.replace('.', '_')}"
                row |= {f"{name}_ns": ops and ops.most_ns, f"{name}_least_ns": ops and ops.least_ns}
        rows.append(row)
    return pd.DataFrame(rows)
