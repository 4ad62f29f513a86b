"""Ctrl-C, SIGTERM and a closed terminal: what they end, and what they must not interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferral:
    """A `with` block that Ctrl-C, SIGTERM and SIGHUP do not interrupt: their handlers run at its end, once.

    Signals without a Python handler keep their effect. `at_signal` is called at each signal, so that a second Ctrl-C
    shortens what the block waits for. In other threads than the main one, which no signal interrupts, it does nothing.
    """

    def __init__(self, at_signal: Callable[[], object] = lambda: None) -> None:
        self._at_signal = at_signal
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}
        self._received: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received is not None:
            self._before[signal.Signals(self._received)](self._received, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        self._at_signal()


@contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM and a closed terminal (SIGHUP) raise KeyboardInterrupt in a `with` block, as Ctrl-C does."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reported = sys.unraisablehook

    def stop_again(swallowed: sys.UnraisableHookArgs) -> None:
        """Repeat a Ctrl-C that came where Python ignores exceptions: in a callback of a fork, or a `__del__`."""
        if issubclass(swallowed.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            reported(swallowed)

    sys.unraisablehook = stop_again
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup sets SIG_IGN
            signal.signal(number, stop)
    try:
        yield
    finally:
        sys.unraisablehook = reported
        for number, handler in before.items():
            signal.signal(number, handler)
