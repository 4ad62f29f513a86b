"""The gold answers: computed from the generator's own points in one pass over the world, whatever its length."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tsbench.check.aggregates import AggregateTracker, is_computed_alone
from tsbench.check.buckets import BucketTracker, GroupTracker, NewestBucketTracker
from tsbench.check.expiry import unexpired
from tsbench.check.newest import MovingTracker
from tsbench.check.own_texts import OwnTextTracker, tables_of
from tsbench.check.packed import SeriesNames, pack_stored
from tsbench.check.points import EVER_NS, NEVER_NS, SURE, end_of_writes, slabs
from tsbench.check.questions import Names, Question, pack_rows, packed_answer
from tsbench.check.rows import FirstRowTracker, NewestTracker, RowTracker, StoredTracker
from tsbench.model import (
    Aggregated,
    Latest,
    LatestBuckets,
    Outcome,
    Query,
    Raw,
    Rows,
    Stored,
    Text,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.comparison import Difference, Row
    from tsbench.check.expiry import Expiry
    from tsbench.check.packed import Packed
    from tsbench.check.points import Feed
    from tsbench.check.questions import Answer, Checked, Tracker
    from tsbench.check.stored_rows import Located
    from tsbench.model import Measurement


class Gold:
    """All points that a run stored: the bulk load, the acknowledged writes, and separately the unknown writes.

    The points are never kept: `compare` goes over them once, for all questions together. Its memory is that of the
    answers to `Latest` queries and of the queries whose windows overlap; it does not grow with the number of points.

    Of a write that was refused in part without saying which points, only the number of stored points is known.

    Parameters
    ----------
    feed
        What the run sent.
    ledger
        The writes after the load (`results.ledger`).
    keeps_duplicates
        Whether the schema keeps two points of a series at the same time.
    expiry
        After which time the database may have deleted points by itself; None if it keeps all.
    shows_at_once
        Whether the database declares that a query sees all writes that were acknowledged before it.
    """

    def __init__(
        self,
        feed: Feed,
        ledger: NDArray[np.void],
        *,
        keeps_duplicates: bool,
        expiry: Expiry | None = None,
        shows_at_once: bool = True,
    ) -> None:
        self.world = world = feed.world
        self.loaded = Window(world.time_ns(0), world.time_ns(feed.loaded_ticks))
        self._keeps, self._expiry, self._shows_at_once = keeps_duplicates, expiry, shows_at_once
        self._expired_before_ns = NEVER_NS
        self.expirable_points = 0
        """Number of acknowledged points that may have expired when answers were last compared."""
        self._feed, self._ledger = feed, ledger
        self._names_of_all = Names(SeriesNames(world.keys()), world.series, tags=world.tags())
        self._stored_names: dict[str, Names] = {}
        self._stored: int | None = None
        self.writes = bool(len(self._ledger))

    @cached_property
    def until_ns(self) -> int:
        """A time after all points that were sent, also after those of failed writes."""
        return end_of_writes(self._feed, self._ledger)  # which generates the writes of a world with disorder

    @cached_property
    def unknown_points(self) -> int:
        """Number of points of which nobody knows whether they are stored."""
        unsure = [outcome for outcome, sure in SURE.items() if not sure]
        return int(self._ledger["points"][np.isin(self._ledger["outcome"], unsure)].sum(dtype=np.int64))

    @cached_property
    def _in_part(self) -> int:
        """Number of acknowledged points of writes that were refused in part."""
        partial = self._ledger["outcome"] == Outcome.PARTIAL
        return int(self._ledger["acknowledged"][partial].sum(dtype=np.int64))

    @property
    def unsure_points(self) -> int:
        """Number of acknowledged points that may have replaced stored ones, or be gone.

        Where a point may replace another, a point of a write that was refused in part may replace one that is there.
        Where writes may have expired, so may such a point.
        """
        may_replace = not self._keeps and bool(self.world.spec.disorder.duplicate)
        return self._in_part if may_replace or self._expired_before_ns > self.loaded.end_ns else 0

    def count(self) -> int:
        """Return the number of points that are stored for certain."""
        if self._stored is None:
            for _ in self.compare([]):
                pass
        return (self._stored or 0) + self._in_part - self.unsure_points

    def check(self, query: Query, rows: Rows, *, quiet: bool) -> Difference | None:
        """Compare one answer with gold; `quiet` means that nothing was being written at the time."""
        ((_, difference),) = self.compare([Question("", query, lambda: self.packed(query, rows), quiet=quiet)])
        return cast("Difference | None", difference)

    def differences(self, query: Stored, rows: Rows) -> list[Located]:
        """Return the differences between stored rows and the points that were written; unknown ones may be stored."""
        ((_, difference),) = self.compare([Question("", query, lambda: self.packed_stored(query, rows))])
        return cast("list[Located]", difference)

    def packed(self, query: Query, rows: Rows) -> Answer:
        """Return an answer as columns, or as a difference if it cannot be one."""
        return packed_answer(query, rows, self._names(query))

    def packed_canonical(self, query: Query, rows: Sequence[Row]) -> Packed:
        """Return the rows of an answer that are in canonical form as columns."""
        return pack_rows(query, rows, self._names(query))

    def packed_stored(self, query: Stored, rows: Rows) -> Packed:
        """Return stored rows as columns."""
        return pack_stored(query, rows, self._names(query).every_key)

    def _names(self, query: Query) -> Names:
        if isinstance(query, Stored):
            return self._names_of_stored(query.measurement)
        return replace(
            self._names_of_all, keyed=query.measurement.key is not None and query.measurement.key in query.columns
        )

    def _names_of_stored(self, measurement: Measurement) -> Names:
        """Return the names of stored rows' series: all their tags, None where one is lacking."""
        if measurement.name not in self._stored_names:
            tags = self.world.tags_of(measurement.name)
            of = [tags[tag] for tag in (*measurement.tags, *measurement.own_tags)]
            every_key = SeriesNames.of_tags(of, self.world.series)
            self._stored_names[measurement.name] = replace(self._names_of_all, every_key=every_key)
        return self._stored_names[measurement.name]

    def compare(self, questions: Sequence[Question[Any]]) -> Iterator[Checked]:
        """Compare the answers to all questions with gold, in one pass over the world.

        Yields each question with the first difference, None if its answer is right, as soon as the last point is known
        that concerns it. An answer is read when its window begins or ends, not before. A question is not among them if
        all points that concern it may have expired.
        """
        self._expired_before_ns = NEVER_NS if self._expiry is None else self._expiry.before_ns()
        if self._expiry is None:
            yield from self._compared(questions)
            return
        parts = [(unexpired(question, self._expired_before_ns), question) for question in questions]
        whole = {id(part): question for part, question in parts}
        for part, packed in self._compared([part for part, _ in parts if part is not None]):
            yield whole[id(part)], packed

    def _compared(self, questions: Sequence[Question[Any]]) -> Iterator[Checked]:
        waiting = {name: sorted(packed, key=lambda one: -one.begin_ns) for name, packed in self._trackers(questions)}
        active: dict[str, list[Tracker]] = defaultdict(list)
        stored = expirable = 0
        for sent in slabs(self._feed, self._ledger, keeps_duplicates=self._keeps):
            slab = sent.expired(self._expired_before_ns)
            known = slab.known()
            stored += len(known)
            expirable += len(sent.known()) - len(known) if slab is not sent else 0
            name = slab.measurement.name
            todo, some = waiting.get(name, []), active[name]
            while todo and todo[-1].begin_ns < slab.end_ns:
                some.append(todo.pop())
            if not some:
                continue
            going = []
            for tracker in some:
                tracker.add(slab, known)
                yield from tracker.checked(slab.end_ns)
                if tracker.end_ns > slab.end_ns:
                    going.append(tracker)
            active[name] = going
        self._stored, self.expirable_points = stored, expirable
        for rest in (*active.values(), *waiting.values()):
            for tracker in rest:
                yield from tracker.checked(EVER_NS)

    def _trackers(self, questions: Sequence[Question[Query]]) -> Iterator[tuple[str, list[Tracker]]]:
        """Yield the trackers for all questions, by the name of their measurement."""
        alike: dict[object, list[Question[Query]]] = defaultdict(list)
        for question in questions:
            alike[self._likeness(question)].append(question)
        trackers: dict[str, list[Tracker]] = defaultdict(list)
        for group in alike.values():
            first, tracker = group[0].query, self._tracker(group)
            of = tables_of(first, self.world.measurements) if isinstance(first, Text) else (first.measurement,)
            for measurement in of:
                trackers[measurement.name].append(tracker)
        yield from trackers.items()

    def _likeness(self, question: Question[Query]) -> object:
        """Return what the questions of one tracker have in common; the question itself where it has one of its own."""
        query = question.query
        match query:
            case Aggregated(by=(_, *_)) if not is_computed_alone(query):
                return Aggregated, query.measurement.name, query.bucket_ns
            case LatestBuckets():
                return replace(query, before_ns=0)
            case Text():
                return Text, *(m.name for m in tables_of(query, self.world.measurements))
            case Latest():
                moving = self._is_moving(question)
                return Latest, query.measurement.name, moving, query.fields if moving else ()
            case _:
                return id(question)

    def _is_moving(self, question: Question[Query]) -> bool:
        """Return True if the newest rows that a question asks for depend on the moment, unknown writes or expiry."""
        query = question.query
        if not isinstance(query, Latest) or query.before_ns is not None:
            return False
        return self._expiry is not None or (self.writes and (not question.quiet or self.unknown_points > 0))

    def _tracker(self, group: Sequence[Any]) -> Tracker:
        """Return the tracker for questions that are alike."""
        first: Question[Query] = group[0]
        names = self._names(first.query)
        if self._is_moving(first):
            return MovingTracker(group, names, loaded_ns=self.loaded.end_ns, shows_at_once=self._shows_at_once)
        if isinstance(first.query, Aggregated):
            if is_computed_alone(first.query):
                return AggregateTracker(group[0], names)
            return GroupTracker(group, names) if first.query.by else BucketTracker(group[0], names)
        if isinstance(first.query, Raw) and first.query.top is not None:
            return FirstRowTracker(group[0], names)
        if isinstance(first.query, Text):
            return OwnTextTracker(group, tables_of(first.query, self.world.measurements), self.world.tags_of)
        of_one: dict[type, Callable[[Any, Names], Tracker]] = {
            Raw: RowTracker,
            Stored: StoredTracker,
        }
        of_several: dict[type, Callable[[Any, Names], Tracker]] = {
            LatestBuckets: NewestBucketTracker,
            Latest: NewestTracker,
        }
        kind = type(first.query)
        return of_one[kind](first, names) if kind in of_one else of_several[kind](group, names)
