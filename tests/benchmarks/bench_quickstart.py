"""Runs of the quickstart scenario: are all latencies shown, beside other work too, and does PostgreSQL's log agree?

Every second run has a process beside it that keeps one core busy. Of each run a line says how many of its latencies
are shown as a number or as an interval, how many are struck out or missing, and why a cell was not valid.

PostgreSQL logs how long it took for each step of each statement (`log_transaction_sample_rate`); p50 and p99 of writes
and queries are put beside that, both of the same seconds. Its log leaves out the commit at the end of an op, so that
its cells run with `synchronous_commit = off`, unlike those of `make quickstart`. A figure is within if it is not below
the log's by more than a histogram's 3 digits, and at most 1.15 times it or 0.5 ms above.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.measure.hist import Histogram
from tsbench.report.cells import load_cells
from tsbench.report.metrics import COLUMNS, MISSING
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.report.cells import Cell

ROOT = Path(__file__).parents[2]
LATENCY = re.compile(r"p50|p99|max")
SETTINGS = (
    'settings = { synchronous_commit = "off", log_transaction_sample_rate = "1", log_parameter_max_length = "0" }'
)
LOGGED = re.compile(
    r"(?P<at>\S+ \S+) UTC \[(?P<pid>\d+)\] LOG:  duration: (?P<ms>[\d.]+) ms  (?P<step>parse|bind|execute) "
    r"tsbench_\d+: (?P<word>\w+)"
)
PERCENTS = (50, 99)
MOST, ABOVE_NS, DIGITS = 1.15, 500_000, 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2, help="default: 2; 20 take an hour")
    parser.add_argument("--only", help="cells whose id contains this")
    asked = parser.parse_args()
    whole, within, times = 0, 0, 0
    for number in range(asked.runs):
        with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory, busy(number % 2 == 1):
            cells = run(Path(directory), asked.only)
            shown = [shown_in(cell) for cell in cells]
            logged = [each for cell in cells if (cell.run.path / "server.log").exists() for each in beside_log(cell)]
        missing = sum(len(texts) - count for count, texts in shown)
        whole += not missing
        within, times = within + sum(is_within for is_within, _ in logged), times + len(logged)
        reasons = [f"{cell.name}: {cell.validity.reason}" for cell in cells if cell.validity.state != "valid"]
        print(
            f"run {number + 1:2} {'one core busy' if number % 2 else 'alone':13}"
            f" {sum(count for count, _ in shown)} of {sum(len(texts) for _, texts in shown)} latencies shown,"
            f" {sum('-' in text for _, texts in shown for text in texts)} as intervals;"
            f" log / tsbench in ms: {', '.join(text for _, text in logged)}",
            *reasons,
            sep="\n    ",
            flush=True,
        )
    print(f"{whole} of {asked.runs} runs show every latency (wanted: 95 %)")
    print(f"{within} of {times} times of PostgreSQL within its log's (wanted: all)")


@contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """Keep one core busy while the block runs, if asked to."""
    if not is_busy:
        yield
        return
    burning = multiprocessing.Process(target=burn, daemon=True)
    burning.start()
    try:
        yield
    finally:
        burning.kill()
        burning.join()


def burn() -> None:
    while True:
        pass


def run(directory: Path, only: str | None) -> list[Cell]:
    """Run the scenario, with PostgreSQL's log; return its cells."""
    text = (ROOT / "scenarios" / "quickstart.toml").read_text()
    text = re.sub(r'(\{ name = "postgres", schema = "\w+")', rf"\1, {SETTINGS}", text)
    scenario = directory / "quickstart.toml"
    scenario.write_text(text)
    command = [str(Path(sys.executable).parent / "tsbench"), "run", str(scenario), "--no-report"]
    done = subprocess.run(
        [*command, "--out", str(directory), *(["--only", only] if only else [])],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-2_000:]}")
    (results,) = directory.glob("*-quickstart")
    return load_cells(results)


def shown_in(cell: Cell) -> tuple[int, list[str]]:
    """Return how many of a cell's latencies are shown and not struck out, and all of them as printed."""
    columns = [column for column in COLUMNS if LATENCY.fullmatch(column.title)]
    texts = [column.text(cell) for column in columns]
    return sum(cell.validity.stands and text != MISSING for text in texts), texts


def beside_log(cell: Cell) -> list[tuple[bool, str]]:
    """Return of p50 and p99 of writes and queries whether they are within the log's, and both in ms as a text."""
    measured = json.loads((cell.run.path / "summary.json").read_text())["measured"]
    start_s, end_s = measured["window"]["start_s"], measured["window"]["start_s"] + measured["duration_s"]
    logged = logged_ns((cell.run.path / "server.log").read_text(), start_s, end_s)
    found = []
    for kind, word in (("write", "INSERT"), ("query", "SELECT")):
        for percent in PERCENTS:
            log_ns = Histogram(logged[word]).percentile_ns(percent)  # of the same rank as in the summary
            ours_ns = measured[kind]["service_ns"][f"p{percent}"]
            is_within = log_ns * (1 - DIGITS) <= ours_ns <= max(MOST * log_ns, log_ns + ABOVE_NS)
            text = f"{kind} p{percent} {log_ns / 1e6:.2f} / {ours_ns / 1e6:.2f}{'' if is_within else ' !'}"
            found.append((is_within, text))
    return found


def logged_ns(log: str, start_s: int, end_s: int) -> dict[str, list[float]]:
    """Return the times in ns of all steps of each statement that ended in these seconds, by its first word."""
    found: dict[str, list[float]] = {"INSERT": [], "SELECT": []}
    open_ns: dict[str, float] = {}
    for line in LOGGED.finditer(log):
        open_ns[line["pid"]] = open_ns.get(line["pid"], 0.0) + float(line["ms"]) * 1e6
        if line["step"] == "execute":
            took_ns = open_ns.pop(line["pid"])
            ended_s = datetime.fromisoformat(f"{line['at']}+00:00").timestamp()
            if start_s <= ended_s - took_ns / NS_PER_S < end_s and line["word"] in found:
                found[line["word"]].append(took_ns)
    return found


if __name__ == "__main__":
    main()
