"""What a local server process must offer: start, ready, stop, kill, cold, size."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group


class Server(Protocol):
    """A database server (or, for an embedded one, its directory) that a run owns. Lives in `directory`."""

    @property
    def endpoint(self) -> str:
        """The URL that `Target.connect` takes."""

    def start(self) -> None:
        """Create the data directory if need be, start, and return when a connection succeeds.

        Raises
        ------
        tsbench.errors.UserMistake
            If the server program is missing or the port is taken: one line with the cure.
        tsbench.errors.Broken
            If it does not come up; the text ends with the last line of its log.
        """
        ...

    def stop(self) -> None:
        """Shut down in order and wait; kill when that takes too long. Harmless when it is not running."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        ...

    def remove(self) -> None:
        """Delete what it stored, if it is ours; it must have been stopped."""
        ...

    def cold(self) -> None:
        """Stop, wait until it is really down, drop its files from the page cache, start."""
        ...

    def alive(self) -> bool:
        """Whether it still runs."""
        ...

    def pids(self) -> Sequence[int]:
        """Its processes (for the collectors); empty for an embedded database."""
        ...

    def size(self) -> int:
        """Bytes that its data directory takes on disk, allocated blocks, logs included."""
        ...

    def log(self) -> Path | None:
        """Where the server logs, if it does."""
        ...

    def settings(self) -> Mapping[str, str]:
        """The configuration that tsbench gave it (for the manifest)."""
        ...


def death(server: Server, *, within_s: float = 0.0) -> str:
    """Return that a server which should run does not, with its last log line; "" if it runs.

    A dying server's connections break some ms before its process is gone: `within_s` waits for that.
    """
    give_up = time.monotonic() + within_s
    while server.alive():
        if time.monotonic() >= give_up:
            return ""
        time.sleep(0.02)
    log = server.log()
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log is not None and log.exists() else []
    last = next((line for line in reversed(lines) if line.strip()), "")
    return "the server died during the run" + (f": {last.strip()}" if last else "")


def put_away(server: Server, log_copy: Path | None) -> None:
    """Stop a server and delete its data; keep its log as `log_copy`."""
    server.stop()
    log = server.log()
    try:
        if log is not None and log_copy is not None and log.exists():
            shutil.copyfile(log, log_copy)
    finally:  # also on a full disk, which this makes less full
        server.remove()


class ServerFactory(Protocol):
    """What makes a server that lives in a directory; nothing is started."""

    def __call__(self, directory: Path, settings: Mapping[str, str], group: Group | None = None) -> Server:
        """The server, with settings that go before tsbench's own; its processes start in the control group."""
