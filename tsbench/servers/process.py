"""A server's process: start it, wait until it answers, stop it, and never leave it running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from tsbench.errors import Broken
from tsbench.servers import cgroup
from tsbench.servers.children import Child
from tsbench.servers.interrupts import Deferral
from tsbench.servers.logs import telling_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PATIENCE_S = 10.0
"""Time limit for processes to end after a signal, in seconds."""
_ENDING_S = 0.5
"""Time limit for a process to end by itself if another server has its port, in seconds."""
_HELD: deque[socket.socket] = deque()
"""Sockets that hold the ports of `free_port`."""
_MOST_HELD = 64
"""Number of ports that are held: a campaign of a thousand cells would run out of descriptors else."""


class NotReady(Exception):  # noqa: N818 - not an error yet
    """Raised while the server does not answer yet; the text is the error of the last try."""


class ServerProcess:
    """One server process and its children.

    It does not outlive a killed tsbench: see `children.Child`, also for `user` and `death_signal`. Caps apply from its
    first instruction: see `cgroup`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self._command = list(command)
        self._log = log
        self._directory = directory
        self._environment = environment
        self._user = user
        self._stop_signal = stop_signal
        self._death_signal = death_signal
        self._process: Child | None = None

    @property
    def name(self) -> str:
        """Name of the program, for messages."""
        return os.path.basename(self._command[0])  # noqa: PTH119 - the command is text

    def start(
        self,
        ready: Callable[[], object],
        *,
        group: cgroup.Group | None = None,
        timeout_s: float = 60.0,
        every_s: float = 0.05,
    ) -> None:
        """Start the process, in a control group if given; wait until `ready` no longer raises `NotReady`.

        `ready` tries a real connection. Any other error ends the wait: the process is killed and the error raised.

        Raises
        ------
        tsbench.errors.Broken
            If the process ends, or is not ready in time (it is killed then); the text has the error of the last try,
            and the end of the log.
        """
        if self.alive():
            return
        # An interrupt between the fork and the assignment would leave a process that nobody knows.
        with self._log.open("ab") as log, cgroup.entries(group) as groups, Deferral():
            self._process = Child(
                self._command,
                death_signal=self._death_signal,
                user=self._user,
                groups=groups,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=dict(self._environment) if self._environment is not None else None,
            )
        try:
            self._wait_until(ready, timeout_s, every_s)
        except Exception as error:
            ended = self._process.ended(within_s=_ENDING_S)  # another server, which has the port, may have answered
            self.kill()
            if not ended:
                raise
            raise Broken(f"{self.name} ended at start ({ended}): {self._last_words()}") from error

    def _wait_until(self, ready: Callable[[], object], timeout_s: float, every_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while True:
            try:
                ready()
                return
            except NotReady as reason:
                if not self.alive() or time.monotonic() > give_up:
                    text = f"{self.name} did not answer within {timeout_s:g} s ({reason})"
                    raise Broken(f"{text}; its log ends with: {self._last_words()}") from None
            time.sleep(every_s)

    def stop(self, *, timeout_s: float = 60.0) -> None:
        """Ask the process to end, wait, and kill it after `timeout_s`. Do nothing if it is not running."""
        if not self.alive() or self._process is None:
            return
        family = self._family()
        self._process.send_signal(self._stop_signal)
        for process in family:  # a suspended process (SIGSTOP) would not handle the signal
            with suppress(psutil.NoSuchProcess):
                process.resume()
        if not self._process.wait(timeout_s):
            self.kill()
        _wait_gone(family)

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait until it and its children have ended; kill remaining children too.

        Raises
        ------
        tsbench.errors.Broken
            If they do not end, for example because they wait for a broken disk.
        """
        if self._process is None:
            return
        family = self._family()
        self._process.kill(within_s=_PATIENCE_S)
        _wait_gone(family)

    def alive(self) -> bool:
        """Return True while the process runs."""
        return self._process is not None and self._process.alive

    def ended(self) -> str:
        """Return how the process ended, such as `killed by SIGKILL`; "" if it runs or was never started."""
        return self._process.ended() if self._process is not None else ""

    def pids(self) -> Sequence[int]:
        """Return the ids of the process and its children; empty if it is not running."""
        return [p.pid for p in self._family()]

    def tail(self, lines: int = 1) -> str:
        """Return the last non-empty lines of the log."""
        try:
            said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            said = []
        return "\n".join(said[-lines:]) or "its log is empty"

    def _last_words(self) -> str:
        return telling_line(self.tail(100))

    def _family(self) -> list[psutil.Process]:
        if self._process is None or not self.alive():
            return []
        try:
            head = psutil.Process(self._process.pid)
            return [head, *head.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1, which the kernel assigns to nobody else until 64 more were asked for.

    Between this call and the moment when a server listens there may be seconds: initdb, or the import of Locust. The
    socket stays bound for that long. It does not listen, so that a server, which sets SO_REUSEADDR as all of them do,
    can.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _HELD.append(holder)
    if len(_HELD) > _MOST_HELD:
        _HELD.popleft().close()
    return int(holder.getsockname()[1])


def _wait_gone(family: Sequence[psutil.Process]) -> None:
    """Wait until all processes have ended; kill those that remain for long."""
    kill_at = time.monotonic() + _PATIENCE_S
    give_up = kill_at + _PATIENCE_S
    while lingering := [p for p in family if _running(p)]:
        if time.monotonic() > give_up:
            pids = ", ".join(str(process.pid) for process in lingering)
            raise Broken(f"killed processes of the server are still there after {_PATIENCE_S:g} s: {pids}")
        if time.monotonic() > kill_at:
            for process in lingering:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            kill_at = give_up
        time.sleep(0.01)


def _running(process: psutil.Process) -> bool:
    """Return True unless the process has ended or is a zombie: containers often have no init to collect orphans."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
