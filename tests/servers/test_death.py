"""What is said of a server that has died."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tsbench.errors import advise
from tsbench.servers import base
from tsbench.servers.base import Server, death

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest


class Dead(Server):
    """A server that has ended by itself; what it wrote to its log is `said`."""

    def __init__(self, directory: Path, said: str) -> None:
        self._directory = directory
        (directory / "log").write_text(said, encoding="utf-8")

    def alive(self) -> bool:
        return False

    def ended(self) -> str:
        return "killed by SIGABRT"

    def log(self) -> Path:
        return self._directory / "log"

    def settings(self) -> Mapping[str, str]:
        return {"data_directory": str(self._directory)}


def test_a_disk_without_room_is_named_where_the_log_had_none_to_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen of three nodes: the last line that one could write was half of the time."""
    monkeypatch.setattr(base, "LITTLE_ROOM", shutil.disk_usage(tmp_path).total)
    found = death(Dead(tmp_path, "2026-11-"))
    assert found.startswith("the server died during the run (killed by SIGABRT): 2026-11-; its disk is full (")
    assert advise(found, str(tmp_path)).startswith(f"no space left on {tmp_path}: ")
    assert "disk is full" not in death(Dead(tmp_path, "[ERROR] No space left on device")), "it is not said twice"


def test_a_disk_with_room_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LITTLE_ROOM", 1)
    assert death(Dead(tmp_path, "2026-11-")) == "the server died during the run (killed by SIGABRT): 2026-11-"
