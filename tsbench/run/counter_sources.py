"""Sources for the counter collector: the database server, and its control group."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tsbench.collect.recording import COUNTERS_TIMEOUT_S
from tsbench.results.panels import Panel
from tsbench.targets.target import Access

if TYPE_CHECKING:
    from tsbench.collect.counters import Source
    from tsbench.servers import cgroup
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target


def server_counters(target: Target, endpoint: str, schema: Schema) -> list[Source]:
    """Open a session for the server's counters; empty if the target has none or admits one process only."""
    if not target.has_counters or target.access is not Access.ANY_PROCESS:
        return []
    return [cast("Source", target.connect(endpoint, schema, timeout_s=COUNTERS_TIMEOUT_S))]


class GroupCounters:
    """A control group's counters as a source for `collect.counters`."""

    panels = (
        Panel(
            "CPU under its cap",
            "count",
            "rate",
            {"group.cpu_s": "used, cores", "group.throttled_s": "held back"},
            explains_stalls=True,
        ),
        Panel("Memory under its cap", "bytes", "gauge", {"group.memory_bytes": "with page cache"}),
    )

    def __init__(self, group: cgroup.Group) -> None:
        self._group = group

    def counters(self) -> dict[str, float]:
        """Return the group's counters, as `group.<name>`."""
        return {f"group.{name}": value for name, value in self._group.counters().items()}

    def close(self) -> None:
        """Do nothing: no file is open."""


def group_counters(group: cgroup.Group | None) -> list[GroupCounters]:
    """Return the group's counters as a source; empty without a group."""
    return [GroupCounters(group)] if group is not None else []
