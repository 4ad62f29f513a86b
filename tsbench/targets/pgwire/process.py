"""PostgreSQL as a program on this machine: the settings of every local server, and how its process starts and ends.

The embedded server, TimescaleDB and FerretDB run it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tsbench.servers import unprivileged
from tsbench.servers.process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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


def server_process(binaries: Path, data: str, settings: Mapping[str, str], *, log: Path, place: Path) -> ServerProcess:
    """Return the process that serves the directory `data`. It runs in `place`, where relative names begin."""
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return ServerProcess(
        [str(binaries / "postgres"), "-D", data, *options],
        log=log,
        directory=place,
        environment=ENVIRONMENT,
        user=unprivileged.user(),
        stop_signal=signal.SIGINT,  # "fast": sessions are ended, a last checkpoint is written
        death_signal=signal.SIGQUIT,  # "immediate": all processes end at once; the log has every committed write
    )
