"""The counterpart of a server for embedded databases: a directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote, urlsplit

from tsbench.errors import Broken, UserMistake
from tsbench.servers.base import Server
from tsbench.servers.files import allocated_bytes, evict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.servers.cgroup import Group
    from tsbench.servers.files import Residency


def makes_file(endpoint: str) -> bool:
    """Return True if connecting to this endpoint of an embedded database would make its file."""
    path = Path(unquote(urlsplit(endpoint).path))
    return path.is_absolute() and not path.exists()


def delete_file(path: Path) -> None:
    """Delete a closed database file, with its logs and locks."""
    for suffix in ("-wal", "-shm", "-journal", ".wal", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class EmbeddedServer(Server):
    """The directory of a database in one file, without a process; subclasses set file name and URL scheme."""

    scheme: ClassVar[str]
    file: ClassVar[str]

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        if settings:
            raise UserMistake(f"settings: {next(iter(settings))}: an embedded database has no server to configure")
        self._directory = directory.absolute()

    @property
    def endpoint(self) -> str:
        """URL of the database file."""
        return f"{self.scheme}://{quote(os.fsencode(self._directory / self.file))}"

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def cold(self) -> Residency:
        """Drop the files from the page cache; close sessions before, since they have caches of their own."""
        return evict(self._directory)

    def alive(self) -> bool:
        """Return True while the directory exists."""
        return self._directory.is_dir()

    def size(self) -> int:
        return allocated_bytes(self._directory)


class InMemoryServer(EmbeddedServer):
    """A database in the memory of this process: it needs no start, and has no files."""

    def cold(self) -> Residency:
        """Raise `Broken`, since nothing is stored on disk."""
        raise Broken("a database in memory cannot be made cold: no files could leave the page cache")

    def alive(self) -> bool:
        return True

    def size(self) -> int:
        return 0
