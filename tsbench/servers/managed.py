"""What servers that run as a process of ours have in common: everything but their programs and settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tsbench.servers import unprivileged
from tsbench.servers.files import allocated_bytes, evict
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group
    from tsbench.servers.process import ServerProcess


class ManagedServer(ABC):
    """A server process that lives in `directory`, and listens on a port of 127.0.0.1.

    Its process is started in `group`, whose caps then hold for it. As root it runs as `nobody`, with its files in
    `place`: below the directory or, where that user cannot go there, apart from it (see `unprivileged`).
    """

    log_name: str

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        self._group = group
        self._directory = directory.absolute()
        self._settings = dict(settings or {})
        self._process: ServerProcess | None = None
        self._port = 0

    @property
    def place(self) -> Path:
        """The directory of all that the server itself reads and writes; it belongs to the server's user."""
        return unprivileged.place(self._directory)

    @property
    def data(self) -> Path:
        """The directory of everything that the server stores."""
        return self.place / "data"

    def start(self) -> None:
        """Make what it needs, start it, and return when it answers."""
        if self.alive():
            return
        programs = self._programs()
        self._directory.mkdir(parents=True, exist_ok=True)
        unprivileged.make(self._directory)
        self._port = self._port or free_port()
        self._process = self._prepare(programs)
        self._process.start(self._ready, group=self._group)

    @abstractmethod
    def _programs(self) -> Path:
        """Return where its programs are, or a copy of them that its user can run."""

    @abstractmethod
    def _prepare(self, programs: Path) -> ServerProcess:
        """Write what the server needs below `place`, and return the process to start."""

    @abstractmethod
    def _ready(self) -> None:
        """Try a connection; raises as `ServerProcess.start` wants it."""

    def stop(self) -> None:
        """Shut down in order; sessions that are open are ended."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """SIGKILL, and wait until it and its children are gone."""
        if self._process is not None:
            self._process.kill()

    def remove(self) -> None:
        """Delete the directory, and what lies apart from it."""
        unprivileged.remove(self._directory)

    def cold(self) -> None:
        """Stop, drop its files from the page cache, start."""
        self.stop()
        evict(self.data)
        self.start()

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive()

    def pids(self) -> Sequence[int]:
        """It and its children at this moment."""
        return self._process.pids() if self._process is not None else ()

    def size(self) -> int:
        """Allocated bytes of the data directory, the write-ahead log included."""
        return allocated_bytes(self.data)

    def log(self) -> Path | None:
        """The server's log."""
        return self._directory / self.log_name

    def settings(self) -> Mapping[str, str]:
        """What tsbench sets, and where and as whom the server runs."""
        return {**self._settings, "data_directory": str(self.data), "user": unprivileged.user() or "the caller"}
