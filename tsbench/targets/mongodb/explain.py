"""The answer to `explain` as a plan: of MongoDB with its figures, of FerretDB, which has PostgreSQL's plan, without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tsbench.targets.base import Plan, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NO_PLAN = "rejectedPlans"
_SCANS = ("SCAN", "IDHACK", "Scan")


def command(collection: str, stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the command that executes a pipeline and explains it."""
    pipeline = {"aggregate": collection, "pipeline": list(stages), "cursor": {}}
    return {"explain": pipeline, "verbosity": "executionStats"}


def plan(answer: Mapping[str, Any]) -> Plan:
    """Return the plan in an answer to `command`.

    A pipeline whose first part is a search has that search's figures; those of the whole are in the last stage, and the
    time in it is that of all stages. Shards' documents are added, their times are not: they work side by side.
    """
    stats = list(_named(answer, "executionStats"))
    lasts = [stages[-1] for stages in _named(answer, "stages") if stages]
    returned = _total(lasts, "nReturned")
    times = [one["executionTimeMillis"] for one in stats if "executionTimeMillis" in one]
    times += [one["executionTimeMillisEstimate"] for one in lasts if "executionTimeMillisEstimate" in one]
    return Plan(
        ", ".join(dict.fromkeys(_accesses(answer))) or "unknown",
        _total(stats, "totalDocsExamined"),
        _total(stats, "nReturned") if returned is None else returned,
        float(max(times)) if times else None,
        json.dumps(answer, default=str, ensure_ascii=False),
    )


def _total(documents: Sequence[Mapping[str, Any]], name: str) -> int | None:
    numbers = [int(one[name]) for one in documents if name in one]
    return sum(numbers) if numbers else None


def _accesses(plan: object) -> Iterator[str]:
    """Yield the scans of the chosen plans, with their indexes."""
    for node in nodes(plan, _NO_PLAN, "command"):
        # MongoDB's stages, or those of PostgreSQL that read a table: they have no plans below them.
        stage = node.get("stage") or ("" if "Plans" in node else node.get("Node Type"))
        if isinstance(stage, str) and stage.endswith(_SCANS):
            index = node.get("indexName") or node.get("Index Name")
            yield f"{stage} {index}" if index else stage


def _named(plan: object, name: str) -> Iterator[Any]:
    """Yield all values of that name in a nested document."""
    return (node[name] for node in nodes(plan, _NO_PLAN, "command") if name in node)
