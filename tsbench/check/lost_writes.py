"""Writes of lost workers that no ledger has: nobody knows which of them took place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.comparison import canonical
from tsbench.model import Latest, Outcome
from tsbench.results.ledger import LEDGER_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tsbench.check.points import Feed
    from tsbench.model import Measurement
    from tsbench.targets.base import Schema, Session


def newest_stored_ns(session: Session, schema: Schema, measurements: Iterable[Measurement]) -> int | None:
    """Return the time of the newest stored point; None if nothing is stored.

    Raises
    ------
    tsbench.targets.base.Unsupported
        If the schema cannot ask for newest rows.
    tsbench.model.OpError
        If the database does not answer.
    """
    found = []
    for measurement in measurements:
        query = Latest(measurement, measurement.field_names[:1])
        rows = canonical(session.query(schema.compile(query), query.columns))
        found += [row[0] for row in rows if type(row[0]) is int]
    return max(found, default=None)


def with_unrecorded(
    feed: Feed, ledger: NDArray[np.void], streams: Iterable[int], newest_ns: int | None
) -> NDArray[np.void]:
    """Return the ledger and, as unknown writes, all points of some streams that it lacks, up to the newest stored time.

    That time is taken from the database: what lies further ahead than the load is long, and than twice the recorded
    writes are, is not believed.
    """
    first_ns = feed.world.time_ns(feed.loaded_ticks)
    if newest_ns is None or newest_ns < first_ns:
        return ledger
    recorded = 0 if feed.world.spec.disorder else feed.last_tick_of(ledger) - feed.loaded_ticks
    ticks = (newest_ns - first_ns) // feed.world.spec.interval_ns + 1
    ticks = min(ticks, max(feed.loaded_ticks, 2 * recorded))
    if feed.last_tick is not None:
        ticks = min(ticks, feed.last_tick - feed.loaded_ticks)
    entries = [entry for stream in streams for entry in _missing(feed, ledger, stream, ticks)]
    more = np.zeros(len(entries), dtype=LEDGER_DTYPE)
    for name, values in zip(("stream", "block", "offset", "points"), zip(*entries, strict=True), strict=False):
        more[name] = values
    more["outcome"] = Outcome.UNKNOWN
    return np.concatenate([ledger, more])


def _missing(feed: Feed, ledger: NDArray[np.void], stream: int, ticks: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield stream, block, offset and number of the points of a stream's next ticks that a ledger lacks."""
    spec, size = feed.world.spec, feed.block_points
    rows = ticks * max(0, int(feed.series_in(np.array(stream))))
    if spec.disorder:  # with copies there are more; rows that do not exist are none
        rows = -(-int(rows * (1 + spec.disorder.duplicate)) // size) * size
    own = ledger[ledger["stream"] == stream]
    turns = len(feed.world.measurements)
    for turn in range(turns):
        known = own[own["block"] % turns == turn]
        starts = feed.own_rows(known)
        order = np.argsort(starts, kind="stable")
        ends = np.maximum.accumulate((starts + known["points"])[order])
        for gap, end in zip([0, *ends.tolist()], [*starts[order].tolist(), rows], strict=True):
            at = gap
            while at < min(end, rows):
                last = min(end, rows, (at // size + 1) * size)
                yield stream, at // size * turns + turn, at % size, last - at
                at = last
