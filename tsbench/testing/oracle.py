"""The answer key as an oracle: all points in memory, every question answered by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.model import Count, Outcome
from tsbench.testing.answer_key import AnswerKey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tsbench.check.points import Feed
    from tsbench.model import Query, Rows


class Oracle:
    """The points that are stored for certain in `known`, those that may be stored in `maybe`."""

    def __init__(self, feed: Feed, ledger: NDArray[np.void], *, keeps_duplicates: bool) -> None:
        self.world = world = feed.world
        self.known, self.maybe = AnswerKey(keeps_duplicates), AnswerKey()
        for measurement in world.measurements:
            self.known.create(measurement, world.tags())
            self.maybe.create(measurement, world.tags())
        for stream in range(world.spec.streams):
            for batch in world.batches(stream, points=1_000, last_tick=feed.loaded_ticks):
                self.known.add(batch)
        for outcomes, key in (
            ([Outcome.OK], self.known),
            ([Outcome.UNKNOWN, Outcome.PARTIAL], self.maybe),
        ):
            for outcome in outcomes:
                for batch in feed.written(ledger[ledger["outcome"] == outcome]):
                    key.add(batch)

    def answer(self, query: Query) -> Rows:
        """Return the answer of the points that are stored for certain."""
        return self.known.answer(query)

    def count(self) -> int:
        """Return the number of these points."""
        return sum(int(self.answer(Count(m)).records[0][0]) for m in self.world.measurements)
