"""How far answers can be believed: one word for each kind of query, and what stands behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.results.figures import READ_BACK
from tsbench.text import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.report.cells import Cell
    from tsbench.results.figures import Agreement, AnswerCounts
    from tsbench.results.summary import Summary

GOLD, AGREED, HALVES, REPEATS, NONE, DIFFERS = "gold", "agreed", "halves", "repeats", "not checked", "differs"
"""Words for what speaks for answers, the strongest first, and at last what speaks against them."""
_RANK = {word: rank for rank, word in enumerate((DIFFERS, NONE, REPEATS, HALVES, AGREED, GOLD))}


def evidence(summary: Summary, agreements: Sequence[Agreement]) -> list[tuple[str, str, str]]:
    """Return for each kind of query of a run the word, and what stands behind it in a sentence."""
    answers = summary.answers
    if answers is None:
        return []
    told = [(kind, GOLD, f"{count:,} compared") for kind, count in answers.by_kind.items() if kind != READ_BACK]
    told += [(kind, *_without_gold(kind, answers, agreements)) for kind in answers.unchecked]
    known = {kind for kind, *_ in told} | {*answers.unsupported}
    asked = summary.measured.ops.items() if summary.measured is not None else ()
    return told + [
        (name, NONE, "none of its answers was compared")
        for name, op in asked
        if op.kind == "query" and name not in known
    ]


def weakest(cell: Cell) -> str:
    """Return the word for those answers of a run for which the least speaks, "" if it has none."""
    words = (word for _, word, _ in evidence(cell.summary, cell.agreements))
    return min(words, key=_RANK.__getitem__, default="")


def too_weak(summary: Summary, agreements: Sequence[Agreement], least: str) -> list[str]:
    """Return sentences on the kinds of query of a run for which less speaks than the word `least`."""
    return [
        f"{summary.cell}: evidence for the answers to '{kind}' is '{word}', and check.evidence asks for '{least}'"
        for kind, word, _ in evidence(summary, agreements)
        if _RANK[word] < _RANK[least]
    ]


def _without_gold(kind: str, answers: AnswerCounts, agreements: Sequence[Agreement]) -> tuple[str, str]:
    if kind in answers.unsteady:
        return DIFFERS, answers.unsteady[kind]
    agreement = next((one for one in agreements if one.kind == kind), None)
    if agreement is not None and (agreement.differ or agreement.is_proof):
        return DIFFERS if agreement.differ else AGREED, agreement.sentence
    if count := answers.halved.get(kind):
        return HALVES, f"{count:,} answers are what those about the halves of their windows come to"
    if count := answers.repeated.get(kind):
        return REPEATS, f"{count:,} answers under load were the same when asked again; nothing says that they are right"
    return NONE, answers.unchecked[kind]


def unproven_remarks(cell: Cell) -> list[str]:
    """Return sentences on the answers of a run that nothing but the same database speaks for, and those without any."""
    kinds: dict[str, list[str]] = {}
    without = cell.summary.answers.unchecked if cell.summary.answers is not None else {}
    for kind, word, _ in evidence(cell.summary, cell.agreements):
        if kind not in without:
            continue
        kinds.setdefault(word, []).append(f"'{kind}'")
    repeated, none = kinds.get(REPEATS), kinds.get(NONE)
    same = "they were the same when asked again, which does not say that they are right"
    return [
        *([f"the answers to {joined(repeated)} have no gold: {same}"] if repeated else []),
        *([f"not checked: the answers to {joined(none)}, which have no gold"] if none else []),
    ]


def agreement_lines(agreements: Sequence[Agreement]) -> tuple[str, ...]:
    """Return lines on answers without gold, as of the answer: each kind that differs, then those that agree."""
    lines = []
    for one in agreements:
        if one.against_gold:
            all_of = f"all of {joined(one.names)}, which agree with each other"
            lines.append(
                f"Gold: {one.asked:,} answers to '{one.kind}' differ from gold on {all_of}: look at its gold first."
            )
        if one.differ:
            who = (
                "; ".join(f"{name} differs from most others" for name in one.outliers) or "nobody knows which is right"
            )
            of = f"{one.differ:,} of {one.asked:,} answers to '{one.kind}' on {joined(one.names)}"
            lines.append(f"Differ: {of}: {who}.")
    if agreed := [one for one in agreements if one.is_proof and not one.against_gold]:
        kinds, names = joined([f"'{one.kind}'" for one in agreed]), joined(agreed[0].names)
        asked = sum(one.asked for one in agreed)
        lines.append(f"Answers: those to {kinds} have no gold; {names} agree on all {asked:,} that were compared.")
    return tuple(lines)
