"""Ctrl-C, once or twice, at random moments of whole runs on five databases, a third of them in the checks."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cli.support import nothing_left, scenario, started
from tests.faults.bench import DATABASES, PATIENCE_S, left_behind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TARGETS = ("PostgreSQL", "InfluxDB 1.8", "SQLite", "DuckDB", "MariaDB")
WORDS = ("--set", "load.window=24h", "--set", "drive.duration=2s", "--set", "check.answers=1000000")
"""The checks last until they are interrupted."""
COLD = "cold start"
LONGEST_S = {"": 0.5, "start": 1.5, "load": 1.0, "settle": 0.5, COLD: 2.0, "measure": 4.0, "check": 2.5}
"""The phases of a run ("": before the first), and how long after the beginning of one Ctrl-C may come.

A phase and not the time since the start, so that a slow machine is interrupted in all of them, too.
"""
MOST_BETWEEN_S = 0.6


@dataclass(frozen=True)
class Moment:
    """When Ctrl-C comes, in seconds after the beginning of a phase, and how long after it comes again (None: once)."""

    database: str
    phase: str
    after_s: float
    again_s: float | None

    @property
    def text(self) -> str:
        again = "" if self.again_s is None else f" and {self.again_s:.2f} s later"
        return f"{self.database}: Ctrl-C {self.after_s:.2f} s into '{self.phase}'{again}"


def moments(count: int, seed: int, targets: Sequence[str] = TARGETS) -> list[Moment]:
    """Return random moments: by turns for each database, by turns once and twice, and every third in the checks."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        turn = number // len(targets)
        again_s = draw.uniform(0.0, MOST_BETWEEN_S) if turn % 2 else None
        phase = "check" if turn % 3 == 0 else draw.choice(list(LONGEST_S))
        found.append(Moment(targets[number % len(targets)], phase, draw.uniform(0.0, LONGEST_S[phase]), again_s))
    return found


def interrupt(moment: Moment, place: Path) -> tuple[int, list[str]]:
    """Interrupt one run in an empty directory; return its exit code and what is wrong with it."""
    place.mkdir(mode=0o755, exist_ok=True)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    scenario(place)
    wrong = []
    code = 0
    try:
        with nothing_left():
            cold = ("--set", "target.cold=true") if moment.phase == COLD else ()
            words = (*WORDS, *cold, "--set", f"target.name={DATABASES[moment.database].target}")
            command = started(place, *words, env={"TMPDIR": str(place / "tmp")})
            try:
                if moment.phase:
                    command.until_phase(moment.phase)
                time.sleep(moment.after_s)
                for wait_s in (0.0, *([] if moment.again_s is None else [moment.again_s])):
                    time.sleep(wait_s)
                    command.signal(signal.SIGINT)
                code = command.wait(PATIENCE_S)
            finally:
                command.end()
    except AssertionError as error:
        wrong.append(" ".join(str(error).split())[-300:])
    stderr = command.stderr
    lines = [line for line in stderr.splitlines() if line.startswith("tsbench:")]
    if not lines and ", in start\n" not in stderr and code in {1, -signal.SIGINT}:
        code, lines, stderr = 130, [""], "interrupted"  # it was Python's own start that was interrupted
    if code != 130 or len(lines) != 1 or "Traceback" in stderr:
        wrong.append(f"exit code {code}, {len(lines)} lines: {stderr[-500:]}")
    if code == 130 and ("interrupted" not in stderr or (moment.phase and "--resume" not in stderr)):
        wrong.append(f"it does not say that it was interrupted, and how to resume: {stderr[-300:]}")
    return code, wrong + [f"left behind: {one}" for one in left_behind(place, command.process.pid)]


def carry_out_all(count: int, seed: int, place: Path, targets: Sequence[str] = TARGETS) -> bool:
    """Interrupt that many runs, and print a table by database; return True if all is right."""
    codes: Counter[tuple[str, bool, int]] = Counter()
    failures = []
    for number, moment in enumerate(moments(count, seed, targets), 1):
        code, wrong = interrupt(moment, place / f"interrupt-{number}")
        codes[moment.database, moment.phase == "check", code] += 1
        failures += [f"{moment.text}: {one}" for one in wrong]
    print("\n| database | interrupted (130), in the checks | in other phases | otherwise |\n|---|---|---|---|")
    for name in targets:
        ended = sum(found for (database, _, code), found in codes.items() if database == name and code != 130)
        print(f"| {name} | {codes[name, True, 130]} | {codes[name, False, 130]} | {ended} |")
    print(f"\n{count} interrupts: {len(failures)} left something behind or ended otherwise")
    print("\n".join(failures), flush=True)
    return not failures
