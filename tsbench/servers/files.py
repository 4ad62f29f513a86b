"""Directories of databases: their size, their pages in the cache, and databases that are nothing but a directory."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from tsbench.errors import Broken, UserMistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def allocated_bytes(directory: Path) -> int:
    """What the files of a directory take on disk: allocated blocks, so that holes and compression count as they are."""
    total = 0
    for path in files(directory):
        with suppress(FileNotFoundError):  # a running server renames and removes files
            total += path.lstat().st_blocks * 512  # POSIX: always in units of 512 bytes
    return total


def evict(directory: Path) -> None:
    """Drop the files of a directory from the page cache; nobody must have them mapped.

    Dirty pages are not dropped, so each file is synced first. posix_fadvise needs no privileges and leaves the rest of
    the machine its cache; that it works was checked with mincore (64 MB resident became 0).

    Raises
    ------
    tsbench.errors.Broken
        If a file cannot be opened.
    """
    for path in files(directory):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise Broken(f"{path} cannot be dropped from the page cache: {error.strerror}") from error
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def files(directory: Path) -> Iterator[Path]:
    """Every regular file below a directory; links are not followed, except the directory itself."""
    for parent, _, found in os.walk(directory):
        for name in found:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


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


class MemoryServer(SqliteServer):
    """The in-memory database: nothing to start, nothing on disk; its name is the directory's, so runs do not share."""

    @property
    def endpoint(self) -> str:
        """The URL of the store."""
        return f"memory://{quote(os.fsencode(self._directory))}"

    def cold(self) -> None:
        """Not possible.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken("the in-memory database cannot be made cold: there is nothing below it")

    def alive(self) -> bool:
        """It lives as long as this process."""
        return True

    def size(self) -> int:
        """No bytes on disk."""
        return 0


class NullServer(MemoryServer):
    """No server at all; the settings say how the sessions behave (see `targets.null`)."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._settings = dict(settings or {})

    @property
    def endpoint(self) -> str:
        """The URL with the settings."""
        return f"null://?{urlencode(self._settings)}"

    def settings(self) -> Mapping[str, str]:
        """As they were given."""
        return self._settings
