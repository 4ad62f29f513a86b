"""Result sets as GitHub-flavoured Markdown for a comment on a pull request: tables, without links and images.

Texts from scenarios and servers are in code spans, which have no markup, mentions or links.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tsbench.report.answer import answer
from tsbench.report.metrics import MISSING, load_texts, remarks, time_label
from tsbench.report.repeats import repeats_table
from tsbench.report.sides import sides_of
from tsbench.report.tables import Mark, claims_table, figures_table
from tsbench.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.report.cells import Cell, ResultSet
    from tsbench.report.tables import Entry

MOST = 300
"""Maximum length of a reason: comments should be short, and report.html has the whole text."""
_GOOD = {"valid", "pass", "reproduced"}


def document(sets: Sequence[ResultSet]) -> str:
    """Return the Markdown of result sets, each with its scenario's name, its question, its runs and its study."""
    return "\n\n".join(map(_section, sets)) + "\n"


def _section(found: ResultSet) -> str:
    cells = found.cells
    valid = sum(cell.validity.is_valid for cell in cells)
    passed = sum(cell.summary.passed for cell in cells)
    parts = [f"### tsbench: {_code(found.name)}"]
    if found.question:
        parts.append(_code(found.question, most=1_000))
    parts.append("\n".join(f"- {_code(sentence, most=1_000)}" for sentence in answer(sides_of(cells))))
    parts.append(f"{passed} of {len(cells)} run{'s' if len(cells) != 1 else ''} valid with all gates passed.")
    parts.append(_runs(cells))
    ways = load_texts(cells)
    how = f" ({_word(ways[0])})" if len(ways) == 1 else ""
    struck = "; figures of runs that are not valid are struck out" if valid < len(cells) else ""
    parts.append(f"p50, p99 and max are {time_label(cells)}s{how}{struck}.")
    reading = [f"- {_code(cell.name)}: {_code(text)}" for cell in cells for text in remarks(cell)]
    parts.extend(["\n".join(reading)] if reading else [])
    doubtful = [(cell.name, cell.validity) for cell in cells if not cell.validity.is_valid]
    reasons = [f"- {_code(name)} **{validity.state}**: {_why(validity.reason)}" for name, validity in doubtful]
    parts.extend(["\n".join(reasons)] if reasons else [])
    gates = [(cell, gate) for cell in cells for gate in cell.summary.gates if not gate.built_in or gate.state == "fail"]
    if gates:
        rows = [(_code(cell.name), _code(g.gate), _strong(g.state), _code(g.text)) for cell, g in gates]
        parts.append(_table(("run", "gate", "outcome", "measured"), rows, right=0))
    parts.extend(_study(found))
    return "\n\n".join(parts)


def _study(found: ResultSet) -> list[str]:
    """Return the table of findings, and the folded table of figures."""
    parts = []
    if found.summary.claims:
        claims = claims_table(found)
        parts.append(_table(claims.heads, (tuple(map(_entry, row)) for row in claims.rows), right=0))
    if found.summary.figures:
        figures = figures_table(found)
        names = [name for name, span in figures.groups for _ in range(span)][1:]
        titles = [_code(f"{name} {which}") for name, which in zip(names, figures.heads[1:], strict=True)]
        lines = (tuple(map(_entry, row)) for row in figures.rows)
        parts.append("<details><summary>Figures behind the findings, published and measured here</summary>")
        parts += [_table(("run", *titles), lines, right=len(titles)), "</details>"]
    return parts


def _runs(cells: Sequence[Cell]) -> str:
    table = repeats_table(cells)
    states = table.groups[0][1]
    groups = [group for group, span in table.groups for _ in range(span)]
    heads = [f"{group} {head}".strip() for group, head in zip(groups, table.heads, strict=True)]
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
    return f"~~{entry}~~" if isinstance(entry, Mark) else str(entry)


def _strong(word: str) -> str:
    return word if word in _GOOD else f"**{word}**"


def _word(text: str) -> str:
    """Return a text of plain words as it is, any other in a code span."""
    return text if re.fullmatch(r"[\w ,.-]*", text) else _code(text)


def _why(reason: str) -> str:
    return _code(reason) if reason else "no reason is known"


def _code(text: str, most: int = MOST) -> str:
    """Return a code span for a table's cell: one line, no backticks, bars escaped."""
    line = printable_line(text).replace("`", "'") or MISSING
    short = line if len(line) <= most else f"{line[: most - 1]}…"
    return f"`{short.replace('|', chr(92) + '|')}`"
