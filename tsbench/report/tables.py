"""The tables of a result set: titled rows of texts, which console, Markdown and page only lay out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from tsbench.measure.latency import AT_LEAST
from tsbench.measure.statistics import median_interval
from tsbench.report.cells import by_cell
from tsbench.report.metrics import COMPARED, MISSING, load_text, load_texts, text_of, used_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.report.cells import Cell, ResultSet
    from tsbench.report.metrics import Column


@dataclass(frozen=True, slots=True)
class Mark:
    """A text that is marked: a state, code, a figure that is struck out, a small remark, lines of text."""

    text: str
    kind: Literal["badge", "best", "code", "struck", "small", "pre"]

    def __str__(self) -> str:
        return self.text


Entry: TypeAlias = "str | Mark | tuple[str | Mark, ...]"
"""A table's cell; parts of a tuple stand beside each other."""
TableRows: TypeAlias = "list[tuple[Entry, ...]]"


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; `groups` are heads above the heads, each with the number of columns below it.

    A `wide` one needs the page's width, `note` is a remark below it, and rows in `totals` are sums of others.
    """

    title: str
    rows: TableRows
    heads: tuple[str, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    wide: bool = False
    note: str = ""
    totals: int = 0

    @property
    def group_of(self) -> tuple[str, ...]:
        """The group of each column."""
        return tuple(name for name, span in self.groups for _ in range(span))

    @property
    def firsts(self) -> set[int]:
        """Positions of the columns that begin a group, without the one beside the rows' heads."""
        return {sum(span for _, span in self.groups[:number]) for number in range(2, len(self.groups))}


def figure_entry(text: str, *, stands: bool) -> Entry:
    """Return a figure as an entry, struck out if it does not stand."""
    return text if stands or text == MISSING else Mark(text, "struck")


def summary_table(cells: Sequence[Cell]) -> Table:
    """Return a row per run: validity, gates, limit, the load if the runs differ in it, and the figures."""
    columns = used_columns(cells)
    loops = len(load_texts(cells)) > 1
    heads = ("run", "validity", "gates", "limited by", *(("loop",) if loops else ()))
    rows: TableRows = [
        (
            cell.name,
            Mark(cell.validity.state, "badge"),
            Mark(cell.gates_text, "badge"),
            cell.limit_text,
            *((load_text(cell),) if loops else ()),
            *(figure_entry(column.text(cell), stands=cell.validity.stands) for column in columns),
        )
        for cell in cells
    ]
    return grouped(heads, columns, rows)


def grouped(heads: tuple[str, ...], columns: Sequence[Column], rows: TableRows) -> Table:
    """Return a table whose first heads stand alone, and whose columns have their groups above them."""
    groups: list[tuple[str, int]] = [("", len(heads))]
    for column in columns:
        name, span = groups[-1]
        groups[-1:] = [(name, span + 1)] if name == column.group else [(name, span), (column.group, 1)]
    return Table("", rows, (*heads, *(column.title for column in columns)), tuple(groups))


def repeats_table(cells: Sequence[Cell]) -> Table:
    """Return `summary_table`, or of repeated cells a row each: medians of their runs, with intervals of 95 %."""
    if not any(cell.round for cell in cells):
        return summary_table(cells)
    columns = used_columns(cells)
    rows: TableRows = []
    for name, of in by_cell(cells).items():
        standing = [cell for cell in of if cell.validity.stands]
        validity, gates, limits = (
            _words(texts)
            for texts in zip(*((one.validity.state, one.gates_text, one.limit_text) for one in of), strict=True)
        )
        texts = [_median_text(column, standing or of) for column in columns]
        figures = [figure_entry(text, stands=bool(standing)) for text in texts]
        runs = f"{name} ({len(standing)} of {len(of)} runs)" if len(standing) < len(of) else f"{name} ({len(of)} runs)"
        rows.append((runs, Mark(validity, "badge"), Mark(gates, "badge"), limits, *figures))
    return grouped(("cell", "validity", "gates", "limited by"), columns, rows)


def _words(texts: Sequence[str]) -> str:
    """Return the word of all runs, or each word with the number of its runs."""
    words = list(dict.fromkeys(texts))
    return words[0] if len(words) == 1 else ", ".join(f"{texts.count(word)} {word}" for word in words)


def _median_text(column: Column, cells: Sequence[Cell]) -> str:
    """Return the median of runs with its interval, if they are enough for one; of counts their sum.

    A figure that only some runs have says so, or its p99 would lie above the largest time of all.
    """
    if not column.keys:
        return _words([column.text(cell) for cell in cells])
    metrics = [COMPARED[key] for key in column.keys]
    values_of = [[value for cell in cells if (value := metric.value(cell)) is not None] for metric in metrics]
    if not all(values_of):
        return MISSING
    if len(metrics) > 1:
        return " / ".join(text_of(sum(values), metric.unit) for metric, values in zip(metrics, values_of, strict=True))
    interval, unit = median_interval(values_of[0]), metrics[0].unit
    least = AT_LEAST * any(metrics[0].is_least(cell) for cell in cells)
    text = f"{least}{text_of(float(np.median(values_of[0])), unit)}"
    if interval is not None:
        text = f"{text} ({text_of(interval.least, unit)} to {text_of(interval.most, unit)})"
    return text if len(values_of[0]) == len(cells) else f"{text} ({len(values_of[0])} of {len(cells)} runs)"


def claims_table(results: ResultSet) -> Table:
    """Return the findings of a published study, with their verdicts."""
    rows: TableRows = [
        (row.claim, row.published, row.reproduced_if, row.measured, (Mark(row.verdict, "badge"), row.reason))
        for row in results.summary.claims
    ]
    return Table("", rows, ("finding", "published", "reproduced if", "measured here", "verdict"))


def figures_table(results: ResultSet) -> Table:
    """Return the published figures behind a study's findings, per run, each published and measured."""
    texts = {(row.cell, row.figure): (row.published, row.measured) for row in results.summary.figures}
    names = dict.fromkeys(row.figure for row in results.summary.figures)
    cells = dict.fromkeys(row.cell for row in results.summary.figures)
    rows: TableRows = [
        (cell, *(text for name in names for text in texts.get((cell, name), ("", "")))) for cell in cells
    ]
    groups = (("run", 1), *((name, 2) for name in names))
    return Table("", rows, ("run", *(("published", "here") * len(names))), groups)
