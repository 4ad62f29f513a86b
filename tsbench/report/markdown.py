"""Result sets as GitHub-flavoured Markdown, fit for a comment on a pull request: tables, and no links or images.

Texts that scenarios and servers gave stand in code spans, where nothing is markup, a mention or a link.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tsbench.report import view
from tsbench.report.metrics import MISSING, load_text, load_texts, time_label, used_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.model import Verdict
    from tsbench.report.cells import Cell

MOST = 300
"""A reason is cut here: a comment is read, and the whole text is in report.html."""


def document(sets: Sequence[tuple[str, str, Sequence[Cell]]]) -> str:
    """The page of result sets, each with its scenario's name, its question and its runs."""
    return "\n\n".join(_section(*one) for one in sets) + "\n"


def _section(name: str, question: str, cells: Sequence[Cell]) -> str:
    true = sum(cell.verdict.valid is True for cell in cells)
    parts = [f"### tsbench: {_code(name)}"]
    if question:
        parts.append(_code(question, most=1_000))
    parts.append(f"{true} of {len(cells)} run{'s' if len(cells) != 1 else ''} with a true verdict.")
    parts.append(_runs(cells))
    ways = load_texts(cells)
    how = f" ({ways[0]})" if len(ways) == 1 else ""
    struck = "; figures without a true verdict are struck out" if true < len(cells) else ""
    parts.append(f"p50, p99 and max are {time_label(cells)}s{how}{struck}.")
    reasons = [f"- {_code(c.name)} {_word(c.verdict)}: {_why(c.verdict)}" for c in cells if c.verdict.valid is not True]
    parts.extend(["\n".join(reasons)] if reasons else [])
    gates = [(cell, gate, verdict) for cell in cells for gate, verdict in view.gates(cell)]
    if gates:
        rows = [(_code(cell.name), _code(gate), _word(v), _code(v.reason)) for cell, gate, v in gates]
        parts.append(_table(("run", "gate", "holds", "measured"), rows, right=0))
    return "\n\n".join(parts)


def _runs(cells: Sequence[Cell]) -> str:
    columns = used_columns(cells)
    loops = len(load_texts(cells)) > 1
    heads = ["run", "verdict", "limited by", *(["loop"] if loops else [])]
    rows = []
    for cell in cells:
        figures = [_figure(column.text(cell), cell.verdict) for column in columns]
        way = [load_text(cell)] if loops else []
        rows.append((_code(cell.name), _word(cell.verdict), cell.limited_by, *way, *figures))
    titles = [f"{column.group} {column.title}" for column in columns]
    return _table((*heads, *titles), rows, right=len(columns))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int) -> str:
    sides = ["---"] * (len(heads) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, sides, *rows))


def _figure(text: str, verdict: Verdict) -> str:
    return text if text == MISSING or verdict.valid is True else f"~~{text}~~"


def _word(verdict: Verdict) -> str:
    return verdict.word if verdict.valid is True else f"**{verdict.word}**"


def _why(verdict: Verdict) -> str:
    return _code(verdict.reason) if verdict.reason else "no reason was given"


def _code(text: str, most: int = MOST) -> str:
    """A code span that a table's cell can hold: one line, no backticks, bars escaped."""
    line = re.sub(r"\s+", " ", text).strip().replace("`", "'") or MISSING
    short = line if len(line) <= most else f"{line[: most - 1]}…"
    return f"`{short.replace('|', chr(92) + '|')}`"
