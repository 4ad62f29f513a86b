"""Ctrl-C during cleanup: it must not leave data, control groups or processes behind."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Deferral:
    """A `with` block that Ctrl-C, SIGTERM and SIGHUP do not interrupt: their handlers run at its end, once.

    Signals without a Python handler keep their effect. `hurry` is called at each signal, so that a second Ctrl-C
    shortens what the block waits for. In other threads than the main one, which no signal interrupts, it does nothing.
    """

    def __init__(self, hurry: Callable[[], object] = lambda: None) -> None:
        self._hurry = hurry
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
        self._hurry()
