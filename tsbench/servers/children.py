"""The one way to start, watch and end another process: a program of ours, a server, a recorder."""

from __future__ import annotations

import fcntl
import json
import os
import posix
import pwd
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tsbench.servers import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

KILLED_S = 30.0
"""Time limit for a killed process to end, in seconds: one that waits for a broken disk never does."""
PIPE_BYTES = 1 << 18
"""Room of each pipe of a child that is talked to."""
_OUTER_LIMIT_S = 7 * 86_400.0
"""Time limit for a message to be taken, in seconds."""


def program(module: str) -> list[str]:
    """Return the command that calls `main` of a module of ours."""
    start = f"import sys; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", start]  # with `-m` its classes would be those of a module named `__main__`


class Child:
    """A process that this one has started, with its own session: Ctrl-C in the terminal does not reach it.

    The kernel sends it `death_signal` when the thread that started it ends, so that it does not outlive this process:
    **start it from a thread that lives as long as the child**, the main one.

    Parameters
    ----------
    user
        Name of the user that it runs as, if not this one; only root can change that.
    groups
        Open files `cgroup.procs` of the control groups in which it runs from the first instruction of its program.
    talk
        Connect its standard input and output with the pipes `outgoing` and `incoming`.
    how
        More arguments of `subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        death_signal: signal.Signals = signal.SIGKILL,
        user: str | None = None,
        groups: Sequence[int] = (),
        talk: bool = False,
        **how: Any,
    ) -> None:
        account = f"{pwd.getpwnam(user).pw_uid}:{pwd.getpwnam(user).pw_gid}" if user is not None else ""
        launched = [str(os.getpid()), str(int(death_signal)), account, " ".join(map(str, groups)), *command]
        self.incoming = self.outgoing = -1
        its_ends: list[int] = []
        if talk:
            (how["stdin"], self.outgoing), (self.incoming, how["stdout"]) = _pipe(), _pipe()
            its_ends += how["stdin"], how["stdout"]
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", launch.__file__, *launched],
                start_new_session=True,
                pass_fds=groups,
                **{"stdin": subprocess.DEVNULL, **how},
            )
        except BaseException:
            self.close()
            raise
        finally:
            for end in its_ends:  # at once: gevent's `os.close` waits for the event loop, and we for the pipe's end
                posix.close(end)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status, or minus the number of the signal that killed it; None while it runs."""
        return self._process.poll()

    def ended(self, *, within_s: float = 0.0) -> str:
        """Return how the process ended, such as `killed by SIGKILL`; "" if it has not within that time."""
        return how_it_ended(self._process.returncode) if self.wait(within_s) else ""

    def wait(self, within_s: float) -> bool:
        """Wait until the process has ended; return False if it has not in time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None

    def send_signal(self, number: signal.Signals, *, session: bool = False) -> None:
        """Send a signal, if the process runs; with `session` also to what it has started and what outlived it."""
        with suppress(ProcessLookupError):
            if session:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def end(self, number: signal.Signals, *, within_s: float) -> bool:
        """Ask the process to end by a signal, then kill all of its session; return False if it did not end by itself.

        It may still be `alive` if it waits for a broken disk.
        """
        self.send_signal(number)
        in_time = self.wait(within_s)
        self.kill()
        return in_time

    def kill(self, *, within_s: float = KILLED_S) -> None:
        """Kill all of its session, and wait until the process has ended."""
        self.send_signal(signal.SIGKILL, session=True)
        self.wait(within_s)

    def close(self) -> None:
        """Close the pipes."""
        for end in (self.incoming, self.outgoing):
            if end >= 0:
                os.close(end)
        self.incoming = self.outgoing = -1


def _pipe() -> tuple[int, int]:
    """Return a pipe with room for 256 KB, if the system permits it.

    A piece of 64 KB at a time would wake both processes several times for a write of a thousand rows.
    """
    incoming, outgoing = os.pipe()
    with suppress(AttributeError, OSError):  # only Linux has it, and a user may have too many pipes for it
        fcntl.fcntl(incoming, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return incoming, outgoing


class Channel:
    """Lines of JSON in both directions between two processes, each of which reads one pipe and writes the other."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._received = b""

    def send(self, **message: Any) -> None:
        """Send a message; if the other process has ended, only `receive` reports that."""
        line = json.dumps(message).encode() + b"\n"
        with suppress(OSError):
            while line:
                _, writable, _ = select.select([], [self._outgoing], [], _OUTER_LIMIT_S)
                line = line[os.write(self._outgoing, line[: select.PIPE_BUF]) :] if writable else b""

    def receive(self, *, within_s: float) -> dict[str, Any] | None:
        """Return the next message, None if none comes in time.

        Raises
        ------
        EOFError
            If none will come any more.
        """
        give_up = time.monotonic() + within_s
        while b"\n" not in self._received:
            readable, _, _ = select.select([self._incoming], [], [], max(0.0, give_up - time.monotonic()))
            if not readable:
                return None
            piece = os.read(self._incoming, PIPE_BYTES)
            if not piece:
                raise EOFError
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def standard_pipes() -> tuple[int, int]:
    """Return a child's ends of the pipes to its parent; what else it prints goes to its standard error."""
    outgoing = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # it must not mix with the messages
    return sys.stdin.fileno(), outgoing


def how_it_ended(returncode: int) -> str:
    """Return a description of a `Popen.returncode`: `killed by SIGKILL`, or `exit status 3`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-returncode}"
