"""Sources for the counter collector: the database server, and its control group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.collect.counters import Counting
from tsbench.collect.recording import COUNTERS_TIMEOUT_S
from tsbench.servers import cgroup

if TYPE_CHECKING:
    from tsbench.collect.counters import Source
    from tsbench.targets.base import Schema, Target


def server_counters(target: Target, endpoint: str, schema: Schema) -> list[Source]:
    """Open a session that can tell its server's counters; without that ability there is none."""
    session = target.connect(endpoint, schema, timeout_s=COUNTERS_TIMEOUT_S)
    if isinstance(session, Counting):
        return [session]
    session.close()
    return []


class GroupCounters:
    """What the kernel counts of a control group, as a source of `collect.counters`."""

    def __init__(self, group: cgroup.Group) -> None:
        self._group = group

    def counters(self) -> dict[str, float]:
        """The group's counters, as `group.<name>`."""
        return {f"group.{name}": value for name, value in self._group.counters().items()}

    def close(self) -> None:
        """Nothing is open."""


def group_counters() -> list[GroupCounters]:
    """The current group, if there is one."""
    group = cgroup.current()
    return [GroupCounters(group)] if group is not None else []
