from __future__ import annotations

import mmap
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tsbench.errors import Broken
from tsbench.servers.base import ExternalServer
from tsbench.servers.files import allocated_bytes, evict, resident_pages
from tsbench.targets.registry import TARGETS
from tsbench.targets.sqlite import SqliteServer
from tsbench.testing.memory import MemoryServer

if TYPE_CHECKING:
    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

_PAGES = 512


def test_size_counts_allocated_blocks_and_not_holes(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with (tmp_path / "below" / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert allocated_bytes(tmp_path) < 1 << 20
    with (tmp_path / "full").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())  # blocks are allocated when they are written back
    assert allocated_bytes(tmp_path) >= 1 << 20


def test_evicted_files_are_not_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(_PAGES * mmap.PAGESIZE))
    assert resident_pages(path) == _PAGES
    assert evict(tmp_path)[:3] == (_PAGES, _PAGES, 0)
    assert resident_pages(path) == 0
    path.read_bytes()
    assert resident_pages(path) == _PAGES


def test_pages_that_never_leave_the_page_cache_are_named_instead_of_called_cold() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        pytest.skip("no file system in memory")
    with TemporaryDirectory(dir=memory) as place:
        Path(place, "data").write_bytes(os.urandom(3 * mmap.PAGESIZE))
        with pytest.raises(Broken, match=f"^the files cannot be made cold: 3 of 3 pages of {place} remain"):
            evict(Path(place))


def test_an_sqlite_directory_grows_with_its_data_and_can_be_made_cold(tmp_path: Path) -> None:
    server = SqliteServer(tmp_path / "new")
    assert not server.alive()
    server.start()
    assert (server.alive(), server.size(), list(server.pids()), server.log()) == (True, 0, [], None)
    target = TARGETS["sqlite"]
    session = target.connect(server.endpoint, target.schemas["wal"])
    session.run(target.schemas["wal"].create([], {}))
    session.close()
    assert server.size() > 0
    assert server.cold().after == 0
    server.stop()


def test_memory_needs_no_server_and_has_no_cold_state(tmp_path: Path) -> None:
    server = MemoryServer(tmp_path)
    server.start()
    assert (server.alive(), server.size()) == (True, 0)
    assert server.endpoint != MemoryServer(tmp_path / "other").endpoint
    with pytest.raises(Broken, match="cannot be made cold"):
        server.cold()


def test_a_server_known_by_url_is_left_alone() -> None:
    server: Server = ExternalServer("postgresql://me@there/db")
    server.start()
    server.stop()
    assert (server.endpoint, list(server.pids()), server.log()) == ("postgresql://me@there/db", [], None)
    for act in (server.cold, server.kill):
        with pytest.raises(Broken, match="tsbench did not start it"):
            act()
