"""What servers that run as a process of ours have in common: everything but how they are started."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tsbench.servers.files import allocated_bytes, evict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.servers.process import ServerProcess


class ManagedServer(ABC):
    """A server process whose data lies in `directory` or, where its user cannot go there, apart from it."""

    log_name: str

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._process: ServerProcess | None = None

    @property
    @abstractmethod
    def data(self) -> Path:
        """The data directory."""

    @abstractmethod
    def start(self) -> None:
        """Make what it needs, start it, and return when it answers."""

    def stop(self) -> None:
        """Shut down in order; sessions that are open are ended."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """SIGKILL, and wait until it and its children are gone."""
        if self._process is not None:
            self._process.kill()

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

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
