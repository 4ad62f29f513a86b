"""[server] of a scenario: caps on a server's resources, from the file to the manifest, and the kernel's counts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsbench.errors import Broken, ServerDied, UserMistake
from tsbench.model import OpError
from tsbench.results.figures import CapFigures
from tsbench.results.manifest import Manifest
from tsbench.results.panels import Panel
from tsbench.servers import cgroup
from tsbench.servers.interrupts import Deferral

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.results.rundir import RunDir
    from tsbench.scenario.parts import ServerPart


@contextmanager
def capped(part: ServerPart, run: RunDir) -> Iterator[cgroup.Group | None]:
    """Yield a control group with these caps, None without caps; afterwards env.json has the kernel's counts.

    Raises
    ------
    ServerDied
        In place of any error after the kernel killed the server for lack of memory.
    """
    if not part.caps:
        yield None
        return
    group = cgroup.create(part.caps)
    try:
        yield group
    except (Broken, UserMistake, OpError, OSError) as error:
        if not group.killed():
            raise
        raise ServerDied(group.killed(), f"the error that followed: {error}") from error
    finally:
        with Deferral():
            if (manifest := Manifest.read(run)) is not None:
                manifest.with_server({"caps": group.summary()}).write(run)
            group.remove()


def killed(group: cgroup.Group | None) -> str:
    """Return a message if the server in the group was killed for lack of memory, else ""."""
    return group.killed() if group is not None else ""


def figures(group: cgroup.Group | None) -> CapFigures | None:
    """Return the caps and what the kernel counted under them, as a summary has them; None without caps."""
    if group is None:
        return None
    told = group.summary()
    measured, in_all = told["measured"] or {}, told["in_all"]
    periods = measured.get("nr_periods")
    return CapFigures(
        cpu=told["cpu"],
        memory_bytes=told["memory_bytes"],
        cpu_s=measured.get("cpu_s"),
        throttled_percent=100 * measured["nr_throttled"] / periods if periods else None,
        memory_peak_bytes=in_all.get("memory_peak_bytes"),
        oom_kills=in_all.get("oom_kills"),
    )


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
