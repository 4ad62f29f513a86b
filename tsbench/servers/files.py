"""Files of databases: their size on disk and their pages in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tsbench.errors import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBC = ctypes.CDLL(None, use_errno=True)
_ATTEMPTS = 5
_MAPPED_BYTES = 256 * 2**20
"""Size of the part of a file that is mapped at a time; a multiple of every page's size."""


def allocated_bytes(directory: Path) -> int:
    """Return the bytes that a directory's files take on disk: allocated blocks, so that holes do not count."""
    total = 0
    for path in files(directory):
        with suppress(FileNotFoundError):  # a running server renames and removes files
            total += path.lstat().st_blocks * 512  # POSIX: always in units of 512 bytes
    return total


class Residency(NamedTuple):
    """Number of pages of a stopped server's files, and of those in the page cache before and after they were dropped.

    `whole_cache` is True if the page cache of the whole machine was dropped, which only root may.
    """

    pages: int
    before: int
    after: int
    whole_cache: bool


def evict(directory: Path) -> Residency:
    """Drop the files of a directory from the page cache, and count their pages in it; no process may have them mapped.

    Dirty pages are not dropped, so each file is synced first. posix_fadvise needs no privileges; root drops the page
    cache of the whole machine as well. What then remains is seen by mincore.

    Raises
    ------
    tsbench.errors.Broken
        If a file cannot be opened, or pages remain.
    """
    paths = [*files(directory)]
    before = [resident_pages(path) for path in paths]
    pages = sum(-(-path.stat().st_size // mmap.PAGESIZE) for path in paths)
    for attempt in range(_ATTEMPTS):  # the kernel keeps a page that something else uses just then
        for path in paths:
            _evict_file(path)
        is_whole = _drop_caches()
        if not (left := sum(map(resident_pages, paths))):
            return Residency(pages, sum(before), 0, is_whole)
        time.sleep(0.1 * attempt)
    why = f"{left} of {pages} pages of {directory} remain in the page cache; is it a file system in memory?"
    raise Broken(f"the files cannot be made cold: {why}")


def _evict_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Broken(f"{path} cannot be dropped from the page cache: {error.strerror}") from error
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _drop_caches() -> bool:
    """Drop the machine's page cache; return False if that is not allowed."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    except OSError:
        return False
    return True


def resident_pages(path: Path) -> int:
    """Return the number of a file's pages in the page cache, by mincore.

    To a user who may not write the file, the kernel reports all of its pages.

    Raises
    ------
    tsbench.errors.Broken
        If the file cannot be read.
    """
    total = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for offset in range(0, size, _MAPPED_BYTES):
                length = min(_MAPPED_BYTES, size - offset)
                # A private mapping, whose address ctypes can take without the right to write the file.
                with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY, offset=offset) as mapped:
                    total += _resident(mapped, length)
    except OSError as error:
        raise Broken(f"{path}: its pages cannot be looked up in the page cache: {error.strerror}") from error
    return total


def _resident(mapped: mmap.mmap, length: int) -> int:
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    view = ctypes.c_char.from_buffer(mapped)
    try:
        status = _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(length), pages)
    finally:
        del view  # a mapping that is looked at cannot be closed
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return bytes(pages).count(1)


def files(directory: Path) -> Iterator[Path]:
    """Yield every regular file below a directory; links are not followed, except the directory itself."""
    for parent, _, paths in os.walk(directory):
        for name in paths:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path
