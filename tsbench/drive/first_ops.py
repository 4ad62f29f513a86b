"""The first op of each name, which is reported by itself where the database is cold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsbench.model import Outcome


@dataclass(frozen=True, slots=True)
class _First:
    began_ns: int
    response_ns: int
    service_ns: int
    outcome: str


class FirstOps:
    """The op of each name that began first; ops end in any order."""

    def __init__(self) -> None:
        self._found: dict[str, _First] = {}

    def ended(self, name: str, began_ns: int, response_ns: int, service_ns: int, outcome: Outcome) -> None:
        """Take note of an op that has ended; it began at `began_ns`, epoch ns."""
        first = self._found.get(name)
        if first is None or began_ns < first.began_ns:
            self._found[name] = _First(began_ns, response_ns, service_ns, outcome.name.lower())

    def to_json(self) -> dict[str, Any]:
        """Return the ops by name."""
        return {name: asdict(first) for name, first in self._found.items()}
