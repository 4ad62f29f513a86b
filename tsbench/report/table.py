"""The summary of a result set on the console."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from tsbench.report.cells import claims_of, knee_of, load_cells
from tsbench.report.metrics import MISSING, load_text, load_texts, remarks, time_label, used_columns
from tsbench.report.view import first_ops

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from tsbench.report.cells import Cell

_COLOURS = {
    **dict.fromkeys(("valid", "pass", "reproduced"), "green"),
    **dict.fromkeys(("invalid", "not reproduced"), "red"),
    **dict.fromkeys(("inconclusive", "not judged"), "yellow"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    group: str
    title: str
    texts: tuple[Text, ...]
    right: bool = True

    @property
    def head(self) -> str:
        """Title in two or three lines; it begins with the group, so that split tables repeat the group."""
        return f"{self.group}\n{self.title.replace(' / ', f'{chr(10)}/ ')}"

    @property
    def width(self) -> int:
        return max(*(text.cell_len for text in self.texts), *map(len, self.head.split("\n")))


def print_summary(console: Console, results: Path) -> None:
    """Print the figures of every run of a result set, with the reasons for invalid figures and failed gates.

    On a narrow console the table is split into several, each with the runs' names: no text is cut off.

    Parameters
    ----------
    console
        The console to print to.
    results
        The directory of a result set or of one run.

    Raises
    ------
    UserMistake
        If the directory has no run.
    """
    cells = load_cells(results)
    name = _Column("", "run", tuple(Text(cell.name) for cell in cells), right=False)
    ways = load_texts(cells)
    how = f" ({ways[0]})" if len(ways) == 1 else ""
    for columns in _fit(_columns(cells), console.width - name.width - 2):
        console.print(_table([name, *columns]))
        console.print()
    knee = knee_of(results)
    if knee:
        console.print(Text(knee, style="bold"))
        console.print()
    rows = claims_of(results)
    if rows:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for head in ("finding", "published", "measured here", "verdict"):  # the page says when a finding is reproduced
            table.add_column(head, overflow="fold")
        for row in rows:
            outcome = Text(row.outcome, style=_COLOURS.get(row.verdict, ""))
            table.add_row(*map(Text, (row.claim, row.published, row.measured)), outcome)
        console.print(table)
        console.print()
    console.print(f"p50, p99 and max are {time_label(cells)}s{how}.", style="dim")
    for cell in cells:
        _print_remarks(console, cell)
    for cell in cells:
        _print_faults(console, cell)


def _print_remarks(console: Console, cell: Cell) -> None:
    """Print what helps to read a run's figures: its first ops after a cold start, and what to know about them."""
    for label, time in first_ops(cell):
        console.print(Text.assemble((cell.name, "bold"), f": {label} after the cold start: {time}"), soft_wrap=True)
    for remark in remarks(cell):
        console.print(Text(f"{cell.name}: {remark}.", style="dim"), soft_wrap=True)


def _print_faults(console: Console, cell: Cell) -> None:
    """Print why a run is not valid, and its gates that failed or could not be judged."""
    validity = cell.validity
    if not validity.is_valid:
        text = Text.assemble((cell.name, "bold"), ": ", (validity.state, _COLOURS[validity.state]))
        console.print(text.append(f": {validity.reason}" if validity.reason else ""), soft_wrap=True)
    for gate in cell.outcome.gates:
        if gate.state == "fail" or (gate.state == "not judged" and validity.is_valid):
            style = _COLOURS.get(gate.state, "bold red")
            console.print(Text.assemble((cell.name, "bold"), ": ", (gate.sentence, style)), soft_wrap=True)


def _columns(cells: Sequence[Cell]) -> list[_Column]:
    states = [cell.validity.state for cell in cells]
    gates = [cell.gates_text for cell in cells]
    limits = [cell.limited_by for cell in cells]
    marks = ["yellow" if limit in {"load generator", "unknown"} else "" for limit in limits]
    found = [
        _Column("", "validity", tuple(Text(state, style=_COLOURS[state]) for state in states), right=False),
        _Column("", "gates", tuple(Text(text, style=_COLOURS.get(text, "bold red")) for text in gates), right=False),
        _Column("limited", "by", tuple(Text(t, style=s) for t, s in zip(limits, marks, strict=True)), right=False),
    ]
    if len(load_texts(cells)) > 1:
        found.append(_Column("", "loop", tuple(Text(load_text(cell)) for cell in cells), right=False))
    for column in used_columns(cells):
        marked = tuple(_figure(column.text(cell), stands=column.stands(cell)) for cell in cells)
        found.append(_Column(column.group, column.title, marked))
    return found


def _figure(text: str, *, stands: bool) -> Text:
    return Text(text, style="dim" if text == MISSING else "" if stands else "dim strike")


def _fit(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Return the columns of each table: as many groups as fit into the width; only a wider group is split."""
    tables: list[list[_Column]] = [[]]
    used = 0
    for _, group in groupby(columns, key=lambda column: column.group):
        members = list(group)
        whole = sum(column.width + 2 for column in members)
        for column in members:
            starts = column is members[0] and used + whole > width
            if tables[-1] and (starts or used + column.width + 2 > width):
                tables.append([])
                used = 0
            tables[-1].append(column)
            used += column.width + 2
    return tables


def _table(columns: Sequence[_Column]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(Text(column.head, justify=side), justify=side, vertical="bottom", no_wrap=True)
    for row in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*row)
    return table
