"""Gates on the ratio to a baseline, such as `write:p99<1.1x`: judged by the interval of the ratio of repeated runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.report.comparison import compare, pairs, sides_at
from tsbench.results.summary import GateResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.report.comparison import Comparison, FigureFinding
    from tsbench.results.summary import GateState

_RELATIVE = re.compile(r"(?P<name>[^<>=]+?)\s*(?P<sign><=|>=|<|>)\s*(?P<times>\d+(\.\d+)?)\s*x")


@dataclass(frozen=True, slots=True)
class RelativeGate:
    """A condition on the ratio of a figure to the baseline's."""

    text: str
    figure: str
    is_below: bool
    times: float


def parse_relative(text: str) -> RelativeGate:
    """Parse a gate such as `write:p99<1.1x`; raises ValueError with one line if it is none."""
    match = _RELATIVE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a gate on a ratio; write for example write:p99<1.1x")
    figure = gates.parse_figure(match["name"], text).text
    return RelativeGate(re.sub(r"\s+", "", text), figure, match["sign"] in {"<", "<="}, float(match["times"]))


def compared(
    base: Path, new: Path, asked: Sequence[RelativeGate], figures: Sequence[str] = ()
) -> list[tuple[Comparison, list[GateResult]]]:
    """Return the comparisons of a set with its baseline, each with the results of the gates.

    Raises
    ------
    UserMistake
        If nothing can be compared.
    """
    wanted = list(dict.fromkeys([*figures, *(gate.figure for gate in asked)]))
    comparisons = [compare(one, other, wanted) for one, other in pairs(base, new)]
    return [(one, [_result(gate, one) for gate in asked]) for one in comparisons]


def expect_baseline(baseline: Path | None, asked: Sequence[str]) -> tuple[list[str], list[RelativeGate]]:
    """Return the gates on single runs and those on ratios, before anything is run.

    Raises
    ------
    UserMistake
        If a gate needs a baseline and there is none, or it is no result set.
    """
    own = [text for text in asked if not _RELATIVE.fullmatch(text.strip())]
    try:
        relative = [parse_relative(text) for text in asked if text not in own]
    except ValueError as error:
        raise UserMistake(f"--gate {error}") from None
    if relative and baseline is None:
        raise UserMistake(f"--gate '{relative[0].text}' is about the ratio to a baseline; add --baseline DIR")
    if baseline is not None:
        if not relative:
            raise UserMistake("--baseline is for gates on ratios; add one, such as --gate 'write:p99<1.1x'")
        if not (baseline / "summary.json").exists():
            raise UserMistake(f"--baseline {baseline}: no such result set; give one such as results/<date>-<scenario>")
        sides_at(baseline)  # before the runs, and not after them
    return own, relative


def _result(gate: RelativeGate, comparison: Comparison) -> GateResult:
    """Return the result of a gate by the interval of the ratio NEW by BASE; it is undecided if both ends differ."""
    finding: FigureFinding | None = next((one for one in comparison.findings if one.figure == gate.figure), None)
    if finding is None:
        return GateResult(gate.text, None, "not judged", f"{comparison.new.name}: not all runs have {gate.figure}")
    ratio = finding.test.ratio
    holds = {(end < gate.times) is gate.is_below for end in (ratio.least, ratio.most)}
    state: GateState = "undecided" if len(holds) > 1 else "pass" if holds.pop() else "fail"
    text = f"{ratio.estimate:.3g} times the baseline"
    if ratio.least and ratio.most < 1e300:
        text += f" ({ratio.least:.3g} to {ratio.most:.3g})"
    else:
        text += f"; {min(finding.test.runs)} run(s) of a side are too few, run both with --repeat"
    return GateResult(gate.text, ratio.estimate, state, f"{comparison.new.name}: {text}")
