from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tsbench.errors import Broken
from tsbench.servers.process import NotReady, ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.every_user


def serving(tmp_path: Path, program: str, **more: object) -> ServerProcess:
    return ServerProcess(
        [sys.executable, "-u", "-c", textwrap.dedent(program)],
        log=tmp_path / "log",
        **more,  # type: ignore[arg-type]
    )


def when(condition: Callable[[], object]) -> Callable[[], None]:
    """Return a `ready` for `ServerProcess.start` that succeeds when the condition holds."""

    def ready() -> None:
        if not condition():
            raise NotReady("not yet")

    return ready


def said(process: ServerProcess, word: str) -> bool:
    return word in process.tail(99)


def test_it_is_started_waited_for_and_stopped(tmp_path: Path) -> None:
    process = serving(tmp_path, "print('ready'); import time; time.sleep(99)")
    assert not process.alive()
    process.start(when(lambda: said(process, "ready")))
    assert process.alive()
    assert len(process.pids()) == 1
    process.stop()
    process.stop()
    assert not process.alive()
    assert process.pids() == []


def test_a_server_that_ends_at_start_is_broken_with_its_last_word(tmp_path: Path) -> None:
    process = serving(tmp_path, "print('first'); print('the port is taken'); raise SystemExit(3)")
    with pytest.raises(Broken, match=r"exit status 3.*the port is taken"):
        process.start(when(lambda: False))


def test_a_server_that_never_answers_is_killed_and_broken(tmp_path: Path) -> None:
    process = serving(tmp_path, "import time; time.sleep(99)")
    with pytest.raises(Broken, match=r"did not answer within 0\.1 s \(not yet\); its log ends with: its log is empty"):
        process.start(when(lambda: False), timeout_s=0.1)
    assert not process.alive()


def test_a_wait_ends_at_once_on_an_error_that_time_does_not_cure(tmp_path: Path) -> None:
    process = serving(tmp_path, "import time; time.sleep(99)")

    def refused() -> None:
        raise Broken("the password is wrong")

    began = time.monotonic()
    with pytest.raises(Broken, match="the password is wrong"):
        process.start(refused)
    assert time.monotonic() - began < 50  # else it would try for 60 s
    assert not process.alive()


def test_a_server_that_found_its_port_taken_says_so_although_another_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsbench.servers.process._ENDING_S", 60.0)  # a busy machine may take longer to start it
    process = serving(tmp_path, "import time; time.sleep(0.1); print('the port is taken'); raise SystemExit(1)")

    def refused_by_another() -> None:
        raise Broken("the password is wrong")

    with pytest.raises(Broken, match=r"ended at start \(exit status 1\): the port is taken"):
        process.start(refused_by_another)


def test_a_server_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(99)"
    process = serving(tmp_path, program)
    process.start(when(lambda: said(process, "deaf")))
    process.stop(timeout_s=0.1)
    assert not process.alive()


def test_a_server_that_was_stopped_is_woken_to_end_in_order(tmp_path: Path) -> None:
    program = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("in order"), sys.exit()))
        print("ready")
        time.sleep(99)
    """
    process = serving(tmp_path, program)
    process.start(when(lambda: said(process, "ready")))
    psutil.Process(process.pids()[0]).suspend()
    process.stop(timeout_s=300)
    assert said(process, "in order")


def test_its_children_go_with_it(tmp_path: Path) -> None:
    program = """
        import subprocess, sys, time
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]  # until its parent has ended
        child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        print("child", child.pid)
        time.sleep(99)
    """
    process = serving(tmp_path, program)
    process.start(when(lambda: said(process, "child")))
    pids = process.pids()
    assert len(pids) == 2
    process.kill()
    for pid in pids:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = f"""
        import sys, time
        from pathlib import Path
        from tsbench.servers.process import ServerProcess
        command = [sys.executable, "-c", "import time; time.sleep(99)"]
        process = ServerProcess(command, log=Path({str(tmp_path / "log")!r}))
        process.start(lambda: None)
        print(process.pids()[0], flush=True)
        time.sleep(99)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(child, within_s=60)


def gone(process: psutil.Process, within_s: float) -> bool:
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_free_port_is_given_to_nobody_else_and_a_server_can_listen_on_it() -> None:
    port = free_port()
    assert 1024 < port < 65536
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:  # which sets SO_REUSEADDR, as servers do
        assert server.getsockname()[1] == port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)


def test_ports_of_a_long_campaign_do_not_use_up_the_descriptors() -> None:
    ports = [free_port() for _ in range(1_000)]
    assert len({*ports[-50:]}) == 50
    assert psutil.Process().num_fds() < 500
