"""The interface of a local server: start, stop, kill, cold restart, size."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tsbench.errors import Broken, is_disk_full
from tsbench.servers.logs import telling_line
from tsbench.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.files import Residency


LITTLE_ROOM = 16 * 1024 * 1024
"""Bytes of a disk that count as none for a server that has died: it may have asked for more at once."""


class Server:
    """A database server that a run owns (for an embedded database, its directory). Its files are in `directory`.

    What a class does not override is true of a server without a process of ours: it runs, and nothing is known of it.
    """

    @property
    def endpoint(self) -> str:
        """URL for `Target.connect`."""
        raise NotImplementedError

    def start(self) -> None:
        """Create the data directory if it is missing, start the server and wait until a connection succeeds.

        Raises
        ------
        tsbench.errors.UserMistake
            If the server program is missing or the port is taken: one line with the cure.
        tsbench.errors.Broken
            If it does not start; the text ends with the last line of its log.
        """

    def stop(self) -> None:
        """Shut down in order and wait; kill the server after a time limit. Do nothing if it is not running."""

    def kill(self) -> None:
        """Kill the server (SIGKILL) and wait until its processes have ended."""

    def remove(self) -> None:
        """Delete the data of a stopped server, unless it belongs to somebody else."""

    def cold(self) -> Residency:
        """Stop the server, drop its files from the page cache, start it again, and return what the cache held."""
        raise NotImplementedError

    def alive(self) -> bool:
        """Return True while the server runs."""
        return True

    def ended(self) -> str:
        """Return how the server's process ended, such as `killed by SIGKILL`; "" if it runs or has no process."""
        return ""

    def pids(self) -> Sequence[int]:
        """Return the ids of the server's processes; empty for an embedded database."""
        return ()

    def size(self) -> int:
        """Return the bytes that the data directory takes on disk: allocated blocks, logs included; 0: not known."""
        return 0

    def log(self) -> Path | None:
        """Return the path of the server's log, None if it has none."""
        return None

    def said(self) -> str:
        """Return the text of the server's log, "" without one."""
        log = self.log()
        return log.read_text(encoding="utf-8", errors="replace") if log is not None and log.exists() else ""

    def parts(self) -> Mapping[str, Server]:
        """Return the parts of a server of several, by name (`node 1`); empty for a single one."""
        return {}

    def regroup(self) -> str:
        """Let the other nodes take over after one was stopped, killed or started; return what they did, as a note.

        Raises
        ------
        tsbench.errors.Broken
            If they cannot go on.
        """
        return ""

    def settings(self) -> Mapping[str, str]:
        """Return the server's configuration by tsbench (for the manifest)."""
        return {}


class ExternalServer(Server):
    """A server that tsbench did not start, known by its URL: it is neither started, stopped nor measured."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        return self._endpoint

    def kill(self) -> None:
        """Raise `Broken`: the server is not ours to kill."""
        raise Broken(f"{self._endpoint} cannot be killed: tsbench did not start it")

    def cold(self) -> Residency:
        """Raise `Broken`: the server is not ours to restart."""
        raise Broken(f"{self._endpoint} cannot be made cold: tsbench did not start it")


def death(server: Server, *, within_s: float = 0.0) -> str:
    """Return a message with the exit status and a log line if the server has died, "" if it runs.

    A dying server's connections break some ms before its process has ended: `within_s` is the time to wait for that.
    """
    give_up = time.monotonic() + within_s
    while server.alive():
        if time.monotonic() >= give_up:
            return ""
        time.sleep(0.02)
    last, how = telling_line(server.said()), server.ended()
    told = "the server died during the run" + (f" ({how})" if how else "") + (f": {last}" if last else "")
    return told if is_disk_full(told) else told + _full(server.settings().get("data_directory", ""))


def _full(place: str) -> str:
    """Return that hardly any room is left on the disk of a directory: its server's log had none to say so."""
    with suppress(OSError):
        if (free := shutil.disk_usage(place).free) < LITTLE_ROOM:
            return f"; its disk is full ({format_size(free)} are free)"
    return ""


def kill_processes(server: Server) -> None:
    """Kill the server's processes (SIGKILL) without waiting, so that a `stop` in progress ends at once."""
    for pid in server.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def stop_and_delete(server: Server, log_copy: Path | None) -> None:
    """Stop a server and delete its data; keep its log as `log_copy`."""
    server.stop()
    log = server.log()
    try:
        if log is not None and log_copy is not None and log.exists():
            shutil.copyfile(log, log_copy)
    finally:  # also if the copy failed because the disk is full
        server.remove()
