"""Answers damaged on the way, over whole campaigns: `python -m tests.faults --damage N`.

A campaign of N + 2 cells goes through a proxy. The first and the last cell meet no fault. In each of the others the
proxy damages answers from a random phase on: it flips bits, leaves bytes out, leaves out the end, or ends the
connection in the middle. Every cell must end with a status and a summary, the last one valid, and the terminal shows no
traceback.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.cli.support import content, nothing_left, scenario, started
from tests.faults.bench import DATABASES, IMPATIENT, left_behind
from tests.faults.proxy import Behaviour, Link, Proxy
from tsbench.errors import UserMistake
from tsbench.results.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.cli.support import Command

TARGETS = ("PostgreSQL", "MariaDB", "FerretDB", "InfluxDB 1.8", "InfluxDB 2", "MySQL", "VictoriaMetrics", "QuestDB")
PHASES = ("start", "load", "settle", "measure", "check")
KINDS = ("bit", "bits", "hole", "truncated", "ended", "empty")
CELL_S = 90.0
"""Time limit of one cell on a busy machine, in seconds."""
_CELL = re.compile(r"^\[(\d+)/\d+[^]]*\] .*: ([\w ]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Harm:
    """What is done to one of so many answers from the beginning of a phase on."""

    phase: str
    kind: str
    one_in: int
    seed: int

    @property
    def text(self) -> str:
        return f"{self.kind} in 1 of {self.one_in} answers from '{self.phase}' on (seed {self.seed})"


class Damaged(Behaviour):
    """Damages some answers, as the harm that `harm_now` returns says, if it returns one."""

    def __init__(self, harm_now: Callable[[], Harm | None]) -> None:
        self._harm_now = harm_now
        self._draws: dict[int, random.Random] = {}

    def answer(self, link: Link, data: bytes) -> bytes:
        harm = self._harm_now()
        if harm is None:
            return data
        draw = self._draws.setdefault(harm.seed, random.Random(harm.seed))
        return data if draw.randrange(harm.one_in) else self._damaged(link, bytearray(data), harm.kind, draw)

    def _damaged(self, link: Link, data: bytearray, kind: str, draw: random.Random) -> bytes:
        place = draw.randrange(len(data))
        match kind:
            case "bit":
                data[place] ^= 1 << draw.randrange(8)
            case "bits":
                for _ in range(8):
                    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            case "hole":
                del data[place : place + 1 + draw.randrange(16)]
            case "truncated":
                del data[place:]
            case "ended":
                link.client.sendall(data[:place])
                link.close()
                return b""
            case "empty":
                return b""
        return bytes(data)


def harms(count: int, seed: int) -> list[Harm]:
    """Return as many random harms; all phases and all kinds come equally often."""
    draw = random.Random(seed)
    return [
        Harm(PHASES[number % len(PHASES)], KINDS[number % len(KINDS)], draw.choice((1, 3, 20)), draw.randrange(10**6))
        for number in range(count)
    ]


@dataclass
class Campaign:
    """How the cells of one campaign ended, by their state and validity, and what is wrong."""

    code: int
    ended: Counter[str]
    wrong: list[str]


def carry_out(database: str, count: int, seed: int, place: Path) -> Campaign:
    """Run one campaign in a new directory."""
    place.mkdir(mode=0o755)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    scenario(place)
    chosen, wrong = harms(count, seed), []
    of = DATABASES[database]
    assert of.server is not None
    code, stderr, pid = -1, "", 0
    try:
        with nothing_left(), ExitStack() as stack:
            directory = place / "own"
            directory.mkdir()
            server = of.server(directory)
            stack.callback(server.remove)
            server.start()
            stack.callback(server.stop)
            port = urlsplit(server.endpoint).port or 0
            proxy = stack.enter_context(Proxy(port))
            command = started(
                place,
                *("--set", f"target.name={of.target}", "--set", f"matrix.world.seed={[*range(1, count + 3)]}"),
                *(*IMPATIENT, "--set", "drive.duration=1s", "--set", "drive.users=2"),
                *("--endpoint", server.endpoint.replace(f":{port}/", f":{proxy.port}/", 1)),
                env={"TMPDIR": str(place / "tmp")},
            )
            pid = command.process.pid
            stack.callback(command.end)
            proxy.behaviour = Damaged(lambda: _due(command, chosen))
            code = command.wait(CELL_S * (count + 2))
            stderr = command.stderr
    except AssertionError as error:
        wrong.append(" ".join(str(error).split())[-800:])
    ended, faults = _examined(place, count + 2, code, stderr)
    left = [f"left behind: {one}" for one in left_behind(place, pid)] if pid else []
    return Campaign(code, ended, wrong + faults + left)


def _due(command: Command, chosen: Sequence[Harm]) -> Harm | None:
    """Return the harm that is due now, by the cell and phase which the command has printed last."""
    cells = _CELL.findall(command.stderr)
    number, phase = (int(cells[-1][0]), cells[-1][1]) if cells else (1, "start")
    harm = chosen[number - 2] if 2 <= number <= len(chosen) + 1 else None
    return harm if harm is not None and PHASES.index(phase) >= PHASES.index(harm.phase) else None


def _examined(place: Path, count: int, code: int, stderr: str) -> tuple[Counter[str], list[str]]:
    """Return how many cells ended in which way, and what should be otherwise."""
    ended: Counter[str] = Counter()
    wrong = []
    for run in sorted(path.parent for path in place.glob("results/*/*/spec.json")):
        if not (run / "status.json").exists() or not (run / "summary.json").exists():
            wrong.append(f"{run.name} has no status or no summary")
            continue
        ended[f"{content(run / 'status.json')['state']}, {content(run / 'summary.json')['validity']['state']}"] += 1
        ended["with a traceback in errors.log"] += (run / "errors.log").exists()
    if code != 1:
        wrong.append(f"exit code {code}")
    if sum(ended.values()) - ended["with a traceback in errors.log"] != count:
        wrong.append(f"{ended} are not {count} cells")
    shown = [line for line in stderr.splitlines() if not line.startswith(("[", "tsbench: "))]
    if shown or len(re.findall("^tsbench: ", stderr, re.MULTILINE)) != 1:
        wrong.append(f"the terminal shows more than one line: {stderr[-600:]}")
    for path in place.glob("results/*/summary.json"):
        last = content(path)["cells"][-1]
        states = {name: check["state"] for name, check in last["validity"]["checks"].items() if name != "limit"}
        if {*states.values()} != {"valid"}:
            wrong.append(f"the last cell, which met no fault: {Summary.model_validate(last).headline}")
    return ended, wrong


def carry_out_all(count: int, seed: int, place: Path, only: str = "") -> bool:
    """Run one campaign for each database, and print a table of how its cells ended; return True if all is right."""
    print("\n| database | damaged cells | how all ended | exit code | as expected |\n|---|---|---|---|---|", flush=True)
    right = True
    for name in TARGETS:
        if only not in name:
            continue
        try:
            found = carry_out(name, count, seed, place / f"damage-{DATABASES[name].target}")
        except UserMistake as reason:
            print(f"| {name} | 0 | skipped: {reason} | | |", flush=True)
            continue
        right &= not found.wrong
        ended = "; ".join(f"{number} {how}" for how, number in found.ended.items() if number)
        print(f"| {name} | {count} | {ended} | {found.code} | {'; '.join(found.wrong) or 'yes'} |", flush=True)
    return right
