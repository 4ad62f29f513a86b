"""Verdicts on the findings of a published study: reproduced, not reproduced, or not judged with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tsbench.measure import gates
from tsbench.results.summary import ClaimRow, FigureRow
from tsbench.study.claims import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.results.summary import Summary
    from tsbench.study.claims import Claim, Figure

State = Literal["reproduced", "not reproduced", "not judged"]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The verdict on a claim, what was measured, and the reason if it could not be judged."""

    state: State
    measured: str = ""
    reason: str = ""


def evaluate(claims: Sequence[Claim], summaries: Mapping[str, Summary]) -> list[ClaimRow]:
    """Return the claims table of a result set, as in its summary.json.

    A claim about a run that is missing, not valid, or of another product than the study's is not judged. A run whose
    gate failed is valid: its figures were measured right.
    """
    return [_row(claim, _verdict(claim, summaries)) for claim in claims]


def shown_figures(figures: Sequence[Figure], summaries: Mapping[str, Summary]) -> list[FigureRow]:
    """Return the published figures beside the measured ones, as in a result set's summary.json."""
    return [
        FigureRow(
            figure=one.figure,
            cell=cell,
            published="" if (value := one.value(cell)) is None else gates.figure_text(one.figure, value),
            measured=_shown(one.figure, summaries.get(cell)),
        )
        for one in figures
        for cell in one.published
    ]


def _shown(figure: str, summary: Summary | None) -> str:
    if summary is None:
        return "not run"
    value, why = gates.believed_figure(figure, summary)
    return gates.figure_text(figure, value) if value is not None else why


def _row(claim: Claim, verdict: ClaimVerdict) -> ClaimRow:
    published, condition = _published(claim)
    return ClaimRow(
        claim=claim.text,
        published=published,
        reproduced_if=condition,
        measured=verdict.measured,
        verdict=verdict.state,
        reason=verdict.reason,
    )


def _published(claim: Claim) -> tuple[str, str]:
    """Return what was published, and the condition on the measurement, as text."""
    if claim.kind == "break":
        if not isinstance(claim.published, list):
            return "never breaks", f"{claim.gate} up to {max(claim.rungs.values()):g}"
        low, high = claim.published
        where = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return f"breaks at {where}", f"{claim.gate} is first missed at {where}"
    low, high = claim.limits
    return _amount(claim, claim.number), f"{_number(low)} to {_amount(claim, high)}"


def _amount(claim: Claim, value: float) -> str:
    if claim.kind == "value":
        return gates.figure_text(claim.figure or "", value)
    return f"{_number(value)} times" + (" per doubling" if claim.kind == "growth" else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _verdict(claim: Claim, summaries: Mapping[str, Summary]) -> ClaimVerdict:
    if claim.product and (why := _other_product(claim, summaries)):
        return ClaimVerdict("not judged", reason=why)
    return _break(claim, summaries) if claim.kind == "break" else _amount_found(claim, summaries)


def _amount_found(claim: Claim, summaries: Mapping[str, Summary]) -> ClaimVerdict:
    """Judge a ratio, a value or a growth: whether it lies within the claim's limits."""
    values: list[float] = []
    for cell in claim.cells:
        figure = claim.over_figure if cell == claim.over and claim.over_figure else claim.figure
        value, why = _figure(figure or "", cell, summaries)
        if value is None:
            return ClaimVerdict("not judged", reason=f"{cell}: {why}")
        values.append(value)
    if claim.kind != "value" and min(values) <= 0:
        shown = " and ".join(gates.figure_text(claim.figure or "", value) for value in values)
        return ClaimVerdict("not judged", shown, "there is no ratio to 0")
    if claim.kind == "growth":
        slope = np.polyfit(np.log(list(claim.rungs.values())), np.log(values), 1)[0]
        return _within(claim, float(2.0**slope))
    return _within(claim, values[0] / values[1] if claim.kind == "ratio" else values[0])


def _other_product(claim: Claim, summaries: Mapping[str, Summary]) -> str:
    """Return the reason if one of the claim's runs measured another product than the study's."""
    for cell in claim.cells:
        if cell in summaries:
            version = summaries[cell].server_version
            if not any(version.casefold().startswith(one) for one in claim.product.casefold().split(" or ")):
                return f"not {claim.product}, but {version or 'a server of unknown version'}"
    return ""


def _figure(figure: str, cell: str, summaries: Mapping[str, Summary]) -> tuple[float | None, str]:
    if cell not in summaries:
        return None, "was not run"
    summary = summaries[cell]
    return gates.believed_figure(figure, summary)


def _within(claim: Claim, measured: float) -> ClaimVerdict:
    low, high = claim.limits
    return ClaimVerdict("reproduced" if low <= measured <= high else "not reproduced", _amount(claim, measured))


def _break(claim: Claim, summaries: Mapping[str, Summary]) -> ClaimVerdict:
    """Judge where a ramp breaks: at the first rung that misses the gate, after calm ones.

    A rung that could not be judged may have been calm or not. The claim is judged all the same if both lead to the same
    verdict.
    """
    gate = gates.parse_gate(claim.gate or "")
    possible: list[float | None] = []  # loads at which the ramp may have broken; None: it never did
    unknown, texts = [], []
    for cell, load in claim.rungs.items():
        state, text = _judged(gate, summaries.get(cell))
        texts.append(f"{cell}: {text}")
        if state != "pass":
            possible.append(load)
        if state in {"not judged", "undecided"}:
            unknown.append(f"{cell}: {text}")
        if state == "fail":
            break
    else:
        possible.append(None)
    found = {_in_range(claim, load) for load in possible}
    measured = "; ".join(texts[-2:])
    if found == {True, False}:
        return ClaimVerdict("not judged", measured, f"it is not known at which load it broke ({'; '.join(unknown)})")
    return ClaimVerdict("reproduced" if found == {True} else "not reproduced", measured)


def _judged(gate: gates.Gate, summary: Summary | None) -> tuple[str, str]:
    """Return whether a rung passed the gate, and its figure or the reason."""
    if summary is None:
        return "not judged", "was not run"
    (result,) = gates.evaluate_gates([gate], summary)
    return result.state, f"{result.text}" if result.state == "not judged" else f"{result.text.partition(' (')[0]}"


def _in_range(claim: Claim, load: float | None) -> bool:
    if load is None or not isinstance(claim.published, list):
        return load is None and claim.published == NEVER
    return claim.published[0] <= load <= claim.published[1]
