"""The answers without gold of a campaign's runs, compared between its databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tsbench.check.agreement import UNPROVEN, Witness, agreements, read_unproven
from tsbench.results.reading import damaged
from tsbench.results.rundir import RunDir
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from pathlib import Path

    from tsbench.check.agreement import Unproven
    from tsbench.results.figures import Agreement
    from tsbench.results.summary import Summary


def agreed(results: Path, summaries: Iterable[Summary]) -> list[Agreement]:
    """Return how far the databases of a result set agree, for each kind of query without gold that two answered.

    Of kinds with gold, those on whose answers all databases agree with each other and not with gold.

    Runs of one database are one witness; questions are the same where world, window, kind and number are.

    Raises
    ------
    UserMistake
        If a file of a run is damaged.
    """
    witnesses: dict[str, dict[Hashable, Unproven]] = {}
    families: dict[str, str] = {}
    asked: dict[str, set[str]] = {}  # the databases that answered each kind, rightly or not
    summaries = [*summaries]
    layouts = {(one.target, one.schema_) for one in summaries}
    for summary in summaries:
        name, schema = summary.target, summary.schema_
        witness = f"{name} {schema}" if sum(of == name for of, _ in layouts) > 1 else name
        for kind in summary.answers.by_kind if summary.answers is not None else ():
            asked.setdefault(kind, set()).add(witness)
        run = RunDir(results / summary.cell)
        if not run.has(UNPROVEN):
            continue
        target = TARGETS.get(name)
        families[witness] = type(target.schemas[schema]).__module__ if target and schema in target.schemas else name
        spec = run.read_json("spec.json")
        world = json.dumps([spec["world"], spec["load"]["window"]], sort_keys=True)
        try:
            for answer in read_unproven(run / UNPROVEN):
                witnesses.setdefault(witness, {})[world, answer.kind, answer.number] = answer
        except ValueError as error:
            raise damaged(run / UNPROVEN, error) from None
    found = agreements(Witness(name, families[name], answers) for name, answers in witnesses.items())
    return [one for one in found if len(one.names) > 1 and _is_fair(one, asked)]


def _is_fair(agreement: Agreement, asked: Mapping[str, set[str]]) -> bool:
    """Return whether all databases that answered agree, where the answers differ from gold: then it may be wrong."""
    return not agreement.against_gold or (agreement.is_proof and {*agreement.names} == asked[agreement.kind])
