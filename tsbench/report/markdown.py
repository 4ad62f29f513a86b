"""Result sets as GitHub-flavoured Markdown for a comment on a pull request: tables, without links and images.

First come validity and gates, then the answer and the sides in at most six columns; the rest is folded.
Texts from scenarios and servers are in code spans, which have no markup, mentions or links.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tsbench.report.answer import answer_of, judged_sides, reasons_of
from tsbench.report.findings import names_of, told_once
from tsbench.report.head import head_of
from tsbench.report.metrics import MISSING, load_texts, remarks, time_label
from tsbench.report.tables import Mark, claims_table, figures_table, repeats_table
from tsbench.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.report.cells import Cell, ResultSet
    from tsbench.report.head import Head
    from tsbench.report.tables import Entry

MOST = 300
"""Maximum length of a reason: comments should be short, and report.html has the whole text."""
_COLUMNS = 6
_GOOD = {"valid", "pass", "none", "reproduced"}
_ORDER = ("invalid", "fail", "inconclusive", "not judged", "undecided", "valid", "pass")
"""Outcomes of validity and gates, the worst first."""


def document(sets: Sequence[ResultSet]) -> str:
    """Return the Markdown of result sets, each with its scenario's name, its question, its runs and its study."""
    return "\n\n".join(map(_section, sets)) + "\n"


def _section(results: ResultSet) -> str:
    judged = judged_sides(results)
    parts = [f"### tsbench: {_code(results.name)}"]
    if results.question:
        parts.append(_plain(results.question))
    parts.append(_table(("outcome", "condition", "runs", "measured"), _verdicts(results), right=0))
    lines = (line.partition(": ") for line in answer_of(results, judged))
    parts.append("\n".join(f"- **{label}**: {_plain(text)}" for label, _, text in lines))
    parts.append(_sides(head_of(judged)))
    parts.extend(_claims(results))
    parts.extend(_folded("All figures", _figures(results.cells)))
    parts.extend(_folded("Gates of every run", _gates(results.cells)))
    parts.extend(_study(results))
    return "\n\n".join(parts)


def _verdicts(results: ResultSet) -> list[tuple[str, ...]]:
    """Return a row for the validity of the runs and one for each gate, with the runs to which the worst applies."""
    runs = [(cell.name, cell.validity.state, cell.validity.reason) for cell in results.cells]
    told: dict[str, list[tuple[str, str, str]]] = {}
    for cell in results.cells:
        for gate in cell.summary.shown_gates:
            told.setdefault(gate.gate, []).append((cell.name, gate.state, gate.text))
    for side, gate in results.ratios:
        told.setdefault(gate.gate, []).append((side, gate.state, gate.text))
    return [_verdict("figures are valid", runs), *(_verdict(_code(gate), of) for gate, of in told.items())]


def _verdict(condition: str, of: Sequence[tuple[str, str, str]]) -> tuple[str, str, str, str]:
    """Return the worst outcome of a condition, how many of (run, outcome, reason) have it, and why the first has."""
    worst = min((state for _, state, _ in of), key=_ORDER.index)
    having = [(name, reason) for name, state, reason in of if state == worst]
    name, reason = having[0]
    why = reason if len(of) == 1 else f"{name}: {reason}" if reason else name
    number = f"{len(having)} of {len(of)}"
    return _strong(worst), condition, number, MISSING if worst in _GOOD and len(of) > 1 else _plain(why or worst, MOST)


def _sides(head: Head) -> str:
    """Return the table of sides with the figures that fit beside name and verdict."""
    titles = ("", "verdict", *head.titles[: _COLUMNS - 2])
    rows = [
        (_code(row.name), _strong(row.verdict.text), *map(_figure, row.entries[: _COLUMNS - 2])) for row in head.rows
    ]
    return _table(titles, rows, right=len(titles) - 2)


def _figures(cells: Sequence[Cell]) -> list[str]:
    """Return the table of all figures and what helps to read them."""
    ways = load_texts(cells)
    how = f" ({_word(ways[0])})" if len(ways) == 1 else ""
    struck = "" if all(cell.validity.is_valid for cell in cells) else "; those that are not valid are struck out"
    told = told_once((cell.name, text) for cell in cells for text in remarks(cell))
    lines = [f"- {_code(names_of(names))}: {_plain(text, MOST)}" for names, text in told]
    for state, names, reason in reasons_of(cells):
        lines.append(f"- {_code(names_of(names))} **{state}**: {_why(reason)}")
    return [_runs(cells), f"p50, p99 and max are {time_label(cells)}s{how}{struck}.", "\n".join(lines)]


def _gates(cells: Sequence[Cell]) -> list[str]:
    """Return the table of the gates of every run; of a single run the first table has them all."""
    if len(cells) < 2:
        return []
    failed = [(cell, gate) for cell in cells for gate in cell.summary.shown_gates]
    rows = [(_code(cell.name), _code(g.gate), _strong(g.state), _plain(g.text, MOST)) for cell, g in failed]
    return [_table(("run", "gate", "outcome", "measured"), rows, right=0)] if rows else []


def _folded(title: str, parts: Sequence[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", *filter(None, parts), "</details>"] if parts else []


def _claims(results: ResultSet) -> list[str]:
    if not results.summary.claims:
        return []
    claims = claims_table(results)
    return [_table(claims.heads, (tuple(map(_entry, row)) for row in claims.rows), right=0)]


def _study(results: ResultSet) -> list[str]:
    """Return the folded table of figures behind the findings."""
    if not results.summary.figures:
        return []
    figures = figures_table(results)
    titles = [_code(f"{name} {which}") for name, which in zip(figures.group_of[1:], figures.heads[1:], strict=True)]
    lines = (tuple(map(_entry, row)) for row in figures.rows)
    shown = _table(("run", *titles), lines, right=len(titles))
    return _folded("Figures behind the findings, published and measured here", [shown])


def _runs(cells: Sequence[Cell]) -> str:
    table = repeats_table(cells)
    states = table.groups[0][1]
    heads = [f"{group} {head}".strip() for group, head in zip(table.group_of, table.heads, strict=True)]
    rows = [
        (
            _code(str(row[0])),
            *map(_entry, row[1:3]),
            *(_word(str(text)) for text in row[3:states]),
            *map(_figure, row[states:]),
        )
        for row in table.rows
    ]
    return _table(heads, rows, right=len(heads) - states)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int) -> str:
    sides = ["---"] * (len(heads) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, sides, *rows))


def _entry(entry: Entry) -> str:
    """Return a state in bold unless it is good, with the reason if it has one; any other text in a code span."""
    if isinstance(entry, tuple):
        return ": ".join(_entry(part) for part in entry if str(part))
    return _strong(entry.text) if isinstance(entry, Mark) else _code(entry)


def _figure(entry: Entry) -> str:
    """Return a figure, the best in bold and one that is not valid struck out; its interval is in brackets."""
    if isinstance(entry, tuple):
        figure, *interval = entry
        return " ".join([_figure(figure), *(f"({part})" for part in interval)])
    if not isinstance(entry, Mark):
        return str(entry)
    return {"best": f"**{entry}**", "struck": f"~~{entry}~~"}.get(entry.kind, str(entry))


def _strong(word: str) -> str:
    return word if word in _GOOD else f"**{word}**"


def _word(text: str) -> str:
    """Return a text of plain words as it is, any other in a code span."""
    return text if re.fullmatch(r"[\w ,.-]*", text) else _code(text)


def _why(reason: str) -> str:
    return _plain(reason, MOST) if reason else "no reason is known"


def _plain(text: str, most: int = 1_000) -> str:
    """Return a sentence as text; one that might hold a link, a mention or markup of a server's as a code span."""
    if re.search(r"[@#`\[\]\\|]|://|www\.", text):
        return _code(text, most)
    return re.sub(r"[*_~&]", r"\\\g<0>", _short(text, most)).replace("<", "&lt;")


def _code(text: str, most: int = MOST) -> str:
    """Return a code span for a table's cell: one line, no backticks, bars escaped."""
    short = _short(text.replace("`", "'") or MISSING, most)
    return f"`{short.replace('|', chr(92) + '|')}`"


def _short(text: str, most: int) -> str:
    line = printable_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"
