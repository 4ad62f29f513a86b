"""Result sets as GitHub-flavoured Markdown for a comment on a pull request: tables, without links and images.

Texts from scenarios and servers are in code spans, which have no markup, mentions or links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.report.metrics import MISSING, load_text, load_texts, remarks, time_label, used_columns
from tsbench.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.report.cells import Cell, ClaimRow, FigureTable

MOST = 300
"""Maximum length of a reason: comments should be short, and report.html has the whole text."""


@dataclass(frozen=True, slots=True)
class Study:
    """What a result set says about a published study: its findings, and the figures behind them."""

    claims: Sequence[ClaimRow] = ()
    figures: FigureTable | None = None


def document(sets: Sequence[tuple[str, str, Sequence[Cell]]], studies: Sequence[Study] = ()) -> str:
    """Return the Markdown of result sets, each with its scenario's name, its question and its runs.

    `studies` are those of the result sets, in the same order; none by default.
    """
    of = [*studies, *[Study()] * (len(sets) - len(studies))]
    return "\n\n".join(_section(*one, study) for one, study in zip(sets, of, strict=True)) + "\n"


def _section(name: str, question: str, cells: Sequence[Cell], study: Study) -> str:
    valid = sum(cell.validity.is_valid for cell in cells)
    passed = sum(cell.outcome.passed for cell in cells)
    parts = [f"### tsbench: {_code(name)}"]
    if question:
        parts.append(_code(question, most=1_000))
    parts.append(f"{passed} of {len(cells)} run{'s' if len(cells) != 1 else ''} valid with all gates passed.")
    parts.append(_runs(cells))
    ways = load_texts(cells)
    how = f" ({_word(ways[0])})" if len(ways) == 1 else ""
    struck = "; figures of runs that are not valid are struck out" if valid < len(cells) else ""
    parts.append(f"p50, p99 and max are {time_label(cells)}s{how}{struck}.")
    found = [f"- {_code(cell.name)}: {_code(text)}" for cell in cells for text in remarks(cell)]
    parts.extend(["\n".join(found)] if found else [])
    doubtful = [(cell.name, cell.validity) for cell in cells if not cell.validity.is_valid]
    reasons = [f"- {_code(name)} **{validity.state}**: {_why(validity.reason)}" for name, validity in doubtful]
    parts.extend(["\n".join(reasons)] if reasons else [])
    gates = [(cell, gate) for cell in cells for gate in cell.outcome.gates if not gate.built_in or gate.state == "fail"]
    if gates:
        rows = [(_code(cell.name), _code(g.gate), _strong(g.state, "pass"), _code(g.text)) for cell, g in gates]
        parts.append(_table(("run", "gate", "outcome", "measured"), rows, right=0))
    parts.extend(_study(study))
    return "\n\n".join(parts)


def _study(study: Study) -> list[str]:
    """Return the table of findings, and the folded table of figures."""
    found = []
    if study.claims:
        heads = ("finding", "published", "reproduced if", "measured here", "verdict")
        rows = [
            (*map(_code, (row.claim, row.published, row.reproduced_if, row.measured)), _outcome(row))
            for row in study.claims
        ]
        found.append(_table(heads, rows, right=0))
    if study.figures is not None:
        titles = [_code(f"{name} {which}") for name in study.figures.figures for which in ("published", "here")]
        lines = [(_code(run), *(_code(text) for pair in pairs for text in pair))
                 for run, pairs in study.figures.runs.items()]  # fmt: skip
        found.append("<details><summary>Figures behind the findings, published and measured here</summary>")
        found += [_table(("run", *titles), lines, right=len(titles)), "</details>"]
    return found


def _outcome(row: ClaimRow) -> str:
    return f"{_strong(row.verdict, 'reproduced')}{f': {_code(row.reason)}' if row.reason else ''}"


def _runs(cells: Sequence[Cell]) -> str:
    columns = used_columns(cells)
    loops = len(load_texts(cells)) > 1
    heads = ["run", "validity", "gates", "limited by", *(["loop"] if loops else [])]
    rows = []
    for cell in cells:
        figures = [_figure(column.text(cell), stands=column.stands(cell)) for column in columns]
        way = [_word(load_text(cell))] if loops else []
        states = (_strong(cell.validity.state, "valid"), _strong(cell.gates_text, "pass"))
        rows.append((_code(cell.name), *states, _word(cell.limited_by), *way, *figures))
    titles = [f"{column.group} {column.title}" for column in columns]
    return _table((*heads, *titles), rows, right=len(columns))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int) -> str:
    sides = ["---"] * (len(heads) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, sides, *rows))


def _figure(text: str, *, stands: bool) -> str:
    return text if text == MISSING or stands else f"~~{text}~~"


def _strong(word: str, good: str) -> str:
    return word if word == good else f"**{word}**"


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
