"""The execution of a query, for databases that report it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsbench.targets.base import Statement


@dataclass(frozen=True, slots=True)
class Plan:
    """The execution of one query as its database reports it; a figure that it does not report is None.

    `access` is how it got at the data (`IXSCAN time_1`), `examined` the number of rows or documents that it looked at,
    `returned` the number of those in the answer, `duration_ms` its own time; `text` is all that it says, as JSON.
    """

    access: str
    examined: int | None
    returned: int | None
    duration_ms: float | None
    text: str

    def figures(self) -> dict[str, Any]:
        """Return the plan without its text in the form of summary.json."""
        return {
            "access": self.access,
            "examined": self.examined,
            "returned": self.returned,
            "duration_ms": self.duration_ms,
        }


class Explaining(ABC):
    """A session that can say how its database executes a query."""

    @abstractmethod
    def explain(self, statement: Statement) -> Plan:
        """Execute a compiled query and return how the database did that.

        Raises
        ------
        tsbench.model.OpError
            If the database refuses or does not answer.
        """
