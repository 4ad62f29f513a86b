"""Repeated cells as one: a row of the summary each, and a run made of the medians of their runs, for plots."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.statistics import median_interval
from tsbench.report.metrics import COMPARED, MISSING, text_of, used_columns
from tsbench.report.tables import Mark, figure_entry, grouped, summary_table
from tsbench.results.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tsbench.report.cells import Cell
    from tsbench.report.metrics import Column
    from tsbench.report.sides import Side
    from tsbench.report.tables import Rows, Table


def repeats_table(cells: Sequence[Cell]) -> Table:
    """Return `summary_table`, or of repeated cells a row each: medians of their runs, with intervals of 95 %."""
    if not any(cell.round for cell in cells):
        return summary_table(cells)
    columns = used_columns(cells)
    of_cell: dict[str, list[Cell]] = {}
    for cell in cells:
        of_cell.setdefault(cell.unrepeated, []).append(cell)
    rows: Rows = []
    for name, of in of_cell.items():
        standing = [cell for cell in of if cell.validity.stands]
        validity, gates, limits = (
            _words(texts)
            for texts in zip(*((one.validity.state, one.gates_text, one.limited_by) for one in of), strict=True)
        )
        texts = [_median_text(column, standing or of) for column in columns]
        figures = [figure_entry(text, stands=bool(standing)) for text in texts]
        runs = f"{name} ({len(standing)} of {len(of)} runs)" if len(standing) < len(of) else f"{name} ({len(of)} runs)"
        rows.append((runs, Mark(validity, "badge"), Mark(gates, "badge"), limits, *figures))
    return grouped(("cell", "validity", "gates", "limited by"), columns, rows)


def middle_cell(side: Side) -> Cell:
    """Return a run with the medians of a side's runs as its figures, and the side's name; of one run that run."""
    if len(side.runs) < 2:
        return side.runs[0]
    figures = _middle([cell.summary.model_dump(by_alias=True) for cell in side.runs])
    summary = Summary.model_validate(figures).model_copy(update={"validity": side.runs[0].summary.validity})
    return replace(side.runs[0], name=f"{side.name} ({len(side.runs)} runs)", summary=summary)


def _middle(parts: Sequence[Any]) -> Any:
    """Return a structure like these: of numbers the median, of anything else the first."""
    first = parts[0]
    if isinstance(first, dict):
        shared = [key for key in first if all(isinstance(part, dict) and key in part for part in parts)]
        return {key: _middle([part[key] for part in parts]) for key in shared}
    numbers = [part for part in parts if isinstance(part, int | float) and not isinstance(part, bool)]
    if len(numbers) < len(parts):
        return first
    middle = median(numbers)
    return round(middle) if isinstance(first, int) else middle


def middle_rows(side: Side, name: str, frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the medians of the rows of a side's runs that agree in the columns `by`, as those of the run `name`."""
    rows = frame[frame["cell"].isin([cell.name for cell in side.runs])]
    if len(side.runs) < 2 or rows.empty:
        return rows
    found = rows.groupby([*by], as_index=False, sort=False).median(numeric_only=True)
    return found.assign(cell=name)[[*frame.columns]]


def _words(texts: Sequence[str]) -> str:
    """Return the word of all runs, or each word with the number of its runs."""
    found = list(dict.fromkeys(texts))
    return found[0] if len(found) == 1 else ", ".join(f"{texts.count(word)} {word}" for word in found)


def _median_text(column: Column, cells: Sequence[Cell]) -> str:
    """Return the median of runs with its interval, if they are enough for one; of counts their sum.

    A figure that only some runs have says so, or its p99 would lie above the largest time of all.
    """
    metrics = [COMPARED[key] for key in column.keys]
    found = [[value for cell in cells if (value := metric.value(cell)) is not None] for metric in metrics]
    if not all(found):
        return MISSING
    if len(metrics) > 1:
        return " / ".join(text_of(sum(values), metric.unit) for metric, values in zip(metrics, found, strict=True))
    interval, unit = median_interval(found[0]), metrics[0].unit
    text = text_of(float(np.median(found[0])), unit)
    if interval is not None:
        text = f"{text} ({text_of(interval.least, unit)} to {text_of(interval.most, unit)})"
    return text if len(found[0]) == len(cells) else f"{text} ({len(found[0])} of {len(cells)} runs)"
