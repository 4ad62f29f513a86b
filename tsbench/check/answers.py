"""Checks after a run, through one session: answers against gold, and stored points against acknowledged ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from tsbench.check.agreement import Unproven
from tsbench.check.comparison import ROWS, Difference
from tsbench.check.own_texts import difference_in
from tsbench.check.packed import Packed, SpoolFile
from tsbench.check.questions import Question
from tsbench.check.sample import RowSample, head_of, loads
from tsbench.check.stored_rows import Differences, compare_series, other_table
from tsbench.check.torn_reads import TornReads, judged, not_whole
from tsbench.errors import one_line
from tsbench.model import (
    Aggregated,
    LatestBuckets,
    OpError,
    Raw,
    Stored,
    Text,
    Verdict,
    Window,
)
from tsbench.results.figures import READ_BACK
from tsbench.results.limits import LIMITS
from tsbench.results.reading import open_file, read_lines
from tsbench.targets.base import Unsupported
from tsbench.text import shortened
from tsbench.workload import queries
from tsbench.workload.query_files import is_kept, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.check.comparison import Row
    from tsbench.check.gold import Gold
    from tsbench.check.questions import Answer
    from tsbench.check.torn_reads import ReadRows
    from tsbench.model import Query, Rows
    from tsbench.targets.base import Schema, Session

AFTER = 1_000_000_000
"""First number of the queries that run after the measured load, so that they differ from its queries."""
READBACK_ROWS = 50_000
"""Approximate number of stored rows that one query of `read_back` returns."""
REPEATS = 20
"""Largest number of answers to each kind of query without gold that are asked again, or about halves of the window."""
_OF_ROWS = {"other value", "missing row", "unexpected row"}
"""Kinds of difference that may be meant; an answer of other columns, or none, never is."""
OUTSIDE_ROWS = 1_000
"""Largest number of stored rows to read from before the time of the run, and from after it, of each measurement."""


@dataclass(slots=True)
class Answers:
    """Answers that wait to be checked, the number of checked ones, and the differences that were found.

    New answers wait in a temporary file in `directory` (None: the system's place for such files). Of kinds that are
    `known` to differ, each for a reason, answers with other rows are counted apart from wrong ones.
    """

    directory: Path | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0
    rows: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    """Kinds of query whose answers nobody can check, each with the reason."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Number of answers under load to each of these kinds that were compared with the one to the same query later."""
    unsteady: dict[str, str] = field(default_factory=dict)
    """Kinds without gold whose answers contradict each other, each with the first of these contradictions."""
    halved: dict[str, int] = field(default_factory=dict)
    """Number of answers to each of these kinds that were compared with what those about the window's halves come to."""
    unproven: list[Unproven] = field(default_factory=list)
    """New answers that other databases judge: without gold, and after `compare` those that differ from it."""
    wholes: list[tuple[str, Text, Sequence[Row]]] = field(default_factory=list)
    """New answers without gold, with kind and query, that are to be compared with those about their windows' halves."""
    _texts: dict[int, Unproven] = field(default_factory=dict)
    """New answers to texts that have gold, by their queries' identity."""
    repeats: list[Question[Text]] = field(default_factory=list)
    """Answers under load to queries that are to be asked again."""
    empty: dict[str, int] = field(default_factory=dict)
    """Number of checked answers without rows, by kind."""
    known_differences: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of kinds that are known to differ: the number of such answers, the reason, and the first one."""
    first_wrong: dict[str, str] | None = None
    wrong_queries: dict[str, Query] = field(default_factory=dict)
    """The first query of each kind with a wrong answer."""
    stored: Differences = field(default_factory=Differences)
    differences: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Number of answers with a difference of each kind, and the first of them; rows read back are in `stored`."""
    torn: TornReads = field(default_factory=TornReads)
    expired: int = 0
    """Number of answers that were not compared, since all points that concern them may have expired."""
    failed: str = ""
    notes: list[str] = field(default_factory=list)
    """What the answers with rows that are not as expected said of copies."""
    _said: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _waiting: list[Question[Query]] = field(default_factory=list)
    _empty: set[int] = field(default_factory=set)
    _file: SpoolFile | None = None

    @property
    def kinds(self) -> list[str]:
        """Kinds of query whose answers wait."""
        return list(dict.fromkeys(question.kind for question in self._waiting))

    def given(self, question: Question[Query]) -> None:
        """Add a question to be checked."""
        self._waiting.append(replace(question, read=partial(self._read, question)))

    def _read(self, question: Question[Query]) -> Answer:
        answer = question.read()
        if isinstance(answer, Packed) and question.part is None and not len(answer) and not answer.odd:
            self._empty.add(id(question.query))
        return answer

    def lacks_gold(self, query: Query, kind: str) -> TypeGuard[Text]:
        """Return whether nobody knows a query's right answer, which is then said of its kind."""
        lacks = isinstance(query, Text) and not query.gold
        if lacks:
            self.unchecked.setdefault(kind, "it has no gold")
        return lacks

    def repeated_as(self, question: Question[Text], again: Answer) -> None:
        """Compare an answer given under load with the one to the same query `again`, which gold does not know."""
        kind, before, query = question.kind, question.read(), question.query
        difference = next((one for one in (before, again) if isinstance(one, Difference)), None)
        if difference is not None:
            self.note(kind, query, difference)
            return
        assert isinstance(before, Packed) and isinstance(again, Packed)  # noqa: S101, PT018
        difference = difference_in(question, again.odd, before.odd, query.top)
        self.repeated[kind] = self.repeated.get(kind, 0) + 1
        if difference is not None:
            cure = "with LIMIT, order the rows so that none are alike; take out what is random"
            self.unsteady.setdefault(kind, f"asked again, it was another one: {difference.short}; {cure}")

    def halved_as(self, kind: str, difference: Difference | None) -> None:
        """Add a comparison of an answer with what those about the halves of its window come to."""
        self.halved[kind] = self.halved.get(kind, 0) + 1
        if difference is not None:
            why = f"it is not what those about the halves of its window come to: {difference.short}"
            self.unsteady.setdefault(kind, f"{why}; a point at their border may be in both, or in none")

    def answered(self, kind: str, query: Query, answer: Answer, number: int = 0) -> None:
        """Add a new question with its answer, which was given while nothing was being written.

        One without gold is kept for other databases, and counted if it is no answer.
        """
        if self.lacks_gold(query, kind):
            if isinstance(answer, Difference):
                self.note(kind, query, answer)
            else:
                self.unproven.append(Unproven(kind, number, query.answer, answer.odd, query.top))
                if query.halves:
                    self.wholes.append((kind, query, answer.odd))
            return
        if isinstance(query, Text) and isinstance(answer, Packed):
            self._texts[id(query)] = Unproven(kind, number, query.answer, answer.odd, query.top, against_gold=True)
        read = (lambda: answer) if isinstance(answer, Difference) else self._kept().keep(answer)
        self.given(Question(kind, query, read))

    def stored_rows(self, gold: Gold, query: Stored, rows: Rows) -> None:
        """Add rows that were read back."""
        self.rows += len(rows)
        kept = self._kept().keep(gold.packed_stored(query, rows))
        question = Question(READ_BACK, query, kept, cut=len(rows) == query.limit)
        self._waiting.append(question)
        if rows.notes:
            self._said[id(question)] = rows.notes

    def _kept(self) -> SpoolFile:
        if self._file is None:
            self._file = SpoolFile(self.directory)
        return self._file

    def compare(self, gold: Gold, read: ReadRows | None = None) -> None:
        """Compare all answers that wait with gold, in one pass over the world.

        `read` reads rows back that lacked fields: those that are whole by now were torn.
        """
        waiting, self._waiting = self._waiting, []
        compared: dict[int, Difference | Differences | None] = {}
        for question, difference in gold.compare(waiting):
            compared[id(question)] = (
                Differences.of(difference, cut=question.cut) if isinstance(difference, list) else difference
            )
        incomplete = [
            row
            for difference in compared.values()
            if isinstance(difference, Difference)
            for row in difference.torn_rows
        ]
        wrong = not_whole(incomplete, read, gold.world.spec.resolution_ns)
        for question in waiting:  # in the order in which they were asked, not in that of their windows' ends
            if id(question) not in compared:
                self.expired += 1
                continue
            result = compared[id(question)]
            if isinstance(result, Differences):
                self.note_stored(question.query, result)
                self.notes += self._said.get(id(question), ()) if result.counts and not self.notes else ()
                continue
            rest, torn = judged(result, wrong) if result is not None else (None, ())
            self.note(question.kind, question.query, rest)
            if rest is not None and (text := self._texts.get(id(question.query))) is not None:
                self.unproven.append(text)
            if id(question.query) in self._empty:
                self.empty[question.kind] = self.empty.get(question.kind, 0) + 1
            if torn:
                self.torn.note(question.kind, torn)
        self._empty.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def note(self, kind: str, query: Query | str, difference: Difference | None) -> None:
        """Count one checked answer."""
        self.checked += 1
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        if difference is None:
            return
        example = {"kind": kind, "query": said_of(kind, query), "difference": difference.text}
        if kind in self.known and difference.kind in _OF_ROWS:
            start = {"count": 0, "reason": self.known[kind], "first": example}
            self.known_differences.setdefault(kind, start)["count"] += 1
            return
        self.wrong += 1
        if is_kept(query):
            self.wrong_queries.setdefault(kind, query)
        for one in (difference, *difference.also) if kind != READ_BACK else ():
            first = {**example, "difference": one.text}
            self.differences.setdefault(one.kind, {"count": 0, "first": first})["count"] += 1
        if self.first_wrong is None or self.first_wrong["kind"] == READ_BACK:
            self.first_wrong = example

    def note_stored(self, query: Query | str, stored_differences: Differences) -> None:
        """Count the differences in one answer of `read_back`."""
        self.stored.merge(stored_differences)
        self.note(READ_BACK, query, Difference(stored_differences.text) if stored_differences.counts else None)

    def verdict(self) -> Verdict:
        """Return the verdict: invalid if any answer was wrong, inconclusive if none could be checked."""
        counts = {"checked": self.checked, "wrong": self.wrong}
        counts |= {"torn": self.torn.answers} if self.torn.answers else {}
        counts |= {"expired": self.expired} if self.expired else {}
        if self.wrong and self.first_wrong is not None:
            kinds = ", ".join(f"{difference['count']} x {kind}" for kind, difference in self.differences.items())
            reasons = [f"{self.wrong} of {self.checked} answers are wrong{f' ({kinds})' if kinds else ''}"]
            if self.first_wrong["kind"] != READ_BACK:
                first = self.first_wrong["difference"].partition(ROWS)[0]
                reasons.append(f"first {self.first_wrong['kind']}: {first}")
            if self.stored.counts:
                reasons += [f"stored rows: {self.stored.text}", *self.notes]
            return Verdict(False, "; ".join(reasons), counts)
        if self.failed:
            return Verdict(None, f"answers could not be checked: {self.failed}", counts)
        if self.unsteady:
            kind, why = next(iter(self.unsteady.items()))
            return Verdict(None, f"an answer to '{kind}': {why}", counts)
        if not self.checked and (self.repeated or self.halved):
            return Verdict(True, "", counts | {"repeated": sum((self.repeated | self.halved).values())})
        if not self.checked:
            missing = [f"{kind}: {why}" for kind, why in (self.unsupported | self.unchecked).items()]
            missing += [f"the points of all {self.expired:,} answers may have expired"] if self.expired else []
            why = f" ({'; '.join(missing)})" if missing else ""
            return Verdict(None, f"no answer was checked{why}", counts)
        return Verdict(True, "", counts)

    def summary(self) -> dict[str, Any]:
        """Return the counts in the form of summary.json and validate.json."""
        return {
            "checked": self.checked,
            "wrong": self.wrong,
            "rows_read_back": self.rows,
            "by_kind": self.by_kind,
            "unsupported": self.unsupported,
            **({"unchecked": self.unchecked} if self.unchecked else {}),
            **({"repeated": self.repeated} if self.repeated else {}),
            **({"unsteady": self.unsteady} if self.unsteady else {}),
            **({"halved": self.halved} if self.halved else {}),
            **({"empty": self.empty} if self.empty else {}),
            **({"known": self.known_differences} if self.known_differences else {}),
            "first_wrong": self.first_wrong,
            "differences": self.differences,
            "torn_reads": self.torn.summary(),
            **({"expired": self.expired} if self.expired else {}),
            "stored_differences": self.stored.summary(),
        }


def said_of(kind: str, query: Query | str) -> str:
    """Return a query as a line of a file of queries, or in words."""
    return line_of(kind, query).decode().strip() if is_kept(query) else str(query)


def given_answers(
    gold: Gold, paths: Iterable[Path], seed: int, answers: Answers, only: Container[tuple[str, int]] | None = None
) -> None:
    """Add the answers that load processes kept during the run; `only` those of kind and number.

    The files are read again when the answers are compared.
    A last line that was cut off by a kill is skipped.
    """
    for path in paths:
        for at, line in read_lines(path, LIMITS.answer_bytes):
            given = head_of(line)
            if only is not None and (given["op"], given["number"]) not in only:
                continue
            query = queries.make(given["op"], gold.world, gold.loaded, seed, given["number"])
            times = given.get("sent_ns", 0), given.get("ended_ns", 0)
            read = partial(_read_line, gold, path, at, query)
            question = Question(given["op"], query, read, False, False, *times, RowSample.of(given))
            if not answers.lacks_gold(query, given["op"]):
                answers.given(question)
            elif sum(one.kind == question.kind for one in answers.repeats) < REPEATS:
                answers.repeats.append(cast("Question[Text]", question))


def _read_line(gold: Gold, path: Path, at: int, query: Query) -> Answer:
    with open_file(path) as lines:
        lines.seek(at)
        given = loads(lines.readline(LIMITS.answer_bytes))
    if "wrong" in given:
        return Difference(shortened(str(given["wrong"]), 1_000), "not an answer")
    try:
        return gold.packed_canonical(query, given["rows"])
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:  # of another machine
        return Difference(f"no rows of an answer: {one_line(error)[:200]}", "not an answer")


def unheard(_amount: float) -> None:
    """Ignore that a query was answered."""


def ask(
    gold: Gold,
    session: Session,
    schema: Schema,
    kinds: Sequence[str],
    count: int,
    seed: int,
    answers: Answers,
    advance: Callable[[float], object] = unheard,
) -> None:
    """Run `count` new queries, the kinds in turn, while nothing is being written, and add their answers.

    `advance` is called with 1 after each.

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
        answers.answered(kind, query, gold.packed(query, session.query(statement, query.columns)), number)
        advance(1)


def ask_again(gold: Gold, session: Session, schema: Schema, answers: Answers) -> None:
    """Run the queries under load again whose answers nobody else can judge, and compare the two."""
    for question in answers.repeats:
        query = question.query
        try:
            rows = session.query(schema.compile(query), query.columns)
        except Unsupported:  # which is said of other ones of the kind
            continue
        answers.repeated_as(question, gold.packed(query, rows))


def _at_tick(query: Query, gold: Gold, *, after_ns: int) -> Query:
    """Return the query with its window, or its end, moved back to `after_ns` after a tick, unless that is outside."""
    spec = gold.world.spec

    def moved(time_ns: int) -> int:
        return time_ns - (time_ns - spec.start_ns) % spec.interval_ns + after_ns

    match query:
        case LatestBuckets():
            return replace(query, before_ns=moved(query.before_ns))
        case Raw() | Aggregated() | Text():
            window = Window(moved(query.window.start_ns), moved(query.window.start_ns) + query.window.length_ns)
            inside = gold.loaded.start_ns <= window.start_ns and window.end_ns <= gold.loaded.end_ns
            return replace(query, window=window) if inside else query
        case _:
            return query


def read_back(
    gold: Gold,
    session: Session,
    schema: Schema,
    limit: int,
    answers: Answers,
    known: Collection[str] = (),
    advance: Callable[[float], object] = unheard,
) -> None:
    """Read stored rows with all that they carry, and the inventory beside them, and add them to the answers.

    Tables of other measurements are differences unless they are `known` from before the run. The table of tags is
    compared with the world's series if these are no more than `limit`.

    Within the time of the run these are all rows, or evenly spread windows of about `limit` rows, the newest, which the
    measured load wrote, always among them. Before and after it nothing may be stored: the first rows found are kept.
    `advance` is called with 1 after each of these `windows`.
    """
    for query in (*_windows(gold, limit), *_outside(gold)):
        try:
            statement = schema.compile(query)
        except Unsupported as why:
            answers.unsupported[READ_BACK] = str(why)
            return
        answers.stored_rows(gold, query, session.query(statement, query.columns))
        advance(1)
    tags, series = gold.world.tags(), gold.world.series
    held = session.inventory(gold.world.measurements, series=series <= limit)
    others = [other_table(name) for name in held.tables if name not in known]
    if held.series is not None:
        texts = ([text or None for text in codes.tolist()] for codes in tags.values())
        others += compare_series(held.series, [range(series), *texts])
    answers.note_stored("what is stored beside the points", Differences.of(others, cut=False))


def windows(gold: Gold, limit: int) -> int:
    """Return the number of queries with which `read_back` reads rows."""
    return sum(1 for _ in (*_windows(gold, limit), *_outside(gold)))


def _windows(gold: Gold, limit: int) -> Iterator[Stored]:
    world = gold.world
    measurements = world.measurements
    ticks_in_all = world.ticks(gold.until_ns - gold.loaded.start_ns)
    step = max(1, READBACK_ROWS // world.spec.scale)
    total = ticks_in_all * world.spec.scale * len(measurements)
    firsts = range(0, ticks_in_all, step)
    keep = 1 if total <= limit else -(-total // max(1, limit))
    for measurement in measurements:
        for first in reversed(firsts[::-keep]):
            yield Stored(measurement, world.time_ns(first), world.time_ns(min(first + step, ticks_in_all)))


def _outside(gold: Gold) -> Iterator[Stored]:
    for measurement in gold.world.measurements:
        yield Stored(measurement, end_ns=gold.world.time_ns(0), limit=OUTSIDE_ROWS)
        yield Stored(
            measurement,
            start_ns=gold.world.time_ns(gold.world.ticks(gold.until_ns - gold.loaded.start_ns)),
            limit=OUTSIDE_ROWS,
        )


def guarded(answers: Answers, check: Callable[[], None]) -> None:
    """Run one check; an error of the database makes the answers inconclusive, with its cause."""
    try:
        check()
    except OpError as error:
        answers.failed = answers.failed or f"{error.cause}: {error}"
