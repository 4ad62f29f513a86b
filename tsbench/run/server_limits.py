"""[server] of a scenario: caps on what a server may use, from the file to the manifest."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tsbench.errors import Broken, ServerDied, UserMistake
from tsbench.model import OpError
from tsbench.servers import cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.results.rundir import RunDir
    from tsbench.scenario.parts import ServerPart


@contextmanager
def capped(part: ServerPart, run: RunDir) -> Iterator[cgroup.Group | None]:
    """Yield a control group with these caps, None without caps; env.json then tells what the kernel counted.

    Raises
    ------
    ServerDied
        In place of an error of which the cause is that the kernel killed the server for lack of memory.
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
        raise ServerDied(group.killed(), f"what was seen of it: {error}") from error
    finally:
        if run.has("env.json"):
            env = run.read_json("env.json")
            run.write_json("env.json", {**env, "server": {**env.get("server", {}), "caps": group.summary()}})
        group.remove()


def killed(group: cgroup.Group | None) -> str:
    """Return that the server in the group was killed for lack of memory, as a sentence; else ""."""
    return group.killed() if group is not None else ""


def summary(group: cgroup.Group | None) -> dict[str, Any]:
    """Return the part of a run's summary about its caps; nothing where there are none."""
    if group is None:
        return {}
    told = group.summary()
    measured, in_all = told["measured"] or {}, told["in_all"]
    periods = measured.get("nr_periods")
    found = {
        "cpu": told["cpu"],
        "memory_bytes": told["memory_bytes"],
        "cpu_s": measured.get("cpu_s"),
        "throttled_percent": 100 * measured["nr_throttled"] / periods if periods else None,
        "memory_peak_bytes": in_all.get("memory_peak_bytes"),
        "oom_kills": in_all.get("oom_kills"),
    }
    return {"caps": found}
