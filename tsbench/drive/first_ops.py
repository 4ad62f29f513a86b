"""The first op of each name, which is reported by itself where the database is cold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.results.process import FirstOp

if TYPE_CHECKING:
    from tsbench.model import Outcome


class FirstOps:
    """The op of each name that began first; ops end in any order."""

    def __init__(self) -> None:
        self.found: dict[str, FirstOp] = {}
        """The ops by name."""

    def ended(self, name: str, began_ns: int, response_ns: int, service_ns: int, outcome: Outcome) -> None:
        """Take note of an op that has ended; it began at `began_ns`, epoch ns."""
        first = self.found.get(name)
        if first is None or began_ns < first.began_ns:
            self.found[name] = FirstOp(began_ns, response_ns, service_ns, outcome.name.lower())
