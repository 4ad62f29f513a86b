"""A disk that becomes full ends a run with one line that names the directory."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import POSTGRES, complaint, nothing_left, says, scenario, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.postgres.server import PostgresServer


@pytest.fixture
def embedded(postgres_server: PostgresServer) -> None:
    """Skip the test without the embedded PostgreSQL."""


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 200 MB that the server's user can enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        disk = Path(name)
        disk.chmod(0o755)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", name], check=False).returncode:
            pytest.skip("this root may not mount a file system")
        try:
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))


@pytest.mark.root
@pytest.mark.postgres
@pytest.mark.parametrize("phase", ["load", "measure", "check"])
def test_a_full_disk_is_named_with_its_directory_in_every_phase(
    tmp_path: Path, small_disk: Path, embedded: None, phase: str
) -> None:
    scenario(tmp_path)
    long = {"load": "load.window=3000h", "measure": "drive.duration=60s", "check": "check.answers=1000"}[phase]
    with nothing_left():
        command = started(tmp_path, *POSTGRES, "--out", str(small_disk / "results"), "--set", long)
        command.until_phase(phase)
        if phase != "load":
            fill(small_disk)
        assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "o space left on ", str(small_disk), "free some room")
    assert not [*small_disk.glob("results/*/*/server")]
