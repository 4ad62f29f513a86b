"""A fault from outside is reported by its cause, and leaves nothing behind."""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.cli.support import Command, complaint, content, failed_gates, nothing_left, only, says, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.postgres.server import PostgresServer

LONG = ("--set", "drive.duration=60s")
POSTGRES = ("--set", "target.name=postgres")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The command's working directory; when the test ends, nothing that it started may be left."""
    scenario(tmp_path)
    with nothing_left():
        yield tmp_path


@pytest.fixture
def embedded(postgres_server: PostgresServer) -> None:
    """Skip the test without the embedded PostgreSQL."""


def started(place: Path, *words: str) -> Command:
    return Command(place, "tsbench", "run", "tiny.toml", *words)


def load_process(command: Command) -> psutil.Process:
    """Return Locust's first process: the master, if it has workers."""
    (found,) = (p for p in psutil.Process(command.process.pid).children() if "locust" in p.cmdline())
    return found


def test_a_killed_load_process_is_named_by_its_signal(place: Path) -> None:
    command = started(place, *LONG)
    command.until_measured()
    load_process(command).kill()
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "the load process was killed by SIGKILL", "for lack of memory")
    partial = only(place, "results/*/sqlite.partial")
    assert content(partial / "status.json")["state"] == "failed"
    assert not (partial / "server").exists()


def test_a_killed_worker_is_named_by_its_signal(place: Path) -> None:
    command = started(place, "--set", "drive.duration=5s", "--set", "drive.processes=2")
    command.until_measured()
    load_process(command).children()[0].send_signal(signal.SIGSEGV)
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "1 of 2 workers ended early: worker-", "killed by SIGSEGV")


@pytest.mark.postgres
def test_a_killed_server_is_named_by_its_signal(place: Path, embedded: None) -> None:
    command = started(place, *POSTGRES, *LONG)
    command.until_measured()
    command.child("postgres").kill()
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "the server died during the run (killed by SIGKILL)")
    summary = content(only(place, "results/*/postgres/summary.json"))
    says(failed_gates(summary)["server deaths<=0"], "the server died during the run (killed by SIGKILL)")


@pytest.mark.postgres
def test_a_server_that_is_killed_before_the_load_is_named_and_not_what_locust_said_last(
    place: Path, embedded: None
) -> None:
    command = started(place, *POSTGRES, *LONG)
    command.until_phase("measure")
    command.child("postgres").kill()
    assert command.wait() == 1, command.stderr
    line = complaint(command.stderr)
    says(line, "the server died during the run (killed by SIGKILL)")
    assert "it said nothing" not in line


@pytest.mark.postgres
def test_a_killed_tsbench_takes_a_load_process_that_does_not_listen_with_it(place: Path, embedded: None) -> None:
    command = started(place, *POSTGRES, *LONG)
    command.until_measured()
    load_process(command).suspend()  # SIGTERM would not wake it
    command.signal(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL  # `place` finds what is left


@pytest.mark.postgres
def test_a_second_ctrl_c_while_the_server_stops_leaves_no_data(place: Path, embedded: None) -> None:
    command = started(place, *POSTGRES, "--set", "load.window=1000h")
    command.until_phase("load")
    log = only(place, "results/*/postgres.partial/server/*.log")
    command.signal(signal.SIGINT)
    command.wait_until(lambda: "fast shutdown request" in log.read_text())
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    says(complaint(command.stderr), "interrupted", "--resume")
    assert not (only(place, "results/*/postgres.partial") / "server").exists()


@pytest.mark.postgres
def test_rows_of_a_lost_load_process_are_judged_as_such(tmp_path: Path, embedded: None) -> None:
    """Its ledger lacks the writes since its last flush, which are stored, and which answers under load had."""
    scenario(tmp_path, ('wait = "5ms"', 'wait = "0s"'), ("users = 2", "users = 8"), ('"raw-one"', '"lastpoint"'))
    with nothing_left():
        command = started(tmp_path, *POSTGRES, "--set", "drive.duration=15s", "--set", "drive.processes=2")
        command.until_measured()
        random.choice(load_process(command).children()).kill()
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
