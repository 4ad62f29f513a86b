"""What makes the faults: signals, locks, full disks, and what the proxy does; each at a moment of the run."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from tests.cli.support import failed_gates
from tests.faults.bench import Skipped, Stand

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.faults.proxy import Behaviour, Proxy

    Act = Callable[[Stand], None]
    Who = Callable[[Stand], psutil.Process]

LOADING = ("--set", "load.window=3000h")
CHECKING = ("--set", "drive.duration=3s", "--set", "check.answers=1000000")
SETTLING = ("--set", "load.window=500h")
"""Settings with which a phase takes until the fault."""
FIVE_SECONDS = ("--set", "drive.duration=5s")


# --- signals ----------------------------------------------------------------------------------------------------------


def server(stand: Stand) -> psutil.Process:
    return stand.served()


def signalled(who: Who, number: signal.Signals, moment: str) -> Act:
    """Return an act that sends a process a signal at a moment."""

    def act(stand: Stand) -> None:
        stand.until(moment)
        who(stand).send_signal(number)

    return act


def suspended(moment: str) -> Act:
    """Return an act that suspends a server with all its processes: the kernel still accepts connections for it."""

    def act(stand: Stand) -> None:
        stand.until(moment)
        suspend(stand)

    return act


def suspend(stand: Stand) -> None:
    for process in _family(stand):
        with suppress(psutil.NoSuchProcess):
            process.suspend()


def wake(stand: Stand) -> None:
    for process in _family(stand):
        with suppress(psutil.NoSuchProcess):
            process.resume()


def _family(stand: Stand) -> list[psutil.Process]:
    head = stand.served()
    return [head, *head.children(recursive=True)]


def told(*numbers: signal.Signals, at: str) -> Act:
    """Return an act that sends tsbench signals, one after the other."""

    def act(stand: Stand) -> None:
        stand.until(at)
        for number in numbers:
            stand.command.signal(number)
            with suppress(subprocess.TimeoutExpired):
                stand.command.process.wait(0.3)

    return act


def nothing(stand: Stand) -> None:
    """Do nothing: the fault is there from the start."""


# --- disks ------------------------------------------------------------------------------------------------------------


def small_disk(size: str) -> Act:
    """Return a preparation that puts the results on a small disk of their own."""

    def before(stand: Stand) -> None:
        place = stand.place / "results"
        place.mkdir()
        stand.cleaning.enter_context(_mounted(place, size))

    return before


@contextmanager
def _mounted(path: Path, size: str) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        raise Skipped("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def disk_full(moment: str) -> Act:
    """Return an act that takes all room that is left beside the results."""

    def act(stand: Stand) -> None:
        stand.until(moment)
        with (stand.place / "results" / "filled").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 12))

    return act


def room(stand: Stand) -> None:
    """Free the room that `disk_full` took."""
    (stand.place / "results" / "filled").unlink(missing_ok=True)


# --- the way to the server --------------------------------------------------------------------------------------------


def on_way(moment: str, act: Callable[[Proxy], object]) -> Act:
    """Return an act that changes the proxy at a moment."""

    def change(stand: Stand) -> None:
        stand.until(moment)
        assert stand.proxy is not None
        act(stand.proxy)

    return change


def behaves(moment: str, behaviour: Callable[[], Behaviour]) -> Act:
    """Return an act that lets the proxy behave so from a moment on."""

    def change(proxy: Proxy) -> None:
        proxy.behaviour = behaviour()

    return on_way(moment, change)


def refusing(stand: Stand) -> None:
    """Refuse every connection from the start."""
    assert stand.proxy is not None
    stand.proxy.refuse()


# --- what must hold afterwards ----------------------------------------------------------------------------------------


def some_measured(stand: Stand) -> None:
    """Verify that the figures of what was measured before the fault are kept."""
    assert stand.cell["measured"]["ops"]["write-1"]["count"] > 10


def writes_counted(stand: Stand) -> None:
    """Verify that the measured figures and the count of stored points are kept, although the checks broke off."""
    some_measured(stand)
    assert stand.cell["writes"]["stored"] == stand.cell["writes"]["acknowledged"]
    assert stand.cell["size"] is None


def gate_failed(gate: str, text: str) -> Act:
    """Return an assertion that a gate failed with this text, beside figures that are kept."""

    def holds(stand: Stand) -> None:
        some_measured(stand)
        assert text in failed_gates(stand.cell)[gate]
        (run,) = stand.place.glob("results/*/*/ops.parquet")
        assert run.exists()

    return holds
