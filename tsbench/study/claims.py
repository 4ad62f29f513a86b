"""Findings of a published study, as a scenario file states them: `[[claim]]`, and the `[[figure]]`s behind them.

A claim is about what another machine should show too: which of two is faster, smaller or steadier, at which load it
breaks, what grows with what. Times and rates of other hardware are figures: shown beside the measured ones, not judged.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.scenario.file import explain, read_document
from tsbench.scenario.types import Part
from tsbench.text import listed, shortened
from tsbench.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

Number = Annotated[float, Field(allow_inf_nan=False)]
Range = Annotated[list[Number], Field(min_length=2, max_length=2)]
NEVER = "never"
"""What a study published about a ramp that nothing broke."""
_NEAR_ONE = 1.25
"""A published ratio below this (and above its inverse) has no direction; the claim must say how far it may lie."""
_NEEDS = {
    "ratio": ("figure", "cell", "over"),
    "value": ("figure", "cell"),
    "break": ("gate", "rungs"),
    "growth": ("figure", "rungs"),
}
_KEYS = ("figure", "cell", "over", "gate", "rungs")


class Claim(Part):
    """[[claim]]: a finding of a published study, judged as reproduced, not reproduced, or not judged."""

    text: str
    """The finding in the words of the report."""
    kind: Literal["ratio", "value", "break", "growth"] = "ratio"
    """`ratio`: the figure of `cell` over that of `over`. `value`: a figure that does not depend on the hardware.
    `break`: the first of the `rungs` that misses the `gate`. `growth`: how the figure grows along the `rungs`."""
    figure: str | None = None
    """The judged figure as in a gate, such as `points/s` or `write:service:p99`. Not for `break`."""
    cell: str | None = None
    """Id of the run with the figure, for `ratio` and `value`."""
    over: str | None = None
    """Id of the run that it is compared with, for `ratio`."""
    over_figure: str | None = None
    """The figure of `over`, if it is another than that of `cell`, for `ratio`; both are times, or neither is."""
    gate: str | None = None
    """Condition that holds on calm rungs and not on broken ones, such as `write:failures<=0.1%`, for `break`."""
    rungs: dict[str, Number] = Field(default_factory=dict)
    """Ids of runs with their load in rising order, such as `{ "clients=25" = 25, "clients=50" = 50 }`."""
    published: Number | str | Range
    """The published ratio; value; loads between which it breaks (`[60, 75]`), or `"never"`; growth per doubled load."""
    band: Range | None = None
    """Lowest and highest measurement that reproduces the finding. Default for a ratio and a growth: from the square
    root to the square of what was published; for a value: from half to double. A `break` has none."""
    product: str = ""
    """The database of the study, as its version begins (`MongoDB`, or `InfluxDB or MongoDB`); on any other the claim is
    not judged."""

    @model_validator(mode="after")
    def _checked(self) -> Claim:
        needs = _NEEDS[self.kind]
        for key in _KEYS:
            if bool(getattr(self, key)) != (key in needs):
                raise ValueError(
                    f"{key}: " + ("is missing" if key in needs else "is not a key") + f" of a '{self.kind}'"
                )
        if self.figure is not None and self.kind == "value" and gates.parse_figure(self.figure).is_latency:
            raise ValueError("figure: a time depends on the hardware; compare two runs with kind = 'ratio'")
        if self.figure is not None:
            is_time = gates.parse_figure(self.figure).is_latency
            if self.over_figure is not None:
                self._check_over_figure(self.over_figure, is_time=is_time)
        loads = list(self.rungs.values())
        if loads and (len(loads) < 2 or loads[0] <= 0 or any(a >= b for a, b in pairwise(loads))):
            raise ValueError("rungs: must be at least two runs with loads above 0, in rising order")
        if self.kind == "break":
            self._check_break(loads)
        else:
            self._check_number()
        return self

    def _check_over_figure(self, figure: str, *, is_time: bool) -> None:
        if self.kind != "ratio":
            raise ValueError(f"over_figure: is not a key of a '{self.kind}'")
        if gates.parse_figure(figure).is_latency is not is_time:
            raise ValueError("over_figure: a time has no ratio to a figure that is none")

    def _check_break(self, loads: Sequence[float]) -> None:
        gates.parse_gate(self.gate or "")
        if self.band is not None:
            raise ValueError("band: a 'break' has none; published = [lowest, highest] is the range of loads")
        if self.published == NEVER:
            return
        if not isinstance(self.published, list):
            text = f"published: must be [lowest, highest] load at which it breaks, or '{NEVER}'"
            raise ValueError(text)  # noqa: TRY004 - pydantic's
        low, high = self.published
        if not any(low <= load <= high for load in loads):
            raise ValueError("published: no rung has a load in this range")
        if low <= loads[0]:
            raise ValueError("published: the range must begin above the first rung, which was calm")

    def _check_number(self) -> None:
        if not isinstance(self.published, float | int) or self.published <= 0:
            raise ValueError("published: must be a number above 0")
        if self.band is None and self.kind != "value" and 1 / _NEAR_ONE < self.published < _NEAR_ONE:
            raise ValueError("band: is missing; a published ratio near 1 does not say how far from it is too far")
        if self.band is not None and not 0 <= self.band[0] < self.band[1]:
            raise ValueError("band: must be [lowest, highest], the lowest at least 0")

    @property
    def cells(self) -> tuple[str, ...]:
        """Ids of all runs that the claim is about."""
        return tuple(cell for cell in (self.cell, self.over, *self.rungs) if cell is not None)

    @property
    def number(self) -> float:
        """The published ratio, value or growth; not of a `break`."""
        if isinstance(self.published, str | list):
            raise TypeError("a 'break' has no published number")
        return self.published

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest measurement that reproduces the finding; not of a `break`."""
        if self.band is not None:
            return self.band[0], self.band[1]
        published = self.number
        if self.kind == "value":
            return published / 2, published * 2
        low, high = sorted((math.sqrt(published), published**2))
        return low, high


class Figure(Part):
    """[[figure]]: a published figure of several runs, shown beside the measured one and not judged."""

    figure: str
    """A figure as in a gate, such as `ops/s` or `write:service:p50`."""
    published: dict[str, Number | str]
    """The published figures by the runs' ids; a time with its unit, "" for a run that the study has not."""

    @model_validator(mode="after")
    def _checked(self) -> Figure:
        gates.parse_figure(self.figure)
        for cell in self.published:
            _ = self.value(cell)
        return self

    def value(self, cell: str) -> float | None:
        """Return the published figure in the unit of the measurement (ns for a time); None without one."""
        published = self.published[cell]
        if published == "":
            return None
        is_time = gates.parse_figure(self.figure).is_latency
        if is_time != isinstance(published, str):
            raise ValueError(f"published.{cell}: must be " + ('a time such as "9ms"' if is_time else "a number"))
        return float(parse_duration_ns(published)) if isinstance(published, str) else float(published)


TABLES: dict[str, type[Part]] = {"claim": Claim, "figure": Figure}
"""The tables of a scenario file about a published study."""
P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Study:
    """What a scenario file says of a published study: its claims, and the figures behind them; most say nothing."""

    path: Path
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]

    @classmethod
    def read(cls, path: Path) -> Study:
        """Read a scenario file; raises UserMistake with file and key if a claim or a figure is malformed."""
        document = read_document(path)[1]
        claims = tuple(_parsed(path, "claim", document.get("claim", []), Claim))
        return cls(path, claims, tuple(_parsed(path, "figure", document.get("figure", []), Figure)))

    def expect_cells(self, cells: Collection[str]) -> None:
        """Verify that claims and figures are about cells of the scenario.

        Raises
        ------
        UserMistake
            One line that names file, key and the nearest cell.
        """
        places = [(f"claim.{number}.{_key_of(claim, cell)}", cell)
                  for number, claim in enumerate(self.claims) for cell in claim.cells]  # fmt: skip
        places += [(f"figure.{n}.published", cell) for n, one in enumerate(self.figures) for cell in one.published]
        for place, cell in places:
            if cell not in cells:
                near = difflib.get_close_matches(cell, cells, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(list(cells))}"
                raise UserMistake(f"{self.path}: {place}: no cell is called '{shortened(cell)}'; {hint}")


def _parsed(path: Path, key: str, tables: object, model: type[P]) -> Iterator[P]:
    if not isinstance(tables, list):
        raise UserMistake(f"{path}: {key}: must be a list of tables; write [[{key}]]")
    for number, table in enumerate(tables):
        try:
            yield model.model_validate(table)
        except ValidationError as error:
            why = explain(error, model, {}, within=f"{key}.{number}")
            raise UserMistake(f"{path}: {why}") from None


def _key_of(claim: Claim, cell: str) -> str:
    return "cell" if cell == claim.cell else "over" if cell == claim.over else "rungs"
