"""Findings: what a step after the measuring adds to a run's summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Verdict
    from tsbench.results.summary import GateResult


@dataclass(frozen=True, slots=True)
class Findings:
    """Parts of a summary, the checks of its figures and built-in gates; `death` says why the server is gone, if it is.

    Checks say whether the figures were measured right; a server that died or ops that failed are no matter for them.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Verdict] = field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    death: str = ""

    def __add__(self, other: Findings) -> Findings:
        parts, checks = {**self.parts, **other.parts}, {**self.checks, **other.checks}
        return Findings(parts, checks, self.gates + other.gates, self.death or other.death)
