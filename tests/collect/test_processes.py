"""Samples agree with the kernel's own accounting, whichever processes start and end meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tsbench.collect import processes
from tsbench.collect.processes import HostCollector, ServerCollector, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_user

MEGABYTE = 1_000_000


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a Python process and wait for its first output."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


def tell(child: subprocess.Popen[str]) -> str:
    """Let the process continue, and return its next output."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    return child.stdout.readline()


BURN = """
import sys, time
def burn(s):
    end = time.process_time() + s
    while time.process_time() < end: pass
"""


def test_cpu_is_what_ps_says_also_of_children_that_came_and_went() -> None:
    program = f"""
    {textwrap.indent(textwrap.dedent(BURN), "    ").strip()}
    import os
    print("ready"); input()
    for _ in range(5):
        if (pid := os.fork()) == 0:
            burn(0.06); os._exit(0)
        os.waitpid(pid, 0)
    burn(0.1)
    print("done"); input()
    """
    with running(program) as child:
        tree = Tree(lambda: [child.pid])
        tree.usage(0.0)
        before = book(child.pid)
        tell(child)
        usage = tree.usage(1.0)
        used = book(child.pid) - before
    assert used > 0.3  # 5 x 0.06 and 0.1, or what ticks make of it
    assert float(usage["cpu_percent"]) / 100 == pytest.approx(used, abs=0.02)


def book(pid: int) -> float:
    """Return the CPU seconds of a process and its collected children, from /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_a_child_that_ended_does_not_count_its_io_twice(tmp_path: Path) -> None:
    program = """
    import os, sys, time
    print("ready"); input()
    if (pid := os.fork()) == 0:
        with open(sys.argv[1], "wb") as file:
            file.write(os.urandom(8_000_000)); file.flush(); os.fsync(file.fileno())
        print("written"); input(); os._exit(0)
    os.waitpid(pid, 0)
    print("collected"); input()
    """
    with running(program, str(tmp_path / "data")) as child:
        tree = Tree(lambda: [child.pid])
        tree.usage(0.0)
        tell(child)
        first = tree.usage(1.0)  # the child is there with its books
        tell(child)
        second = tree.usage(1.0)  # its parent has taken them over
    assert int(first["write_bytes"]) == pytest.approx(8 * MEGABYTE, rel=0.1)
    assert int(second["write_bytes"]) < MEGABYTE


def test_memory_is_shared_out_and_agrees_with_the_kernel() -> None:
    program = """
    import os, mmap
    shared = mmap.mmap(-1, 64 << 20)
    shared.write(b"x" * (64 << 20))
    children, (reading, writing) = [], os.pipe()
    for _ in range(3):
        if (pid := os.fork()) == 0:
            sum(shared[:: 4096]); os.write(writing, b"x"); import time; time.sleep(600); os._exit(0)
        children.append(pid)
    for _ in children: os.read(reading, 1)
    print("ready"); input()
    for pid in children: os.kill(pid, 9)
    """
    with running(program) as child:
        usage = Tree(lambda: [child.pid]).usage(1.0)
        family = [child.pid, *(p.pid for p in psutil.Process(child.pid).children())]
        told = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in family]
        tell(child)
    pss = sum(int(re.findall(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[0]) * 1024 for text in told)
    rss = sum(int(re.findall(r"^Rss:\s+(\d+) kB", text, re.MULTILINE)[0]) * 1024 for text in told)
    assert len(family) == 4
    assert int(usage["rss_bytes"]) == pytest.approx(pss, rel=0.02)
    assert rss > 4 * 60 * MEGABYTE > 2 * pss


def test_memory_that_takes_long_to_look_at_is_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []

    def slow(_process: psutil.Process) -> int:
        looked.append(time.monotonic())
        time.sleep(0.005)
        return 7

    monkeypatch.setattr(processes, "_memory", slow)
    with running("print('ready'); input()") as child:
        tree = Tree(lambda: [child.pid])
        while len(looked) < 2:
            assert tree.usage(0.01)["rss_bytes"] == 7
            time.sleep(0.01)
    assert looked[1] - looked[0] > 0.5  # 5 ms a time are 1 % of it


def test_a_collector_gives_rows_of_a_busy_process() -> None:
    with running(f"{BURN}\nprint('ready')\nburn(600)") as child:
        host, server = HostCollector(), ServerCollector(lambda: [child.pid])
        host.period_s = server.period_s = 0.25
        begun, before = time.time(), book(child.pid)
        host.start()
        server.start()
        give_up = time.monotonic() + 60
        while min(len(one._rows) for one in (host, server)) < 4 and time.monotonic() < give_up:
            time.sleep(0.05)
        hosts, servers = host.stop(), server.stop()
        used, passed_s = book(child.pid) - before, time.time() - begun
    assert 4 <= len(hosts) <= passed_s / 0.25 + 1
    assert 4 <= len(servers) <= passed_s / 0.25 + 1
    times = [float(row["second"]) for row in servers]
    assert begun - 0.01 <= times[0] <= times[-1] <= begun + passed_s
    shares = [float(row["cpu_percent"]) / 100 for row in servers[:-1]]
    sampled = sum(share * (to - since) for share, (since, to) in zip(shares, pairwise(times), strict=True))
    unseen_s = passed_s - (times[-1] - times[0])
    assert used - unseen_s - 0.1 <= sampled <= used + 0.1
    assert all(float(row["rss_bytes"]) > MEGABYTE and float(row["open_files"]) >= 3 for row in servers)
    assert all(0 < float(row["cpu_percent"]) <= 100 for row in hosts)


def test_processes_that_are_gone_are_no_error() -> None:
    with running("print('ready'); input()") as child:
        tree = Tree(lambda: [child.pid])
        tree.usage(0.0)
    usage = tree.usage(1.0)
    assert usage == {"cpu_percent": 0.0, "rss_bytes": 0, "read_bytes": 0, "write_bytes": 0, "open_files": 0}
