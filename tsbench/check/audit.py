"""Whether everything that was acknowledged is stored, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.model import Count, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tsbench.check.gold import Gold
    from tsbench.targets.base import Schema, Session


@dataclass(frozen=True, slots=True)
class Account:
    """Points by fate. `acknowledged` includes the bulk load; `unknown` may or may not be stored; `refused` must not be.

    `expected` is what `acknowledged` comes to where the schema keeps one of several points at the same time. Of a write
    that was refused in part, the points are counted one by one.
    """

    acknowledged: int
    expected: int
    stored: int
    unknown: int
    refused: int

    @property
    def lost(self) -> int:
        """Acknowledged points that are not stored."""
        return max(0, self.expected - self.stored)

    @property
    def unexpected(self) -> int:
        """Stored points that nobody acknowledged and that no unknown write explains."""
        return max(0, self.stored - self.expected - self.unknown)

    def summary(self) -> dict[str, int]:
        """As in summary.json."""
        return {**asdict(self), "lost": self.lost, "unexpected": self.unexpected}

    def verdict(self, lost_workers: Sequence[str] = ()) -> Verdict:
        """False if a point was lost or appeared from nowhere.

        The ledger of a worker that was lost may lack its last second: then more stored points prove nothing.
        """
        counts = self.summary()
        if self.lost:
            return Verdict(False, f"{self.lost:,} of {self.acknowledged:,} acknowledged points are not stored", counts)
        if self.unexpected and lost_workers:
            unsure = f"{self.unexpected:,} points more than acknowledged are stored"
            return Verdict(None, f"{unsure}; {', '.join(lost_workers)} may have written them", counts)
        if self.unexpected:
            return Verdict(False, f"{self.unexpected:,} points are stored that nobody acknowledged", counts)
        return Verdict(True, "", counts)


def account(gold: Gold, session: Session, schema: Schema, ledger: NDArray[np.void], loaded_points: int) -> Account:
    """Count what is stored and put it beside what was acknowledged."""
    points, acknowledged, refused = (
        int(ledger[key].sum(dtype=np.int64)) for key in ("points", "acknowledged", "refused")
    )
    stored = 0
    for measurement in gold.world.measurements:
        query = Count(measurement)
        rows = session.query(schema.compile(query), query.columns)
        stored += int(rows.records[0][0])
    return Account(
        acknowledged=loaded_points + acknowledged,
        expected=gold.count(),
        stored=stored,
        unknown=points - acknowledged - refused + gold.unsure_points,
        refused=refused,
    )
