"""Checks after a run, through one session: answers against gold, and stored points against acknowledged ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import Difference
from tsbench.model import (
    Above,
    Bucketed,
    Grouped,
    LatestBuckets,
    OpError,
    Raw,
    Rows,
    Verdict,
    Window,
)
from tsbench.targets.base import Unsupported
from tsbench.workload import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tsbench.check.gold import Gold
    from tsbench.model import Query
    from tsbench.targets.base import Schema, Session

AFTER = 1_000_000_000
"""First number of the queries that run after the measured load, so that they differ from its queries."""
READBACK_ROWS = 50_000
"""Approximate number of stored rows that one query of `read_back` returns."""


@dataclass(slots=True)
class Answers:
    """The number of checked answers and the differences that were found."""

    checked: int = 0
    wrong: int = 0
    rows: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    first_wrong: dict[str, str] | None = None
    failed: str = ""

    def note(self, kind: str, query: Query, difference: Difference | None) -> None:
        """Count one checked answer."""
        self.checked += 1
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        if difference is not None:
            self.wrong += 1
            if self.first_wrong is None:
                self.first_wrong = {"kind": kind, "query": str(query), "difference": difference.text}

    def verdict(self) -> Verdict:
        """Return the verdict: invalid if any answer was wrong, inconclusive if none could be checked."""
        counts = {"checked": self.checked, "wrong": self.wrong}
        if self.wrong and self.first_wrong is not None:
            first = f"{self.first_wrong['kind']}: {self.first_wrong['difference']}"
            return Verdict(False, f"{self.wrong} of {self.checked} answers are wrong; first {first}", counts)
        if self.failed:
            return Verdict(None, f"answers could not be checked: {self.failed}", counts)
        if not self.checked:
            reasons = "; ".join(f"{kind}: {why}" for kind, why in self.unsupported.items())
            return Verdict(None, f"no answer was checked{f' ({reasons})' if reasons else ''}", counts)
        return Verdict(True, "", counts)

    def summary(self) -> dict[str, Any]:
        """Return the counts in the form of summary.json and validate.json."""
        return {
            "checked": self.checked,
            "wrong": self.wrong,
            "rows_read_back": self.rows,
            "by_kind": self.by_kind,
            "unsupported": self.unsupported,
            "first_wrong": self.first_wrong,
        }


def given_answers(gold: Gold, paths: Iterable[Path], seed: int, answers: Answers) -> None:
    """Check the answers that load processes kept during the run, from their files.

    A last line that was cut off by a kill is skipped.
    """
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    continue
                given = json.loads(line)
                query = queries.make(given["op"], gold.world, gold.loaded, seed, given["number"])
                rows = Rows(query.columns, [tuple(row) for row in given["rows"]])
                wrong = Difference(given["wrong"]) if "wrong" in given else gold.check(query, rows, quiet=False)
                answers.note(given["op"], query, wrong)


def ask(
    gold: Gold, session: Session, schema: Schema, kinds: Sequence[str], count: int, seed: int, answers: Answers
) -> None:
    """Run `count` new queries, the kinds in turn, and check their answers, while nothing is being written.

    The first round has the windows of the run, the second begins and ends on ticks, the third just after them, and so
    on: a random window hardly ever has a point within a second of its ends, so an end that was included by mistake, or
    bounds rounded to seconds, would not be found.
    """
    askable = list(dict.fromkeys(kinds))
    for number in range(count):
        if not askable:
            return
        kind = askable[number % len(askable)]
        query = queries.make(kind, gold.world, gold.loaded, seed, AFTER + number)
        edge = number // len(askable) % 3
        if edge:
            query = _at_tick(query, gold, after_ns=(edge - 1) * gold.world.spec.resolution_ns)
        try:
            statement = schema.compile(query)
        except Unsupported as why:
            answers.unsupported[kind] = str(why)
            askable.remove(kind)
            continue
        answers.note(kind, query, gold.check(query, session.query(statement, query.columns), quiet=True))


def _at_tick(query: Query, gold: Gold, *, after_ns: int) -> Query:
    """Return the query with its window, or its end, moved back to `after_ns` after a tick, unless that is outside."""
    spec = gold.world.spec

    def moved(time_ns: int) -> int:
        return time_ns - (time_ns - spec.start_ns) % spec.interval_ns + after_ns

    match query:
        case LatestBuckets():
            return replace(query, before_ns=moved(query.before_ns))
        case Raw() | Bucketed() | Grouped() | Above():
            window = Window(moved(query.window.start_ns), moved(query.window.start_ns) + query.window.length_ns)
            inside = gold.loaded.start_ns <= window.start_ns and window.end_ns <= gold.loaded.end_ns
            return replace(query, window=window) if inside else query
        case _:
            return query


def read_back(gold: Gold, session: Session, schema: Schema, limit: int, answers: Answers) -> None:
    """Read stored rows and compare each with gold: all rows, or evenly spread windows of about `limit` rows.

    The newest rows, which the measured load wrote, are always among them.
    """
    for query in _windows(gold, limit):
        try:
            statement = schema.compile(query)
        except Unsupported as why:
            answers.unsupported["read back"] = str(why)
            return
        rows = session.query(statement, query.columns)
        answers.rows += len(rows)
        answers.note("read back", query, gold.check_rows(query, rows))


def _windows(gold: Gold, limit: int) -> Iterator[Raw]:
    world = gold.world
    measurements = world.measurements
    ticks_in_all = world.ticks(gold.until_ns - gold.loaded.start_ns)
    step = max(1, READBACK_ROWS // world.spec.scale)
    total = ticks_in_all * world.spec.scale * len(measurements)
    firsts = range(0, ticks_in_all, step)
    keep = 1 if total <= limit else -(-total // max(1, limit))
    for measurement in measurements:
        for first in reversed(firsts[::-keep]):
            window = Window(world.time_ns(first), world.time_ns(min(first + step, ticks_in_all)))
            yield Raw(measurement, measurement.field_names, window)


def guarded(answers: Answers, check: Callable[[], None]) -> None:
    """Run one check; an error of the database makes the answers inconclusive, with its cause."""
    try:
        check()
    except OpError as error:
        answers.failed = answers.failed or f"{error.cause}: {error}"
