"""The thread that interrupts calls of drivers that block, when their time limit has passed."""

from __future__ import annotations

import _thread
import sys
import time
from typing import Any, Protocol


class Interruptible(Protocol):
    """A session whose running call another thread can end."""

    due_s: float
    """Time at which the running call is interrupted, on the monotonic clock."""

    def interrupt(self) -> None:
        """Interrupt the running call; called again and again until the limit is lifted."""
        ...


class Watchdog:
    """Interrupts the calls of sessions that exceed their time limit.

    One thread checks all sessions of the process 50 times a second: a timer per statement would cost a thread each.
    Thread, lock and sleep are the operating system's, also where gevent has replaced them: gevent's would wait for the
    very statement that they are to interrupt.
    """

    PERIOD_S = 0.02

    def __init__(self) -> None:
        self._sessions: set[Interruptible] = set()
        self._lock = new_lock()
        self._runs = False

    def watch(self, session: Interruptible) -> None:
        """Check a session from now on."""
        with self._lock:
            self._sessions.add(session)
            if not self._runs:
                self._runs = True
                _original("_thread", "start_new_thread")(self._look, ())

    def forget(self, session: Interruptible) -> None:
        """Check a session no longer."""
        with self._lock:
            self._sessions.discard(session)

    def limit(self, session: Interruptible, due_s: float) -> None:
        """Set when the session's running call is interrupted, on the monotonic clock; infinity for never."""
        with self._lock:  # so that no other statement begins between the check and the interrupt
            session.due_s = due_s

    def _look(self) -> None:
        sleep = _original("time", "sleep")
        while True:
            sleep(self.PERIOD_S)
            with self._lock:
                if not self._sessions:
                    self._runs = False
                    return
                for session in self._sessions:
                    if time.monotonic() > session.due_s:
                        session.interrupt()


def new_lock() -> Any:
    """Return a lock of the operating system, also where gevent has replaced them."""
    return _original("_thread", "allocate_lock")()


def _original(module: str, name: str) -> Any:
    """Return a function of the standard library, in its original form if gevent has replaced it."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original(module, name) if monkey else getattr({"_thread": _thread, "time": time}[module], name)
