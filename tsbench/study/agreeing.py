"""The answers without gold of a campaign's runs, compared between its databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tsbench.check.agreement import UNPROVEN, Witness, agreements, read_unproven
from tsbench.results.reading import damaged
from tsbench.results.rundir import RunDir
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from pathlib import Path

    from tsbench.check.agreement import Unproven
    from tsbench.results.figures import Agreement
    from tsbench.results.summary import Summary


def agreed(results: Path, summaries: Iterable[Summary]) -> list[Agreement]:
    """Return how far the databases of a result set agree, for each kind of query without gold that two answered.

    Runs of one database are one witness; questions are the same where world, window, kind and number are.

    Raises
    ------
    UserMistake
        If a file of a run is damaged.
    """
    witnesses: dict[str, dict[Hashable, Unproven]] = {}
    families: dict[str, str] = {}
    answered = [one for one in summaries if (results / one.cell / UNPROVEN).exists()]
    layouts = {(one.target, one.schema_) for one in answered}
    for summary in answered:
        run = RunDir(results / summary.cell)
        spec = run.read_json("spec.json")
        world = json.dumps([spec["world"], spec["load"]["window"]], sort_keys=True)
        name, schema = summary.target, summary.schema_
        witness = f"{name} {schema}" if sum(of == name for of, _ in layouts) > 1 else name
        target = TARGETS.get(name)
        families[witness] = type(target.schemas[schema]).__module__ if target and schema in target.schemas else name
        try:
            for answer in read_unproven(run / UNPROVEN):
                witnesses.setdefault(witness, {})[world, answer.kind, answer.number] = answer
        except ValueError as error:
            raise damaged(run / UNPROVEN, error) from None
    return [
        one
        for one in agreements(Witness(name, families[name], answers) for name, answers in witnesses.items())
        if len(one.names) > 1
    ]
