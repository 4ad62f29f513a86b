"""The inventory of a database: whatever it holds beside the points of a scenario's measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.model import Measurement, Rows


@dataclass(frozen=True, slots=True)
class Inventory:
    """The contents of a database beside the points of a scenario's measurements.

    `tables` are the names of tables (collections, measurements) that are like tsbench's own and of no measurement of
    the scenario. `series` are the rows of the table of tags, with the columns id, the tags and `model.OTHERS`; None
    where a layout has no such table.
    """

    tables: tuple[str, ...] = ()
    series: Rows | None = None


@runtime_checkable
class HasInventory(Protocol):
    """A session that can list what its database holds beside points."""

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """List tables of other measurements, and the rows of tags if `series` are asked for.

        A table that has not the form of tsbench's own is not listed, nor is what lies outside the place (namespace,
        database, policy, bucket) that the session writes to: it may be anybody's.
        """
        ...
