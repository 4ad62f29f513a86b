"""Processes that tsbench starts: they do not outlive it, and what ended them is known."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import tsbench
from tsbench.servers.children import Channel, Child, how_it_ended, program

pytestmark = pytest.mark.every_user

SLEEPER = [sys.executable, "-c", "import time; time.sleep(99)"]


def marked(text: str) -> list[psutil.Process]:
    """Return the processes whose command line has a text, zombies excepted."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(text in word for word in words):
            found.append(process)
    return found


def is_gone(text: str, within_s: float = 60) -> bool:
    give_up = time.monotonic() + within_s
    while marked(text) and time.monotonic() < give_up:
        time.sleep(0.02)
    return not marked(text)


FORKING = """
import subprocess, sys, threading, time
from tsbench.servers.children import Child
threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
while True:
    child = Child([sys.executable, "-c", "import time; time.sleep(99)", {mark!r}])
    print("started", flush=True)
    child.wait(0.01)
"""


def test_nothing_is_left_of_a_parent_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    draw = random.Random(7)
    for number in range(10):
        mark = f"{tmp_path.name}-{number}"
        command = [sys.executable, "-c", FORKING.format(mark=mark)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            parent.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.2))
            os.kill(parent.pid, signal.SIGKILL)
        assert is_gone(mark), marked(mark)


def test_a_child_whose_parent_ended_before_it_began_ends_itself() -> None:
    # As one that the kernel starts after its parent was killed: the process given as its parent is another one.
    launched = [sys.executable, "-I", "-S", str(Path(tsbench.__file__).parent / "servers/launch.py")]
    done = subprocess.run([*launched, "1", "9", "", "", "/bin/echo", "it went on"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    ours = [*launched, str(os.getpid()), "9", "", "", "/bin/echo", "it went on"]
    assert subprocess.run(ours, capture_output=True, check=True).stdout == b"it went on\n"


def test_a_child_has_the_dispositions_of_signals_that_python_changes() -> None:
    child = Child(["/bin/grep", "SigIgn", "/proc/self/status"], talk=True)
    assert child.ended(within_s=60) == "exit status 0"
    assert int(os.read(child.incoming, 100).split()[1], 16) & (1 << signal.SIGPIPE - 1) == 0
    child.close()


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        child = Child([str(tmp_path / "missing")], stderr=log)
        assert child.ended(within_s=60) == "exit status 1"
    assert (tmp_path / "log").read_text() == f"{tmp_path / 'missing'} cannot be started: No such file or directory\n"


def test_how_a_child_ended_is_known_only_after_its_end() -> None:
    child = Child(SLEEPER)
    assert (child.alive, child.ended(), child.returncode) == (True, "", None)
    child.kill()
    assert (child.alive, child.ended(), child.returncode) == (False, "killed by SIGKILL", -signal.SIGKILL)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_child_that_does_not_end_in_time_is_killed_with_its_children(deaf: bool, tmp_path: Path) -> None:
    mark = f"{tmp_path.name}-own"
    handling = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "None"
    inner = f"import subprocess, sys, signal, time; {handling}; "
    inner += f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)', {mark!r}]); "
    child = Child([sys.executable, "-c", inner + "print('ready', flush=True); time.sleep(99)"], talk=True)
    assert os.read(child.incoming, 5) == b"ready"
    assert child.end(signal.SIGTERM, within_s=0.2 if deaf else 60) is not deaf
    assert child.ended() == ("killed by SIGKILL" if deaf else "killed by SIGTERM")
    assert is_gone(mark)
    child.close()


ECHO = """
from tsbench.servers.children import Channel, standard_pipes
channel = Channel(*standard_pipes())
print("this is for the errors")
while (message := channel.receive(within_s=60)) is not None:
    channel.send(**message)
"""


def test_messages_go_both_ways_apart_from_what_is_printed(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        child = Child([sys.executable, "-c", ECHO], talk=True, stderr=log)
    channel = Channel(child.incoming, child.outgoing)
    for length in (1, 100_000):
        channel.send(text="x" * length)
        assert channel.receive(within_s=60) == {"text": "x" * length}
    assert channel.receive(within_s=0.01) is None
    child.kill()
    with pytest.raises(EOFError):
        channel.receive(within_s=60)
    channel.send(text="to nobody")
    child.close()


def test_a_program_of_ours_ends_with_its_own_exit_code() -> None:
    child = Child([*program("tsbench.cli.main"), "report", "/nonexistent"], stderr=subprocess.DEVNULL)
    assert child.ended(within_s=60) == "exit status 2"


def test_the_end_of_a_process_is_described() -> None:
    assert [how_it_ended(code) for code in (3, -9, -40)] == [
        "exit status 3",
        "killed by SIGKILL",
        "killed by signal 40",
    ]
