"""How often a comparison finds a difference that is none, and one that is there; how often a run's margin is right.

The figures of runs are simulated, so that the truth is known: a machine that drifts as a random walk, and noise from
run to run. What is measured is all that `tsbench compare` does with them. `python tests/benchmarks/bench_compare.py
[COMPARISONS]` prints counts; it takes a minute for 200.

`python tests/benchmarks/bench_compare.py TARGET SCHEMA SETS ROUNDS [SLOWER]` measures real runs of 5 s instead: sets of
five equal sides, of which each pair is compared (ten comparisons a set, which share runs), or with SLOWER (0.05, on
SQLite) each of four sides whose writes are slower by that share with the first one. `tsbench run` and `tsbench compare`
as users call them, 9 s a run. Other processes may come and go meanwhile.

Slower writes are of 500 rows, among nine queries each, by one user who does not wait, into a file in memory: a write of
10 rows takes 0.13 to 0.24 ms from one start to the next, mostly of waking up, in which nobody could see a twentieth of
SQLite's work. With 10 ms of rest between ops the medians of runs differ by 2 to 7 % (standard deviation of 8 to 12
runs in a row, in five series), without any by 1.5 and 2.3 %, and by 11 % in a bad hour of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.results.made import load, measured, op_figures, size
from tsbench.measure.hist import Histogram, SparseHistogram
from tsbench.measure.margins import Batches, above, judge
from tsbench.report.cells import AskedSpec, Cell
from tsbench.report.comparison import compare, side_of
from tsbench.results.figures import Tail
from tsbench.results.rundir import COMPLETE, RunDir, Status
from tsbench.results.summary import Summary, Validity

if TYPE_CHECKING:
    from tsbench.report.sides import Side

MS = 1e6
PLANTED = 1.05
RUNS = 100
PLACE = Path("simulated")
MEMORY = "/dev/shm"
TSBENCH = str(Path(sys.executable).with_name("tsbench"))


def cell(name: str, slowdown: float, level: float, noise: np.ndarray) -> Cell:
    """Return a run with six figures, each with noise of its own, on a machine slower by `level`; one is slowed down."""
    slow = level * np.exp(noise)
    p99 = {"p99": 10 * MS * slow[1] * slowdown}
    write = op_figures(count=9_000, ok=9_000, points_per_s=1_000 / slow[0], service_ns=p99)
    query = op_figures(count=9_000, ok=9_000, ops_per_s=100 / slow[2], service_ns={"p99": 30 * MS * slow[3]})
    summary = Summary(
        cell=name, loop="closed", validity=Validity("valid"), measured=measured(write, query),
        load=load(50_000 / slow[4]), size=size(96.5 * float(np.exp(noise[5]))),
    )  # fmt: skip
    return Cell(name, RunDir(PLACE / name), summary, None, {}, AskedSpec(), Status(state=COMPLETE), ())


def sides(rng: np.random.Generator, rounds: int, noise: float, drift: float, slowdown: float) -> tuple[Side, Side]:
    """Return both sides of a scenario that ran in shuffled rounds; the machine's level is a random walk."""
    level = 0.0
    runs: tuple[list[Cell], list[Cell]] = ([], [])
    for number in range(1, rounds + 1):
        for side in rng.permutation(2):
            level += rng.normal(0, drift / np.sqrt(2))
            name = f"{'ab'[side]}-round={number}"
            runs[side].append(cell(name, slowdown if side else 1.0, float(np.exp(level)), rng.normal(0, noise, 6)))
    return side_of("a", runs[0]), side_of("b", runs[1])


def false_alarms(rng: np.random.Generator, comparisons: int, noise: float, drift: float) -> int:
    """Return in how many comparisons of equal sides a figure was called better or worse."""
    found = 0
    for _ in range(comparisons):
        words = {one.difference for one in compare(*sides(rng, 8, noise, drift, 1.0)).findings}
        found += bool(words & {"better", "worse"})
    return found


def planted(rng: np.random.Generator, comparisons: int, noise: float, drift: float) -> tuple[int, list[int]]:
    """Return how often a slowdown of 5 % was found in p99 with the number of rounds that a first one recommended."""
    found, rounds = 0, []
    for _ in range(comparisons):
        first = compare(*sides(rng, 8, noise, drift, PLANTED))
        needed = next(one.needed for one in first.findings if one.figure == "write:p99") or 200
        again = compare(*sides(rng, needed, noise, drift, PLANTED))
        found += next(one.difference for one in again.findings if one.figure == "write:p99") == "worse"
        rounds.append(needed)
    return found, rounds


def run_of(rng: np.random.Generator, seconds: int, ops: int, memory: float) -> tuple[Batches, Histogram]:
    """Return a run whose level wanders from second to second; `memory` is the share that stays."""
    batches, whole, level = Batches(seconds), Histogram(), 0.0
    for second in range(seconds):
        level = memory * level + rng.normal(0, 0.3 * np.sqrt(1 - memory**2))
        part = SparseHistogram.recorded((5 * MS * np.exp(level + rng.normal(0, 0.4, ops))).astype(np.int64))
        batches.see("service", second, part)
        part.add_to(whole)
    return batches, whole


def covered(rng: np.random.Generator, runs: int, seconds: int, memory: float) -> int:
    """Return how many margins of p99 have the p99 of a run ten times as long in them."""
    found = 0
    for _ in range(runs):
        batches, whole = run_of(rng, seconds, 200, memory)
        longer = run_of(rng, 10 * seconds, 200, memory)[1].percentile_ns(99)
        least, most = batches.margins("service", whole, {"p99": 99.0}).get("p99", (0.0, 0.0))
        found += least <= longer <= most
    return found


def decided(rng: np.random.Generator, runs: int, seconds: int, memory: float) -> int:
    """Return how many gates were decided whose limit is exactly the true p99, so that none should be."""
    truth, found = run_of(rng, 50_000, 200, memory)[1].percentile_ns(99), 0
    for _ in range(runs):
        batches, whole = run_of(rng, seconds, 200, memory)
        slow = above(whole, truth)
        each = max(batches.dependence("service", limit) or 1.0 for limit in (truth, whole.percentile_ns(99)))
        tail = Tail(ops=len(whole), slow_least=slow, slow_most=slow, dependence=each)
        found += judge(tail, 99, truth, below=True).state != "undecided"
    return found


SCENARIO = """
question = "Do two equal sides differ?"
world = {{ use_case = "cpu-only", scale = 20, seed = 1 }}
load = {{ window = "70m" }}
drive = {{ users = {users}, wait = "{wait}", warmup = "1s", duration = "5s" }}
op = [{{ write = {rows}, weight = 1 }}, {{ query = "single-groupby-1-1-1", weight = {queries} }}]
check = {{ answers = 5 }}
matrix.target = [{{ name = "{target}", schema = "{schema}" }}]
matrix.case = [{cases}]
"""
HOOK = """
import os
import time
from tsbench.targets.sqlite.session import SqliteSession

write = SqliteSession.write


def slower(self, payload):
    began = time.perf_counter()
    written = write(self, payload)
    if "-slow" in str(self._path):
        until = time.perf_counter() + {slower} * (time.perf_counter() - began)
        while time.perf_counter() < until:
            pass
    return written


SqliteSession.write = slower
"""
"""Runs at the start of every Python process."""


def real(target: str, schema: str, sets: int, rounds: int, slower: float) -> None:
    """Print in how many comparisons of real runs a figure was called better or worse, and in how many a write's was.

    The six usual figures are compared; of writes that are slower their median.
    """
    sides = ["a", "slow-1", "slow-2", "slow-3", "slow-4"] if slower else [*"abcde"]
    users = 1 if slower else 2
    ops = {"rows": 500, "queries": 9, "wait": "0s"} if slower else {"rows": 10, "queries": 1, "wait": "10ms"}
    cases = ", ".join(f'{{ name = "{side}", "drive.users" = {users} }}' for side in sides)
    chosen = [pair for pair in combinations(sides, 2) if not slower or pair[0] == "a"]
    with TemporaryDirectory(dir=MEMORY if slower else None) as place:
        (Path(place) / "aa.toml").write_text(
            SCENARIO.format(target=target, schema=schema, cases=cases, users=users, **ops)
        )
        if slower:
            (Path(place) / "sitecustomize.py").write_text(HOOK.format(slower=slower))
        here = os.environ | {"PYTHONPATH": place, "TMPDIR": place}
        found: list[dict[str, str]] = []
        for number in range(1, sets + 1):
            out = Path(place) / f"{number}"
            command = [TSBENCH, "run", "aa.toml", "--repeat", f"{rounds}", "--out", str(out)]
            ran = subprocess.run(command, cwd=place, env=here, capture_output=True, check=False, timeout=300 * rounds)
            if not out.exists():
                sys.exit(ran.stderr.decode())
            (results,) = out.iterdir()
            for pair in chosen:
                found.append(
                    _differing(*(results / f"{target}-{schema}-{side}" for side in pair), medians=bool(slower))
                )
                print(f"set {number}, {' and '.join(pair)}: {found[-1] or 'no difference'}", flush=True)
            shutil.rmtree(out)
    different = sum(bool(one) for one in found)
    worse = sum(one.get("write:p50") == "worse" for one in found)
    print(f"{target}-{schema}, {rounds} rounds: {different} of {len(found)} with a figure better or worse", end="")
    print(f", {worse} with the median of writes worse by {slower:.0%}" if slower else "")


def _differing(base: Path, new: Path, *, medians: bool) -> dict[str, str]:
    """Return which figures differ, and how; of `medians` only that of writes."""
    file = base.parent / "compared.json"
    command = [TSBENCH, "compare", str(base), str(new), "--json", str(file)]
    command += ["--figure", "write:p50"] if medians else []
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    (compared,) = json.loads(file.read_text())
    words = {name: one["difference"] for name, one in compared["figures"].items()}
    return {name: word for name, word in words.items() if word in {"better", "worse"}}


def main() -> None:
    """Print all counts."""
    if len(sys.argv) > 2:
        target, schema, *numbers = sys.argv[1:]
        real(target, schema, int(numbers[0]), int(numbers[1]), float(*numbers[2:]))
        return
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    started = time.monotonic()
    rng = np.random.default_rng(22)
    for noise, drift in ((0.02, 0.02), (0.05, 0.05), (0.03, 0.10)):
        found = false_alarms(rng, comparisons, noise, drift)
        print(
            f"equal sides, noise {noise:.0%}, drift {drift:.0%}: {found} of {comparisons} with a figure better or worse"
        )
    for noise in (0.02, 0.03, 0.05):
        found, rounds = planted(rng, comparisons // 4, noise, noise)
        usual = f"{np.median(rounds):.0f} rounds ({min(rounds)}-{max(rounds)})"
        print(f"5 % slower, noise and drift {noise:.0%}: {found} of {comparisons // 4} found with {usual}")
    for seconds, memory in ((60, 0.0), (60, 0.5), (60, 0.7), (60, 0.9), (200, 0.7)):
        found = covered(rng, RUNS, seconds, memory)
        print(f"margin of p99 in {seconds} s, memory {memory}: {found} of {RUNS} have that of a run ten times as long")
    for seconds, memory in ((30, 0.0), (60, 0.0), (60, 0.5), (60, 0.7), (200, 0.7), (10, 0.0), (10, 0.5), (10, 0.7)):
        found = decided(rng, 3 * RUNS, seconds, memory)
        print(f"gate with its limit at the p99, {seconds} s, memory {memory}: {found} of {3 * RUNS} were decided")
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
