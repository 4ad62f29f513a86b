"""CPU seconds and peak memory of checking a run, compared with generating its points: by the number of values.

    python tests/benchmarks/bench_check.py [--values 1e8 3e8] [--answers 2000] [--readback 300000] [--scale 100]

The run is made up: a tenth of the points were written under load, one write in a thousand with an unknown outcome. The
answers, of six kinds, are right; they are computed in a process of their own beforehand.
"""

from __future__ import annotations

import argparse
import json
import marshal
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.check import answers as answers_module
from tsbench.check import buckets, gold, questions, rows
from tsbench.check.answers import Answers, given_answers, read_back
from tsbench.check.packed import Packed
from tsbench.check.points import Feed
from tsbench.check.questions import Question
from tsbench.model import Outcome, Rows
from tsbench.results.figures import READ_BACK
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.base import Inventory
from tsbench.workload import queries
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.model import Query

START_NS = 1_451_606_400 * 10**9
RUN_NS = 1_700_000_000 * 10**9
MS = 1_000_000
KINDS = (
    "single-groupby-5-8-1", "cpu-max-all-8", "double-groupby-all", "high-cpu-1", "groupby-orderby-limit", "lastpoint",
)  # fmt: skip
WRITE, BLOCK, STREAMS, SEED = 100, 600, 4, 1
RATIO, PEAK_MB = 2.5, 1_500


@dataclass(frozen=True)
class Run:
    """A run of `cpu-only`, whose points have ten fields."""

    values: int
    scale: int

    @property
    def ticks(self) -> int:
        return self.values // 10 // self.scale

    @property
    def loaded(self) -> int:
        return self.ticks * 9 // 10

    def world(self) -> World:
        return World(built_in_spec("cpu-only", self.scale, SEED, START_NS, 10**10, STREAMS))

    def ledger(self) -> NDArray[np.void]:
        """Return the writes of whole blocks; the ticks of a block are sent in a millisecond each."""
        series = self.scale // STREAMS
        blocks = (self.ticks - self.loaded) * series // BLOCK
        block, stream, offset = np.meshgrid(
            np.arange(blocks), np.arange(STREAMS), np.arange(0, BLOCK, WRITE), indexing="ij"
        )
        found = np.zeros(block.size, dtype=LEDGER_DTYPE)
        found["block"], found["stream"], found["offset"] = block.ravel(), stream.ravel(), offset.ravel()
        found["points"] = found["acknowledged"] = WRITE
        unknown = np.arange(len(found)) % 1_000 == 500
        found["outcome"][unknown] = Outcome.UNKNOWN
        found["acknowledged"][unknown] = 0
        found["sent_ns"] = RUN_NS + found["block"] * BLOCK // series * MS
        found["ended_ns"] = RUN_NS + (found["block"] + 1) * BLOCK // series * MS + MS
        return found

    def gold(self) -> gold.Gold:
        feed = Feed(self.world(), self.loaded, BLOCK, self.ticks)
        return gold.Gold(feed, self.ledger(), keeps_duplicates=True)


class Files:
    """A schema and session whose answers to reading back lie in files, in the order in which they are asked."""

    keeps_duplicates = True

    def __init__(self, place: Path) -> None:
        self._place, self._asked = place, 0

    def compile(self, query: Query) -> None:
        """Return nothing: the next file has the answer."""

    def query(self, _: None, columns: tuple[str, ...]) -> Rows:
        """Return the next answer, which has no rows where nothing is stored."""
        self._asked += 1
        file = self._place / f"{self._asked}.rows"
        return Rows(columns, marshal.loads(file.read_bytes()) if file.exists() else [])

    def inventory(self, _: object, *, series: bool) -> Inventory:
        """Return nothing beside the points."""
        return Inventory(())


def prepare(run: Run, place: Path, count: int, readback: int) -> None:
    """Write the answers: what gold compares with is taken from it before it compares."""
    key = run.gold()
    names = key.world.keys()
    lines = (place / "p0.answers.jsonl").open("w", encoding="utf-8")
    asked = [Question(kind, queries.make(kind, key.world, key.loaded, SEED, n), nothing, quiet=False)
             for n in range(count) if (kind := KINDS[n % len(KINDS)]) != "lastpoint"]  # fmt: skip
    numbers = dict(zip(map(id, asked), (n for n in range(count) if KINDS[n % len(KINDS)] != "lastpoint"), strict=True))

    def write(kind: str, number: int, found: list[Row], **times: int) -> None:
        lines.write(json.dumps({"op": kind, "number": number, **times, "rows": found}) + "\n")

    def compare_answer(question: Question[Any], expected: Packed, its: Any) -> None:
        write(question.kind, numbers[id(question)], expected.sorted().rows(its.keys))

    def compare(tracker: rows.RowTracker, expected: Packed, _: Packed) -> None:
        above.setdefault(id(tracker._question), []).extend(expected.rows(names))

    def compare_canonical(query: Any, known: list[Row], *_: Any) -> list[Any]:
        (place / f"{windows.index(query) + 1}.rows").write_bytes(marshal.dumps(known))
        return []

    def slabs(*given: Any, **named: Any) -> Iterator[Slab]:
        for slab in all_slabs(*given, **named):
            while moments and moments[-1][0] < slab.end_ns:
                time_ns, number = moments.pop()
                some = np.flatnonzero(slab.time_ns == time_ns)
                packed = rows.packed_rows(slab, some, slab.measurement.field_names, keyed=True)
                sent_ns = RUN_NS + ((time_ns - key.loaded.end_ns) // 10**10) * MS
                write("lastpoint", number, packed.rows(names), sent_ns=sent_ns, ended_ns=sent_ns + 10**9)
            yield slab

    above: dict[int, list[Row]] = {}
    windows = [*answers_module._windows(key, readback), *answers_module._outside(key)]
    last = run.loaded + (run.ticks - run.loaded) // 2
    moments = [
        (key.world.time_ns(run.loaded + n * (last - run.loaded) // count), n)
        for n in range(count)
        if KINDS[n % len(KINDS)] == "lastpoint"
    ][::-1]
    all_slabs, gold.slabs = gold.slabs, slabs  # type: ignore[attr-defined]
    for module in (buckets, questions):
        module.compare_answer = compare_answer  # type: ignore[attr-defined]
    rows.RowTracker._compare = compare  # type: ignore[method-assign, assignment]
    rows.compare_canonical = compare_canonical  # type: ignore[assignment, attr-defined]
    for question, _ in key.compare([*asked, *(Question(READ_BACK, query, nothing) for query in windows)]):
        if question.kind == "high-cpu-1":
            write(question.kind, numbers[id(question)], sorted(above.pop(id(question), [])))
    lines.close()


def nothing() -> Packed:
    """Return an empty answer."""
    return Packed.empty(10)


def generate(run: Run) -> None:
    """Generate the points and drop them."""
    points = max(1, 32_768 // run.scale) * run.scale
    for _ in run.world().mixed(range(STREAMS), points=points, last_tick=run.ticks):
        pass


def check(run: Run, place: Path, readback: int) -> None:
    """Check the answers in the files."""
    key, found, files = run.gold(), Answers(place), Files(place)
    given_answers(key, [place / "p0.answers.jsonl"], SEED, found)
    read_back(key, files, files, readback, found)  # type: ignore[arg-type]
    found.compare(key)
    if found.wrong or key.count() + key.unknown_points != run.loaded * run.scale + int(run.ledger()["points"].sum()):
        sys.exit(found.verdict().reason)
    print(found.checked, found.rows, file=sys.stderr)


def child(*arguments: str) -> tuple[float, float, float]:
    """Run a step in a process of its own, and return its CPU and wall seconds and its peak memory in MB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import bench_check; bench_check.step(*sys.argv[2:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.perf_counter() - began, float(done.stdout.split()[-1])


def step(what: str, values: str, scale: str, place: str, count: str, readback: str) -> None:
    """Do one step."""
    run = Run(int(values), int(scale))
    if what == "prepare":
        prepare(run, Path(place), int(count), int(readback))
    elif what == "generate":
        generate(run)
    else:
        check(run, Path(place), int(readback))


def main() -> None:
    """Print a line per size; exit code 1 if the check takes too long or too much memory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--values", type=float, nargs="+", default=[1e8])
    parser.add_argument("--answers", type=int, default=2_000)
    parser.add_argument("--readback", type=int, default=300_000)
    parser.add_argument("--scale", type=int, default=100)
    given = parser.parse_args()
    good = True
    for values in map(int, given.values):
        with tempfile.TemporaryDirectory() as place:
            arguments = str(values), str(given.scale), place, str(given.answers), str(given.readback)
            child("prepare", *arguments)
            generated_s, _, _ = child("generate", *arguments)
            checked_s, wall_s, peak_mb = child("check", *arguments)
        ratio = checked_s / generated_s
        good &= peak_mb <= PEAK_MB and (values < 10**9 or ratio <= RATIO)
        print(
            f"{values:>14,} values: generating {generated_s:6.1f} CPU s, checking {checked_s:6.1f} CPU s"
            f" ({wall_s:.1f} s), ratio {ratio:5.2f}, peak {peak_mb:5.0f} MB",
            flush=True,
        )
    sys.exit(not good)


if __name__ == "__main__":
    main()
