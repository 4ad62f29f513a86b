"""How long the phases of a run took: the part `durations_s` of summary.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(NamedTuple):
    """The words for a phase: its label in reports, what a user waits for, and the clause after "while" in messages.

    Both are "" for a part of a phase; nobody waits for the measuring.
    """

    label: str
    waiting_for: str = ""
    during: str = ""


PHASES = {
    "start": Phase("start of the server, tables created", "starting the server", "the server was started"),
    "load": Phase("first data stored", "storing the first data", "the first data was stored"),
    "settle": Phase(
        "database at rest, points counted", "waiting until the database has settled", "the database settled"
    ),
    "cold start": Phase("server restarted, page cache dropped", "restarting the server", "the server was restarted"),
    "measure": Phase("load processes, not divided", during="it was measured"),
    "load processes": Phase("load processes started and ended"),
    "warm-up": Phase("warm-up"),
    "measured window": Phase("measured window"),
    "figures": Phase("results merged"),
    "check": Phase("writes and answers checked", "checking answers and writes", "answers and writes were checked"),
}
"""All phases in the order of a run. A run has those that it reached."""
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Durations:
    """How long the phases of a run took, in seconds; their sum is the run up to the end of its checks.

    The server's end, which comes after them, is not included.
    """

    phases_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """Duration of all phases together."""
        return sum(self.phases_s.values())

    def divided(self, window: Mapping[str, float]) -> Durations:
        """Return them with the phase `measure` in parts; `window` has `warmup_s` and `duration_s`, or is empty.

        A run that broke off may not have reached its window's end: then the phase is not divided.
        """
        parts = {"warm-up": window.get("warmup_s", 0.0), "measured window": window.get("duration_s", 0.0)}
        rest = {name: taken_s for name, taken_s in self.phases_s.items() if name != "measure"}
        other_s = self.phases_s.get("measure", 0.0) - sum(parts.values())
        if "warmup_s" not in window or other_s < 0:
            return self
        return Durations({**rest, **parts, "load processes": other_s})

    def in_order(self) -> list[tuple[str, float]]:
        """Return the phases with their durations, in the order of a run."""
        return [(name, self.phases_s[name]) for name in PHASES if name in self.phases_s]

    def to_json(self) -> dict[str, float]:
        """Return them as summary.json has them: the total, then the phases in order, to milliseconds."""
        return {TOTAL: round(self.total_s, 3), **{name: round(taken_s, 3) for name, taken_s in self.in_order()}}

    @classmethod
    def from_json(cls, content: object) -> Durations:
        """Return those of a summary.json; none if it is older than they are."""
        found = content if isinstance(content, dict) else {}
        return cls({name: found[name] for name in PHASES if isinstance(found.get(name), int | float)})
