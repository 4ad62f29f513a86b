"""The answers to the queries of a file (`tsbench validate`): compared with gold, or without gold with one another."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check.agreement import Witness, family_of
from tsbench.check.answers import Answers
from tsbench.check.comparison import canonical, forms_of
from tsbench.check.gold import Gold
from tsbench.check.halves import ask_halves
from tsbench.check.points import Feed
from tsbench.errors import Broken
from tsbench.results.ledger import LEDGER_DTYPE, writes_of
from tsbench.run.asking import world_of
from tsbench.scenario.own_queries import known_differences
from tsbench.targets.base import Unsupported
from tsbench.targets.session import MEANT

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    digits. `family` is that of `Witness`.
    """

    name: str
    family: str
    answers: Answers
    hashes: dict[int, int] = field(default_factory=dict)

    @property
    def witness(self) -> Witness:
        """The answers without gold, for a comparison with those of others."""
        return Witness(
            self.name, self.family, {one.number: one for one in self.answers.unproven if not one.against_gold}
        )


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
    validated = Validated(f"{target.name} {schema.name}", family_of(schema), Answers(known=known))
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
            if not answers.lacks_gold(query, asked.kind):
                validated.hashes[asked.number] = _hash_of(query, rows)
            answers.answered(asked.kind, query, answer, asked.number)
        try:
            ask_halves(gold, session, schema, validated.answers)
        except MEANT as error:
            raise Broken(f"{target.name}: a query about half of a window: {error}") from error
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
