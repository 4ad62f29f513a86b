"""Verify that all acknowledged points are stored, and no others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.model import Count, OpError, Outcome, Verdict
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tsbench.check.gold import Gold
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
        found = {**asdict(self), "lost": self.lost, "unexpected": self.unexpected}
        if not self.expirable:
            del found["expirable"]
        return found | ({"of_lost_processes": self.of_lost_processes} if self.unrecorded else {})

    def verdict(self, lost_workers: Sequence[str] = ()) -> Verdict:
        """Return the verdict: invalid if a point was lost or is stored without an acknowledgement.

        The ledger of a lost worker may lack its last second: what is stored beside the acknowledged points may be its
        rows, which are counted in the reason.
        """
        counts = self.summary()
        if self.lost:
            return Verdict(False, f"{self.lost:,} of {self.acknowledged:,} acknowledged points are not stored", counts)
        names = ", ".join(lost_workers)
        if self.unexpected and lost_workers:
            unsure = f"{self.unexpected:,} points more than acknowledged are stored"
            return Verdict(None, f"{unsure}; {names} may have written them", counts)
        if self.of_lost_processes:
            return Verdict(True, f"{self.of_lost_processes:,} rows of a lost load process ({names}) are stored", counts)
        if self.unexpected:
            return Verdict(False, f"{self.unexpected:,} points are stored that nobody acknowledged", counts)
        return Verdict(True, "", counts)


def count_stored(session: Session, schema: Schema, measurements: Iterable[Measurement]) -> int:
    """Return the number of points that the database says it has stored.

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
        records = session.query(schema.compile(query), query.columns).records
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
