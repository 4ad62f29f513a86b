"""A monitor of this host once a second while a page is open: the whole host, the load generator and the server."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import gevent
import psutil

from tsbench.clock import epoch_ns
from tsbench.collect.processes import Tree
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PERIOD_S = 1.0


class HostMonitor:
    """Calls `tell` with a row a second. Sampling is done in a thread of the pool: the event loop must not wait for it.

    Parameters
    ----------
    server
        Returns the ids of the server's processes, if they are known and on this host.
    tell
        Callback for each row.
    """

    def __init__(self, server: Callable[[], Sequence[int]], tell: Callable[[dict[str, float]], None]) -> None:
        self._server_pids, self._tell = server, tell
        self._ours = Tree(lambda: [os.getpid()], without=server)
        self._server = Tree(server)
        self._disk: Any = None

    def run(self) -> None:
        """Sample until killed."""
        last = time.monotonic()
        gevent.get_hub().threadpool.apply(self._look, (0.0,))  # start of the first difference
        while True:
            gevent.sleep(PERIOD_S)
            passed_s, last = time.monotonic() - last, time.monotonic()
            self._tell(gevent.get_hub().threadpool.apply(self._look, (passed_s,)))

    def _look(self, passed_s: float) -> dict[str, float]:
        server = _numbers(self._server.usage(passed_s))
        client = _numbers(self._ours.usage(passed_s))
        disk, before = psutil.disk_io_counters(), self._disk
        self._disk = disk
        read = write = 0.0
        if disk and before and passed_s:
            read = (disk.read_bytes - before.read_bytes) / passed_s
            write = (disk.write_bytes - before.write_bytes) / passed_s
        return {
            "second": epoch_ns() / NS_PER_S,
            "cpu_percent": psutil.cpu_percent(),
            "memory_bytes": float(psutil.virtual_memory().used),
            "read_bytes": read,
            "write_bytes": write,
            **{f"client_{name}": value for name, value in client.items()},
            **({f"server_{name}": value for name, value in server.items()} if self._server_pids() else {}),
        }


def _numbers(row: dict[str, float | str]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}
