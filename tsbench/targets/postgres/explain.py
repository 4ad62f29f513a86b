"""The answer to EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) as a plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tsbench.targets.base import Plan, grouped, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOOKED_AT = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
_BLOCKS = ("Shared Hit Blocks", "Shared Read Blocks")


def command(text: str) -> str:
    """Return the statement that executes a query and explains it; it takes the query's parameters."""
    return f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"


def plan(answer: Mapping[str, Any]) -> Plan:
    """Return the plan in an answer to `command`.

    Rows are examined where a table is read: those that a filter or a look at the block removed are among them. Blocks
    are those of all tables and indexes, whether they were in shared buffers or not.
    """
    top = answer["Plan"]
    scans = [node for node in nodes(top) if str(node.get("Node Type", "")).endswith("Scan")]
    scans = [node for node in scans if node["Node Type"] != "Custom Scan" or "Plans" not in node]  # those of chunks
    read = [node for node in scans if "Relation Name" in node]
    return Plan(
        grouped(_accesses(scans)) or str(top["Node Type"]),
        round(sum(_total(node, *_LOOKED_AT) for node in read)),
        round(_total(top, "Actual Rows")),
        float(answer["Execution Time"]),
        json.dumps(answer, default=str, ensure_ascii=False),
        blocks=sum(int(top.get(name, 0)) for name in _BLOCKS),
    )


def _total(node: Mapping[str, Any], *names: str) -> float:
    """Return the sum of figures over all loops of a node, which has means."""
    return float(node.get("Actual Loops", 1)) * sum(float(node.get(name, 0)) for name in names)


def _accesses(scans: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the scans that were executed, each with its index or table."""
    for node in scans:
        if node.get("Actual Loops", 1):
            yield str(node["Node Type"]), str(node.get("Index Name") or node.get("Relation Name") or "")
