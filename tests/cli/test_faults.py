"""Rows that only a lost load process can have written, and disks that are full; other faults are in `tests/faults`."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import POSTGRES, complaint, content, nothing_left, only, says, scenario, started

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.postgres
def test_rows_of_a_lost_load_process_are_judged_as_such(tmp_path: Path, embedded: None) -> None:
    """Its ledger lacks the writes since its last flush, which are stored, and which answers under load had."""
    scenario(tmp_path, ('wait = "5ms"', 'wait = "0s"'), ("users = 2", "users = 8"), ('"raw-one"', '"lastpoint"'))
    with nothing_left():
        command = started(tmp_path, *POSTGRES, "--set", "drive.duration=15s", "--set", "drive.processes=2")
        command.until_measured()
        random.choice(command.load_process().children()).kill()
        assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "1 of 2 workers ended early: worker-", "killed by SIGKILL")
    summary = content(only(tmp_path, "results/*/postgres/summary.json"))
    checks, points = summary["validity"]["checks"], summary["writes"]
    assert (checks["answers"]["state"], points["unexpected"], points["lost"]) == ("valid", 0, 0), checks
    assert checks["writes"]["state"] == "valid"
    assert points["stored"] - points["expected"] - points["unknown"] == points["of_lost_processes"]
    if points["of_lost_processes"]:
        says(checks["writes"]["reason"], "rows of a lost load process (worker-")


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
    long = {"load": "load.window=3000h", "measure": "drive.duration=60s", "check": "check.answers=1000000"}[phase]
    with nothing_left():
        command = started(tmp_path, *POSTGRES, "--out", str(small_disk / "results"), "--set", long)
        command.until_phase(phase)
        if phase != "load":
            time.sleep(1.0)
            fill(small_disk)
        assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "o space left on ", str(small_disk), "free some room")
    assert not [*small_disk.glob("results/*/*/server")]
