"""A second Ctrl-C during cleanup shortens the waiting but leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.run.test_lifecycle import Log, LoggedServer, cell, parts_of
from tsbench.run.lifecycle import run_job
from tsbench.run.locust_process import end
from tsbench.run.phases import Quiet
from tsbench.servers.base import kill_processes, stop_and_delete
from tsbench.servers.children import Child
from tsbench.servers.interrupts import Deferral
from tsbench.servers.process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.every_user

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"


def interrupt_soon(after_s: float = 0.3) -> None:
    threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_an_interrupt_is_raised_after_the_block_and_the_handlers_are_restored() -> None:
    steps: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def clean_up() -> None:
        with Deferral(lambda: steps.append("hurry")):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            steps.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        clean_up()
    assert steps == ["hurry", "hurry", "cleaned"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Deferral(lambda: pytest.fail("it was not ignored")):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_while_a_server_stops_kills_it_and_still_deletes_its_data(tmp_path: Path) -> None:
    process = ServerProcess([sys.executable, "-u", "-c", DEAF], log=tmp_path / "log")
    process.start(lambda: None)
    while "deaf" not in process.tail():
        time.sleep(0.02)

    class Deaf(LoggedServer):
        pids = staticmethod(process.pids)

        def stop(self) -> None:
            interrupt_soon()
            process.stop()

    log = Log()
    server = Deaf(log)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Deferral(lambda: kill_processes(server)):
        stop_and_delete(server, None)
    assert time.monotonic() - began < 50  # without the interrupt it is waited for a minute
    assert log == ["server.remove"]
    assert not process.alive()


@pytest.mark.parametrize("fail", [KeyboardInterrupt(), None], ids=["second", "only"])
def test_an_interrupt_during_a_runs_cleanup_leaves_no_data(tmp_path: Path, fail: KeyboardInterrupt | None) -> None:
    class Interrupted(LoggedServer):
        def stop(self) -> None:
            super().stop()
            signal.raise_signal(signal.SIGINT)

    log = Log()
    with pytest.raises(KeyboardInterrupt):
        run_job(cell(tmp_path), tmp_path, Quiet(), parts_of(log, Interrupted(log), fail=fail))
    assert log[-2:] == ["server.stop", "server.remove"]


@pytest.mark.slow
def test_an_interrupt_while_load_processes_end_kills_all_of_them() -> None:
    forking = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}]); {DEAF}"
    command = [sys.executable, "-u", "-c", forking]
    child = Child(command, talk=True)
    with os.fdopen(os.dup(child.incoming), "rb") as said:
        assert [said.readline().strip(), said.readline().strip()] == [b"deaf", b"deaf"]
        family = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
        interrupt_soon(1.0)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            end(child, patience_s=600)
    assert time.monotonic() - began < 300
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    child.close()
