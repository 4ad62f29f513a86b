"""Child processes: bound to the life of this one, and how they ended."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: libraries must not be loaded between fork and exec


def bind_to_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn`: the kernel sends the child `death_signal` when the starting thread ends."""
    parent, number = os.getpid(), int(death_signal)

    def bind() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl: the signal will never come
            os._exit(1)

    return bind


def how_it_ended(returncode: int) -> str:
    """Return a description of a `Popen.returncode`: `killed by SIGKILL`, or `exit status 3`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-returncode}"
