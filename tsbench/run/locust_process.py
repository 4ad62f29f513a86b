"""Locust as a child process for one run: start it and wait for it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentError, ArgumentParser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.collect.processes import LOCUST
from tsbench.errors import Broken, UserMistake
from tsbench.results.json_files import read_part
from tsbench.results.process import TIMES, Times
from tsbench.servers.children import KILLED_S, Child, how_it_ended
from tsbench.servers.interrupts import Deferral
from tsbench.servers.process import free_port
from tsbench.targets.credentials import WEB_PASSWORD, secret_for
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from tsbench.results.rundir import RunDir
    from tsbench.scenario.spec import Job

LOCUSTFILE = Path(__file__).parent.parent / "drive" / "locustfile.py"
LOCUSTFILES = (Path(__file__).parent.parent / "locustfiles", Path(__file__).parent.parent.parent / "locustfiles")
"""Directory of the locustfiles: in an installed package, or in a checkout."""
_CAUSES_OF_DEATH = "somebody killed it, or the kernel for lack of memory (see dmesg)"
START_S = 60.0
"""Time limit beyond the run itself for Locust's start, connecting all users and writing results, in seconds."""


def expected_s(spec: Job) -> float:
    """Return the longest duration of the load in seconds, from the start signal to the end of the measured window."""
    return (spec.drive.longest_warmup + spec.drive.duration) / NS_PER_S


def drive(
    spec: Job,
    run: RunDir,
    endpoint: str,
    *,
    tick: Callable[[float], None],
    alive: Callable[[], bool],
    ending: Callable[[], None],
) -> None:
    """Run Locust on the run directory until it ends; `tick` is called with the seconds since its start.

    `ending` is called before the load is stopped, whatever ends it: ops on their way must be able to end.

    Raises
    ------
    Broken
        If Locust fails, hangs, or never begins: one line with its last message.
    """
    with (run / "locust.log").open("wb") as log:
        # It is killed if we are: one that hangs listens to nothing else, and without us nobody needs its results.
        child = Child(command(spec), stdout=log, stderr=subprocess.STDOUT, cwd=run.path, env=environment(run, endpoint))
    started = time.monotonic()
    patience_s = spec.drive.stop_timeout / NS_PER_S + 10
    stopped = ""
    limit_s = expected_s(spec) + spec.drive.stop_timeout / NS_PER_S + START_S
    try:
        while child.alive:
            passed_s = time.monotonic() - started
            if passed_s > limit_s:
                raise Broken(f"the load processes did not end within {limit_s:.0f} s; see {run / 'locust.log'}")
            if not alive():  # no server is left to measure; the processes still write their results
                stopped = " because the server is gone"
                break
            tick(passed_s)
            time.sleep(0.1)
    finally:
        try:
            ending()
        finally:
            end(child, patience_s=patience_s)
    if stopped and not run.has(TIMES):
        raise Broken(f"the load never began{stopped}")
    code = child.returncode or 0
    if code < 0:
        if stopped:  # by ourselves, because it did not end within the time limit
            raise Broken(f"the load process did not stop within {patience_s:g} s and was killed; the server is gone")
        raise Broken(f"the load process was {how_it_ended(code)}; {_CAUSES_OF_DEATH}")
    if code:
        raise Broken(f"the load processes failed: {_last_words(run / 'locust.log')}")
    if not run.has(TIMES):
        raise Broken(f"the load never began: {_last_words(run / 'locust.log')}")
    if not stopped:
        _expect_whole(spec, run)


def _expect_whole(spec: Job, run: RunDir) -> None:
    """Raise `Broken` if the load ended more than a second before its time, which Locust's exit code hides."""
    times = read_part(run / TIMES, Times)
    measured_s, wanted_s = times.end_s - times.start_s, spec.drive.duration / NS_PER_S
    if spec.writes and spec.ends_early:
        stopped_s = times.start_s + 1 if times.stopped_s is None else times.stopped_s
        if stopped_s < times.start_s + 1 and spec.drive.window is None:  # a window's points may be all that counts
            passed_s = stopped_s - times.go_s
            raise Broken(
                f"all points were written {passed_s:.1f} s after the first op, before a second was measured; load "
                "less before (load.share, load.window), or take an open loop, a think time or a shorter warm-up"
            )
    elif spec.query_file is None and measured_s < wanted_s - 1:
        log = (run / "locust.log").read_text(encoding="utf-8", errors="replace")
        why = "it ran out of memory" if "MemoryError" in log else "somebody sent it SIGTERM"
        raise Broken(f"the load process ended after {measured_s} of {wanted_s:g} s: {why}")


def command(spec: Job) -> list[str]:
    """Return the command line, which contains no secret."""
    drive = spec.drive
    users = str(drive.users)
    words = [sys.executable, "-m", LOCUST, "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    words += ["--stop-timeout", str(drive.stop_timeout // NS_PER_S), "--exit-code-on-error", "0"]
    words += [] if drive.steps else ["--users", users, "--spawn-rate", users]
    if drive.processes > 1:
        port = str(free_port())
        words += ["--processes", str(drive.processes), "--master-bind-host", "127.0.0.1", "--master-host", "127.0.0.1"]
        words += ["--master-bind-port", port, "--master-port", port]
    return words


def environment(run: RunDir, endpoint: str) -> dict[str, str]:
    """Return the child's environment: ours without Locust's own variables, which would change the run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    ours = {"TSBENCH_RUN": str(run.path.absolute()), "TSBENCH_ENDPOINT": endpoint}
    return {**inherited, **ours}


def locustfile(target: str) -> Path:
    """Return the path of a target's locustfile; raise `UserMistake` if it has none."""
    place = next((place for place in LOCUSTFILES if place.is_dir()), LOCUSTFILES[-1])
    known = sorted(path.stem for path in place.glob("*.py"))
    # One that had the name of its driver would be imported in the driver's place: its own name is shorter.
    file = next((name for name in (target, *known) if name in known and target.startswith(name)), None)
    if file is None:
        raise UserMistake(f"there is no locustfile for '{target}'; there are {', '.join(known) or 'none'} in {place}")
    return place / f"{file}.py"


def values_of(option: str, variable: str, words: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return all values of an option among words for Locust (None: the command line), or its environment variable's."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(option, action="append", default=[], dest="values")
    try:
        values = parser.parse_known_args(words)[0].values
    except ArgumentError:  # a value is missing, which Locust says
        return ()
    return tuple(values or filter(None, [os.environ.get(variable, "")]))


def expect_free(host: str, port: int, option: str) -> None:
    """Verify that a process can listen on a port of this machine; `*` is all interfaces.

    Raises
    ------
    UserMistake
        If it cannot, with the option that chooses another port.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "*" else host, port))
        except OSError as error:
            raise UserMistake(f"cannot listen on {host}:{port}: {error.strerror}; choose another {option}") from None


def web(file: Path, host: str, port: int, words: Sequence[str]) -> NoReturn:
    """Replace this process by Locust with its web UI and a locustfile, so that signals reach Locust.

    Raises
    ------
    UserMistake
        If the port is taken, or other machines could reach the page without a password.
    """
    secret_for(host, WEB_PASSWORD, "--host")
    expect_free(host, port, "--port")
    command = [sys.executable, "-m", LOCUST, "-f", str(file), "--class-picker"]
    os.execv(sys.executable, [*command, "--web-host", host, "--web-port", str(port), *words])  # noqa: S606 - no shell


def end(child: Child, *, patience_s: float) -> None:
    """Ask the child to stop, wait, then kill it and everything that it started; an interrupt shortens the wait."""
    with Deferral(partial(child.send_signal, signal.SIGKILL, session=True)):  # also workers that outlived the master
        child.end(signal.SIGTERM, within_s=patience_s)
    if child.alive:
        raise Broken(f"the load process {child.pid} was killed but did not end within {KILLED_S:g} s")


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    ours = [line for line in lines if "tsbench: " in line]
    last = (ours or [line for line in lines if "ERROR" in line or "Error" in line] or lines or ["it said nothing"])[-1]
    return re.sub(r"^\[.*?\] \S+\s", "", last)
