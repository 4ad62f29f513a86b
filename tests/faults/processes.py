"""Faults of tsbench's own processes and files, with SQLite, which has no server that could be the cause."""

from __future__ import annotations

import shutil
import signal
import time
from typing import TYPE_CHECKING

import psutil

from tests.cli.support import PROGRAMS
from tests.faults.bench import IMPATIENT, KEPT, PATIENCE_S, STARTS_ANEW, Fault, Skipped
from tests.faults.hands import CHECKING, FIVE_SECONDS, LOADING, disk_full, nothing, room, signalled, small_disk, told
from tsbench.collect.processes import LOCUST
from tsbench.collect.sysstat import recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.bench import Stand

TWO_PROCESSES = ("--set", "drive.duration=5s", "--set", "drive.processes=2")


# --- load processes, encoders, recorders ------------------------------------------------------------------------------


def _load(stand: Stand) -> psutil.Process:
    return stand.load_process()


def _worker(stand: Stand) -> psutil.Process:
    return next(child for child in stand.load_process().children() if LOCUST in child.cmdline())


def _first_worker(stand: Stand) -> None:
    """Kill a worker as soon as it was forked, long before it is ready."""
    stand.until("measure")

    def forked() -> bool:
        return any(LOCUST in child.cmdline() for child in stand.load_process().children())

    stand.command.wait_until(lambda: [one for one in stand.command.family() if LOCUST in one.cmdline()])
    stand.command.wait_until(forked)
    began = time.monotonic()
    _worker(stand).kill()
    stand.command.wait(PATIENCE_S)
    assert time.monotonic() - began < 30, f"named after {time.monotonic() - began:.0f} s"


def _new_encoder(stand: Stand) -> None:
    """Kill the encoder as soon as it was started."""
    stand.until("measure")
    stand.command.wait_until(
        lambda: [one for one in stand.command.family() if any("feed.encoder" in word for word in one.cmdline())]
    )
    _encoder(stand).kill()


def _encoder(stand: Stand) -> psutil.Process:
    return next(child for child in stand.command.family() if any("feed.encoder" in word for word in child.cmdline()))


def _sadc(stand: Stand) -> psutil.Process:
    if recorder() is None:
        raise Skipped("sysstat is not installed")
    return next(child for child in stand.command.family() if child.name() == "sadc")


def _short_of_memory(stand: Stand) -> None:
    stand.until("measured")
    loading = stand.load_process()
    loading.rlimit(psutil.RLIMIT_AS, (loading.memory_info().vms, loading.memory_info().vms))
    loading.rlimit(psutil.RLIMIT_DATA, (1, 1))


def _few_files(number: int) -> Callable[[Stand], None]:
    def before(stand: Stand) -> None:
        stand.program = ("/usr/bin/prlimit", f"--nofile={number}", str(PROGRAMS / "tsbench"))

    return before


# --- results ----------------------------------------------------------------------------------------------------------


def _results_gone(stand: Stand) -> None:
    stand.until("measured")
    shutil.rmtree(stand.place / "results")


def _histograms_damaged(stand: Stand) -> None:
    stand.until("measured")
    for path in stand.partial.glob("latency/*.hlog"):
        with path.open("r+b") as file:
            file.seek(max(0, path.stat().st_size // 2))
            file.write(b"\xff" * 200)


FAULTS = (
    Fault(
        "load process killed (SIGKILL)", signalled(_load, signal.SIGKILL, "measured"),
        (r"the load process was killed by SIGKILL", r"for lack of memory"), quick=True, quick_resumed=True,
    ),
    Fault(
        "load process crashes (SIGSEGV)", signalled(_load, signal.SIGSEGV, "measured"),
        (r"the load process was killed by SIGSEGV",),
    ),
    Fault(
        "load process told to end (SIGTERM)", signalled(_load, signal.SIGTERM, "measured"),
        (r"the load process ended after \d+ of 60 s: somebody sent it SIGTERM",), quick=True,
    ),
    Fault(
        "load process suspended (SIGSTOP)", signalled(_load, signal.SIGSTOP, "measured"),
        (r"the load processes did not end within",), words=IMPATIENT,
    ),
    Fault("load process out of memory", _short_of_memory, (r"ran out of memory|lack of memory",),
          validity="invalid|inconclusive"),
    Fault(
        "1 of 2 workers crashes (SIGSEGV)", signalled(_worker, signal.SIGSEGV, "measured"),
        (r"1 of 2 workers ended early: worker-", r"killed by SIGSEGV"),
        validity="invalid", words=TWO_PROCESSES, resumed=KEPT, quick=True,
    ),
    Fault(
        "1 of 2 workers suspended (SIGSTOP)", signalled(_worker, signal.SIGSTOP, "measured"),
        (r"worker",), words=(*TWO_PROCESSES, "--set", "drive.stop_timeout=1s"), validity="invalid", resumed=KEPT),
    Fault("1 of 2 workers killed before it was ready", _first_worker,
          (r"a worker \(process \d+\) ended before the test began: killed by SIGKILL",), words=TWO_PROCESSES),
    Fault("encoder killed before it was ready", _new_encoder, (r"the encoder has ended \(killed by SIGKILL\)",),
          words=FIVE_SECONDS),
    Fault("encoder killed (SIGKILL)", signalled(_encoder, signal.SIGKILL, "measured"), (r"the encoder has ended",)),
    Fault(
        "recorder (sadc) killed", signalled(_sadc, signal.SIGKILL, "measured"),
        code=0, validity="valid", words=FIVE_SECONDS, resumed=KEPT),
    Fault(
        "recorder (sadc) suspended", signalled(_sadc, signal.SIGSTOP, "measured"),
        code=0, validity="valid", words=FIVE_SECONDS, resumed=KEPT),
    Fault("too few file descriptors from the start", nothing, (r"[Tt]oo many open files",),
          before=_few_files(12)),
    Fault("Ctrl-C in the load", told(signal.SIGINT, at="load"), (r"interrupted", r"--resume"),
          code=130, words=LOADING),
    Fault("Ctrl-C in the measurement", told(signal.SIGINT, at="measured"), (r"interrupted", r"--resume"), code=130),
    Fault("Ctrl-C in the checks", told(signal.SIGINT, at="check"), (r"interrupted", r"--resume"),
          code=130, words=CHECKING),
    Fault("SIGTERM in the measurement", told(signal.SIGTERM, at="measured"), (r"interrupted", r"--resume"), code=130,
          quick=True),
    Fault("SIGHUP in the load", told(signal.SIGHUP, at="load"), (r"interrupted", r"--resume"),
          code=130, words=LOADING),
    Fault("tsbench killed (SIGKILL) in the load", told(signal.SIGKILL, at="load"),
          code=-signal.SIGKILL, validity="", words=LOADING),
    Fault("tsbench killed (SIGKILL) in the measurement", told(signal.SIGKILL, at="measured"),
          code=-signal.SIGKILL, validity=""),
    Fault("result set deleted in the measurement", _results_gone, (r"results/.*(missing|No such file|gone)",),
          validity="", resumed=STARTS_ANEW),
    Fault("histograms damaged in the measurement", _histograms_damaged,
          (r"what the load processes recorded is damaged", r"hlog"), words=FIVE_SECONDS),
    Fault("disk full in the load", nothing, (r"disk full", r"free some room", r"--out"),
          words=("--set", "load.window=100h"), before=small_disk("6m"), quick=True, of_root=True),
    Fault("disk full in the measurement", disk_full("measured"), (r"disk full|No space left",),
          words=FIVE_SECONDS, before=small_disk("20m"), cure=room),
    Fault("disk full in the checks", disk_full("check"), (r"disk full|No space left",),
          words=("--set", "check.answers=20000"), before=small_disk("20m"), cure=room),
)  # fmt: skip
