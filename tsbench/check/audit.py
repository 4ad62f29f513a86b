"""Verify that all acknowledged points are stored, and no others.

Writes that lost load processes did not record are unknown ones: nobody knows which of them took place.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.comparison import canonical, forms_of
from tsbench.model import Count, Latest, OpError, Outcome, Verdict
from tsbench.results.ledger import LEDGER_DTYPE
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tsbench.check.gold import Gold
    from tsbench.check.points import Feed
    from tsbench.model import Measurement
    from tsbench.targets.base import Schema, Session


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of points by outcome.

    `acknowledged` includes the bulk load; `unknown` points may or may not be stored; `refused` points must not be.
    `expected` is the number of acknowledged points that must be stored: fewer than `acknowledged` if the schema keeps
    one of several points at the same time. Of a write that was refused in part, the points are those that the database
    said it has stored and refused. `unrecorded` points are those that lost load processes may have written: their
    ledgers lack the end. `expirable` points are acknowledged ones that the database may have deleted by itself;
    they are not expected. Only numbers are compared: `answers.read_back` compares the points themselves.
    """

    acknowledged: int
    expected: int
    stored: int
    unknown: int
    refused: int
    unrecorded: int = 0
    expirable: int = 0

    @property
    def lost(self) -> int:
        """Number of acknowledged points that are not stored."""
        return max(0, self.expected - self.stored)

    @property
    def unexpected(self) -> int:
        """Number of stored points that were neither acknowledged nor part of an unknown or unrecorded write."""
        return max(0, self.stored - self._explained - self.unrecorded)

    @property
    def of_lost_processes(self) -> int:
        """Number of stored points that only lost load processes can have written."""
        return min(self.unrecorded, max(0, self.stored - self._explained))

    @property
    def _explained(self) -> int:
        return self.expected + self.expirable + self.unknown

    def summary(self) -> dict[str, int]:
        """Return the numbers in the form of summary.json."""
        figures = {**asdict(self), "lost": self.lost, "unexpected": self.unexpected}
        if not self.expirable:
            del figures["expirable"]
        return figures | ({"of_lost_processes": self.of_lost_processes} if self.unrecorded else {})

    def verdict(self, lost_workers: Sequence[str] = (), notes: Sequence[str] = ()) -> Verdict:
        """Return the verdict: invalid if a point was lost or is stored without an acknowledgement; `notes` say more.

        The ledger of a lost worker may lack its last second: what is stored beside the acknowledged points may be its
        rows, which are counted in the reason.
        """
        counts = self.summary()
        if self.lost:
            reason = f"{self.lost:,} of {self.acknowledged:,} acknowledged points are not stored"
            return Verdict(False, "; ".join([reason, *notes]), counts)
        names = ", ".join(lost_workers)
        if self.unexpected and lost_workers:
            unsure = f"{self.unexpected:,} points more than acknowledged are stored"
            return Verdict(None, f"{unsure}; {names} may have written them", counts)
        if self.of_lost_processes:
            return Verdict(True, f"{self.of_lost_processes:,} rows of a lost load process ({names}) are stored", counts)
        if self.unexpected:
            return Verdict(False, f"{self.unexpected:,} points are stored that nobody acknowledged", counts)
        return Verdict(True, "", counts)


def count_stored(
    session: Session, schema: Schema, measurements: Iterable[Measurement], notes: list[str] | None = None
) -> int:
    """Return the number of points that the database says it has stored, and add its remarks on copies to `notes`.

    Raises
    ------
    tsbench.targets.base.Unsupported
        If the schema cannot count.
    tsbench.model.OpError
        If the database does not answer, or not with a number.
    """
    stored = 0
    for measurement in measurements:
        query = Count(measurement)
        answer = session.query(schema.compile(query), query.columns)
        records = answer.records
        if notes is not None:
            notes += answer.notes
        try:
            stored += int(records[0][0])
        except (IndexError, TypeError, ValueError):
            text = f"the count of {measurement.name} was answered with {shortened(str(records), 80)}"
            raise OpError(Outcome.UNKNOWN, "protocol", text) from None
    return stored


def account(gold: Gold, stored: int, ledger: NDArray[np.void], loaded_points: int, *, unrecorded: int = 0) -> Account:
    """Compare the number of stored points with those of acknowledged, `unrecorded` and other ones."""
    points, acknowledged, refused = (
        int(ledger[key].sum(dtype=np.int64)) for key in ("points", "acknowledged", "refused")
    )
    return Account(
        acknowledged=loaded_points + acknowledged,
        expected=gold.count(),
        stored=stored,
        unknown=points - acknowledged - refused + gold.unsure_points,
        refused=refused,
        unrecorded=unrecorded,
        expirable=gold.expirable_points,
    )


# --- writes that were not recorded ------------------------------------------------------------------------------------


def newest_stored_ns(session: Session, schema: Schema, measurements: Iterable[Measurement]) -> int | None:
    """Return the time of the newest stored point; None if nothing is stored.

    Raises
    ------
    tsbench.targets.base.Unsupported
        If the schema cannot ask for newest rows.
    tsbench.model.OpError
        If the database does not answer.
    """
    newest = []
    for measurement in measurements:
        count = Count(measurement)  # which makes all that was acknowledged visible where it is not at once
        session.query(schema.compile(count), count.columns)
        query = Latest(measurement, measurement.fields_to_count)
        rows = canonical(session.query(schema.compile(query), query.columns), forms_of(query))
        newest += [row[0] for row in rows if type(row[0]) is int]
    return max(newest, default=None)


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
    recorded = 0 if feed.world.is_irregular else feed.last_tick_of(ledger) - feed.loaded_ticks
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
    world, size, loaded = feed.world, feed.block_points, feed.loaded_ticks
    series = max(0, int(feed.series_in(np.array(stream))))
    each = [world.points_in(m.name, loaded + ticks) - world.points_in(m.name, loaded) for m in world.measurements]
    rows = sum(each) // feed.turns * series if world.recorded is None else world.recorded.rows
    if world.spec.disorder:  # with copies there are more; rows that do not exist are none
        rows = -(-int(rows * (1 + world.spec.disorder.duplicate)) // size) * size
    if world.in_order_of_time:  # each measurement's last block may be of fewer rows
        rows += len(world.measurements) * size
    own = ledger[ledger["stream"] == stream]
    turns = feed.turns
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
