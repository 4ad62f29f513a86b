"""The directory of an SQLite database, in the place of a server."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING
from urllib.parse import quote

from tsbench.errors import UserMistake
from tsbench.servers.files import allocated_bytes, evict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class SqliteServer:
    """The directory of an SQLite database, and of anything else that lives in one file without a process."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        if settings:
            raise UserMistake(f"settings: {next(iter(settings))}: an embedded database has no server to configure")
        self._directory = directory.absolute()

    @property
    def endpoint(self) -> str:
        """The URL of the database file."""
        return f"sqlite://{quote(os.fsencode(self._directory / 'tsbench.db'))}"

    def start(self) -> None:
        """Make the directory."""
        self._directory.mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        """Nothing runs."""

    def kill(self) -> None:
        """Nothing runs."""

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def cold(self) -> None:
        """Drop the files from the page cache; the sessions must be closed, since their own caches stay."""
        evict(self._directory)

    def alive(self) -> bool:
        """Whether the directory is there."""
        return self._directory.is_dir()

    def pids(self) -> Sequence[int]:
        """None."""
        return ()

    def size(self) -> int:
        """Allocated bytes, the write-ahead log included."""
        return allocated_bytes(self._directory)

    def log(self) -> Path | None:
        """None."""
        return None

    def settings(self) -> Mapping[str, str]:
        """None beyond the pragmas that each session sets."""
        return {}
