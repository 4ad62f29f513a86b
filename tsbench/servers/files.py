"""Files of databases: their size on disk and their pages in the page cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator


def allocated_bytes(directory: Path) -> int:
    """Return the bytes that a directory's files take on disk: allocated blocks, so that holes do not count."""
    total = 0
    for path in files(directory):
        with suppress(FileNotFoundError):  # a running server renames and removes files
            total += path.lstat().st_blocks * 512  # POSIX: always in units of 512 bytes
    return total


def evict(directory: Path) -> None:
    """Drop the files of a directory from the page cache; no process may have them mapped.

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
    """Yield every regular file below a directory; links are not followed, except the directory itself."""
    for parent, _, found in os.walk(directory):
        for name in found:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path
