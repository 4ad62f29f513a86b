"""Comparison with published claims: directions and rough ratios, not figures of other hardware."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.scenario.file import read_document
from tsbench.scenario.messages import explain
from tsbench.scenario.parts import Part
from tsbench.text import listed, shortened
from tsbench.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tsbench.results.summary import Summary


class Claim(Part):
    """[[claim]]: a published figure of one cell, or its ratio to another cell's.

    `holds` says what must agree: the `value` within a share, the `direction` of a ratio and its rough size, or nothing
    (`shown`): times and sizes may differ on other hardware.
    """

    text: str
    """Text of the claim in the report."""
    cell: str
    """Id of the run with the figure."""
    figure: str
    """A figure as in a gate, such as `ops/s` or `write:service:p50`."""
    published: Annotated[float, Field(allow_inf_nan=False)] | str
    """The published figure; a time with its unit."""
    over: str | None = None
    """Id of another run: the claim is about the ratio of `cell` to it."""
    holds: Literal["value", "direction", "shown"] = "value"
    """What must agree: the value within a share, the direction of a ratio, or nothing: both are only shown."""
    within: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.25
    """Share by which the value may differ."""

    @model_validator(mode="after")
    def _checked(self) -> Claim:
        gates.parse_figure(self.figure)
        if self.holds == "direction" and self.over is None:
            raise ValueError("holds = 'direction' is about a ratio; name the other cell with over = '...'")
        _ = self.published_value
        return self

    @property
    def published_value(self) -> float:
        """The published figure in the unit of the measurement: ns for a time."""
        return float(parse_duration_ns(self.published)) if isinstance(self.published, str) else self.published


def read_claims(path: Path) -> list[Claim]:
    """Return the claims of a scenario file; most have none.

    Raises
    ------
    UserMistake
        If a claim is malformed: one line that names file and key.
    """
    tables = read_document(path)[1].get("claim", [])
    if not isinstance(tables, list):
        raise UserMistake(f"{path}: claim: must be a list of tables; write [[claim]]")
    found = []
    for number, table in enumerate(tables):
        try:
            found.append(Claim.model_validate(table))
        except ValidationError as error:
            why = explain(error, Claim, {}, hidden={"matrix", "name"}, within=f"claim.{number}")
            raise UserMistake(f"{path}: {why}") from None
    return found


def expect_cells(claims: Sequence[Claim], cells: Collection[str], path: Path) -> None:
    """Verify that claims are about cells of the scenario.

    Raises
    ------
    UserMistake
        One line that names file, key and the nearest cell.
    """
    for number, claim in enumerate(claims):
        for key, cell in (("cell", claim.cell), ("over", claim.over)):
            if cell is not None and cell not in cells:
                near = difflib.get_close_matches(cell, cells, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(cells)}"
                raise UserMistake(f"{path}: claim.{number}.{key}: no cell is called '{shortened(cell)}'; {hint}")


def evaluate(claims: Sequence[Claim], summaries: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """Return the claims table of a result set: claim, published, measured, holds (None: undecided).

    A claim about an invalid cell is not judged, whatever its figures are; a cell with a failed gate is.
    """
    return [_row(claim, summaries) for claim in claims]


def _row(claim: Claim, summaries: Mapping[str, Summary]) -> dict[str, Any]:
    row: dict[str, Any] = {"claim": claim.text, "published": _text(claim, claim.published_value), "judged": claim.holds}
    cells = [claim.cell] + ([claim.over] if claim.over else [])
    values = []
    for cell in cells:
        summary = summaries.get(cell)
        if summary is None:
            return {**row, "measured": f"{cell} was not run", "holds": None}
        value, why = gates.figure_of(claim.figure, summary.to_json())
        if value is None:
            return {**row, "measured": f"{cell}: {why}", "holds": None}
        values.append(value)
    measured = values[0] if len(values) == 1 else values[0] / values[1] if values[1] else math.inf
    believed = all(summaries[cell].validity.is_valid for cell in cells)
    holds = _holds(claim, measured) if believed and claim.holds != "shown" else None
    return {**row, "measured": _text(claim, measured), "holds": holds}


def _holds(claim: Claim, measured: float) -> bool:
    published = claim.published_value
    if claim.holds == "direction":
        return (measured > 1) == (published > 1)
    return math.isclose(measured, published, rel_tol=0, abs_tol=claim.within * abs(published) or claim.within)


def _text(claim: Claim, value: float) -> str:
    return f"{value:.2f} times" if claim.over else gates.figure_text(claim.figure, value)
