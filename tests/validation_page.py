"""The page of `make validation`: tables of right answers, written from columns and read again to keep the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tsbench.scenario.use_case import built_in_cases
from tsbench.targets.registry import TARGETS
from tsbench.workload.queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KINDS = [*dict.fromkeys([*QUERIES, *(kind for case in built_in_cases().values() for kind in case.queries)])]
"""All built-in kinds of query: those of any use case, then each one's own."""
WIDTH = 9
"""Columns of one table."""
HEAD = """# Which queries are right where

This page is the output of `make validation`: seeded queries of every kind were asked of layouts of databases, and
compared with what was generated. A number is that of right answers. With
`make validation ARGS='--only mongodb --layouts per-value'` one layout is asked anew, and the rest stays as it is; with
`--use-case iot` the kinds of one world are. The list at the end has the day on which each layout was asked; trucks were
asked later.

"""
_ASKED = re.compile(r"- (\S+) \(([^)]*)\): (.*); (\d+) queries of each kind, (\S+)")
_REFUSED = "in no table, since every query is "
_NUMBERED = re.compile(r"(.*) \((\d+)\)")


@dataclass
class Column:
    """The outcome by kind of query on one layout: a number of right answers, or another text."""

    name: str
    version: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    day: str = ""
    queries: int = 0

    @property
    def refused(self) -> str:
        """The text that all cells have, if the database cannot make the layout; else ""."""
        (text, *more) = {*self.cells.values()} or {""}
        return text if not more and ": " in text else ""

    @property
    def place(self) -> tuple[str, str]:
        """Target and layout."""
        target, _, layout = self.name.partition("<br>")
        return target, layout


def page(columns: Iterable[Column]) -> str:
    """Return the page: tables, with numbers in place of reasons, then reasons, versions and days."""
    asked = sorted((each for each in columns if each.cells), key=_order)
    shown = [each for each in asked if not each.refused]
    reasons: dict[str, int] = {}
    tables = [_table(shown[first : first + WIDTH], reasons) for first in range(0, len(shown), WIDTH)]
    text = HEAD + "\n".join(tables) + "".join(f"\n{number}. {reason}" for reason, number in reasons.items())
    return f"{text}\n\n" + "".join(f"- {line}\n" for line in _asked(asked))


def _table(columns: Sequence[Column], reasons: dict[str, int]) -> str:
    def shown(text: str) -> str:
        verdict, has_reason, reason = text.partition(": ")
        return f"{verdict} ({reasons.setdefault(reason, len(reasons) + 1)})" if has_reason else text

    rows = [[kind, *(shown(each.cells.get(kind, "")) for each in columns)] for kind in KINDS]
    lines = [["query", *(each.name for each in columns)], ["---"] * (len(columns) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _asked(columns: Sequence[Column]) -> Iterator[str]:
    alike: dict[tuple[str, str, int, str], list[str]] = {}
    for each in columns:
        target, layout = each.place
        version = f"{_REFUSED}{each.refused}" if each.refused else each.version or "version not known"
        alike.setdefault((target, version, each.queries, each.day), []).append(layout)
    for (target, version, queries, day), layouts in alike.items():
        yield f"{target} ({', '.join(layouts)}): {version}; {queries} queries of each kind, {day}"


def read(text: str) -> dict[str, Column]:
    """Return the columns of a page by name."""
    names: list[str] = []
    found: dict[str, Column] = {}
    reasons: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("| "):
            kind, *cells = (cell.strip() for cell in line.strip("|\n").split(" | "))
            if kind == "query":
                names = cells
                found |= {name: Column(name) for name in names}
            elif kind != "---":
                for name, cell in zip(names, cells, strict=True):
                    found[name].cells[kind] = cell
        elif numbered := re.fullmatch(r"(\d+)\. (.*)", line):
            reasons[numbered[1]] = numbered[2]
        elif asked := _ASKED.fullmatch(line):
            _read_asked(asked, found)
    for each in found.values():
        for kind, cell in each.cells.items():
            if numbered := _NUMBERED.fullmatch(cell):
                each.cells[kind] = f"{numbered[1]}: {reasons[numbered[2]]}"
    return found


def _read_asked(asked: re.Match[str], found: dict[str, Column]) -> None:
    target, layouts, version, queries, day = asked.groups()
    for layout in layouts.split(", "):
        one = found.setdefault(f"{target}<br>{layout}", Column(f"{target}<br>{layout}"))
        one.version, one.queries, one.day = version, int(queries), day
        if version.startswith(_REFUSED):
            one.version, one.cells = "", dict.fromkeys(KINDS, version.removeprefix(_REFUSED))


def _order(column: Column) -> tuple[int, int]:
    target, layout = column.place
    return [*TARGETS].index(target), [*TARGETS[target].schemas].index(layout)
