"""The answers without gold of a campaign's runs, compared between its databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tsbench.check.agreement import UNPROVEN, Witness, agreements, family_of, read_unproven
from tsbench.results.reading import damaged
from tsbench.results.rundir import RunDir
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping
    from pathlib import Path

    from tsbench.check.agreement import Unproven
    from tsbench.results.figures import Agreement
    from tsbench.results.summary import Summary


class Witnesses:
    """The databases of a result set with their answers without gold; each run's file is read once."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._answers: dict[tuple[str, str], dict[Hashable, Unproven]] = {}
        """By target and schema; runs of one database are one witness."""
        self._read: set[tuple[str, str | None]] = set()
        """The runs whose files were read, and when they started: one that is repeated has another file."""

    def agreed(self, summaries: Collection[Summary]) -> list[Agreement]:
        """Return how far the databases agree, for each kind of query without gold that two answered.

        Of kinds with gold, those on whose answers all databases agree with each other and not with gold. Questions are
        the same where world, window, kind and number are.

        Raises
        ------
        UserMistake
            If a file of a run is damaged.
        """
        layouts = {(one.target, one.schema_) for one in summaries}
        names = {
            (of, schema): f"{of} {schema}" if sum(of == one for one, _ in layouts) > 1 else of for of, schema in layouts
        }
        asked: dict[str, set[str]] = {}  # the databases that answered each kind, rightly or not
        for one in summaries:
            self._take(one)
            for kind in one.answers.by_kind if one.answers is not None else ():
                asked.setdefault(kind, set()).add(names[one.target, one.schema_])
        found = agreements(Witness(names[of], _family(*of), answers) for of, answers in self._answers.items())
        return [one for one in found if len(one.names) > 1 and _is_fair(one, asked)]

    def _take(self, summary: Summary) -> None:
        run = RunDir(self.results / summary.cell)
        if (summary.cell, summary.started) in self._read or not run.has(UNPROVEN):
            return
        self._read.add((summary.cell, summary.started))
        spec = run.read_json("spec.json")
        world = json.dumps([spec["world"], spec["load"]["window"]], sort_keys=True)
        answers = self._answers.setdefault((summary.target, summary.schema_), {})
        try:
            answers |= {(world, one.kind, one.number): one for one in read_unproven(run / UNPROVEN)}
        except ValueError as error:
            raise damaged(run / UNPROVEN, error) from None


def _family(target: str, schema: str) -> str:
    known = TARGETS.get(target)
    return family_of(known.schemas[schema]) if known is not None and schema in known.schemas else target


def _is_fair(agreement: Agreement, asked: Mapping[str, set[str]]) -> bool:
    """Return whether all databases that answered agree, where the answers differ from gold: then it may be wrong."""
    return not agreement.against_gold or (agreement.is_proof and {*agreement.names} == asked[agreement.kind])
