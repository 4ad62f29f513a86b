"""PostgreSQL as a program on this machine: the settings of every local server, and how its process starts and ends.

The embedded server, TimescaleDB and FerretDB run it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.servers import unprivileged
from tsbench.servers.process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}
SETTINGS: Mapping[str, str] = {
    # A tenth of a small machine's memory, and the same on all of them, so that results can be compared. The default
    # of 128 MB is for machines shared with everything else; the page cache does the rest.
    "shared_buffers": "512MB",
    # 100 is the default; a scenario may want 150 users, each with a session, beside the collectors.
    "max_connections": "200",
    # What is acknowledged is on disk. Both are the defaults; set here, since any comparison depends on them.
    "fsync": "on",
    "synchronous_commit": "on",
    # At the default of 1 GB a bulk load is a series of checkpoints and full-page images. 4 GB is about five minutes
    # of the fastest load seen here; the timed checkpoint (default 5 min) stays as it is.
    "max_wal_size": "4GB",
    # Times in the log, and sessions that do not say otherwise, are in UTC.
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Settings of every local server, so that databases on it can be compared."""


_REMOVE = 0
"""IPC_RMID of shmctl(2)."""


class _Process(ServerProcess):
    """PostgreSQL removes its shared memory when it ends, but not when it is killed: some MB stayed for each kill."""

    def kill(self) -> None:
        shared = self._shared()
        super().kill()
        for segment in shared:
            if isinstance(segment, Path):
                segment.unlink(missing_ok=True)
            else:
                ctypes.CDLL(None).shmctl(segment, _REMOVE, None)

    def _shared(self) -> set[Path | int]:
        """Return the files of POSIX's and the ids of System V's shared memory, which the kernel lists with the rest."""
        shared: set[Path | int] = set()
        for pid in self.pids():
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                    *_, inode, name = [*line.split(maxsplit=5), ""][:6]
                    if name.startswith("/dev/shm/PostgreSQL."):  # noqa: S108 - the kernel says so
                        shared.add(Path(name.removesuffix(" (deleted)")))
                    elif name.startswith("/SYSV"):
                        shared.add(int(inode))
        return shared


def server_process(binaries: Path, data: str, settings: Mapping[str, str], *, log: Path, place: Path) -> ServerProcess:
    """Return the process that serves the directory `data`. It runs in `place`, where relative names begin."""
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return _Process(
        [str(binaries / "postgres"), "-D", data, *options],
        log=log,
        directory=place,
        environment=ENVIRONMENT,
        user=unprivileged.user(),
        stop_signal=signal.SIGINT,  # "fast": sessions are ended, a last checkpoint is written
        death_signal=signal.SIGQUIT,  # "immediate": all processes end at once; the log has every committed write
    )
