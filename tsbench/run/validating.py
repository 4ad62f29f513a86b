"""The answers to the queries of a file (`tsbench validate`): compared with gold, or without gold with one another."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.answers import Answers
from tsbench.check.comparison import Difference, canonical, forms_of
from tsbench.check.gold import Gold
from tsbench.check.own_texts import difference_of
from tsbench.check.points import Feed
from tsbench.errors import Broken
from tsbench.model import Text
from tsbench.results.ledger import LEDGER_DTYPE, writes_of
from tsbench.run.asking import world_of
from tsbench.scenario.own_queries import known_differences
from tsbench.targets.base import Unsupported
from tsbench.targets.session import MEANT
from tsbench.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.check.comparison import Row
    from tsbench.model import Query, Rows
    from tsbench.run.keeping import Kept
    from tsbench.run.time_limits import Limits
    from tsbench.scenario.parts import WorldPart
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target
    from tsbench.workload.query_files import Asked


@dataclass(frozen=True, slots=True)
class Validated:
    """What one database answered.

    `hashes` has one of each answer by its query's number: those of two databases are equal if the answers are, to nine
    digits. `unproven` has the answers that nobody but another database can judge.
    """

    name: str
    family: str
    """What databases have in common that share their mistakes, such as TimescaleDB and PostgreSQL."""
    answers: Answers
    hashes: dict[int, int] = field(default_factory=dict)
    unproven: dict[int, list[Row]] = field(default_factory=dict)


def validate(
    part: WorldPart,
    window_ns: int,
    queries: Sequence[Asked],
    target: Target,
    schema: Schema,
    limits: Limits,
    *,
    kept: Kept | None = None,
) -> Validated:
    """Ask all queries and compare the answers with gold, computed from the world that the file names.

    Runs on `kept` data, of that world, have written more, which gold then knows, too.

    Raises
    ------
    Broken
        If the database does not answer.
    """
    world = world_of(part)
    feed, writes = Feed(world, world.ticks(window_ns), 1), [np.empty(0, LEDGER_DTYPE)]
    if kept is not None:
        spec = kept.spec()
        feed = Feed(world, world.ticks(window_ns), spec.block_points, spec.write_ticks(world)[1])
        writes += [writes_of(run) for run in kept.run_dirs]
    gold = Gold(feed, np.concatenate(writes), keeps_duplicates=schema.keeps_duplicates)
    known = known_differences(part.queries, target.name)
    validated = Validated(f"{target.name} {schema.name}", type(schema).__module__, Answers(known=known))
    with closing(limits.connect(target, schema)) as session:
        for asked in queries:
            query, answers = asked.query, validated.answers
            try:
                statement = schema.compile(query)
            except Unsupported as why:
                answers.unsupported[asked.kind] = str(why)
                continue
            try:
                rows = session.query(statement, query.columns)
            except MEANT as error:
                text = f"{target.name}: query {asked.number + 1} ({asked.kind}): {error}"
                raise Broken(text) from error
            answer = gold.packed(query, rows)
            if answers.lacks_gold(asked.kind, query) and not isinstance(answer, Difference):
                validated.unproven[asked.number] = answer.odd
                continue
            validated.hashes[asked.number] = _hash_of(query, rows)
            answers.answered(asked.kind, query, answer)
        validated.answers.compare(gold)
    return validated


def _hash_of(query: Query, rows: Rows) -> int:
    def short(value: Any) -> Any:
        return float(f"{value:.9g}") if isinstance(value, float) else value

    plain = canonical(rows, forms_of(query), odd_as_text=True)
    return hash((tuple(rows.columns), *(tuple(map(short, row)) for row in plain)))


def are_of_another_world(by_target: Sequence[Validated]) -> bool:
    """Return True if several databases answered alike, and most of each one's answers differ from the file's world."""
    if len(by_target) < 2 or any(2 * one.answers.wrong <= one.answers.checked for one in by_target):
        return False
    first, *others = by_target
    return all(one.hashes.get(number, hashed) == hashed for one in others for number, hashed in first.hashes.items())


@dataclass(slots=True)
class Agreement:
    """The answers to one kind of query without gold: their number, and those in which databases differ."""

    kind: str
    names: list[str]
    families: int
    asked: int = 0
    differ: int = 0
    outliers: dict[str, int] = field(default_factory=dict)
    """Number of answers that differ from those of most others, by database."""
    first: str = ""

    @property
    def sentence(self) -> str:
        """How far the databases agree, in one sentence."""
        if len(self.names) < 2:
            return f"'{self.kind}' has no gold: its {self.asked:,} answers are not checked; name a second database"
        of = f"'{self.kind}' has no gold: {self.asked - self.differ:,} of {self.asked:,} answers of"
        text = f"{of} {listed(self.names)} agree"
        text += "".join(f"; {name} differs from most others in {count:,}" for name, count in self.outliers.items())
        if self.first:
            text += f"; first {self.first}"
        alike = " (they are of one family, whose members may share a mistake)"
        return text + alike * (self.families < 2 and not self.differ)


def agreements(queries: Sequence[Asked], by_target: Sequence[Validated]) -> list[Agreement]:
    """Return how far the answers of databases agree, for each kind of query that has no gold."""
    kinds: dict[str, Agreement] = {}
    for asked in queries:
        query, answered = asked.query, [one for one in by_target if asked.number in one.unproven]
        if not isinstance(query, Text) or not answered:
            continue
        names, families = [one.name for one in answered], len({one.family for one in answered})
        kind = kinds.setdefault(asked.kind, Agreement(asked.kind, names, families))
        kind.asked += 1
        groups: dict[int, list[int]] = defaultdict(list)  # of databases that agree, by the first of them
        rows = [one.unproven[asked.number] for one in answered]
        for at, own in enumerate(rows):
            alike = next((first for first in groups if difference_of(query, rows[first], own) is None), at)
            groups[alike].append(at)
        if len(groups) == 1:
            continue
        kind.differ += 1
        first, *others = sorted(groups, key=lambda at: -len(groups[at]))
        for at in others if 2 * len(groups[first]) > len(names) else ():
            for name in (names[one] for one in groups[at]):
                kind.outliers[name] = kind.outliers.get(name, 0) + 1
        if not kind.first:
            difference = difference_of(query, rows[first], rows[others[0]])
            text = "" if difference is None else difference.text.partition(" (row ")[0]
            kind.first = f"query {asked.number + 1}, {text} ({names[others[0]]} instead of {names[first]})"
    return [*kinds.values()]
