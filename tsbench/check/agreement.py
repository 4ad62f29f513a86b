"""Answers that other databases judge: those to texts without gold, and those that differ from a text's gold."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tsbench.check.own_texts import difference_of
from tsbench.check.sample import head_of, loads
from tsbench.model import Top
from tsbench.results.figures import Agreement
from tsbench.results.limits import LIMITS
from tsbench.results.reading import read_lines

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tsbench.check.comparison import Difference, Row
    from tsbench.targets.base import Schema

UNPROVEN = "unproven.jsonl"
"""The file of a run with such answers, for a comparison with those of other runs."""
MOST_VALUES = 200_000
"""Values of the answers that a run keeps for other databases; further ones are compared with none."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """An answer that other databases judge: its query's kind and number, names and kinds of columns, canonical rows.

    They are the first ones of an order if there is a `top`. It has no gold, or differs from it (`against_gold`).
    """

    kind: str
    number: int
    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Row]
    top: Top | None = None
    against_gold: bool = False

    @property
    def values(self) -> int:
        """Number of values in it."""
        return len(self.rows) * len(self.columns)


def write_unproven(path: Path, answers: Iterable[Unproven]) -> None:
    """Write answers, up to `MOST_VALUES`, into a file: a line each, in the form of those that load processes keep."""
    left = MOST_VALUES
    with path.open("w", encoding="utf-8") as file:
        for one in answers:
            left -= one.values
            if left < 0:
                return
            head = {"op": one.kind, "number": one.number, "columns": one.columns, "against_gold": one.against_gold}
            head |= {} if one.top is None else {"top": asdict(one.top)}
            file.write(f'{json.dumps(head)[:-1]}, "rows": {json.dumps(one.rows)}}}\n')


def read_unproven(path: Path) -> list[Unproven]:
    """Return the answers in a file that `write_unproven` wrote; none if it does not exist.

    Raises
    ------
    ValueError
        If a line is none.
    """
    answers = []
    for _, line in read_lines(path, LIMITS.answer_bytes) if path.exists() else ():
        head, given = head_of(line), loads(line)
        columns, rows = given.get("columns"), given.get("rows")
        if not isinstance(columns, list) or not isinstance(rows, list) or not all(type(row) is list for row in rows):
            raise ValueError(f"{path.name}: a line is no answer")
        named = tuple((str(name), str(kind)) for name, kind in columns)
        try:
            top = None if given.get("top") is None else Top(**given["top"])
        except TypeError:
            raise ValueError(f"{path.name}: an answer has another order") from None
        if top is not None and (top.column not in dict(named) or type(top.limit) is not int):
            raise ValueError(f"{path.name}: an answer has no column of its order")
        against = given.get("against_gold") is True
        answers.append(Unproven(head["op"], head["number"], named, [*map(tuple, rows)], top, against))
    return answers


@dataclass(frozen=True, slots=True)
class Witness:
    """A database whose answers are compared with those of others: its name, and the answers by their questions."""

    name: str
    family: str
    """What databases have in common that share their mistakes (`family_of`)."""
    answers: Mapping[Hashable, Unproven]


def family_of(schema: Schema) -> str:
    """Return what databases have in common that share their mistakes, as one and its extension do."""
    return type(schema).__module__


def agreements(witnesses: Iterable[Witness]) -> list[Agreement]:
    """Return how far the answers of databases agree, for each kind of query that has no gold."""
    kinds: dict[str, dict[Hashable, list[tuple[Witness, Unproven]]]] = {}
    for witness in witnesses:
        for question, answer in witness.answers.items():
            kinds.setdefault(answer.kind, {}).setdefault(question, []).append((witness, answer))
    return [_agreement(kind, [*questions.values()]) for kind, questions in kinds.items()]


def _difference(one: Unproven, other: Unproven) -> Difference | None:
    return difference_of(one.columns, one.rows, other.rows, one.top)


def _agreement(kind: str, questions: Sequence[Sequence[tuple[Witness, Unproven]]]) -> Agreement:
    """Return how far the answers to the questions of a kind agree, each with those of all databases that answered."""
    differ, outliers, first = 0, Counter[str](), ""
    against_gold = any(answer.against_gold for question in questions for _, answer in question)
    if against_gold:  # those that all databases got wrong; of the others each says itself which
        most = max(map(len, questions))
        questions = [question for question in questions if len(question) == most]
    for question in questions:
        names, answers = [witness.name for witness, _ in question], [answer for _, answer in question]
        groups: dict[int, list[int]] = defaultdict(list)  # of databases that agree, by the first of them
        for at, own in enumerate(answers):
            alike = (group for group in groups if _difference(answers[group], own) is None)
            groups[next(alike, at)].append(at)
        if len(groups) == 1:
            continue
        differ += 1
        most, *others = sorted(groups, key=lambda at: -len(groups[at]))
        if 2 * len(groups[most]) > len(names):
            outliers.update(names[at] for group in others for at in groups[group])
        if not first:
            difference = _difference(answers[most], answers[others[0]])
            text = "" if difference is None else difference.short
            first = f"query {answers[0].number + 1}, {text} ({names[others[0]]} instead of {names[most]})"
    answered = {id(witness): witness for question in questions for witness, _ in question}.values()
    return Agreement(
        kind=kind,
        names=tuple(witness.name for witness in answered),
        families=len({witness.family for witness in answered}),
        asked=len(questions),
        differ=differ,
        outliers=dict(outliers),
        first=first,
        against_gold=against_gold,
    )
