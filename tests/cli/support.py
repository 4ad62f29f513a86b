"""The real command line in a directory of its own, with a check that no process remains."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tsbench.collect.processes import LOCUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PROGRAMS = Path(sys.executable).parent
PATIENCE_S = 240.0
"""Time limit for steps that take a second or two on an idle machine; importing Locust may take 15 s on a busy one."""
_PR_SET_CHILD_SUBREAPER = 36
LONG = ("--set", "drive.duration=60s")
POSTGRES = ("--set", "target.name=postgres")

TINY = """
question = "Does it fail well?"
[world]
use_case = "cpu-only"
scale = 5
[load]
window = "10m"
[drive]
users = 2
warmup = "0s"
duration = "1s"
wait = "5ms"
[[op]]
write = 1
weight = 10
[[op]]
query = "raw-one"
[check]
answers = 5
[target]
name = "sqlite"
"""


def complaint(stderr: str) -> str:
    """Return the single line with which a command fails."""
    assert "Traceback" not in stderr, stderr
    lines = [line for line in stderr.splitlines() if line.startswith("tsbench:")]
    assert len(lines) == 1, stderr
    return lines[0]


def says(line: str, *words: str) -> None:
    """Verify that a complaint has all expected words."""
    assert [word for word in words if word not in line] == [], line


def failed_gates(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each failed gate."""
    return {gate["gate"]: gate["text"] for gate in summary["gates"] if gate["state"] == "fail"}


def disturbances(summary: Mapping[str, Any]) -> list[str]:
    """Return why a run is not valid: at most that the load generator was the limit, as it may be on a busy machine."""
    unlike = {
        name: check["reason"] for name, check in summary["validity"]["checks"].items() if check["state"] != "valid"
    }
    assert {*unlike} <= {"limit"}, unlike
    return [*unlike.values()]


def recorded_seconds(path: Path) -> int:
    """Return how many seconds a load process has written to its `ops.jsonl`."""
    lines = path.read_text(encoding="utf-8").splitlines()[:-1]  # the last one may not be whole
    return len({json.loads(line)["second"] for line in lines})


class Command:
    """A running command with its output in files below `place`."""

    def __init__(self, place: Path, *words: str, env: Mapping[str, str | None] | None = None) -> None:
        self.place, self._err, self._out = place, place / "stderr.txt", place / "stdout.txt"
        environment = {**os.environ, **(env or {})}
        program, *arguments = words
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [str(PROGRAMS / program), *arguments],
                cwd=place,
                stdout=out,
                stderr=err,
                env={name: value for name, value in environment.items() if value is not None},
            )

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Poll until the condition holds; the command must not end before."""
        for _ in range(round(PATIENCE_S / 0.02)):  # counted, and not by a clock: machines are suspended now and then
            if condition():
                return
            assert self.process.poll() is None, f"it ended early: {self.stdout}{self.stderr}"
            time.sleep(0.02)
        raise AssertionError(f"nothing came of it: {self.stdout}{self.stderr}")

    def until_phase(self, name: str) -> None:
        """Wait for a phase of a run."""
        self.wait_until(lambda: f": {name}\n" in self.stderr)

    def until_measured(self) -> None:
        """Wait until a load process has recorded two seconds, of which the first may be incomplete."""

        written = "results/*/*.partial/process/*.ops.jsonl"
        self.wait_until(lambda: any(recorded_seconds(path) >= 2 for path in self.place.glob(written)))

    def until_recorded(self) -> None:
        """Wait until every load process has recorded three seconds, of which the first may be incomplete."""

        def recorded() -> list[int]:
            return [recorded_seconds(path) for path in self.place.rglob("*.ops.jsonl")]

        self.wait_until(lambda: min(recorded(), default=0) >= 3)

    def interrupt_once_recorded(self) -> None:
        """End the measuring of a bare Locust as Ctrl-C does, once there is something; the checks follow.

        A run time of seconds may be over on a busy machine before anything is measured.
        """
        self.until_recorded()
        self.signal(signal.SIGINT)

    def family(self) -> list[psutil.Process]:
        """All processes below it."""
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def child(self, name: str) -> psutil.Process:
        """The child of that name that has no such parent; bare Locust's server is a grandchild."""
        return next(p for p in self.family() if p.name() == name and p.parent().name() != name)

    def load_process(self) -> psutil.Process:
        """Locust's first process: the master, if it has workers."""
        (found,) = (p for p in psutil.Process(self.process.pid).children() if LOCUST in p.cmdline())
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Return its exit code."""
        for _ in range(round(patience_s / 0.1)):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.1)
        raise AssertionError(f"it did not end within {patience_s:g} s: {self.stdout}{self.stderr}")

    def ended_well(self, pattern: str = "results/*/*/summary.json") -> None:
        """Wait for runs that must end well. A busy machine may make them inconclusive, with exit code 1."""
        code = self.wait()
        summaries = [content(path) for path in self.place.glob(pattern)]
        assert summaries, self.stderr
        assert [failed_gates(summary) for summary in summaries] == [{}] * len(summaries)
        disturbed = [line for summary in summaries for line in disturbances(summary)]
        assert code == (1 if disturbed else 0), self.stderr

    def end(self) -> None:
        """Kill the command if a failed test has left it running; its children end with it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def started(
    place: Path, *words: str, program: tuple[str, ...] = ("tsbench",), env: Mapping[str, str | None] | None = None
) -> Command:
    """Start `tsbench run` on the tiny scenario, without a report: it takes more CPU than all the rest."""
    return Command(place, *program, "run", "tiny.toml", "--no-report", *words, env=env)


@contextmanager
def nothing_left(*, within_s: float = 45.0) -> Iterator[None]:
    """Verify that all processes which are started meanwhile have ended at the end, orphans too.

    Orphans become children of this process, as those of a container's first process do. Children of processes that were
    there before are theirs: a PostgreSQL for all tests starts and ends workers at any time. The time limit is less than
    the 60 s for which Locust's worker looks for its master.
    """
    libc, me = ctypes.CDLL(None), psutil.Process()
    before = set(me.children(recursive=True))

    def new() -> set[psutil.Process]:
        of_others = set(before)
        for process in before:
            with suppress(psutil.NoSuchProcess):
                of_others.update(process.children(recursive=True))
        return set(me.children(recursive=True)) - of_others

    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
        give_up = time.monotonic() + within_s
        while (left := _running(new())) and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        names = {p.pid: p.name() for p in _running(new())}
        for pid in names:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not left, f"left running: {names}"


def _running(processes: set[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif process.ppid() == os.getpid():  # nobody else collects an orphan
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
    return found


def scenario(place: Path, *changes: tuple[str, str]) -> Path:
    """Write the tiny scenario, with texts replaced, and return its path."""
    text = TINY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = place / "tiny.toml"
    path.write_text(text)
    return path


def only(place: Path, pattern: str) -> Path:
    """Return the only path that matches."""
    (found,) = place.glob(pattern)
    return found


def content(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found
