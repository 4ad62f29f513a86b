"""This host, the load processes and the server's processes, sampled once a second with psutil."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PERIOD_S = 1.0


class _Sampler:
    """Calls a function once a second in a thread, until it is stopped."""

    def __init__(self, sample: Callable[[float], Mapping[str, float]], *, period_s: float = PERIOD_S) -> None:
        self._sample, self._period_s = sample, period_s
        self._rows: list[Mapping[str, float]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._sample(self._period_s)  # the first difference needs a mark to be taken from
        self._thread.start()

    def _work(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(self._period_s):
            now = time.monotonic()
            with suppress(psutil.Error):  # a process that ends while it is looked at is simply gone
                self._rows.append({"second": time.time() - self._period_s, **self._sample(now - last)})
            last = now

    def stop(self) -> Sequence[Mapping[str, float]]:
        self._stopping.set()
        self._thread.join(5 * self._period_s)
        return self._rows


class HostCollector:
    """The whole host, and the children of this process that are load processes (see `rundir.HOST_COLUMNS`)."""

    name = "host"

    def __init__(self) -> None:
        self._client = _Tree(_load_processes)
        self._disk = psutil.disk_io_counters()
        self._sampler = _Sampler(self._sample)

    def _sample(self, passed_s: float) -> Mapping[str, float]:
        before, self._disk = self._disk, psutil.disk_io_counters()
        usage = self._client.usage(passed_s)
        return {
            "cpu_percent": psutil.cpu_percent(),
            "memory_bytes": psutil.virtual_memory().used,
            "disk_read_bytes": self._disk.read_bytes - before.read_bytes if self._disk and before else 0,
            "disk_write_bytes": self._disk.write_bytes - before.write_bytes if self._disk and before else 0,
            "client_cpu_percent": usage["cpu_percent"],
            "client_rss_bytes": usage["rss_bytes"],
        }

    def start(self) -> None:
        """Begin to watch."""
        self._sampler.start()

    def stop(self) -> Sequence[Mapping[str, float]]:
        """Stop and give the rows."""
        return self._sampler.stop()


class ServerCollector:
    """The server's process tree (see `rundir.SERVER_COLUMNS`); no rows for an embedded database."""

    name = "server"

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._tree = _Tree(pids)
        self._sampler = _Sampler(self._tree.usage)

    def start(self) -> None:
        """Begin to watch."""
        self._sampler.start()

    def stop(self) -> Sequence[Mapping[str, float]]:
        """Stop and give the rows."""
        return [row for row in self._sampler.stop() if row["rss_bytes"]]


class _Tree:
    """Processes with all their descendants; what one that ended had used stays counted."""

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._known: dict[int, psutil.Process] = {}
        self._last: dict[int, tuple[float, int, int]] = {}

    def usage(self, passed_s: float) -> Mapping[str, float]:
        cpu_s, read, write, rss, files = 0.0, 0, 0, 0, 0
        for process in self._members():
            with suppress(psutil.Error):
                with process.oneshot():
                    times = process.cpu_times()
                    rss += _memory(process)
                io = _io(process)
                files += _open_files(process)
                now = (times.user + times.system, io[0], io[1])
                before = self._last.get(process.pid, (0.0, 0, 0) if self._last else now)
                cpu_s += now[0] - before[0]
                read += now[1] - before[1]
                write += now[2] - before[2]
                self._last[process.pid] = now
        return {
            "cpu_percent": 100 * cpu_s / passed_s if passed_s else 0.0,
            "rss_bytes": rss,
            "read_bytes": read,
            "write_bytes": write,
            "open_files": files,
        }

    def _members(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for pid in self._roots():
            with suppress(psutil.Error):
                root = self._known.setdefault(pid, psutil.Process(pid))
                found += [root, *root.children(recursive=True)]
        return found


def _load_processes() -> list[int]:
    """Locust and its workers: the children of this process that run Locust."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "locust" in child.cmdline():
                found.append(child.pid)
    return found


def _memory(process: psutil.Process) -> int:
    """PSS where the kernel tells, so that memory shared by a server's processes counts once; else RSS."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):
        return int(process.memory_info().rss)


def _io(process: psutil.Process) -> tuple[int, int]:
    try:
        counters = process.io_counters()
    except (psutil.Error, AttributeError):  # another user's process, or a platform without
        return 0, 0
    return int(counters.read_bytes), int(counters.write_bytes)


def _open_files(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except (psutil.Error, AttributeError):
        return 0
