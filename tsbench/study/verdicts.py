"""Verdicts on the findings of a published study: reproduced, not reproduced, or not judged with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from tsbench.measure import gates
from tsbench.results.summary import ClaimRow, FigureRow
from tsbench.study.claims import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.results.summary import Summary
    from tsbench.study.claims import Claim, Figure

State = Literal["reproduced", "not reproduced", "not judged"]
Ends: TypeAlias = tuple[float, float]
"""The least and the most that a figure can be."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The verdict on a claim, what was measured, and the reason if it could not be judged."""

    state: State
    measured: str = ""
    reason: str = ""


def evaluate(claims: Sequence[Claim], runs: Mapping[str, Sequence[Summary]]) -> list[ClaimRow]:
    """Return the claims table of a result set, as in its summary.json; `runs` are the repeats of each cell.

    A claim about a run that is missing, not valid, or of another product than the study's is not judged. A run whose
    gate failed is valid: its figures were measured right. Of repeats the median is judged.
    """
    return [_row(claim, _verdict(claim, runs)) for claim in claims]


def shown_figures(figures: Sequence[Figure], runs: Mapping[str, Sequence[Summary]]) -> list[FigureRow]:
    """Return the published figures beside the measured ones, as in a result set's summary.json."""
    return [
        FigureRow(
            figure=one.figure,
            cell=cell,
            published="" if (value := one.value(cell)) is None else gates.figure_text(one.figure, value),
            measured=_shown(one.figure, runs.get(cell, ())),
        )
        for one in figures
        for cell in one.published
    ]


def _shown(figure: str, runs: Sequence[Summary]) -> str:
    if not runs:
        return "not run"
    ends, why = _believed(figure, runs)
    if not ends:
        return why
    text = gates.figure_text(figure, *_median(ends))
    if len(runs) == 1:
        return text
    whole = gates.figure_text(figure, min(least for least, _ in ends), max(most for _, most in ends))
    return f"{text} (median of {len(ends)}, {whole})"


def _believed(figure: str, runs: Sequence[Summary]) -> tuple[list[Ends], str]:
    """Return the ends of the figures of the runs that have one that can be compared, and why one has not, else ""."""
    all_ends = [gates.believed_figure(figure, run) for run in runs]
    return [ends for ends, _ in all_ends if ends is not None], next((why for _, why in all_ends if why), "")


def _median(all_ends: Sequence[Ends]) -> Ends:
    least, most = (median(ends) for ends in zip(*all_ends, strict=True))
    return least, most


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


def _verdict(claim: Claim, runs: Mapping[str, Sequence[Summary]]) -> ClaimVerdict:
    if claim.product and (why := _other_product(claim, runs)):
        return ClaimVerdict("not judged", reason=why)
    return _break(claim, runs) if claim.kind == "break" else _amount_found(claim, runs)


def _amount_found(claim: Claim, runs: Mapping[str, Sequence[Summary]]) -> ClaimVerdict:
    """Judge a ratio, a value or a growth: whether all that it can be lies within the claim's limits, or beyond them."""
    amounts: list[Ends] = []
    doubts = []
    for cell in claim.cells:
        figure = claim.over_figure if cell == claim.over and claim.over_figure else claim.figure or ""
        of_runs, why = _believed(figure, runs[cell]) if cell in runs else ([], "was not run")
        if not of_runs:
            return ClaimVerdict("not judged", reason=f"{cell}: {why}")
        ends = _median(of_runs)
        amounts.append(ends)
        if ends[0] != ends[1]:
            doubts.append(f"{cell}: {figure} is only known to be {gates.figure_text(figure, *ends)}")
    if claim.kind != "value" and min(least for least, _ in amounts) <= 0:
        shown = " and ".join(gates.figure_text(claim.figure or "", *ends) for ends in amounts)
        return ClaimVerdict("not judged", shown, "there is no ratio to 0")
    if claim.kind == "value":
        return _within(claim, amounts[0], doubts)
    if claim.kind == "growth":
        return _within(claim, _growth([*claim.rungs.values()], amounts), doubts)
    first, last = amounts[0], amounts[-1]
    return _within(claim, (first[0] / last[1], first[1] / last[0]) if claim.kind == "ratio" else first, doubts)


def _growth(loads: Sequence[float], all_ends: Sequence[Ends]) -> Ends:
    """Return the least and the most by which a figure can grow per doubling: the slope of a line through logarithms."""
    along = np.log2(loads) - np.log2(loads).mean()
    ends = np.log2(all_ends) * (along / (along**2).sum())[:, None]
    least, most = (float(np.exp2(np.nansum(pick(ends, axis=1)))) for pick in (np.min, np.max))
    return least, most


def _other_product(claim: Claim, runs: Mapping[str, Sequence[Summary]]) -> str:
    """Return the reason if one of the claim's runs measured another product than the study's."""
    for run in (run for cell in claim.cells for run in runs.get(cell, ())):
        version = run.server_version
        if not any(version.casefold().startswith(one) for one in claim.product.casefold().split(" or ")):
            return f"not {claim.product}, but {version or 'a server of unknown version'}"
    return ""


def _within(claim: Claim, measured: Ends, doubts: Sequence[str]) -> ClaimVerdict:
    low, high = claim.limits
    least, most = measured
    text = _amount(claim, most) if not doubts else f"{_number(least)} to {_amount(claim, most)}"
    if low <= least <= most <= high:
        return ClaimVerdict("reproduced", text)
    if most < low or least > high:
        return ClaimVerdict("not reproduced", text)
    return ClaimVerdict("not judged", text, "; ".join(doubts))


def _break(claim: Claim, runs: Mapping[str, Sequence[Summary]]) -> ClaimVerdict:
    """Judge where a ramp breaks: at the first rung that misses the gate, after calm ones.

    A rung that could not be judged may have been calm or not. The claim is judged all the same if both lead to the same
    verdict.
    """
    gate = gates.parse_gate(claim.gate or "")
    possible: list[float | None] = []  # loads at which the ramp may have broken; None: it never did
    unknown, texts = [], []
    for cell, load in claim.rungs.items():
        state, text = _judged(gate, runs.get(cell, ()))
        texts.append(f"{cell}: {text}")
        if state != "pass":
            possible.append(load)
        if state in {"not judged", "undecided"}:
            unknown.append(f"{cell}: {text}")
        if state == "fail":
            break
    else:
        possible.append(None)
    verdicts = {_in_range(claim, load) for load in possible}
    measured = "; ".join(texts[-2:])
    if verdicts == {True, False}:
        return ClaimVerdict("not judged", measured, f"it is not known at which load it broke ({'; '.join(unknown)})")
    return ClaimVerdict("reproduced" if verdicts == {True} else "not reproduced", measured)


def _judged(gate: gates.Gate, runs: Sequence[Summary]) -> tuple[str, str]:
    """Return whether a rung's run passed the gate, and its figure or the reason; `undecided` if repeats differ."""
    if not runs:
        return "not judged", "was not run"
    results = [gates.evaluate_gates([gate], run)[0] for run in runs]
    texts = [one.text if one.state == "not judged" else one.text.partition(" (")[0] for one in results]
    states = {one.state for one in results}
    return states.pop() if len(states) == 1 else "undecided", " or ".join(dict.fromkeys(texts))


def _in_range(claim: Claim, load: float | None) -> bool:
    if load is None or not isinstance(claim.published, list):
        return load is None and claim.published == NEVER
    return claim.published[0] <= load <= claim.published[1]
