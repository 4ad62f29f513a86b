"""Child processes that do not outlive this one."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec is no place to load libraries


def bind_to_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """What a child runs before its program, so that the kernel sends it the signal when the starting thread ends."""
    parent, number = os.getpid(), int(death_signal)

    def bind() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died in between: the signal will not come any more
            os._exit(1)

    return bind
