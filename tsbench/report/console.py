"""The summary of a result set on the console."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich import table as rich_table
from rich.text import Text

from tsbench.report.answer import answer_of, reasons_of, said_reasons
from tsbench.report.cells import ResultSet, by_cell
from tsbench.report.findings import names_of, told_once
from tsbench.report.metrics import MISSING, first_ops, load_texts, page_caches, remarks, time_label
from tsbench.report.tables import Mark, repeats_table
from tsbench.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from tsbench.report.cells import Cell
    from tsbench.report.tables import Entry, Table
    from tsbench.results.summary import ClaimRow

_COLOURS = {
    **dict.fromkeys(("valid", "pass", "reproduced"), "green"),
    **dict.fromkeys(("invalid", "not reproduced"), "red"),
    **dict.fromkeys(("inconclusive", "undecided", "not judged"), "yellow"),
    "none": "dim",
}


@dataclass(frozen=True, slots=True)
class _Column:
    group: str
    title: str
    texts: tuple[Text, ...]

    @property
    def head(self) -> str:
        """Title in two or three lines; it begins with the group, so that split tables repeat the group."""
        return f"{self.group}\n{self.title.replace(' / ', f'{chr(10)}/ ')}"

    @property
    def width(self) -> int:
        return max(*(text.cell_len for text in self.texts), *map(len, self.head.split("\n")))


def print_summary(console: Console, results: Path) -> None:
    """Print the answer, and the figures of every run with the reasons for invalid figures and failed gates.

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
    result_set = ResultSet.read(results)
    cells = result_set.cells
    answered = answer_of(result_set)
    for line in answered:
        label, _, text = printable_line(line).partition(": ")
        console.print(Text.assemble((f"{label}:".ljust(14), "bold"), text), soft_wrap=not console.is_terminal)
    console.print()
    table = repeats_table(cells)
    name, *columns = _columns(table)
    for fitting in _fit(columns, console.width - name.width - 2):
        console.print(_table([name, *fitting]))
        console.print()
    for sentence in result_set.summary.found:
        console.print(Text(sentence, style="bold"), soft_wrap=not console.is_terminal)
        console.print()
    if result_set.summary.claims:
        _print_claims(console, result_set.summary.claims)
    ways = load_texts(cells)
    how = f" ({ways[0]})" if len(ways) == 1 else ""
    any_struck = any(isinstance(entry, Mark) and entry.kind == "struck" for row in table.rows for entry in row)
    struck = " Figures between ~ are struck out: they are not valid." if any_struck else ""
    if any(column.title in {"p50", "p99", "max"} for column in columns):
        kinds = f"p50, p99 and max are {time_label(cells)}s{how}.{struck}"
        console.print(Text(kinds, style="dim"), soft_wrap=not console.is_terminal)
    _print_once(console, _cold_starts(cells))
    _print_once(console, ((cell.name, f"{said}.") for cell in cells for said in remarks(cell)), "dim")
    for state, names, reason in reasons_of(cells, said_reasons(cells, answered)):
        why = Text.assemble((state, _COLOURS[state]), f": {reason}" if reason else "")
        _print_of(console, names, why)
    for outcome in ("fail", "undecided", "not judged"):
        _print_once(console, _gates(cells, outcome), _COLOURS.get(outcome, "bold red"))


def _print_claims(console: Console, claims: Sequence[ClaimRow]) -> None:
    """Print the findings of a study; the page has also when a finding counts as reproduced."""
    table = rich_table.Table(box=None, header_style="bold", pad_edge=False)
    for head in ("finding", "published", "measured here", "verdict"):
        table.add_column(head, overflow="fold")
    for row in claims:
        outcome = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
        table.add_row(
            *map(Text, (row.claim, row.published, row.measured)), Text(outcome, _COLOURS.get(row.verdict, ""))
        )
    console.print(table)
    console.print()


def _print_once(console: Console, said: Iterable[tuple[str, str]], style: str = "") -> None:
    """Print remarks on runs, each text once with the names of its runs, of many the first."""
    for names, text in told_once(said):
        _print_of(console, names, Text(text, style))


def _print_of(console: Console, names: Sequence[str], remark: Text) -> None:
    console.print(Text.assemble((names_of(names), "bold"), ": ", remark), soft_wrap=not console.is_terminal)


def _cold_starts(cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """Yield a name and a line about cold starts: each cell's pages in memory, and the first ops of its repeats."""
    for label, pages in page_caches(cells):
        for cell in cells:
            if cell.summary.cold is not None:
                yield cell.unrepeated, f"{label} after the cold start: {pages}"
    for name, of in by_cell(cells).items():
        for label, time in first_ops(of):
            yield name, f"{label} after the cold start: {time}"


def _gates(cells: Sequence[Cell], outcome: str) -> Iterator[tuple[str, str]]:
    """Yield the gates with that outcome; of a run that is not valid only those that failed."""
    for cell in cells:
        for gate in cell.summary.gates:
            if gate.state == outcome and (outcome == "fail" or cell.validity.is_valid):
                yield cell.name, gate.sentence


def _columns(summary: Table) -> list[_Column]:
    texts = zip(*(map(_text, row) for row in summary.rows), strict=True)
    columns = zip(summary.group_of, summary.heads, texts, strict=True)
    return [_Column("limited", "by", column) if head == "limited by" else _Column(group, head, column)
            for group, head, column in columns]  # fmt: skip


def _text(entry: Entry) -> Text:
    if isinstance(entry, Mark) and entry.kind == "struck":
        return Text(f"~{entry.text}~", "dim strike")  # pipes and many terminals show no strike
    if isinstance(entry, Mark):
        return Text(entry.text, _COLOURS.get(entry.text, "bold red"))
    return Text(str(entry), {MISSING: "dim", "load generator": "yellow", "unknown": "yellow"}.get(str(entry), ""))


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


def _table(columns: Sequence[_Column]) -> rich_table.Table:
    table = rich_table.Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "left" if column.group in {"", "limited"} else "right"
        table.add_column(Text(column.head, justify=side), justify=side, vertical="bottom", no_wrap=True)
    for row in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*row)
    return table
