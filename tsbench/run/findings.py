"""Findings: the contribution of one step after the measurement to a run's summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Verdict
    from tsbench.results.summary import GateResult


@dataclass(frozen=True, slots=True)
class Findings:
    """Parts of a `Summary` by name, checks of its figures and built-in gates; `death` describes the server's, if any.

    Checks say whether the figures were measured right; a dead server or failed ops do not affect them.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Verdict] = field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    death: str = ""

    def __add__(self, other: Findings) -> Findings:
        parts, checks = {**self.parts, **other.parts}, {**self.checks, **other.checks}
        return Findings(parts, checks, self.gates + other.gates, self.death or other.death)
