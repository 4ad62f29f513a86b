"""Expired points: older than the database keeps them, so that it may have deleted them; they do not count as lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import Difference
from tsbench.model import Aggregated, Latest, LatestBuckets, Raw, Text, Window
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.check.questions import Answer, Question
    from tsbench.model import Query
    from tsbench.workload.world import World

CLOCK_NS = 10 * NS_PER_S
"""Time by which the server's clock may be ahead of ours: points this much younger than the limit may be gone, too."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Points older than `after_ns` may be gone; younger ones must be stored. `now_ns` returns the time of now."""

    after_ns: int
    now_ns: Callable[[], int] = time.time_ns

    @classmethod
    def of(cls, after_s: int | None) -> Expiry | None:
        """Return the expiry of a target that deletes points after some seconds; None if it keeps all."""
        return None if after_s is None else cls(after_s * NS_PER_S)

    def before_ns(self) -> int:
        """Return the time before which points may be gone by now."""
        return self.now_ns() - self.after_ns + CLOCK_NS

    def kept_points(self, world: World, ticks: int) -> int:
        """Return the number of points of a world's first ticks that must be stored now; 0 if it is irregular."""
        if world.is_irregular:
            return 0
        gone = -(-(self.before_ns() - world.time_ns(0)) // world.spec.interval_ns)
        return world.count(None, min(max(gone, 0), ticks), ticks) or 0


def unexpired(question: Question[Any], before_ns: int) -> Question[Any] | None:
    """Return the part of a question that no point before a time concerns; None if no part can be compared.

    Its window begins later, at a bucket of which all points must be stored, and its answer has no earlier rows. An
    answer of which only a part was kept cannot be divided.
    """
    query = question.query
    match query:
        case Raw(top=None):
            first_ns = before_ns
        case Aggregated(bucket_ns=int(bucket_ns)):
            first_ns = -(-before_ns // bucket_ns) * bucket_ns
        case LatestBuckets() | Aggregated() | Text() | Raw():
            return question if _first_ns(query) >= before_ns else None
        case Latest(before_ns=int()):
            return None if question.part is not None else _since(question, query, before_ns)
        case _:  # their trackers know which points may be gone
            return question
    if query.window.start_ns >= before_ns:
        return question
    if first_ns >= query.window.end_ns or question.part is not None:
        return None
    return _since(question, replace(query, window=Window(first_ns, query.window.end_ns)), first_ns)


def _first_ns(query: LatestBuckets | Aggregated | Text | Raw) -> int:
    """Return the first time that a question is about."""
    if not isinstance(query, LatestBuckets):
        return query.window.start_ns
    return query.before_ns - 2 * query.limit * query.bucket_ns  # twice its buckets' time: some may be empty


def _since(question: Question[Any], query: Query, first_ns: int) -> Question[Any]:
    """Return a question with another query and an answer without the rows before a time."""

    def read() -> Answer:
        answer = question.answer()
        if isinstance(answer, Difference):
            return answer
        later = answer.take(answer.time_ns >= first_ns)
        later.odd = [row for row in answer.odd if not (row and type(row[0]) is int and row[0] < first_ns)]
        return later

    return replace(question, query=query, read=read)
