"""Collectors for the host, the load processes and the server's processes, with psutil once a second."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tsbench.collect.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.collect.sampler import Row

LOCUST = "tsbench.drive.locust_main"
"""The module that load processes are started with."""

MEMORY_SHARE = 0.01
"""Share of one core's time for reading memory sizes.

The kernel adds up a process's PSS page by page: 0.1 ms for a small one, 4 ms for 1 GB in small pages, so 100 sessions
on large shared buffers would cost a third of a core.
"""


class HostCollector(Sampler):
    """Samples the whole host, and the load processes together (see `results.rundir.HOST_COLUMNS`).

    These are the processes `client`; if none are given, the children of this process that run Locust.
    """

    name, what = "host", "the host's figures"

    def __init__(self, client: Tree | None = None) -> None:
        self._client = client or Tree(_load_processes)
        self._disk = psutil.disk_io_counters()
        self._cpu = psutil.cpu_times()
        super().__init__(lambda passed_s: [self.sample(passed_s)])

    def sample(self, passed_s: float) -> Row:
        """Return what the host and the load processes have used since the last call, `passed_s` ago."""
        disk, self._disk = self._disk, psutil.disk_io_counters()
        cpu, self._cpu = self._cpu, psutil.cpu_times()
        per_s = 1 / passed_s if passed_s and self._disk and disk else 0.0
        return {
            "cpu_percent": _busy_percent(cpu, self._cpu),
            "memory_bytes": psutil.virtual_memory().used,
            "disk_read_bytes": round((self._disk.read_bytes - disk.read_bytes) * per_s) if per_s else 0,
            "disk_write_bytes": round((self._disk.write_bytes - disk.write_bytes) * per_s) if per_s else 0,
            **{f"client_{name}": value for name, value in self._client.usage(passed_s).items()},
        }


class ServerCollector(Sampler):
    """Samples the server's process tree (`results.rundir.SERVER_COLUMNS`); no rows while it has no process."""

    name, what = "server", "the figures of the server's processes"

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._tree = Tree(pids)
        super().__init__(lambda passed_s: _running([self._tree.usage(passed_s)]))


class NodesCollector(Sampler):
    """Samples each process tree of a server of several nodes (`results.rundir.NODES_COLUMNS`)."""

    name, what = "nodes", "the figures of the nodes' processes"

    def __init__(self, nodes: Mapping[str, Callable[[], Sequence[int]]]) -> None:
        self._trees = {name: Tree(pids) for name, pids in nodes.items()}
        super().__init__(self._sample)

    def _sample(self, passed_s: float) -> Sequence[Row]:
        return _running([{"node": name, **tree.usage(passed_s)} for name, tree in self._trees.items()])


def _running(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["rss_bytes"]]


@dataclass(slots=True)
class _Used:
    """Resources used by processes since their start, including those of their children that have ended."""

    cpu_s: float = 0.0
    read_bytes: int = 0
    write_bytes: int = 0


class Tree:
    """Processes with all their descendants, except some (`without`) and theirs.

    The kernel adds the CPU and I/O of a child to its parent's when the parent waits for it. So the sum over a tree of
    each process's own use *and that of its ended children* grows by exactly what was used, whichever processes start or
    end; differences per process would count a child's I/O a second time in its parent, and lose its last CPU.
    """

    def __init__(self, roots: Callable[[], Sequence[int]], *, without: Callable[[], Sequence[int]] = tuple) -> None:
        self._roots, self._without = roots, without
        self._last = _Used()
        self._own_cpu_s: dict[psutil.Process, float] = {}
        self._memory_bytes = 0
        self._memory_due = 0.0

    def usage(self, passed_s: float) -> Row:
        """Return the resources used since the last call, per second; memory and open files at this moment."""
        members = self._members()
        now, own_cpu_s, files = _Used(), {}, 0
        for process in members:
            with suppress(psutil.Error):
                times = process.cpu_times()
                own_cpu_s[process] = times.user + times.system
                now.cpu_s += own_cpu_s[process] + times.children_user + times.children_system
                io = _io(process)
                now.read_bytes += io[0]
                now.write_bytes += io[1]
                files += _open_files(process)
        # The use of a child that no parent waits for (SIGCHLD ignored, or adopted by init) is lost when it ends: then
        # count what the others used themselves.
        floor = sum(cpu_s - self._own_cpu_s.get(process, 0.0) for process, cpu_s in own_cpu_s.items())
        used = _Used(
            max(now.cpu_s - self._last.cpu_s, floor if self._own_cpu_s else 0.0),
            max(0, now.read_bytes - self._last.read_bytes),
            max(0, now.write_bytes - self._last.write_bytes),
        )
        self._last, self._own_cpu_s = now, own_cpu_s
        per_s = 1 / passed_s if passed_s else 0.0
        return {
            "cpu_percent": 100 * used.cpu_s * per_s,
            "rss_bytes": self._memory(members),
            "read_bytes": round(used.read_bytes * per_s),
            "write_bytes": round(used.write_bytes * per_s),
            "open_files": files,
        }

    def _members(self) -> list[psutil.Process]:
        members = self._with_descendants(self._roots())
        others = self._with_descendants(self._without())
        return [process for pid, process in members.items() if pid not in others]

    def _with_descendants(self, roots: Sequence[int]) -> dict[int, psutil.Process]:
        members: dict[int, psutil.Process] = {}
        for pid in roots:
            if pid not in members:
                with suppress(psutil.Error):
                    members[pid] = psutil.Process(pid)
                    for child in children_of(pid):
                        members |= self._with_descendants([child])
        return members

    def _memory(self, members: Sequence[psutil.Process]) -> int:
        """Return the memory of all processes, read again only as often as MEMORY_SHARE allows."""
        started = time.monotonic()
        if started >= self._memory_due or not self._memory_bytes:
            total = 0
            for process in members:
                with suppress(psutil.Error):
                    total += _memory(process)
            self._memory_bytes = total
            ended = time.monotonic()
            self._memory_due = ended + (ended - started) / MEMORY_SHARE
        return self._memory_bytes if members else 0


def _busy_percent(before: Any, after: Any) -> float:
    """Return the percentage of all cores' time that was neither idle nor waiting for a disk.

    psutil's own function returns 0 at its first call.
    """
    guests = ("guest", "guest_nice")  # contained in user and nice
    spent = {name: getattr(after, name) - getattr(before, name) for name in after._fields if name not in guests}
    whole = sum(spent.values())
    return 100 * (whole - spent["idle"] - spent.get("iowait", 0.0)) / whole if whole > 0 else 0.0


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children.

    They are the kernel's own lists, one for each thread. psutil looks through all processes of the machine: 2.5 ms for
    200 of them, once a second and tree, during which a server on two cores waits for one of them.
    """
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - this is called for each process once a second
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - as above
                children += map(int, file.read().split())
    except OSError:  # it or a thread of it has ended meanwhile, or a platform without these lists
        with suppress(psutil.Error):
            children = [child.pid for child in psutil.Process(pid).children()]
    return children


def _load_processes() -> list[int]:
    """Return the ids of Locust and its workers: the children of this process that run Locust."""
    processes = []
    for child in children_of(os.getpid()):
        with suppress(psutil.Error):
            if LOCUST in psutil.Process(child).cmdline():
                processes.append(child)
    return processes


def _memory(process: psutil.Process) -> int:
    """Return the PSS if the kernel has it, so that a server's shared memory counts once; else the RSS."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - psutil would read it for USS too
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # another user's process, or a platform without this
        pass
    return int(process.memory_info().rss)


def _io(process: psutil.Process) -> tuple[int, int]:
    try:
        counters = process.io_counters()
    except (psutil.Error, AttributeError):  # another user's process, or a platform without this
        return 0, 0
    return int(counters.read_bytes), int(counters.write_bytes)


def _open_files(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except (psutil.Error, AttributeError):
        return 0
