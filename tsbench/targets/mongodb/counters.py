"""MongoDB's counters from serverStatus: their names, and how the report plots them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsbench.results.panels import Panel

_COMMANDS = ("insert", "update", "aggregate", "find", "getMore")
COMMAND_PANELS = (
    Panel("Commands", "count", "rate", {f"metrics.commands.{name}.total": name for name in _COMMANDS}),
    Panel("Failed commands", "count", "rate", {f"metrics.commands.{name}.failed": name for name in _COMMANDS}),
)
"""What the report plots of any server."""
PANELS = (
    *COMMAND_PANELS,
    Panel(
        "Documents",
        "count",
        "rate",
        {
            "metrics.document.inserted": "inserted",
            "metrics.document.returned": "returned",
            "metrics.queryExecutor.scannedObjects": "examined",
        },
    ),
    Panel("Traffic", "bytes", "rate", {"network.bytesIn": "received", "network.bytesOut": "sent"}),
    Panel(
        "Read and written by WiredTiger",
        "bytes",
        "rate",
        {
            "wiredTiger.cache.bytes read into cache": "read",
            "wiredTiger.cache.bytes written from cache": "written back",
            "wiredTiger.log.log bytes written": "journal",
        },
    ),
    Panel(
        "Cache of WiredTiger",
        "bytes",
        "gauge",
        {
            "wiredTiger.cache.bytes currently in the cache": "in use",
            "wiredTiger.cache.tracked dirty bytes in the cache": "not yet written",
        },
    ),
)
"""What the report plots of MongoDB."""
_PARTS = ("connections.current", "connections.active", "opcounters", "metrics.document", "metrics.queryExecutor",
          "network", "mem.resident", *(f"metrics.commands.{name}" for name in _COMMANDS))  # fmt: skip
_PLOTTED = frozenset(name for panel in PANELS for name in panel.counters)


def of(status: Mapping[str, Any]) -> dict[str, float]:
    """Return the counters of a serverStatus by their dotted names, those that mean something to readers."""
    return {
        name: float(value)
        for name, value in _flat(status, "")
        if name in _PLOTTED or any(name == part or name.startswith(f"{part}.") for part in _PARTS)
    }


def _flat(values: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Return all numbers of a document by their dotted names."""
    flat: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat.append((prefix + name, value))
    return flat
