"""Carries out all faults and prints what came of them: `python -m tests.faults`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.faults import damage, influxdb, interrupts, nodes, postgres, processes, questdb, sqlite, victoria
from tests.faults.bench import carry_out

if TYPE_CHECKING:
    from tests.faults.bench import Fault, Result

ALL: tuple[tuple[str, tuple[Fault, ...]], ...] = (
    ("SQLite", processes.FAULTS),
    ("SQLite", sqlite.FAULTS),
    ("PostgreSQL", postgres.FAULTS),
    ("InfluxDB 1.8", influxdb.FAULTS),
    ("VictoriaMetrics", victoria.FAULTS),
    ("QuestDB", questdb.FAULTS),
    ("PostgreSQL, three nodes", nodes.FAULTS),
    ("MariaDB, three nodes", nodes.FAULTS),
)
DAMAGED = 30
"""Damaged runs of each database."""
HEAD = "| | database | fault | exit code | summary | what was said | left behind | `--resume` | as expected |"


def row(number: int, result: Result) -> str:
    """Return one line of the table."""
    said = result.line.removeprefix("tsbench: ").replace("|", "\\|")
    said = said if len(said) <= 160 else f"{said[:80]} ... {said[-75:]}"
    cells = [
        str(number), result.database, result.fault.name, str(result.code), result.validity or "none", said or "nothing",
        ", ".join(result.left) or "nothing", result.resumed, result.verdict,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def faults(only: str, place: Path) -> bool:
    """Carry out the faults whose database and name have these words, and print a table; return True if all is right."""
    chosen = [(name, fault) for name, all_ in ALL for fault in all_ if only in f"{name}: {fault.name}"]
    print(f"{HEAD}\n|{'---|' * HEAD.count(' |')}", flush=True)
    done = []
    for number, (name, fault) in enumerate(chosen, 1):
        done.append(carry_out(fault, name, place / f"{number}"))
        print(row(number, done[-1]), flush=True)
    skipped = [one for one in done if one.skipped]
    known = [one for one in done if not one.is_expected and one.fault.known]
    wrong = [one for one in done if not one.is_expected and not one.fault.known]
    right = len(done) - len(skipped) - len(known) - len(wrong)
    seconds = sum(one.seconds for one in done)
    text = f"{len(done)} faults in {seconds:.0f} s: {right} as expected, {len(known)} known, {len(wrong)} not"
    print(f"\n{text}, {len(skipped)} skipped", flush=True)
    return not wrong


def main() -> None:
    """Print the tables; end with 1 if a row is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose database and name have this text")
    parser.add_argument("--interrupts", type=int, metavar="N", help="only Ctrl-C at this many moments")
    parser.add_argument("--damage", type=int, metavar="N", help="only N damaged runs of each database")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what the runs leave in this directory")
    parser.add_argument("--on", default="", metavar="NAMES", help="databases of the interrupts, with commas")
    parser.add_argument("--seed", type=int, default=1, help="seed of these moments")
    asked = parser.parse_args()
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        signal.signal(number, handler)  # below nohup, or after a shell's `&`, commands would ignore them
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of hundreds of processes would compile the package anew
    # Servers that root starts run as `nobody`, who must be able to enter.
    with TemporaryDirectory() as directory:
        place = asked.keep or Path(directory)
        place.mkdir(exist_ok=True)
        place.chmod(place.stat().st_mode | 0o055)  # no other bit: it may be anybody's directory
        if asked.damage is not None:
            sys.exit(0 if damage.carry_out_all(asked.damage, asked.seed, place, asked.only) else 1)
        right = asked.interrupts is not None or faults(asked.only, place)
        if not asked.only:
            right &= asked.interrupts is not None or damage.carry_out_all(DAMAGED, asked.seed, place)
            count, on = 100 if asked.interrupts is None else asked.interrupts, asked.on.split(",") if asked.on else ()
            right &= interrupts.carry_out_all(count, asked.seed, place, on or interrupts.TARGETS)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
